//! The manifest and the markers: the streams and incarnations of a log (`docs/format.md`, sections
//! 6 and 7).

mod member;
mod sealed;

pub use self::member::{FROM_LANES, MIRRORED, Member, Seen, WholeTo};
use self::sealed::{
    WITH_CALLS, WITH_CHECKPOINT, WITH_EDITS, WITH_MARKS, WITH_MEMBER, WITH_NUMBERED_VERSIONS,
    WITH_ROW_HEADS, WITH_VERSIONS, seal,
};
pub(crate) use self::sealed::{seal_archive, seal_body, unseal, write_atomically};
use crate::Lsn;
use crate::error::Error;
use crate::format::VERSION;
use crate::stream_id::StreamId;
use hyades_platform::device::Device;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The manifest's file name.
pub(crate) const MANIFEST: &str = "MANIFEST";
/// The marker's file name.
pub(crate) const MARKER: &str = "HYADES";

/// The state of the log known before any segment is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    #[serde(with = "hex")]
    pub(crate) uuid: Vec<u8>,
    /// The block size in bytes of the newest incarnation.
    pub block_bytes: usize,
    pub(crate) next_stream: StreamId,
    pub(crate) next_incarnation: u32,
    /// Epochs up to here may have been used.
    pub epoch_floor: u64,
    /// The last known paths of the directories. Informational: markers identify directories.
    pub dirs: Vec<PathBuf>,
    /// The streams with files left.
    pub streams: Vec<StreamEntry>,
    /// The incarnations with frames left, oldest first.
    pub incarnations: Vec<Incarnation>,
    /// The engine's catalogue, as of the newest incarnation.
    #[serde(with = "hex")]
    pub catalogue: Vec<u8>,
    /// The replay speed measured last, in bytes of log per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_bytes_per_s: Option<u64>,
    /// The newest checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// Present if the directories are a member's of a database with a replicated log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<Member>,
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamEntry {
    /// The stream's id, never used for another stream.
    pub id: StreamId,
    /// The stream's directory, an index of [`Manifest::dirs`].
    pub dir: usize,
    /// The lowest sequence number of a kept segment; lower segments are truncated.
    pub first_sequence: u64,
    /// The lowest kept position: frames below are truncated.
    pub kept_from: Lsn,
    /// Whether the newest incarnation writes to the stream; used only while a log is being opened.
    #[serde(skip)]
    pub(crate) active: bool,
}

/// One opening of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incarnation {
    /// From 1.
    pub number: u32,
    /// Whether the incarnation has no command records, so replay may order by row version alone.
    pub data_only: bool,
    /// The logging protocol's name.
    pub protocol: String,
    /// The engine's settings.
    pub settings: BTreeMap<String, String>,
    /// Whether the incarnation was closed cleanly.
    pub clean: bool,
    /// The dimensions of the incarnation's vectors.
    pub dims: Vec<Dimension>,
}

/// A dimension of vectors: a stream, and the incarnation's range of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dimension {
    /// The stream's id.
    pub stream: StreamId,
    /// The incarnation's start in the stream.
    pub start: Lsn,
    /// The incarnation's end in the stream; None until known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Lsn>,
    /// A mark durable before the manifest was written; the frame with the mark may have been
    /// truncated since. 0 where frames have no numbers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mark: u64,
}

fn is_zero(mark: &u64) -> bool {
    *mark == 0
}

/// The incarnation's setting for the numbers of records: [`SEPARATE_NUMBERS`] if records have
/// numbers, or [`NUMBERS_ARE_VERSIONS`].
pub const MARKS: &str = "marks";
/// The value of [`MARKS`] where records have numbers.
pub const SEPARATE_NUMBERS: &str = "yes";
/// The value of [`MARKS`] where the number of a record is the version of the rows written by the
/// record, and the record's head states none.
pub const NUMBERS_ARE_VERSIONS: &str = "versions";

/// The incarnation's setting that says how a replay of commands tells the versions of a row apart:
/// [`BY_TIMESTAMP`]. Absent where rows have one version at replay.
pub const VERSIONS: &str = "versions";
/// The only value of [`VERSIONS`].
pub const BY_TIMESTAMP: &str = "timestamps";

/// The incarnation's setting if its records are calls logged before they ran: a replayed call may
/// abort. The value states the distribution of tables over partitions.
pub const CALLS: &str = "calls";

