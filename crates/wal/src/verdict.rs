//! The verdict on where streams end: at a torn tail, or at damage.
//!
//! A stream's valid prefix ends at the first byte that is not a valid frame of the stream. The rest
//! is a torn tail, unless something durable (a frame of another stream, a checkpoint or the
//! manifest) states a durable position beyond the prefix: then the rest is damage. In a mirrored
//! incarnation frames state what a replicated log has stored: there only the headers of a stream's
//! own files speak of the stream (`reader.rs` notes no other statements).

use crate::Lsn;
use crate::error::Error;
use crate::lsn_vector::{LsnVector, covers};
use crate::manifest::{Incarnation, MANIFEST};
use crate::open::Recovering;
use crate::reader::{ReaderEnd, StreamReader};
use crate::statement::Statement;
use crate::stream_id::StreamId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A damaged stream: something durable states a durable position beyond its valid prefix, or the
/// stream cannot be read or used up to the stated position.
#[derive(Debug)]
pub struct Damage {
    /// The incarnation.
    pub incarnation: u32,
    /// The stream's id.
    pub stream: StreamId,
    /// The end of the valid prefix.
    pub valid_to: Lsn,
    /// The highest known durable position of the stream.
    pub durable_to: Lsn,
    /// The file and the offset of the damage, and why.
    pub error: Error,
    /// The stream itself is whole there, but the following records may depend on a stream with
    /// losses.
    pub cut_short: bool,
}

/// The end of every stream of every incarnation; proof that nothing durable is missing.
#[derive(Clone, Debug)]
pub struct Verdict {
    ends: Vec<IncarnationEnd>,
}

/// Where the streams of an incarnation end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncarnationEnd {
    /// The incarnation's number.
    pub incarnation: u32,
    /// The end vector: a record is dead for ever iff the end vector does not cover the record's
    /// vector.
    pub ends: LsnVector,
    /// By stream, the position up to which something durable states that the stream was durable.
    pub(crate) proven: Vec<Lsn>,
    /// By stream, the highest mark stated within the valid prefix.
    pub marks: Vec<u64>,
}

impl IncarnationEnd {
    /// By stream, the position up to which something durable states that the stream was durable: no
    /// crash takes that back. At or below the end.
    pub fn proven(&self) -> &[Lsn] {
        &self.proven
    }
}

impl Verdict {
    /// The end vectors, in the order of incarnations.
    pub fn ends(&self) -> &[IncarnationEnd] {
        &self.ends
    }

    /// The end vector of an incarnation.
    pub fn end(&self, incarnation: u32) -> Option<&LsnVector> {
        self.ends.iter().find(|e| e.incarnation == incarnation).map(|e| &e.ends)
    }
}

impl Recovering {
    /// The verdict of a manifest that records the ends of all incarnations; `None` if one has not
    /// ended. A recorded end needs no proof.
    pub(crate) fn recorded_verdict(&self) -> Option<Verdict> {
        let end = |incarnation: &Incarnation| {
            let dims = &incarnation.dims;
            let proven: Vec<Lsn> = dims.iter().map(|dim| dim.end).collect::<Option<_>>()?;
            Some(IncarnationEnd {
                incarnation: incarnation.number,
                ends: LsnVector::from_slice(&proven),
                proven,
                marks: dims.iter().map(|dim| dim.mark).collect(),
            })
        };
        let ends = self.manifest.incarnations.iter().map(end);
        Some(Verdict { ends: ends.collect::<Option<_>>()? })
    }

    /// Decides whether the readers stopped at torn tails or at damage.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if something durable states a durable position beyond the end of a
    /// stream's valid prefix; [`Error::Invalid`] if a reader is missing or was not read to its end.
    pub fn verdict(&self, ends: &[ReaderEnd]) -> Result<Verdict, Error> {
        let incarnations = self.manifest.incarnations.iter();
        let ends = incarnations.map(|incarnation| self.judge_incarnation(incarnation, ends));
        Ok(Verdict { ends: ends.collect::<Result<_, _>>()? })
    }

