//! Reports the progress of a recovery under way.

use super::Recovery;
use super::report::Progress;
use super::threads;
use crate::storage::Stamp;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the callback is called: after this many naps.
const NAPS: u32 = 20;
const NAP: Duration = Duration::from_millis(10);

/// Ends the reports when the work ends, by a panic too.
struct EndsReports<'f>(&'f AtomicBool);

impl Drop for EndsReports<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl<S: Stamp> Recovery<'_, S> {
    /// Calls `work`, and reports progress to the callback meanwhile, if there is one and there is
    /// something to recover.
    pub(super) fn with_progress<T>(&self, work: impl FnOnce() -> T) -> T {
        let finished = AtomicBool::new(false);
        let mut result = None;
        let mut work = Some(work);
        let work = &mut || {
            let _ends_reports = EndsReports(&finished);
            result = work.take().map(|work| work());
        };
        match self.plan.progress.filter(|_| !self.recovering.is_fresh()) {
            None => work(),
            Some(tell) => threads::beside(&|| self.report_progress(tell, &finished), work),
        }
        result.expect("the work was done")
    }

    /// Reports progress to the callback until everything is recovered.
    fn report_progress(&self, tell: &(dyn Fn(&Progress) + Send + Sync), finished: &AtomicBool) {
        let counts = &self.replay.counts;
        let speed = self.recovering.manifest().replay_bytes_per_s;
        loop {
            let done = finished.load(Ordering::Acquire);
            let replayed =
                (counts.bytes.load(Ordering::Relaxed), counts.records.load(Ordering::Relaxed));
            tell(&self.replay.progress.now(replayed, self.plan.started_ns, speed));
            if done {
                return;
            }
            for _ in 0..NAPS {
                if finished.load(Ordering::Acquire) {
                    break;
                }
                std::thread::sleep(NAP);
            }
        }
    }
}
