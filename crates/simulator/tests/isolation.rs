//! Tests that the history checker finds planted anomalies and nothing else, and that the histories
//! of the database have the order that is promised.
#![allow(missing_docs)]

use fastrand::Rng;
use hyades_simulator::isolation::graph::check;
use hyades_simulator::isolation::search::has_serial_order;
use hyades_simulator::isolation::workload::{Load, run_and_check};
use hyades_simulator::isolation::{End, Observed, Op, Order};
use hyades_simulator::plan::Combination;
use std::collections::BTreeMap;

fn told(invoked: u64, at: u64, ops: Vec<Op>) -> Observed {
    Observed { life: 0, session: 0, invoked, end: End::Acknowledged(at), ops }
}

fn list(key: u64, saw: &[u64]) -> Op {
    Op::List { key, saw: saw.to_vec() }
}

fn append(key: u64, value: u64) -> Op {
    Op::Append { key, value }
}

fn write(key: u64, value: u64, over: Option<u64>) -> Op {
    Op::Write { key, value, over }
}

fn scan(from: u64, to: u64, saw: &[(u64, u64)]) -> Op {
    Op::Scan { from, to, saw: saw.to_vec() }
}

/// The search and the graph must both find the anomaly, the graph under this name.
fn anomaly(name: &str, history: &[Observed]) {
    assert!(!has_serial_order(history, Order::RealTime), "{name}: there is a serial order");
    let found = check(history, Order::RealTime).expect_err(name);
    assert!(found.name.contains(name), "{name} is called {}: {}", found.name, found.trace);
    assert!(found.trace.contains('T'), "{}", found.trace);
}

#[test]
fn planted_anomalies_are_found_and_named() {
    let lost_update = [
        told(0, 9, vec![write(1, 10, None)]),
        told(0, 9, vec![write(1, 11, None)]),
        told(10, 12, vec![scan(1, 1, &[(1, 11)])]),
    ];
    anomaly("lost update", &lost_update);
    let write_skew = [
        told(0, 9, vec![list(1, &[]), append(2, 20)]),
        told(0, 9, vec![list(2, &[]), append(1, 10)]),
        told(10, 12, vec![list(1, &[10]), list(2, &[20])]),
    ];
    anomaly("G2", &write_skew);
    // Each counts the registers of a range and adds one that the other did not count.
    let phantom = [
        told(0, 9, vec![scan(0, 5, &[]), write(1, 10, None)]),
        told(0, 9, vec![scan(0, 5, &[]), write(2, 20, None)]),
        told(10, 12, vec![scan(0, 5, &[(1, 10), (2, 20)])]),
    ];
    anomaly("G2", &phantom);
    let circular = [
        told(0, 9, vec![append(1, 10), list(2, &[20])]),
        told(0, 9, vec![append(2, 20), list(1, &[10])]),
        told(10, 12, vec![list(1, &[10]), list(2, &[20])]),
    ];
    anomaly("G1c", &circular);
    let read_skew = [
        told(0, 9, vec![append(1, 10), append(2, 20)]),
        told(0, 9, vec![list(1, &[10]), list(2, &[])]),
        told(10, 12, vec![list(1, &[10]), list(2, &[20])]),
    ];
    anomaly("G-single", &read_skew);
    let mut aborted = told(0, 9, vec![append(1, 10)]);
    aborted.end = End::Aborted(9);
    anomaly("G1a", &[aborted, told(0, 9, vec![list(1, &[10])])]);
    let intermediate = [
        told(0, 9, vec![append(1, 10), append(1, 11)]),
        told(0, 9, vec![list(1, &[10])]),
        told(10, 12, vec![list(1, &[10, 11])]),
    ];
    anomaly("", &intermediate);
    let forked = [
        told(0, 9, vec![append(1, 10)]),
        told(0, 9, vec![append(1, 11)]),
        told(0, 9, vec![list(1, &[10, 11])]),
        told(0, 9, vec![list(1, &[11])]),
    ];
    anomaly("incompatible orders", &forked);
    let own = [told(0, 9, vec![append(1, 10), list(1, &[])])];
    anomaly("own writes", &own);
}

#[test]
fn an_order_against_real_time_is_serializable_and_not_strictly() {
    let stale = [told(0, 5, vec![append(1, 10)]), told(6, 9, vec![list(1, &[])])];
    anomaly("real-time", &stale);
    check(&stale, Order::Any).unwrap();
    assert!(has_serial_order(&stale, Order::Any));
    // An acknowledged write that is missing after a crash violates real time in the same way.
    let lost = [told(0, 5, vec![write(1, 10, None)]), told(8, 9, vec![scan(0, 3, &[])])];
    anomaly("real-time", &lost);
}

