//! The refusals of opening. Promise: a refusal changes nothing on disk.
#![allow(missing_docs)]

mod common;
use common::{
    Combination, How, bank_tables, directory, files, fingerprint, fingerprint_at_rest, open,
    populate, refused, run, try_open,
};
use hyades::{
    Abort, Builder, Column, Concurrency, Database, Error, Protocol, RecordKind, Replay, Schema,
    Table, Transaction, Type, Value,
};
use hyades_schemes::TAURUS_2016;
use std::path::Path;
use std::process::Command;

const COUNTERS: Table = Table::nth(0);
const COUNT: Column<i64> = Column::at(1);

fn add(tx: &Transaction<'_>, (id, by): (i64, i64)) -> Result<i64, Abort> {
    let count = match tx.get(COUNTERS, id)? {
        Some(row) => row.get(COUNT) + by,
        None => by,
    };
    tx.upsert(COUNTERS, &[id.into(), count.into()])?;
    Ok(count)
}

/// Aborts if the row does not exist, so replay needs the row of the first run.
fn raise(tx: &Transaction<'_>, id: i64) -> Result<(), Abort> {
    let count = tx.get(COUNTERS, id)?.ok_or(Abort::User(id))?.get(COUNT);
    tx.update(COUNTERS, id, &[COUNT.set(count + 1)])?;
    Ok(())
}

/// The second version of the procedure, with another behaviour.
fn add_twice(tx: &Transaction<'_>, (id, by): (i64, i64)) -> Result<i64, Abort> {
    add(tx, (id, 2 * by))
}

fn counters() -> Schema {
    Schema::new("counters")
        .column("id", Type::I64)
        .column("count", Type::I64)
        .primary_key(&["id"])
        .index("by_count", &["count"])
}

fn builder(protocol: Protocol, record: RecordKind) -> Builder {
    let streams = if protocol == Protocol::Serial { 1 } else { 3 };
    Database::builder()
        .protocol(protocol)
        .record(record)
        .streams(streams)
        .recovery_threads(2)
        .log_settings(|log| {
            log.segment_bytes = 1 << 16;
            log.buffer_bytes = 1 << 14;
        })
}

fn with_add(protocol: Protocol, record: RecordKind) -> Builder {
    let mut builder = builder(protocol, record);
    builder.table(counters());
    builder.procedure("add", 1, add);
    builder.procedure("raise", 1, raise);
    builder
}

fn count_up(db: &Database, version: u32, calls: i64) {
    let id = db.prepare("add").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut session = db.session().unwrap();
                for n in 0..calls {
                    let (result, ticket) = session.call(id, &(n % 7, i64::from(version))).unwrap();
                    result.unwrap();
                    ticket.wait().unwrap();
                }
            });
        }
    });
}

/// Creates a closed database whose log calls `add` version 1. Returns its digest.
fn counted(dir: &Path, protocol: Protocol, record: RecordKind) -> u64 {
    let db = with_add(protocol, record).open(dir).unwrap();
    count_up(&db, 1, 60);
    let digest = db.digest();
    db.close().unwrap();
    digest
}

const PROTOCOLS: [Protocol; 3] = [Protocol::Serial, Protocol::Taurus, TAURUS_2016];

