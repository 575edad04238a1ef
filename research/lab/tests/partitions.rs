//! `hyades-lab bench` with partitions: posted calls, sites, calls logged on arrival.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;
#[path = "common/running.rs"]
mod running;

use common::{code, lab, stderr};
use running::{SHORT, bench, bench_until};
use serde_json::Value;

#[test]
fn calls_that_are_logged_on_arrival_are_recovered() {
    for words in ["voter", "tpcc --warehouses 2 --mix full --streams 3"] {
        let words = format!("{words} --concurrency partitioned --protocol arrival --recover");
        let report = bench(&words);
        assert_eq!(report["record"], "command", "{words}");
        assert_eq!(report["recovery"]["state_matches"], true, "{words}");
        assert_eq!(report["consistent"], true, "{words}");
    }
}

#[test]
fn every_pair_of_partitioned_execution_recovers_to_the_same_state() {
    let logs = [
        "serial --record data",
        "serial --record command",
        "serial --record adaptive",
        "taurus --record data",
        "taurus --record command",
        "taurus --record adaptive",
        "physiological",
        "physiological --no-undo",
        "arrival",
    ];
    let votes = ["voter", "voter --vote-limit none"];
    let votes =
        votes.iter().flat_map(|workload| logs.map(|log| format!("{workload} --protocol {log}")));
    let payments = "tpcc --warehouses 2 --mix payment --remote 0.3 --protocol taurus";
    for words in votes.chain([payments.to_string()]) {
        let words = format!("{words} --concurrency partitioned --recover");
        let report = bench(&words);
        assert_eq!(report["recovery"]["state_matches"], true, "{words}: {report}");
        assert_eq!(report["consistent"], true, "{words}: {report}");
    }
}

#[test]
fn sites_run_the_calls() {
    for words in [
        "voter --sites 2 --protocol serial --record command --recover",
        "voter --sites 1 --protocol arrival --device memory --recover",
        "tpcc --warehouses 1 --mix payment --remote 1 --sites 2 --protocol none --rate 300",
    ] {
        let report = bench(&format!("{words} --concurrency partitioned --workers 2"));
        assert!(report["acknowledged"].as_u64().unwrap() > 0, "{words}: {report}");
        assert!(report["sites"].is_u64() && report["can_lose"].is_null(), "{report}");
        assert_ne!(report["consistent"], false, "{words}: {report}");
        assert_ne!(report["recovery"]["state_matches"], false, "{words}: {report}");
    }
    let none = bench("voter --sites 0 --concurrency partitioned --protocol none");
    assert!(none["sites"].is_null() && none["posted"].is_null(), "{none}");
    for (words, why) in [
        ("voter --sites 2 --concurrency silo", "--concurrency partitioned"),
        ("voter --sites 65 --concurrency partitioned", "0 to 64"),
        ("voter --sites 3 --partitions 2", "0 to 2"),
        ("ycsb --engine deuteronomy --sites 2", "--sites"),
    ] {
        let output = lab(&format!("bench {words} {SHORT}"), &[]);
        assert_eq!(code(&output), 2, "{words}");
        assert!(stderr(&output).contains(why), "{words}: {}", stderr(&output));
    }
}

/// The number of partitions is an option, up to the most and down to one.
#[test]
fn rows_are_spread_over_as_many_partitions_as_asked_for() {
    for (words, partitions) in [
        ("voter --protocol taurus --record command --recover --partitions 1", 1),
        ("voter --protocol arrival --device memory --recover --partitions 64 --sites 64", 64),
        ("voter --protocol physiological --recover --partitions 4 --sites 4", 4),
        ("voter --protocol none --concurrency partitioned", 64),
    ] {
        let report = bench(&format!("{words} --workers 2"));
        assert_eq!(report["concurrency"], "partitioned", "{words}");
        assert_eq!(report["partitions"], partitions, "{words}: {report}");
        assert_ne!(report["recovery"]["state_matches"], false, "{words}: {report}");
        assert_ne!(report["consistent"], false, "{words}: {report}");
    }
    let shared = bench("voter --protocol none");
    assert!(shared["partitions"].is_null() && shared["concurrency"] == "silo", "{shared}");
    for (words, why) in [
        ("voter --partitions 0", "1 to 64"),
        ("voter --partitions 6", "power of two"),
        ("voter --partitions 128", "1 to 64"),
        ("voter --partitions 65536", "1 to 64"),
        ("voter --partitions 8 --concurrency no-wait", "--concurrency partitioned"),
        ("ycsb --engine deuteronomy --partitions 8", "--partitions"),
    ] {
        let output = lab(&format!("bench {words} {SHORT}"), &[]);
        assert_eq!(code(&output), 2, "{words}");
        assert!(stderr(&output).contains(why), "{words}: {}", stderr(&output));
    }
}

