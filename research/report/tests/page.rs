//! Every figure is well-formed SVG, every experiment complete.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_report::chart::{Bar, Chart, Line, Marks, Spread, Stack};
use hyades_report::data::{Data, Outcome};
use hyades_report::experiment::{Experiment, Shape};
use hyades_report::judge::Verdict;
use hyades_report::page::{About, Page};
use hyades_report::plan::plan;
use hyades_report::scale::{Axes, Processors, Rates, Setup, Size};
use hyades_report::{definition, docs, svg, table};
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
    let spread = Spread { low: 1.0, median: 2.0, high: 5.0, count: 5, dropped: 0 };
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
            for name in pairs.iter().flat_map(|(label, over, _)| [label, over]) {
                assert!(series.iter().any(|s| s == name), "{id}: no series {name}");
            }
        }
    }
}

/// Data with the same figures from all runs. With the data every check finds its series.
fn same_everywhere(experiments: &[Experiment]) -> Data {
    let usage = json!({"first": {"resource": "a lock", "utilisation": 0.93, "is_saturated": true}});
    let printed = json!({
        "workers": 2, "acknowledged": 1000, "acknowledged_per_s": 1e6, "aborts": 5, "seconds": 1.0,
        "latency_us": {"p50": 100.0, "p99": 900.0}, "device_bytes": 1e6,
        "log_bytes_per_transaction": 50.0,
        "usage": usage,
        "recovery": {"usage": usage, "seconds": 2.0, "image_seconds": 1.0, "records": 100,
                     "bytes": 1e4, "image_rows": 100, "image_bytes": 1e4, "records_per_s": 1e5,
                     "reading": {"wait_seconds": 0.1, "replaying_seconds": 0.9},
                     "state_matches": true},
        "log": {"incarnations": [{"parallelism": 12.5, "records": 100, "contents": {
            "procedures": [{"name": "tpcc_payment", "calls": 40, "bytes": 800}],
            "tables": [{"name": "stock", "changes": 90, "bytes": 9000}], "overhead_bytes": 900}}]},
        "vectors": {"fold_ns": 5.0, "compare_ns": 4.0, "encode_ns": 30.0, "transaction_ns": 59.0},
        "posted": {"limit": 5000, "refused": 100}, "checkpoints": {"taken": 3},
        "scans": {"completed": 10, "failed": 0, "rows_per_s": 2e5},
        "cache": {"hit_rate": 0.9},
        "busy_processors": {"workers": 1.5, "others": 0.5},
        "phases": {"us": {"logic": 0.5, "index": 0.4, "control": 0.4, "tracking": 0.3, "stamp": 0.1,
                          "record": 0.2, "place": 0.1, "buffer": 0.1, "wait": 0.0},
                   "driver_us": 0.2, "idle_us": 0.1, "attempts": 50, "interrupted": 1},
        "replicated": {"copied_per_s": 5e5, "transactions": 1000, "processor_seconds": 2.0,
                       "age_ms": 20.0, "catch_up_ms": 9.0, "state_matches": true},
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
    for (at, step) in plan(experiments, 2).into_iter().enumerate() {
        let mut printed = printed.clone();
        // No two runs take the same time, so differences of times are not 0.
        printed["worker_cpu_us"] = json!(1.0 + at as f64 / 1e3);
        data.add(&step.words, Outcome::Done(printed));
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
        axes: Axes::default(),
        commit: Some("0123abc".to_string()),
        placeholders: vec![("CALIBRATION".to_string(), "calibration.json".to_string())],
        calibration: Some(json!({"costs": {"a": 1}, "validation": [
            {"point": "p", "measured": 2.0, "model": 1.0, "residual": -0.5},
            {"point": "taurus command, theta 0.9: recovery by 2 threads", "measured": 4.0,
             "model": 3.0, "residual": -0.25}], "fitted": [
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
    // Beside every simulated figure of a scheme that was compared.
    let words = "model over machine, 1 and 2 threads: Taurus command -25";
    let simulated = html.split("<section id=\"simulated-recovery\"").nth(1).unwrap();
    assert_eq!(simulated.split("</section>").next().unwrap().matches(words).count(), 3);
    for (id, verdict) in page.verdicts() {
        assert!(html.contains(&format!("<section id=\"{id}\"")));
        assert_eq!(verdict == Verdict::SimulatedOnly, id.starts_with("simulated"), "{id}");
    }
    for figure in html.split("<svg ").skip(1) {
        let (svg, _) = figure.split_once("</svg>").unwrap();
        well_formed(&format!("<svg {svg}</svg>"));
    }
}

/// Of a run with a standby that differs no figure is shown, and no claim is judged.
#[test]
fn a_standby_that_differs_has_no_verdict() {
    let mut experiments = experiments();
    experiments.retain(|experiment| experiment.id == "command-standbys");
    let mut data = same_everywhere(&experiments);
    for (command, outcomes) in &mut data.outcomes {
        for outcome in outcomes.iter_mut().filter(|_| command.contains("--standbys 2")) {
            let Outcome::Done(value) = outcome else { panic!("{command} was run") };
            value["replicated"]["state_matches"] = json!(false);
        }
    }
    let page = Page { about: about(), experiments: &experiments, data: &data };
    assert!(page.html().contains("standby's state differs"));
    let json = page.json();
    let findings = json["experiments"][0]["findings"].as_array().unwrap();
    assert!(!findings.is_empty());
    for finding in findings {
        assert!(!finding["text"].as_str().unwrap().contains("three copies"), "{finding}");
    }
    assert!(page.verdicts().iter().all(|(_, verdict)| *verdict != Verdict::Holds));
}

/// Each result of command logging says whether the figure is the paper's claim or our expectation;
/// and schemes with compared latencies have equal numbers of streams.
#[test]
fn command_logging_tells_claims_from_expectations() {
    let experiments = experiments();
    let data = same_everywhere(&experiments);
    let json = Page { about: about(), experiments: &experiments, data: &data }.json();
    let all = json["experiments"].as_array().unwrap().iter();
    let mut seen = [0; 2];
    for experiment in
        all.filter(|experiment| experiment["id"].as_str().unwrap().starts_with("command-"))
    {
        for finding in experiment["findings"].as_array().unwrap() {
            let text = finding["text"].as_str().unwrap();
            let is_expected = text.contains("expected: ");
            let is_claimed = text.contains("(paper: ");
            assert!(is_expected != is_claimed || finding["level"] == "no claim", "{text}");
            seen[usize::from(is_expected)] += 1;
        }
    }
    assert!(seen[0] > 20 && seen[1] > 8, "{seen:?}");
    for id in ["command-latency", "command-tpcc", "command-voter", "command-differential"] {
        let experiment = experiments.iter().find(|experiment| experiment.id == id).unwrap();
        let streams = |words: &Vec<String>| {
            let at = words.iter().position(|word| word == "--streams")?;
            words.get(at + 1).cloned()
        };
        assert!(
            experiment.runs.iter().all(|run| streams(&run.words).is_none_or(|n| n == "1")),
            "{id}"
        );
    }
}

/// Data of runs with throttled devices at full bandwidth, so rates are the inverse of bytes.
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

/// A page without a word on arithmetic of the throttle would pass off the devices' bandwidth as a
/// result.
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
    let experiment =
        |id: &str| experiments.iter().find(|experiment| experiment["id"] == id).unwrap();
    assert_eq!(
        experiment("2020-hdd-logging")["findings"][0]["level"],
        "arithmetic of the throttle"
    );
    assert_eq!(experiment("poplar-recovery")["verdict"], "not tested");
}

/// The same figures everywhere are no device's limit: claims of a factor are then judged.
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

/// A report has enough to judge the runs anew. Runs with a different command do not count.
#[test]
fn a_report_can_be_judged_again() {
    let experiments = experiments();
    let data = same_everywhere(&experiments);
    let page = Page { about: about(), experiments: &experiments, data: &data };
    let report = page.json();
    let again = About::of_report(&report).unwrap();
    assert_eq!(again.setup(), Setup::typical(Size::FULL));
    let parsed = |report| Data::of_report(report, &experiments, |run| again.command(run));
    let read = parsed(&report).unwrap();
    let once_more = Page { about: again.clone(), experiments: &experiments, data: &read };
    assert_eq!(once_more.json(), report);
    assert_eq!(once_more.html(), page.html());

    let mut other = report.clone();
    for experiment in other["experiments"].as_array_mut().unwrap() {
        for run in experiment["runs"].as_array_mut().unwrap() {
            run["command"] = json!("hyades-lab bench ycsb --theta 0.99 --json");
        }
    }
    assert!(parsed(&other).unwrap().outcomes.is_empty());
    assert!(parsed(&json!({"about": 1})).unwrap_err().contains("experiments"));
    assert!(About::of_report(&json!({"about": 1})).is_err());
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
        // Outside of the replaced part no experiment has a result.
        let (before, rest) = docs.split_once(hyades_report::docs::BEGIN).unwrap();
        let (_, after) = rest.split_once(hyades_report::docs::END).unwrap();
        assert!(!before.contains(experiment.id) && !after.contains(experiment.id));
    }
    assert!(page.contains("commit `0123abc`"));
}

/// A result is of the definition that it was judged under: after a change of an experiment the page
/// says that it was not measured since, until it is.
#[test]
fn no_result_is_older_than_its_definition() {
    let docs = include_str!("../../../docs/experiments.md");
    let experiments = experiments();
    let marked = docs::mark_changed(docs, &experiments, &definition::current()).unwrap();
    let old: Vec<&str> = docs.lines().filter(|line| !marked.contains(line)).collect();
    assert!(
        marked == docs,
        "measure again, or run hyades-lab bench paper --changed --docs docs/experiments.md: \
         {old:#?}"
    );
    let rows = docs.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, experiments.len());
}

/// Each verdict names the commit that was measured.
#[test]
fn verdicts_name_the_commit() {
    let docs = include_str!("../../../docs/experiments.md");
    let verdicts =
        docs.lines().filter(|line| line.starts_with("| `") && line.contains("**claims:"));
    assert!(verdicts.clone().all(|line| line.contains("; commit `")), "a verdict of no commit");
    let experiments = experiments();
    let data = same_everywhere(&experiments);
    let report = Page { about: about(), experiments: &experiments, data: &data }.json();
    let page = docs::replace(docs, &report).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    assert!(rows.clone().all(|line| line.contains("; commit `0123abc`, definition `")));
    assert_eq!(docs::mark_changed(&page, &experiments, &definition::current()).unwrap(), page);
}

/// Levels of results that are not judged.
const UNCOUNTED: [&str; 3] = ["no claim", "follows from the set-up", "simulated, not judged"];

/// A finding names the source of the compared figure: a paper, or us. Only the papers' figures
/// count in a verdict.
#[test]
fn what_counts_as_a_claim_names_the_paper() {
    let experiments = experiments();
    let data = same_everywhere(&experiments);
    let page = Page { about: about(), experiments: &experiments, data: &data }.json();
    let level = |finding: &serde_json::Value| finding["level"].as_str().unwrap().to_string();
    let mut own = 0;
    for experiment in page["experiments"].as_array().unwrap() {
        let id = experiment["id"].as_str().unwrap();
        for finding in experiment["findings"].as_array().unwrap() {
            let text = finding["text"].as_str().unwrap();
            let level = level(finding);
            if level.starts_with("own expectation") {
                own += 1;
                assert!(text.contains("expected:"), "{id}: {text}");
            } else if !UNCOUNTED.contains(&level.as_str()) {
                assert!(text.contains("paper:") && !text.contains("expected:"), "{id}: {text}");
            }
            let exceeds = level.ends_with("exceeds the claim");
            let fails = level.ends_with("does not hold") || level.contains("holds in part");
            if experiment["simulated"] == false {
                assert_eq!(exceeds, finding["why_above"].is_string(), "{id}: {text}");
                assert_eq!(fails, finding["why_not"].is_string(), "{id}: {text}");
            }
        }
    }
    assert!(own > 20, "{own}");
    let experiment = |id: &str| {
        let all = page["experiments"].as_array().unwrap();
        all.iter().find(|experiment| experiment["id"] == id).unwrap()
    };
    // An experiment without a paper's claim has no verdict about a claim.
    assert_eq!(experiment("shape-slow-stream")["verdict"], "not tested");
    assert!(
        experiment("shape-slow-stream")["expectations"].as_str().unwrap().ends_with("of 6 hold")
    );
    // Settings, and equal logs by construction, are no claims.
    for (id, least) in [("poplar-latency", 3), ("2016-loggers", 2), ("poplar-scan", 1)] {
        let findings = experiment(id)["findings"].as_array().unwrap();
        let given = findings.iter().filter(|f| level(f) == "follows from the set-up").count();
        assert_eq!(given, least, "{id}");
    }
}
