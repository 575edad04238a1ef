//! Savepoints, bounds and keys refused in a transaction, with the reason.

use hyades::{
    Abort, Builder, Column, Concurrency, Database, Error, Index, LogSettings, Loss, MAX_KEY_BYTES,
    ProcedureId, Protocol, RecordKind, Schema, Table, Transaction, Type, TypedTable, Value,
};
use hyades_schemes::{POPLAR, all_controls};
use std::cell::Cell;
use std::sync::Arc;

const COUNTERS: Table = Table::nth(0);
const NAMES: Table = Table::nth(1);
const COUNT: Column<i64> = Column::at(1);

fn builder() -> Builder {
    let mut builder = Database::builder().protocol(Protocol::None);
    tables(&mut builder);
    builder
}

fn tables(builder: &mut Builder) {
    let counters = Schema::new("counters")
        .column("id", Type::I64)
        .column("count", Type::I64)
        .primary_key(&["id"])
        .index("by_count", &["count"]);
    builder.table(counters);
    let names = Schema::new("names")
        .column("name", Type::Text)
        .column("alias", Type::Bytes)
        .nullable("note", Type::Text)
        .primary_key(&["name"])
        .index("by_alias", &["alias", "note"]);
    builder.table(names);
}

fn database(concurrency: Concurrency) -> (tempfile::TempDir, Database) {
    let dir = tempfile::tempdir().unwrap();
    let db = builder().concurrency(concurrency).open(dir.path()).unwrap();
    (dir, db)
}

fn insert(tx: &Transaction<'_>, id: i64) -> Result<(), Abort> {
    tx.insert(COUNTERS, &[id.into(), 0i64.into()]).map(drop)
}

#[test]
fn a_number_without_a_type_is_of_the_columns() {
    let (_dir, db) = database(Concurrency::Silo);
    db.try_transact(|tx| insert(tx, 1)).unwrap().unwrap();
    db.try_transact(|tx| tx.update(COUNTERS, 1i64, &[COUNT.set(3)])).unwrap().unwrap();
    let count = db
        .try_transact(|tx| Ok::<_, Abort>(tx.get(COUNTERS, 1i64)?.unwrap().get(COUNT)))
        .unwrap()
        .unwrap();
    assert_eq!(count, 3);
    assert_eq!(Column::<Option<u32>>::at(1).set(7).value, Value::U32(7));
    assert_eq!(Column::<Option<&str>>::at(1).set("x").value, Value::Text("x"));
    assert_eq!(Column::<[u8]>::at(1).set(b"x").value, Value::Bytes(b"x"));
    // Values of unknown type are checked at run time.
    assert_eq!(COUNT.set(Value::Null).value, Value::Null);
}

#[test]
fn a_savepoint_is_one_transactions_and_gone_once_it_is_passed() {
    for concurrency in all_controls() {
        let (_dir, db) = database(concurrency);
        let mut sessions = [db.session().unwrap(), db.session().unwrap()];
        let kept = Cell::new(None);
        let keep = |tx: &Transaction<'_>| {
            insert(tx, 1)?;
            kept.set(Some(tx.savepoint()));
            insert(tx, 2)
        };
        sessions[0].try_submit(keep).unwrap().0.unwrap();
        for session in &mut sessions {
            // As many writes as before the kept savepoint, so its position would be valid.
            let outcome = session.try_submit(|tx| {
                insert(tx, 3)?;
                insert(tx, 4)?;
                let own = tx.savepoint();
                let refused = tx.rollback_to(kept.get().unwrap());
                tx.rollback_to(own)?;
                Err::<(), _>(refused.unwrap_err())
            });
            assert_eq!(outcome.unwrap().0, Err(Abort::NoSuchSavepoint));
        }
        let outcome = sessions[1].try_submit(|tx| {
            let first = tx.savepoint();
            insert(tx, 5)?;
            let second = tx.savepoint();
            insert(tx, 6)?;
            tx.rollback_to(second)?;
            tx.rollback_to(first)?;
            tx.rollback_to(first)?;
            insert(tx, 7)?;
            insert(tx, 8)?;
            // The rollback would undo half of the later writes.
            assert_eq!(tx.rollback_to(second), Err(Abort::NoSuchSavepoint));
            Ok::<_, Abort>(())
        });
        outcome.unwrap().0.unwrap();
        let ids = |tx: &Transaction<'_>| {
            let rows = tx.scan(COUNTERS).rows()?;
            Ok::<_, Abort>(rows.iter().map(|row| row.get(Column::<i64>::at(0))).collect())
        };
        let ids: Vec<i64> = db.try_transact(ids).unwrap().unwrap();
        assert_eq!(ids, [1, 2, 7, 8]);
    }
}

