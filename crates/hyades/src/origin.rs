//! Whether this engine wrote a log. Other crates keep other data in logs of the same format, and
//! the engine would find no row there.

use crate::config::Protocol;
use crate::error::Error;
use hyades_wal::Manifest;

/// Checks that each incarnation of a log has a protocol of this engine, or `own`, the protocol to
/// run.
pub(crate) fn check(manifest: &Manifest, own: Option<&str>) -> Result<(), Error> {
    let is_known = |name: &str| Protocol::named(name).is_some() || own == Some(name);
    let incarnations = &mut manifest.incarnations.iter();
    let Some(other) = incarnations.find(|i| !is_known(&i.protocol)) else { return Ok(()) };
    Err(Error::Mismatch(format!(
        "incarnation {} of the log is of protocol {:?}, which is none of this engine's: open the \
         directory with the crate or the version that wrote it, or give another directory",
        other.number, other.protocol
    )))
}
