//! What a panic stops that leaves something locked or held.

use crate::concurrency::Commits;
use crate::engine::Engine;
use crate::logging::LoggingProtocol;
use hyades_wal::Log;

/// Ends the waiting of transactions for each other.
type Stop<P> = fn(&Engine<P>);

/// A commit or sweep in progress. A panic in it leaves rows locked and possibly half installed, and
/// partitions held. The drop then stops the log, and waiting, so that transactions that meet these
/// fail instead of retrying or waiting for ever.
pub(super) struct PoisonOnPanic<'e, P: LoggingProtocol> {
    log: Option<&'e Log>,
    /// Until it is disarmed: what it stops beside the log, and how.
    waits: Option<(&'e Engine<P>, Stop<P>)>,
}

impl<'e, P: LoggingProtocol> PoisonOnPanic<'e, P> {
    #[inline(always)]
    pub fn arm<C: Commits<P>>(engine: &'e Engine<P>, log: Option<&'e Log>) -> Self {
        PoisonOnPanic { log, waits: Some((engine, C::stop)) }
    }

    #[inline(always)]
    pub fn disarm(mut self) {
        self.waits = None;
    }
}

impl<P: LoggingProtocol> Drop for PoisonOnPanic<'_, P> {
    fn drop(&mut self) {
        let Some((engine, stop)) = self.waits else { return };
        // The log first: what does not wait any more then finds out why.
        if let Some(log) = self.log {
            log.stop("a commit panicked, and left rows locked that nobody can unlock");
        }
        stop(engine);
    }
}
