//! Promise: the reported contents of tables are the real contents, whatever the source of the rows:
//! sessions, open and ended, the image of a checkpoint, the log in any order of replay.

use crate::common::{Opened, ballast_rows, open, populate, power_cut, run, some_combinations};
use hyades::{Abort, Database, Error, Replay, Schema, Table, TableStats, Type, Value};

fn check(db: &Database, what: &str) -> Vec<TableStats> {
    let tables = db.tables();
    assert_eq!(tables, db.recount(), "{what}");
    assert_eq!(tables.iter().map(|table| table.rows).sum::<u64>(), db.rows(), "{what}");
    tables
}

fn ballast(opened: &Opened) {
    match opened.inserting {
        None => opened.db.try_transact(|tx| ballast_rows(tx, 0)).unwrap().unwrap(),
        Some([_, ballast]) => opened.call(ballast, &0u64),
    }
}

#[test]
fn sums_are_those_of_the_rows_before_and_after_a_crash() {
    for (seed, c) in some_combinations(1) {
        let dir = tempfile::tempdir().unwrap();
        let device = power_cut(seed as u64);
        let opened = open(dir.path(), c, Some(device.clone()), 2, Replay::Automatic);
        populate(&opened);
        let filled = check(&opened.db, &format!("{c:?} filled"));
        assert_eq!((filled[0].rows, filled[0].bytes > 0), (12, true), "{c:?}");
        run(&opened, seed as u64, 200);
        check(&opened.db, &format!("{c:?} after work"));
        ballast(&opened);
        opened.db.log().expect("there is a log").flush().unwrap();
        let before = check(&opened.db, &format!("{c:?} before the crash"));
        assert!(before[1].rows >= 1000, "{c:?}");
        device.cut();
        drop(opened);
        for (threads, replay) in [
            (1, Replay::Wavefront),
            (3, Replay::Automatic),
            (2, Replay::Pools),
            (2, Replay::Phases),
            (1, Replay::Serial),
        ] {
            let what = format!("{c:?} recovered by {threads} threads, {replay:?}");
            let again = open(dir.path(), c, None, threads, replay);
            assert_eq!(check(&again.db, &what), before, "{what}");
            again.db.close().unwrap();
        }
        let again = open(dir.path(), c, None, 2, Replay::Automatic);
        again.db.checkpoint().unwrap();
        run(&again, seed as u64 + 1, 20);
        let before = check(&again.db, &format!("{c:?} after the checkpoint"));
        again.db.log().expect("there is a log").flush().unwrap();
        again.db.close().unwrap();
        let again = open(dir.path(), c, None, 2, Replay::Automatic);
        assert!(again.db.recovery().image_rows >= 1000, "{c:?}");
        assert_eq!(check(&again.db, &format!("{c:?} from an image")), before, "{c:?}");
        again.db.close().unwrap();
    }
}

const VALUES: Table = Table::nth(0);

/// A table with a key of 8 bytes and a long value, in one of its forms.
fn schema(form: usize) -> Schema {
    let schema = Schema::new("values").column("id", Type::U64).nullable("value", Type::Bytes);
    let schema = schema.column("n", Type::U32).primary_key(&["id"]);
    match form {
        0 => schema,
        1 => schema.hash().growing_rows(),
        _ => schema.growing_rows().key_once(),
    }
}