#[test]
fn a_bound_of_more_values_than_the_key_has_is_refused() {
    let (_dir, db) = database(Concurrency::Silo);
    db.try_transact(|tx| insert(tx, 1)).unwrap().unwrap();
    let two = [1i64.into(), 1i64.into()];
    let wrong = Some(Abort::WrongType { table: 0, column: 1 });
    let scan = |scan: &dyn Fn(&Transaction<'_>) -> Result<usize, Abort>| {
        db.try_transact(|tx| Ok::<_, Abort>(scan(tx).err())).unwrap().unwrap()
    };
    assert_eq!(scan(&|tx| Ok(tx.scan(COUNTERS).prefix(&two).rows()?.len())), wrong);
    assert_eq!(scan(&|tx| Ok(tx.scan(COUNTERS).from(&two).rows()?.len())), wrong);
    assert_eq!(scan(&|tx| Ok(tx.scan(COUNTERS).before(&two).rows()?.len())), wrong);
    assert_eq!(scan(&|tx| Ok(tx.scan_index(COUNTERS, Index(0)).to(&two).rows()?.len())), wrong);
    assert_eq!(scan(&|tx| Ok(tx.scan_index(COUNTERS, Index(0)).after(&two).rows()?.len())), wrong);
    assert_eq!(scan(&|tx| Ok(tx.scan(COUNTERS).from(&two[..1]).rows()?.len())), None);
    assert_eq!(
        scan(&|tx| Ok(tx.get(COUNTERS, (1i64, 1i64))?.iter().count())),
        Some(Abort::WrongType { table: 0, column: 2 })
    );
}

/// A row whose primary key and index columns have given lengths.
fn name<'v>(name: &'v str, alias: &'v [u8]) -> [Value<'v>; 3] {
    [name.into(), alias.into(), Value::Null]
}

#[test]
fn a_key_is_as_large_as_the_limit_and_no_larger() {
    // A text or byte value ends with two bytes in a key; the nullable column takes one byte.
    let longest = "n".repeat(MAX_KEY_BYTES - 2);
    let longest_alias = vec![b'a'; MAX_KEY_BYTES - 3];
    let too_long = "n".repeat(MAX_KEY_BYTES - 1);
    let alias_too_long = vec![b'a'; MAX_KEY_BYTES - 2];
    for (protocol, record) in [
        (Protocol::Taurus, RecordKind::Data),
        (Protocol::Taurus, RecordKind::Command),
        (POPLAR, RecordKind::Data),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            let mut builder = Database::builder().protocol(protocol).record(record).streams(2);
            tables(&mut builder);
            builder.procedure("put", 1, |tx: &Transaction<'_>, (a, b): (String, Vec<u8>)| {
                tx.insert(NAMES, &name(&a, &b)).map(drop)
            });
            builder.open(dir.path()).unwrap()
        };
        let db = open();
        let put = |a: &str, b: &[u8]| db.try_transact(|tx| tx.insert(NAMES, &name(a, b)).map(drop));
        let primary = Abort::KeyTooLarge { table: 1, index: None };
        let secondary = Abort::KeyTooLarge { table: 1, index: Some(0) };
        assert_eq!(put(&too_long, b"").unwrap(), Err(primary));
        assert_eq!(put("", &alias_too_long).unwrap(), Err(secondary));
        put(&longest, &longest_alias).unwrap().unwrap();
        put("short", b"x").unwrap().unwrap();
        let outcome = |run: &dyn Fn(&Transaction<'_>) -> Result<(), Abort>| {
            db.try_transact(|tx| run(tx)).unwrap()
        };
        let alias = Column::<[u8]>::at(1);
        let update =
            outcome(&|tx| tx.update(NAMES, "short", &[alias.set(&alias_too_long[..])]).map(drop));
        assert_eq!(update, Err(secondary));
        let zeros = vec![0; MAX_KEY_BYTES / 2 + 1];
        let update = outcome(&|tx| tx.update(NAMES, "short", &[alias.set(&zeros[..])]).map(drop));
        assert_eq!(update, Err(secondary), "a zero byte takes two");
        assert_eq!(outcome(&|tx| tx.get(NAMES, &too_long[..]).map(drop)), Err(primary));
        assert_eq!(outcome(&|tx| tx.delete(NAMES, &too_long[..]).map(drop)), Err(primary));
        assert_eq!(outcome(&|tx| tx.overwrite(NAMES, &name(&too_long, b""))), Err(primary));
        assert_eq!(outcome(&|tx| tx.upsert(NAMES, &name(&too_long, b"")).map(drop)), Err(primary));
        let bound = [Value::from(&too_long[..])];
        assert_eq!(outcome(&|tx| tx.scan(NAMES).from(&bound).rows().map(drop)), Err(primary));
        assert_eq!(
            outcome(&|tx| tx.get(NAMES, &longest[..]).map(|row| assert!(row.is_some()))),
            Ok(())
        );
        db.close().unwrap();
        let db = open();
        assert_eq!(db.rows(), 2);
        db.checkpoint().unwrap();
        db.close().unwrap();
        assert_eq!(open().rows(), 2);
    }
}

