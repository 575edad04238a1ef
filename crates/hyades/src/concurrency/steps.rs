//! Commit steps shared by the concurrency controls.

use super::state::TxnState;
use super::{ConcurrencyControl, inherit};
use crate::engine::Engine;
use crate::engine::active::ReaderTimes;
use crate::error::Abort;
use crate::logging::draft::{Call, Draft, RecordPlace, Reserved};
use crate::logging::record::RecordKind;
use crate::logging::write::{Pending, Write, final_writes};
use crate::logging::{LoggingProtocol, Needs, RowRef};
use crate::storage::Stamp;
use crate::storage::old_versions::OldVersionWriter;
use crate::storage::record::{Record, word};
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::phase::{self, Phase};
use hyades_platform::reclaim::Guard;
use hyades_platform::sync::checker_fence;
use hyades_wal::Writer;
use std::sync::atomic::{Ordering, fence};

/// The inputs of a commit besides the transaction's sets: the place and the form of the log record.
pub struct Commit<'a> {
    /// `None` without a log.
    pub writer: Option<&'a mut Writer>,
    pub stream: usize,
    pub kind: RecordKind,
    pub call: Option<Call<'a>>,
    /// The last epoch whose beginning the session has logged.
    pub stated_epoch: EpochNumber,
    /// The stream of the session's last record.
    pub last_stream: usize,
    /// The needs of the predecessor in the session's order, if not durable.
    pub order: Option<&'a Needs>,
    /// Buffer for the record.
    pub payload: &'a mut Vec<u8>,
}

/// A committed transaction: its writes are installed.
pub struct Committed {
    /// The place of the log record, and the version.
    pub placed: RecordPlace,
    /// The positions that the frontier has to reach before the caller's answer.
    pub needs: Needs,
}

/// Under [`RecordKind::Adaptive`] a transaction is logged as data if its replay as a command would
/// finish this many commands after all other replay: the transaction is in a dependency chain that
/// delays replay, and a short data record takes less time there.
const ADAPTIVE_LAG: u64 = 48;

/// Longer data records usually take longer to read and apply than a command takes to run, so they
/// would not shorten a chain.
const ADAPTIVE_DATA_BYTES: usize = 1536;

/// [`RecordKind::Adaptive`] logs data, which needs no execution at replay, if the data record is at
/// most this much longer than the command.
const ADAPTIVE_SLACK_BYTES: usize = 32;

/// Returns the next TID: above every version read or overwritten, and in the current epoch. Called
/// while the write set is locked.
///
/// # Errors
/// A conflict, if the current epoch has no such TID, and is at the limit of epochs.
#[inline]
pub fn next_tid<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &TxnState<'_, C, P>,
) -> Result<Tid, Abort> {
    let tid = state.max_tid.next_in(&engine.epoch).ok_or(Abort::Conflict)?;
    if broken!(MarkEarly) && tid.sequence().is_multiple_of(4) {
        // Makes the end of an epoch likely between the read of the epoch and the reservation.
        std::thread::sleep(std::time::Duration::from_micros(300));
    }
    Ok(tid)
}

/// Maximum length of a row id in a record, in bytes.
const MOST_ID_BYTES: usize = 10;

/// Whether the transaction is logged as a command.
#[inline]
pub fn as_command<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &TxnState<'_, C, P>,
    commit: &Commit<'_>,
) -> bool {
    let (Some(call), Some(writer)) = (commit.call, &commit.writer) else { return false };
    // Row ids are part of a command's head, which is never split among frames.
    let given = state.draws.row_ids_used.len();
    if given > 0 && given * MOST_ID_BYTES > writer.max_payload() / 2 {
        return false;
    }
    match commit.kind {
        RecordKind::Data => false,
        RecordKind::Command => true,
        RecordKind::Adaptive => {
            let data: usize = state
                .final_writes()
                .map(|w| match w.pending {
                    Pending::Put(row) => row.len() + 4,
                    Pending::Delta(_, delta) => delta.len() + w.record.key().len() + 6,
                    Pending::Delete => w.record.key().len() + 2,
                })
                .sum();
            let critical = || engine.protocol.replay_lag(state.stamp) >= ADAPTIVE_LAG;
            (data > ADAPTIVE_DATA_BYTES || !critical())
                && data > call.arguments.len() + ADAPTIVE_SLACK_BYTES
        }
    }
}

