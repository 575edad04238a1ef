//! The reasons for claims that do not hold: each with figures that show the cause, and with figures
//! that do not.

use hyades_report::data::{Data, Outcome};
use hyades_report::experiment::{Experiment, Run};
use hyades_report::page::{About, Page};
use hyades_report::scale::{Axes, Processors, Rates, Setup, Size};
use hyades_report::table;
use serde_json::{Value, json};

const UNKNOWN: &str = "not examined";
const APART: &str = "a separate measurement of the cause";

/// The findings of an experiment, if the runs print `figures` in three rounds.
fn findings(id: &str, figures: impl Fn(&Run) -> Value) -> Vec<Value> {
    let experiments = table::all(&Setup::typical(Size::FULL));
    let named = experiments
        .into_iter()
        .filter(|experiment| experiment.id == id)
        .collect::<Vec<Experiment>>();
    let mut data = Data::default();
    for run in named.iter().flat_map(|experiment| &experiment.runs) {
        if data.of(&run.words).is_empty() {
            (0..3).for_each(|_| data.add(&run.words, Outcome::Done(figures(run))));
        }
    }
    let about = About {
        program: String::new(),
        machine: String::new(),
        date: String::new(),
        seconds: 1.0,
        size: Size::FULL,
        rates: Some(Rates::TYPICAL),
        processors: Processors { cores: 2, ghz: 2.0 },
        axes: Axes::default(),
        commit: None,
        placeholders: Vec::new(),
        calibration: None,
    };
    let json = Page { about, experiments: &named, data: &data }.json();
    json["experiments"][0]["findings"].as_array().unwrap().clone()
}

/// Why findings of an experiment are not as claimed, by text.
fn reasons(id: &str, figures: impl Fn(&Run) -> Value) -> Vec<(String, String)> {
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or("").to_string();
    let both = |f: &Value| (text(f, "text"), text(f, "why_not") + &text(f, "why_above"));
    findings(id, figures).iter().map(both).collect()
}

/// The reason of the only finding with a text that begins with `begins`.
fn reason(id: &str, begins: &str, figures: impl Fn(&Run) -> Value) -> String {
    let all = reasons(id, figures);
    let own: Vec<_> = all.iter().filter(|(text, _)| text.starts_with(begins)).collect();
    assert_eq!(own.len(), 1, "{begins}: {all:#?}");
    own[0].1.clone()
}

/// The JSON of a run that replayed at the rate `rate` on `threads` threads.
fn replayed(run: &Run, rate: f64, threads: u32) -> Value {
    let word = |option: &str| {
        let at = run.words.iter().position(|word| word == option);
        at.map(|at| run.words[at + 1].clone())
    };
    json!({
        "protocol": word("--protocol"), "record": word("--record"),
        "recovery": {"records_per_s": rate, "threads": threads, "state_matches": true},
    })
}

#[test]
fn threads_limit_replay_only_where_they_are_few_and_used() {
    let with = |rate: f64, threads: u32| {
        reason("2020-full-mix", "Full mix, replayed", |run| {
            let own = if run.series == "Taurus command" { rate } else { 100.0 };
            replayed(run, own, threads)
        })
    };
    // A serial log of commands has one thread, whatever number was given.
    let text = with(168.0, 2);
    assert!(text.starts_with("2 threads replay Taurus command here and 1 Serial command"));
    assert!(text.ends_with("that allows 2 times, of which 84 % are reached"), "{text}");
    let text = with(98.0, 2);
    assert!(text.contains("of which 49 % are reached, for a record takes 20.4k \u{b5}s"), "{text}");
    // Enough threads for the claimed ratio, and a ratio above the ratio of threads.
    assert_eq!(with(168.0, 11), UNKNOWN);
    assert_eq!(with(250.0, 2), UNKNOWN);
}