#[test]
fn a_procedure_that_is_missing_or_of_another_version_is_named() {
    for protocol in PROTOCOLS {
        let dir = directory();
        let digest = counted(dir.path(), protocol, RecordKind::Command);
        let before = fingerprint(dir.path());

        let mut without = builder(protocol, RecordKind::Command);
        without.table(counters());
        let error = refused(without.open(dir.path()), "a missing procedure");
        assert!(matches!(error, Error::Recovery(_)), "{error:?}");
        let text = error.to_string();
        for part in ["Lsn", "log stream", "\"add\" version 1", "register"] {
            assert!(text.contains(part), "{text}");
        }

        let mut other = builder(protocol, RecordKind::Command);
        other.table(counters());
        other.procedure("add", 2, add_twice);
        let text = refused(other.open(dir.path()), "another version").to_string();
        for part in ["Lsn", "\"add\"", "version 2", "version 1"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(fingerprint(dir.path()), before, "a refusal changed something on disk");

        let db = with_add(protocol, RecordKind::Command).open(dir.path()).unwrap();
        assert_eq!(db.digest(), digest);
    }
}

#[test]
fn two_versions_of_a_procedure_replay_each_its_own_records() {
    for protocol in PROTOCOLS {
        let dir = directory();
        counted(dir.path(), protocol, RecordKind::Command);
        let both = || {
            let mut builder = with_add(protocol, RecordKind::Command);
            builder.procedure("add", 2, add_twice);
            builder
        };
        let db = both().open(dir.path()).unwrap();
        // `prepare` returns the newest version. The older version still runs by its own handle.
        count_up(&db, 10, 30);
        let digest = db.digest();
        drop(db);
        let db = both().open(dir.path()).unwrap();
        assert_eq!(db.digest(), digest);
        let sum: i64 = db
            .try_transact(|tx| {
                let rows = tx.scan(COUNTERS).rows()?;
                Ok::<_, Abort>(rows.iter().map(|row| row.get(COUNT)).sum())
            })
            .unwrap()
            .unwrap();
        assert_eq!(sum, 2 * 60 + 2 * 30 * 20);
    }
}

#[test]
fn a_schema_that_differs_is_refused() {
    let columns = |kind| {
        Schema::new("counters").column("id", Type::I64).column("count", kind).primary_key(&["id"])
    };
    let nullable = Schema::new("counters").column("id", Type::I64).nullable("count", Type::I64);
    let pairs = [
        ("declared as I32", columns(Type::I32).index("by_count", &["count"])),
        ("or null", nullable.primary_key(&["id"]).index("by_count", &["count"])),
        ("primary key", counters().hash()),
        ("not declared", Schema::new("others").column("id", Type::I64).primary_key(&["id"])),
    ];
    for protocol in PROTOCOLS {
        let dir = directory();
        counted(dir.path(), protocol, RecordKind::Data);
        let before = fingerprint(dir.path());
        for (what, schema) in &pairs {
            let mut builder = builder(protocol, RecordKind::Data);
            builder.table(schema.clone());
            builder.procedure("add", 1, add);
            let error = refused(builder.open(dir.path()), what);
            assert!(matches!(error, Error::Mismatch(_)), "{error:?}");
            assert!(error.to_string().contains(what), "{what}: {error}");
            assert!(error.to_string().contains("counters"), "{what}: {error}");
            assert_eq!(fingerprint(dir.path()), before, "{what}: something changed on disk");
        }
    }
}

/// Promise: a flipped durable byte is refused with its file and offset, whatever happens to records
/// that no longer fit.
#[test]
fn a_flipped_byte_in_what_was_durable_is_named() {
    for (protocol, record) in [
        (Protocol::Serial, RecordKind::Command),
        (Protocol::Taurus, RecordKind::Data),
        (Protocol::Taurus, RecordKind::Command),
        (Protocol::Taurus, RecordKind::Adaptive),
        (TAURUS_2016, RecordKind::Data),
        (TAURUS_2016, RecordKind::Command),
    ] {
        let dir = directory();
        counted(dir.path(), protocol, record);
        // A second incarnation that builds on the first.
        let db = with_add(protocol, record).open(dir.path()).unwrap();
        for id in (0..7i64).chain(0..7) {
            db.call::<_, ()>("raise", &id).unwrap();
        }
        let digest = db.digest();
        db.close().unwrap();
        let segments: Vec<_> = files(dir.path())
            .into_iter()
            .filter(|path| path.to_string_lossy().contains("stream-"))
            .collect();
        let mut tried = 0;
        for path in segments {
            let good = std::fs::read(&path).unwrap();
            // Zeros are padding or unwritten. The first block is the segment's header.
            let bytes: Vec<usize> = (4096..good.len()).filter(|&at| good[at] != 0).collect();
            for at in bytes.iter().copied().step_by(bytes.len() / 6 + 1) {
                let mut bad = good.clone();
                bad[at] ^= 0x10;
                std::fs::write(&path, &bad).unwrap();
                let before = fingerprint(dir.path());
                let error = refused(with_add(protocol, record).open(dir.path()), "damage");
                let text = error.to_string();
                let Error::Log(hyades_wal::Error::Corrupt { path: named, offset, .. }) = error
                else {
                    panic!("{protocol:?} {record:?} byte {at}: {text}")
                };
                assert_eq!(named, path, "{text}");
                assert!(offset <= at as u64 && offset + 16384 > at as u64, "{at}: {text}");
                assert!(text.contains("restore"), "{text}");
                assert_eq!(fingerprint(dir.path()), before, "a refusal changed something on disk");
                tried += 1;
            }
            std::fs::write(&path, &good).unwrap();
        }
        assert!(tried > 5, "{tried}");
        let db = with_add(protocol, record).open(dir.path()).unwrap();
        assert_eq!(db.digest(), digest);
    }
}

#[test]
fn a_missing_segment_stream_or_directory_is_refused() {
    let c = Combination {
        protocol: Protocol::Taurus,
        concurrency: Concurrency::Silo,
        record: RecordKind::Command,
        streams: 4,
    };
    let (dir, second) = (directory(), directory());
    let how = || How { more_dirs: vec![second.path().to_owned()], ..How::default() };
    let opened = try_open(dir.path(), c, how()).unwrap();
    populate(&opened);
    run(&opened, 1, 300);
    let digest = opened.db.digest();
    opened.db.close().unwrap();
    let both = || (fingerprint(dir.path()), fingerprint(second.path()));

    let before = both();
    let error = refused(try_open(dir.path(), c, How::default()), "a missing directory");
    assert!(error.to_string().contains(&*second.path().to_string_lossy()), "{error}");
    assert_eq!(both(), before);

    let stream = files(second.path()).into_iter().find(|p| p.to_string_lossy().contains("stream-"));
    let segment = stream.unwrap();
    let aside = tempfile::tempdir_in(dir.path().parent().unwrap()).unwrap();
    let stream = segment.parent().unwrap();
    for gone in [segment.as_path(), stream] {
        let kept = aside.path().join("kept");
        std::fs::rename(gone, &kept).unwrap();
        let before = both();
        let error = refused(try_open(dir.path(), c, how()), "a missing file");
        let stream = stream.to_string_lossy();
        assert!(error.to_string().contains(&*stream), "{gone:?}: {error}");
        assert!(matches!(error, Error::Log(_)), "{error:?}");
        assert_eq!(both(), before, "{gone:?}: something changed on disk");
        std::fs::rename(&kept, gone).unwrap();
    }
    assert_eq!(try_open(dir.path(), c, how()).unwrap().db.digest(), digest);
}

const CHILD: &str = "HYADES_TEST_OPEN";

/// Not a test by itself: the work of the other process in the next test.
#[test]
fn another_process_opens() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    match with_add(Protocol::Taurus, RecordKind::Data).open(&dir) {
        Ok(_) => println!("child: it opened"),
        Err(error) => println!("child: {error}"),
    }
}

