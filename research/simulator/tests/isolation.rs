//! Tests that the history checker finds planted anomalies and nothing else, and that the histories
//! of the database have the promised order.
#![allow(missing_docs)]

use fastrand::Rng;
use hyades::{Concurrency, Isolation};
use hyades_simulator::isolation::graph::check;
use hyades_simulator::isolation::search::{has_order_of_snapshots, has_serial_order};
use hyades_simulator::isolation::workload::{Load, run_and_check, run_load};
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
    // Each counts the registers of a range and adds a register that the other did not count.
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
    // A missing acknowledged write after a crash violates real time in the same way.
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

/// A history with a serial order, with random overlaps, ended by a read of everything.
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
    if observed.ops.is_empty() {
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

/// With a final read of everything, graph and search must agree. Without the read the graph may not
/// know an order.
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

/// A history of snapshot isolation: each transaction works on a copy of the committed values at its
/// start, and commits its changes unless another has changed the same value since.
fn snapshot_history(rng: &mut Rng, transactions: usize) -> Vec<Observed> {
    type Values = BTreeMap<u64, Vec<u64>>;
    struct Active {
        began: u64,
        seen: Values,
        own: Values,
        ops: Vec<Op>,
    }
    let (mut values, mut active, mut history) = (Values::new(), Vec::<Active>::new(), Vec::new());
    let (mut value, mut now, mut left) = (100, 0, transactions);
    while left > 0 || !active.is_empty() {
        now += 10;
        if left > 0 && active.len() < 3 && rng.bool() {
            left -= 1;
            active.push(Active {
                began: now,
                seen: values.clone(),
                own: values.clone(),
                ops: Vec::new(),
            });
        } else if !active.is_empty() {
            let at = rng.usize(0..active.len());
            let txn = &mut active[at];
            let key = rng.u64(0..3);
            match rng.u32(0..3) {
                0 => {
                    value += 1;
                    txn.own.entry(key).or_default().push(value);
                    txn.ops.push(append(key, value));
                }
                1 => txn.ops.push(list(key, txn.own.get(&key).map_or(&[], |l| l))),
                _ => {
                    let Active { began, seen, own, ops } = active.remove(at);
                    let changed: Vec<u64> =
                        own.keys().copied().filter(|key| own.get(key) != seen.get(key)).collect();
                    let is_first = changed.iter().all(|key| values.get(key) == seen.get(key));
                    let end = match is_first {
                        true => End::Acknowledged(now + rng.u64(0..5)),
                        false => End::Aborted(now + rng.u64(0..5)),
                    };
                    if is_first {
                        changed.iter().for_each(|key| drop(values.insert(*key, own[key].clone())));
                    }
                    let invoked = began - rng.u64(0..5);
                    history.push(Observed { life: 0, session: at, invoked, end, ops });
                }
            }
        }
    }
    let ops = (0..3).map(|key| list(key, values.get(&key).map_or(&[], |l| l))).collect();
    history.push(told(100_000, 100_001, ops));
    history
}

#[test]
fn the_graph_and_the_search_agree_on_snapshot_isolation() {
    let (mut sound, mut broken, mut skewed) = (0, 0, 0);
    for seed in 0..3000 {
        let mut rng = Rng::with_seed(seed);
        let transactions = rng.usize(1..5);
        let mut history = snapshot_history(&mut rng, transactions);
        let checked = check(&history, Order::Snapshots);
        assert!(checked.is_ok(), "{seed}: {checked:?}\n{history:?}");
        skewed += usize::from(check(&history, Order::Any).is_err());
        for _ in 0..rng.usize(0..5) {
            damage(&mut rng, &mut history);
        }
        let searched = has_order_of_snapshots(&history);
        let checked = check(&history, Order::Snapshots);
        assert_eq!(searched, checked.is_ok(), "{seed}: {checked:?}\n{history:?}");
        if searched { sound += 1 } else { broken += 1 }
    }
    assert!(sound > 500 && broken > 300 && skewed > 30, "{sound} {broken} {skewed}");
}

/// Under snapshot isolation there is write skew, which is found, and nothing else.
#[test]
fn snapshot_isolation_shows_write_skew_and_nothing_else() {
    let is_hekaton = |combination: &&Combination| combination.concurrency == Concurrency::Hekaton;
    let all: Vec<Combination> = Combination::all().iter().filter(is_hekaton).copied().collect();
    let mut skewed = 0;
    for seed in 0..3 * all.len() {
        let mut load = Load::random(5000 + seed as u64, all[seed % all.len()]);
        (load.isolation, load.keys) = (Isolation::Snapshot, load.keys.max(2));
        let history = run_load(&load).unwrap();
        check(&history, Order::Snapshots).unwrap_or_else(|found| panic!("{load:?}: {found:?}"));
        if let Err(anomaly) = check(&history, Order::Any) {
            assert!(anomaly.name.starts_with("G2"), "{load:?}: {anomaly:?}");
            skewed += 1;
        }
    }
    assert!(skewed > 0, "no write skew was found");
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
