//! Every figure is well-formed SVG, every experiment complete.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_report::chart::{Bar, Chart, Line, Marks, Spread, Stack};
use hyades_report::data::{Data, Outcome};
use hyades_report::experiment::{Experiment, Shape};
use hyades_report::judge::Verdict;
use hyades_report::page::{About, Page};
use hyades_report::plan::{SEEDS, plan};
use hyades_report::scale::{Axes, Processors, Rates, Setup, Size};
use hyades_report::{svg, table};
use serde_json::json;

/// Checks markup: elements are closed in order, quotes in tags are balanced, and text has no bare
/// `>`. Returns the number of elements.
fn well_formed(text: &str) -> usize {
    let (mut rest, mut open, mut elements) = (text, Vec::new(), 0);
    while let Some(at) = rest.find('<') {
        assert!(
            !rest[..at].contains('>'),
            "a bare > before {:?}",
            &rest[at..rest.len().min(at + 60)]
        );
        let end = rest[at..].find('>').expect("a tag ends") + at;
        let tag = &rest[at + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in {tag:?}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name.to_string()), "closed in order");
        } else {
            elements += 1;
            if !tag.ends_with('/') {
                open.push(tag.split_whitespace().next().unwrap().to_string());
            }
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "left open: {open:?}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "numbers are finite");
    elements
}

fn chart(marks: Marks) -> String {
    let title = "a < b & \"c\"".to_string();
    svg::draw(&Chart { title, y: "rate / s".to_string(), marks, simulated: true })
}

#[test]
fn every_kind_of_figure_is_well_formed() {
    let spread = Spread { low: 1.0, median: 2.0, high: 5.0, count: 5 };
    let lines = vec![
        Line { label: "Taurus data <1>".to_string(), points: vec![(1.0, spread), (8.0, spread)] },
        Line { label: "Serial data".to_string(), points: vec![(1.0, Spread::one(0.0))] },
    ];
    for (log_x, log_y) in [(false, false), (true, true), (true, false)] {
        let mark = log_x.then(|| (2.0, "the paper's <hardware>".to_string()));
        let claims = if log_x { vec![(0, 2.0, 3.0), (0, 2.0, 900.0)] } else { Vec::new() };
        let (lines, x) = (lines.clone(), "x".to_string());
        let marks = Marks::Lines { lines, x, log_x, log_y, mark, claims };
        assert!(well_formed(&chart(marks)) > 20);
    }
    let bar = |label: &str, value, paper| Bar { label: label.to_string(), value, paper };
    for log in [false, true] {
        let bars = vec![
            bar("Taurus command", Ok(spread), Some(12.0)),
            bar("Poplar", Err("not available & so on".to_string()), None),
        ];
        assert!(well_formed(&chart(Marks::Bars { bars, log })) > 15);
    }
    let stacks = vec![Stack { label: "No logging".to_string(), parts: vec![1.0, -0.5, 2.0] }];
    let parts = vec!["a".to_string(), "b".to_string(), "c".to_string()];
    assert!(well_formed(&chart(Marks::Stacks { stacks, parts })) > 15);
}

#[test]
fn a_figure_of_nothing_is_still_a_figure() {
    let (mark, claims) = (None, Vec::new());
    let marks =
        Marks::Lines { lines: vec![], x: String::new(), log_x: true, log_y: true, mark, claims };
    well_formed(&chart(marks));
    well_formed(&chart(Marks::Bars { bars: vec![], log: true }));
}

fn experiments() -> Vec<Experiment> {
    table::all(&Setup::typical(Size::FULL))
}

#[test]
fn every_experiment_has_a_claim_a_source_and_a_way_to_judge() {
    for experiment in experiments() {
        let id = experiment.id;
        assert!(experiment.claim.len() > 20 && !experiment.source.is_empty(), "{id}");
        assert!(!experiment.claim.contains("  "), "{id}: a claim with two spaces");
        let measured = experiment.not_measured.is_none();
        assert_eq!(
            measured,
            !experiment.runs.is_empty(),
            "{id}: it is measured, or it says why not"
        );
        assert_eq!(measured, !experiment.panels.is_empty(), "{id}");
        assert_eq!(measured, !experiment.checks.is_empty(), "{id}");
        assert_eq!(measured, !experiment.differs.is_empty(), "{id}: what differs");
        for text in experiment.differs.iter().chain([&experiment.how]) {
            assert!(!text.contains("  "), "{id}: two spaces in {text:?}");
        }
        assert!(experiment.differs.iter().all(|text| !text.ends_with('.')), "{id}");
        for panel in &experiment.panels {
            let series: Vec<_> = experiment
                .runs
                .iter()
                .filter(|r| r.group == panel.group)
                .map(|r| &r.series)
                .collect();
            assert!(!series.is_empty(), "{id}: no run for {}", panel.title);
            let pairs = match &panel.shape {
                Shape::Bars { paper: pairs, .. } | Shape::Ratios { pairs } => &pairs[..],
                _ => &[],
            };
            for name in pairs.iter().flat_map(|(of, over, _)| [of, over]) {
                assert!(series.iter().any(|s| s == name), "{id}: no series {name}");
            }
        }
    }
}