#[derive(Table)]
struct Item {
    #[key]
    id: i64,
    #[index]
    count: i64,
}

/// A database with the counters, a typed table below the counters, and one procedure.
struct Shop {
    _dir: tempfile::TempDir,
    db: Database,
    counters: Table,
    items: TypedTable<Item>,
    add: ProcedureId,
}

fn shop(protocol: Protocol, concurrency: Concurrency) -> Shop {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = Database::builder().protocol(protocol).concurrency(concurrency).streams(1);
    let counters = Schema::new("counters").column("id", Type::I64).column("count", Type::I64);
    let counters = builder.table(counters.primary_key(&["id"]));
    let items = builder.table_of::<Item>();
    let add = builder.procedure("add", 1, move |tx: &Transaction<'_>, id: i64| {
        tx.overwrite(counters, &[id.into(), 0i64.into()])
    });
    let db = builder.open(dir.path()).unwrap();
    Shop { _dir: dir, db, counters, items, add }
}

#[test]
fn a_handle_of_another_builder_is_refused_by_every_operation() {
    type Operation<'o> = &'o dyn Fn(&Transaction<'_>) -> Result<(), Abort>;
    for (protocol, concurrency) in
        [(Protocol::Taurus, Concurrency::Silo), (Protocol::None, Concurrency::NoWait)]
    {
        let (here, there) = (shop(protocol, concurrency), shop(protocol, concurrency));
        let (counters, items) = (there.counters, there.items);
        let row: [Value<'_>; 2] = [1i64.into(), 1i64.into()];
        let item = Item { id: 1, count: 1 };
        let untyped: [Operation<'_>; 9] = [
            &|tx| tx.get(counters, 1i64).map(drop),
            &|tx| tx.get_columns(counters, 1i64, COUNT.only()).map(drop),
            &|tx| tx.insert(counters, &row).map(drop),
            &|tx| tx.update(counters, 1i64, &[COUNT.set(2)]).map(drop),
            &|tx| tx.upsert(counters, &row).map(drop),
            &|tx| tx.overwrite(counters, &row),
            &|tx| tx.delete(counters, 1i64).map(drop),
            &|tx| tx.scan(counters).rows().map(drop),
            &|tx| tx.scan_index(counters, Index(0)).rows().map(drop),
        ];
        let typed: [Operation<'_>; 6] = [
            &|tx| items.require(tx, 1).map(drop),
            &|tx| items.insert(tx, &item).map(drop),
            &|tx| items.modify(tx, 1, |item| item.count += 1).map(drop),
            &|tx| items.delete(tx, 1).map(drop),
            &|tx| items.scan(tx).rows().map(drop),
            &|tx| items.index(tx, Item::BY_COUNT).equal(1).rows().map(drop),
        ];
        for (operations, table) in [(&untyped[..], 0), (&typed[..], 1)] {
            for (at, operation) in operations.iter().enumerate() {
                let outcome = here.db.try_transact(|tx| {
                    // Hints have no result.
                    tx.prefetch(counters, 1i64, COUNT.only());
                    tx.scan(counters).prefetch();
                    operation(tx)
                });
                let expected = Err(Abort::ForeignHandle { table });
                assert_eq!(outcome.unwrap(), expected, "operation {at} of table {table}");
            }
        }
        assert_eq!((here.db.rows(), there.db.rows()), (0, 0));
        let error = here.db.transact(|tx| Ok(tx.overwrite(counters, &row)?)).unwrap_err();
        assert!(error.to_string().contains("comes from another builder"), "{error}");
        // Own handles, and handles made by hand, are taken.
        here.db.transact(|tx| Ok(tx.overwrite(here.counters, &row)?)).unwrap();
        here.db.transact(|tx| Ok(tx.overwrite(Table::nth(1), &row)?)).unwrap();
        assert_eq!(here.db.transact(|tx| Ok(here.items.require(tx, 1)?.count)).unwrap(), 1);
        let nth = here.db.try_transact(|tx| tx.get(Table::nth(2), 1i64).map(drop));
        assert_eq!(nth.unwrap(), Err(Abort::UnknownHandle));
    }
}

#[test]
fn a_table_number_that_only_the_other_database_has_is_of_another_builder() {
    let here = shop(Protocol::None, Concurrency::Silo);
    let mut builder = Database::builder();
    let mut table = None;
    for n in 0..3 {
        table = Some(builder.table(Schema::new(&format!("t{n}")).column("n", Type::I64)));
    }
    let outcome = here.db.try_transact(|tx| tx.get(table.unwrap(), 0u64).map(drop));
    assert_eq!(outcome.unwrap(), Err(Abort::ForeignHandle { table: 2 }));
}

#[test]
fn a_procedure_of_another_builder_is_refused() {
    let here = shop(Protocol::None, Concurrency::Silo);
    let there = shop(Protocol::None, Concurrency::Silo);
    let mut session = here.db.session().unwrap();
    let refused = session.call(there.add, &1i64).map(drop).unwrap_err();
    assert!(matches!(&refused, Error::Misuse(text) if text.contains("another builder")));
    assert_eq!((here.db.rows(), there.db.rows()), (0, 0));
    for own in [here.add, here.db.prepare("add").unwrap()] {
        session.call(own, &1i64).unwrap().0.unwrap();
    }
    assert_eq!(here.db.rows(), 1);
}

#[test]
fn a_savepoint_of_another_database_is_refused() {
    let here = shop(Protocol::None, Concurrency::Silo);
    let there = shop(Protocol::None, Concurrency::Silo);
    let foreign = there.db.transact(|tx| Ok(tx.savepoint())).unwrap();
    let outcome = here.db.try_transact(|tx| {
        tx.savepoint();
        tx.rollback_to(foreign)
    });
    assert_eq!(outcome.unwrap(), Err(Abort::NoSuchSavepoint));
}

/// Promise: a program that depends on this crate alone can name the types of its signatures.
#[test]
fn what_a_signature_names_is_reachable_from_this_crate() {
    use hyades::device::{Device, MemoryDevice};
    use hyades::wal::{Damage, Frontier, Lane, Log, Lsn, StreamStats};
    fn settings(log: &mut LogSettings) {
        let device: Arc<dyn Device> = MemoryDevice::shared();
        (log.device, log.buffer_bytes) = (Some(device), 1 << 16);
    }
    let dir = tempfile::tempdir_in(MemoryDevice::ROOT).unwrap();
    let db = Database::builder().streams(2).log_settings(settings).open(dir.path()).unwrap();
    let log: &Log = db.log().unwrap();
    let (frontier, stats): (&Frontier, StreamStats) = (log.frontier(), log.stats(0));
    let durable: Lsn = frontier.at(Lane::position(1));
    assert!(durable <= log.next_lsn(1) && stats.frame_bytes <= stats.device_bytes);
    let _: fn(Damage) -> Loss = Loss::from;
    let second = Database::builder().log_settings(settings).open(dir.path());
    let error: hyades::wal::Error = match second.map(drop) {
        Err(Error::Log(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(error, hyades::wal::Error::InUse { .. }), "{error}");
}
