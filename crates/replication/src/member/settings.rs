//! The settings of a member.

use crate::hold_keeper::HoldLimits;
use std::path::PathBuf;
use std::time::Duration;

/// How a process is a member.
#[derive(Clone, Debug)]
pub struct MemberSettings {
    /// The name of the node: letters, digits, `-` and `_`.
    pub node: String,
    /// Where clients reach the member; empty if nowhere.
    pub address: String,
    /// The directories of its files.
    pub dirs: Vec<PathBuf>,
    /// How long the lease lasts: 1 to 60 seconds.
    pub term: Duration,
    /// The time between two cut marks while records are logged.
    pub mark_interval: Duration,
    /// The time between two statements of what the member has on its disk, and, at the primary,
    /// between two purges.
    pub hold_interval: Duration,
    /// A member that has stated nothing for as long is waited for no more: the messages that the
    /// member lacks are purged, and the member joins with a base.
    pub forget_after: Duration,
    /// A member that lacks more bytes of the log is waited for no more, whether it runs or not: so
    /// the lanes keep about as many at most.
    pub log_bytes: u64,
    /// Tells the directories apart from those of all other processes, see
    /// [`place_of`](crate::lease::place_of); `None`: by the first directory.
    pub place: Option<String>,
}

impl MemberSettings {
    /// The settings of a node with one directory: a lease of 3 seconds, marks each 20 ms,
    /// statements each 5 seconds, and members that are waited for a day or 64 GiB of the log.
    pub fn new(node: impl Into<String>, dir: impl Into<PathBuf>) -> MemberSettings {
        MemberSettings {
            node: node.into(),
            address: String::new(),
            dirs: vec![dir.into()],
            term: Duration::from_secs(3),
            mark_interval: Duration::from_millis(20),
            hold_interval: Duration::from_secs(5),
            forget_after: Duration::from_secs(24 * 3600),
            log_bytes: 64 << 30,
            place: None,
        }
    }

    pub(super) fn hold_limits(&self) -> HoldLimits {
        let MemberSettings { hold_interval: interval, forget_after, log_bytes, .. } = *self;
        HoldLimits { interval, forget_after, log_bytes }
    }
}
