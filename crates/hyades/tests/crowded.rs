//! More rows with their own LSN vectors than slots in memory. Promise: vectors get coarser, and no
//! transaction stops.
#![allow(missing_docs)]

mod common;
use common::held::HeldDevice;
use common::{directory, watched::watched};
use hyades::{
    Builder, Column, Concurrency, Database, Error, ProcedureId, Protocol, RecordKind, Schema,
    Table, Transaction, Type,
};
use hyades_platform::device::{Device, FileDevice};
use hyades_schemes::{PARTITIONED, TAURUS_2016, all_controls};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const ROWS: i64 = 500;
const NUMBERS: Table = Table::nth(0);
const NUMBER: Column<i64> = Column::at(1);

/// One test at a time: one breaks a rule, and a broken rule is global to the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result for each row depends on the order of all transactions that access the row.
fn mix(tx: &Transaction<'_>, (to, from): (i64, i64)) -> Result<(), hyades::Abort> {
    let seen = tx.get(NUMBERS, from)?.map_or(1, |row| row.get(NUMBER));
    let old = tx.get(NUMBERS, to)?.map_or(7, |row| row.get(NUMBER));
    let new = old.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seen ^ to);
    tx.upsert(NUMBERS, &[to.into(), new.into()]).map(|_| ())
}

struct Run {
    protocol: Protocol,
    concurrency: Concurrency,
    record: RecordKind,
    hot_rows_bytes: u64,
}

impl Run {
    fn builder(&self, second: PathBuf, device: Option<Arc<dyn Device>>) -> (Builder, ProcedureId) {
        let mut builder = Database::builder()
            .protocol(self.protocol)
            .concurrency(self.concurrency)
            .record(self.record)
            .streams(4)
            .recovery_threads(3)
            .log_dir(second)
            .log_settings(|log| {
                log.research.anchor_interval_bytes = 1 << 40;
                log.research.delta_bytes = 1 << 40;
                log.hot_rows_bytes = self.hot_rows_bytes;
                log.device = device;
            });
        builder.table(
            Schema::new("numbers")
                .column("id", Type::I64)
                .column("number", Type::I64)
                .primary_key(&["id"]),
        );
        let mix = builder.procedure("mix", 1, mix);
        (builder, mix)
    }

    /// Runs commands on two threads, with one of two devices held if `held`, so that no row can be
    /// evicted. Then waits for all acknowledgements and reopens. Returns whether the state is the
    /// same.
    fn is_recovered(&self, count: u64, held: bool) -> Result<bool, Error> {
        let (first, second) = (directory(), directory());
        let name = second.path().file_name().unwrap().to_string_lossy().into_owned();
        let device = HeldDevice::new(FileDevice::shared());
        let (builder, mix) =
            self.builder(second.path().to_owned(), Some(Arc::new(device.clone()) as _));
        let db = builder.open(first.path()).unwrap();
        let gate = held.then(|| device.hold(&name));
        std::thread::scope(|scope| {
            let run = |seed| {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut session = db.session().unwrap();
                let mut tickets = Vec::new();
                for _ in 0..count {
                    let arguments = (rng.i64(0..ROWS), rng.i64(0..ROWS));
                    let (outcome, ticket) = session.call(mix, &arguments).unwrap();
                    outcome.unwrap();
                    tickets.push(ticket);
                }
                tickets
            };
            let threads = [1, 2].map(|seed| scope.spawn(move || run(seed)));
            let tickets = threads.map(|thread| thread.join().unwrap());
            drop(gate);
            tickets.into_iter().flatten().for_each(|ticket| ticket.wait().unwrap());
        });
        let digest = db.digest();
        db.close().unwrap();
        Ok(self.reopened(first.path(), second.path())? == digest)
    }

    fn reopened(&self, first: &Path, second: &Path) -> Result<u64, Error> {
        Ok(self.builder(second.to_owned(), None).0.open(first)?.digest())
    }
}

fn all(hot_rows_bytes: u64) -> Vec<Run> {
    let mut all = Vec::new();
    for protocol in [Protocol::Taurus, TAURUS_2016] {
        for concurrency in all_controls().filter(|control| control.runs_under(protocol)) {
            for record in [RecordKind::Command, RecordKind::Adaptive, RecordKind::Data] {
                if record == RecordKind::Data || concurrency.takes_commands_under(protocol) {
                    all.push(Run { protocol, concurrency, record, hot_rows_bytes });
                }
            }
        }
    }
    all
}

#[test]
fn where_no_slot_is_left_all_is_acknowledged_and_recovered() {
    let (_alone, _watched) = (alone(), watched("crowded"));
    for run in all(64 << 10) {
        let what = (run.protocol, run.concurrency, run.record);
        assert!(run.is_recovered(10_000, true).unwrap(), "{what:?}");
        assert!(run.is_recovered(10_000, false).unwrap(), "{what:?}");
    }
}

/// Mutation test: if rows without a slot counted as evicted, recovery would differ.
#[cfg(feature = "mutations")]
#[test]
fn without_the_common_slot_it_is_not() {
    use hyades_platform::mutation::{self, Mutation};
    let (_alone, _watched) = (alone(), watched("broken rules"));
    // Under partitioned execution vectors belong to partitions, which are too few to lack slots.
    for concurrency in all_controls().filter(|control| *control != PARTITIONED) {
        let (protocol, record) = (Protocol::Taurus, RecordKind::Command);
        let run = Run { protocol, concurrency, record, hot_rows_bytes: 64 << 10 };
        mutation::set(Some(Mutation::DropCommonSlotVectors));
        // Replay may also detect by itself that a command wrote something else than when it ran.
        let unnoticed = (0..20).all(|_| matches!(run.is_recovered(10_000, true), Ok(true)));
        mutation::set(None);
        assert!(!unnoticed, "{concurrency:?}");
    }
}