#[test]
fn a_directory_in_use_is_refused() {
    let dir = directory();
    let again = || with_add(Protocol::Taurus, RecordKind::Data).open(dir.path());
    let db = again().unwrap();
    count_up(&db, 1, 5);
    let before = fingerprint_at_rest(dir.path());
    let error = refused(again(), "a second opening");
    assert!(matches!(error, Error::Log(hyades_wal::Error::InUse { .. })), "{error:?}");
    let other = || {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "another_process_opens", "--nocapture"])
            .env(CHILD, dir.path())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let said = other();
    assert!(said.contains("child: the log directory") && said.contains("in use"), "{said}");
    assert_eq!(fingerprint(dir.path()), before);
    count_up(&db, 1, 5);
    drop(db);
    let said = other();
    assert!(said.contains("child: it opened"), "{said}");
    again().unwrap();
}

#[test]
fn serial_logging_with_four_streams_is_refused() {
    let dir = directory();
    let path = dir.path().join("new");
    let mut builder = Database::builder().protocol(Protocol::Serial).streams(4);
    bank_tables(&mut builder);
    let error = refused(builder.open(&path), "serial logging with four streams");
    assert!(matches!(error, Error::Misuse(_)), "{error:?}");
    assert!(error.to_string().contains("set streams to 1"), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_schema_that_contradicts_itself_is_refused() {
    let t = || Schema::new("t").column("a", Type::I64).nullable("b", Type::I64);
    let many =
        |n: usize| (0..n).fold(Schema::new("t"), |t, at| t.column(&format!("c{at}"), Type::Bool));
    for (schema, said) in [
        (t().column("a", Type::Text), "declares column \"a\" twice"),
        (t().column("c", Type::Fixed(0)), "column \"c\" of table \"t\" has no width"),
        (many(hyades::MAX_COLUMNS + 1), "has more than"),
        (t().primary_key(&["c"]), "table \"t\" has no column \"c\""),
        (t().primary_key(&["b"]), "primary key column \"b\" of table \"t\" is nullable"),
        (t().primary_key(&["a", "a"]), "a key of table \"t\" names column \"a\" twice"),
        (t().index("i", &["b", "a", "b"]), "a key of table \"t\" names column \"b\" twice"),
        (t().unique("i", &[]), "index \"i\" of table \"t\" has no columns"),
        (t().index("i", &["a"]).unique("i", &["b"]), "declares index \"i\" twice"),
    ] {
        let dir = directory();
        let path = dir.path().join("new");
        let mut builder = Database::builder();
        builder.table(schema);
        let error = refused(builder.open(&path), said);
        assert!(matches!(error, Error::Misuse(_)), "{error:?}");
        assert!(error.to_string().contains(said), "{error} does not say: {said}");
        assert!(!path.exists());
    }
}

/// Checks the error of replay for a procedure whose body has changed without a new version.
fn replay_with(body: fn(&Transaction<'_>, (i64, i64)) -> Result<i64, Abort>, part: &str) {
    for (protocol, threads, replay) in [
        (Protocol::Serial, 1, Replay::Serial),
        (Protocol::Taurus, 2, Replay::Wavefront),
        (Protocol::Taurus, 3, Replay::Pools),
        (TAURUS_2016, 2, Replay::Wavefront),
    ] {
        let dir = directory();
        let digest = counted(dir.path(), protocol, RecordKind::Command);
        let before = fingerprint(dir.path());
        let mut changed = builder(protocol, RecordKind::Command).replay(replay);
        changed = changed.recovery_threads(threads);
        changed.table(counters());
        changed.procedure("add", 1, body);
        let error = refused(changed.open(dir.path()), part);
        let text = error.to_string();
        assert!(matches!(error, Error::Recovery(_)), "{text}");
        for part in [part, "Lsn", "\"add\" version 1"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(fingerprint(dir.path()), before, "{part}: something changed on disk");
        let db = with_add(protocol, RecordKind::Command).open(dir.path()).unwrap();
        assert_eq!(db.digest(), digest);
    }
}

#[test]
fn a_procedure_that_panics_at_replay_stops_recovery() {
    replay_with(|_, _| panic!("a changed mind"), "panicked");
}

#[test]
fn a_procedure_that_aborts_at_replay_stops_recovery() {
    replay_with(|_, _| Err(Abort::User(7)), "committed when it ran");
}

#[test]
fn a_procedure_that_inserts_otherwise_at_replay_stops_recovery() {
    const LINES: Table = Table::nth(0);
    let lines = || Schema::new("lines").column("what", Type::I64);
    let open = |dir: &Path, lines_each: i64| {
        let mut builder = builder(Protocol::Taurus, RecordKind::Command);
        builder.table(lines());
        builder.procedure("write", 1, move |tx: &Transaction<'_>, what: i64| {
            for _ in 0..lines_each {
                tx.insert(LINES, &[Value::I64(what)])?;
            }
            Ok(())
        });
        builder.open(dir)
    };
    let dir = directory();
    let db = open(dir.path(), 2).unwrap();
    for what in 0..5i64 {
        db.call::<_, ()>("write", &what).unwrap();
    }
    let digest = db.digest();
    db.close().unwrap();
    for lines_each in [1, 3] {
        let text = refused(open(dir.path(), lines_each), "another number of rows").to_string();
        assert!(text.contains("Lsn") && text.contains("\"write\" version 1"), "{text}");
    }
    assert_eq!(open(dir.path(), 2).unwrap().digest(), digest);
}

#[test]
fn a_bank_opened_twice_in_a_row_is_the_same() {
    let c = Combination {
        protocol: Protocol::Taurus,
        concurrency: Concurrency::NoWait,
        record: RecordKind::Adaptive,
        streams: 2,
    };
    let dir = directory();
    let opened = open(dir.path(), c, None, 1, Replay::Wavefront);
    populate(&opened);
    let digest = opened.db.digest();
    opened.db.close().unwrap();
    assert_eq!(open(dir.path(), c, None, 2, Replay::Pools).db.digest(), digest);
}

/// Promise: a log written by another crate in the same format is refused, however little is in it.
#[test]
fn a_log_of_another_crate_is_refused() {
    let dir = directory();
    let options = hyades_wal::LogOptions::new(vec![dir.path().to_owned()], 2);
    let recovering = hyades_wal::open(options).unwrap();
    let verdict = recovering.verdict(&[]).unwrap();
    let settings =
        hyades_wal::IncarnationSettings { protocol: "theirs".into(), ..Default::default() };
    recovering.start(settings, &verdict, 0).unwrap().close().unwrap();
    let before = fingerprint(dir.path());
    let to = directory();
    let error = refused(Database::builder().open(dir.path()), "another crate's log");
    let backup = hyades::backup(&[dir.path().to_owned()], to.path()).unwrap_err();
    for error in [error, backup] {
        assert!(matches!(error, Error::Mismatch(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("\"theirs\"") && text.contains("the crate"), "{text}");
    }
    assert_eq!(fingerprint(dir.path()), before, "a refusal changed something on disk");
}
