//! Copying of the bytes of files.

use crate::error::Error;
use hyades_platform::device::DeviceFile;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

/// The number of bytes copied at once.
pub(crate) const PIECE: usize = 1 << 20;

/// Copies the first `length` bytes of a file.
pub(crate) fn copy_bytes(
    (source, from): (&Arc<dyn DeviceFile>, &Path),
    (target, to): (&Arc<dyn DeviceFile>, &Path),
    length: u64,
) -> Result<(), Error> {
    let mut piece = vec![0; PIECE.min(length as usize)];
    let mut at = 0;
    while at < length {
        let n = piece.len().min((length - at) as usize);
        let read = source.read_at(&mut piece[..n], at).map_err(Error::io(from, "read"))?;
        if read < n {
            let what = format!("it ends here, and should have {length} bytes");
            return Err(Error::corrupt(from, at + read as u64, what));
        }
        target.write_at(&[IoSlice::new(&piece[..n])], at).map_err(Error::io(to, "write to"))?;
        at += n as u64;
    }
    Ok(())
}