#[test]
fn nothing_is_much_faster_than_no_log() {
    let with = |none: f64| {
        reason(
            "2020-nvme-logging",
            "YCSB, 2PL, acknowledged transactions / s: Taurus command at 1 \
                is 0.9 (0.9 to 0.9, 3 rounds) times Serial command",
            |run| {
                let rate = match run.series.as_str() {
                    "No logging" => none,
                    "Taurus command" => 90.0,
                    _ => 100.0,
                };
                json!({"acknowledged_per_s": rate, "device_bytes": 1.0, "seconds": 1.0})
            },
        )
    };
    let text = with(110.0);
    let words = "Serial command has 91 % of the rate without a log here, so that no log is more \
                 than 1.1 times as fast";
    assert_eq!(text, words);
    // A rate without a log as high as claimed; devices that limit neither series are no cause.
    let text = with(290.0);
    assert!(text.starts_with("devices limit neither") && text.ends_with(UNKNOWN), "{text}");
}

#[test]
fn epochs_delay_replay_if_shorter_ones_do_not() {
    let with = |short_epochs: f64| {
        reason("2020-memory", "YCSB, replayed transactions / s: Taurus data is 1.4", |run| {
            let rate = match run.series.as_str() {
                "Silo-R, epochs of 1 ms" => short_epochs,
                "Silo-R" => 100.0,
                _ => 143.0,
            };
            replayed(run, rate, 2)
        })
    };
    let text = with(140.0);
    assert!(text.contains("Silo-R replays 140/s, 1.4 (1.4 to 1.4, 3 rounds) times"), "{text}");
    assert!(with(104.0).contains(APART));
}

#[test]
fn bytes_cost_workers_if_the_same_without_bytes_scales() {
    let with = |commands: f64, bytes: f64, busy: Option<f64>| {
        let text = "YCSB, acknowledged transactions / s: Taurus data with 2 threads";
        reason("2020-workers", text, |run| {
            let (data, two) = (run.series == "Taurus data", run.x == 2.0);
            let rate = if !two {
                100.0
            } else if data {
                138.0
            } else {
                commands
            };
            let moved = if data { bytes } else { 32e6 };
            let mut out =
                json!({"acknowledged_per_s": rate, "device_bytes": moved, "seconds": 1.0});
            if let Some(busy) = busy {
                let others = if data { busy } else { 0.1 };
                out["busy_processors"] = json!({"workers": 1.5, "others": others});
            }
            out
        })
    };
    let text = with(191.0, 987e6, None);
    assert!(text.contains("reach 1.91 (1.91 to 1.91, 3 rounds) times one"), "{text}");
    assert!(text.ends_with("they write 32 MB/s, Taurus data 987"), "{text}");
    let text = with(191.0, 987e6, Some(0.5));
    assert!(text.contains("keep 0.5 processors busy with data records, and 0.1"), "{text}");
    assert_eq!(with(150.0, 987e6, None), UNKNOWN);
    assert_eq!(with(191.0, 33e6, None), UNKNOWN);
}

#[test]
fn hot_rows_hide_anchors_if_anchors_show_without_them() {
    let with = |uniform: f64, hot: f64| {
        let text = "YCSB, transactions / longest chain: Taurus command, 16 streams at 4";
        reason("2020-anchors", text, |run| {
            let near = run.x == 4.0;
            let parallelism = match run.group {
                "YCSB" => hot * if near { 0.98 } else { 1.0 },
                _ => 300.0 * if near { uniform } else { 1.0 },
            };
            json!({"acknowledged_per_s": 1e6, "log_bytes_per_transaction": 20.0 + run.x,
                   "log": {"incarnations": [{"parallelism": parallelism}]}})
        })
    };
    let text = with(0.87, 100.0);
    assert!(text.contains("falls to 0.87 (0.87 to 0.87, 3 rounds) times"), "{text}");
    assert!(text.ends_with("from 300 where hot rows leave 100"), "{text}");
    assert!(with(0.98, 100.0).contains(APART));
    assert!(with(0.87, 290.0).contains(APART));
}

#[test]
fn a_worker_that_waits_for_its_device_is_slow_by_that() {
    let with = |rate: f64, bytes: f64| {
        let text = "YCSB, acknowledged transactions / s: Poplar at 1 is 6.4";
        reason("poplar-logging", text, |run| {
            let alone = run.series.starts_with("GSN, flushed");
            let rate = if alone { rate } else { rate * 6.4 };
            json!({"workers": 2, "acknowledged_per_s": rate, "seconds": 1.0,
                   "device_bytes": rate * bytes})
        })
    };
    // 57 microseconds; 22 and 37 are for the write.
    let text = with(35e3, 4096.0);
    assert!(text.contains("57.1 \u{b5}s here, 104 % of them for its write"), "{text}");
    assert!(text.contains("37.2 to move 4.1k bytes at 110 MB/s"), "{text}");
    assert_eq!(with(10e3, 4096.0), UNKNOWN);
}