/// The incarnation's setting if records may state only the edits of long values.
pub const EDITS: &str = "edits";
/// The only value of [`EDITS`].
pub const WITH_SPLICES: &str = "splices";

/// The incarnation's setting that says how the frames of single rows name the transaction. Absent
/// in logs of earlier versions, where each frame states its transaction's Lsn.
pub const ROW_HEADS: &str = "row-heads";
/// The only value of [`ROW_HEADS`].
pub const SHORT_HEADS: &str = "short";

/// A checkpoint from which recovery begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// From 1.
    pub number: u64,
    /// The cut: the checkpoint holds the rows as left by the transactions of all epochs up to the
    /// cut.
    pub cut: u64,
    /// The incarnation of the checkpoint.
    pub incarnation: u32,
    /// If fuzzy (rows of later epochs may be included): the epoch in which the last row was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan_end: Option<u64>,
    /// When the cut was made or, if fuzzy, the last row was read; microseconds since 1970.
    pub taken_at_us: u64,
    /// Hidden row ids below this number may have been given out.
    pub next_row_id: u64,
    /// The number of rows in all parts.
    pub rows: u64,
    /// The files.
    pub parts: Vec<CheckpointPart>,
    /// For each stream of the incarnation, the lowest position of the log still needed.
    pub streams: Vec<Covered>,
}

impl Checkpoint {
    /// The first epoch to which the database can be recovered from it.
    pub fn reaches_back_to(&self) -> u64 {
        self.scan_end.unwrap_or(self.cut).max(self.cut)
    }
}

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointPart {
    /// Its directory, an index of [`Manifest::dirs`].
    pub dir: usize,
    /// Its length in bytes.
    pub bytes: u64,
    /// The rows in the part.
    pub rows: u64,
}

/// The part of a stream that a checkpoint covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// The stream's id.
    pub stream: StreamId,
    /// No frame of an epoch above the cut begins below this durable position.
    pub from: Lsn,
}

/// The name of a checkpoint's part.
pub(crate) fn part_name(number: u64, part: usize) -> String {
    format!("{PART_PREFIX}{number:08}-{part:03}")
}

/// The prefix of the names of all parts.
pub(crate) const PART_PREFIX: &str = "checkpoint-";

/// The engine's settings for the next incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncarnationSettings {
    /// The engine's catalogue.
    pub catalogue: Vec<u8>,
    /// Whether no command records will be written.
    pub data_only: bool,
    /// The logging protocol's name.
    pub protocol: String,
    /// Further settings, not interpreted by the log.
    pub settings: BTreeMap<String, String>,
}

/// The content of a log directory's marker file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Marker {
    #[serde(with = "hex")]
    pub(crate) uuid: Vec<u8>,
    pub(crate) dir: usize,
}

mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], out: S) -> Result<S::Ok, S::Error> {
        let digit = |n: u8| char::from_digit(u32::from(n), 16).unwrap_or('0');
        let text: String = bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect();
        out.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        let digits: Option<Vec<u8>> =
            text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
        match digits {
            Some(d) if d.len().is_multiple_of(2) => {
                Ok(d.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
            }
            _ => Err(D::Error::custom("not a hexadecimal string")),
        }
    }
}

impl Marker {
    pub(crate) fn read(device: &dyn Device, dir: &Path) -> Result<Option<Self>, Error> {
        let path = dir.join(MARKER);
        if !device.exists(&path).map_err(Error::io(&path, "look for"))? {
            return Ok(None);
        }
        let bytes = device.read_small(&path).map_err(Error::io(&path, "read"))?;
        unseal(&path, &bytes).map(Some)
    }

    pub(crate) fn write(&self, device: &dyn Device, dir: &Path) -> Result<(), Error> {
        let (name, text) = self.as_file();
        write_atomically(device, &dir.join(name), &text)
    }

    /// The name of the file, and the text.
    pub(crate) fn as_file(&self) -> (&'static str, String) {
        (MARKER, seal(self, VERSION))
    }
}

impl Manifest {
    /// The manifest of a log without an incarnation.
    pub(crate) fn fresh(uuid: [u8; 16], block_bytes: usize) -> Self {
        Self {
            uuid: uuid.to_vec(),
            block_bytes,
            next_stream: StreamId(0),
            next_incarnation: 1,
            epoch_floor: 0,
            dirs: Vec::new(),
            streams: Vec::new(),
            incarnations: Vec::new(),
            catalogue: Vec::new(),
            replay_bytes_per_s: None,
            checkpoint: None,
            member: None,
        }
    }

