//! `hyades-lab bench` prints the JSON that scripts rely on.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;
#[path = "common/running.rs"]
mod running;

use common::{code, lab, stderr, stdout};
use running::{SHORT, bench, bench_once, bench_until};
use serde_json::Value;
use std::process::Command;

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// `replayed`: whether the run was recovered by replaying streams; then the streams are reported.
fn check_keys(report: &Value, replayed: bool) {
    let mut expected = vec![
        "workload",
        "protocol",
        "record",
        "concurrency",
        "isolation",
        "engine",
        "dc",
        "budget_bytes",
        "workers",
        "streams",
        "device",
        "in_flight",
        "seconds",
        "acknowledged",
        "acknowledged_per_s",
        "rollbacks",
        "aborts",
        "log_bytes",
        "device_bytes",
        "log_bytes_per_transaction",
        "latency_us",
        "scans",
        "versions",
        "cache",
        "load",
        "recovery",
        "consistent",
    ];
    // Of the engine's own workers.
    let own = report["engine"] == "memory";
    expected.extend(own.then_some("busy_processors"));
    if own {
        let busy = &report["busy_processors"];
        assert_eq!(keys(busy), ["others", "workers"]);
        assert!(busy["workers"].as_f64() > Some(0.0), "{report}");
    }
    expected.sort_unstable();
    assert_eq!(keys(report), expected);
    assert_eq!(keys(&report["latency_us"]), ["max", "p50", "p99"]);
    assert_eq!(keys(&report["load"]), ["bytes", "records"]);
    let mut expected = vec![
        "bytes",
        "image_seconds",
        "records",
        "records_per_s",
        "seconds",
        "state_matches",
        "threads",
    ];
    expected.extend(replayed.then_some("reading"));
    expected.sort_unstable();
    assert_eq!(keys(&report["recovery"]), expected);
    if replayed {
        let reading = &report["recovery"]["reading"];
        assert_eq!(keys(reading), ["replaying_seconds", "streams", "wait_seconds"]);
        for stream in reading["streams"].as_array().unwrap() {
            assert_eq!(keys(stream), ["bytes", "read_seconds", "stream", "wait_seconds"]);
        }
    }
}

#[test]
fn without_a_log_its_keys_are_there_and_null() {
    let report = bench("ycsb --rows 1000 --protocol none --workers 1 --in-flight 7");
    check_keys(&report, false);
    for null in ["record", "device", "consistent"] {
        assert!(report[null].is_null(), "{null} of {report}");
    }
    assert!(report["recovery"].as_object().unwrap().values().all(Value::is_null));
    assert_eq!(report["streams"], 0);
    assert_eq!((&report["workers"], &report["in_flight"]), (&1.into(), &7.into()));
    assert_eq!(report["log_bytes"], 0);
    assert_eq!(report["load"]["records"], 1000);
    assert!(report["acknowledged"].as_u64() > Some(0));
}

#[test]
fn a_recovered_run_says_everything() {
    let report =
        bench("bank --accounts 500 --recover --recovery-threads 2 --streams 3 --scanners 1");
    check_keys(&report, true);
    let object = report.as_object().unwrap();
    let nulls: Vec<_> =
        object.iter().filter(|(_, value)| value.is_null()).map(|(key, _)| key).collect();
    // The nulls are of an engine over a data component.
    assert_eq!(nulls, ["budget_bytes", "cache", "dc"]);
    assert_eq!(report["scans"]["failed"], 0);
    let recovery = &report["recovery"];
    assert!(recovery.as_object().unwrap().values().all(|v| !v.is_null()), "{recovery}");
    assert_eq!((&recovery["threads"], &recovery["state_matches"]), (&2.into(), &true.into()));
    assert_eq!((&report["streams"], &report["consistent"]), (&3.into(), &true.into()));
    assert_eq!((&report["record"], &report["device"]), (&"data".into(), &"file".into()));
    // The population is reported separately: a single record, while the run has many.
    assert_eq!(report["load"]["records"], 500);
    assert!(report["load"]["bytes"].as_u64() > Some(0));
    let acknowledged = report["acknowledged"].as_u64().unwrap();
    let rollbacks = report["rollbacks"].as_u64().unwrap();
    assert!(recovery["records"].as_u64().unwrap() >= acknowledged - rollbacks);
    assert!(recovery["image_seconds"].as_f64() < recovery["seconds"].as_f64());
}