#[test]
fn the_full_mix_costs_more_by_its_streams_only_if_one_stream_costs_less() {
    let with = |four: f64, one: f64| {
        reason("2020-full-mix", "Taurus data is", |run| {
            let rate = match (run.group, run.series.as_str()) {
                (_, "No logging") => 100.0,
                ("Full mix, by streams", _) => one,
                _ => four,
            };
            json!({"acknowledged_per_s": rate})
        })
    };
    let text = with(80.0, 88.0);
    assert!(text.starts_with("with one stream in place of four it is 12.0 % below"), "{text}");
    assert!(with(80.0, 81.0).contains(APART));
    // A log that costs nothing is no cost that needs a reason.
    assert!(!with(104.0, 130.0).contains("streams for two workers"));
}

#[test]
fn commands_are_short_only_where_changes_are_not() {
    let with = |id: &str, begins: &str, changes: f64, command: f64| {
        reason(id, begins, |run| {
            let is_command = run.series == "On arrival" || run.series.contains("ommand");
            let bytes = if is_command { command } else { changes };
            let recovery = json!({"records": 1, "bytes": bytes, "records_per_s": 1.0,
                                  "state_matches": true});
            json!({"acknowledged_per_s": 1.0, "recovery": recovery})
        })
    };
    let voter = |changes| with("command-voter", "Voter: On arrival has", changes, 21.5);
    assert!(
        voter(78.0).starts_with("the changes of a transaction take 78 bytes"),
        "{}",
        voter(78.0)
    );
    assert_eq!(voter(30.0), UNKNOWN);
    let tpcc = |changes, command| {
        let begins = "TPC-C, log bytes / record: Physiological is";
        with("command-tpcc", begins, changes, command)
    };
    assert!(tpcc(1_170.0, 52.0).contains("its command 52, in the paper about 100"));
    assert_eq!(tpcc(5_000.0, 99.0), UNKNOWN);
    let report = |changes| with("2016-bytes", "TPC-C: Serial command has", changes, 60.0);
    assert!(report(2_470.0).starts_with("the changes of the same transactions take 2.47k"));
    assert_eq!(report(900.0), UNKNOWN);
    let rows = |bytes| with("2016-bytes", "TPC-C: Serial data has", bytes, 60.0);
    assert!(rows(2_470.0).starts_with("of the 2.47k bytes about 2.2k are the rows"));
    // Fewer bytes than the standard's rows have: something else.
    assert_eq!(rows(900.0), UNKNOWN);
}

#[test]
fn a_log_is_read_faster_than_the_papers_only_if_no_disk_is_as_fast() {
    let with = |wait: f64| {
        reason("command-voter", "Voter: Physiological has 1", |run| {
            let reading = json!({"wait_seconds": wait, "replaying_seconds": 100.0 * wait});
            let recovery = json!({"bytes": 1e9, "records": 2e7, "records_per_s": 1.0,
                                  "threads": 1, "reading": reading, "state_matches": true});
            json!({"acknowledged_per_s": 1.0, "recovery": recovery, "protocol": run.series})
        })
    };
    assert!(with(1.0).starts_with("the log is read from memory, with 1000 MB/s"));
    assert_eq!(with(10.0), UNKNOWN);
}