    /// Returns the lowest position of an incarnation's stream still needed besides the checkpoint.
    pub fn covered(&self, incarnation: u32, stream: StreamId) -> Option<Lsn> {
        let checkpoint = self.checkpoint.as_ref().filter(|c| c.incarnation == incarnation)?;
        checkpoint.streams.iter().find(|s| s.stream == stream).map(|s| s.from)
    }

    /// Whether directory `dir` holds a stream or a part of the checkpoint.
    pub(crate) fn needs_dir(&self, dir: usize) -> bool {
        let mut parts = self.checkpoint.iter().flat_map(|checkpoint| &checkpoint.parts);
        self.streams.iter().any(|stream| stream.dir == dir) || parts.any(|part| part.dir == dir)
    }

    /// Whether file `name` in directory `dir` is a part of the checkpoint.
    pub(crate) fn names_part(&self, dir: usize, name: &str) -> bool {
        self.checkpoint.as_ref().is_some_and(|c| {
            let parts = c.parts.iter().enumerate();
            parts.filter(|(_, p)| p.dir == dir).any(|(at, _)| part_name(c.number, at) == name)
        })
    }

    /// The newest incarnation, if any.
    pub fn newest(&self) -> Option<&Incarnation> {
        self.incarnations.last()
    }

    /// The database's identity.
    pub fn uuid(&self) -> [u8; 16] {
        debug_assert_eq!(self.uuid.len(), 16, "the manifest was not checked");
        self.uuid.as_slice().try_into().unwrap_or([0; 16])
    }

    pub(crate) fn stream(&self, id: StreamId) -> Option<&StreamEntry> {
        self.streams.iter().find(|s| s.id == id)
    }

    pub(crate) fn stream_mut(&mut self, id: StreamId) -> Option<&mut StreamEntry> {
        self.streams.iter_mut().find(|s| s.id == id)
    }

    pub(crate) fn read(device: &dyn Device, dir: &Path) -> Result<Option<Self>, Error> {
        let path = dir.join(MANIFEST);
        if !device.exists(&path).map_err(Error::io(&path, "look for"))? {
            return Ok(None);
        }
        let bytes = device.read_small(&path).map_err(Error::io(&path, "read"))?;
        let manifest: Self = unseal(&path, &bytes)?;
        manifest.check(&path)?;
        Ok(Some(manifest))
    }

    pub(crate) fn write(&self, device: &dyn Device, dir: &Path) -> Result<(), Error> {
        let (name, text) = self.as_file(dir);
        write_atomically(device, &dir.join(name), &text)
    }

    /// The name of the file, and the text; for directory `dir`.
    pub(crate) fn as_file(&self, dir: &Path) -> (&'static str, String) {
        let checked = self.check(dir);
        debug_assert!(checked.is_ok(), "no opening would accept this manifest: {checked:?}");
        let have =
            |setting: &str| self.incarnations.iter().any(|i| i.settings.contains_key(setting));
        let have_marks = |value: &str| {
            let marks = self.incarnations.iter().filter_map(|i| i.settings.get(MARKS));
            marks.into_iter().any(|marks| marks == value)
        };
        let version = if self.member.is_some() || have(MIRRORED) {
            WITH_MEMBER
        } else if have(ROW_HEADS) {
            WITH_ROW_HEADS
        } else if have(EDITS) {
            WITH_EDITS
        } else if have_marks(NUMBERS_ARE_VERSIONS) {
            WITH_NUMBERED_VERSIONS
        } else if have(CALLS) {
            WITH_CALLS
        } else if have(VERSIONS) {
            WITH_VERSIONS
        } else if have_marks(SEPARATE_NUMBERS) {
            WITH_MARKS
        } else if self.checkpoint.is_some() {
            WITH_CHECKPOINT
        } else {
            VERSION
        };
        (MANIFEST, seal(self, version))
    }

