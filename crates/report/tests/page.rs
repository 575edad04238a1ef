//! Every figure is well-formed SVG, every experiment complete.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_report::chart::{Bar, Chart, Line, Marks, Spread, Stack};
use hyades_report::data::{Data, Outcome};
use hyades_report::experiment::{Experiment, Shape};
use hyades_report::judge::Verdict;
use hyades_report::page::{About, Page};
use hyades_report::plan::plan;
use hyades_report::scale::{Rates, Size};
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
    let spread = Spread { low: 1.0, median: 2.0, high: 5.0 };
    let lines = vec![
        Line { label: "Taurus data <1>".to_string(), points: vec![(1.0, spread), (8.0, spread)] },
        Line { label: "Serial data".to_string(), points: vec![(1.0, Spread::one(0.0))] },
    ];
    for (log_x, log_y) in [(false, false), (true, true), (true, false)] {
        let marks = Marks::Lines { lines: lines.clone(), x: "x".to_string(), log_x, log_y };
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
    let marks = Marks::Lines { lines: vec![], x: String::new(), log_x: true, log_y: true };
    well_formed(&chart(marks));
    well_formed(&chart(Marks::Bars { bars: vec![], log: true }));
}

fn experiments() -> Vec<Experiment> {
    table::all(&Size::FULL, &Rates::TYPICAL)
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
        for panel in &experiment.panels {
            let series: Vec<_> = experiment
                .runs
                .iter()
                .filter(|r| r.group == panel.group)
                .map(|r| &r.series)
                .collect();
            assert!(!series.is_empty(), "{id}: no run for {}", panel.title);
            if let Shape::Bars { paper, .. } = &panel.shape {
                for name in paper.iter().flat_map(|(of, over, _)| [of, over]) {
                    assert!(series.iter().any(|s| s == name), "{id}: no series {name}");
                }
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
                     "records_per_s": 1e5, "state_matches": true},
        "log": {"incarnations": [{"parallelism": 12.5}]},
        "scans": {"completed": 10, "failed": 0, "rows_per_s": 2e5},
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
        placeholders: vec![("CALIBRATION".to_string(), "calibration.json".to_string())],
        calibration: Some(json!({"costs": {"a": 1}, "validation": [
            {"point": "p", "measured": 2.0, "model": 1.0, "residual": -0.5}]})),
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

/// A page that lets readers find such checks by themselves would pass off ratios that were put in
/// as results.
#[test]
fn what_rests_on_the_sizes_of_devices_is_said_first_and_judged_by_nobody() {
    let experiments = experiments();
    let data = same_everywhere(&experiments);
    let page = Page { about: about(), experiments: &experiments, data: &data };
    let html = page.html();
    let (first, _) = html.split_once("<table>").expect("the table of verdicts");
    for words in ["Calibrated, not tested:", "Arithmetic of the throttle:", "2020-hdd-logging"] {
        assert!(first.contains(words), "{words}");
    }
    let json = page.json();
    let experiments = json["experiments"].as_array().unwrap();
    let of = |id: &str| experiments.iter().find(|experiment| experiment["id"] == id).unwrap();
    let (logging, recovery) = (of("2020-hdd-logging"), of("poplar-recovery"));
    assert_eq!(logging["findings"][0]["level"], "arithmetic of the throttle");
    assert_eq!(logging["findings"][1]["level"], "calibrated, not tested");
    // Its claims fail on equal figures; its comparison with Silo-R alone is judged, and holds.
    assert_eq!(recovery["verdict"], "holds");
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
fn a_command_is_planned_once_and_repeats_alternate() {
    let experiments = experiments();
    let steps = plan(&experiments, 3);
    let mut once: Vec<_> = steps.iter().filter(|s| s.repeat == 0).map(|s| &s.words).collect();
    let all = once.len();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), all);
    // No command follows itself, unless its experiment has no other.
    for pair in steps.windows(2) {
        let alone = steps.iter().filter(|s| s.experiment == pair[0].experiment).count() <= 3;
        assert!(alone || pair[0].words != pair[1].words, "{:?}", pair[0]);
    }
}
