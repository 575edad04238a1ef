//! The states that a crash may leave, and the states that a crash may not leave.

use super::super::commands::{Circumstances, apply};
use super::super::model::CollectionKind;
use super::super::model::streams::{EntryId, GroupPending, RecoveredStream};
use super::*;

const AT: Circumstances = Circumstances { database: 0, now_ms: 1_000 };

/// Runs transactions, each of another client, of commands in words; clients are told of
/// transactions that end with "!".
fn model(transactions: &[&[&str]]) -> Model {
    of_clients(transactions, |at| at)
}

/// Runs transactions of the clients that `client` names.
fn of_clients(transactions: &[&[&str]], client: impl Fn(usize) -> usize) -> Model {
    let mut model = Model::new(&vec![BTreeMap::new(); 2]);
    for (at, commands) in transactions.iter().enumerate() {
        let text = commands.join("; ");
        for command in *commands {
            let words = command.trim_end_matches('!').split(' ').map(str::to_string);
            apply(&mut model, AT, &words.collect::<Vec<_>>());
        }
        let number = model.end(client(at), 0, text.clone());
        if text.ends_with('!') {
            model.tell(number);
        }
    }
    model
}

fn text(key: &str, value: &str) -> (String, (Recovered, Option<i64>)) {
    (key.into(), (Recovered::Text(value.into()), None))
}

fn wrong(
    model: &Model,
    keys: impl IntoIterator<Item = (String, (Recovered, Option<i64>))>,
) -> Option<Wrong> {
    let state = vec![keys.into_iter().collect(), BTreeMap::new()];
    judge(model, &state, 2_000, &HashSet::new()).err().map(|(wrong, _)| wrong)
}

#[test]
fn what_a_crash_may_leave_is_accepted_and_nothing_else() {
    let plain = model(&[&["SET a 1"], &["SET b 1"], &["SET a 2"]]);
    let values = [None, Some("1"), Some("2"), Some("3")];
    for (at, a) in values.into_iter().enumerate() {
        for b in [None, Some("1")] {
            let keys = [a.map(|a| text("a", a)), b.map(|b| text("b", b))];
            let found = wrong(&plain, keys.into_iter().flatten());
            assert_eq!(found, (at == 3).then_some(Wrong::Diverged), "{a:?} {b:?}");
        }
    }
    let told = model(&[&["SET a 1"], &["SET b 1!"], &["SET a 2"]]);
    assert_eq!(wrong(&told, []), Some(Wrong::Lost));
    assert_eq!(wrong(&told, [text("b", "1")]), None);
    // A read tells of the version read.
    let read = model(&[&["SET a 1"], &["GET a!"], &["DEL a"], &["SET a 3"]]);
    assert_eq!(wrong(&read, [text("a", "1")]), None);
    assert_eq!(wrong(&read, [text("a", "3")]), None);
    // Possibly DEL survived.
    assert_eq!(wrong(&read, []), None);
    let absent = model(&[&["SET a 1!"], &["DEL a"], &["EXISTS a!"]]);
    assert_eq!(wrong(&absent, [text("a", "1")]), Some(Wrong::Lost));
}

#[test]
fn transactions_are_whole_and_follow_what_they_have_read() {
    let both = model(&[&["SET a 1", "SET b 1"], &["SET b 2"]]);
    assert_eq!(wrong(&both, [text("a", "1")]), Some(Wrong::Partial));
    assert_eq!(wrong(&both, [text("b", "2")]), Some(Wrong::Partial));
    assert_eq!(wrong(&both, [text("a", "1"), text("b", "2")]), None);
    assert_eq!(wrong(&both, []), None);
    let copied = model(&[&["SET a 1"], &["GET a", "SET b 1"]]);
    assert_eq!(wrong(&copied, [text("b", "1")]), Some(Wrong::Diverged));
    assert_eq!(wrong(&copied, [text("a", "1"), text("b", "1")]), None);
    // A client was told of a transaction that depends on an untold transaction.
    let depends = model(&[&["SET a 1"], &["GET a", "SET b 1!"]]);
    assert_eq!(wrong(&depends, [text("a", "1")]), Some(Wrong::Lost));
    assert_eq!(wrong(&depends, []), Some(Wrong::Lost));
}

fn hash(pairs: &[(&str, &str)]) -> (String, (Recovered, Option<i64>)) {
    let members = pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
    ("h".into(), (Recovered::Collection(CollectionKind::Hash, members), None))
}

#[test]
fn members_are_lost_one_by_one_and_generations_at_once() {
    let one = model(&[&["HSET h a 1"], &["HSET h b 2"], &["HSET h c 3"]]);
    assert_eq!(wrong(&one, [hash(&[("a", "1"), ("c", "3")])]), None);
    // The hash was created with `a`.
    assert_eq!(wrong(&one, [hash(&[("c", "3")])]), Some(Wrong::Partial));
    let again = model(&[&["HSET h a 1"], &["HSET h b 2"], &["DEL h"], &["HSET h a 3!"]]);
    assert_eq!(wrong(&again, [hash(&[("a", "3")])]), None);
    assert_eq!(wrong(&again, [hash(&[("a", "3"), ("b", "2")])]), Some(Wrong::Diverged));
    assert_eq!(wrong(&again, [hash(&[("a", "1")])]), Some(Wrong::Lost));
    let flushed = model(&[&["SET a 1"], &["FLUSHDB"], &["SET b 1"]]);
    assert_eq!(wrong(&flushed, [text("a", "1"), text("b", "1")]), Some(Wrong::Diverged));
    for keys in [vec![], vec![text("a", "1")], vec![text("b", "1")]] {
        assert_eq!(wrong(&flushed, keys), None);
    }
}

