//! Checkpoints: the data component makes its data stable, and the log is truncated.

use crate::error::Error;
use crate::transaction_component::TransactionComponent;
use hyades_platform::clock;
use hyades_wal::{Checkpoint, Covered, Log, Lsn};

impl TransactionComponent {
    /// P1 to P4. Returns how many bytes of the log were truncated; does nothing where the data
    /// component does not outlive the process.
    pub fn checkpoint(&self) -> Result<u64, Error> {
        if !self.data.limits().is_durable {
            return Ok(0);
        }
        if let Some(poisoned) = self.log.poisoned() {
            return Err(hyades_wal::Error::from(poisoned).into());
        }
        self.run_proxy()?;
        self.proxy.at_resume_point(&self.log, &self.timestamps, |point, lowest| {
            self.data.checkpoint(&point)?;
            let truncated = truncate(&self.log, &point.positions)?;
            // Last: until the log is truncated, recovery may begin at the point before.
            self.data.forget_below(lowest)?;
            *self.resume_at.lock().unwrap_or_else(|e| e.into_inner()) = point.positions;
            Ok(truncated)
        })
    }

    /// Takes a checkpoint if more of the log than the options allow would be applied again.
    pub fn checkpoint_if_due(&self) -> Result<(), Error> {
        let frontier = self.log.frontier();
        let is_due = {
            let resume_at = self.resume_at.lock().unwrap_or_else(|e| e.into_inner());
            let lanes = resume_at.iter().enumerate();
            let bytes = lanes.map(|(lane, from)| frontier.durable(lane).saturating_sub(*from));
            bytes.sum::<u64>() > self.options.redo_bytes
        };
        if is_due {
            self.checkpoint()?;
        }
        Ok(())
    }
}

/// P3: the log below these positions, one for each stream, is not needed any more.
fn truncate(log: &Log, positions: &[Lsn]) -> Result<u64, Error> {
    let manifest = log.manifest();
    let dims = manifest.newest().map_or(&[][..], |newest| &newest.dims);
    debug_assert_eq!(dims.len(), positions.len(), "a resume point of other streams");
    let covered = dims.iter().zip(positions);
    let (number, _) = log.next_checkpoint();
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