#[test]
fn what_was_never_answered_may_have_happened_or_not() {
    let unknown =
        Observed { life: 0, session: 0, invoked: 0, end: End::Unknown, ops: vec![append(1, 10)] };
    for saw in [&[][..], &[10]] {
        let history = [unknown.clone(), told(6, 9, vec![list(1, saw)])];
        check(&history, Order::RealTime).unwrap();
        assert!(has_serial_order(&history, Order::RealTime));
    }
    let half = [
        Observed { ops: vec![append(1, 10), append(2, 20)], ..unknown },
        told(6, 9, vec![list(1, &[10]), list(2, &[])]),
    ];
    anomaly("G-single", &half);
}

/// A history that some serial order explains, with random overlaps, ended by a read of everything.
fn serial_history(rng: &mut Rng, transactions: usize) -> Vec<Observed> {
    let mut lists: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut registers: BTreeMap<u64, u64> = BTreeMap::new();
    let mut history = Vec::new();
    let mut value = 100;
    for n in 0..transactions as u64 {
        let (mut own_lists, mut own_registers) = (lists.clone(), registers.clone());
        let mut ops = Vec::new();
        for _ in 0..rng.usize(1..4) {
            let key = rng.u64(0..3);
            value += 1;
            ops.push(match rng.u32(0..4) {
                0 => {
                    own_lists.entry(key).or_default().push(value);
                    append(key, value)
                }
                1 => list(key, own_lists.get(&key).map_or(&[], |l| l)),
                2 => write(key, value, own_registers.insert(key, value)),
                _ => {
                    let saw: Vec<_> = own_registers.range(key..=2).map(|(k, v)| (*k, *v)).collect();
                    scan(key, 2, &saw)
                }
            });
        }
        let (began, ended) = (n * 10, n * 10 + 5);
        let (early, late) = (rng.u64(0..25).min(began), rng.u64(0..25));
        let end = match rng.u32(0..8) {
            0 => End::Aborted(ended + late),
            1 => End::Unknown,
            _ => End::Acknowledged(ended + late),
        };
        if !matches!(end, End::Aborted(_)) {
            (lists, registers) = (own_lists, own_registers);
        }
        let (life, session) = (n as usize * 2 / transactions, rng.usize(0..2));
        history.push(Observed { life, session, invoked: began - early, end, ops });
    }
    let mut ops: Vec<Op> =
        (0..3).map(|key| list(key, lists.get(&key).map_or(&[], |l| l))).collect();
    ops.push(scan(0, 2, &registers.into_iter().collect::<Vec<_>>()));
    history.push(told(100_000, 100_001, ops));
    history
}

/// Changes one observation.
fn damage(rng: &mut Rng, history: &mut [Observed]) {
    let at = rng.usize(0..history.len());
    let observed = &mut history[at];
    if rng.u32(0..4) == 0 {
        // A later invocation makes the order by real time stricter.
        observed.invoked += rng.u64(0..30);
        if let End::Acknowledged(told) = &mut observed.end {
            *told = (*told).max(observed.invoked + 1);
        }
        return;
    }
    let at = rng.usize(0..observed.ops.len());
    match &mut observed.ops[at] {
        Op::List { saw, .. } => drop(saw.pop()),
        Op::Scan { saw, .. } if !saw.is_empty() => drop(saw.remove(rng.usize(0..saw.len()))),
        Op::Write { over, .. } => *over = None,
        _ => {}
    }
}

/// With a final read of everything, graph and search must agree. Without it the graph may not know
/// an order.
#[test]
fn the_graph_and_the_search_agree() {
    let (mut sound, mut broken) = (0, 0);
    for seed in 0..6000 {
        let mut rng = Rng::with_seed(seed);
        let transactions = rng.usize(1..6);
        let mut history = serial_history(&mut rng, transactions);
        assert!(
            check(&history, Order::RealTime).is_ok(),
            "{seed}: {:?}",
            check(&history, Order::RealTime)
        );
        for _ in 0..rng.usize(0..3) {
            damage(&mut rng, &mut history);
        }
        for order in [Order::Any, Order::Sessions, Order::RealTime] {
            let searched = has_serial_order(&history, order);
            let checked = check(&history, order);
            assert_eq!(searched, checked.is_ok(), "{seed} {order:?}: {checked:?}\n{history:?}");
            if searched { sound += 1 } else { broken += 1 }
        }
    }
    assert!(sound > 1000 && broken > 1000, "{sound} {broken}");
}

#[test]
fn every_combination_has_the_order_that_it_promises_also_over_crashes() {
    let mut answered = 0;
    for (seed, combination) in Combination::all().iter().copied().enumerate() {
        let load = Load::random(seed as u64, combination);
        answered += run_and_check(&load).unwrap_or_else(|anomaly| panic!("{anomaly}"));
    }
    assert!(answered > 1000, "{answered}");
}
