//! The key `lease`: which process writes the log, and may answer what only reads.
//!
//! **The rule.** The holder sets the key again and again, each time under the condition that the
//! key has the revision that the holder knows. The holder answers while, *after the read*, less
//! than 0.9 L have passed since the holder *sent* the newest set that is known to be applied. A
//! candidate takes the lease once each of its looks for L has been answered and has shown the same
//! revision, counted from the arrival of the first. So the answers of the holder have ended before
//! the successor has the lease: `docs/protocols/failover.md` has the argument.
//!
//! The key also states what a successor needs and no message may tell: a limit of epochs, above
//! which the successor begins, and the positions that the holder knows to be stored.

use crate::hex::{hex, unhex};
use crate::keys::{self, FORMAT, different};
use crate::service::{LogService, Reply, Revision};
use hyades_wal::{Lsn, RemoteEnded};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The name of the key.
pub(crate) const KEY: &str = "lease";
/// The limit of epochs is so far ahead of the current epoch: at an epoch each 10 milliseconds a
/// holder can go without a renewal for 20 minutes.
pub(crate) const EPOCHS_AHEAD: u64 = 1 << 17;

/// The value of the key `lease`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    format: u32,
    /// The database's uuid, in hexadecimal digits.
    pub database: String,
    /// The incarnation of the holder.
    pub incarnation: u32,
    /// The node of the holder.
    pub node: String,
    /// Where clients reach the holder; empty if nowhere.
    pub address: String,
    /// Tells the holder's directories on its machine apart from all others, see [`place_of`].
    pub place: String,
    /// The number of the set, from 0 in each incarnation.
    pub renewal: u64,
    /// Whether the holder has given the lease away.
    pub released: bool,
    /// The node to which the lease was given, if to one.
    pub successor: Option<String>,
    /// No epoch above is used by the holder, or by an incarnation before.
    pub epoch_limit: u64,
    /// By stream, what the holder knows to be stored.
    pub stored: Vec<Lsn>,
    /// Whether the database had content that no lane has when the first incarnation was drawn.
    pub has_content: bool,
}

/// A process as a holder of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The name of the node.
    pub node: String,
    /// Where clients reach the process; empty if nowhere.
    pub address: String,
    /// See [`place_of`].
    pub place: String,
}

impl Lease {
    /// Notes positions, by stream, that are known to be stored.
    pub fn know_stored(&mut self, stored: &[Lsn]) {
        self.stored.resize(self.stored.len().max(stored.len()), 0);
        self.stored.iter_mut().zip(stored).for_each(|(known, now)| *known = (*known).max(*now));
    }

    /// A lease for an incarnation of a database, with the epochs up to `epoch` used.
    pub fn new(database: &[u8; 16], incarnation: u32, holder: &Holder, epoch: u64) -> Lease {
        let Holder { node, address, place } = holder.clone();
        Lease {
            format: FORMAT,
            database: hex(database),
            incarnation,
            node,
            address,
            place,
            renewal: 0,
            released: false,
            successor: None,
            epoch_limit: epoch + EPOCHS_AHEAD,
            stored: Vec::new(),
            has_content: false,
        }
    }

    /// The epochs up to here were used before the lease was drawn: the incarnation begins above.
    pub fn first_epoch_above(&self) -> u64 {
        self.epoch_limit.saturating_sub(EPOCHS_AHEAD)
    }

    /// The database's uuid. `None` if the text is none.
    pub fn database(&self) -> Option<[u8; 16]> {
        unhex(&self.database)?.try_into().ok()
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Lease, RemoteEnded> {
        let lease: Lease = keys::decode(KEY, value)?;
        match lease.database() {
            Some(_) => Ok(lease),
            None => Err(different(format!("key {KEY:?} of the log service names no database"))),
        }
    }

    /// Whether the lease was drawn by the same process as this one.
    pub(crate) fn is_of(&self, own: &Lease) -> bool {
        (self.incarnation, &self.node, &self.place) == (own.incarnation, &own.node, &own.place)
    }
}

/// Names a directory on this machine, from the boot of the machine until the next: a process that
/// finds its own directory in the lease, and has the directory's lock, knows that the holder's
/// process has ended.
///
/// # Errors
/// The directory is not there.
pub fn place_of(dir: &Path) -> std::io::Result<String> {
    use std::os::unix::fs::MetadataExt;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let dir = std::fs::metadata(dir)?;
    // Without the name of the boot a former process cannot be told from another machine's.
    let boot = match boot.trim() {
        "" => format!("{:016x}", fastrand::u64(..)),
        boot => boot.to_owned(),
    };
    Ok(format!("{boot} {:x} {:x}", dir.dev(), dir.ino()))
}

/// Reads the lease, and waits for the service. `None`: no process has drawn an incarnation.
///
/// # Errors
/// The service holds something else.
pub fn newest(service: &dyn LogService) -> Result<Option<(Revision, Lease)>, RemoteEnded> {
    let found = keys::get(service, KEY)?;
    found.map(|(revision, value)| Ok((revision, Lease::decode(&value)?))).transpose()
}

/// Draws the incarnation of `own`: replaces the lease of the revision `seen`. `None`: the lease was
/// renewed or taken meanwhile.
///
/// # Errors
/// The service holds something else.
pub fn take(
    service: &dyn LogService,
    seen: Revision,
    own: &Lease,
) -> Result<Option<Revision>, RemoteEnded> {
    let value = keys::encode(own);
    loop {
        match service.ask(keys::put(KEY, seen, value.clone())) {
            Reply::Put(revision) => return Ok(Some(revision)),
            Reply::Gone(what) => return Err(RemoteEnded::Different(what)),
            // Refused, or not known, and then the set may have been applied.
            _ => {}
        }
        match newest(service)? {
            Some((revision, found)) if found == *own => return Ok(Some(revision)),
            Some((revision, _)) if revision == seen => {}
            None if seen == Revision::NONE => {}
            _ => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{Faults, SimulatedLog};

    const DATABASE: [u8; 16] = [1; 16];

    fn holder(node: &str) -> Holder {
        Holder { node: node.into(), address: "h:1".into(), place: format!("place of {node}") }
    }

    #[test]
    fn an_incarnation_is_drawn_once_whatever_the_service_loses() {
        for seed in 0..50 {
            let faults = Faults { lost_requests: 0.3, lost_replies: 0.3, ..Faults::default() };
            let service = SimulatedLog::new(1, seed, faults);
            assert_eq!(newest(&service), Ok(None));
            let draw = |node: &str, incarnation, seen| {
                take(&service, seen, &Lease::new(&DATABASE, incarnation, &holder(node), 0)).unwrap()
            };
            let first = draw("a", 1, Revision::NONE).unwrap();
            assert_eq!(draw("b", 1, Revision::NONE), None, "the number is drawn");
            let second = draw("b", 2, first).unwrap();
            assert_eq!(draw("c", 2, first), None, "the lease was taken");
            let (revision, lease) = newest(&service).unwrap().unwrap();
            assert_eq!((revision, &*lease.node, lease.incarnation), (second, "b", 2));
        }
    }
}