#[test]
fn growth_with_a_scan_is_explained_by_what_does_not_grow() {
    let with = |gsn: [f64; 3]| {
        reason("poplar-scan", "From L = 50 to L = 200", |run| {
            let at = [0.0, 50.0, 200.0].iter().position(|x| *x == run.x).unwrap();
            let poplar = [0.95, 10.9, 34.9];
            let time = if run.series == "GSN (NVM-D)" { gsn[at] } else { poplar[at] };
            json!({"acknowledged_per_s": 1e6, "worker_cpu_us": time})
        })
    };
    let text = with([2.75, 13.4, 39.0]);
    assert!(text.contains("takes 0.171 (0.171 to 0.171, 3 rounds) \u{b5}s with GSN"), "{text}");
    assert!(text.ends_with("2.75 \u{b5}s with GSN and 0.95 with Poplar"), "{text}");
    // No time beside the rows', and rows that cost less.
    assert_eq!(with([0.96, 13.4, 39.0]), UNKNOWN);
    assert_eq!(with([2.75, 13.4, 37.0]), UNKNOWN);
}

#[test]
fn installing_saves_nothing_where_running_is_as_fast() {
    let with = |install: f64, begins: &str| {
        reason("command-voter", begins, |run| {
            let rate = match run.series.as_str() {
                "No logging" => 1.76e6,
                "On arrival" => 1.3e6,
                _ => 1.5e6,
            };
            let replay = if run.series == "Physiological" { 1e6 / install } else { 1e6 / 1.1 };
            json!({"workers": 2, "acknowledged_per_s": rate,
                   "recovery": {"records_per_s": replay, "records": 10, "bytes": 300,
                                "state_matches": true}})
        })
    };
    let text = with(1.21, "Voter, replayed");
    assert!(text.contains("changes of a transaction in 1.21 \u{b5}s (30 bytes)"), "{text}");
    assert!(text.contains("a worker without a log runs one in 1.14"), "{text}");
    assert_eq!(with(0.9, "Voter, replayed"), UNKNOWN);
    let text = with(1.21, "Voter, acknowledged transactions / s: On arrival is 0.739");
    assert!(text.contains("1.14 \u{b5}s without a log, and 0.402 more"), "{text}");
    assert!(text.ends_with("would be 0.6 %"), "{text}");
}

#[test]
fn a_load_is_no_limit_only_if_it_is_served() {
    let figures = |served: f64, lowest: f64| {
        move |run: &Run| {
            let physiological = run.series == "Physiological";
            let first = run.x < 1e5;
            let ms = if physiological {
                3.0
            } else if first {
                lowest
            } else {
                2.7
            };
            json!({"acknowledged_per_s": run.x * served, "latency_us": {"p50": 1e3 * ms}})
        }
    };
    let with = |served: f64, lowest: f64, begins: &str| {
        reason("command-latency", begins, figures(served, lowest))
    };
    let (rate, median) = ("Voter, acknowledged", "Voter, median latency (ms): Physiological");
    // What acknowledges all that is offered shows the load, and no result.
    let level = |served: f64| {
        let all = findings("command-latency", figures(served, 2.7));
        let own = all.iter().find(|f| f["text"].as_str().unwrap().starts_with(rate)).unwrap();
        own["level"].as_str().unwrap().to_string()
    };
    assert_eq!(level(0.99), "follows from the set-up");
    assert_eq!(level(0.9), "does not hold");
    // A difference of a ninth holds in part of no claim: the claim is undecided or holds.
    assert_eq!(with(0.9, 2.7, median), "");
    let text = with(0.9, 2.7, "TPC-C, median latency (ms): Physiological");
    assert!(text.contains("every 5 ms"), "{text}");
}

#[test]
fn turns_gain_nothing_where_there_are_no_conflicts() {
    let with = |conflicts: f64| {
        reason("command-at-home", "Voter:", |run| {
            let rate = if run.series.starts_with("Partitioned") { 0.9e6 } else { 1e6 };
            json!({"workers": 2, "acknowledged_per_s": rate, "acknowledged": 1000,
                   "aborts": 1000.0 * conflicts,
                   "busy_processors": {"workers": 1.5, "others": 0.1}})
        })
    };
    let text = with(0.005);
    assert!(text.starts_with("without partitions there are 0.005 conflicts"), "{text}");
    assert!(text.contains("2.22 \u{b5}s with turns, waiting for them included, and 2 without"));
    assert!(text.ends_with("without, 1.67 and 1.5 of it processor time"), "{text}");
    assert!(with(0.05).contains(APART));
}

