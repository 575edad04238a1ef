//! The table of experiments: its commands are what their texts say, and no result is in a set-up.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_report::experiment::{Experiment, Run};
use hyades_report::plan::{SEEDS, plan};
use hyades_report::scale::{Axes, Setup, Size};
use hyades_report::table;

fn experiments() -> Vec<Experiment> {
    table::all(&Setup::typical(Size::FULL))
}

#[test]
fn a_command_runs_once_in_each_round_and_rounds_alternate() {
    let experiments = experiments();
    let steps = plan(&experiments, 3);
    let of = |round| steps.iter().filter(move |step| step.round == round).map(|step| &step.words);
    let mut once: Vec<_> = of(0).collect();
    let all = once.len();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), all);
    let measured = |words: &&Vec<String>| words[0] != "simulate";
    let forwards: Vec<_> = of(0).collect();
    let mut backwards: Vec<_> = of(1).collect();
    backwards.reverse();
    assert_eq!(forwards, backwards);
    // By then simulations have had their seeds.
    let forwards: Vec<_> = forwards.into_iter().filter(measured).collect();
    assert_eq!(forwards, of(2).collect::<Vec<_>>());
}

/// A simulation repeats itself with the same seed: rounds of it would be one run counted often.
#[test]
fn every_round_of_a_simulation_has_its_own_seed() {
    let mut seen = std::collections::BTreeSet::new();
    let steps = plan(&experiments(), SEEDS + 1);
    for step in &steps {
        let arguments = step.arguments();
        match step.words[0].as_str() {
            "simulate" => {
                assert!(!step.words.iter().any(|word| word == "--seed"), "{arguments:?}");
                assert!(arguments.ends_with(&["--seed".into(), (step.round + 1).to_string()]));
                assert!(step.round < SEEDS && seen.insert(arguments));
            }
            _ => assert_eq!(arguments, step.words),
        }
    }
    assert!(seen.len() > 100, "{}", seen.len());
}

/// Directories for logs, a number of workers and a concurrency control reach every run that they
/// apply to.
#[test]
fn axes_reach_the_commands() {
    let axes = Axes {
        log_dirs: ["/a", "/b"].map(str::to_string).into(),
        workers: Some(24),
        concurrency: Some("tictoc".to_string()),
    };
    let setup = Setup { axes, ..Setup::typical(Size::FULL) };
    let all = table::all(&setup);
    let of = |id: &str| all.iter().find(|experiment| experiment.id == id).unwrap();
    for id in ["2020-hdd-logging", "2016-loggers", "poplar-logging", "2020-streams"] {
        for run in &of(id).runs {
            let text = run.words.join(" ");
            assert!(!text.contains("throttled"), "{id}: {text}");
            assert_eq!(text.matches("--workers 24").count(), 1, "{id}: {text}");
            assert_eq!(text.matches("--workers").count(), 1, "{id}: {text}");
            assert_eq!(text.matches("--concurrency tictoc").count(), 1, "{id}: {text}");
            assert_eq!(text.matches("--concurrency").count(), 1, "{id}: {text}");
        }
    }
    for run in all.iter().flat_map(|experiment| &experiment.runs) {
        let mut options: Vec<&String> = run.words.iter().filter(|w| w.starts_with("--")).collect();
        options.retain(|option| *option != "--log-dir");
        let count = options.len();
        options.sort();
        options.dedup();
        assert_eq!(options.len(), count, "an option twice: {}", run.words.join(" "));
    }
    // What rests on the settings of throttled devices keeps them.
    let slow = &of("shape-slow-stream").runs;
    assert!(slow.iter().all(|run| run.words.iter().any(|word| word.starts_with("throttled"))));
    let runs = &of("2020-hdd-logging").runs;
    assert!(runs.iter().any(|run| run.words.iter().any(|word| word.starts_with("/b/"))));
    assert!(runs.iter().all(|run| run.x == 1.0));
}

/// The ratios that the papers claim. Those that are also plain numbers, such as 1.5, 2 and 6, are
/// not among them.
const CLAIMED: [&str; 32] = [
    "2.1", "13.8", "11.7", "9.9", "2.9", "2.4", "2.8", "22.9", "75.6", "42.6", "9.7", "7.1", "9.2",
    "5.2", "11.3", "5.5", "17.5", "6.7", "7.7", "6.3", "6.4", "1.7", "12.8", "3.8", "2.67", "4.9",
    "9.8", "3.76", "280.0", "131.0", "2.04", "2.05",
];

/// The numbers of a line of code, and whether each is a factor. Strings and comments are no code.
fn numbers(line: &str) -> Vec<(String, bool)> {
    let code = line.split("//").next().unwrap_or("");
    let code: String = code.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(from) = code[at..].find(is_part).map(|from| at + from) {
        let end = code[from..].find(|c| !is_part(c)).map_or(code.len(), |end| from + end);
        let word = code[from..end].trim_end_matches("f64");
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let before = code[..from].trim_end().ends_with(['*', '/']);
            let after = code[end..].trim_start().starts_with(['*', '/']);
            out.push((word.to_string(), before || after));
        }
        at = end;
    }
    out
}

