//! Several versions of a row during replay (Taurus 2016, sections 5.2 and 5.3): a replayed command
//! reads the same versions as in its first run, even if later writers were replayed earlier.
//!
//! The version to read: *the latest whose writer is in the RAW list* (5.2). A writer counts as
//! listed if the writer's position is covered by the record's vector, that is, by the anchor in
//! effect at the record or by the record's reads of gaps. The rule is correct: let W have written,
//! at a covered position, a row that T read. W had locked the row before W reserved the position,
//! and T learnt of the covering position before T was validated (or while T held its locks). So T
//! saw W's version, or a later version, or failed. So of a row's versions, T sees in this sense the
//! version that T read and older versions. A WAW predecessor P may count too: were another write of
//! P later than a version that T read, P and T would precede each other.
//!
//! **The sync records** (5.3) are the anchors, for the same reason: a record behind an anchor in
//! the same stream sees everything covered by the anchor. So once replay has passed an anchor in
//! every stream, only the latest of the versions covered by all the anchors is needed.
//!
//! **Epochs** tell the same of an idle stream without a new anchor. Let T have read the version
//! that D overwrote. T reserved its place before T was validated (or while T held its locks), and D
//! locked the row afterwards, and read D's epoch then. A record F of a later epoch read the epoch
//! still later, and reserved a place after that. So T stands before F in T's stream. Once all
//! records before an F of a later epoch have been replayed, or are dead, in each stream, no record
//! needs a version overwritten by D, or by another writer of D's epoch.
//!
//! The newest version is in the row itself, older versions are in
//! [`crate::storage::old_versions`]: each names the record that overwrote the version.

use super::predecessors::{self, Id, Predecessor};
use crate::storage::old_versions::OldVersions;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_wal::Lsn;

/// The versions that a record sees, and the record's own id.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// The record's own id; 0 where rows have one version only.
    pub own: Id,
    named: Vec<Id>,
    positions: Vec<Lsn>,
}

impl View {
    /// Sets the view of the record `own`.
    pub fn set(&mut self, own: Id, list: &[Predecessor], positions: &[Lsn]) {
        self.own = own;
        self.named.clear();
        self.named.extend(list.iter().map(|predecessor| predecessor.id));
        self.positions.clear();
        self.positions.extend_from_slice(positions);
    }

    /// Returns whether the writer's position is covered.
    fn covers(&self, writer: Id) -> bool {
        let covered = self.positions.get(predecessors::lane(writer));
        covered.is_some_and(|covered| predecessors::end(writer) <= *covered)
    }

    /// Returns whether the versions of `writer` are seen. 0 stands for all earlier content.
    pub fn sees(&self, writer: Id) -> bool {
        writer == 0
            || self.covers(writer)
            || self.named.binary_search(&writer).is_ok()
            || broken!(SeeUnlistedVersions)
    }
}

/// The versions that a replayed command reads.
#[derive(Clone, Copy)]
pub(crate) struct ListedVersions<'s> {
    pub versions: &'s OldVersions,
    pub view: &'s View,
    /// The command sees all writers of earlier epochs.
    pub seen_epoch: EpochNumber,
}

/// The versions seen by every record still to be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommonView {
    /// By stream: all writers up to this position.
    pub positions: Vec<Lsn>,
    /// All writers of earlier epochs.
    pub epoch: EpochNumber,
}

impl CommonView {
    /// The view of a replay on `streams` streams that knows of no record still to be replayed.
    pub fn of_all(streams: usize) -> CommonView {
        CommonView { positions: vec![Lsn::MAX; streams], epoch: EpochNumber::ABOVE_ALL }
    }

    /// The epoch whose earlier epochs are seen.
    pub fn seen_epoch(&self) -> EpochNumber {
        // Broken by several epochs, which histories notice soon.
        let too_many = if broken!(DropVersionsOfOpenEpochs) { 3 } else { 0 };
        EpochNumber(self.epoch.0.saturating_add(too_many))
    }

    /// Returns whether the versions of `writer` are seen. 0 stands for all earlier content.
    pub fn covers(&self, writer: Id, epoch: EpochNumber) -> bool {
        writer == 0
            || epoch < self.seen_epoch()
            || predecessors::end(writer) <= self.positions[predecessors::lane(writer)]
    }

    /// Returns whether all writers up to these positions, by stream, are seen, or all writers of
    /// epochs up to `last`.
    pub fn covers_all(&self, last: EpochNumber, ends: &[Lsn]) -> bool {
        last < self.seen_epoch() || ends.iter().zip(&self.positions).all(|(end, seen)| end <= seen)
    }
}
