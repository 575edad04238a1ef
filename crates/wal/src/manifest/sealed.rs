//! Text files with a format version in the first line and a checksum in the last line, written
//! atomically: the manifest and the markers.

use crate::error::Error;
use crate::format::VERSION;
use hyades_platform::device::Device;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Serialize, Deserialize)]
struct FirstLine {
    format: u64,
}

#[derive(Serialize, Deserialize)]
struct LastLine {
    crc32c: String,
}

/// The version of a manifest with a checkpoint. Programs without knowledge of checkpoints must not
/// read the manifest.
pub(super) const WITH_CHECKPOINT: u32 = 2;
/// The version of a manifest with an incarnation with marks (`marks`). Programs without knowledge
/// of marks would treat acknowledged records as dead.
pub(super) const WITH_MARKS: u32 = 3;
/// The version of a manifest with several versions of rows at replay (`versions`). Programs without
/// knowledge of row versions would run commands on the wrong version.
pub(super) const WITH_VERSIONS: u32 = 4;
/// The format of a manifest with an incarnation of calls logged before they ran.
pub(super) const WITH_CALLS: u32 = 5;
/// The format of a manifest with an incarnation whose numbers are versions
/// ([`super::NUMBERS_ARE_VERSIONS`]). Older programs would give all rows one version.
pub(super) const WITH_NUMBERED_VERSIONS: u32 = 6;
/// The format of a manifest with an incarnation whose records may have edits ([`super::EDITS`]).
/// Programs without knowledge of edits would take a record with an edit for damaged.
pub(super) const WITH_EDITS: u32 = 7;
/// The format of a manifest with an incarnation whose row frames have short heads
/// ([`super::ROW_HEADS`]). Programs without knowledge of short heads would take a frame with a
/// short head for damaged.
pub(super) const WITH_ROW_HEADS: u32 = 8;
/// The format of a manifest of a member of a database with a replicated log ([`super::Member`]), or
/// with a mirrored incarnation ([`super::MIRRORED`]). Older programs would begin an incarnation of
/// their own, and take what anchors state of the replicated log for statements about the files.
pub(super) const WITH_MEMBER: u32 = 9;
/// The format of the list of an archive ([`crate::archive`]).
const WITH_ARCHIVE: u32 = 10;
pub(super) const FORMATS: [u32; 10] = [
    VERSION,
    WITH_CHECKPOINT,
    WITH_MARKS,
    WITH_VERSIONS,
    WITH_CALLS,
    WITH_NUMBERED_VERSIONS,
    WITH_EDITS,
    WITH_ROW_HEADS,
    WITH_MEMBER,
    WITH_ARCHIVE,
];

/// Encloses a JSON value in a line with the version and a line with the checksum.
pub(super) fn seal<T: Serialize>(value: &T, version: u32) -> String {
    let body = serde_json::to_string_pretty(value).expect("plain data has a JSON form");
    seal_body(&body, version)
}

/// Encloses the list of an archive.
pub(crate) fn seal_archive<T: Serialize>(list: &T) -> String {
    seal(list, WITH_ARCHIVE)
}

/// Encloses a JSON body.
pub(crate) fn seal_body(body: &str, version: u32) -> String {
    let mut text = format!("{{\"format\":{version}}}\n{body}\n");
    let crc = crc32c::crc32c(text.as_bytes());
    text.push_str(&format!("{{\"crc32c\":\"{crc:08x}\"}}\n"));
    text
}

pub(crate) fn unseal<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, Error> {
    let bad = |offset: usize, why: String| {
        Error::corrupt(path, offset as u64, format!("{why}; restore the file from a copy"))
    };
    let text =
        std::str::from_utf8(bytes).map_err(|e| bad(e.valid_up_to(), "this is not text".into()))?;
    let first_end = text.find('\n').ok_or_else(|| bad(0, "the first line is cut off".into()))?;
    // The version before the checksum: another version may have another checksum.
    let first: FirstLine = serde_json::from_str(&text[..first_end])
        .map_err(|e| bad(0, format!("the first line does not state a format version ({e})")))?;
    let last_start = text
        .strip_suffix('\n')
        .and_then(|t| t.rfind('\n'))
        .map(|at| at + 1)
        .filter(|&at| at > first_end)
        .ok_or_else(|| bad(text.len(), "the last line is cut off".into()))?;
    let last: Option<LastLine> = serde_json::from_str(&text[last_start..]).ok();
    let crc = format!("{:08x}", crc32c::crc32c(&bytes[..last_start]));
    let sound = last.is_some_and(|last| last.crc32c == crc);
    if !FORMATS.map(u64::from).contains(&first.format) {
        return Err(Error::Version {
            path: path.to_owned(),
            found: first.format,
            newest: WITH_ARCHIVE,
        });
    }
    if !sound {
        return Err(bad(last_start, "the checksum does not match the content".into()));
    }
    serde_json::from_str(&text[first_end + 1..last_start])
        .map_err(|e| bad(first_end + 1, format!("the content is not what it should be ({e})")))
}

/// Writes a file atomically: afterwards the file has the new or the old content. With
/// [`Error::NotReplaced`] the old content.
pub(crate) fn write_atomically(device: &dyn Device, path: &Path, text: &str) -> Result<(), Error> {
    let temporary = path.with_extension("tmp");
    let dir = path.parent().unwrap_or(Path::new("."));
    device
        .write_small(&temporary, text.as_bytes())
        .map_err(|source| Error::NotReplaced { path: path.to_owned(), source })?;
    device.rename(&temporary, path).map_err(Error::io(path, "rename a new file to"))?;
    device.sync_dir(dir).map_err(Error::io(dir, "sync the directory"))
}