#[test]
fn bytes_follow_the_length_of_the_rows() {
    for form in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            let mut builder = Database::builder();
            builder.table(schema(form));
            builder.open(dir.path()).unwrap()
        };
        let db = open();
        let put = |id: u64, value: Option<usize>| {
            let bytes = value.map(|len| vec![7u8; len]);
            let value = bytes.as_deref().map_or(Value::Null, Value::from);
            db.transact(|tx| Ok(tx.overwrite(VALUES, &[id.into(), value, 1u32.into()])?)).unwrap();
            let [table] = &check(&db, &format!("form {form}"))[..] else { panic!("one table") };
            (table.rows, table.bytes)
        };
        assert_eq!(check(&db, "nothing")[0].bytes, 0);
        let (_, empty) = put(1, Some(0));
        for len in [1, 100, 256, 257, 5000, 4999, 5000, 70_000, 3, 0] {
            assert_eq!(put(1, Some(len)), (1, empty + len as u64), "form {form}");
        }
        assert_eq!(put(2, Some(0)), (2, 2 * empty), "form {form}");
        put(2, None);
        put(2, Some(40));
        // A write without a commit does not count; nor does a write that a transaction takes back.
        let before = check(&db, "before");
        let ended = db.transact(|tx| {
            tx.overwrite(VALUES, &[3u64.into(), Value::Null, 1u32.into()])?;
            tx.delete(VALUES, 1u64)?;
            Err::<(), _>(Error::user("no"))
        });
        assert!(ended.is_err());
        db.transact(|tx| {
            let savepoint = tx.savepoint();
            tx.overwrite(VALUES, &[4u64.into(), Value::Null, 1u32.into()])?;
            tx.delete(VALUES, 2u64)?;
            tx.rollback_to(savepoint)?;
            // A row that is inserted and deleted was never there.
            tx.insert(VALUES, &[5u64.into(), Value::Null, 1u32.into()])?;
            Ok(tx.delete(VALUES, 5u64)?)
        })
        .unwrap();
        assert_eq!(check(&db, "after"), before, "form {form}");
        let delete = |id: u64| db.transact(|tx| Ok(tx.delete(VALUES, id)?)).unwrap();
        delete(1);
        assert_eq!((check(&db, "one left")[0].rows, put(1, Some(9)).0), (1, 2), "form {form}");
        delete(1);
        delete(2);
        // A missing row is deleted once more.
        delete(2);
        let [left] = &check(&db, "none left")[..] else { panic!("one table") };
        assert_eq!((left.rows, left.bytes), (0, 0), "form {form}");
        put(6, Some(300));
        let before = check(&db, "at the end");
        db.close().unwrap();
        assert_eq!(check(&open(), "opened again"), before, "form {form}");
    }
}

#[test]
fn many_tables_and_sessions_count_apart() {
    const TABLES: usize = 19;
    let dir = tempfile::tempdir().unwrap();
    let mut builder = Database::builder();
    for number in 0..TABLES {
        let schema = Schema::new(&format!("t{number}")).column("id", Type::U64);
        builder.table(schema.primary_key(&["id"]));
    }
    let db = builder.open(dir.path()).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..3u64 {
            let db = &db;
            scope.spawn(move || {
                let mut session = db.session().unwrap();
                for n in 0..400u64 {
                    let table = Table::nth((n % TABLES as u64) as u32);
                    let (id, before) = (worker << 32 | n, n.saturating_sub(TABLES as u64));
                    let (done, _) = session
                        .try_submit(|tx| {
                            tx.insert(table, &[id.into()])?;
                            // Rows of the other worker are deleted, too.
                            tx.delete(table, (worker ^ 1) << 32 | before).map(drop)
                        })
                        .unwrap();
                    done.unwrap_or_else(|abort: Abort| panic!("{abort}"));
                    assert!(db.tables().len() == TABLES);
                }
            });
        }
    });
    let tables = check(&db, "after all");
    // All rows have the same length: the key, which is in the row as well or is not.
    let each = tables[0].bytes / tables[0].rows;
    assert!(tables.iter().all(|table| table.bytes == each * table.rows && table.rows > 0));
    assert!(each == 8 || each == 16, "{each}");
    let total = |name: &str| db.metrics().total(name).expect("a metric") as u64;
    assert_eq!(total("hyades_table_rows"), db.rows());
    assert_eq!(total("hyades_table_bytes"), each * db.rows());
    db.close().unwrap();
}
