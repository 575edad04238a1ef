//! Changes of the schema at opening. Promise: each row is kept, with the value of each new column;
//! a refused change changes nothing on disk.

use crate::common::evolving::{
    Op, Owned, Tables, With, builder, column, copy, index, nullable, open, rows, run, try_open,
    with_default,
};
use crate::common::{Combination, combinations, directory, fingerprint, power_cut, refused};
use hyades::inspect::{Content, Inspector};
use hyades::{
    Abort, Concurrency, Database, Error, Index, Protocol, RecordKind, Replay, Restore, Schema,
    Table, Transaction, Type, TypedTable, Until, Value,
};
use std::path::Path;
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
    let some = !wanted["accounts"].is_empty() && !wanted["events"].is_empty();
    assert!(some, "{c:?} {seed}: what was on disk before the crash is lost: {wanted:?}");
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

fn plain(record: RecordKind) -> Combination {
    let (protocol, concurrency) = (Protocol::Taurus, Concurrency::Silo);
    Combination { protocol, concurrency, record, streams: 3 }
}

/// A database of the first tables whose log was not closed.
fn crashed(dir: &Path, c: Combination, seed: u64, count: usize) {
    let tables = Tables::first();
    let device = power_cut(seed);
    let with = With { device: Some(device.clone()), ..With::default() };
    let (db, _watched) = try_open(dir, &tables, c, &with).unwrap();
    run(&db, &tables, &mut fastrand::Rng::with_seed(seed), count);
    device.cut();
}

fn call(db: &Database, ops: &[Op]) {
    db.call::<_, Vec<u64>>("apply", ops).unwrap();
}

fn account(id: i64, owner: &str, balance: i64) -> Op {
    let values = [("id", Owned::Int(id)), ("owner", Owned::Text(owner.into()))];
    let values = values.into_iter().chain([("balance", Owned::Int(balance))]);
    Op::Insert("accounts".into(), values.map(|(name, value)| (name.into(), value)).collect())
}

fn manifest_catalogue(db: &Database) -> Vec<u8> {
    db.log().unwrap().manifest().catalogue
}

