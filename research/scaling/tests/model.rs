//! Bounds that hold on any machine, and limits.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_scaling::costs::{Costs, ReplayParts, SCHEMES, SchemeCosts, SharingCosts};
use hyades_scaling::forward::{RunResult, run};
use hyades_scaling::machine::{MAX_STREAMS, MAX_WORKERS, Machine};
use hyades_scaling::replay::{Replayed, replay};
use hyades_scaling::rules::Protocol;
use hyades_scaling::usage::OWN_WORK;
use std::collections::BTreeMap;

fn costs(line_ns: f64) -> Costs {
    let own = |(_, record): (&str, &str)| SchemeCosts {
        worker_ns: 2_000.0,
        bytes: if record == "command" { 20.0 } else { 1_000.0 },
        replay_ns: Some(1_000.0),
        slowdown: None,
        replay: ReplayParts::default(),
    };
    let schemes: BTreeMap<_, _> =
        SCHEMES.iter().map(|(p, r)| (format!("{p} {r}"), own((p, r)))).collect();
    Costs {
        none_ns: 1_500.0,
        slowdown: 1.0,
        line_ns,
        theta: 0.0,
        rows: 100_000,
        miss_ns: 0.0,
        row_ns: 0.0,
        sharing: SharingCosts::default(),
        schemes,
    }
}

fn machine(workers: usize) -> Machine {
    let (streams, devices) = (8, 8);
    let base = Machine { seconds: 0.02, rows: 20_000, theta: 0.0, ..Machine::default() };
    Machine { workers, streams, devices, ..base }
}

fn of(protocol: &str, record: &str, costs: &Costs, machine: &Machine) -> RunResult {
    let word = Protocol::from_word(protocol).unwrap();
    run(costs, word, (protocol, record), machine).unwrap()
}

fn rate(
    costs: &Costs,
    protocol: Protocol,
    words: (&str, &str),
    machine: &Machine,
    ran: &RunResult,
) -> Option<f64> {
    replay(costs, protocol, words, machine, ran).map(|Replayed { records_per_s, .. }| records_per_s)
}

fn per_second(ran: &RunResult) -> f64 {
    ran.acknowledged as f64 / ran.seconds
}

#[test]
fn one_worker_makes_what_its_costs_say() {
    for streams in [1, 8] {
        for (protocol, record, ns) in [("none", "data", 1_500.0), ("taurus", "command", 2_000.0)] {
            let machine = Machine { streams, ..machine(1) };
            let rate = per_second(&of(protocol, record, &costs(0.0), &machine));
            assert!((rate * ns / 1e9 - 1.0).abs() < 0.05, "{protocol}, {streams}: {rate}");
        }
    }
}

#[test]
fn a_device_passes_no_more_than_its_bandwidth() {
    let slow = Machine {
        bandwidth: 5e6,
        latency: 1e-3,
        epoch: 0.005,
        seconds: 0.4,
        buffer: 1 << 18,
        ..machine(8)
    };
    for (protocol, devices) in
        [("serial", 1.0), ("taurus", 8.0), ("silo-r", 8.0), ("plover", 8.0), ("poplar", 8.0)]
    {
        let rate = per_second(&of(protocol, "data", &costs(0.0), &slow));
        // 1,000 bytes per row image. Buffers full at the start of the measurement drain within it.
        let most = devices * slow.bandwidth / 1_000.0;
        assert!(rate < 1.4 * most && rate > 0.5 * most, "{protocol}: {rate} of {most}");
    }
}

#[test]
fn more_bandwidth_or_less_latency_is_never_worse() {
    for (protocol, record) in SCHEMES {
        let rate = |bandwidth, latency| {
            let small = Machine { buffer: 1 << 16, epoch: 0.01, seconds: 0.2, ..machine(4) };
            let machine = Machine { bandwidth, latency, ..small };
            per_second(&of(protocol, record, &costs(20.0), &machine))
        };
        // A wide margin for the ends of the measured time.
        assert!(rate(50e6, 1e-3) > 0.9 * rate(5e6, 1e-3), "{protocol} {record}");
        assert!(rate(5e6, 1e-4) > 0.9 * rate(5e6, 1e-2), "{protocol} {record}");
    }
}

