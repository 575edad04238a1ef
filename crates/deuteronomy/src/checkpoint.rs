//! Checkpoints: the data component makes its data stable, and the log is truncated.

use crate::error::Error;
use crate::transaction_component::TransactionComponent;
use hyades_platform::clock;
use hyades_wal::{Checkpoint, Covered, Log, Lsn};

/// A checkpoint that is due is taken once the resume point can move by this part of what may be
/// redone.
const PART_TO_MOVE: u64 = 4;

impl TransactionComponent {
    /// P1 to P4. Returns how many bytes of the log were truncated: none where the data component,
    /// or a part of it, does not outlive the process.
    pub fn checkpoint(&self) -> Result<u64, Error> {
        self.checkpoint_from(0)
    }

    /// Takes a checkpoint if more of the log than the options allow would be applied again, and a
    /// good part of that would not be afterwards: an active transaction may hold the resume point
    /// back.
    pub fn checkpoint_if_due(&self) -> Result<(), Error> {
        if self.is_checkpoint_due() {
            self.checkpoint_from((self.options.redo_bytes / PART_TO_MOVE).max(1))?;
        }
        Ok(())
    }

    /// Whether more of the log than the options allow would be applied again.
    pub fn is_checkpoint_due(&self) -> bool {
        let mut durable = vec![0; self.log.streams()];
        self.log.frontier().load_into(&mut durable);
        self.behind_resume_point(&durable) > self.options.redo_bytes
    }

    /// The bytes between the last resume point and these positions.
    fn behind_resume_point(&self, positions: &[Lsn]) -> u64 {
        let resume_at = self.resume_at.lock().unwrap_or_else(|e| e.into_inner());
        let lanes = positions.iter().zip(&*resume_at);
        lanes.map(|(at, from)| at.saturating_sub(*from)).sum()
    }

    /// Takes a checkpoint if the resume point moves by this many bytes. A data component that does
    /// not outlive the process, or a part of which does not, is given the whole log at the next
    /// opening. So that is kept; but the parts that do make what they have stable, or it would be
    /// in their caches for ever.
    fn checkpoint_from(&self, least_bytes: u64) -> Result<u64, Error> {
        let is_durable = self.limits.is_durable;
        if let Some(poisoned) = self.log.poisoned() {
            return Err(hyades_wal::Error::from(poisoned).into());
        }
        self.run_proxy()?;
        self.proxy.at_resume_point(&self.log, &self.timestamps, |point, lowest| {
            if self.behind_resume_point(&point.positions) < least_bytes {
                return Ok(0);
            }
            self.data.checkpoint(&point)?;
            let truncated = match is_durable {
                true => truncate(&self.log, &point.positions)?,
                false => 0,
            };
            // Last: until the log is truncated, recovery may begin at the point before.
            self.data.forget_below(lowest)?;
            *self.resume_at.lock().unwrap_or_else(|e| e.into_inner()) = point.positions;
            Ok(truncated)
        })
    }
}

/// P3: the log below these positions, one for each stream, is not needed any more.
fn truncate(log: &Log, positions: &[Lsn]) -> Result<u64, Error> {
    let manifest = log.manifest();
    let dims = manifest.newest().map_or(&[][..], |newest| &newest.dims);
    debug_assert_eq!(dims.len(), positions.len(), "a resume point of other streams");
    let covered = dims.iter().zip(positions);
    let (number, _) = log.next_checkpoint(1);
    let checkpoint = Checkpoint {
        number,
        cut: number,
        incarnation: log.incarnation(),
        scan_end: None,
        taken_at_us: clock::wall_us(),
        next_row_id: 0,
        rows: 0,
        parts: Vec::new(),
        streams: covered.map(|(dim, &from)| Covered { stream: dim.stream, from }).collect(),
    };
    Ok(log.adopt(checkpoint)?)
}
