//! The status of a replicated database: what keys, lanes, and messages of members show.

use crate::begin::Begin;
use crate::holds::{self, Holds};
use crate::keys;
use crate::lease::{self, Lease};
use crate::marks::{self, ToldMark};
use crate::nats::{FoundKey, FoundLane, FoundLog};
use crate::reports::{self, Report, Told};
use hyades::CutMark;
use hyades_wal::{Lsn, RemoteEnded};
use std::collections::BTreeMap;

/// What is known of a replicated database from outside of its members.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DatabaseStatus {
    /// The lease, if a process has drawn an incarnation.
    pub lease: Option<Lease>,
    /// When the lease was set last, in microseconds since 1970, by the clock of a server.
    pub renewed_us: u64,
    /// The incarnations that have begun, in order.
    pub begins: Vec<Begin>,
    /// The newest cut mark that the primary has told, while it was listened.
    pub mark: Option<CutMark>,
    /// The newest reports of standbys that were heard, by node.
    pub standbys: Vec<Report>,
    /// The lanes in order.
    pub lanes: Vec<FoundLane>,
    /// What members need of the lanes, once a member has stated that.
    pub holds: Option<Holds>,
    /// All other keys by their names.
    pub others: BTreeMap<String, FoundKey>,
}

impl DatabaseStatus {
    /// Reads what was found.
    ///
    /// # Errors
    /// A key is damaged, or of another format than this program reads.
    pub fn of(found: FoundLog) -> Result<DatabaseStatus, RemoteEnded> {
        let FoundLog { keys: all, lanes, broadcasts } = found;
        let mut status = DatabaseStatus { lanes, ..DatabaseStatus::default() };
        for (name, key) in all {
            if name == lease::KEY {
                status.lease = Some(Lease::decode(&key.value)?);
                status.renewed_us = key.stored_us;
            } else if name == holds::KEY {
                status.holds = Some(Holds::decode(&key.value)?);
            } else if name.starts_with("begin.") {
                status.begins.push(keys::decode(&name, &key.value)?);
            } else {
                status.others.insert(name, key);
            }
        }
        status.begins.sort_by_key(|begin: &Begin| begin.incarnation.number);
        let uuid = status.lease.as_ref().map(|lease| lease.database.clone());
        let (own, mut standbys) =
            (status.lease.as_ref().and_then(Lease::database), BTreeMap::new());
        for bytes in broadcasts {
            match reports::decode(&bytes) {
                Some(Told::Standby(report)) if Some(&report.database) == uuid.as_ref() => {
                    standbys.insert(report.node.clone(), report);
                }
                Some(_) => {}
                None => status.note_mark(&bytes, own),
            }
        }
        // A primary was a standby a moment before.
        let mut standbys: Vec<Report> = standbys.into_values().collect();
        standbys.retain(|report| status.holder() != Some(&report.node));
        status.standbys = standbys;
        Ok(status)
    }

    fn note_mark(&mut self, bytes: &[u8], own: Option<[u8; 16]>) {
        let Ok(ToldMark { database, mark, .. }) = marks::decode(bytes) else { return };
        let order = |mark: &CutMark| (mark.incarnation, mark.epoch);
        if Some(database) == own
            && self.mark.as_ref().is_none_or(|known| order(known) < order(&mark))
        {
            self.mark = Some(mark);
        }
    }

    /// The node that has the lease, unless the lease was given away.
    pub fn holder(&self) -> Option<&String> {
        self.lease.as_ref().filter(|lease| !lease.released).map(|lease| &lease.node)
    }

    /// Whether the holder of the lease was heard: its marks come each second, and each 20 ms while
    /// records are logged.
    pub fn is_primary_heard(&self) -> bool {
        let incarnation = |lease: &Lease| (!lease.released).then_some(lease.incarnation);
        let held = self.lease.as_ref().and_then(incarnation);
        held.is_some() && held == self.mark.as_ref().map(|mark| mark.incarnation)
    }

    /// By stream, the highest position that is known: by the lease, a mark, or a standby.
    pub fn positions(&self) -> Vec<Lsn> {
        let told = self.standbys.iter().map(|report| &report.synced);
        let told = told.chain(self.lease.iter().map(|lease| &lease.stored));
        let mut known: Vec<Lsn> = Vec::new();
        for positions in told.chain(self.mark.iter().map(|mark| &mark.to)) {
            known.resize(known.len().max(positions.len()), 0);
            known.iter_mut().zip(positions).for_each(|(known, at)| *known = (*known).max(*at));
        }
        known
    }

    /// The bytes of the log that a standby has not synced, as far as is known.
    pub fn behind(&self, standby: &Report) -> u64 {
        let known = self.positions();
        known.iter().zip(&standby.synced).map(|(known, at)| known.saturating_sub(*at)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Holder;

    fn report(node: &str, synced: &[Lsn]) -> Vec<u8> {
        let database = "01".repeat(16);
        let (node, address, synced) = (node.to_owned(), "h:1".to_owned(), synced.to_vec());
        reports::encode(&Told::Standby(Report {
            database,
            node,
            address,
            incarnation: 2,
            synced,
            lag_us: Some(1),
        }))
    }

    fn mark(database: [u8; 16], epoch: u64, to: &[Lsn]) -> Vec<u8> {
        let (from, to) = (vec![0; to.len()], to.to_vec());
        let mark = CutMark { incarnation: 2, epoch, from, to, wall_us: 0 };
        marks::encode(&ToldMark { database, mark, verification: 0 })
    }

    #[test]
    fn keys_and_broadcasts_make_the_status() {
        let holder = Holder { node: "a".into(), address: "h:2".into(), place: "p".into() };
        let mut held = Lease::new(&[1; 16], 2, &holder, 0);
        held.stored = vec![10, 40];
        let key = |value: Vec<u8>| FoundKey { revision: 7, stored_us: 9, value };
        let mut found = FoundLog::default();
        found.keys.insert("lease".into(), key(keys::encode(&held).to_vec()));
        found.keys.insert("holds".into(), key(b"{}".to_vec()));
        found.broadcasts = vec![
            mark([1; 16], 5, &[30, 20]),
            mark([1; 16], 4, &[5, 5]),
            mark([2; 16], 9, &[99, 99]),
            report("b", &[10, 10]),
            report("a", &[1, 1]),
            report("b", &[25, 40]),
            b"something else".to_vec(),
        ];
        let mut status = DatabaseStatus::of(found.clone()).unwrap();
        assert_eq!((status.renewed_us, status.holder().unwrap().as_str()), (9, "a"));
        assert_eq!(status.positions(), [30, 40]);
        assert_eq!(status.standbys.len(), 1, "the primary is none");
        assert_eq!(status.behind(&status.standbys[0]), 5);
        assert!(status.others.contains_key("holds") && status.is_primary_heard());
        // A mark of an incarnation before is none of the holder's.
        status.lease.as_mut().unwrap().incarnation = 3;
        assert!(!status.is_primary_heard());
        held.released = true;
        found.keys.insert("lease".into(), key(keys::encode(&held).to_vec()));
        let status = DatabaseStatus::of(found.clone()).unwrap();
        assert!(status.holder().is_none() && !status.is_primary_heard());
        found.keys.insert("lease".into(), key(b"{\"format\":99}".to_vec()));
        assert!(DatabaseStatus::of(found).unwrap_err().to_string().contains("format is 99"));
        let empty = DatabaseStatus::of(FoundLog::default()).unwrap();
        assert!(empty.positions().is_empty() && !empty.is_primary_heard());
    }
}