#[test]
fn every_combination_recovers_to_the_same_state() {
    let workloads =
        ["ycsb --rows 2000 --theta 0.9", "ycsb --rows 1000 --standard E", "bank --accounts 300"];
    let logs = [
        "serial --record data",
        "serial --record command",
        "taurus --record data",
        "taurus --record command",
        "taurus --record adaptive",
        "silo-r --epoch 3ms",
        "gsn",
        "plover",
        "poplar",
        "physiological",
        "physiological --no-undo",
    ];
    for workload in workloads {
        for log in logs {
            for concurrency in ["no-wait", "silo"] {
                let report = bench(&format!(
                    "{workload} --protocol {log} --concurrency {concurrency} --recover"
                ));
                assert_eq!(report["recovery"]["state_matches"], true, "{report}");
                assert_ne!(report["consistent"], false, "{report}");
                // The only order of such a log is the order of the stream.
                let is_alone = log.starts_with("serial --record command");
                assert!(!is_alone || report["recovery"]["threads"] == 1, "{report}");
            }
        }
    }
}

#[test]
fn a_transaction_component_recovers_to_the_same_state() {
    for dc in ["memory", "redb"] {
        for more in ["", "--scan-length 10 --streams 1", "--theta 0 --write-share 1 --accesses 2"] {
            let words = format!(
                "ycsb --rows 3000 --engine deuteronomy --dc {dc} --budget 1MiB --workers 2 \
                 --in-flight 64 {more} --recover"
            );
            // A run may be over before a busy device answers.
            let is_answered = |report: &Value| {
                report["acknowledged"].as_u64() > Some(0)
                    && report["cache"]["hit_rate"].is_null() != more.is_empty()
            };
            let report = (0..5).map(|_| bench(&words)).find(is_answered);
            let report = report.expect("no run was answered");
            check_keys(&report, false);
            assert_eq!(report["recovery"]["state_matches"], true, "{report}");
            let (engine, concurrency) = ("deuteronomy".into(), "timestamp-order".into());
            assert_eq!((&report["engine"], &report["concurrency"]), (&engine, &concurrency));
            assert_eq!((&report["dc"], &report["budget_bytes"]), (&dc.into(), &(1 << 20).into()));
            assert_eq!(report["load"]["records"], 3000);
            assert!(report["load"]["bytes"].as_u64() > Some(300_000), "{report}");
            assert!(report["acknowledged"].as_u64() > Some(0), "{report}");
            assert!(report["log_bytes"].as_u64() > Some(0), "{report}");
            assert!(report["recovery"]["records"].as_u64() > Some(0), "{report}");
            let nulls = ["image_seconds", "bytes"];
            assert!(nulls.iter().all(|key| report["recovery"][key].is_null()), "{report}");
            // Transactions with only writes or scans read no single keys.
            let rate = report["cache"]["hit_rate"].as_f64();
            assert_eq!(rate.is_some(), more.is_empty(), "{report}");
            assert!(rate.is_none_or(|rate| (0.0..=1.0).contains(&rate)), "{report}");
            assert!(report["cache"]["device_reads"].is_null(), "{report}");
        }
    }
    // Further ways to log, without a difference for recovery.
    for more in [
        "--log-updates at-once",
        "--log-updates at-once --dc redb --redo 1MiB --write-share 1 --proxy-threads 2",
        "--reader-records always --reserve exchange --write-share 0.05",
        "--reader-records if-needed --value-bytes 3000 --observe",
    ] {
        let report = bench(&format!(
            "ycsb --rows 3000 --engine deuteronomy --budget 1MiB --workers 2 --in-flight 64 {more} \
             --recover"
        ));
        assert_eq!(report["recovery"]["state_matches"], true, "{more}: {report}");
        assert_eq!(report["observed"].is_object(), more.contains("observe"), "{more}: {report}");
    }
    let text = lab(
        "bench ycsb --rows 100 --engine deuteronomy --seconds 0.1 --warmup 0 --reserve-memory 0",
        &[],
    );
    assert_eq!(code(&text), 0, "{}", stderr(&text));
    assert!(stdout(&text).contains("deuteronomy over memory"), "{}", stdout(&text));
}

