//! Tests of the table of keys, without a server.

use super::*;
use crate::clients::Calls;
use std::task::Waker;

fn client(id: u64) -> Arc<ClientEntry> {
    let addresses = (String::new(), String::new());
    Arc::new(ClientEntry::new(id, addresses, 0, Calls::new(Waker::noop().clone())))
}

fn tracking(most: usize) -> Arc<Tracking> {
    Tracking::new(Arc::default(), Arc::new(AtomicUsize::new(most)))
}

/// The messages to a client, in words.
fn told(client: &ClientEntry) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(delivery) = client.inbox.take() {
        let Delivery::Invalidation(what, in_place) = delivery else {
            panic!("nothing else is sent")
        };
        let mut out = Vec::new();
        what.write(&mut Reply::new(&mut out, true));
        let text = String::from_utf8(out).unwrap().replace("\r\n", " ");
        all.push(format!("{text}{}", if in_place { "in place" } else { "" }));
    }
    all
}

fn keys(keys: &[&str]) -> Changed {
    Changed::Keys(keys.iter().map(|key| key.as_bytes().to_vec()).collect())
}

#[test]
fn readers_are_told_once() {
    let tracking = tracking(0);
    let (a, b) = (client(1), client(2));
    assert!(!tracking.is_on());
    let own = [tracking.start(&a), tracking.start(&b)];
    tracking.remember(&a, b"k");
    tracking.remember(&b, b"k");
    tracking.remember(&b, b"k");
    assert_eq!(tracking.numbers(), [1, 2, 0]);
    tracking.tell(keys(&["x", "k"]), 0);
    tracking.tell(keys(&["k"]), 0);
    let message = ">2 $10 invalidate *1 $1 k ";
    assert_eq!((told(&a), told(&b)), (vec![message.to_string()], vec![message.to_string()]));
    assert_eq!(tracking.numbers(), [0, 0, 0]);
    tracking.tell(Changed::All, 0);
    assert_eq!(told(&a), [">2 $10 invalidate _ "]);
    drop(own);
    assert!(!tracking.is_on() && !a.tracking.is_on());
}

/// However many keys are read, no more are remembered than the bound allows: the readers of the
/// rest are told.
#[test]
fn the_table_is_bounded() {
    let tracking = tracking(100);
    let a = client(1);
    let _own = tracking.start(&a);
    (0..1_000).for_each(|key: u32| tracking.remember(&a, key.to_string().as_bytes()));
    assert_eq!((tracking.numbers(), told(&a).len()), ([100, 100, 0], 900));
    tracking.most_keys.store(7, Ordering::Relaxed);
    tracking.shrink();
    assert_eq!((tracking.numbers(), told(&a).len()), ([7, 7, 0], 93));
}

/// Clients that connect, read a key and go leave no more entries behind than there are clients.
#[test]
fn clients_that_have_gone_leave_the_lists() {
    let tracking = tracking(0);
    let stays = client(0);
    let _own = tracking.start(&stays);
    tracking.remember(&stays, b"k");
    for id in 1..1_000 {
        let goes = client(id);
        let _own = tracking.start(&goes);
        tracking.remember(&goes, b"k");
    }
    let [keys, items, _] = tracking.numbers();
    assert!(keys == 1 && items <= 2, "{items}");
    assert!(tracking.remembers(&stays, b"k"));
}

/// A client that is not told of its own writes stays remembered for its later reads.
#[test]
fn own_writes_are_not_told() {
    let tracking = tracking(0);
    let (a, b) = (client(1), client(2));
    let (mut own, _other) = (tracking.start(&a), tracking.start(&b));
    own.set(TrackingOptions { flags: TrackingState::NOLOOP, ..TrackingOptions::default() });
    tracking.remember(&a, b"k");
    tracking.remember(&b, b"k");
    tracking.tell(keys(&["k"]), 1);
    assert_eq!((told(&a).len(), told(&b).len(), tracking.numbers()), (0, 1, [1, 1, 0]));
    tracking.tell(keys(&["k"]), 2);
    assert_eq!((told(&a).len(), told(&b).len(), tracking.numbers()), (1, 0, [0, 0, 0]));
}

#[test]
fn keys_with_a_prefix_are_told_together() {
    let tracking = tracking(0);
    let (a, b) = (client(1), client(2));
    let (mut own, mut other) = (tracking.start(&a), tracking.start(&b));
    let with = |prefixes: &[&str], flags| TrackingOptions {
        redirect: None,
        prefixes: Some(prefixes.iter().map(|prefix| prefix.as_bytes().to_vec()).collect()),
        flags,
    };
    own.set(with(&["a", "b"], 0));
    other.set(with(&[""], TrackingState::NOLOOP));
    assert_eq!(tracking.numbers(), [0, 0, 3]);
    tracking.tell(keys(&["a1", "a2", "c"]), 2);
    assert_eq!(told(&a), [">2 $10 invalidate *2 $2 a1 $2 a2 "]);
    assert!(told(&b).is_empty());
    own.set(with(&["c"], 0));
    tracking.tell(keys(&["b1", "c"]), 1);
    assert_eq!((told(&a).len(), told(&b)), (2, vec![">2 $10 invalidate *2 $2 b1 $1 c ".into()]));
    drop((own, other));
    assert_eq!(tracking.numbers(), [0, 0, 0]);
}

#[test]
fn a_connection_that_is_told_in_place_may_go() {
    let tracking = tracking(0);
    let (a, b) = (client(1), client(2));
    let mut own = tracking.start(&a);
    own.set(TrackingOptions { redirect: Some(b.clone()), ..TrackingOptions::default() });
    tracking.remember(&a, b"k");
    tracking.tell(keys(&["k"]), 0);
    assert_eq!((told(&a).len(), told(&b)), (0, vec![">2 $10 invalidate *1 $1 k in place".into()]));
    drop(b);
    tracking.remember(&a, b"k");
    tracking.tell(keys(&["k"]), 0);
    assert_eq!(told(&a), [">2 $21 tracking-redir-broken :2 "]);
    assert!(a.tracking.has(TrackingState::BROKEN));
}
