//! The devices and options of experiments take effect, and a log on any device is recovered.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;
#[path = "common/running.rs"]
mod running;

use common::{code, lab, stderr, stdout};
use running::bench;
use serde_json::Value;

fn recovered(words: &str) -> Value {
    let report = bench(&format!("{words} --recover"));
    assert_eq!(report["recovery"]["state_matches"], true, "{words}: {report}");
    assert_ne!(report["consistent"], false, "{words}: {report}");
    report
}

#[test]
fn a_log_on_any_device_is_recovered() {
    for (device, more) in [
        ("throttled:bandwidth=20MB/s,latency=100us,depth=2", "--devices 2 --streams 4"),
        ("throttled:bandwidth=20MB/s,over=memory", "--segment 1MiB"),
        ("nvm:factor=3", ""),
        ("striped:unit=8KiB", "--devices 3"),
        ("striped:over=throttled:bandwidth=20MB/s,over=memory", "--devices 3 --segment 1MiB"),
    ] {
        let report = recovered(&format!("bank --accounts 500 --device {device} {more}"));
        assert_eq!(report["device"], device);
    }
}

#[test]
fn serial_data_on_a_striped_set_is_recovered_by_one_thread_and_by_all() {
    let words = "bank --accounts 500 --protocol serial --device striped --devices 4 \
                 --recovery-threads 3 --recovery";
    let threads = |how: &str| recovered(&format!("{words} {how}"))["recovery"]["threads"].clone();
    assert_eq!((threads("serial"), threads("parallel")), (1.into(), 3.into()));
    // The same for commands; the replay of commands follows LSN vectors.
    recovered("bank --accounts 500 --record command --recovery serial");
    recovered("bank --accounts 500 --record command --recovery pools");
}

#[test]
fn more_slow_streams_than_threads_are_recovered_whatever_the_order_of_replay() {
    let device = "throttled:bandwidth=20MB/s,latency=200us,over=memory";
    for (protocol, how) in [
        ("taurus --record command", "parallel"),
        ("taurus --record command", "serial"),
        ("taurus --record command", "pools"),
        ("taurus --record command --concurrency hekaton", "pools"),
        ("taurus --record data", "parallel"),
        ("taurus-2016 --record command", "parallel"),
        ("silo-r", "parallel"),
        ("plover", "parallel"),
    ] {
        let words = format!(
            "bank --accounts 500 --protocol {protocol} --device {device} --devices 5 --streams 5 \
             --segment 256KiB --buffer 64KiB --recovery-threads 2 --recovery {how}"
        );
        let report = recovered(&words);
        assert!(report["recovery"]["records"].as_u64() > Some(0), "{report}");
    }
}

#[test]
fn the_last_directory_may_be_on_another_device() {
    let words = "bank --accounts 500 --protocol poplar --rate 500 --streams 2 --devices 2 \
                 --device throttled:latency=1ms,over=memory";
    // Under Poplar a transaction in either stream waits for the slower device.
    let slow = recovered(&format!("{words} --last-device throttled:latency=30ms,over=memory"));
    assert!(slow["latency_us"]["p50"].as_f64() > Some(10_000.0), "{slow}");
}

/// One of two streams takes 150 ms to read, on any thread, and replay has nothing to do meanwhile.
#[test]
fn the_time_of_reading_a_slow_stream_is_told_from_that_of_replay() {
    let words = "bank --accounts 500 --rate 2000 --streams 2 --devices 2 \
                 --device throttled:latency=10us,over=memory \
                 --last-device throttled:latency=150ms,over=memory --recovery-threads 1";
    for record in ["data", "command"] {
        let report = recovered(&format!("{words} --record {record}"));
        let reading = &report["recovery"]["reading"];
        let number = |value: &Value, key: &str| value[key].as_f64().unwrap();
        let streams = reading["streams"].as_array().unwrap();
        assert_eq!(streams.len(), 2, "{reading}");
        let bytes: f64 = streams.iter().map(|stream| number(stream, "bytes")).sum();
        assert_eq!(bytes, report["recovery"]["bytes"].as_f64().unwrap(), "{report}");
        let slowest =
            streams.iter().map(|stream| number(stream, "read_seconds")).fold(0.0, f64::max);
        assert!(slowest >= 0.149, "{reading}");
        let waits = streams.iter().map(|stream| number(stream, "wait_seconds"));
        assert!((number(reading, "wait_seconds") - waits.sum::<f64>()).abs() < 1e-9, "{reading}");
        assert!(number(reading, "wait_seconds") >= 0.1, "{reading}");
        assert!(number(reading, "replaying_seconds") > 0.0, "{reading}");
        let all = number(reading, "wait_seconds") + number(reading, "replaying_seconds");
        let seconds = number(&report["recovery"], "seconds");
        assert!(all <= seconds, "one thread replays for {all} s of {seconds}");
    }
}