/// The default stores of a build, without an engine.
#[test]
fn stores_by_themselves_run_the_same_transactions() {
    for engine in ["redb", "hash-map"] {
        for more in ["", "--standard A", "--write-share 0", "--write-share 1 --accesses 2"] {
            let report = bench(&format!(
                "ycsb --rows 3000 --engine {engine} --budget 8MiB --workers 2 --in-flight 64 {more}"
            ));
            check_keys(&report, false);
            let (engine, own) = (engine.into(), "auto".into());
            assert_eq!((&report["engine"], &report["concurrency"]), (&engine, &own));
            assert_eq!(
                (&report["protocol"], &report["load"]["records"]),
                (&"none".into(), &3000.into())
            );
            assert!(report["acknowledged"].as_u64() > Some(0), "{report}");
            assert!(["dc", "record", "device", "cache"].iter().all(|key| report[key].is_null()));
        }
    }
    let scans = bench("ycsb --rows 3000 --engine redb --standard E --workers 1 --in-flight 16");
    assert!(scans["acknowledged"].as_u64() > Some(0), "{scans}");
    let words = "bench ycsb --rows 100 --engine redb --seconds 0.1 --warmup 0 --reserve-memory 0";
    let text = lab(words, &[]);
    assert_eq!(code(&text), 0, "{}", stderr(&text));
    assert!(stdout(&text).contains("transactions in flight share commits"), "{}", stdout(&text));
}

#[test]
fn tpcc_holds_its_conditions_after_a_crash() {
    for more in ["--record data", "--record command", "--record command --home worker"] {
        let report = bench(&format!("tpcc --warehouses 2 {more} --device memory --recover"));
        assert_eq!(report["recovery"]["state_matches"], true, "{report}");
        assert_eq!((&report["consistent"], &report["device"]), (&true.into(), &"memory".into()));
    }
}

#[test]
fn smallbank_and_tatp_hold_their_conditions_after_a_crash() {
    let logs = [
        "taurus --record data",
        "taurus --record command",
        "serial --record adaptive",
        "silo-r --epoch 3ms",
        "poplar",
        "physiological",
    ];
    // Customers and their two accounts, and a thousand tellers; subscribers have other rows.
    for (workload, rows) in
        [("smallbank --accounts 300", 1900..1901), ("tatp --subscribers 300", 2100..3500)]
    {
        for log in logs {
            for concurrency in ["no-wait", "silo"] {
                let words =
                    format!("{workload} --protocol {log} --concurrency {concurrency} --recover");
                let report = bench_until(&words, |report| report["rollbacks"].as_u64() > Some(0));
                assert_eq!(report["recovery"]["state_matches"], true, "{report}");
                assert_eq!(report["consistent"], true, "{report}");
                assert!(rows.contains(&report["load"]["records"].as_u64().unwrap()), "{report}");
                assert!(report["rollbacks"].as_u64() > Some(0), "{report}");
            }
        }
    }
}

#[test]
fn a_hot_spot_can_be_chosen() {
    let report = bench("smallbank --accounts 50 --hot-accounts 2 --hot-share 1");
    check_keys(&report, false);
    let (workload, consistent) = ("smallbank".into(), true.into());
    assert_eq!((&report["workload"], &report["consistent"]), (&workload, &consistent));
    let help = stdout(&lab("bench smallbank --help", &[]));
    for option in ["--accounts", "--hot-accounts", "--hot-share"] {
        assert!(help.contains(option), "{option}: {help}");
    }
    let help = stdout(&lab("bench tatp --help", &[]));
    assert!(help.contains("--subscribers"), "{help}");
}

