//! Tests the history checker against two independent checkers: adya, which works as Elle does, and
//! the search of all serial orders.
#![allow(missing_docs)]

use adya::{History, Opts, Valid, Workload};
use fastrand::Rng;
use hyades_simulator::isolation::graph::check;
use hyades_simulator::isolation::search::has_serial_order;
use hyades_simulator::isolation::workload::{Load, run_load};
use hyades_simulator::isolation::{End, Observed, Op, Order};
use hyades_simulator::plan::Combination;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The list operations of a transaction. The results of reads are included if `known`.
fn list_ops(observed: &Observed, known: bool) -> Vec<Value> {
    let list_op = |op: &Op| match op {
        Op::Append { key, value } => Some(json!(["append", key, value])),
        Op::List { key, saw } if known => Some(json!(["r", key, saw])),
        Op::List { key, .. } => Some(json!(["r", key, null])),
        _ => None,
    };
    observed.ops.iter().filter_map(list_op).collect()
}

/// The list operations of a history in Jepsen's format. Each transaction is a process of its own,
/// so real time alone orders them.
fn in_the_form_of_jepsen(history: &[Observed]) -> String {
    // At the same time an invocation sorts before an answer: neither transaction precedes the
    // other.
    let mut events: Vec<((u64, u8), Value)> = Vec::new();
    for (process, observed) in history.iter().enumerate() {
        let (kind, at) = match observed.end {
            End::Acknowledged(at) => ("ok", at),
            End::Aborted(at) => ("fail", at),
            End::Unknown => ("info", u64::MAX),
        };
        let ops = list_ops(observed, false);
        if ops.is_empty() {
            continue;
        }
        let event = |kind, ops: Vec<Value>| json!({"type": kind, "process": process, "value": ops});
        events.push(((observed.invoked, 0), event("invoke", ops)));
        events.push(((at, 1), event(kind, list_ops(observed, kind == "ok"))));
    }
    events.sort_by_key(|(at, _)| *at);
    events.into_iter().map(|(_, event)| format!("{event}\n")).collect()
}

/// Strict serializability, or for less than that serializability.
fn adya_says(history: &[Observed], order: Order) -> adya::Report {
    let text = in_the_form_of_jepsen(history);
    let parsed = History::from_json(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let model = if order == Order::RealTime { "strict-serializable" } else { "serializable" };
    let opts = Opts { models: vec![model.into()], ..Opts::default() };
    adya::check(&parsed, Workload::ListAppend, &opts)
}

/// A serial history of lists with random overlaps, ended by a read of everything. A few results of
/// reads are falsified.
fn history(rng: &mut Rng) -> Vec<Observed> {
    let mut lists: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut history = Vec::new();
    let mut value = 100;
    for n in 0..rng.u64(2..7) {
        let mut own = lists.clone();
        let mut ops = Vec::new();
        for _ in 0..rng.usize(1..4) {
            let key = rng.u64(0..3);
            value += 1;
            ops.push(if rng.bool() {
                own.entry(key).or_default().push(value);
                Op::Append { key, value }
            } else {
                Op::List { key, saw: own.get(&key).cloned().unwrap_or_default() }
            });
        }
        // Only transactions without reads may abort or stay open: the checkers treat reads of such
        // transactions differently.
        let reads = ops.iter().any(|op| matches!(op, Op::List { .. }));
        let (began, told) = (n * 10 - rng.u64(0..25).min(n * 10), n * 10 + 5 + rng.u64(0..25));
        let end = match rng.u32(0..8) {
            0 if !reads => End::Aborted(told),
            1 if !reads => End::Unknown,
            _ => End::Acknowledged(told),
        };
        if !matches!(end, End::Aborted(_)) {
            lists = own;
        }
        history.push(Observed { life: 0, session: n as usize, invoked: began, end, ops });
    }
    for _ in 0..rng.usize(0..6) {
        let at = rng.usize(0..history.len());
        let at_op = rng.usize(0..history[at].ops.len());
        if let Op::List { saw, .. } = &mut history[at].ops[at_op] {
            saw.pop();
        }
    }
    let last_read = |key: u64| Op::List { key, saw: lists.get(&key).cloned().unwrap_or_default() };
    let ops = (0..3).map(last_read).collect();
    let end = End::Acknowledged(100_001);
    history.push(Observed { life: 0, session: 99, invoked: 100_000, end, ops });
    history
}

#[test]
fn three_checkers_agree_about_lists() {
    let (mut sound, mut broken) = (0, 0);
    for seed in 0..3000 {
        let history = history(&mut Rng::with_seed(seed));
        let ours = check(&history, Order::RealTime);
        assert_eq!(
            ours.is_ok(),
            has_serial_order(&history, Order::RealTime),
            "{seed}: {ours:?} {history:?}"
        );
        let theirs = adya_says(&history, Order::RealTime);
        match theirs.valid {
            Valid::True => assert!(ours.is_ok(), "{seed}: {ours:?} {history:?}"),
            Valid::False => {
                let text = in_the_form_of_jepsen(&history);
                assert!(ours.is_err(), "{seed}: {:?}\n{text}", theirs.anomaly_types);
            }
            // adya found no dependency: no appended value was read.
            Valid::Unknown => {}
        }
        if theirs.valid == Valid::False { broken += 1 } else { sound += 1 }
    }
    assert!(sound > 100 && broken > 100, "{sound} {broken}");
}

/// Promise: histories of the database over crashes are strictly serializable, or have the order
/// promised by their concurrency control. adya checks large histories, the search checks small
/// histories of every combination.
#[test]
fn others_find_the_promised_order_in_the_databases_histories_too() {
    let mut looked_at = 0;
    for (seed, combination) in Combination::all().iter().copied().enumerate() {
        let load = Load::random(1000 + seed as u64, combination);
        if seed % 3 == 0 {
            let report = adya_says(&run_load(&load).unwrap(), load.order());
            assert!(report.valid != Valid::False, "{load:?}: {:?}", report.anomalies);
            looked_at += usize::from(report.valid == Valid::True);
        }
        let small = Load { sessions: 2, transactions: 3, keys: 2, lives: 2, ..load };
        let history = run_load(&small).unwrap();
        assert!(has_serial_order(&history, small.order()), "{small:?}: {history:?}");
        check(&history, small.order()).unwrap_or_else(|anomaly| panic!("{small:?}: {anomaly:?}"));
    }
    assert!(looked_at > 8, "{looked_at}");
}