/// The error for an unsound pair names the sound controls under the protocol, and not the pair.
#[test]
fn an_unsound_pair_names_the_sound_ones() {
    for (words, why) in [
        ("--protocol arrival --concurrency silo", "choose --concurrency partitioned, or"),
        (
            "--protocol poplar --concurrency partitioned",
            "--concurrency no-wait, silo or wait-die, or",
        ),
        (
            "--protocol silo-r --concurrency timestamp-order",
            "no-wait, silo, hekaton, tictoc or wait-die",
        ),
    ] {
        let output = lab(&format!("bench voter {words} {SHORT}"), &[]);
        assert_eq!(code(&output), 2, "{words}");
        assert!(stderr(&output).contains(why), "{words}: {}", stderr(&output));
    }
}

/// Calls are posted without sites as well; and refused where more are open than may be.
#[test]
fn calls_are_posted_and_refused() {
    for words in [
        "voter --concurrency partitioned --protocol arrival --device memory --recover --post",
        "ycsb --rows 2000 --protocol taurus --record command --device memory --recover --post",
        "voter --concurrency partitioned --protocol none --rate 300 --post",
    ] {
        let report = bench(&format!("{words} --workers 2"));
        assert!(report["acknowledged"].as_u64().unwrap() > 0, "{words}: {report}");
        assert_eq!(report["posted"]["refused"], 0, "{words}: {report}");
        assert!(report["posted"]["limit"].is_null() && report["sites"].is_null(), "{report}");
        assert_ne!(report["consistent"], false, "{words}: {report}");
        assert_ne!(report["recovery"]["state_matches"], false, "{words}: {report}");
    }
    let arrival = "voter --concurrency partitioned --protocol arrival --recover --post --workers 2";
    for limit in ["--posted-calls 1", "--posted-calls 1 --rate 100000"] {
        let some_of_each = |report: &Value| {
            let counts = [&report["acknowledged"], &report["posted"]["refused"]];
            counts.iter().all(|number| number.as_u64() > Some(0))
        };
        let report = bench_until(&format!("{arrival} {limit}"), some_of_each);
        assert!(report["acknowledged"].as_u64().unwrap() > 0, "{limit}: {report}");
        assert!(report["posted"]["refused"].as_u64().unwrap() > 0, "{limit}: {report}");
        assert_eq!((&report["posted"]["limit"], &report["consistent"]), (&1.into(), &true.into()));
    }
    assert!(bench("voter --protocol none")["posted"].is_null());
    for (words, why) in [
        ("voter --posted-calls 5", "add --post"),
        ("voter --post --posted-calls 0", "1 to 10000"),
        ("voter --post --posted-calls 10001", "1 to 10000"),
        ("ycsb --engine deuteronomy --post", "--post"),
    ] {
        let output = lab(&format!("bench {words} {SHORT}"), &[]);
        assert_eq!(code(&output), 2, "{words}");
        assert!(stderr(&output).contains(why), "{words}: {}", stderr(&output));
    }
    let output = lab(&format!("bench voter --post --posted-calls 10000 {SHORT}"), &[]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

/// The report says how much a crash can lose.
#[test]
fn what_is_acknowledged_early_can_be_lost() {
    let words = "voter --concurrency partitioned --protocol arrival --asynchronous --recover";
    let report = bench(&format!("{words} --flush-interval 5ms"));
    let lost = report["can_lose"].as_str().unwrap();
    assert!(lost.contains("5.00 ms"), "{lost}");
    assert_eq!(report["consistent"], true);
    assert!(bench(words)["can_lose"].as_str().unwrap().contains("2 ms"));
    let output = lab(&format!("bench voter --protocol none --asynchronous {SHORT}"), &[]);
    assert_eq!(code(&output), 2);
}
