//! `hyades-lab bench paper` and `hyades-lab simulate` from end to end, at sizes that mean nothing.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::{code, lab, stderr, stdout};
use serde_json::Value;

#[test]
fn one_experiment_gives_a_page_and_its_data() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let output = lab("bench paper --tiny --rounds 2 --only 2020-anchors --out", &[out]);
    assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("2020-anchors"));
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("<svg ") && page.ends_with("</html>\n"));
    let json = std::fs::read_to_string(dir.path().join("report.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let experiments = json["experiments"].as_array().unwrap();
    assert_eq!(experiments.len(), 1);
    let run = &experiments[0]["runs"][0];
    assert!(run["command"].as_str().unwrap().starts_with("hyades-lab bench ycsb"), "{run}");
    assert_eq!(run["outcomes"].as_array().unwrap().len(), 2, "{run}");
}

/// Up to eight streams there are no vector instructions to leave out; at most 64 are taken.
#[test]
fn vectors_alone_are_timed_by_operation() {
    let timed = |words: &str| lab(&format!("bench vectors --seconds 0.01 --json {words}"), &[]);
    for (streams, simd, wide) in [(1, "on", false), (8, "on", false), (64, "off", false)] {
        let output = timed(&format!("--streams {streams} --simd {simd}"));
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(report["streams"], streams);
        assert_eq!(report["vector_instructions"], wide);
        let time = |name: &str| report["vectors"][name].as_f64().unwrap();
        let whole = 5.0 * time("fold_ns") + time("compare_ns") + time("encode_ns");
        assert!((time("transaction_ns") - whole).abs() < 1e-6 * whole && whole > 0.0, "{report}");
    }
    for wrong in ["--streams 0", "--streams 65", "--simd perhaps", "--seconds 0"] {
        assert_eq!(code(&timed(wrong)), 2, "{wrong}");
    }
}

#[test]
fn an_unknown_experiment_is_wrong_usage() {
    let output = lab("bench paper --tiny --only fig-99 --out", &["unused"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("2020-hdd-logging"), "{}", stderr(&output));
}

#[test]
fn the_model_takes_a_calibration_and_says_that_it_simulates() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("costs.json");
    let costs = r#"{"costs": {"none_ns": 1000, "slowdown": 1.1, "line_ns": 50, "schemes":
        {"taurus data": {"worker_ns": 1500, "bytes": 1000, "replay_ns": 800}}}, "validation": []}"#;
    std::fs::write(&file, costs).unwrap();
    let words = "simulate --json --workers 16 --streams 8 --devices 8 --seconds 0.01 --recover";
    let output = lab(words, &["--calibration", file.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["simulated"], true);
    assert!(report["acknowledged_per_s"].as_f64() > Some(1e6), "{report}");
    assert!(report["recovery"]["records_per_s"].as_f64() > Some(1e6), "{report}");
    // A protocol without measured costs is refused.
    let more = format!("{words} --protocol poplar");
    let output = lab(&more, &["--calibration", file.to_str().unwrap()]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
}