#[test]
fn what_has_expired_is_gone_and_what_was_lost_does_not_come_back() {
    let expiring = model(&[&["SET a 1 PXAT 1500"], &["SET b 1 PXAT 2500"]]);
    assert_eq!(wrong(&expiring, []), None);
    let until = |key: &str, at| {
        let (key, (value, _)) = text(key, "1");
        (key, (value, Some(at)))
    };
    assert_eq!(wrong(&expiring, [until("b", 2_500)]), None);
    assert_eq!(wrong(&expiring, [until("b", 2_501)]), Some(Wrong::Diverged));
    assert_eq!(wrong(&expiring, [until("a", 1_500)]), None);
    let before = model(&[&["SET a 1"]]);
    let gone = judge(&before, &vec![BTreeMap::new(); 2], 0, &HashSet::new()).unwrap();
    let lost: HashSet<String> = lost(&before, &gone).into_iter().collect();
    let state = vec![BTreeMap::from([text("a", "1")]), BTreeMap::new()];
    let after = model(&[&["SET a 2"]]);
    let found = judge(&after, &state, 0, &lost).err().map(|(wrong, _)| wrong);
    assert_eq!(found, Some(Wrong::Resurrected));
}
#[test]
fn what_survives_of_a_client_is_a_prefix() {
    let one = |transactions: &[&[&str]]| of_clients(transactions, |_| 0);
    let data = one(&[&["SET data 1"], &["SET pointer 1"], &["SET last 1"]]);
    let (first, second, third) = (text("data", "1"), text("pointer", "1"), text("last", "1"));
    assert_eq!(wrong(&data, []), None);
    assert_eq!(wrong(&data, [first.clone()]), None);
    assert_eq!(wrong(&data, [first.clone(), second.clone()]), None);
    assert_eq!(wrong(&data, [second.clone()]), Some(Wrong::OutOfOrder));
    assert_eq!(wrong(&data, [first.clone(), third.clone()]), Some(Wrong::OutOfOrder));
    assert_eq!(wrong(&data, [first, second, third]), None);
    // A version read before, of another client, is in the prefix.
    let of_two = |at: usize| usize::from(at > 0);
    let read = of_clients(&[&["SET a 1"], &["GET a"], &["SET b 1"]], of_two);
    assert_eq!(wrong(&read, [text("b", "1")]), Some(Wrong::OutOfOrder));
    assert_eq!(wrong(&read, [text("a", "1"), text("b", "1")]), None);
    // Clients have no order among each other.
    let others = of_clients(&[&["SET a 1"], &["SET b 1"]], of_two);
    assert_eq!(wrong(&others, [text("b", "1")]), None);
}

/// Groups by name: the last id of each, and the pending entries with their consumers.
type Groups<'a> = &'a [(&'a str, u64, &'a [(u64, &'a str)])];

/// A recovered stream of entries and groups.
fn stream(entries: &[u64], groups: Groups<'_>) -> (Recovered, Option<i64>) {
    let id = |ms: u64| EntryId { ms, seq: 1 };
    let mut found = RecoveredStream::default();
    for ms in entries {
        found.log.entries.insert(id(*ms), vec!["f".to_string(), "v".to_string()]);
        found.log.last = id(*ms);
        found.log.added += 1;
    }
    for (name, last, pending) in groups {
        let mut own = GroupPending::default();
        own.consumers.insert("c".to_string());
        for (ms, consumer) in *pending {
            own.entries.insert(id(*ms), (consumer.to_string(), 1));
        }
        let last = if *last == 0 { EntryId::default() } else { id(*last) };
        found.groups.insert(name.to_string(), (last, own));
    }
    (Recovered::Stream(found), None)
}

#[test]
fn entries_groups_and_what_is_pending_are_judged_one_by_one() {
    let read = "XREADGROUP GROUP g c COUNT 9 STREAMS x >";
    let all = model(&[
        &["XADD x 1-1 f v"],
        &["XGROUP CREATE x g 0"],
        &[read],
        &["XADD x 2-1 f v"],
        &["XACK x g 1-1!"],
    ]);
    let is = |found: (Recovered, Option<i64>)| wrong(&all, [("x".to_string(), found)]);
    // An acknowledged entry is not pending, whether a later entry is there or not.
    assert_eq!(is(stream(&[1], &[("g", 1, &[])])), None);
    assert_eq!(is(stream(&[1, 2], &[("g", 1, &[])])), None);
    assert_eq!(is(stream(&[1, 2], &[("g", 1, &[(1, "c")])])), Some(Wrong::Lost));
    assert_eq!(is(stream(&[1, 2], &[])), Some(Wrong::Lost));
    // A part of XREADGROUP, and states that never were.
    assert_eq!(is(stream(&[1, 2], &[("g", 0, &[(1, "c")])])), Some(Wrong::Partial));
    assert_eq!(is(stream(&[1, 3], &[("g", 1, &[])])), Some(Wrong::Diverged));
    assert_eq!(is(stream(&[1], &[("h", 1, &[])])), Some(Wrong::Diverged));
    // Another group of the same name has its own pending entries.
    let again = model(&[
        &["XADD x 1-1 f v", "XGROUP CREATE x g 0", read],
        &["XGROUP DESTROY x g"],
        &["XGROUP CREATE x g 0", read, "XACK x g 1-1"],
    ]);
    let is = |found: (Recovered, Option<i64>)| wrong(&again, [("x".to_string(), found)]);
    assert_eq!(is(stream(&[1], &[("g", 1, &[(1, "c")])])), None);
    assert_eq!(is(stream(&[1], &[])), None);
    assert_eq!(is(stream(&[1], &[("g", 1, &[])])), None);
    assert_eq!(is(stream(&[1], &[("g", 0, &[])])), Some(Wrong::Diverged));
}
