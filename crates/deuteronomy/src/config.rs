//! The options of a database.

use crate::data_component::MOST_SESSIONS;
use crate::error::Error;
use hyades_wal::LogOptions;
use std::ops::RangeInclusive;
use std::time::Duration;

/// When the writes of a transaction are logged. Others see them when it has committed, either way,
/// and its frames are in one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateLogging {
    /// All in one record, when it commits. A transaction that does not fit into a frame has parts
    /// before that, which are logged then, too.
    #[default]
    AtCommit,
    /// Each in a part of its own, at once, as in the paper; the record then has none. What an
    /// aborted transaction has logged stays in the log, and counts for nothing.
    AtOnce,
}

/// Which transactions that only read log a record of their own. None has to: each waits until what
/// it has read is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReaderRecords {
    /// None.
    #[default]
    Never,
    /// Those that have read what is not durable yet, as in the paper (section 2.3.1).
    IfNeeded,
    /// All: what the paper avoids.
    Always,
}

/// The options of a database.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The log: its directories, streams, buffers, and the device. A key and its value have to fit
    /// into a quarter of a buffer, and of a segment, and into 1 MiB: see
    /// [`Transaction::put`](crate::Transaction::put).
    pub log: LogOptions,
    /// The budget for versions kept in memory, and for what scans need beside them, in bytes: 4 KiB
    /// to 1 TiB. Values are counted without the allocator's overhead, from when they are handed to
    /// a transaction. Each session may exceed it by one key and value. Data may be larger: what was
    /// read or written lately is kept, twice-read keys longer. Where versions are kept for an older
    /// transaction that is open, and the budget is exhausted, they go, and that transaction ends
    /// with [`Abort::SnapshotTooOld`](crate::Abort::SnapshotTooOld) if it needs one. Default:
    /// 64 MiB.
    pub memory_bytes: usize,
    /// The most sessions at a time: 1 to 65,536. Default: 256.
    pub sessions: usize,
    /// The entries of the transaction table: a power of two from 16 to 2^24, above the number of
    /// sessions. It is best above the number of transactions that begin while one is made durable:
    /// with fewer entries they wait for that. An entry takes 64 bytes, and 8 for each stream of the
    /// log from the seventh on, beside `memory_bytes`. Default: 131,072.
    pub transactions: usize,
    /// Whether there are scans: [`Transaction::scan`](crate::Transaction::scan). They cost an
    /// ordered index of the written keys in memory, about 40 bytes each, which each first write of
    /// a key locks; and each scan that may matter to an active transaction is noted, in up to an
    /// eighth of `memory_bytes`. Default: true.
    pub ranges: bool,
    /// How long a transaction waits for an older one whose version it should read, before it is
    /// aborted. Default: 1 ms.
    pub patience: Duration,
    /// How long a transaction waits for younger ones to leave where the budget of memory is
    /// exhausted. The youngest that has written is aborted first, at its next write; a transaction
    /// that has waited for as long is aborted itself. Default: 100 ms.
    pub room_patience: Duration,
    /// How long one call of the data component may take while transactions wait for it: those that
    /// need room, since what is committed and not applied takes up the budget, or since the log has
    /// become long while a checkpoint is under way. Beyond that they end with
    /// [`Error::Stalled`](crate::Error::Stalled), and so does a close. A data component that is
    /// slow and goes on holds writers back, to its own speed. Default: 30 s.
    pub store_patience: Duration,
    /// How often a closure is run before its last [`Abort`](crate::Abort) is returned: at least 1.
    /// Default: 10,000.
    pub attempts: u64,
    /// Operations that are younger than an active transaction are kept from the data component, so
    /// that it finds there what it has to read, until records of this many bytes wait. Beyond that
    /// it may end with [`Abort::SnapshotTooOld`](crate::Abort::SnapshotTooOld). Default: 16 MiB.
    pub lag_bytes: usize,
    /// The threads that apply operations to the data component, the fewest and the most: 1 to 64.
    /// Each applies a piece of a batch, where the data component
    /// [takes pieces at the same time](crate::DataComponent::may_cut). There is one more while what
    /// waits to be applied becomes more, and a processor is idle or more than half of `lag_bytes`
    /// waits; one that has nothing to do for a second ends. Default: 1 to the number of processors,
    /// at most 8.
    pub proxy_threads: RangeInclusive<usize>,
    /// A checkpoint is taken when redo would read more bytes of the log than this, unless active
    /// transactions hold the resume point back, so that it cannot move by a quarter of this.
    /// Default: 64 MiB.
    pub redo_bytes: u64,
    /// The most threads that read the data component for continuations, such as
    /// [`Transaction::get_async`](crate::Transaction::get_async): 1 to 1,024. They are started when
    /// they are needed. Default: 8.
    pub reader_threads: usize,
    /// When the writes of a transaction are logged. Default: when it commits.
    pub update_logging: UpdateLogging,
    /// Which transactions that only read log a record. Default: none.
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
        // An active transaction keeps its entry, and each session may have one.
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

    /// Without the tables of such a size, which take more memory than a test should.
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
        // As many entries as sessions are one too few.
        options.transactions = MOST_SESSIONS;
        assert!(options.check().is_err());
    }
}
