//! Reports on recovery.

use std::collections::BTreeMap;

/// How far recovery has progressed; passed to the callback of [`crate::Builder::on_progress`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// The current phase.
    pub phase: &'static str,
    /// Log bytes replayed so far.
    pub bytes_done: u64,
    /// Log bytes to replay: for a stream without a known end, as much as its files can hold.
    pub bytes_total: u64,
    /// Bytes of the checkpoint's files loaded so far.
    pub image_bytes_done: u64,
    /// Bytes of the checkpoint's files; 0 if there is no checkpoint.
    pub image_bytes_total: u64,
    /// Transactions replayed so far.
    pub records_done: u64,
    /// Streams of the incarnation being replayed; 0 before the first one.
    pub streams: usize,
    /// Each stream of the log, by its id.
    pub by_stream: Vec<StreamProgress>,
    /// Seconds since recovery began.
    pub seconds: f64,
    /// Estimated seconds left at the present rate, once there is a rate.
    pub estimate_seconds: Option<f64>,
}

impl Progress {
    /// Returns the loaded share of the checkpoint and the replayed share of the log together, by
    /// bytes: from 0 to 1.
    pub fn share(&self) -> f64 {
        match self.image_bytes_total + self.bytes_total {
            0 => 0.0,
            total => (self.image_bytes_done + self.bytes_done) as f64 / total as f64,
        }
    }
}

/// The progress of one stream of the log, over all incarnations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamProgress {
    /// The stream's id.
    pub stream: u32,
    /// `waiting` until something of the stream is read, `reading`, then `read`.
    pub phase: &'static str,
    /// Bytes handed to replay so far.
    pub bytes_read: u64,
    /// Bytes to read. While the stream's end is unknown, as much as its files can hold; after
    /// reading to the end, the bytes read.
    pub bytes_total: u64,
    /// Records of the stream that were replayed.
    pub records: u64,
}

/// Report on the recovery of one incarnation of the log.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct IncarnationReport {
    /// The number, counted from 1.
    pub number: u32,
    /// Live transactions replayed.
    pub records: u64,
    /// Records of transactions with a lost dependency; these transactions were never acknowledged.
    pub dead: u64,
    /// Log bytes replayed.
    pub bytes: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Number of streams.
    pub streams: usize,
    /// Number of replay threads: one if the order of the stream is the only order.
    pub threads: usize,
    /// The streams, with the times of reading.
    pub reads: Vec<StreamRead>,
}

/// The time of reading a log stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StreamRead {
    /// The stream.
    pub stream: u32,
    /// Log bytes read.
    pub bytes: u64,
    /// Seconds of reading from the device and of comparing checksums.
    pub read_seconds: f64,
    /// Seconds of waiting for the reads, summed over the replay threads: equal to `read_seconds` if
    /// replay threads read themselves, and shorter if the stream was read ahead of replay. All
    /// other time of these threads is for replay: decoding records, applying them, and waiting for
    /// each other.
    pub wait_seconds: f64,
}

impl StreamRead {
    /// Returns the sums over incarnations, by stream, in the order of stream numbers.
    pub fn by_stream(incarnations: &[IncarnationReport]) -> Vec<StreamRead> {
        let mut sums = BTreeMap::<u32, StreamRead>::new();
        for read in incarnations.iter().flat_map(|incarnation| &incarnation.reads) {
            let sum = sums.entry(read.stream).or_default();
            sum.stream = read.stream;
            sum.bytes += read.bytes;
            sum.read_seconds += read.read_seconds;
            sum.wait_seconds += read.wait_seconds;
        }
        sums.into_values().collect()
    }
}

/// Report on the opening of a database.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the directory held a log at all.
    pub found: bool,
    /// Seconds from the call of open until the database accepted transactions.
    pub seconds: f64,
    /// Replay threads used.
    pub threads: usize,
    /// Live transactions replayed.
    pub records: u64,
    /// Dead records skipped.
    pub dead: u64,
    /// Log bytes replayed.
    pub bytes: u64,
    /// Seconds spent on loading the checkpoint: rows and their index entries.
    pub image_seconds: f64,
    /// Rows loaded from the checkpoint.
    pub image_rows: u64,
    /// Bytes of the checkpoint's files.
    pub image_bytes: u64,
    /// Seconds spent on replaying the log not covered by the checkpoint: the time bounded by
    /// [`crate::Builder::max_recovery`].
    pub replay_seconds: f64,
    /// The part of `replay_seconds` with one thread alone, because records mostly waited for each
    /// other.
    pub one_thread_seconds: f64,
    /// The most memory taken by older versions of rows, in bytes, where commands were replayed on
    /// several versions.
    pub version_bytes: u64,
    /// By incarnation, oldest first.
    pub incarnations: Vec<IncarnationReport>,
    /// The unreadable parts of the log, if a damaged log was salvaged.
    pub losses: Vec<Loss>,
    /// The changes of the schema of an existing database, in words: for example
    /// `added column "note" to table "accounts"`.
    pub schema_changes: Vec<String>,
    /// Seconds spent on the checkpoint that puts the changes in force; 0 if none was needed.
    pub schema_seconds: f64,
}

/// An unreadable part of a damaged log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// A file is missing or damaged as a whole.
    File(String),
    /// A stream is damaged within its durable bytes.
    Stream {
        /// The incarnation of the log.
        incarnation: u32,
        /// The stream.
        stream: u32,
        /// Everything below this position is intact.
        valid_to: u64,
        /// The stream was durable at least up to here; the length of the rest is unknown.
        durable_to: u64,
        /// The file, the offset, and the error.
        message: String,
    },
    /// A whole incarnation was left out: an earlier incarnation is damaged, and the dependencies of
    /// the left-out incarnation are unknown.
    Incarnation(u32),
}

impl From<hyades_wal::Damage> for Loss {
    fn from(damage: hyades_wal::Damage) -> Self {
        Loss::Stream {
            incarnation: damage.incarnation,
            stream: damage.stream.0,
            valid_to: damage.valid_to,
            durable_to: damage.durable_to,
            message: damage.error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_summed_by_stream() {
        let read = |stream, bytes, read_seconds, wait_seconds| StreamRead {
            stream,
            bytes,
            read_seconds,
            wait_seconds,
        };
        let report = |reads| IncarnationReport { reads, ..IncarnationReport::default() };
        let first = report(vec![read(3, 10, 1.0, 0.5), read(1, 5, 2.0, 2.0)]);
        let second = report(vec![read(1, 7, 0.5, 0.25)]);
        let sums = StreamRead::by_stream(&[first, second]);
        assert_eq!(sums, [read(1, 12, 2.5, 2.25), read(3, 10, 1.0, 0.5)]);
        assert!(StreamRead::by_stream(&[]).is_empty());
    }
}
