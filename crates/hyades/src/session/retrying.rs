//! Further attempts at a transaction after a conflict.

use super::EngineSession;
use crate::concurrency::Commits;
use crate::erased::{Answer, Verdict};
use crate::error::Error;
use crate::logging::LoggingProtocol;
use crate::logging::draft::Call;
use crate::logging::record::RecordKind;
use crate::retry::back_off;
use crate::transaction::access::Transaction;
use hyades_platform::broken;
use hyades_platform::clock;
use std::sync::Arc;
use std::time::Duration;

/// Maximum wait of a starving transaction for another transaction that runs alone; then both run at
/// the same time.
const PATIENCE_WITH_OTHERS: Duration = Duration::from_secs(1);

/// A transaction without writes probably only reads if it meets a conflict after reads of this many
/// rows and gaps, or has met conflicts in this many attempts.
const MANY_READS: usize = 64;
const FEW_ATTEMPTS: u64 = 8;

impl<C: Commits<P>, P: LoggingProtocol> EngineSession<C, P> {
    /// Retries until there is no conflict. Separate from the first attempt, which nearly always is
    /// the only attempt: in a common loop the variables shared by attempts would be set up before
    /// the first attempt.
    #[cold]
    pub(super) fn try_again(
        &mut self,
        call: Option<(Call<'_>, RecordKind)>,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let (retries, began) = (shared.retries, clock::monotonic_ns());
        let (mut attempts, mut longest_ns, mut alone) = (1, 0, None);
        // A transaction inside a transaction of another database must not wait for queued calls.
        let mut may_only_read = self.may_wait || !P::LOGS_FIRST;
        loop {
            self.tally.conflict();
            let starved_for = Duration::from_nanos(clock::monotonic_ns() - began);
            if retries.attempts.is_some_and(|most| attempts >= most)
                || retries.deadline.is_some_and(|deadline| starved_for >= deadline)
            {
                // A transaction that waited for a log stopped meanwhile has not starved.
                self.check_log()?;
                self.tally.starved();
                shared.control.forget_attempts(&self.own);
                return Err(Error::Starved { attempts, seconds: starved_for.as_secs_f64() });
            }
            if shared.removed.is_full() {
                shared.removed.wait()?;
            }
            let is_starving = retries.alone_after.is_some_and(|after| starved_for >= after);
            if is_starving && !shared.nests && !broken!(NoExclusiveRetry) {
                if alone.is_none() {
                    alone = shared.gate.close(PATIENCE_WITH_OTHERS);
                }
                alone.iter().for_each(|alone| alone.attempt_took(longest_ns));
            } else {
                shared.gate.pass();
            }
            let is_reader = |reads| reads >= MANY_READS || attempts >= FEW_ATTEMPTS;
            if may_only_read && self.only_read.is_some_and(is_reader) {
                if self.try_on_snapshot(body, answer) {
                    return Ok(());
                }
                may_only_read = false;
                self.tally.attempt();
                attempts += 1;
                continue;
            }
            back_off(&mut self.rng, attempts);
            let attempt_began = clock::monotonic_ns();
            if self.try_once(call, body, answer)?.is_ok() {
                return Ok(());
            }
            longest_ns = longest_ns.max(clock::monotonic_ns() - attempt_began);
            attempts += 1;
        }
    }
}
