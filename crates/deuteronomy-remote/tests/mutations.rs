//! The rules of the crate's documentation, each broken on purpose, are noticed.
#![allow(missing_docs)]

mod common;

use common::relay::{APPLY, CHECKPOINT, Relay};
use common::{Far, connect, point};
use hyades_deuteronomy::{DataComponent, Error, Operation};
use hyades_platform::mutation::{self, Mutation};
use std::thread::{ScopedJoinHandle, scope, sleep};
use std::time::Duration;

fn put(client: &dyn DataComponent, key: &[u8], ts: u64) -> Result<(), Error> {
    client.apply(&[Operation { key, ts, value: Some(b"value") }])
}

fn restart(far: &Far) {
    far.kill();
    far.revive();
}

/// Gives a thread time to end, which it should not.
fn give_time<T>(thread: &ScopedJoinHandle<'_, T>) {
    (0..100).take_while(|_| !thread.is_finished()).for_each(|_| sleep(Duration::from_millis(3)));
}

/// R1: a connection goes on with another boot, which lacks an operation.
fn asks_another_boot() -> bool {
    let far = Far::start();
    let client = far.connect();
    put(&client, b"a", 1).unwrap();
    restart(&far);
    !client.get(b"a").is_ok_and(|found| found.ts == 1)
}

/// R1: a reader is answered by a boot that is given the first of two operations.
fn asks_before_all_is_returned() -> bool {
    let far = Far::start();
    let client = far.connect();
    put(&client, b"a", 1).unwrap();
    put(&client, b"b", 2).unwrap();
    restart(&far);
    far.gate.close();
    scope(|scope| {
        let returning = scope.spawn(|| client.get(b"a"));
        far.gate.until_reached();
        let reading = scope.spawn(|| client.get(b"b"));
        give_time(&reading);
        far.gate.open();
        returning.join().unwrap().unwrap();
        reading.join().unwrap().unwrap().ts != 2
    })
}

/// R2: a boot applies an operation and ends, and another thread brings the next boot up to date,
/// before the operation's own thread has the answer.
fn loses_what_was_applied_unkept() -> bool {
    let far = Far::start();
    let relay = Relay::start(far.address);
    let client = connect(relay.address);
    relay.hold(APPLY);
    scope(|scope| {
        let applying = scope.spawn(|| put(&client, b"a", 1));
        relay.until_held();
        restart(&far);
        client.get(b"b").unwrap();
        relay.release();
        applying.join().unwrap().unwrap();
    });
    client.get(b"a").unwrap().ts != 1
}

/// R2: an operation is applied while a checkpoint without it is under way.
fn loses_what_came_during_a_checkpoint() -> bool {
    let far = Far::start();
    let relay = Relay::start(far.address);
    let client = connect(relay.address);
    put(&client, b"a", 1).unwrap();
    relay.hold(CHECKPOINT);
    scope(|scope| {
        let checkpoint = scope.spawn(|| client.checkpoint(&point(1)));
        relay.until_held();
        put(&client, b"b", 2).unwrap();
        relay.release();
        checkpoint.join().unwrap().unwrap();
    });
    restart(&far);
    client.get(b"b").unwrap().ts != 2
}

/// R2: the server ends just before a checkpoint, whose point covers what was lost.
fn loses_what_a_checkpoint_lacks() -> bool {
    let far = Far::start();
    let client = far.connect();
    put(&client, b"a", 1).unwrap();
    restart(&far);
    client.checkpoint(&point(1)).unwrap();
    client.get(b"a").unwrap().ts != 1
}

/// R3: two clients are served.
fn serves_two() -> bool {
    let far = Far::start();
    let old = far.connect();
    put(&old, b"a", 1).unwrap();
    let new = far.connect();
    let is_served = put(&old, b"a", 2).is_ok() || old.get(b"a").is_ok();
    is_served || new.get(b"a").unwrap().ts != 1
}

/// R3: the data change under a client by a request of the client before.
fn changes_under_the_next_client() -> bool {
    let far = Far::start();
    let old = far.connect();
    far.gate.close();
    scope(|scope| {
        let applying = scope.spawn(|| put(&old, b"a", 1));
        far.gate.until_reached();
        let joining = scope.spawn(|| {
            let new = far.connect();
            let found = new.get(b"a").unwrap();
            (new, found)
        });
        give_time(&joining);
        far.gate.open();
        let ((new, found), _) = (joining.join().unwrap(), applying.join().unwrap());
        new.get(b"a").unwrap() != found
    })
}

/// R3: a client returns to a boot where another client has the place.
fn returns_beside_the_next_client() -> bool {
    let far = Far::start();
    let old = far.connect();
    put(&old, b"a", 1).unwrap();
    restart(&far);
    let new = far.connect();
    put(&old, b"a", 2).is_ok() || put(&new, b"a", 3).is_err()
}

/// R3: a client returns to the data of a later incarnation, which no client is there to tell.
fn returns_to_a_later_incarnation() -> bool {
    let far = Far::start();
    let old = far.connect();
    old.checkpoint(&point(1)).unwrap();
    let new = far.connect();
    new.checkpoint(&point(2)).unwrap();
    restart(&far);
    put(&old, b"a", 1).is_ok()
}

/// R3: a client is refused for a point of its own, whose answer it has not received.
fn is_refused_for_its_own_point() -> bool {
    let far = Far::start();
    let relay = Relay::start(far.address);
    let client = connect(relay.address);
    client.checkpoint(&point(1)).unwrap();
    relay.hold(CHECKPOINT);
    scope(|scope| {
        let checkpoint = scope.spawn(|| client.checkpoint(&point(2)));
        relay.until_held();
        restart(&far);
        relay.lose();
        checkpoint.join().unwrap().is_err()
    })
}

const RULES: [(Mutation, fn() -> bool); 10] = [
    (Mutation::AttachToAnyBoot, asks_another_boot),
    (Mutation::AskBeforeReturned, asks_before_all_is_returned),
    (Mutation::KeepOnceApplied, loses_what_was_applied_unkept),
    (Mutation::ForgetAppliedSince, loses_what_came_during_a_checkpoint),
    (Mutation::ForgetUnstable, loses_what_a_checkpoint_lacks),
    (Mutation::ServeDisplaced, serves_two),
    (Mutation::JoinAmidRequest, changes_under_the_next_client),
    (Mutation::ReturnToTakenPlace, returns_beside_the_next_client),
    (Mutation::ReturnToLaterPoint, returns_to_a_later_incarnation),
    (Mutation::RaiseIncarnationLate, is_refused_for_its_own_point),
];

#[test]
fn each_broken_rule_is_noticed() {
    let all = Mutation::ALL.iter().copied().filter(|rule| rule.is_of_remote_data());
    assert!(all.eq(RULES.map(|(rule, _)| rule)), "each rule has a test");
    for (rule, is_wrong) in RULES {
        assert!(!is_wrong(), "{}: wrong with all rules kept", rule.name());
        mutation::set(Some(rule));
        let is_noticed = is_wrong();
        mutation::set(None);
        assert!(is_noticed, "{}: goes unnoticed", rule.name());
    }
}
