//! What a command of a client waits for in a replicated database: WAIT, WAITAOF, HYADES.AFTER.

use crate::resp::reply::Reply;
use crate::state::Shared;
use std::time::Instant;

/// What a command waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AwaitedMember {
    /// That standbys have synced all streams up to the positions of the client's last write.
    Synced {
        /// The number of standbys.
        standbys: usize,
        /// By stream.
        positions: Vec<u64>,
        /// The reply is that of WAITAOF.
        counts_files: bool,
    },
    /// That this standby serves an epoch.
    Served {
        /// The epoch.
        epoch: u64,
    },
}

impl AwaitedMember {
    /// The number of standbys found, or 1 for the served epoch; and whether they are enough.
    pub fn found(&self, shared: &Shared) -> (i64, bool) {
        match self {
            AwaitedMember::Synced { standbys, positions, .. } => {
                let synced = shared.membership.view().synced(positions);
                (synced as i64, synced >= *standbys)
            }
            AwaitedMember::Served { epoch } => {
                let is_primary = !shared.membership.only_reads();
                let opened = shared.store.opened.get();
                let served = opened.and_then(|opened| opened.database.open_snapshot().epoch());
                let is_served = is_primary || served.is_some_and(|served| served >= *epoch);
                (i64::from(is_served), is_served)
            }
        }
    }

    /// Appends the reply.
    pub fn write(&self, found: i64, reply: &mut Reply<'_>) {
        if matches!(self, AwaitedMember::Synced { counts_files: true, .. }) {
            reply.array(2);
            reply.integer(1);
        }
        reply.integer(found);
    }
}

/// A command that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitingCommand {
    /// What the command waits for.
    pub what: AwaitedMember,
    /// The end of the wait; `None`: the client waits for any time.
    pub until: Option<Instant>,
    /// When to look next.
    pub looks_at: Instant,
}