/// Logs the transaction: reserves its frame, the order point.
#[inline(always)]
pub fn append<'w, C: ConcurrencyControl<P>, P: LoggingProtocol>(
    control: &C,
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'_, C, P>,
    commit: &'w mut Commit<'_>,
    tid: Tid,
    command: bool,
) -> Reserved<'w> {
    let Some(writer) = commit.writer.as_deref_mut() else { return Reserved::nothing() };
    let states_epoch = tid.epoch() != commit.stated_epoch;
    let states_floor = states_epoch || commit.stream != commit.last_stream;
    let versions = control.stated_versions(engine, state, states_floor, command);
    let draft = Draft {
        writer,
        stream: commit.stream,
        tid,
        command: commit.call.filter(|_| command),
        has_read: state.has_read,
        states_epoch,
        whole_rows: engine.whole_rows,
        epoch: &engine.epoch,
        tables: &engine.tables,
        writes: &state.writes,
        determinism: &state.draws.determinism,
        row_ids: &state.draws.row_ids_used,
        versions,
        payload: commit.payload,
    };
    let _measured = phase::enter(Phase::Stamp);
    if let Some(order) = commit.order {
        engine.protocol.follow(state.stamp, order);
    }
    engine.protocol.append(state.stamp, draft)
}

/// A row as its protocol knows the row.
#[inline(always)]
fn row<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    table: u32,
    record: &Record<C::Row>,
) -> RowRef<'_, P::RowStamp> {
    RowRef::row(table, record).with_stamp(C::stamp(&record.stamp))
}

/// Raises the read stamps of everything read, before validation.
#[inline(always)]
pub fn publish_reads<'s, C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'s, C, P>,
) {
    let _measured = phase::enter(Phase::Tracking);
    // A row locked for writing but not written counts as read. An overwritten row gets the write
    // stamp, which is higher.
    for read in state.reads.iter().filter(|read| !read.overwritten) {
        let row = row::<C, P>(read.table, read.record);
        engine.protocol.publish_read(row, state.stamp);
    }
    for held in state.held.iter().filter(|held| !held.overwritten) {
        let row = row::<C, P>(held.table, held.record);
        engine.protocol.publish_read(row, state.stamp);
    }
    for gap in &state.gaps {
        engine.protocol.publish_read(RowRef::gap(C::stamp(gap.stamp())), state.stamp);
    }
    if let Some(sums) = &state.sums
        && !broken!(SkipSumReaders)
    {
        for stamp in sums.read_stamps() {
            engine.protocol.publish_read(RowRef::gap(C::stamp(stamp)), state.stamp);
        }
    }
    // Raising a read stamp, or finding a high enough stamp, is SeqCst, and so are the loads of the
    // following validation. A writer's lock and later load of the stamps are in the same total
    // order: either the validation sees the lock, or the writer sees the stamp.
    checker_fence();
}

/// When the reads of a transaction are valid, beside its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Valid {
    /// The reads are valid now, too.
    Now,
    /// Some reads are not valid now, or may not be.
    Late,
}

/// Validates and logs the transaction, which may be late unless it is a `command`. A command
/// reserves its frame and raises the read stamps of all its reads before validation (E4, ii; C8). A
/// command found late only then fails.
#[inline(always)]
pub fn validate_and_append<'s, 'w, C: ConcurrencyControl<P>, P: LoggingProtocol>(
    control: &C,
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'s, C, P>,
    commit: &'w mut Commit<'_>,
    (tid, command): (Tid, bool),
    validate: impl Fn(&TxnState<'s, C, P>) -> Option<Valid>,
) -> Result<Reserved<'w>, Abort> {
    if !command {
        validate(state).ok_or(Abort::Conflict)?;
        return Ok(append(control, engine, state, commit, tid, false));
    }
    let reserved = append(control, engine, state, commit, tid, true);
    publish_reads(engine, state);
    match validate(state) {
        Some(Valid::Now) => Ok(reserved),
        Some(Valid::Late) if broken!(LateCommands) => Ok(reserved),
        _ => {
            reserved.void();
            Err(Abort::Conflict)
        }
    }
}

/// Installs and publishes the writes. `lock` is called before the change of a row. `release` is
/// called with the new version word of each row, and stores the word; the store may end the row's
/// protection.
#[inline(always)]
pub fn install<'s, C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'s, C, P>,
    tid: Tid,
    lock: impl Fn(&Record<C::Row>),
    release: impl Fn(&Record<C::Row>, u64),
) {
    install_each::<C, P, true>(engine, state, tid, lock, release);
}

