//! `hyades-lab bench --standbys`: a primary and standbys of a log, and their figure.
#![cfg(feature = "replication")]
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;
#[path = "common/running.rs"]
mod running;

use common::{code, lab, stderr, stdout};
use running::bench;
use serde_json::Value;

/// New-Orders on few rows.
const ORDERS: &str = "tpcc --warehouses 2 --items 1000 --customers 30 --mix new-order --workers 2 \
                      --device memory";

#[test]
fn standbys_end_with_the_state_of_the_primary() {
    for scheme in [
        "--protocol serial --record command --concurrency silo",
        "--protocol serial --record data --concurrency no-wait",
        "--protocol taurus --record command --streams 3",
        "--protocol taurus --record adaptive --streams 2 --flush-interval 5ms",
    ] {
        let report = bench(&format!("{ORDERS} {scheme} --standbys 2"));
        let copies = &report["replicated"];
        assert_eq!(copies["state_matches"], true, "{scheme}: {report}");
        assert_eq!(copies["log_service"], "memory");
        let each = copies["each"].as_array().unwrap();
        assert_eq!((each.len(), copies["standbys"].as_u64()), (2, Some(2)));
        // Orders are rows, beside those of the population.
        let loaded = report["load"]["records"].as_u64().unwrap();
        assert!(each.iter().all(|one| one["rows"].as_u64().unwrap() > loaded), "{report}");
        let number = |key: &str| copies[key].as_f64().unwrap();
        assert!(number("transactions") >= report["acknowledged"].as_f64().unwrap());
        assert!(number("copied_per_s") > 0.0 && number("age_ms") > 0.0, "{report}");
        assert!(number("longest_age_ms") >= number("age_ms"), "{report}");
        assert_eq!(report["consistent"], true, "{scheme}");
    }
}

#[test]
fn lanes_without_standbys_have_nothing_to_compare() {
    let report = bench(&format!("{ORDERS} --protocol serial --standbys 0"));
    let copies = &report["replicated"];
    assert_eq!((&copies["state_matches"], &copies["age_ms"]), (&Value::Null, &Value::Null));
    assert!(copies["copied_per_s"].as_f64() > Some(0.0), "{report}");
    let alone = bench(&format!("{ORDERS} --protocol serial"));
    assert!(alone.get("replicated").is_none(), "{alone}");
}

#[test]
fn what_no_standby_follows_is_wrong_usage() {
    for (words, why) in [
        ("--protocol none --standbys 1", "no standby follows a log of none"),
        ("--protocol physiological --standbys 1", "a log of physiological"),
        ("--protocol serial --concurrency partitioned --standbys 1", "under partitioned"),
        ("--protocol serial --standbys 9", "0 to 8"),
        ("--protocol serial --standbys 1 --recover", "--recover is not for"),
        ("--protocol serial --standbys 1 --log-dir d", "--log-dir is not for"),
        ("--protocol serial --log-service nats://h/n", "--standbys"),
        ("--protocol serial --standbys 1 --lane-replicas 1", "--log-service"),
        #[cfg(not(feature = "nats"))]
        ("--protocol serial --standbys 1 --log-service nats://h/n", "--features nats"),
        #[cfg(feature = "nats")]
        ("--protocol serial --standbys 1 --log-service h", "--log-service"),
    ] {
        let output = lab(&format!("bench {ORDERS} {words}"), &[]);
        assert_eq!(code(&output), 2, "{words}: {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{words}: {}", stderr(&output));
    }
    let output = lab("bench ycsb --engine hash-map --standbys 1", &[]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
}

#[test]
fn the_figure_is_measured_and_every_run_of_it_has_figures() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let output = lab("bench paper --tiny --rounds 2 --only command-standbys --out", &[out]);
    assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    let json = std::fs::read_to_string(dir.path().join("report.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let experiment = &json["experiments"][0];
    assert_eq!(
        (&experiment["id"], &experiment["simulated"]),
        (&"command-standbys".into(), &false.into())
    );
    let mut followed = 0;
    for run in experiment["runs"].as_array().unwrap() {
        for outcome in run["outcomes"].as_array().unwrap() {
            let copies = &outcome["done"]["replicated"];
            assert!(outcome["done"].is_object(), "{run}");
            if copies["standbys"].as_u64() > Some(0) {
                assert_eq!(copies["state_matches"], true, "{run}");
                followed += 1;
            }
        }
    }
    assert!(followed >= 8, "{experiment}");
    let checks = experiment["checks"].as_u64().unwrap() as usize;
    assert_eq!(experiment["findings"].as_array().unwrap().len(), checks, "{experiment}");
}

/// As above, over the NATS servers that HYADES_NATS names, as `127.0.0.1:4222`.
#[cfg(feature = "nats")]
#[test]
#[ignore = "needs NATS servers"]
fn standbys_follow_lanes_of_nats() {
    let servers = std::env::var("HYADES_NATS").expect("HYADES_NATS names the servers");
    let service = format!("--log-service nats://{servers}/lab --lane-replicas 1");
    for record in ["command", "data"] {
        let words = format!("--protocol serial --record {record} --standbys 2 {service}");
        let report = bench(&format!("{ORDERS} {words}"));
        assert_eq!(report["replicated"]["state_matches"], true, "{report}");
        assert_eq!(report["replicated"]["log_service"], "nats");
    }
}
