//! Mutation tests: a session's order, broken on purpose, is noticed under each protocol that does
//! not have it by itself.

use crate::common::broken::{self, BrokenRule};
use crate::common::following::{Case, Order, survived};
use hyades::{Concurrency, Protocol, RecordKind};
use hyades_platform::mutation::Mutation;

#[test]
fn a_broken_order_is_noticed() {
    let _alone = broken::alone();
    let arrival = (Protocol::Arrival, Concurrency::Partitioned, RecordKind::Command);
    let data = |protocol| (protocol, Concurrency::Silo, RecordKind::Data);
    for (protocol, concurrency, record) in [
        data(Protocol::Taurus),
        data(Protocol::Taurus2016),
        data(Protocol::Poplar),
        data(Protocol::Plover),
        data(Protocol::Gsn),
        arrival,
    ] {
        for order in [Order::Client, Order::Session] {
            let case = Case { protocol, concurrency, record, order, asynchronous: false };
            let holds = || survived(case).is_prefix();
            assert!(holds(), "{case:?}");
            let rules: [BrokenRule<'_>; 1] = [(Mutation::ForgetSessionOrder, &holds)];
            eprintln!("{case:?}");
            broken::each_is_noticed(&rules);
        }
    }
}
