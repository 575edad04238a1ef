//! The end of a log: by a failure, by another process that takes the replicated log over, or in
//! good order.

use crate::error::{Error, StopKind};
use crate::handle::Running;
use crate::log::Log;
use crate::remote::RemoteEnded;
use hyades_platform::sync::locked;
use std::sync::atomic::Ordering;

impl Log {
    /// Stops the log for good, as a failing device does: what is durable stays durable, and waiters
    /// for more get an error. For a caller that leaves a state from which the log cannot continue.
    pub fn stop(&self, cause: &str) {
        self.frontier().fail(cause);
    }

    /// Stops the log because another process is primary, as incarnation `by` of the replicated log:
    /// for the holder of the [lease](crate::AnswerLease), which learns of the successor. Nothing is
    /// answered from now on: what waits, and what has only read, gets an error. A record under way
    /// may be stored or not.
    pub fn demote(&self, by: u32) {
        let cause = RemoteEnded::Fenced { by }.to_string();
        self.frontier().stop_as(StopKind::Demoted { by }, &cause);
    }

    /// Ends the collection of work, for good: from now on the flushers flush at once, whatever the
    /// flush interval is. For a caller that is about to [`close`](Self::close) the log.
    pub fn stop_collecting(&self) {
        let shared = &self.handle.shared;
        shared.closing.store(true, Ordering::SeqCst);
        shared.streams.iter().for_each(|stream| shared.frontier.wake_early(stream.lane));
    }

    /// Makes everything reserved so far durable, records the clean end, and releases the
    /// directories. All other handles and writers are useless from then on. A reservation that is
    /// never filled blocks this.
    ///
    /// # Errors
    /// The log had stopped before, or the manifest could not be written.
    pub fn close(self) -> Result<(), Error> {
        let handle = &self.handle;
        self.stop_collecting();
        self.flush()?;
        // All may be durable though the log has failed: the end is not a clean one.
        self.poisoned().map_or(Ok(()), Err)?;
        handle.shared.frontier.stop("it was closed");
        let Running { locks, .. } = handle.join();
        let mut manifest = locked(&handle.manifest);
        if let Some(newest) = manifest.incarnations.last_mut() {
            newest.clean = true;
            for (lane, dim) in newest.dims.iter_mut().enumerate() {
                dim.end = Some(handle.shared.frontier.durable(lane));
                dim.mark = handle.shared.frontier.mark(lane);
            }
        }
        manifest.write(&*handle.shared.options.device, &handle.manifest_dir)?;
        drop(locks);
        Ok(())
    }
}