    /// The verdict on one incarnation, for a caller that checks each incarnation before reading the
    /// next.
    ///
    /// # Errors
    /// As [`verdict`](Self::verdict).
    pub fn judge_incarnation(
        &self,
        incarnation: &Incarnation,
        ends: &[ReaderEnd],
    ) -> Result<IncarnationEnd, Error> {
        let number = incarnation.number;
        let mut proven = Vec::new();
        for judged in self.judge_lanes(incarnation, ends)? {
            proven.push(judged.map_err(|damage| damage.error)?);
        }
        let own_ends = ends.iter().filter(|end| end.incarnation == number);
        let (mut valid_to, mut marks) = (vec![0; proven.len()], vec![0; proven.len()]);
        for end in own_ends {
            valid_to[end.dimension] = end.valid_to;
            marks[end.dimension] = end.mark;
        }
        debug_assert!(covers(&valid_to, &proven), "{proven:?} is durable, {valid_to:?} was found");
        let ends = LsnVector::from_slice(&valid_to);
        Ok(IncarnationEnd { incarnation: number, ends, proven, marks })
    }

    /// Reads everything to find the damaged streams and the usable part of the whole streams.
    /// Readers made afterwards ignore the manifest's mark of a damaged stream, and use only the
    /// statements before the damage.
    ///
    /// Where records leave out positions covered by an anchor (`leaves_out`), a record may depend
    /// on anything stated by the anchor, and later records depend on the record by position alone.
    /// So readers end behind an anchor with a statement beyond the usable part, and streams with a
    /// dependency on the cut-off part end likewise.
    ///
    /// # Errors
    /// The device failed.
    pub fn find_damage(&mut self, leaves_out: impl Fn(&Incarnation) -> bool) -> Result<(), Error> {
        let (mut ends, mut anchors) = (Vec::new(), Vec::new());
        for mut reader in self.readers() {
            let (end, stated) = reader.read_anchors()?;
            ends.push(end);
            anchors.push(stated);
        }
        let (mut broken, mut whole) = (BTreeSet::new(), BTreeMap::new());
        for incarnation in &self.manifest.incarnations {
            for (lane, judged) in self.judge_lanes(incarnation, &ends)?.into_iter().enumerate() {
                let chain = &self.chains[&incarnation.dims[lane].stream];
                if judged.is_err() || chain.broken {
                    broken.insert((incarnation.number, lane));
                }
            }
            if leaves_out(incarnation) {
                let lanes = ends.iter().zip(&anchors);
                let lanes = lanes.filter(|(end, _)| end.incarnation == incarnation.number);
                let (valid_to, anchors): (Vec<_>, Vec<_>) =
                    lanes.map(|(end, stated)| (end.valid_to, &stated[..])).unzip();
                whole.insert(incarnation.number, usable(valid_to, &anchors));
            }
        }
        self.broken = broken;
        self.whole = whole;
        Ok(())
    }

    /// The damaged streams of an incarnation, first the streams with damage of their own. For
    /// salvage.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a reader is missing or was not read to its end.
    pub fn damaged_streams(
        &self,
        incarnation: &Incarnation,
        ends: &[ReaderEnd],
    ) -> Result<Vec<Damage>, Error> {
        let judged = self.judge_lanes(incarnation, ends)?;
        let mut damaged: Vec<Damage> = judged.into_iter().filter_map(Result::err).collect();
        damaged.sort_by_key(|damage| damage.cut_short);
        Ok(damaged)
    }

    /// By stream: the highest position proven durable, or the damage.
    fn judge_lanes(
        &self,
        incarnation: &Incarnation,
        ends: &[ReaderEnd],
    ) -> Result<Vec<Result<Lsn, Damage>>, Error> {
        let number = incarnation.number;
        let mut lanes = Vec::new();
        for dimension in 0..incarnation.dims.len() {
            let end = ends.iter().find(|e| e.incarnation == number && e.dimension == dimension);
            lanes.push(end.filter(|e| e.finished).ok_or_else(|| {
                Error::Invalid(format!(
                    "the reader of incarnation {number}, stream {} was not read to its end",
                    incarnation.dims[dimension].stream
                ))
            })?);
        }
        let judge = |(dimension, lane): (usize, &&ReaderEnd)| {
            let recorded = incarnation.dims[dimension].end;
            let covered = self.manifest.covered(number, incarnation.dims[dimension].stream);
            judge(&lanes, lane, recorded, covered, &self.manifest_dir)
        };
        Ok(lanes.iter().enumerate().map(judge).collect())
    }
}

/// The position from which each anchor of a stream counts, and the stated vector.
type StatedAnchors = Vec<(Lsn, Vec<Lsn>)>;

