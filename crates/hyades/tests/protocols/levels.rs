//! Promise: each protocol with several streams allows exactly the acknowledgement orders of its
//! level: recoverable, rigorous or sequential (docs/protocols/levels.md).

use crate::common::by_hand::*;
use hyades::{Abort, Protocol, Transaction};
use hyades_schemes::{GSN, POPLAR, SILO_R, TAURUS_2016};

/// Whether a durable transaction in stream 1 is acknowledged while stream 0 is not durable. Stream
/// 0 holds a transaction that wrote x, and a transaction that read x and wrote y.
fn overtakes(protocol: Protocol, later: fn(&Transaction<'_>) -> Result<(), Abort>) -> bool {
    let [one, other] = BOTH.map(|concurrency| {
        let mut world = SteppedDb::new(protocol, concurrency, 2);
        world.t1(0);
        world.db.log().unwrap().flush().unwrap();
        world.t2(0);
        let later = world.run(1, later);
        // Several rounds: a requested watermark is stated at the next flush of its stream.
        (0..5).any(|_| world.answered(later, &[1]))
    });
    assert_eq!(one, other, "it does not depend on the concurrency control");
    one
}

#[test]
fn each_protocol_allows_the_orders_of_its_level() {
    let read_it: fn(&Transaction<'_>) -> Result<(), Abort> =
        |tx| read(tx, Y).and_then(|y| put(tx, 60, y));
    let [overwrites, overwrites_read, unrelated] = [
        (|tx| put(tx, Y, 3)) as fn(&Transaction<'_>) -> Result<(), Abort>,
        |tx| put(tx, X, 4),
        |tx| put(tx, 60, 6),
    ];
    let unrelated_reader: fn(&Transaction<'_>) -> Result<(), Abort> =
        |tx| read(tx, 61).and_then(|n| put(tx, 60, n));
    let all = [read_it, overwrites, overwrites_read, unrelated, unrelated_reader];
    let levels = [
        (POPLAR, [false, true, true, true, false]),
        (Protocol::Taurus, [false, false, true, true, true]),
        (TAURUS_2016, [false, true, true, true, true]),
        (GSN, [false; 5]),
        (SILO_R, [false; 5]),
    ];
    for (protocol, expected) in levels {
        assert_eq!(all.map(|later| overtakes(protocol, later)), expected, "{protocol:?}");
    }
}
