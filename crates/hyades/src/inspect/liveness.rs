//! Liveness of records, by the rule of recovery: [`crate::logging::admits`] over the ends of the
//! streams and their stated marks or, where records list their predecessors, the lists.

use super::{Inspected, Inspector};
use crate::error::Error;
use crate::logging::admits;
use crate::logging::predecessors::{self, Id};
use crate::recovery::decode::RecordShape;
use crate::transaction_id::TransactionId;
use hyades_wal::{Incarnation, Lane, Lsn, ReaderEnd, Recovering, StreamReader};
use std::collections::{BTreeMap, BTreeSet};

/// The data that decide the liveness of a log's records, see [`Inspected::is_live`].
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    /// By incarnation number.
    frontiers: BTreeMap<u32, Frontier>,
}

/// Frontier of an incarnation: the ends of its streams, their marks, the common mark.
#[derive(Clone, Debug, Default)]
struct Frontier {
    lanes: Vec<Lsn>,
    /// The dead records, where records list their predecessors.
    dead: Option<BTreeSet<Id>>,
}

impl Inspector {
    /// Determines the live records of the log. `ends` are the ends of all readers of the log. Reads
    /// incarnations whose records list their predecessors.
    ///
    /// # Errors
    /// A stream cannot be read, or a record has another format than this version's.
    pub fn liveness(&self, recovering: &Recovering, ends: &[ReaderEnd]) -> Result<Liveness, Error> {
        let mut liveness = Liveness::default();
        for incarnation in &recovering.manifest().incarnations {
            let number = incarnation.number;
            let own_ends = || ends.iter().filter(|end| end.incarnation == number);
            let mut lanes: Vec<Lsn> = own_ends().map(|end| end.valid_to).collect();
            lanes.extend(own_ends().map(|end| end.mark));
            lanes.push(own_ends().map(|end| end.mark).min().unwrap_or(0));
            let mut frontier = Frontier { lanes, dead: None };
            if RecordShape::of(incarnation, incarnation.dims.len(), None).predecessors {
                frontier.dead = Some(self.dead(recovering, incarnation, &frontier)?);
            }
            liveness.frontiers.insert(number, frontier);
        }
        Ok(liveness)
    }

    /// Finds the dead records of an incarnation of records with lists of predecessors: records with
    /// a vector that is not admitted, and readers of a lost or a dead record. Reads the log until a
    /// pass finds no more: once, if no record is dead.
    fn dead(
        &self,
        recovering: &Recovering,
        incarnation: &Incarnation,
        frontier: &Frontier,
    ) -> Result<BTreeSet<Id>, Error> {
        let mut dead = BTreeSet::new();
        let lost =
            |id: Id| frontier.at(Lane::position(predecessors::lane(id))) < predecessors::end(id);
        loop {
            let before = dead.len();
            let own = |reader: &StreamReader| reader.incarnation == incarnation.number;
            for mut reader in recovering.readers().into_iter().filter(own) {
                let lane = reader.dimension;
                let mut inspect = self.stream(incarnation, reader.stream.0);
                while let Some(chunk) = reader.next_chunk()? {
                    inspect.enter(&chunk);
                    for frame in chunk.frames() {
                        let Some(record) = inspect.read(&frame)? else { continue };
                        let mut read = record.predecessors.iter().filter(|p| !p.overwritten);
                        if !frontier.admits(record.needs)
                            || read.any(|p| lost(p.id) || dead.contains(&p.id))
                        {
                            dead.insert(predecessors::id(lane, frame.end));
                        }
                    }
                }
            }
            if dead.len() == before {
                return Ok(dead);
            }
        }
    }
}

impl Frontier {
    fn at(&self, lane: Lane) -> u64 {
        self.lanes.get(lane.index()).copied().unwrap_or(0)
    }

    fn admits(&self, needs: &[Lsn]) -> bool {
        let needs = Lane::each(needs).filter(|(_, needed)| *needed > 0);
        admits(|lane| self.at(lane), needs)
    }
}

impl Inspected<'_> {
    /// Whether recovery applies the record: everything needed by the record is durable.
    pub fn is_live(&self, liveness: &Liveness) -> bool {
        let Some(frontier) = liveness.frontiers.get(&self.incarnation) else { return false };
        match &frontier.dead {
            Some(dead) => !dead.contains(&predecessors::id(self.lane, self.end)),
            None => frontier.admits(self.needs),
        }
    }
}

/// Whether the transaction is live, by the rule of recovery. Its record is in the log. A record may
/// be intact although a dependency of the record is lost; then the crash has lost the transaction
/// too.
pub(crate) fn is_live(
    from: &Recovering,
    ends: &[ReaderEnd],
    id: TransactionId,
) -> Result<bool, Error> {
    let inspector = Inspector::new(from.manifest())?;
    let liveness = inspector.liveness(from, ends)?;
    for mut reader in from.readers().into_iter().filter(|reader| reader.stream.0 == id.stream) {
        let incarnations = &from.manifest().incarnations;
        let own = incarnations.iter().find(|i| i.number == reader.incarnation);
        let Some(mut inspect) = own.map(|own| inspector.stream(own, id.stream)) else { continue };
        while let Some(chunk) = reader.next_chunk()? {
            inspect.enter(&chunk);
            for frame in chunk.frames() {
                let record = inspect.read(&frame)?;
                if frame.end == id.lsn {
                    // A position without a record is covered by the checkpoint.
                    return Ok(record.is_none_or(|record| record.is_live(&liveness)));
                }
            }
        }
    }
    Ok(false)
}
