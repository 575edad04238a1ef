//! Which records count, by the rule that recovery goes by: [`crate::logging::admits`] over where the streams end and
//! what marks they have stated, or, where records list their predecessors, those lists.

use super::{Inspected, Inspector};
use crate::error::Error;
use crate::logging::admits;
use crate::logging::predecessors::{self, Id};
use crate::transaction_id::TransactionId;
use hyades_wal::{Incarnation, Lsn, ReaderEnd, Recovering, StreamReader};
use std::collections::{BTreeMap, BTreeSet};

/// What the records of a log are judged by, see [`Inspected::is_live`].
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    /// By incarnation.
    of: BTreeMap<u32, Frontier>,
}

/// An incarnation's frontier: where streams end, their marks, the common mark.
#[derive(Clone, Debug, Default)]
struct Frontier {
    lanes: Vec<Lsn>,
    /// Where records list their predecessors: the dead ones.
    dead: Option<BTreeSet<Id>>,
}

impl Inspector {
    /// What the records of the log are judged by. `ends` are those of all its readers. Where records list their
    /// predecessors it reads these incarnations.
    ///
    /// # Errors
    /// A stream cannot be read, or a record is not of this format.
    pub fn liveness(&self, recovering: &Recovering, ends: &[ReaderEnd]) -> Result<Liveness, Error> {
        let mut liveness = Liveness::default();
        for incarnation in &recovering.manifest().incarnations {
            let number = incarnation.number;
            let of = || ends.iter().filter(|end| end.incarnation == number);
            let mut lanes: Vec<Lsn> = of().map(|end| end.valid_to).collect();
            lanes.extend(of().map(|end| end.mark));
            lanes.push(of().map(|end| end.mark).min().unwrap_or(0));
            let mut frontier = Frontier { lanes, dead: None };
            if self.stream(incarnation, 0).shape.predecessors {
                frontier.dead = Some(self.dead(recovering, incarnation, &frontier)?);
            }
            liveness.of.insert(number, frontier);
        }
        Ok(liveness)
    }

    /// The dead records of an incarnation whose records list their predecessors: those whose vectors are not
    /// admitted, and those that have read from one that is lost, or is itself dead. It reads the log again as long as
    /// there are more; only a log that has any is read more than once.
    fn dead(
        &self,
        recovering: &Recovering,
        incarnation: &Incarnation,
        frontier: &Frontier,
    ) -> Result<BTreeSet<Id>, Error> {
        let mut dead = BTreeSet::new();
        let lost = |id: Id| frontier.at(predecessors::lane(id)) < predecessors::end(id);
        loop {
            let before = dead.len();
            let own = |reader: &StreamReader| reader.incarnation == incarnation.number;
            for mut reader in recovering.readers().into_iter().filter(own) {
                let lane = reader.dimension;
                let mut inspect = self.stream(incarnation, reader.stream);
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
    fn at(&self, lane: usize) -> Lsn {
        self.lanes.get(lane).copied().unwrap_or(0)
    }

    fn admits(&self, needs: &[Lsn]) -> bool {
        let needs = needs.iter().copied().enumerate().filter(|(_, needed)| *needed > 0);
        admits(|lane| self.at(lane), needs)
    }
}

impl Inspected<'_> {
    /// Whether recovery takes the record: all that it needs is there.
    pub fn is_live(&self, liveness: &Liveness) -> bool {
        let Some(frontier) = liveness.of.get(&self.incarnation) else { return false };
        match &frontier.dead {
            Some(dead) => !dead.contains(&predecessors::id(self.lane, self.end)),
            None => frontier.admits(self.needs),
        }
    }
}

/// Whether the transaction, whose record is in the log, counts, by the rule that recovery goes by. A record can be there
/// without what it depends on: then the transaction was lost in the crash all the same.
pub(crate) fn is_live(
    from: &Recovering,
    ends: &[ReaderEnd],
    id: TransactionId,
) -> Result<bool, Error> {
    let inspector = Inspector::new(from.manifest())?;
    let liveness = inspector.liveness(from, ends)?;
    for mut reader in from.readers().into_iter().filter(|reader| reader.stream == id.stream) {
        let incarnations = &from.manifest().incarnations;
        let own = incarnations.iter().find(|i| i.number == reader.incarnation);
        let Some(mut inspect) = own.map(|own| inspector.stream(own, id.stream)) else { continue };
        while let Some(chunk) = reader.next_chunk()? {
            inspect.enter(&chunk);
            for frame in chunk.frames() {
                let record = inspect.read(&frame)?;
                if frame.end == id.lsn {
                    // Without a record it is in the checkpoint.
                    return Ok(record.is_none_or(|record| record.is_live(&liveness)));
                }
            }
        }
    }
    Ok(false)
}
