//! Cut marks as a standby hears of them.

use super::Standby;
use crate::marks::{self, ToldMark};
use hyades_platform::clock;
use std::time::Duration;

impl Standby {
    /// The next mark that was received, or is within `wait`.
    pub(super) fn wait_for_mark(&self, wait: Duration) -> Option<Vec<u8>> {
        if !clock::is_simulated() {
            return self.marks.recv_timeout(wait).ok();
        }
        let mark = self.marks.try_recv().ok();
        if mark.is_none() {
            clock::sleep_until(clock::monotonic_ns() + wait.as_nanos() as u64);
        }
        mark
    }

    pub(super) fn note_mark(&mut self, bytes: &[u8]) {
        // Damaged, or of another database with the name: as if it were lost.
        let Ok(ToldMark { database, mark, verification }) = marks::decode(bytes) else { return };
        if self.mark.is_some() && self.verification > 0 {
            // Later marks come soon.
            return;
        }
        if database != self.database || mark.to.len() != self.incarnation.dims.len() {
            return;
        }
        // A mark of a later incarnation says that the lanes are to be read.
        let newest = self.mark.as_ref().map(|mark| mark.epoch).max(self.follower.served());
        if mark.incarnation >= self.incarnation.number
            && newest.is_none_or(|newest| mark.epoch > newest)
        {
            (self.mark, self.verification) = (Some(mark), verification);
        }
    }
}
