//! Replay in the order of vectors, with and without costs of sharing.

use super::*;
use crate::rules::Access;
use crate::usage::Share;

/// Only a record's own work takes time; threads without work see every change at once.
const FREE: Timing = Timing {
    run: 100,
    read: 0,
    decode: 0,
    copy: 0,
    line: 0,
    further: 0,
    lock: 0,
    wake: 0,
    notify: 0,
    polls: 1 << 40,
    row: 0.0,
};

/// A record of 10 bytes, with the vector to follow.
fn record(stream: usize, number: u64, vector: [u64; 2]) -> Logged {
    let start = 10 * number;
    let (end, accesses) = (start + 10, [None, None]);
    Logged { stream, start, end, number: 0, vector: vector.into(), accesses }
}

fn time(log: &[Logged], threads: usize) -> f64 {
    usage(log, threads, FREE).0
}

#[test]
fn independent_records_run_in_parallel_and_chains_do_not() {
    let free: Vec<Logged> = (0..64).map(|at| record(at % 2, at as u64 / 2, [0, 0])).collect();
    assert_eq!([time(&free, 1), time(&free, 2)], [6_400.0, 3_200.0]);
    // Each record follows the previous record, which is in the other stream.
    let chain: Vec<Logged> = (0..64)
        .map(|at| {
            let (own, other) = (at as u64 / 2 * 10, (at as u64).div_ceil(2) * 10);
            record(at % 2, at as u64 / 2, if at % 2 == 0 { [own, other] } else { [other, own] })
        })
        .collect();
    assert_eq!([time(&chain, 1), time(&chain, 4)], [6_400.0, 6_400.0]);
}

#[test]
fn a_record_follows_what_its_vector_names_in_its_own_stream() {
    let own = |follows: bool| -> Vec<Logged> {
        (0..64).map(|at| record(0, at, [if follows { 10 * at } else { 0 }, 0])).collect()
    };
    // Idle threads get some of the stream's records.
    assert!(time(&own(false), 4) < 3_300.0, "{}", time(&own(false), 4));
    assert_eq!(time(&own(true), 4), 6_400.0);
}

/// The first records of stream 0 follow all of stream 1, a chain; the rest are free.
fn blocked(records: u64) -> f64 {
    let mut log: Vec<Logged> = (0..records).map(|at| record(0, at, [0, 2_000])).collect();
    log.extend((records..200).map(|at| record(0, at, [0, 0])));
    log.extend((0..200).map(|at| record(1, at, [0, 10 * at])));
    time(&log, 2)
}

#[test]
fn a_stream_is_read_no_further_while_eight_of_its_records_wait() {
    // One thread runs the records behind the seven while the second thread runs the chain; now and
    // then it takes a record of the chain too.
    assert!(blocked(7) < 26_000.0, "{}", blocked(7));
    assert!(blocked(8) > 29_000.0, "{}", blocked(8));
}

#[test]
fn what_is_not_read_cannot_run() {
    let log: Vec<Logged> = (0..10).map(|at| record(0, at, [0, 0])).collect();
    let slow = replay(&log, 2, 2, Timing { run: 1, ..FREE }, |position| position as f64 * 50.0).0;
    assert!((10.0 / slow * 1e9 - 5_001.0).abs() < 0.1, "{slow}");
}

/// Independent records in two streams.
fn independent(records: u64) -> Vec<Logged> {
    (0..records).map(|at| record(at as usize % 2, at / 2, [0, 0])).collect()
}

/// The time of a replay in nanoseconds, and where the time goes.
fn usage(log: &[Logged], threads: usize, timing: Timing) -> (f64, Usage) {
    let (rate, usage) = replay(log, 2, threads, timing, |_| 0.0);
    ((log.len() as f64 / rate * 1e9).round(), usage)
}

fn of(parts: &[Share], name: &str) -> f64 {
    parts.iter().find(|part| part.what == name).unwrap().share
}

/// Reading and decoding are the work of the thread that holds the stream: two streams decode no
/// faster on sixteen threads than two.
#[test]
fn decoding_is_bound_by_the_runners_of_streams() {
    let log = independent(2_000);
    let timing = Timing { run: 100, read: 40, decode: 60, ..FREE };
    assert_eq!(usage(&log, 1, timing).0, 400_000.0);
    let (ns, usage) = usage(&log, 16, timing);
    assert!(ns >= 100_000.0, "{ns}");
    let first = usage.first().unwrap();
    assert_eq!((first.resource, first.is_saturated), ("the one runner of a stream", true));
    assert!(of(&usage.threads, "reading and decoding") > 0.1);
}

/// One thread has nothing to share: only its own steps count.
#[test]
fn a_thread_alone_pays_for_no_sharing() {
    let log = independent(500);
    let costly = Timing { copy: 500, line: 500, lock: 100, further: 50, ..FREE };
    let (ns, usage) = usage(&log, 1, costly);
    // Of locks only that of the cursor, once in each quantum.
    assert!(ns < 1.1 * 50_000.0, "{ns}");
    assert!(of(&usage.resources, OWN_WORK) > 0.9);
}

#[test]
fn every_cost_of_sharing_slows_several_threads_down() {
    let mut log = independent(2_000);
    // Some records wait for the other stream.
    for at in (20..2_000).step_by(3) {
        let other = 1 - log[at].stream;
        log[at].vector[other] = log[at - 5].start;
    }
    let free = usage(&log, 4, FREE).0;
    for (name, timing) in [
        ("copy", Timing { copy: 300, ..FREE }),
        ("line", Timing { line: 300, ..FREE }),
        ("lock", Timing { lock: 300, ..FREE }),
        ("decode", Timing { decode: 300, ..FREE }),
        ("sleep", Timing { polls: 0, wake: 5_000, notify: 300, ..FREE }),
    ] {
        let with = usage(&log, 4, timing).0;
        assert!(with > 1.05 * free, "{name}: {with} of {free}");
    }
}

/// The shares of all activities are at most the whole, and no resource is used beyond the time.
#[test]
fn shares_are_parts_of_the_time() {
    let timing = Timing { decode: 30, copy: 20, line: 60, lock: 20, further: 10, ..FREE };
    for threads in [1, 2, 7, 70] {
        let (_, usage) = usage(&independent(3_000), threads, timing);
        let all: f64 = usage.threads.iter().map(|part| part.share).sum();
        assert!(all > 0.05 && all < 1.01, "{threads}: {usage:?}");
        assert!(usage.resources.iter().all(|part| (0.0..=1.0).contains(&part.share)));
    }
}

/// Records of other threads' rows move these rows.
#[test]
fn a_row_that_all_write_moves_to_each() {
    let write = Access { row: 0, write: true };
    let mut log = independent(1_000);
    log.iter_mut().for_each(|record| record.accesses[0] = Some(write));
    let (ns, usage) = usage(&log, 8, Timing { row: 200.0, ..FREE });
    assert!(ns > 100_000.0, "{ns}");
    assert_eq!(usage.first().unwrap().resource, "a row that moves between cores");
}
