//! What recovery tells of itself.

/// How far recovery has come; given to the callback of [`crate::Builder::on_progress`].
#[derive(Clone, Debug)]
pub struct Progress {
    /// What is being done.
    pub phase: &'static str,
    /// Log bytes read so far.
    pub bytes_done: u64,
    /// Log bytes on disk; what is valid of them may end earlier.
    pub bytes_total: u64,
    /// Transactions replayed so far.
    pub records_done: u64,
    /// Streams of the incarnation being replayed.
    pub streams: usize,
    /// Seconds since recovery began.
    pub seconds: f64,
    /// Seconds still to go at the present rate, once there is one.
    pub estimate_seconds: Option<f64>,
}

/// What was recovered of one incarnation of the log.
#[derive(Clone, Debug, Default)]
pub struct IncarnationReport {
    /// Its number, counted from 1.
    pub number: u32,
    /// Live transactions replayed.
    pub records: u64,
    /// Records of transactions that depended on something that was lost: never acknowledged.
    pub dead: u64,
    /// Log bytes replayed.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Its streams.
    pub streams: usize,
}

/// What opening a database found and did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Whether the directory held a log at all.
    pub found: bool,
    /// From the call of open until the database took transactions.
    pub seconds: f64,
    /// Replay threads used.
    pub threads: usize,
    /// Live transactions replayed.
    pub records: u64,
    /// Dead records passed over.
    pub dead: u64,
    /// Log bytes replayed.
    pub bytes: u64,
    /// How long it took to load the checkpoint: rows and their index entries.
    pub image_seconds: f64,
    /// Rows loaded from the checkpoint.
    pub image_rows: u64,
    /// Bytes of the checkpoint's files.
    pub image_bytes: u64,
    /// How long it took to replay the log that the checkpoint does not cover; this is what
    /// [`crate::Builder::max_recovery`] bounds.
    pub replay_seconds: f64,
    /// By incarnation, oldest first.
    pub incarnations: Vec<IncarnationReport>,
    /// What could not be read, where a damaged log was recovered all the same.
    pub losses: Vec<Loss>,
}

/// What could not be read of a damaged log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Something is missing or damaged as a whole.
    File(String),
    /// A stream breaks off.
    Stream {
        /// The incarnation of the log.
        incarnation: u32,
        /// The stream.
        stream: u32,
        /// Everything below this position is there.
        valid_to: u64,
        /// From there to here something was durable; how much there was behind it is not known.
        durable_to: u64,
        /// The file and the byte, and what is wrong.
        message: String,
    },
    /// A whole incarnation: one before it is damaged, and what it built on is not known.
    Incarnation(u32),
}

impl From<hyades_wal::Damage> for Loss {
    fn from(damage: hyades_wal::Damage) -> Self {
        Loss::Stream {
            incarnation: damage.incarnation,
            stream: damage.stream,
            valid_to: damage.valid_to,
            durable_to: damage.durable_to,
            message: damage.error.to_string(),
        }
    }
}