#[test]
fn collection_takes_a_larger_share_of_shorter_transactions_only() {
    let with = |rate: f64| {
        let text = "Two thirds of the keys: collection";
        reason("deuteronomy-collection", text, |_| {
            json!({"workers": 2, "acknowledged_per_s": rate,
                   "observed": {"collecting_share": 0.105}})
        })
    };
    let text = with(313e3);
    assert!(text.contains("of a transaction's 6.39 \u{b5}s it takes 0.671"), "{text}");
    assert!(text.contains("in the paper of 24.6 \u{b5}s"), "{text}");
    assert_eq!(with(200e3), UNKNOWN);
}

#[test]
fn a_read_from_memory_is_shorter_than_a_devices() {
    let with = |data: f64| {
        let latency = |mean: f64| json!({ "mean_us": mean });
        reason("deuteronomy-latencies", "A read of the data component", |_| {
            let observed = json!({"reads": latency(data / 2.3), "dc_gets": latency(data)});
            json!({ "observed": observed })
        })
    };
    assert!(with(5.0).starts_with("a read of redb takes 5.00 \u{b5}s, less than a device"));
    assert_eq!(with(10.0), UNKNOWN);
}

#[test]
fn chains_leave_threads_nothing_to_do_if_the_log_has_them() {
    let with = |at_once: Option<f64>| {
        let text = "Payment, 2PL, replayed transactions / s: Taurus command at 1";
        reason("2020-nvme-recovery", text, |run| {
            let mut out = replayed(run, 100.0, 2);
            if let (Some(at_once), "Payment, chains") = (at_once, run.group) {
                out["log"] = json!({"incarnations": [{"parallelism": at_once}]});
            }
            out
        })
    };
    let text = with(Some(1.4));
    assert!(text.contains("of which 50 % are reached, for a record takes"), "{text}");
    assert!(text.contains("so that 1.4 of them can be replayed at once"), "{text}");
    let at_once = "can be replayed at once";
    assert!(!with(Some(2.0)).contains(at_once) && !with(None).contains(at_once));
}

#[test]
fn commands_of_2016_are_slow_by_their_lists_or_a_device() {
    let rate = |run: &Run, wide: f64, vectors: f64| {
        let (wide, command) = (if run.x == 16.0 { wide } else { 1.0 }, run.series.as_str());
        match (run.group, command) {
            ("YCSB", "Serial command") => 80.0 * wide,
            ("YCSB", _) => 320.0,
            (_, "Taurus command") => 50.0 * vectors,
            (_, "Taurus 2016 command") => 50.0,
            _ => 100.0,
        }
    };
    let with = |begins: &str, wide: f64, vectors: f64| {
        reason("2016-recovery", begins, |run| replayed(run, rate(run, wide, vectors), 2))
    };
    let finding =
        |group: &str| format!("{group}, replayed transactions / s: Taurus 2016 command at 1");
    let text = with(&finding("YCSB"), 15.8, 1.0);
    assert!(text.contains("Serial command is 15.8 (15.8 to 15.8, 3 rounds) times"), "{text}");
    assert!(text.contains("and 4 devices allow as many times more"), "{text}");
    assert_eq!(with(&finding("YCSB"), 11.0, 1.0), UNKNOWN);
    let text = with(&finding("TPC-C"), 1.0, 2.7);
    assert!(text.contains("the same transactions 2.7 (2.7 to 2.7, 3 rounds) times"), "{text}");
    assert!(!with(&finding("TPC-C"), 1.0, 1.1).contains("vectors"));
}

#[test]
fn lists_are_short_by_cold_rows_if_hot_rows_have_longer_ones() {
    let with = |hot: f64| {
        reason("2016-bytes", "YCSB: Taurus 2016 data adds", |run| {
            let bytes = match run.series.as_str() {
                "Taurus 2016 data" => 238.0,
                "Taurus 2016 data, 1,000 rows" => 236.0 + hot,
                _ => 236.0,
            };
            let recovery = json!({"records": 1, "bytes": bytes, "state_matches": true});
            json!({ "recovery": recovery })
        })
    };
    assert!(with(9.0).ends_with("lists add 9 bytes in place of 2"));
    assert!(with(2.2).contains(APART));
}
