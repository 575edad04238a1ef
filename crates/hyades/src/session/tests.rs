use super::*;
use crate::checkpoint::{self, CheckpointSettings};
use crate::concurrency::no_wait::NoWait;
use crate::concurrency::silo::Silo;
use crate::concurrency::{CommandReplay, ControlSettings};
use crate::engine::Engine;
use crate::erased::KEPT_BYTES;
use crate::logging::draft::{Draft, Reserved};
use crate::logging::{Needs, RowRef};
use crate::retry::RetrySettings;
use crate::storage::Stamp;
use crate::storage::hash_index::HashSecret;
use crate::storage::schema::Schema;
use crate::storage::table::TableData;
use crate::storage::value::Type;
use crate::transaction::access;
use hyades_platform::device::MemoryDevice;
use hyades_platform::epoch::{Epoch, EpochNumber};
use hyades_wal::{IncarnationSettings, LogOptions, Lsn};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A protocol that panics on demand, while the write set is locked.
struct Panics(AtomicBool);

impl LoggingProtocol for Panics {
    type RowStamp = ();
    type TxnStamp = ();

    fn txn_stamp(&self) {}
    fn follow(&self, _: &mut (), _: &Needs) {}

    fn append<'w, M: Stamp>(&self, _: &mut (), draft: Draft<'_, 'w, M>) -> Reserved<'w> {
        assert!(!self.0.load(Ordering::Relaxed), "told to");
        draft.compose(|_| ()).reserve()
    }

    fn publish_write(&self, _: RowRef<'_, ()>, _: &mut ()) {
        assert!(!self.0.load(Ordering::Relaxed), "told to");
    }

    fn needs(&self, _: &mut (), _: Option<(usize, Lsn)>, _: &mut Needs) {}
}

const NUMBERS: access::Table = access::Table::nth(0);

/// Creates the shared state of sessions, with a table of numbers.
fn sessions<C: Commits<Panics>>() -> Arc<Sessions<C, Panics>> {
    let schema = Schema::new("numbers").column("n", Type::I64).primary_key(&["n"]);
    let tables = Arc::new(vec![TableData::new(&schema, 0, 0, HashSecret::KNOWN)]);
    let protocol = Panics(AtomicBool::new(false));
    let engine =
        Engine::new(tables, protocol, Arc::new(Epoch::new(EpochNumber(1))), Arc::default());
    let control = C::new(&ControlSettings {
        patience: 0,
        partitions: 4,
        may_wait: true,
        snapshot_isolation: false,
        speculates: false,
        commands: CommandReplay::Never,
    });
    Arc::new(Sessions::new(engine, control, RetrySettings::default(), u64::MAX))
}

/// Creates a log of a single stream, in memory.
fn log(dir: &Path) -> Log {
    let mut options = LogOptions::new(vec![dir.to_owned()], 1);
    options.device = MemoryDevice::shared();
    let recovering = hyades_wal::open(options).unwrap();
    let verdict = recovering.verdict(&[]).unwrap();
    recovering.start(IncarnationSettings::default(), &verdict, 1).unwrap()
}

fn run<C: Commits<Panics>>(
    session: &mut EngineSession<C, Panics>,
    body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
) -> Result<(), Error> {
    session.run(None, body, &mut Answer::default())
}

fn put<C: Commits<Panics>>(session: &mut EngineSession<C, Panics>) -> Result<(), Error> {
    run(session, &mut |tx| match tx.overwrite(NUMBERS, &[1i64.into()]) {
        Ok(()) => Verdict::Commit,
        Err(_) => Verdict::Abandon,
    })
}

/// Another session, and a checkpoint, meet the rows that the panic left locked: neither retries for
/// ever.
fn the_others_are_told<C: Commits<Panics>>() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path());
    let shared = sessions();
    let session = || EngineSession::<C, Panics>::new(shared.clone(), Some(log.clone())).unwrap();
    let (mut one, mut other) = (session(), session());
    put(&mut one).unwrap();
    shared.engine.protocol.0.store(true, Ordering::Relaxed);
    let panic = catch_unwind(AssertUnwindSafe(|| put(&mut one)));
    assert!(panic.is_err());
    shared.engine.protocol.0.store(false, Ordering::Relaxed);
    assert!(matches!(put(&mut other), Err(Error::Poisoned(_))));
    let stop = AtomicBool::new(false);
    let taken = checkpoint::write(&shared.engine, &log, &CheckpointSettings::default(), &stop);
    assert!(matches!(taken, Err(Error::Poisoned(_))));
}

#[test]
fn a_commit_that_panics_stops_the_log_and_nobody_waits_for_its_locks() {
    the_others_are_told::<Silo>();
    the_others_are_told::<NoWait>();
}

#[test]
fn a_body_that_panics_leaves_nothing_locked() {
    let shared = sessions();
    let mut session = EngineSession::<NoWait, Panics>::new(shared.clone(), None).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        run(&mut session, &mut |tx| {
            tx.overwrite(NUMBERS, &[1i64.into()]).unwrap();
            panic!("told to");
        })
    }));
    assert!(panic.is_err());
    put(&mut EngineSession::<NoWait, Panics>::new(shared, None).unwrap()).unwrap();
}

/// The lists of a transaction's writes and deletions are freed, too.
#[test]
fn an_idle_session_keeps_little_of_the_room_of_a_large_transaction() {
    let mut session = EngineSession::<Silo, Panics>::new(sessions(), None).unwrap();
    let mut all = |change: fn(&Transaction<'_>, i64)| {
        let mut body = |tx: &Transaction<'_>| {
            (0..5_000).for_each(|n| change(tx, n));
            Verdict::Commit
        };
        run(&mut session, &mut body).unwrap();
    };
    all(|tx, n| tx.overwrite(NUMBERS, &[n.into()]).unwrap());
    all(|tx, n| assert!(tx.delete(NUMBERS, n).unwrap()));
    assert!(session.workspace.room_bytes() > KEPT_BYTES);
    assert!(session.garbage.room_bytes() > KEPT_BYTES);
    // Until the epoch of the deletions is over.
    while session.has_unused() {
        session.free_unused();
    }
    assert!(session.garbage.is_empty());
    assert!(session.workspace.room_bytes() <= KEPT_BYTES);
    assert!(session.garbage.room_bytes() <= KEPT_BYTES);
}
