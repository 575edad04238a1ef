//! The options of a database.

use crate::data_component::MOST_SESSIONS;
use crate::error::Error;
use hyades_wal::LogOptions;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The time of logging a transaction's writes. Other transactions see the writes after the commit,
/// either way, and the transaction's frames are in a single stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateLogging {
    /// All in a single record, at the commit. A transaction too large for a frame has parts before
    /// the record, also logged at the commit.
    #[default]
    AtCommit,
    /// Each in a separate part, at once, as in the paper; the record then has none. The logged
    /// writes of an aborted transaction stay in the log, without effect.
    AtOnce,
}

/// The read-only transactions with a log record of their own. No record is necessary: each
/// transaction waits until the versions read are durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReaderRecords {
    /// None.
    #[default]
    Never,
    /// Read-only transactions with a read of a version not durable yet, as in the paper (section
    /// 2.3.1).
    IfNeeded,
    /// All: avoided by the paper.
    Always,
}

/// The options of a database.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The log: directories, streams, buffers, and the device. A key and its value have to fit into
    /// a quarter of a buffer, and of a segment, and into 1 MiB: see
    /// [`Transaction::put`](crate::Transaction::put).
    pub log: LogOptions,
    /// The budget for versions kept in memory, and for the further data of scans, in bytes: 4 KiB
    /// to 1 TiB. Values are counted without the allocator's overhead, from the handing to a
    /// transaction on. Each session may exceed the budget by a key and a value. Data may be larger:
    /// recently read or written versions are kept, twice-read keys longer. Where versions are kept
    /// for an older, open transaction, and the budget is exhausted, the versions go, and the
    /// transaction ends with [`Abort::SnapshotTooOld`](crate::Abort::SnapshotTooOld) when in need
    /// of a dropped version. Default: 64 MiB.
    pub memory_bytes: usize,
    /// The most sessions at a time: 1 to 65,536. Default: 256.
    pub sessions: usize,
    /// The entries of the transaction table: a power of two from 16 to 2^24, above the number of
    /// sessions. Best above the number of transactions begun while a transaction is made durable:
    /// with fewer entries transactions wait for durability. An entry takes 64 bytes, and 8 for each
    /// stream of the log from the seventh on, beside `memory_bytes`. Default: 131,072.
    pub transactions: usize,
    /// Whether there are scans: [`Transaction::scan`](crate::Transaction::scan). Scans cost an
    /// ordered index of the written keys in memory, about 40 bytes each, locked by each first write
    /// of a key; and each scan of possible concern to an active transaction is noted, in up to an
    /// eighth of `memory_bytes`. Default: true.
    pub ranges: bool,
    /// The time a transaction waits for the older writer of a version to read, before an abort.
    /// Default: 1 ms.
    pub patience: Duration,
    /// The time a transaction waits for younger transactions to leave where the budget of memory is
    /// exhausted. The youngest transaction with writes is aborted first, at its next write; after
    /// this time the waiting transaction is aborted itself. Default: 100 ms.
    pub room_patience: Duration,
    /// The permitted time of a call of the data component while transactions wait for the call:
    /// transactions in need of room, since committed, unapplied operations take up the budget, or
    /// since the log has become long during a checkpoint. After a longer time the transactions end
    /// with [`Error::Stalled`](crate::Error::Stalled), and so does a close. A slow data component
    /// with progress holds writers back, to its own speed. Default: 30 s.
    pub store_patience: Duration,
    /// The number of runs of a closure before its last [`Abort`](crate::Abort) is returned: at
    /// least 1. Default: 10,000.
    pub attempts: u64,
    /// The bytes of waiting records up to which operations younger than an active transaction are
    /// kept from the data component, so that the transaction finds the right versions there.
    /// Beyond, the transaction may end with
    /// [`Abort::SnapshotTooOld`](crate::Abort::SnapshotTooOld). Default: 16 MiB.
    pub lag_bytes: usize,
    /// The threads for applying operations to the data component, the fewest and the most: 1 to 64.
    /// Each applies a piece of a batch, where the data component [takes pieces at the same
    /// time](crate::DataComponent::may_cut). A further thread starts while the waiting operations
    /// become more, and a processor is idle or more than half of `lag_bytes` waits; a thread
    /// without work for a second ends. Default: 1 to the number of processors, at most 8.
    pub proxy_threads: RangeInclusive<usize>,
    /// The bytes of the log that redo would read at which a checkpoint is taken, unless active
    /// transactions hold the resume point back, so that the point would move by less than a quarter
    /// of `redo_bytes`. Default: 64 MiB.
    pub redo_bytes: u64,
    /// The most threads reading the data component for continuations, for example
    /// [`Transaction::get_async`](crate::Transaction::get_async): 1 to 1,024. Threads are started
    /// on demand. Default: 8.
    pub reader_threads: usize,
    /// The time of logging a transaction's writes. Default: at the commit.
    pub update_logging: UpdateLogging,
    /// The read-only transactions with a log record. Default: none.
    pub reader_records: ReaderRecords,
}

