//! Bounds that hold on any machine.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_scaling::costs::{Costs, SchemeCosts};
use hyades_scaling::forward::{RunResult, run};
use hyades_scaling::machine::Machine;
use hyades_scaling::replay::rate;
use hyades_scaling::rules::Protocol;
use std::collections::BTreeMap;

fn costs(line_ns: f64) -> Costs {
    let names = [
        "serial data",
        "serial command",
        "taurus data",
        "taurus command",
        "silo-r data",
        "plover data",
        "poplar data",
        "gsn data",
    ];
    let own = |name: &str| SchemeCosts {
        worker_ns: 2_000.0,
        bytes: if name.ends_with("command") { 20.0 } else { 1_000.0 },
        replay_ns: Some(1_000.0),
    };
    let schemes: BTreeMap<_, _> = names.iter().map(|n| (n.to_string(), own(n))).collect();
    Costs { none_ns: 1_500.0, slowdown: 1.0, line_ns, schemes }
}

fn machine(workers: usize) -> Machine {
    Machine { workers, streams: 8, devices: 8, seconds: 0.02, rows: 20_000, ..Machine::default() }
}

fn of(protocol: &str, record: &str, line_ns: f64, machine: &Machine) -> RunResult {
    let word = Protocol::from_word(protocol).unwrap();
    run(&costs(line_ns), word, (protocol, record), machine).unwrap()
}

fn per_second(ran: &RunResult) -> f64 {
    ran.acknowledged as f64 / ran.seconds
}

#[test]
fn one_worker_makes_what_its_costs_say() {
    for (protocol, record, ns) in [("none", "data", 1_500.0), ("taurus", "command", 2_000.0)] {
        let rate = per_second(&of(protocol, record, 0.0, &machine(1)));
        assert!((rate * ns / 1e9 - 1.0).abs() < 0.05, "{protocol}: {rate}");
    }
}

#[test]
fn a_device_passes_no_more_than_its_bandwidth() {
    let slow = Machine { bandwidth: 5e6, latency: 1e-3, epoch: 0.005, seconds: 0.2, ..machine(8) };
    for (protocol, devices) in
        [("serial", 1.0), ("taurus", 8.0), ("silo-r", 8.0), ("plover", 8.0), ("poplar", 8.0)]
    {
        let rate = per_second(&of(protocol, "data", 0.0, &slow));
        // 1,000 bytes per row image. Buffers that are full at the start of the measurement drain
        // within it.
        let most = devices * slow.bandwidth / 1_000.0;
        assert!(rate < 1.6 * most && rate > 0.5 * most, "{protocol}: {rate} of {most}");
    }
}

#[test]
fn a_shared_counter_binds_and_streams_do_not() {
    let serial = per_second(&of("serial", "command", 100.0, &machine(64)));
    // A line that takes 100 ns to move serves ten million writers a second; three in four write.
    assert!(serial < 1.4e7, "{serial}");
    let taurus = per_second(&of("taurus", "command", 100.0, &machine(64)));
    assert!(taurus > 1.8 * serial, "{taurus} and {serial}");
}

#[test]
fn an_epoch_is_waited_for() {
    let run = |protocol| {
        let machine = Machine { seconds: 0.2, ..machine(2) };
        let mut latencies = of(protocol, "data", 0.0, &machine).latencies;
        latencies.sort_unstable();
        latencies[latencies.len() / 2]
    };
    assert!(run("silo-r") > 10_000_000, "half an epoch of 40 ms at the least");
    assert!(run("poplar") < 5_000_000);
}

#[test]
fn the_same_seed_gives_the_same() {
    let (a, b) = (of("plover", "data", 50.0, &machine(8)), of("plover", "data", 50.0, &machine(8)));
    assert_eq!((a.acknowledged, a.latencies), (b.acknowledged, b.latencies));
}

#[test]
fn replay_of_commands_scales_until_vectors_bind() {
    let rate_of = |threads, rows| {
        let machine = Machine { rows, ..machine(threads) };
        let ran = of("taurus", "command", 0.0, &machine);
        rate(&costs(0.0), Protocol::Taurus, ("taurus", "command"), &machine, &ran).unwrap()
    };
    // One microsecond per record.
    assert!((rate_of(1, 20_000) / 1e6 - 1.0).abs() < 0.05);
    assert!(rate_of(8, 1_000_000) > 4e6);
    // All transactions write the same few rows: a dependency chain.
    assert!(rate_of(8, 4) < 3e6);
    let machine = machine(8);
    let ran = of("serial", "command", 0.0, &machine);
    let serial =
        rate(&costs(0.0), Protocol::Serial, ("serial", "command"), &machine, &ran).unwrap();
    assert!(serial < 1.05e6);
}