#[test]
fn an_offered_load_is_not_exceeded() {
    for ends in ["0.001", "1e9"] {
        let report = bench_once(&format!("bank --accounts 100 --protocol none --rate {ends}"));
        assert!(report["acknowledged"].is_u64(), "{report}");
    }
    let report = bench("bank --accounts 500 --rate 1000");
    let acknowledged = report["acknowledged"].as_u64().unwrap();
    // 0.3 seconds, late starts from the warm-up, and a transaction for each end.
    assert!((1..=1000 * 35 / 100 + 2).contains(&acknowledged), "{report}");
}

#[test]
fn transactions_scan_an_ordered_index_and_say_if_there_is_none() {
    let scanning = "ycsb --rows 500 --protocol none --scanners 1 --scan-with plain --workers 1";
    let report = bench(&format!("{scanning} --ordered --write-share 0"));
    assert!(report["scans"]["completed"].as_u64() > Some(0), "{report}");
    let output = lab(&format!("bench {scanning} {SHORT}"), &[]);
    assert_ne!(code(&output), 0);
    assert!(stderr(&output).contains("--ordered"), "{}", stderr(&output));
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_right() {
    for (words, right) in [
        ("bank --protocol serial --streams 2", "one stream"),
        ("bank --protocol none --recover", "choose another"),
        ("ycsb --protocol poplar-2", "choose none, serial, taurus"),
        ("ycsb --protocol silo-r --record command", "--record data"),
        ("ycsb --record both", "choose data, command, adaptive"),
        ("ycsb --concurrency hope", "choose auto, no-wait, wait-die, silo"),
        ("ycsb --device tape", "choose file, memory"),
        ("ycsb --standard G", "A, B, C, D, E, F"),
        ("ycsb --rows 4 --accesses 3", "1 to 2"),
        ("tpcc --warehouses 0", "1 to 30000"),
        ("tpcc --mix half", "payment-new-order"),
        ("tpcc --home here", "any, worker"),
        ("bank --accounts 1", "at least 2"),
        ("smallbank --accounts 3", "at least 4"),
        ("smallbank --accounts 10 --hot-accounts 9", "2 to 8"),
        ("smallbank --hot-share 1.5", "0 to 1"),
        ("tatp --subscribers 0", "at least 1"),
        ("bank --streams 65", "1 to 64"),
        ("bank --seconds soon", "us, ms, s or m"),
        ("bank --rate 0", "above 0"),
        ("bank --rate 0.0009", "0.001 to 1000000000"),
        ("bank --rate 1.1e9", "0.001 to 1000000000"),
        ("tpcc --remote 1.5", "0 to 1"),
        ("voter --vote-limit 0", "1 or more, or none"),
        ("voter --flush-interval 0", "longer than 0"),
        ("ycsb --engine disk", "choose memory, deuteronomy"),
        ("ycsb --engine deuteronomy --dc lmdb", "choose memory, redb, fjall"),
        ("ycsb --dc redb", "--engine deuteronomy"),
        ("ycsb --engine deuteronomy --protocol serial", "--protocol is for --engine memory"),
        ("ycsb --engine deuteronomy --concurrency silo", "--concurrency is for"),
        ("ycsb --engine deuteronomy --ordered", "--ordered is for"),
        ("ycsb --engine deuteronomy --delta 5", "--delta is for"),
        ("ycsb --engine deuteronomy --budget 1KiB", "1MiB to 1TiB"),
        ("ycsb --engine deuteronomy --value-bytes 0", "1 to 65536"),
        ("bank --engine deuteronomy", "--help"),
        ("ycsb --engine redb --recover", "--recover is about a log"),
        ("ycsb --engine redb --streams 2", "--streams is about a log"),
        ("ycsb --engine redb --device memory", "--device is about a log"),
        ("ycsb --engine redb --dc redb", "--dc is for --engine deuteronomy"),
        ("ycsb --engine redb --protocol serial", "--protocol is for --engine memory"),
        ("ycsb --engine redb --hot-share 0.5", "--hot-share is for --engine memory"),
        ("ycsb --engine hash-map --standard e", "no ranges"),
        ("ycsb --engine hash-map --scan-length 5", "no ranges"),
        ("elections", "--help"),
    ] {
        let output = lab("bench", &words.split(' ').collect::<Vec<_>>());
        assert_eq!(code(&output), 2, "{words}");
        assert!(stderr(&output).contains(right), "{words}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{words}");
    }
}

#[test]
fn a_log_directory_must_be_empty_and_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let words = format!("bench bank --accounts 100 {SHORT} --log-dir");
    let output = lab(&words, &[log.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(log.join("MANIFEST").exists());
    let output = lab(&words, &[log.to_str().unwrap()]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("is not empty"), "{}", stderr(&output));
}

#[test]
fn temporary_directories_go_away() {
    let dir = tempfile::tempdir().unwrap();
    for recover in [&["--recover"][..], &[]] {
        let status = Command::new(env!("CARGO_BIN_EXE_hyades-lab"))
            .args(
                "bench bank --accounts 100 --seconds 0.1 --warmup 0 --reserve-memory 256MiB --json"
                    .split(' '),
            )
            .args(recover)
            .env("TMPDIR", dir.path())
            .output()
            .unwrap();
        assert_eq!(code(&status), 0, "{}", stderr(&status));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn tables_are_written_between_their_marks_with_the_commands_of_their_rows() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    let marks = "<!-- hyades-lab bench table -->\nold\n<!-- end of hyades-lab bench table -->\n";
    std::fs::write(&page, format!("# Mine\n{marks}and more\n")).unwrap();
    let words = "bench table --tiny --rounds 2 --seconds 0.1 --only bank --only taurus --only none";
    let logs = dir.path().join("logs");
    let (page, logs) = (page.to_str().unwrap(), logs.to_str().unwrap());
    let output = lab(words, &["--log-dir", logs, "--out", page]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("round 2 of 2"), "{}", stderr(&output));
    assert!(stdout(&output).is_empty(), "{}", stdout(&output));
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.starts_with("# Mine\n") && text.ends_with("and more\n"), "{text}");
    assert!(!text.contains("old\n") && text.contains("### Bank"), "{text}");
    let command = format!(
        "`hyades-lab bench bank --accounts 1000 --warmup 0.05 --reserve-memory 0 --protocol taurus \
         --record data --recover --seconds 0.1 --log-dir {logs}/log`"
    );
    assert!(text.contains(&command), "{text}");
    let rows =
        text.lines().filter(|line| line.starts_with("| taurus") || line.starts_with("| none"));
    assert_eq!(rows.count(), 4, "{text}");
}

#[test]
fn tables_are_one_object_with_json() {
    let words = "bench table --tiny --rounds 1 --seconds 0.1 --only latency --only poplar --json";
    let run = || {
        let output = lab(words, &[]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        serde_json::from_str::<Value>(&stdout(&output)).expect("it is JSON")
    };
    // A busy disk may acknowledge nothing in the short interval.
    let is_timed = |report: &Value| {
        report["tables"][0]["rows"][0]["figures"]["p50_us"]["median"].as_f64() > Some(0.0)
    };
    let report = (0..9).map(|_| run()).find(is_timed).unwrap_or_else(run);
    let row = &report["tables"][0]["rows"][0];
    assert_eq!((&row["protocol"], &row["record"]), (&"poplar".into(), &"data".into()));
    assert!(row["figures"]["p50_us"]["median"].as_f64() > Some(0.0), "{row}");
    assert!(row["figures"]["replayed_per_s"].is_null(), "{row}");
    assert!(report["head"]["log_device"].as_str().unwrap().contains(" on "), "{report}");
}

#[test]
fn an_unknown_table_is_wrong_usage() {
    let output = lab("bench table --only voter", &[]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("latency"), "{}", stderr(&output));
}
