//! Panics in the middle of a commit, while others wait for their turns.

use super::Partitioned;
use hyades::plug::{
    Draft, LoggingProtocol, Needs, Pair, PluggedControl, PluggedProtocol, Reserved, RowRef,
    RunsUnder, Schemes, Stamp, StartContext, StartsOnLog,
};
use hyades::{Concurrency, Database, Error, Protocol, Schema, Session, Table, Type};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A protocol that panics on demand, while the transaction holds its partitions.
#[derive(Default)]
struct Panics;

static PANICS: AtomicBool = AtomicBool::new(false);

impl LoggingProtocol for Panics {
    type RowStamp = ();
    type TxnStamp = ();

    fn txn_stamp(&self) {}
    fn follow(&self, _: &mut (), _: &Needs) {}

    fn append<'w, M: Stamp>(&self, _: &mut (), draft: Draft<'_, 'w, M>) -> Reserved<'w> {
        assert!(!PANICS.load(Ordering::Relaxed), "told to");
        draft.compose(|_| ()).reserve()
    }

    fn publish_write(&self, _: RowRef<'_, ()>, _: &mut ()) {
        assert!(!PANICS.load(Ordering::Relaxed), "told to");
    }

    fn needs(&self, _: &mut (), _: Option<(usize, hyades::wal::Lsn)>, _: &mut Needs) {}
}

impl StartsOnLog for Panics {
    const NAME: &'static str = "panics";
    const VECTORS: bool = false;

    fn start(_: &StartContext<'_>) -> Self {
        Panics
    }
}

impl RunsUnder<Panics> for Partitioned<Panics> {}

const fn row(name: &'static str) -> PluggedProtocol {
    PluggedProtocol {
        name,
        stamps: |_| Panics::STAMPS,
        takes_commands: false,
        takes_data: true,
        has_one_stream: true,
        control: None,
        register,
    }
}

static WITH_LOG: PluggedProtocol = row(Panics::NAME);
static WITHOUT_LOG: PluggedProtocol = row("panics-without-log");
static CONTROL: PluggedControl =
    PluggedControl { name: "partitioned-panics", has_partitions: true, register };
const CONCURRENCY: Concurrency = Concurrency::Plugged(&CONTROL);

static SCHEMES: Schemes = Schemes {
    protocols: &[&WITH_LOG, &WITHOUT_LOG],
    controls: &[&CONTROL],
    pairs: &[
        &Pair::on_log::<Partitioned<Panics>, Panics>(CONCURRENCY, Protocol::Plugged(&WITH_LOG)),
        &Pair::without_log::<Partitioned<Panics>, Panics>(
            CONCURRENCY,
            Protocol::Plugged(&WITHOUT_LOG),
        ),
    ],
};

fn register() {
    hyades::plug::register(&SCHEMES);
}

/// The tests share `PANICS`.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const NUMBERS: Table = Table::nth(0);

/// A database with a table of numbers in four partitions.
fn open(dir: &tempfile::TempDir, protocol: &'static PluggedProtocol) -> Database {
    let builder = Database::builder().protocol(Protocol::Plugged(protocol));
    let mut builder = builder.concurrency(CONCURRENCY).partitions(4).streams(1);
    let schema = Schema::new("numbers").column("n", Type::I64);
    builder.table(schema.primary_key(&["n"]).partition_by("n"));
    builder.open(dir.path()).unwrap()
}

fn put(session: &mut Session) -> Result<(), Error> {
    session.try_submit(|tx| tx.overwrite(NUMBERS, &[1i64.into()]))?.0?;
    Ok(())
}

/// Another session waits for its turn in the partition that the panic leaves held, and is told; so
/// are later sessions.
fn those_that_wait_are_told(protocol: &'static PluggedProtocol) {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, protocol);
    let session = || db.session().unwrap();
    put(&mut session()).unwrap();
    let mut one = session();
    std::thread::scope(|scope| {
        let mut waiting = None;
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _ = one.try_submit(|tx| {
                tx.overwrite(NUMBERS, &[1i64.into()])?;
                let mut other = session();
                waiting = Some(scope.spawn(move || put(&mut other)));
                std::thread::sleep(Duration::from_millis(20));
                PANICS.store(true, Ordering::Relaxed);
                Ok::<_, hyades::Abort>(())
            });
        }));
        assert!(panic.is_err());
        PANICS.store(false, Ordering::Relaxed);
        assert!(matches!(waiting.unwrap().join().unwrap(), Err(Error::Poisoned(_))));
    });
    assert!(matches!(put(&mut session()), Err(Error::Poisoned(_))));
}

#[test]
fn a_commit_that_panics_ends_all_waiting_for_turns() {
    let _alone = alone();
    those_that_wait_are_told(&WITH_LOG);
    those_that_wait_are_told(&WITHOUT_LOG);
}

/// A commit in a destructor, during an unrelated panic, stops nothing.
#[test]
fn a_commit_beside_an_unrelated_panic_stops_nothing() {
    struct PutsInDrop(Session);
    impl Drop for PutsInDrop {
        fn drop(&mut self) {
            put(&mut self.0).unwrap();
        }
    }
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, &WITHOUT_LOG);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _puts = PutsInDrop(db.session().unwrap());
        panic!("told to");
    }));
    assert!(panic.is_err());
    put(&mut db.session().unwrap()).unwrap();
}