#[test]
fn a_dropped_table_is_gone_and_its_number_too() {
    for (seed, c) in combinations().into_iter().enumerate().filter(|(_, c)| c.streams < 16) {
        let dir = directory();
        let first = Tables::first();
        crashed(dir.path(), c, seed as u64, 60);
        let mut without = first.clone();
        without.tables.retain(|table| table.name != "old");
        let before = fingerprint(dir.path());
        let result = try_open(dir.path(), &without, c, &With::default()).map(drop);
        let text = refused(result, "a forgotten table").to_string();
        assert!(text.contains("Builder::drop_table(\"old\")"), "{text}");
        let mut both = builder(&first, c, &With::default());
        both.drop_table("old");
        let error = refused(both.open(dir.path()), "a table that is declared and dropped");
        assert!(matches!(error, Error::Misuse(_)), "{error}");
        assert_eq!(fingerprint(dir.path()), before, "a refusal changed something");

        let (db, watched) = open(dir.path(), &first, c);
        let mut wanted = rows(&db, &first);
        wanted.remove("old").expect("it has rows");
        if c.record != RecordKind::Data {
            db.checkpoint().unwrap();
        }
        drop((db, watched));
        without.dropped.push("old".into());
        for words in [&["dropped table \"old\""][..], &[]] {
            // The second time, there is no such table.
            let (db, _watched) = open(dir.path(), &without, c);
            assert_eq!(db.recovery().schema_changes, words, "{c:?}");
            assert_eq!(rows(&db, &without), wanted, "{c:?}");
            assert!(manifest_catalogue(&db).starts_with(br#"{"version":2,"next_table":3,"#));
        }
        // The same name again is another table.
        let (db, _watched) = open(dir.path(), &first, c);
        assert_eq!(db.recovery().schema_changes, ["added table \"old\""]);
        assert!(rows(&db, &first)["old"].is_empty(), "{c:?}");
        let catalogue = String::from_utf8(manifest_catalogue(&db)).unwrap();
        assert!(catalogue.contains(r#""id":3,"schema":{"name":"old""#), "{catalogue}");
    }
}

#[test]
fn a_call_that_needs_what_is_dropped_stops_the_opening() {
    for what in ["table", "index"] {
        let c = plain(RecordKind::Command);
        let dir = directory();
        let first = Tables::first();
        // Calls read the second index of accounts, or insert into the last table.
        let declare = |tables: &Tables| {
            let mut builder = builder(tables, c, &With::default());
            builder.procedure("use", 1, move |tx: &Transaction<'_>, id: i64| {
                let rows = tx.scan_index(Table::nth(0), Index(1)).rows()?.len() as i64;
                let row = ["events".into(), (rows + id).into()];
                tx.insert(Table::nth(1), &row)?;
                tx.insert(Table::nth(2), &[id.into(), "old".into()]).map(drop)
            });
            builder
        };
        let db = declare(&first).open(dir.path()).unwrap();
        db.call::<_, ()>("use", &1i64).unwrap();
        drop(db);
        let mut after = first.clone();
        match what {
            "table" => after.drop_table("old"),
            _ => drop(after.table("accounts").indexes.remove(1)),
        }
        let before = fingerprint(dir.path());
        let error = refused(declare(&after).open(dir.path()), what);
        let text = error.to_string();
        for part in ["\"use\" version 1", "dropped", what, "old program, take a checkpoint"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(fingerprint(dir.path()), before, "{what}: a refusal changed something");
        let db = declare(&first).open(dir.path()).unwrap();
        db.checkpoint().unwrap();
        let wanted = after.convert(&rows(&db, &first));
        drop(db);
        let db = declare(&after).open(dir.path()).unwrap();
        assert_eq!(rows(&db, &after), wanted);
    }
}

#[test]
fn a_unique_index_over_duplicates_is_refused() {
    for c in combinations().into_iter().filter(|c| c.streams < 16) {
        let dir = directory();
        let first = Tables::first();
        let (db, watched) = open(dir.path(), &first, c);
        call(&db, &[account(3, "Ada", 5), account(7, "Blaise", 5), account(9, "Carl", 6)]);
        drop((db, watched));
        let before = fingerprint(dir.path());
        let mut after = first.clone();
        after.table("accounts").indexes.push(index("one_balance", &["balance"], true));
        let error = refused(
            try_open(dir.path(), &after, c, &With::default()).map(drop),
            "a unique index over duplicates",
        );
        assert!(matches!(error, Error::Mismatch(_)), "{error:?}");
        let text = error.to_string();
        for part in ["\"one_balance\"", "\"accounts\"", "keys 3 and 7 "] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(fingerprint(dir.path()), before, "{c:?}: a refusal changed something");
        // The rows are changed under the old declaration. The log keeps that there were duplicates.
        let (db, watched) = open(dir.path(), &first, c);
        let sets = vec![("balance".into(), Owned::Int(8))];
        call(&db, &[Op::Update("accounts".into(), 7, sets)]);
        drop((db, watched));
        let (db, _watched) = open(dir.path(), &after, c);
        call(&db, &[account(10, "Dora", 8)]);
        let rows = rows(&db, &after);
        assert_eq!((rows["accounts"].len(), rows["events"].len()), (3, 1), "{c:?}: it is in force");
    }
}

#[test]
fn other_differences_are_refused() {
    type Differ = (fn(&mut Tables), &'static [&'static str]);
    let all: &[Differ] = &[
        (|t| drop(t.table("accounts").columns.remove(3)), &["\"memo\"", "cannot be dropped"]),
        (|t| t.table("accounts").columns[2].kind = Type::F64, &["\"balance\"", "I64", "F64"]),
        (|t| t.table("accounts").columns[2].nullable = true, &["\"balance\"", "or null"]),
        (|t| t.table("accounts").columns[3].nullable = false, &["\"memo\"", "or null"]),
        (|t| t.table("accounts").hash = true, &["primary key"]),
        (
            |t| t.table("accounts").columns.push(column("age", Type::I64)),
            &["\"age\"", "nullable", "default"],
        ),
    ];
    let c = plain(RecordKind::Data);
    let dir = directory();
    crashed(dir.path(), c, 1, 20);
    let before = fingerprint(dir.path());
    for (differ, parts) in all {
        let mut tables = Tables::first();
        tables.table("accounts").indexes.clear();
        differ(&mut tables);
        let result = try_open(dir.path(), &tables, c, &With::default()).map(drop);
        let error = refused(result, parts[0]);
        let text = error.to_string();
        assert!(matches!(error, Error::Mismatch(_)), "{error:?}");
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert!(text.contains("\"accounts\""), "{text}");
        assert_eq!(fingerprint(dir.path()), before, "{text}: something changed on disk");
    }
    let wrong = Schema::new("t").column_with_default("a", Type::I64, "text");
    let mut builder = Database::builder();
    builder.table(wrong);
    let text = refused(builder.open(directory().path()), "a wrong default").to_string();
    assert!(text.contains("default") && text.contains("\"a\""), "{text}");
}

#[test]
fn a_row_that_gets_too_long_is_refused() {
    let dir = directory();
    let tables = |filled: bool| {
        let mut builder = Database::builder().streams(1);
        let mut schema = Schema::new("t").column("id", Type::I64).column("b", Type::Bytes);
        if filled {
            schema = schema.column_with_default("more", Type::Bytes, &[1u8; 200]);
        }
        let table = builder.table(schema.primary_key(&["id"]));
        (builder, table)
    };
    let (builder, table) = tables(false);
    let db = builder.open(dir.path()).unwrap();
    let long = vec![7u8; hyades::MAX_ROW_BYTES - 100];
    db.transact(|tx| Ok(tx.insert(table, &[1i64.into(), (&long[..]).into()])?)).unwrap();
    db.close().unwrap();
    let before = fingerprint(dir.path());
    let error = refused(tables(true).0.open(dir.path()), "a row of more than 16 MiB");
    assert!(matches!(error, Error::Mismatch(_)), "{error:?}");
    assert!(error.to_string().contains("longer than 16 MiB"), "{error}");
    assert_eq!(fingerprint(dir.path()), before);
}

/// A backup from before a change can be restored with either declaration; the database itself has
/// no history before the change.
#[test]
fn a_backup_from_before_a_change_has_either_schema() {
    for c in combinations().into_iter().filter(|c| c.streams == 3) {
        let (dir, to) = (directory(), directory());
        let first = Tables::first();
        let (db, watched) = open(dir.path(), &first, c);
        run(&db, &first, &mut fastrand::Rng::with_seed(1), 30);
        let (_, ticket) = db
            .session()
            .unwrap()
            .submit(|tx| Ok(tx.insert(Table::nth(1), &["now".into(), 1i64.into()])?))
            .unwrap();
        let id = ticket.transaction_id().unwrap();
        ticket.wait().unwrap();
        let copy = to.path().join("copy");
        db.backup(&copy).unwrap();
        let wanted = rows(&db, &first);
        drop((db, watched));
        let mut after = first.clone();
        (CHANGES[1].0)(&mut after);
        let (db, watched) = open(dir.path(), &after, c);
        drop((db, watched));
        for (tables, new) in [(&first, "old"), (&after, "new")] {
            let new = to.path().join(new);
            let how = Restore::new(vec![copy.clone()], &new);
            let report = builder(tables, c, &With::default()).restore(&how).unwrap();
            let words = if tables == &after { CHANGES[1].1 } else { &[] };
            assert_eq!(report.schema_changes, words, "{c:?}");
            let (db, _watched) = open(&new, tables, c);
            assert!(db.recovery().schema_changes.is_empty());
            assert_eq!(rows(&db, tables), tables.convert(&wanted), "{c:?}");
        }
        let how = Restore::new(vec![dir.path().to_owned()], to.path().join("early"))
            .until(Until::Transaction(id));
        let error = refused(builder(&after, c, &With::default()).restore(&how), "too early");
        assert!(error.to_string().contains("begins with its checkpoint"), "{error}");
    }
}

/// Tools read the log before and after a change by the catalogue that is in force.
#[test]
fn tools_decode_the_log_of_a_changed_database() {
    let c = plain(RecordKind::Data);
    let dir = directory();
    crashed(dir.path(), c, 3, 30);
    let mut after = Tables::first();
    (CHANGES[0].0)(&mut after);
    after.drop_table("old");
    let (db, watched) = open(dir.path(), &after, c);
    run(&db, &after, &mut fastrand::Rng::with_seed(4), 30);
    drop((db, watched));
    let options = hyades_wal::LogOptions::new(vec![dir.path().to_owned()], 1);
    let log = hyades_wal::open_read(options).unwrap();
    assert!(hyades::inspect::verify_checkpoint(&log).unwrap().is_some());
    let inspector = Inspector::new(log.manifest()).unwrap();
    let mut notes = 0;
    for mut reader in log.readers() {
        let manifest = log.manifest();
        let mut incarnations = manifest.incarnations.iter();
        let incarnation = incarnations.find(|i| i.number == reader.incarnation).unwrap();
        let mut stream = inspector.stream(incarnation, reader.stream.0);
        while let Some(chunk) = reader.next_chunk().unwrap() {
            stream.enter(&chunk);
            for frame in chunk.frames() {
                let Some(record) = stream.read(&frame).unwrap() else { continue };
                let Content::Rows(rows) = record.content().unwrap() else { panic!("no command") };
                let columns = rows.iter().flat_map(|row| &row.columns);
                notes += columns.filter(|(name, _)| name == "note").count();
            }
        }
    }
    assert!(notes > 0, "the new column is in the log");
}

mod old {
    #[derive(hyades::Table, Debug, PartialEq)]
    pub struct Account {
        #[key]
        pub id: i64,
        #[index]
        pub owner: String,
        pub balance: i64,
    }
}

mod new {
    #[derive(hyades::Table, Debug, PartialEq)]
    pub struct Account {
        pub note: Option<String>,
        #[key]
        pub id: i64,
        #[default_value("EUR")]
        #[index]
        pub currency: String,
        #[unique]
        pub owner: String,
        #[default_value(100 + 1)]
        pub limit: u64,
        pub balance: i64,
        #[default_value(b"ab")]
        pub tag: Option<[u8; 2]>,
    }
}

#[test]
fn a_struct_may_gain_fields() {
    let dir = directory();
    let mut builder = Database::builder().streams(2);
    let accounts = builder.table_of::<old::Account>();
    let db = builder.open(dir.path()).unwrap();
    let ada = old::Account { id: 1, owner: "Ada".into(), balance: 5 };
    db.transact(|tx| Ok(accounts.insert(tx, &ada)?)).unwrap();
    drop(db);
    let mut wanted = new::Account {
        note: None,
        id: 1,
        currency: "EUR".into(),
        owner: "Ada".into(),
        limit: 101,
        balance: 5,
        tag: Some(*b"ab"),
    };
    for _ in 0..2 {
        let mut builder = Database::builder().streams(2);
        let accounts: TypedTable<new::Account> = builder.table_of();
        let db = builder.open(dir.path()).unwrap();
        db.transact(|tx| {
            assert_eq!(accounts.require(tx, 1)?, wanted);
            let found = accounts.index(tx, new::Account::BY_CURRENCY).equal("EUR").rows()?;
            assert_eq!(found.len(), 1);
            accounts.modify(tx, 1, |account| account.limit += 1)?;
            Ok(())
        })
        .unwrap();
        wanted.limit += 1;
    }
}

#[test]
fn without_a_log_there_is_nothing_to_change() {
    let dir = directory();
    let mut builder = Database::builder().protocol(Protocol::None);
    let schema = Schema::new("t").column_with_default("a", Type::I64, 1i64);
    let table = builder.table(schema.unique("by_a", &["a"]));
    builder.drop_table("other");
    let db = builder.open(dir.path()).unwrap();
    assert!(db.recovery().schema_changes.is_empty());
    let insert = || db.transact(|tx| Ok(tx.insert(table, &[Value::I64(1)])?));
    insert().unwrap();
    let error = insert().unwrap_err();
    assert!(matches!(error, Error::Aborted(Abort::DuplicateKey { .. })), "{error:?}");
}