#[test]
fn a_shared_counter_binds_and_streams_do_not() {
    let serial = per_second(&of("serial", "command", &costs(100.0), &machine(64)));
    // A line that takes 100 ns to move serves ten million writers a second; three in four write.
    assert!(serial < 1.4e7, "{serial}");
    let taurus = per_second(&of("taurus", "command", &costs(100.0), &machine(64)));
    assert!(taurus > 1.8 * serial, "{taurus} and {serial}");
}

#[test]
fn an_epoch_is_waited_for_and_half_as_long_if_it_is_half_as_long() {
    let median = |protocol, epoch| {
        let machine = Machine { seconds: 0.4, epoch, ..machine(2) };
        let mut latencies = of(protocol, "data", &costs(0.0), &machine).latencies;
        latencies.sort_unstable();
        latencies[latencies.len() / 2] as f64 / 1e6
    };
    let [paper, half] = [0.04, 0.02].map(|epoch| median("silo-r", epoch));
    assert!((18.0..30.0).contains(&paper), "half an epoch of 40 ms, and a flush: {paper}");
    assert!((9.0..16.0).contains(&half), "{half}");
    assert!(median("poplar", 0.04) < 6.0);
}

#[test]
fn conflicts_and_moving_rows_cost_more_the_more_skewed_accesses_are() {
    let costs = Costs { row_ns: 300.0, ..costs(0.0) };
    let ran = |theta, workers| of("taurus", "data", &costs, &Machine { theta, ..machine(workers) });
    let runs = [0.0, 0.9, 1.2].map(|theta| ran(theta, 16));
    assert!(runs.windows(2).all(|pair| pair[0].conflicts < pair[1].conflicts));
    assert!(runs.windows(2).all(|pair| pair[0].acknowledged > pair[1].acknowledged));
    assert_eq!(ran(1.2, 1).conflicts, 0);
}

#[test]
fn skew_keeps_rows_in_the_cache() {
    let costs = Costs { miss_ns: 200.0, ..costs(0.0) };
    let rate = |theta| {
        let machine = Machine { theta, rows: 100_000, ..machine(1) };
        per_second(&of("none", "data", &costs, &machine))
    };
    assert!(rate(1.2) > 1.1 * rate(0.0));
    // The costs were measured under the uniform distribution.
    assert!((rate(0.0) * 1_500.0 / 1e9 - 1.0).abs() < 0.05, "{}", rate(0.0));
}

#[test]
fn the_same_seed_gives_the_same_and_another_one_does_not() {
    for (protocol, record) in SCHEMES {
        let ran = |seed| {
            let machine = Machine { seed, theta: 0.9, epoch: 0.004, ..machine(8) };
            let ran = of(protocol, record, &costs(50.0), &machine);
            let replayed = rate(
                &costs(50.0),
                Protocol::from_word(protocol).unwrap(),
                (protocol, record),
                &machine,
                &ran,
            );
            (ran.acknowledged, ran.latencies, replayed.unwrap().to_bits())
        };
        assert_eq!(ran(1), ran(1), "{protocol} {record}");
        assert_ne!(ran(1), ran(2), "{protocol} {record}");
    }
}

/// The resource used most says why a run is no faster.
#[test]
fn what_binds_a_run_is_named() {
    let first = |protocol, record, costs: &Costs, machine: &Machine| {
        of(protocol, record, costs, machine).usage.first().unwrap()
    };
    let free = first("taurus", "data", &costs(0.0), &machine(4));
    assert_eq!((free.resource, free.is_saturated), (OWN_WORK, true));
    let serial = first("serial", "command", &costs(100.0), &machine(64));
    assert!(["the counter of a stream", "a line of a buffer"].contains(&serial.resource));
    let slow = Machine { bandwidth: 5e6, buffer: 1 << 18, seconds: 0.4, ..machine(8) };
    assert_eq!(first("taurus", "data", &costs(0.0), &slow).resource, "a device");
    let skewed = Machine { theta: 3.0, ..machine(64) };
    let rows = Costs { row_ns: 500.0, ..costs(0.0) };
    assert_eq!(first("none", "data", &rows, &skewed).resource, "a row that moves between cores");
}