#[test]
fn whole_rows_are_longer_than_what_changed_and_are_recovered() {
    let bytes = |more: &str| {
        let report = recovered(&format!("ycsb --rows 2000 --write-share 1 {more}"));
        // Of the recovered log, not of the transactions acknowledged in the short interval.
        let number = |what: &str| report["recovery"][what].as_f64().unwrap();
        number("bytes") / number("records")
    };
    let (whole, changed) = (bytes("--whole-rows"), bytes(""));
    assert!(whole > 2_000.0 && changed < 300.0, "{whole} and {changed} bytes");
}

#[test]
fn processor_time_is_measured_if_it_is_asked_for() {
    let time = bench("bank --accounts 500 --processor-time")["worker_cpu_us"].as_f64();
    assert!(time.is_some_and(|us| us > 0.0), "{time:?}");
    assert!(bench("bank --accounts 500").get("worker_cpu_us").is_none());
}

#[test]
fn phases_are_measured_if_they_are_asked_for() {
    let phases = &bench("bank --accounts 500 --phases --workers 1")["phases"];
    assert!(phases["attempts"].as_u64() > Some(10), "{phases}");
    let us = |phase: &str| phases["us"][phase].as_f64().unwrap();
    for phase in ["logic", "index", "control", "tracking", "stamp", "record", "place", "buffer"] {
        assert!(us(phase) > 0.0 && us(phase) < 1_000.0, "{phase} of {phases}");
    }
    assert!(bench("bank --accounts 500").get("phases").is_none());
    let refused = lab("bench bank --accounts 500 --phases --post", &[]);
    assert!(stderr(&refused).contains("leave out --post"), "{}", stderr(&refused));
}

#[test]
fn a_throttled_device_passes_no_more_than_its_bandwidth() {
    let run = |devices: &str| {
        let device = "throttled:bandwidth=1MB/s,over=memory";
        // Small writes: a write of a full buffer would take longer than the interval.
        let words = "bank --accounts 500 --buffer 64KiB --segment 256KiB --streams 2";
        bench(&format!("{words} --device {device} --devices {devices}"))
    };
    for (devices, rate) in [("1", 1e6), ("2", 2e6)] {
        let bytes = run(devices)["device_bytes"].as_f64().unwrap();
        // Plus the writes in flight at the start of the interval, and as much again for a late
        // sample at the end.
        assert!(bytes <= 0.3 * rate * 1.5 + 2.0 * 2_097_152.0, "{bytes} at {rate}/s");
        assert!(bytes > 0.0);
    }
}

#[test]
fn cold_reads_are_said_to_be_cold() {
    let report = recovered("bank --accounts 500 --cold");
    assert_eq!(report["recovery"]["cold"], true);
    assert!(recovered("bank --accounts 500")["recovery"].get("cold").is_none());
    let words =
        "bench bank --accounts 500 --seconds 0.1 --warmup 0 --reserve-memory 0 --recover --cold";
    let output = lab(words, &[]);
    assert!(stdout(&output).contains("cold reads, "), "{}", stdout(&output));
    assert!(stderr(&output).contains("from the page cache"), "{}", stderr(&output));
}

