//! The table of experiments: commands agree with their texts, and no result is in a set-up.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_report::data::{Data, View};
use hyades_report::experiment::{Experiment, Run, Shape};
use hyades_report::plan::{SEEDS, SHOWN, Step, judged, plan};
use hyades_report::scale::{Axes, Setup, Size};
use hyades_report::table;
use std::collections::BTreeSet;
use std::path::Path;

fn experiments() -> Vec<Experiment> {
    table::all(&Setup::typical(Size::FULL))
}

#[test]
fn a_command_runs_once_in_each_round_and_rounds_alternate() {
    let experiments = experiments();
    let steps = plan(&experiments, 3);
    let commands =
        |round| steps.iter().filter(move |step| step.round == round).map(|step| &step.words);
    let mut once: Vec<_> = commands(0).collect();
    let all = once.len();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), all);
    let measured = |words: &&Vec<String>| words[0] != "simulate";
    let forwards: Vec<_> = commands(0).collect();
    let mut backwards: Vec<_> = commands(1).collect();
    backwards.reverse();
    assert_eq!(forwards, backwards);
    // By the third round simulations have had all seeds.
    let forwards: Vec<_> = forwards.into_iter().filter(measured).collect();
    assert_eq!(forwards, commands(2).collect::<Vec<_>>());
}

/// A simulation with the same seed repeats the same run: rounds would count one run often.
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

/// Directories for logs, a number of workers and a concurrency control reach every run to which
/// the option applies.
#[test]
fn axes_reach_the_commands() {
    let axes = Axes {
        log_dirs: ["/a", "/b"].map(str::to_string).into(),
        workers: Some(24),
        concurrency: Some("tictoc".to_string()),
        ..Axes::default()
    };
    let setup = Setup { axes, ..Setup::typical(Size::FULL) };
    let all = table::all(&setup);
    let experiment = |id: &str| all.iter().find(|experiment| experiment.id == id).unwrap();
    for id in ["2020-hdd-logging", "2016-loggers", "poplar-logging", "2020-streams"] {
        let runs = &experiment(id).runs;
        // Vectors alone have neither a log nor workers.
        let is_workload = |run: &&Run| run.words[1] != "vectors";
        assert!(runs.iter().filter(is_workload).count() > 10, "{id}");
        for run in runs.iter().filter(is_workload) {
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
    // Experiments about the settings of throttled devices keep the devices.
    let slow = &experiment("shape-slow-stream").runs;
    assert!(slow.iter().all(|run| run.words.iter().any(|word| word.starts_with("throttled"))));
    let runs = &experiment("2020-hdd-logging").runs;
    assert!(runs.iter().any(|run| run.words.iter().any(|word| word.starts_with("/b/"))));
    assert!(runs.iter().all(|run| run.x == 1.0));
}

/// A given log service keeps the lanes of every run with standbys, and of no other run.
#[test]
fn a_log_service_reaches_the_runs_with_standbys() {
    let axes = Axes {
        log_service: Some("nats://h:1/n".to_string()),
        lane_replicas: Some(1),
        ..Axes::default()
    };
    let all = table::all(&Setup { axes, ..Setup::typical(Size::FULL) });
    let has = |run: &Run, words: &str| run.words.join(" ").contains(words);
    let mut seen = 0;
    for run in all.iter().flat_map(|experiment| &experiment.runs) {
        let follows = has(run, "--standbys");
        seen += usize::from(follows);
        assert_eq!(has(run, "--log-service nats://h:1/n --lane-replicas 1"), follows);
    }
    assert!(seen > 10, "{seen}");
    let own = experiments();
    assert!(!own.iter().flat_map(|one| &one.runs).any(|run| has(run, "--log-service")));
}

/// Claims that are also plain numbers, found in any source.
const PLAIN: [&str; 24] = [
    "0", "0.5", "0.6", "0.75", "0.8", "0.95", "1", "1.1", "1.2", "1.3", "1.5", "2", "3", "4", "5",
    "6", "8", "9", "10", "16", "20", "30", "50", "100",
];

/// The claimed numbers of a text: the numbers behind `paper` in parentheses.
fn claimed_by(text: &str) -> Vec<String> {
    let claims = text.split("(paper").skip(1).filter_map(|rest| rest.split(')').next());
    let claims = claims.filter_map(|claim| claim.split("expected").next());
    claims.flat_map(numbers).map(|(number, _)| number).collect()
}

/// The claimed numbers of the tables: of findings, of the marks in figures, and of the claims in
/// words except whole numbers. Plain numbers are left out.
fn claimed() -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for experiment in experiments() {
        for check in &experiment.checks {
            let finding = check.look(&View { experiment: &experiment, data: &Data::trial() });
            out.extend(finding.iter().flat_map(|finding| claimed_by(&finding.text)));
        }
        for panel in &experiment.panels {
            let (Shape::Bars { paper: pairs, .. } | Shape::Ratios { pairs }) = &panel.shape else {
                continue;
            };
            out.extend(pairs.iter().map(|(.., ratio)| ratio.to_string()));
        }
        let words = numbers(experiment.claim).into_iter().map(|(number, _)| number);
        out.extend(words.filter(|number| number.trim_end_matches('.').contains('.')));
    }
    out.into_iter()
        .map(|number| number.trim_end_matches(['.', ',']).trim_end_matches(".0").to_string())
        .filter(|number| number.parse::<f64>().is_ok() && !PLAIN.contains(&&**number))
        .collect()
}

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

/// The sources below a directory, at any depth, without their tests.
fn sources(dir: &Path) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            out.extend(sources(&path));
        } else if path.extension().is_some_and(|kind| kind == "rs") && !path.ends_with("tests.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let own = text.split("#[cfg(test)]\nmod ").next().unwrap().to_string();
            out.push((path.display().to_string(), own));
        }
    }
    out
}

