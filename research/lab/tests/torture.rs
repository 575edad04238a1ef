//! `hyades-lab torture` reports the columns for scripts, and finds a disk with a lying fsync.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::{code, lab, stderr, stdout};
use serde_json::Value;

const COLUMNS: [&str; 14] = [
    "seed",
    "histories",
    "crashes",
    "acknowledged",
    "lost",
    "partial",
    "resurrected",
    "diverged",
    "out_of_order",
    "refused_wrongly",
    "late",
    "grown",
    "hung",
    "seconds",
];

#[test]
fn the_report_is_one_object_with_all_its_keys_and_no_fault() {
    report_has_no_fault("torture --seconds 2 --seed 5 --json");
}

#[test]
fn clients_of_the_server_are_told_the_truth() {
    report_has_no_fault("torture --clients resp --seconds 2 --seed 5 --json");
}

fn report_has_no_fault(words: &str) {
    let output = lab(words, &[]);
    assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys.len(), COLUMNS.len());
    assert!(COLUMNS.iter().all(|column| keys.contains(column)), "{report}");
    assert!(report["crashes"].as_u64() > Some(0), "{report}");
    assert_eq!(report["seed"], 5);
}

#[test]
fn a_lying_fsync_is_found_kept_and_fails_again() {
    let keep = tempfile::tempdir().unwrap();
    let dir = keep.path().to_str().unwrap();
    let output = lab("torture --seconds 60 --seed 1 --json --mutation lying-fsync --keep", &[dir]);
    assert_eq!(code(&output), 1, "{}{}", stdout(&output), stderr(&output));
    let kept = std::fs::read_dir(keep.path()).unwrap().next().unwrap().unwrap().path();
    for file in ["plan.json", "history.txt", "wrong.txt", "disk"] {
        assert!(kept.join(file).exists(), "{file}");
    }
    let again = lab("torture --again", &[kept.to_str().unwrap()]);
    assert_eq!(code(&again), 1, "{}", stdout(&again));
}

#[test]
fn an_unknown_rule_is_wrong_usage() {
    for words in ["torture", "torture --again nowhere"] {
        let output = lab(&format!("{words} --mutation no-such-rule"), &[]);
        assert_eq!(code(&output), 2, "{words}: {}", stderr(&output));
    }
}

#[test]
fn a_transaction_component_reports_the_same_but_replies_and_a_seed_repeats_its_history() {
    for dc in ["memory", "redb"] {
        let run = format!("torture --engine deuteronomy --dc {dc} --seconds 0.1 --seed 7 --json");
        let output = lab(&run, &[]);
        assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
        let told = COLUMNS.into_iter().filter(|column| *column != "out_of_order");
        assert!(told.clone().all(|column| keys.contains(&column)), "{report}");
        assert_eq!(keys.len(), told.count());
        assert!(report["crashes"].as_u64() >= Some(5), "{report}");
        assert_eq!((&report["seed"], &report["diverged"]), (&7.into(), &0.into()));
    }
    for (wrong, says) in [
        ("--engine deuteronomy --protocol serial", "--protocol is for --engine memory: a "),
        ("--engine deuteronomy --scheduler threads", "--scheduler is for --engine memory: a "),
        ("--engine deuteronomy --clients resp", "--clients is for --engine memory: the server"),
        ("--dc redb", "--dc is for --engine deuteronomy"),
        ("--engine deuteronomy --dc lmdb", "choose memory, redb, fjall"),
    ] {
        let output = lab(&format!("torture --seconds 0.1 {wrong}"), &[]);
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        assert!(stderr(&output).contains(says), "{wrong}: {}", stderr(&output));
    }
}

#[test]
fn a_lying_fsync_below_a_transaction_component_is_found_as_what_it_is() {
    let keep = tempfile::tempdir().unwrap();
    for dc in ["memory", "redb"] {
        let run = format!(
            "torture --engine deuteronomy --dc {dc} --seconds 60 --seed 1 --json \
             --mutation lying-fsync --keep"
        );
        let output = lab(&run, &[keep.path().to_str().unwrap()]);
        assert_eq!(code(&output), 1, "{}{}", stdout(&output), stderr(&output));
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let kinds = ["lost", "partial", "resurrected", "refused_wrongly"];
        let found: u64 = kinds.iter().filter_map(|kind| report[kind].as_u64()).sum();
        assert!(found > 0, "{report}");
    }
}