impl Options {
    /// The defaults, over a log.
    pub fn new(log: LogOptions) -> Self {
        let sessions = log.max_writers;
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self {
            log,
            memory_bytes: 64 << 20,
            sessions,
            transactions: 1 << 17,
            ranges: true,
            patience: Duration::from_millis(1),
            room_patience: Duration::from_millis(100),
            store_patience: Duration::from_secs(30),
            attempts: 10_000,
            lag_bytes: 16 << 20,
            proxy_threads: 1..=processors.min(8),
            redo_bytes: 64 << 20,
            reader_threads: 8,
            update_logging: UpdateLogging::default(),
            reader_records: ReaderRecords::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Invalid(what));
        if !(4 << 10..=1 << 40).contains(&self.memory_bytes) {
            return wrong(format!("{} bytes of memory: choose 4 KiB to 1 TiB", self.memory_bytes));
        }
        if !(1..=MOST_SESSIONS).contains(&self.sessions) || self.sessions > self.log.max_writers {
            let writers = self.log.max_writers;
            return wrong(format!(
                "{} sessions: choose 1 to 65536, and no more than the log's {writers} writers",
                self.sessions
            ));
        }
        if !self.transactions.is_power_of_two() || !(16..=1 << 24).contains(&self.transactions) {
            return wrong(format!(
                "a transaction table of {} entries: choose a power of two from 16 to 2^24",
                self.transactions
            ));
        }
        // An active transaction keeps its entry, and each session may have an active transaction.
        if self.transactions <= self.sessions {
            return wrong(format!(
                "a transaction table of {} entries for {} sessions: choose more entries than \
                 sessions",
                self.transactions, self.sessions
            ));
        }
        if !(1..=1024).contains(&self.reader_threads) {
            return wrong(format!("{} reader threads: choose 1 to 1024", self.reader_threads));
        }
        let (fewest, most) = (*self.proxy_threads.start(), *self.proxy_threads.end());
        if fewest == 0 || fewest > most || most > 64 {
            return wrong(format!(
                "{fewest} to {most} threads of the proxy: choose 1 to 64, the fewest first"
            ));
        }
        if self.attempts == 0 {
            return wrong("a transaction needs at least one attempt".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the tables of the largest size, too large for a test's memory.
    #[test]
    fn the_largest_transaction_tables_are_accepted_and_larger_ones_are_not() {
        let mut options = Options::new(LogOptions::new(Vec::new(), 64));
        options.log.max_writers = MOST_SESSIONS;
        for sessions in [1, MOST_SESSIONS] {
            options.sessions = sessions;
            for (entries, fits) in
                [(1 << 17, true), (1 << 24, true), ((1 << 24) + 1, false), (1 << 25, false)]
            {
                options.transactions = entries;
                assert_eq!(options.check().is_ok(), fits, "{entries} for {sessions}");
            }
        }
        // As many entries as sessions are too few by one.
        options.transactions = MOST_SESSIONS;
        assert!(options.check().is_err());
    }
}