/// A device or a model made with a claimed ratio gives the same ratio back.
#[test]
fn no_claimed_ratio_is_in_the_set_up() {
    let all = claimed();
    let is_claimed = |number: &str| all.contains(number.trim_end_matches(".0"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = [("scale.rs".to_string(), include_str!("../src/scale.rs").to_string())];
    let scaling = sources(&here.join("../scaling/src"));
    let mut seen = 0;
    for (file, text) in scaling.into_iter().chain(own) {
        for line in text.lines() {
            for (number, _) in numbers(line) {
                seen += 1;
                assert!(!is_claimed(&number), "{file}: {line}");
            }
        }
    }
    let tables = sources(&here.join("src/table"));
    assert!(tables.iter().any(|(file, _)| file.contains("/command_logging/")), "not at any depth");
    let mut claims = 0;
    for (file, text) in tables {
        for line in text.lines() {
            for (number, is_factor) in numbers(line) {
                claims += usize::from(is_claimed(&number));
                assert!(!(is_factor && is_claimed(&number)), "{file}: {line}");
            }
        }
    }
    // The test finds the claims.
    assert!(seen > 20 && claims > 60, "{seen} {claims}");
    let line = "let a = 9.2 * b / 5.2; // 7.7 * c";
    let found = [("9.2".to_string(), true), ("5.2".to_string(), true)];
    assert_eq!(numbers(line), found);
    assert_eq!(claimed_by("3.1 % of 7 (paper: 0.6 to 2.1 %; expected: 4)"), ["0.6", "2.1"]);
    // Of findings, of figures, of words; also of experiments in directories below.
    for known in ["9.2", "11.3", "13.8", "112", "89.5", "1.19", "1.47", "1.09", "280", "2.07"] {
        assert!(all.contains(known), "{known}: {all:?}");
    }
}

/// Runs read by a judged check repeat in every round, and runs only for a figure in the first ones.
#[test]
fn what_is_judged_is_repeated_most() {
    let experiments = experiments();
    let judged = judged(&experiments);
    let steps = plan(&experiments, SHOWN + 2);
    let in_last = |step: &&Step| step.round == SHOWN + 1;
    let last: BTreeSet<String> =
        steps.iter().filter(in_last).map(|step| step.words.join(" ")).collect();
    assert!(last.iter().all(|command| judged.contains(command)));
    let experiment = |id: &str| experiments.iter().find(|experiment| experiment.id == id).unwrap();
    // Some checks of the first experiment are judged; none of the second's.
    assert!(experiment("poplar-scan").runs.iter().any(|run| last.contains(&run.words.join(" "))));
    assert!(
        experiment("2020-accesses").runs.iter().all(|run| !last.contains(&run.words.join(" ")))
    );
    assert!(last.len() > 100, "{}", last.len());
}

/// A figure without a run would be empty.
#[test]
fn every_experiment_that_can_be_measured_is_also_in_a_quick_report() {
    let quick = table::all(&Setup::typical(Size::QUICK));
    let steps = plan(&quick, 1);
    let once: BTreeSet<&Vec<String>> = steps.iter().map(|step| &step.words).collect();
    for experiment in quick.iter().filter(|experiment| experiment.not_measured.is_none()) {
        assert!(!experiment.runs.is_empty(), "{}", experiment.id);
        assert!(experiment.runs.iter().all(|run| once.contains(&run.words)), "{}", experiment.id);
    }
}

/// A single run decides nothing, and from five rounds on intervals are intervals of medians.
#[test]
fn enough_rounds_fit_into_the_time() {
    // Duration over estimate of runs, on 2 cores: 0.77 in a full report, 0.71 in a quick report.
    const PACE: f64 = 0.8;
    for (size, rounds) in [(Size::QUICK, 2), (Size::FULL, 5)] {
        let experiments = table::all(&Setup::typical(size));
        let steps = plan(&experiments, rounds);
        let cost = PACE * hyades_report::plan::cost(&steps);
        let mut by: std::collections::BTreeMap<&str, f64> = Default::default();
        steps.iter().for_each(|step| *by.entry(step.experiment).or_default() += step.cost);
        assert!(cost < size.budget, "{} steps take {cost:.0} s: {by:.0?}", steps.len());
    }
}

/// A comparison of schemes holds for one concurrency control.
#[test]
fn the_series_of_a_group_have_the_same_concurrency_control() {
    // Experiments that compare controls, or name the control of a series.
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

/// Serial replay is compared with parallel replay, not with a choice that may fall back to serial.
#[test]
fn what_is_called_parallel_is_replayed_in_parallel() {
    let experiments = experiments();
    let runs =
        &experiments.iter().find(|experiment| experiment.id == "2020-contention").unwrap().runs;
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

/// Of the papers' runs on TicToc, only protocols that are sound under TicToc.
#[test]
fn sequence_numbers_do_not_run_under_tictoc() {
    for run in experiments().iter().flat_map(|experiment| &experiment.runs) {
        let has = |word: &str| run.words.iter().any(|own| own == word);
        let numbered = ["gsn", "plover", "poplar", "physiological"].into_iter().any(has);
        assert!(!(numbered && has("tictoc")), "{}", run.words.join(" "));
    }
}

/// A reason that reads no figures would be printed for any deviation, also for one upwards.
#[test]
fn every_reason_reads_figures() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for (file, text) in sources(&here.join("src/table")) {
        let code: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for reason in ["not_by(", "above_by("] {
            for rest in code.split(reason).skip(1) {
                seen += 1;
                let rest = rest.trim_start().trim_start_matches("move ");
                assert!(!rest.starts_with("|_"), "{file}: {reason}{}", &rest[..60.min(rest.len())]);
            }
        }
        assert!(!code.contains("above_because"), "{file}");
    }
    assert!(seen > 20, "{seen}");
}