/// Data in which all runs printed the same figures. With them every check finds its series.
fn same_everywhere(experiments: &[Experiment]) -> Data {
    let printed = json!({
        "workers": 2, "acknowledged": 1000, "acknowledged_per_s": 1e6, "aborts": 5, "seconds": 1.0,
        "latency_us": {"p50": 100.0, "p99": 900.0}, "device_bytes": 1e6,
        "log_bytes_per_transaction": 50.0,
        "recovery": {"seconds": 2.0, "image_seconds": 1.0, "records": 100, "bytes": 1e4,
                     "image_rows": 100, "image_bytes": 1e4, "records_per_s": 1e5,
                     "state_matches": true},
        "log": {"incarnations": [{"parallelism": 12.5}]},
        "scans": {"completed": 10, "failed": 0, "rows_per_s": 2e5},
        "cache": {"hit_rate": 0.9},
        "observed": {
            "reads": {"mean_us": 2.0, "points": [[1.0, 0.5], [9.0, 1.0]]},
            "dc_gets": {"mean_us": 8.0, "points": [[7.0, 0.5], [9.0, 1.0]]},
            "fast_reads": 0.9, "fast_writes": 1.0, "collecting_share": 0.01,
            "over_time": [
                {"seconds": 0.1, "acknowledged_per_s": 1e6, "version_bytes": 1e6,
                 "collecting_share": 0.01, "accesses_per_key": 3.0, "touched_share": 0.5},
                {"seconds": 0.2, "acknowledged_per_s": 1e6, "version_bytes": 2e6,
                 "collecting_share": 0.01, "accesses_per_key": 20.0, "touched_share": 0.9},
            ],
        },
    });
    let mut data = Data::default();
    for step in plan(experiments, 2) {
        data.add(&step.words, Outcome::Done(printed.clone()));
    }
    data
}

fn about() -> About {
    About {
        program: "hyades".to_string(),
        machine: "a machine".to_string(),
        date: "2026-11-21".to_string(),
        seconds: 1.0,
        size: Size::FULL,
        rates: Some(Rates::TYPICAL),
        processors: Processors { cores: 2, ghz: 2.0 },
        commit: Some("0123abc".to_string()),
        placeholders: vec![("CALIBRATION".to_string(), "calibration.json".to_string())],
        calibration: Some(json!({"costs": {"a": 1}, "validation": [
            {"point": "p", "measured": 2.0, "model": 1.0, "residual": -0.5}], "fitted": [
            {"point": "q", "measured": 4.0, "model": 5.0, "residual": 0.25}]})),
    }
}

#[test]
fn with_all_figures_everything_is_judged_and_drawn() {
    let experiments = experiments();
    let data = same_everywhere(&experiments);
    let page = Page { about: about(), experiments: &experiments, data: &data };
    let json = page.json();
    for experiment in json["experiments"].as_array().unwrap() {
        let found = experiment["findings"].as_array().unwrap().len();
        assert_eq!(experiment["checks"], found, "{}", experiment["id"]);
    }
    let html = page.html();
    assert!(!html.contains(": no figures."));
    for (id, verdict) in page.verdicts() {
        assert!(html.contains(&format!("<section id=\"{id}\"")));
        assert_eq!(verdict == Verdict::SimulatedOnly, id.starts_with("simulated"), "{id}");
    }
    for figure in html.split("<svg ").skip(1) {
        let (svg, _) = figure.split_once("</svg>").unwrap();
        well_formed(&format!("<svg {svg}</svg>"));
    }
}

/// Data of runs whose throttled devices write and read as much as they can, so that rates are the
/// inverse of bytes.
fn bound_by_devices(experiments: &[Experiment]) -> Data {
    let mut data = Data::default();
    for step in plan(experiments, 3) {
        let run = json!({
            "workers": 2, "acknowledged": 1000, "acknowledged_per_s": 1e6, "seconds": 1.0,
            "device_bytes": 1e15, "log_bytes_per_transaction": 50.0,
            "recovery": {"seconds": 2.0, "image_seconds": 1.0, "records": 100, "bytes": 1e15,
                         "image_rows": 100, "image_bytes": 1e15,
                         "records_per_s": 1e5, "state_matches": true},
        });
        data.add(&step.words, Outcome::Done(run));
    }
    data
}