/// Like [`install`], for rows without stamps.
#[inline(always)]
pub fn install_unstamped<'s, C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'s, C, P>,
    tid: Tid,
    lock: impl Fn(&Record<C::Row>),
    release: impl Fn(&Record<C::Row>, u64),
) {
    install_each::<C, P, false>(engine, state, tid, lock, release);
}

#[inline(always)]
fn install_each<'s, C: ConcurrencyControl<P>, P: LoggingProtocol, const STAMPS: bool>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'s, C, P>,
    tid: Tid,
    lock: impl Fn(&Record<C::Row>),
    release: impl Fn(&Record<C::Row>, u64),
) {
    let keeps = engine.snapshots.are_below(tid) || !state.workspace.readers.is_empty();
    for write in final_writes(&state.writes) {
        let table = &engine.tables[write.table as usize];
        lock(write.record);
        if keeps {
            let overwritten = (tid, &state.workspace.readers);
            keep_overwritten(
                engine,
                table,
                write,
                overwritten,
                &mut state.workspace.old_versions,
                state.guard,
            );
        }
        let seen = write.record.word.load(Ordering::Relaxed);
        let there = write.install(
            (table, seen),
            &state.workspace.usage,
            state.guard,
            &mut state.workspace.scratch,
        );
        let row = row::<C, P>(write.table, write.record);
        let late = broken!(StampAfterRelease);
        if STAMPS && !late {
            let _measured = phase::enter(Phase::Tracking);
            engine.protocol.publish_write(row, state.stamp);
        }
        if let Some(sums) = &mut state.sums {
            sums.installed(write.record, tid, |to| {
                inherit::<C, P>(&engine.protocol, to, &write.record.stamp, state.stamp);
            });
        }
        let absent = if there { 0 } else { word::ABSENT };
        release(write.record, word::of(tid) | absent);
        if STAMPS && late {
            std::thread::yield_now();
            engine.protocol.publish_write(row, state.stamp);
        }
    }
}

/// Does nothing, for a concurrency control that protects rows before they are installed.
#[inline(always)]
pub fn already_locked<S>(_: &Record<S>) {}

/// Keeps a row, before transaction `tid` overwrites the row, for readers of an earlier state. The
/// caller has the row's write protection until storing a new version word.
#[cold]
fn keep_overwritten<P: LoggingProtocol, S: Stamp>(
    engine: &Engine<P, S>,
    table: &TableData<S>,
    write: &Write<'_, S>,
    (tid, readers): (Tid, &ReaderTimes),
    writer: &mut OldVersionWriter,
    guard: &Guard,
) {
    let record = write.record;
    let seen = record.set_locked();
    if let Some(cut) = engine.cut.before(tid) {
        engine.cut.save(table, (record, seen), cut);
    }
    let changed = || write.changed_bytes(table);
    let how = (&*engine.epoch, guard);
    engine.snapshots.keep(writer, (record, seen), (tid, readers), changed, how);
    // A reader that sees a word of the new row finds the old row kept.
    fence(Ordering::Release);
}

/// Ends a transaction without writes or with discarded writes: returns the positions of its reads,
/// for which the transaction has to wait.
#[inline(always)]
pub fn end_read_only<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'_, C, P>,
    valid: bool,
) -> Result<Needs, Abort> {
    if !valid {
        return Err(Abort::Conflict);
    }
    let _measured = phase::enter(Phase::Tracking);
    let mut needs = Needs::default();
    if !broken!(AckReadersAtOnce) {
        engine.protocol.observe_versions(state.max_tid, state.stamp);
        engine.protocol.needs(state.stamp, None, &mut needs);
    }
    Ok(needs)
}

/// Returns the result of a commit with installed writes.
#[inline(always)]
pub fn committed<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'_, C, P>,
    placed: RecordPlace,
) -> Committed {
    let _measured = phase::enter(Phase::Tracking);
    let mut needs = Needs::default();
    engine.protocol.needs(state.stamp, placed.position, &mut needs);
    Committed { placed, needs }
}

impl Committed {
    /// A transaction that wrote nothing.
    pub fn read_only(needs: Needs) -> Self {
        Committed { placed: RecordPlace::default(), needs }
    }
}
