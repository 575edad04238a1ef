//! Whether this engine wrote a log. Other crates keep other data in logs of the same format, and
//! the engine would find no row there.

use crate::config::Protocol;
use crate::error::Error;
use hyades_wal::Manifest;

/// The protocols of the crate `hyades-schemes`, by their names in manifests.
const SCHEMES: [&str; 7] =
    ["taurus-2016", "silo-r", "gsn", "physiological", "plover", "poplar", "arrival"];

/// Checks that each incarnation of a log has a protocol known to this process.
pub(crate) fn check(manifest: &Manifest) -> Result<(), Error> {
    let incarnations = &mut manifest.incarnations.iter();
    let Some(other) = incarnations.find(|i| Protocol::named(&i.protocol).is_none()) else {
        return Ok(());
    };
    let (number, name) = (other.number, &other.protocol);
    Err(Error::Mismatch(match SCHEMES.contains(&&**name) {
        true => format!(
            "incarnation {number} of the log is of protocol {name:?}, a scheme of a paper: open \
             the directory with `hyades-lab`, or with the crate `hyades-schemes`"
        ),
        false => format!(
            "incarnation {number} of the log is of protocol {name:?}, which is none of this \
             engine's: open the directory with the crate or the version that wrote it, or give \
             another directory"
        ),
    }))
}