/// A page that lets readers find such checks by themselves would pass off the devices' bandwidth as
/// a result.
#[test]
fn arithmetic_of_the_throttle_is_said_first_and_counts_in_no_verdict() {
    let experiments = experiments();
    let data = bound_by_devices(&experiments);
    let page = Page { about: about(), experiments: &experiments, data: &data };
    let html = page.html();
    let (first, _) = html.split_once("<table>").expect("the table of verdicts");
    for words in ["Arithmetic of the throttle:", "2020-hdd-logging", "poplar-recovery"] {
        assert!(first.contains(words), "{words}");
    }
    let json = page.json();
    let experiments = json["experiments"].as_array().unwrap();
    let of = |id: &str| experiments.iter().find(|experiment| experiment["id"] == id).unwrap();
    assert_eq!(of("2020-hdd-logging")["findings"][0]["level"], "arithmetic of the throttle");
    assert_eq!(of("poplar-recovery")["verdict"], "not tested");
}

/// The same figures everywhere are no device's limit: what claims a factor is then judged.
#[test]
fn what_devices_do_not_limit_is_judged() {
    let experiments = experiments();
    let data = same_everywhere(&experiments);
    let page = Page { about: about(), experiments: &experiments, data: &data };
    let json = page.json();
    let all = json["experiments"].as_array().unwrap();
    let logging = all.iter().find(|one| one["id"] == "2020-hdd-logging").unwrap();
    assert_eq!(logging["findings"][0]["level"], "does not hold");
    assert!(!page.html().contains("Arithmetic of the throttle:"));
}

#[test]
fn one_round_holds_nothing() {
    let experiments = experiments();
    let mut data = same_everywhere(&experiments);
    data.outcomes.values_mut().for_each(|outcomes| outcomes.truncate(1));
    let page = Page { about: about(), experiments: &experiments, data: &data };
    for (id, verdict) in page.verdicts().into_iter().filter(|(id, _)| !id.starts_with("sim")) {
        let none = [Verdict::Undecided, Verdict::NotMeasured, Verdict::NotTested];
        assert!(none.contains(&verdict), "{id}: {verdict:?}");
    }
}

#[test]
fn the_page_needs_no_other_file() {
    let experiments = experiments();
    let data = same_everywhere(&experiments);
    let html = Page { about: about(), experiments: &experiments, data: &data }.html();
    let outside = html.replace("http://www.w3.org/2000/svg", "");
    for sign in ["http:", "https:", "src=", "<script", "@import", "url("] {
        assert!(!outside.contains(sign), "{sign}");
    }
}

#[test]
fn what_a_build_lacks_is_said_and_stops_nothing() {
    let experiments = experiments();
    let mut data = Data::default();
    for step in plan(&experiments, 1) {
        let refused = Outcome::Unavailable("error: invalid value 'poplar'".to_string());
        data.add(&step.words, refused);
    }
    let page = Page { about: about(), experiments: &experiments, data: &data };
    assert!(page.verdicts().iter().all(|(_, verdict)| *verdict == Verdict::NotMeasured));
    assert!(page.html().contains("not available in this build"));
}

#[test]
fn the_models_residuals_are_shown_held_out_points_first() {
    let experiments = experiments();
    let html = Page { about: about(), experiments: &experiments, data: &Data::default() }.html();
    let places = ["Held-out point", "-50.0 %", "Fitted point", "+25.0 %"].map(|it| html.find(it));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
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

/// The table of results has no place for a verdict by hand.
#[test]
fn the_documentation_takes_its_results_from_a_report() {
    let docs = include_str!("../../../docs/experiments.md");
    let experiments = experiments();
    let data = same_everywhere(&experiments);
    let report = Page { about: about(), experiments: &experiments, data: &data }.json();
    let page = hyades_report::docs::replace(docs, &report).unwrap();
    for experiment in &experiments {
        assert!(page.contains(&format!("\n| `{}` | ", experiment.id)), "{}", experiment.id);
        // Outside of what is replaced no experiment has a result.
        let (before, rest) = docs.split_once(hyades_report::docs::BEGIN).unwrap();
        let (_, after) = rest.split_once(hyades_report::docs::END).unwrap();
        assert!(!before.contains(experiment.id) && !after.contains(experiment.id));
    }
    assert!(page.contains("commit `0123abc`"));
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
