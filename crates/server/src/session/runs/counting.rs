//! DBSIZE of a member of a replicated database that has not counted its keys.

use super::patient::PatientRun;
use crate::catalogue;
use crate::client::RunEnd;
use crate::commands::keys;
use crate::resp::reply::Reply;
use crate::state::Shared;
use crate::transact::failure;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether the keys are counted.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

impl PatientRun {
    /// Replies to DBSIZE alone: on a standby by a walk over a snapshot. A primary counts already,
    /// and the command waits: the result is `None` then, as for all other commands.
    pub(super) fn count_keys(&self, shared: &Arc<Shared>, reply: &mut Reply<'_>) -> Option<RunEnd> {
        let [request] = &self.requests[..] else { return None };
        let is_size = request.place().is_some_and(|at| catalogue::all()[at].name == "dbsize");
        if self.exec.is_some() || !is_size {
            return None;
        }
        while !shared.store.counts.is_exact() && !shared.membership.only_reads() {
            if shared.stopping().is_some() {
                return None;
            }
            std::thread::sleep(LOOKS_EVERY);
        }
        if shared.store.counts.is_exact() {
            return None;
        }
        let database = request.database().unwrap_or(self.database);
        let counted = shared.opened().and_then(|opened| {
            keys::count(shared, &opened, database).map_err(|error| failure(shared, error))
        });
        match counted {
            _ if self.is_silent => {}
            Ok(keys) => reply.integer(keys),
            Err(text) => reply.error(&text),
        }
        Some(RunEnd { order: Some(self.order.clone()), ..RunEnd::default() })
    }
}
