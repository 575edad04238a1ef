//! Mutation tests: a session's order, broken on purpose, is noticed under each protocol that does
//! not have it by itself.

use crate::common::broken::{self, BrokenRule};
use crate::common::following::{Case, Order, survived};
use hyades::{Concurrency, Protocol, RecordKind};
use hyades_platform::mutation::Mutation;
use hyades_schemes::{ARRIVAL, GSN, PARTITIONED, PLOVER, POPLAR, TAURUS_2016};

#[test]
fn a_broken_order_is_noticed() {
    let _alone = broken::alone();
    let arrival = (ARRIVAL, PARTITIONED, RecordKind::Command);
    let data = |protocol| (protocol, Concurrency::Silo, RecordKind::Data);
    for (protocol, concurrency, record) in
        [data(Protocol::Taurus), data(TAURUS_2016), data(POPLAR), data(PLOVER), data(GSN), arrival]
    {
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