impl StreamReader {
    /// Reads to the end. Returns also the anchors.
    pub(crate) fn read_anchors(&mut self) -> Result<(ReaderEnd, StatedAnchors), Error> {
        let mut stated = Vec::new();
        while let Some(chunk) = self.next_chunk()? {
            if stated.is_empty() {
                stated.push((chunk.start(), chunk.anchor().to_vec()));
            }
            stated.extend(chunk.anchors(self.dimensions));
        }
        Ok((self.end(), stated))
    }
}

/// The usable end of each stream, if no anchor may state more. `anchors`: by stream, the position
/// from which each anchor counts, and the stated vector.
pub(crate) fn usable(mut ends: Vec<Lsn>, anchors: &[&[(Lsn, Vec<Lsn>)]]) -> Vec<Lsn> {
    debug_assert_eq!(ends.len(), anchors.len(), "each stream has anchors");
    loop {
        let states_more = |anchor: &[Lsn]| anchor.iter().zip(&ends).any(|(lsn, end)| lsn > end);
        let first = |stated: &&[(Lsn, Vec<Lsn>)]| {
            stated.iter().find(|(_, anchor)| states_more(anchor)).map_or(Lsn::MAX, |(at, _)| *at)
        };
        let limits: Vec<Lsn> = anchors.iter().map(first).collect();
        if ends.iter().zip(&limits).all(|(end, limit)| end <= limit) {
            return ends;
        }
        ends.iter_mut().zip(limits).for_each(|(end, limit)| *end = limit.min(*end));
    }
}

/// Why a reader stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The bytes that follow are not a frame of the stream, or there are none.
    NoFrame,
    /// The device failed to read the next bytes.
    Unreadable,
    /// The next records may depend on losses of another stream.
    CutShort,
}

impl Stop {
    fn of(end: &ReaderEnd) -> Stop {
        match (end.unreadable, end.cut_short) {
            (true, _) => Stop::Unreadable,
            (false, true) => Stop::CutShort,
            (false, false) => Stop::NoFrame,
        }
    }
}

/// The meaning of the end of a stream's valid prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The bytes behind the end were never durable.
    TornTail,
    /// Durable bytes are missing or changed, or cannot be read.
    Damage,
    /// The stream is whole, and is used no further.
    CutShort,
}

/// The decision, by why the reader stopped, and whether the valid prefix reaches everything proven
/// durable. Each case has its line.
const DECISIONS: [(Stop, bool, Ending); 6] = [
    // No statement proves a loss.
    (Stop::NoFrame, true, Ending::TornTail),
    // Something durable states a higher position.
    (Stop::NoFrame, false, Ending::Damage),
    // There may be more, without a statement: to go on would cut the rest off.
    (Stop::Unreadable, true, Ending::Damage),
    (Stop::Unreadable, false, Ending::Damage),
    // Only salvage cuts streams short. The bytes behind the cut are left out, even if whole.
    (Stop::CutShort, true, Ending::CutShort),
    (Stop::CutShort, false, Ending::CutShort),
];

fn decide(stop: Stop, reaches: bool) -> Ending {
    let case = DECISIONS.iter().find(|(why, reached, _)| (*why, *reached) == (stop, reaches));
    case.expect("each case has its line").2
}

/// The statement with the highest position proven durable: a frame's, or the manifest's. `covered`
/// is the position up to which the checkpoint needs the stream, `recorded` its recorded end. The
/// recorded end replaces all statements: nothing beyond counts.
fn proof(
    statements: impl Iterator<Item = Statement>,
    covered: Option<Lsn>,
    recorded: Option<Lsn>,
    manifest_dir: &Path,
) -> Statement {
    let best = statements.max_by_key(|statement| statement.lsn).unwrap_or_default();
    let beyond = covered.filter(|covered| *covered > best.lsn);
    match recorded.or(beyond) {
        Some(lsn) => Statement { lsn, path: manifest_dir.join(MANIFEST), offset: 0 },
        None => best,
    }
}