#[test]
fn flushes_collect_for_their_interval() {
    // Few transactions: without a flush interval each is written in a separate block.
    let padding = |knobs: &str| {
        let report = bench(&format!("bank --accounts 500 --rate 2000 {knobs}"));
        let number = |key: &str| report[key].as_f64().unwrap();
        number("device_bytes") / number("log_bytes").max(1.0)
    };
    // On a busy machine records flushed at once may have waited as well.
    let collects = |_| {
        let (greedy, collected) = (padding("--in-flight 1"), padding("--flush-interval 100ms"));
        eprintln!("{greedy} times the bytes of the log are written, {collected} if they collect");
        greedy > 2.0 * collected
    };
    assert!((0..5).any(collects), "an interval saves nothing");
}

#[test]
fn ycsb_reads_before_it_writes_and_scans() {
    let report = recovered("ycsb --rows 2000 --read-and-write");
    assert!(report["log_bytes_per_transaction"].as_f64() > Some(200.0), "{report}");
    let scanned = recovered("ycsb --rows 2000 --scan-length 20 --record command");
    assert!(scanned["acknowledged"].as_u64() > Some(0));
    recovered("ycsb --rows 2000 --scan-length 20 --concurrency no-wait");
}

#[test]
fn what_only_the_papers_have_recovers_too() {
    for words in [
        "--protocol gsn --device nvm:factor=2,over=memory --flushed-by workers",
        "--protocol poplar --flush-interval 2ms --flush-count 20 --stream-choice fixed",
        "--protocol taurus --streams 16 --simd off",
        "--protocol taurus --streams 16 --recovery pools",
        "--protocol taurus --record command --recovery automatic",
        "--protocol taurus-2016 --recovery phases",
        "--protocol taurus-2016 --record command --recovery phases",
    ] {
        let report = recovered(&format!("ycsb --rows 500 --workers 2 {words}"));
        assert!(report["acknowledged"].as_u64() > Some(0), "{words}: {report}");
    }
}

#[test]
fn knobs_that_make_no_sense_end_with_2() {
    for (words, right) in [
        ("--device throttled", "a bandwidth or a latency"),
        ("--device striped", "--devices 4"),
        ("--devices 2 --log-dir x", "cannot be used with"),
        ("--cold", "--recover"),
        ("--cold --recover --device memory", "nowhere else"),
        ("--buffer 3MB", "power of two"),
        ("--recovery slow", "choose automatic, parallel, serial, pools, phases"),
        ("--recovery phases", "needs --protocol taurus-2016"),
        ("--recovery pools --protocol silo-r", "needs a log with LSN vectors"),
        ("--block 100", "--block must be a power of two"),
        ("--block 32", "--block must be a power of two"),
        ("--flush-count 3", "--flush-interval"),
        ("--flush-count 0 --flush-interval 5ms", "at least 1"),
        ("--flushed-by workers --flush-interval 5ms", "flushes at once"),
        ("--flushed-by none", "choose streams, workers"),
        ("--stream-choice any", "choose fastest, fixed"),
        ("--simd maybe", "choose on, off"),
    ] {
        let output = lab("bench bank", &words.split(' ').collect::<Vec<_>>());
        assert_eq!(code(&output), 2, "{words}");
        assert!(stderr(&output).contains(right), "{words}: {}", stderr(&output));
    }
}

/// The experiment on the cost of bytes writes less, and is not recovered.
#[test]
fn changes_can_be_cut() {
    let physiological = "voter --concurrency partitioned --protocol physiological --no-undo";
    let whole = &bench(physiological)["log_bytes_per_transaction"];
    let cut = &bench(&format!("{physiological} --cut-changes 4"))["log_bytes_per_transaction"];
    assert!(cut.as_f64().unwrap() < whole.as_f64().unwrap(), "{cut} {whole}");
    for (words, why) in [
        ("--protocol serial --cut-changes 100", "physiological"),
        ("--protocol physiological --cut-changes 100 --recover", "--recover"),
    ] {
        let output = lab(&format!("bench voter {words} --seconds 0.1 --warmup 0"), &[]);
        assert_eq!(code(&output), 2, "{words}");
        assert!(stderr(&output).contains(why), "{words}: {}", stderr(&output));
    }
}