fn sources(dir: &str) -> Vec<(String, String)> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let files = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|kind| kind == "rs"));
    files.map(|p| (p.display().to_string(), std::fs::read_to_string(&p).unwrap())).collect()
}

/// A device or a model that is made with a claimed ratio gives that ratio back.
#[test]
fn no_claimed_ratio_is_in_the_set_up() {
    let claimed =
        |number: &str| CLAIMED.contains(&number) || CLAIMED.contains(&&*format!("{number}.0"));
    let own = [("scale.rs".to_string(), include_str!("../src/scale.rs").to_string())];
    let mut seen = 0;
    for (file, text) in sources("../scaling/src").into_iter().chain(own) {
        for line in text.lines() {
            for (number, _) in numbers(line) {
                seen += 1;
                assert!(!claimed(&number), "{file}: {line}");
            }
        }
    }
    let mut claims = 0;
    for (file, text) in sources("src/table") {
        for line in text.lines() {
            for (number, is_factor) in numbers(line) {
                claims += usize::from(claimed(&number));
                assert!(!(is_factor && claimed(&number)), "{file}: {line}");
            }
        }
    }
    // The test sees what it looks for.
    assert!(seen > 20 && claims > 30, "{seen} {claims}");
    let line = "let a = 9.2 * b / 5.2; // 7.7 * c";
    let found = [("9.2".to_string(), true), ("5.2".to_string(), true)];
    assert_eq!(numbers(line), found);
}

/// One run decides nothing, and three have a narrow interval.
#[test]
fn enough_rounds_fit_into_the_time() {
    for (size, rounds) in [(Size::QUICK, 2), (Size::FULL, 3)] {
        let experiments = table::all(&Setup::typical(size));
        let steps = plan(&experiments, rounds);
        let cost = hyades_report::plan::cost(&steps);
        let mut by: std::collections::BTreeMap<&str, f64> = Default::default();
        steps.iter().for_each(|step| *by.entry(step.experiment).or_default() += step.cost);
        assert!(cost < size.budget, "{} steps take {cost:.0} s: {by:.0?}", steps.len());
    }
}

/// A comparison of schemes holds for one concurrency control.
#[test]
fn the_series_of_a_group_have_the_same_concurrency_control() {
    // These compare controls, or name that of a series.
    const ABOUT_CONTROLS: [&str; 4] =
        ["concurrency-contention", "concurrency-long-reads", "command-spanning", "command-at-home"];
    for experiment in experiments() {
        if ABOUT_CONTROLS.contains(&experiment.id) {
            continue;
        }
        let mut by: std::collections::BTreeMap<&str, Vec<Option<&String>>> = Default::default();
        for run in experiment.runs.iter().filter(|run| run.words[0] == "bench") {
            let at = run.words.iter().position(|word| word == "--concurrency");
            by.entry(run.group).or_default().push(at.and_then(|at| run.words.get(at + 1)));
        }
        for (group, mut controls) in by {
            controls.dedup();
            assert_eq!(controls.len(), 1, "{}, {group}: {controls:?}", experiment.id);
        }
    }
}

/// Serial replay is compared with parallel replay, not with what may fall back to serial replay.
#[test]
fn what_is_called_parallel_is_replayed_in_parallel() {
    let experiments = experiments();
    let runs = &experiments.iter().find(|of| of.id == "2020-contention").unwrap().runs;
    let ways = |label: &str| -> Vec<bool> {
        let own = runs.iter().filter(|run| run.series.ends_with(label));
        own.map(|run| run.words.join(" ").contains("--recovery parallel")).collect()
    };
    assert!(!ways("in parallel").is_empty() && ways("in parallel").iter().all(|is| *is));
    assert!(ways("while it replays").iter().all(|is| !is));
}

/// Real devices are read with a cold cache; memory has none.
#[test]
fn recovery_from_real_devices_is_cold() {
    let axes = Axes { log_dirs: vec!["/a".to_string()], ..Axes::default() };
    let setup = Setup { axes, ..Setup::typical(Size::FULL) };
    let is_cold = |run: &Run| run.words.iter().any(|word| word == "--cold");
    let mut cold = 0;
    for run in table::all(&setup).iter().flat_map(|experiment| &experiment.runs) {
        let has = |word: &str| run.words.iter().any(|own| own == word);
        let reads = has("--recover") && run.words.iter().any(|word| word.starts_with("/a/"));
        assert_eq!(is_cold(run), reads, "{}", run.words.join(" "));
        cold += usize::from(reads);
    }
    assert!(cold > 20, "{cold}");
    assert!(experiments().iter().all(|experiment| !experiment.runs.iter().any(is_cold)));
}

/// Of what the papers run on TicToc, only what is sound under it.
#[test]
fn sequence_numbers_do_not_run_under_tictoc() {
    for run in experiments().iter().flat_map(|experiment| &experiment.runs) {
        let has = |word: &str| run.words.iter().any(|own| own == word);
        let numbered = ["gsn", "plover", "poplar", "physiological"].into_iter().any(has);
        assert!(!(numbered && has("tictoc")), "{}", run.words.join(" "));
    }
}
