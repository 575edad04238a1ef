//! What a restore has restored, in sentences.

use crate::calendar::time;
use crate::recovery::report::{Loss, StreamRead};

/// Result of [`Builder::restore`](crate::Builder::restore).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The last restored epoch; `None` if the whole log was restored.
    pub cut_epoch: Option<u64>,
    /// The start time of the last restored epoch with a known time, in microseconds since 1970.
    pub last_epoch_us: Option<u64>,
    /// The start time of the first left-out epoch with a known time, in microseconds since 1970.
    pub next_epoch_us: Option<u64>,
    /// Rows in the restored database.
    pub rows: u64,
    /// Transactions replayed, on top of a checkpoint if there was one.
    pub transactions: u64,
    /// Seconds spent on replaying the log.
    pub replay_seconds: f64,
    /// The replayed streams, with the times of reading.
    pub reads: Vec<StreamRead>,
    /// Records skipped because of a lost dependency.
    pub dead: u64,
    /// The unreadable parts, and the losses caused by them.
    pub losses: Vec<Loss>,
    /// The changes of the schema, see
    /// [`RecoveryReport::schema_changes`](crate::RecoveryReport::schema_changes).
    pub schema_changes: Vec<String>,
}

impl std::fmt::Display for RestoreReport {
    /// Writes the restored parts and the losses, in sentences.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.cut_epoch {
            None => write!(f, "the newest state: all that the log holds")?,
            Some(epoch) => write!(f, "everything up to epoch {epoch}")?,
        }
        if let Some(began) = self.last_epoch_us {
            write!(f, "; its last epoch with a known time began at {}", time(began))?;
        }
        if let Some(began) = self.next_epoch_us {
            write!(f, "; the first one left out began at {}", time(began))?;
        }
        writeln!(f)?;
        writeln!(f, "{} rows; {} transactions replayed", self.rows, self.transactions)?;
        writeln!(f, "{:.3} s of replay", self.replay_seconds)?;
        for StreamRead { stream, bytes, read_seconds, wait_seconds } in &self.reads {
            writeln!(
                f,
                "log stream {stream}: {bytes} bytes read in {read_seconds:.3} s, of which replay \
                 waited for {wait_seconds:.3} s"
            )?;
        }
        self.schema_changes.iter().try_for_each(|change| writeln!(f, "{change}"))?;
        if !self.losses.is_empty() {
            writeln!(f, "SALVAGED: this is not all that the database held.")?;
            writeln!(
                f,
                "{} records were whole but depend on what was lost, or never were acknowledged; \
                 they are left out",
                self.dead
            )?;
        }
        for loss in &self.losses {
            match loss {
                Loss::File(message) => writeln!(f, "lost: {message}")?,
                Loss::Stream { incarnation, stream, valid_to, durable_to, message } => writeln!(
                    f,
                    "lost: incarnation {incarnation}, log stream {stream}, from Lsn {valid_to} to \
                     at least Lsn {}: {message}",
                    durable_to.max(valid_to)
                )?,
                Loss::Incarnation(number) => writeln!(
                    f,
                    "lost: all of incarnation {number}, which built on what is lost before it"
                )?,
            }
        }
        Ok(())
    }
}
