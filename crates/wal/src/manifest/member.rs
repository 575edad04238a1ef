//! The parts of a manifest for a database whose log is replicated: whether the directories are a
//! member's, and which incarnations were written from the replicated log.

use super::{Incarnation, Manifest};
use crate::Lsn;
use crate::error::Error;
use crate::stream_id::StreamId;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The incarnation's setting if its files hold what was taken from the lanes of a replicated log.
/// The anchors of such an incarnation state what the *replicated log* had stored, not what these
/// files had: only the headers of a stream's own files are statements about the stream.
pub const MIRRORED: &str = "mirrored";
/// The only value of [`MIRRORED`].
pub const FROM_LANES: &str = "yes";

/// A member of a database with a replicated log: the owner of a copy of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The member's name; empty for a base, a copy from which a member may begin.
    pub node: String,
    /// Where to go on reading lanes: hints, in any order.
    #[serde(default)]
    pub seen: Vec<Seen>,
    /// How far the files were whole and durable when they were a base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub whole: Vec<WholeTo>,
}

/// The files of a stream have all frames up to a position, durably, whatever headers prove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeTo {
    /// The stream.
    pub stream: StreamId,
    /// The position.
    pub to: Lsn,
}

impl Member {
    /// Whether the directory is a base, no member's yet.
    pub fn is_base(&self) -> bool {
        self.node.is_empty()
    }
}

/// A message of a lane whose frames are in the files: a hint where to go on reading the lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The stream of the lane.
    pub stream: StreamId,
    /// The place of the message in the lane.
    pub place: u64,
    /// The message's index.
    pub index: u64,
    /// The message's chain.
    pub chain: u32,
    /// The position behind the message's frames.
    pub end: Lsn,
}

impl Incarnation {
    /// Whether the files hold what was taken from a replicated log, see [`MIRRORED`].
    pub fn is_mirrored(&self) -> bool {
        self.settings.contains_key(MIRRORED)
    }

    pub(super) fn check_mirrored(&self) -> Result<(), String> {
        match self.settings.get(MIRRORED) {
            Some(value) if value != FROM_LANES => Err(format!(
                "incarnation {} was mirrored as {value:?}, and this program knows only \
                 {FROM_LANES:?}: use the program that wrote it",
                self.number
            )),
            _ => Ok(()),
        }
    }
}

impl Manifest {
    /// Refuses the directories of a member of a replicated database. Opened without the replicated
    /// log, the database would go on where the other members did not.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the manifest, in directory `dir`, names a member.
    pub fn refuse_member(&self, dir: &Path) -> Result<(), Error> {
        let Some(member) = &self.member else { return Ok(()) };
        let whose = match member.is_base() {
            true => "a base".to_owned(),
            false => format!("member {:?}", member.node),
        };
        Err(Error::Invalid(format!(
            "{} is {whose} of a replicated database: opened without the replicated log it \
             would go on where the other members did not; open it with the log, or make a database \
             of its own from it with `hyades recover --out`",
            dir.display()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Dimension, MANIFEST};
    use hyades_platform::device::FileDevice;
    use std::collections::BTreeMap;

    fn incarnation(mirrored: &str) -> Incarnation {
        Incarnation {
            number: 1,
            data_only: true,
            protocol: String::new(),
            settings: BTreeMap::from([(MIRRORED.into(), mirrored.into())]),
            clean: false,
            dims: vec![Dimension { stream: StreamId(0), start: 0, end: Some(0), mark: 0 }],
        }
    }

    #[test]
    fn a_member_has_a_format_of_its_own_and_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let first_line = |manifest: &Manifest| {
            manifest.write(&FileDevice, dir.path()).unwrap();
            assert_eq!(Manifest::read(&FileDevice, dir.path()).unwrap().as_ref(), Some(manifest));
            let text = std::fs::read_to_string(dir.path().join(MANIFEST)).unwrap();
            text.lines().next().unwrap().to_owned()
        };
        let mut manifest = Manifest::fresh([7; 16], 4096);
        assert_eq!(first_line(&manifest), "{\"format\":1}");
        assert!(manifest.refuse_member(dir.path()).is_ok());
        let seen = Seen { stream: StreamId(3), place: 9, index: 2, chain: 77, end: 500 };
        manifest.member = Some(Member { node: "n1".into(), seen: vec![seen], whole: Vec::new() });
        assert_eq!(first_line(&manifest), "{\"format\":9}");
        let refused = manifest.refuse_member(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("\"n1\"") && refused.contains("replicated log"), "{refused}");
    }

    #[test]
    fn an_incarnation_mirrored_in_an_unknown_way_is_refused() {
        assert_eq!(incarnation(FROM_LANES).check_mirrored(), Ok(()));
        assert!(incarnation(FROM_LANES).is_mirrored());
        let error = incarnation("half").check_mirrored().unwrap_err();
        assert!(error.contains("incarnation 1") && error.contains("\"half\""), "{error}");
    }
}
