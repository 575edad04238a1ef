//! Changes of the schema at opening. Promise: each row is kept, with the value of each new column;
//! a refused change changes nothing on disk.
#![allow(missing_docs)]

mod common;
use common::evolving::{
    Owned, Tables, With, copy, index, nullable, open, rows, run, try_open, with_default,
};
use common::{Combination, combinations, directory, power_cut};
use hyades::{Replay, Type};
use std::time::Duration;

/// A change of the tables, and the words for it.
type Change = (fn(&mut Tables), &'static [&'static str]);

/// One change of each kind.
const CHANGES: &[Change] = &[
    (
        |tables| tables.table("accounts").columns.insert(0, nullable("note", Type::Text)),
        &[r#"added column "note" to table "accounts""#],
    ),
    (
        |tables| {
            let level = with_default("level", Type::I64, Owned::Int(7));
            tables.table("accounts").columns.insert(2, level);
            let why = with_default("why", Type::Text, Owned::Text("it was so".into()));
            tables.table("events").columns.insert(0, why);
            tables.table("old").columns.push(nullable("note", Type::I64));
        },
        &[
            r#"added column "level" to table "accounts""#,
            r#"added column "why" to table "events""#,
            r#"added column "note" to table "old""#,
        ],
    ),
    (
        |tables| {
            let old = &mut tables.table("accounts").indexes;
            old.remove(0);
            old.push(index("by_memo", &["memo"], false));
        },
        &[
            r#"dropped unique index "by_owner" of table "accounts""#,
            r#"added index "by_memo" to table "accounts""#,
        ],
    ),
    (
        |tables| {
            let accounts = tables.table("accounts");
            accounts.indexes.remove(1);
            accounts.indexes.push(index("unique", &["owner", "id"], true));
            accounts.columns.swap(1, 3);
        },
        &[
            r#"reordered the columns of table "accounts""#,
            r#"dropped index "by_balance" of table "accounts""#,
            r#"added unique index "unique" to table "accounts""#,
        ],
    ),
];

/// Promise: a log that a crash left behind is the same under the old declaration and the new one,
/// but for the change.
#[test]
fn each_change_keeps_what_a_crash_left() {
    for (seed, c) in combinations().into_iter().enumerate() {
        for (n, (change, words)) in CHANGES.iter().enumerate() {
            // All changes in some combinations, one change in each.
            if n == seed % CHANGES.len() || c.streams == 3 {
                crash_and_change(c, seed as u64, *change, words);
            }
        }
    }
}

/// Crashes while two threads write, with a checkpoint before that or without.
fn crash_and_change(c: Combination, seed: u64, change: fn(&mut Tables), words: &[&str]) {
    let (dir, twin) = (directory(), directory());
    let before = Tables::first();
    let device = power_cut(seed);
    let with = With { device: Some(device.clone()), ..With::default() };
    let (db, watched) = try_open(dir.path(), &before, c, &with).unwrap();
    run(&db, &before, &mut fastrand::Rng::with_seed(seed), 40);
    if seed.is_multiple_of(2) {
        db.checkpoint().unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (db, before) = (&db, &before);
            let mut rng = fastrand::Rng::with_seed(seed * 2 + thread);
            scope.spawn(move || run(db, before, &mut rng, 100_000));
        }
        std::thread::sleep(Duration::from_millis(4 + seed % 10));
        device.cut();
    });
    drop((db, watched));
    copy(dir.path(), twin.path());

    let mut after = before.clone();
    change(&mut after);
    let (db, _watched) = open(twin.path(), &before, c);
    let wanted = after.convert(&rows(&db, &before));
    assert!(!wanted["accounts"].is_empty() && !wanted["events"].is_empty());
    let replay = [Replay::Wavefront, Replay::Pools, Replay::Serial][seed as usize % 3];
    let with = With { replay, threads: 1 + seed as usize % 3, ..With::default() };
    let (db, watched) = try_open(dir.path(), &after, c, &with)
        .unwrap_or_else(|error| panic!("{c:?} {seed}: {error}"));
    assert_eq!(db.recovery().schema_changes, words, "{c:?}");
    assert_eq!(rows(&db, &after), wanted, "{c:?} {seed} {words:?}");
    run(&db, &after, &mut fastrand::Rng::with_seed(seed), 40);
    let (now, digest) = (rows(&db, &after), db.digest());
    drop((db, watched));
    let (db, _watched) = open(dir.path(), &after, c);
    assert!(db.recovery().schema_changes.is_empty(), "{c:?}");
    assert_eq!((rows(&db, &after), db.digest()), (now, digest), "{c:?} {words:?}, reopened");
}