    /// Checks the invariants of a manifest.
    pub(crate) fn check(&self, path: &Path) -> Result<(), Error> {
        let bad = |why: String| Err(Error::corrupt(path, 0, why));
        if self.uuid.len() != 16 {
            return bad("the uuid has not 16 bytes".into());
        }
        for (i, stream) in self.streams.iter().enumerate() {
            if stream.dir >= self.dirs.len() || stream.id >= self.next_stream {
                return bad(format!("stream {} is in no known directory or too new", stream.id));
            }
            if self.streams[..i].iter().any(|s| s.id == stream.id) {
                return bad(format!("stream {} is there twice", stream.id));
            }
        }
        if let Some(checkpoint) = &self.checkpoint {
            if checkpoint.parts.iter().any(|p| p.dir >= self.dirs.len()) {
                return bad("a part of the checkpoint is in no known directory".into());
            }
            if self.incarnations.iter().any(|i| i.number < checkpoint.incarnation) {
                return bad("an incarnation is older than the checkpoint".into());
            }
        }
        let mut number = 0;
        for (i, incarnation) in self.incarnations.iter().enumerate() {
            let newest = i + 1 == self.incarnations.len();
            if incarnation.number <= number || incarnation.number >= self.next_incarnation {
                return bad(format!("incarnation {} is out of order", incarnation.number));
            }
            number = incarnation.number;
            if incarnation.dims.is_empty() || incarnation.dims.len() > crate::MAX_LANES {
                return bad(format!("incarnation {number} has {} streams", incarnation.dims.len()));
            }
            let versions = incarnation.settings.get(VERSIONS);
            if let Some(value) = versions.filter(|v| *v != BY_TIMESTAMP) {
                return bad(format!(
                    "incarnation {number} tells versions apart by {value:?}, and this program \
                     knows only {BY_TIMESTAMP:?}: use the program that wrote it"
                ));
            }
            incarnation.check_mirrored().or_else(bad)?;
            for dim in &incarnation.dims {
                if self.stream(dim.stream).is_none() {
                    return bad(format!(
                        "stream {} of incarnation {number} is missing",
                        dim.stream
                    ));
                }
                if dim.end.is_some_and(|end| end < dim.start) || (dim.end.is_none() && !newest) {
                    return bad(format!("the end of incarnation {number} is not valid"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::sealed::FORMATS;
    use super::*;
    use hyades_platform::device::FileDevice;

    fn manifest() -> Manifest {
        let mut manifest = Manifest::fresh([7; 16], 4096);
        manifest.next_stream = StreamId(1);
        manifest.next_incarnation = 2;
        manifest.dirs.push("a".into());
        let id = StreamId(0);
        let entry = StreamEntry { id, dir: 0, first_sequence: 1, kept_from: 0, active: false };
        manifest.streams.push(entry);
        manifest.catalogue = vec![0, 255, 16];
        manifest.incarnations.push(Incarnation {
            number: 1,
            data_only: true,
            protocol: "taurus".into(),
            settings: BTreeMap::from([("k".into(), "v\n".into())]),
            clean: false,
            dims: vec![Dimension { stream: id, start: 5, end: None, mark: 0 }],
        });
        manifest
    }

    #[test]
    fn comes_back_and_any_flipped_bit_or_cut_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Manifest::read(&FileDevice, dir.path()).unwrap(), None);
        manifest().write(&FileDevice, dir.path()).unwrap();
        assert_eq!(Manifest::read(&FileDevice, dir.path()).unwrap(), Some(manifest()));
        let path = dir.path().join(MANIFEST);
        let bytes = std::fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(unseal::<Manifest>(&path, &flipped).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(unseal::<Manifest>(&path, &bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let next = FORMATS.iter().max().unwrap() + 1;
        let sealed = seal(&manifest(), next);
        let error = unseal::<Manifest>(Path::new("m"), sealed.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(&format!("format version {next}")), "{error}");
        for format in FORMATS {
            let sealed = seal(&manifest(), format);
            assert_eq!(unseal::<Manifest>(Path::new("m"), sealed.as_bytes()).unwrap(), manifest());
        }
    }

    #[test]
    fn versions_told_apart_otherwise_are_refused() {
        let mut manifest = manifest();
        manifest.next_incarnation = 2;
        manifest.next_stream = StreamId(1);
        manifest.dirs.push(".".into());
        manifest.incarnations[0].dims[0].end = Some(9);
        let settings = &mut manifest.incarnations[0].settings;
        settings.insert(VERSIONS.into(), BY_TIMESTAMP.into());
        manifest.check(Path::new("m")).unwrap();
        manifest.incarnations[0].settings.insert(VERSIONS.into(), "epochs".into());
        let error = manifest.check(Path::new("m")).unwrap_err().to_string();
        assert!(error.contains("incarnation 1") && error.contains("\"epochs\""), "{error}");
    }
}
