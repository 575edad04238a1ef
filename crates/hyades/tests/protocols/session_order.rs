//! Promise: after a crash a session that keeps an order, or an order that sessions take in turn,
//! has a prefix of its transactions, with all that they had read, under every protocol.

use crate::common::directory;
use crate::common::following::{Case, Order, survived};
use hyades::{Concurrency, Database, Protocol, RecordKind, SessionOrder};
use hyades_schemes::{
    ARRIVAL, GSN, PARTITIONED, PLOVER, POPLAR, SILO_R, TAURUS_2016, TICTOC, TIMESTAMP_ORDER,
};

/// Protocols with several streams.
const PARALLEL: [Protocol; 6] = [Protocol::Taurus, TAURUS_2016, POPLAR, SILO_R, PLOVER, GSN];

/// Protocols in which independent transactions survive in any order.
const UNORDERED: [Protocol; 5] = [Protocol::Taurus, TAURUS_2016, POPLAR, PLOVER, GSN];

const ORDERS: [Order; 3] = [Order::Client, Order::Read, Order::Session];

fn case(protocol: Protocol, order: Order) -> Case {
    let (concurrency, record) = (Concurrency::Silo, RecordKind::Data);
    Case { protocol, concurrency, record, order, asynchronous: false }
}

/// Without an order the second transaction survives alone; with an order not.
#[test]
fn a_crash_leaves_a_prefix_of_an_order() {
    for protocol in UNORDERED {
        let found = survived(case(protocol, Order::None));
        assert!(!found.is_prefix(), "{protocol:?}: {found:?} is no hole");
    }
    for protocol in PARALLEL {
        for order in ORDERS {
            let found = survived(case(protocol, order));
            assert!(found.is_prefix(), "{protocol:?} {order:?}: {found:?}");
        }
    }
}

#[test]
fn commands_and_other_concurrency_controls_keep_the_order() {
    let full_case = |concurrency, protocol, record, order| Case {
        concurrency,
        record,
        ..case(protocol, order)
    };
    use Concurrency::{Hekaton, NoWait, Silo};
    use RecordKind::{Adaptive, Command, Data};
    for order in ORDERS {
        for (concurrency, protocol, record) in [
            (Silo, Protocol::Taurus, Command),
            (NoWait, Protocol::Taurus, Adaptive),
            (NoWait, TAURUS_2016, Command),
            (TICTOC, Protocol::Taurus, Data),
            (TICTOC, SILO_R, Data),
            (Hekaton, Protocol::Taurus, Command),
            (TIMESTAMP_ORDER, Protocol::Taurus, Command),
            (PARTITIONED, Protocol::Taurus, Command),
            (PARTITIONED, ARRIVAL, Command),
        ] {
            let case = full_case(concurrency, protocol, record, order);
            let found = survived(case);
            assert!(found.is_prefix(), "{case:?}: {found:?}");
        }
    }
}

#[test]
fn tickets_that_tell_nothing_keep_the_order() {
    for protocol in PARALLEL {
        for order in ORDERS {
            let found = survived(Case { asynchronous: true, ..case(protocol, order) });
            assert!(found.is_prefix(), "{protocol:?} {order:?}: {found:?}");
        }
    }
}

#[test]
fn an_order_is_of_one_database() {
    let (one, other) = (directory(), directory());
    let open = |dir: &tempfile::TempDir| Database::builder().open(dir.path()).unwrap();
    let (one, other) = (open(&one), open(&other));
    let mut order = SessionOrder::default();
    drop(one.session().unwrap().in_order(&mut order));
    drop(one.session().unwrap().in_order(&mut order));
    let mut session = other.session().unwrap();
    let mut mixed = || drop(session.in_order(&mut order));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut mixed));
    assert!(caught.is_err(), "its positions are those of another log");
}
