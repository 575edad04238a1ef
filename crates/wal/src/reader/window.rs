//! The file that a reader reads, and the bytes of the file in memory.

use crate::Lsn;
use crate::error::Error;
use hyades_platform::device::DeviceFile;
use std::path::PathBuf;
use std::sync::Arc;

/// The number of bytes read from a file at once.
const WINDOW_BYTES: usize = 1 << 20;

/// The cached bytes of the file around the reader's offset.
#[derive(Debug)]
pub(super) struct Window {
    bytes: Vec<u8>,
    pub(super) at: u64,
    /// The least number of bytes read at once.
    least: usize,
}

impl Default for Window {
    fn default() -> Self {
        Window::of(WINDOW_BYTES)
    }
}

impl Window {
    pub(super) fn of(least: usize) -> Self {
        Window { bytes: Vec::new(), at: 0, least }
    }

    /// The `length` bytes at `offset`, or fewer at the file's end; and how many were read.
    pub(super) fn get(
        &mut self,
        open: &Open,
        offset: u64,
        length: usize,
    ) -> Result<(&[u8], u64), Error> {
        let mut read = 0;
        let end = self.at + self.bytes.len() as u64;
        if offset < self.at || offset + length as u64 > end {
            self.bytes.resize(length.max(self.least), 0);
            let path = &open.path;
            let n = open.file.read_at(&mut self.bytes, offset).map_err(Error::io(path, "read"))?;
            self.bytes.truncate(n);
            self.at = offset;
            read = n as u64;
        }
        let from = (offset - self.at) as usize;
        let to = (from + length).min(self.bytes.len());
        Ok((&self.bytes[from..to], read))
    }
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn DeviceFile>,
    pub(super) length: u64,
    pub(super) block: u64,
    /// The offset of the next batch.
    pub(super) offset: u64,
    /// The end of the segment's part: the start of the next segment, or the incarnation's recorded
    /// end.
    pub(super) limit: Lsn,
    /// Whether the segment is a spare: the statements in a spare's headers are not known to be
    /// durable.
    pub(super) spare: bool,
}
