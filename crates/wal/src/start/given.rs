//! An incarnation whose number, streams and starts come from a replicated log rather than from the
//! manifest.
//!
//! **The invariant.** Each stream of the incarnation begins where the incarnation before ended *by
//! the replicated log*, and these files hold the stream up to there, and count nothing behind.
//! Files that end earlier would have new frames at positions used by the log for others; files that
//! end later would serve frames that no other member has.

use crate::Lsn;
use crate::error::Error;
use crate::log::Log;
use crate::manifest::{IncarnationSettings, Member, StreamEntry};
use crate::open::Recovering;
use crate::options::LogOptions;
use crate::remote::Remote;
use crate::stream_id::StreamId;
use crate::verdict::Verdict;
use hyades_platform::broken;
use std::path::PathBuf;
use std::sync::Arc;

/// The beginning of an incarnation, as the replicated log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeginAt {
    /// The incarnation's number, above the numbers of all before.
    pub number: u32,
    /// The streams, in the order of the incarnation's dimensions.
    pub streams: Vec<StreamStart>,
}

/// A stream of an incarnation that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamStart {
    /// The stream.
    pub stream: StreamId,
    /// Where the incarnation begins in the stream: the end of the incarnation before.
    pub start: Lsn,
}

impl Recovering {
    /// Makes the directories a member's with the next manifest.
    pub(crate) fn become_member(&mut self, node: &str) {
        let member = self.manifest.member.take().unwrap_or_default();
        self.manifest.member = Some(Member { node: node.to_owned(), ..member });
    }

    /// Sets the remote of the log to be started.
    pub fn set_remote(&mut self, remote: Arc<dyn Remote>) {
        self.options.remote = Some(remote);
    }

    /// Sets how the log to be started is written, by which remote too. The directories, their
    /// device and the number of streams stay: a [mirror](crate::Mirror) knows no more of the log.
    pub fn set_options(&mut self, options: LogOptions) {
        let LogOptions { dirs, device, streams, .. } = self.options.clone();
        self.options = LogOptions { dirs, device, streams, ..options };
    }

    /// Like [`start`](Self::start), for member `node` of a replicated database: number, streams and
    /// starts of the incarnation come from the replicated log. From then on the directories are the
    /// member's: a plain [`open`](crate::open) refuses them.
    ///
    /// # Errors
    /// As [`start`](Self::start); also if a stream of these files ends elsewhere than the
    /// incarnation begins, or the number or a stream has been used, or the directories are another
    /// member's.
    pub fn start_as(
        mut self,
        node: &str,
        settings: IncarnationSettings,
        verdict: &Verdict,
        epoch: u64,
        at: &BeginAt,
    ) -> Result<Log, Error> {
        self.check_node(node)?;
        self.options.streams = at.streams.len();
        self.options.check()?;
        self.start_at(settings, verdict, epoch, Some((at, node)))
    }

    /// Refuses the directories of another member.
    pub(crate) fn check_node(&self, node: &str) -> Result<(), Error> {
        let member = self.manifest.member.as_ref().filter(|member| !member.is_base());
        match member.filter(|member| member.node != node) {
            Some(member) => Err(Error::Invalid(format!(
                "{} is member {:?} of the replicated database, not {node:?}: give each member a \
                 directory of its own",
                self.manifest_dir.display(),
                member.node
            ))),
            None if node.is_empty() => {
                Err(Error::Invalid("a member of a replicated database needs a name".into()))
            }
            None => Ok(()),
        }
    }

    /// Checks that the incarnation can begin on these files.
    pub(crate) fn check_begin(&self, at: &BeginAt) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Invalid(what));
        let (number, next) = (at.number, self.manifest.next_incarnation);
        if number < next || number == u32::MAX {
            return wrong(format!(
                "incarnation {number} cannot begin: the manifest in {} knows incarnations up to {}",
                self.manifest_dir.display(),
                next - 1
            ));
        }
        let ends = self.stream_ends();
        for (lane, given) in at.streams.iter().enumerate() {
            let StreamStart { stream, start } = *given;
            if at.streams[..lane].iter().any(|other| other.stream == stream) {
                return wrong(format!("stream {stream} is given twice for incarnation {number}"));
            }
            match ends.get(&stream) {
                Some(&end) if end != start && !broken!(StartAtOwnEnd) => {
                    return wrong(format!(
                        "incarnation {number} begins stream {stream} at Lsn {start} by the \
                         replicated log, and the files end at Lsn {end}: fill or cut the files up \
                         to there first"
                    ));
                }
                None if stream < self.manifest.next_stream => {
                    return wrong(format!(
                        "stream {stream} of incarnation {number} was in use before, and its files \
                         are gone: begin with a copy of another member"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The given streams, each with the directory of the log in which it is, or will be.
    pub(super) fn given_streams(
        &mut self,
        at: &BeginAt,
    ) -> Result<Vec<(StreamId, PathBuf)>, Error> {
        let mut chosen = Vec::new();
        for (lane, given) in at.streams.iter().enumerate() {
            let id = given.stream;
            let known = self.manifest.stream(id).map(|entry| entry.dir);
            let fallback = self.options.dirs[lane % self.options.dirs.len()].clone();
            let dir = match known {
                Some(dir) => self.places[dir].clone(),
                None => Some(fallback),
            };
            let Some(dir) = dir else {
                return Err(Error::Invalid(format!(
                    "the directory of stream {id} is missing: give it among the log directories"
                )));
            };
            if known.is_none() {
                let place = self.places.iter().position(|place| place.as_ref() == Some(&dir));
                debug_assert!(place.is_some(), "{} was not claimed", dir.display());
                let next = self.manifest.next_stream.max(StreamId(id.0 + 1));
                self.manifest.next_stream = next;
                self.manifest.streams.push(StreamEntry {
                    id,
                    dir: place.unwrap_or_default(),
                    first_sequence: 1,
                    kept_from: 0,
                    active: false,
                });
            }
            chosen.push((id, dir));
        }
        Ok(chosen)
    }
}