/// A stream is decoded by one thread at a time, so the runners of few streams bind many threads.
#[test]
fn decoding_binds_many_threads_of_few_streams() {
    let mut costs = costs(0.0);
    let own = costs.schemes.get_mut("taurus command").unwrap();
    own.replay = ReplayParts { read_ns: 100.0, decode_ns: 400.0, ..ReplayParts::default() };
    costs.sharing.pause_ns = 1_000.0;
    let machine = Machine { rows: 1_000_000, streams: 2, ..machine(8) };
    let ran = of("taurus", "command", &costs, &machine);
    let at = |workers| {
        let machine = Machine { workers, ..machine.clone() };
        replay(&costs, Protocol::Taurus, ("taurus", "command"), &machine, &ran).unwrap()
    };
    let (alone, many) = (at(1), at(32));
    assert!((alone.records_per_s / 1e6 - 1.0).abs() < 0.05, "{}", alone.records_per_s);
    // Half a microsecond for each record of a stream.
    assert!(many.records_per_s < 4.2e6, "{}", many.records_per_s);
    assert_eq!(many.usage.first().unwrap().resource, "the one runner of a stream");
}

fn replay_rate(threads: usize, machine: Machine) -> f64 {
    let ran = of("taurus", "command", &costs(0.0), &machine);
    let machine = Machine { workers: threads, ..machine };
    rate(&costs(0.0), Protocol::Taurus, ("taurus", "command"), &machine, &ran).unwrap()
}

#[test]
fn replay_of_commands_scales_until_vectors_bind() {
    let rate_of = |threads, rows| replay_rate(threads, Machine { rows, ..machine(8) });
    // One microsecond per record.
    assert!((rate_of(1, 20_000) / 1e6 - 1.0).abs() < 0.05);
    assert!(rate_of(4, 1_000_000) > 2.5e6, "{}", rate_of(4, 1_000_000));
    // All transactions write the same few rows: a dependency chain.
    assert!(rate_of(8, 4) < 3e6);
    let machine = machine(8);
    let ran = of("serial", "command", &costs(0.0), &machine);
    let words = ("serial", "command");
    let serial = rate(&costs(0.0), Protocol::Serial, words, &machine, &ran).unwrap();
    assert!(serial < 1.05e6);
}

/// Records follow all positions covered by their anchor: many anchors hold replay up.
#[test]
fn few_anchors_leave_replay_more_parallelism() {
    let with = |anchor_interval| {
        let (flush_interval, latency) = (5e-6, 1e-6);
        let often = Machine { flush_interval, latency, rows: 200_000, ..machine(8) };
        replay_rate(8, Machine { anchor_interval, ..often })
    };
    let (few, many) = (with(1 << 30), with(256));
    assert!(many < 0.95 * few, "{many} of {few}");
}

#[test]
fn machines_beyond_the_limits_are_refused_with_their_reason() {
    let refused = |machine: Machine, word: &str| {
        let costs = costs(0.0);
        let error = run(&costs, Protocol::Taurus, ("taurus", "data"), &machine).unwrap_err();
        assert!(error.contains(word), "{error}");
    };
    let least = Machine { streams: 1, devices: 1, rows: 2, seconds: 1e-4, ..machine(1) };
    assert_eq!(least.check(), Ok(()));
    of("taurus", "command", &costs(0.0), &least);
    let most = Machine { workers: MAX_WORKERS, streams: MAX_STREAMS, ..least.clone() };
    of("plover", "data", &costs(0.0), &most);
    refused(Machine { workers: 0, ..least.clone() }, "workers: 0");
    refused(Machine { workers: MAX_WORKERS + 1, ..least.clone() }, "1 to 256");
    refused(Machine { streams: 0, ..least.clone() }, "log streams: 0");
    refused(Machine { streams: MAX_STREAMS + 1, ..least.clone() }, "1 to 16");
    refused(Machine { devices: 0, ..least.clone() }, "devices: 0");
    refused(Machine { rows: 1, ..least.clone() }, "1 rows");
    refused(Machine { seconds: 0.0, ..least.clone() }, "simulated time");
    refused(Machine { epoch: 0.0, ..least.clone() }, "epoch");
    refused(Machine { theta: 10.5, ..least.clone() }, "Zipf");
    refused(Machine { latency: -1.0, ..least.clone() }, "latency");
    for bandwidth in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        refused(Machine { bandwidth, ..least.clone() }, "the bandwidth of a device");
    }
    let none = Costs { schemes: BTreeMap::new(), ..costs(0.0) };
    let error = run(&none, Protocol::Gsn, ("gsn", "data"), &least).unwrap_err();
    assert!(error.contains("no costs for gsn data"), "{error}");
}