/// The highest LSN to which a stream is proven durable; an error if the stream's valid prefix ends
/// below that LSN, could not be read, or was cut short.
fn judge(
    lanes: &[&ReaderEnd],
    lane: &ReaderEnd,
    recorded: Option<Lsn>,
    covered: Option<Lsn>,
    manifest_dir: &Path,
) -> Result<Lsn, Damage> {
    let stated = lanes.iter().filter_map(|l| l.statements.get(lane.dimension)).cloned();
    let proof = proof(stated, covered, recorded, manifest_dir);
    let ending = decide(Stop::of(lane), lane.valid_to >= proof.lsn);
    if ending == Ending::TornTail {
        return Ok(proof.lsn);
    }
    let (path, offset, why) = &lane.stopped_at;
    let error = Error::corrupt(
        path,
        *offset,
        format!(
            "{why}, and log stream {} is valid up to Lsn {} only, but {} at byte {} states that \
             it was durable up to Lsn {}; restore the files from a copy, or save what is whole \
             into a new directory (`hyades recover --salvage`)",
            lane.stream,
            lane.valid_to,
            proof.path.display(),
            proof.offset,
            proof.lsn
        ),
    );
    Err(Damage {
        incarnation: lane.incarnation,
        stream: lane.stream,
        valid_to: lane.valid_to,
        durable_to: proof.lsn,
        error,
        cut_short: ending == Ending::CutShort,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_one_line() {
        for stop in [Stop::NoFrame, Stop::Unreadable, Stop::CutShort] {
            for reaches in [false, true] {
                let lines = DECISIONS.iter().filter(|(s, r, _)| (*s, *r) == (stop, reaches));
                assert_eq!(lines.count(), 1, "{stop:?}, {reaches}");
            }
        }
        assert_eq!(DECISIONS.len(), 6);
    }

    /// A stream that ends at 5: with every proof below, at and beyond 5, and every way to stop.
    #[test]
    fn a_stream_is_whole_iff_it_was_read_to_its_end_and_nothing_proves_more() {
        let statement = |lsn| Statement { lsn, path: "stream".into(), offset: 7 };
        let positions = [0, 4, 5, 6];
        let manifests = [None, Some(4), Some(5), Some(6)];
        let mut endings = [0; 3];
        for stated in positions.iter().flat_map(|own| positions.map(|other| [*own, other])) {
            for (covered, recorded) in
                manifests.iter().flat_map(|covered| manifests.map(|end| (*covered, end)))
            {
                for (unreadable, cut_short) in [(false, false), (true, false), (false, true)] {
                    let end = |dimension: usize| ReaderEnd {
                        incarnation: 3,
                        dimension,
                        stream: StreamId(8 + dimension as u32),
                        valid_to: 5,
                        mark: 0,
                        statements: vec![statement(stated[dimension]), statement(0)],
                        stopped_at: ("stream".into(), 9, "it ends there".to_string()),
                        finished: true,
                        unreadable: unreadable && dimension == 0,
                        cut_short: cut_short && dimension == 0,
                    };
                    let (own, other) = (end(0), end(1));
                    let judged = judge(&[&own, &other], &own, recorded, covered, Path::new("home"));
                    let claimed = stated[0].max(stated[1]).max(covered.unwrap_or(0));
                    let proven = recorded.unwrap_or(claimed);
                    match judged {
                        Ok(lsn) => {
                            assert!(!unreadable && !cut_short && proven <= 5);
                            assert_eq!(lsn, proven);
                            endings[0] += 1;
                        }
                        Err(damage) => {
                            assert!(unreadable || cut_short || proven > 5);
                            assert_eq!((damage.durable_to, damage.valid_to), (proven, 5));
                            assert_eq!(damage.cut_short, cut_short);
                            endings[1 + usize::from(cut_short)] += 1;
                        }
                    }
                }
            }
        }
        assert!(endings.iter().all(|times| *times > 100), "{endings:?}");
    }

    #[test]
    fn a_stream_ends_behind_the_first_anchor_that_states_more_than_is_whole() {
        let anchors: [&[(u64, Vec<u64>)]; 3] = [
            &[(0, vec![0, 0, 0]), (40, vec![30, 10, 0])],
            &[(0, vec![0, 0, 0]), (50, vec![9, 40, 0]), (70, vec![11, 60, 0])],
            &[(0, vec![0, 0, 0]), (20, vec![9, 70, 0]), (60, vec![10, 71, 0])],
        ];
        // Nothing is lost: no anchor states more than is whole.
        assert_eq!(usable(vec![90, 90, 90], &anchors), [90, 90, 90]);
        // From 70 on stream 1 depends on the loss of stream 0; from 60 on stream 2 on the loss of
        // stream 1.
        assert_eq!(usable(vec![10, 90, 90], &anchors), [10, 70, 60]);
        assert_eq!(usable(vec![9, 90, 90], &anchors), [9, 70, 60]);
        assert_eq!(usable(vec![8, 90, 90], &anchors), [8, 50, 20]);
    }
}
