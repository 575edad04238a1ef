//! Histories to be refused, and histories to be accepted.

use super::linearizable::{Call, Sequential, is_linearizable};
use super::objects::QueueOperation::{Length, Pop, Push, WaitAndPop};
use super::objects::RegisterOperation::{Get, Increment, Set, Swap};
use super::objects::SetOperation::{Add, Has, Members, Remove};
use super::objects::{Queue, Register, SmallSet};
use super::wire::Reply;

fn at<O>(invoked: u64, returned: u64, operation: O, reply: Reply) -> Call<O, Reply> {
    Call { invoked, returned: Some((returned, reply)), operation }
}

fn unknown<O>(invoked: u64, operation: O) -> Call<O, Reply> {
    Call { invoked, returned: None, operation }
}

fn int(n: i64) -> Reply {
    Reply::Integer(n)
}

fn text(text: &str) -> Reply {
    Reply::Text(text.into())
}

fn expect<S: Sequential<Reply = Reply>>(is_right: bool, calls: Vec<Call<S::Operation, Reply>>)
where
    S::Operation: Clone,
{
    assert_eq!(is_linearizable::<S>(&calls), is_right);
    // The order in the list does not count.
    let turned: Vec<_> = calls.iter().rev().cloned().collect();
    assert_eq!(is_linearizable::<S>(&turned), is_right);
}

#[test]
fn registers() {
    let ok = || text("OK");
    expect::<Register>(true, vec![at(0, 1, Set(1), ok()), at(2, 3, Get, text("1"))]);
    // A stale read, and a read of a value never written.
    expect::<Register>(false, vec![at(0, 1, Set(1), ok()), at(2, 3, Get, Reply::Null)]);
    expect::<Register>(false, vec![at(0, 1, Set(1), ok()), at(2, 3, Get, text("2"))]);
    // Concurrent reads may return either value, but not the older value after the newer.
    let write = || at(0, 9, Set(1), ok());
    expect::<Register>(true, vec![write(), at(1, 2, Get, Reply::Null), at(3, 4, Get, text("1"))]);
    expect::<Register>(false, vec![write(), at(1, 2, Get, text("1")), at(3, 4, Get, Reply::Null)]);
    // A lost update.
    expect::<Register>(false, vec![at(0, 9, Increment, int(1)), at(1, 8, Increment, int(1))]);
    expect::<Register>(true, vec![at(0, 9, Increment, int(2)), at(1, 8, Increment, int(1))]);
    expect::<Register>(false, vec![at(0, 1, Increment, int(2)), at(2, 3, Increment, int(1))]);
    let swaps = |other| vec![at(0, 9, Swap(1), Reply::Null), at(1, 8, Swap(2), other)];
    expect::<Register>(true, swaps(text("1")));
    expect::<Register>(false, swaps(Reply::Null));
}

#[test]
fn what_is_not_known_may_have_been_at_any_later_time_or_never() {
    let reads = |all: [Reply; 3]| {
        let reads = all.into_iter().enumerate();
        let mut calls: Vec<_> = reads
            .map(|(n, reply)| at(10 * n as u64 + 10, 10 * n as u64 + 11, Get, reply))
            .collect();
        calls.push(unknown(5, Set(1)));
        calls
    };
    let (one, none) = (|| text("1"), || Reply::Null);
    expect::<Register>(true, reads([none(), none(), none()]));
    expect::<Register>(true, reads([none(), one(), one()]));
    expect::<Register>(true, reads([one(), one(), one()]));
    // A value once read does not disappear, as if a crash had removed the value.
    expect::<Register>(false, reads([one(), none(), none()]));
    expect::<Register>(false, reads([none(), one(), none()]));
    // The value is not read before the request.
    expect::<Register>(false, vec![at(0, 1, Get, text("1")), unknown(5, Set(1))]);
    // The operation takes effect once.
    let twice = vec![
        unknown(0, Increment),
        at(1, 2, Get, text("1")),
        at(3, 4, Increment, int(2)),
        at(5, 6, Get, text("3")),
    ];
    expect::<Register>(false, twice);
}

#[test]
fn sets() {
    let add = || at(0, 1, Add(1), int(1));
    expect::<SmallSet>(true, vec![add(), at(2, 3, Has(1), int(1)), at(4, 5, Remove(1), int(1))]);
    expect::<SmallSet>(false, vec![add(), at(2, 3, Has(1), int(0))]);
    expect::<SmallSet>(false, vec![at(0, 9, Add(1), int(1)), at(1, 8, Add(1), int(1))]);
    let members = |all: &[&str]| Reply::Array(all.iter().map(|one| text(one)).collect());
    expect::<SmallSet>(true, vec![add(), at(2, 3, Members, members(&["1"]))]);
    expect::<SmallSet>(false, vec![add(), at(2, 3, Members, members(&[]))]);
    expect::<SmallSet>(false, vec![add(), at(2, 3, Members, members(&["1", "2"]))]);
}

#[test]
fn queues() {
    let push = || at(0, 1, Push(1), int(1));
    expect::<Queue>(true, vec![push(), at(2, 3, Pop, text("1")), at(4, 5, Pop, Reply::Null)]);
    // An element popped twice, lost, or out of its turn.
    expect::<Queue>(false, vec![push(), at(2, 9, Pop, text("1")), at(3, 8, WaitAndPop, text("1"))]);
    expect::<Queue>(false, vec![push(), at(2, 3, Length, int(0))]);
    expect::<Queue>(false, vec![push(), at(2, 3, Pop, Reply::Null)]);
    let two = |first: &str| vec![push(), at(2, 3, Push(2), int(2)), at(4, 5, Pop, text(first))];
    expect::<Queue>(true, two("1"));
    expect::<Queue>(false, two("2"));
    // A waiting pop returns the element only once present.
    let waits = |returned| vec![at(0, returned, WaitAndPop, text("1")), at(2, 3, Push(1), int(1))];
    expect::<Queue>(true, waits(4));
    expect::<Queue>(false, waits(1));
    // A kill at a pop: the element may be gone, and then stays gone.
    let killed = |then: Reply| vec![push(), unknown(2, Pop), at(5, 6, Pop, then)];
    expect::<Queue>(true, killed(text("1")));
    expect::<Queue>(true, killed(Reply::Null));
    expect::<Queue>(false, killed(text("2")));
}
