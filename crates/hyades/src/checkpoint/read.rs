//! Reads a part of a checkpoint, block by block: to load or examine the part, or to verify the part
//! before the manifest names it.

use super::format::{BLOCK_HEAD, BlockHead, HEADER, PartId, damaged};
use crate::error::Error;
use hyades_platform::device::{Device, DeviceFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size of a part, as counted by its writer or as stated by the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub bytes: u64,
    pub rows: u64,
}

/// A part being read.
pub(crate) struct PartReader {
    pub id: PartId,
    pub path: PathBuf,
    file: Arc<dyn DeviceFile>,
    /// Offset of the next block.
    at: u64,
    expected: Extent,
    rows: u64,
}

/// A block as stored in its part.
#[derive(Default)]
pub(crate) struct Block {
    pub offset: u64,
    pub bytes: Vec<u8>,
}

impl PartReader {
    /// Opens a part and checks its header.
    pub fn open(
        device: &dyn Device,
        path: &Path,
        id: PartId,
        expected: Extent,
    ) -> Result<Self, Error> {
        let file = device
            .open_read(path)
            .map_err(|e| damaged(path, 0, &format!("it cannot be opened ({e})")))?;
        Self::new(file, path, id, expected)
    }

    /// Reads a part from an already open file.
    pub fn new(
        file: Arc<dyn DeviceFile>,
        path: &Path,
        id: PartId,
        expected: Extent,
    ) -> Result<Self, Error> {
        let mut header = [0; HEADER];
        let n = file
            .read_at(&mut header, 0)
            .map_err(|e| damaged(path, 0, &format!("it cannot be read ({e})")))?;
        id.check_header(path, &header[..n])?;
        Ok(PartReader { id, path: path.to_owned(), file, at: HEADER as u64, expected, rows: 0 })
    }

    /// Number of rows in the blocks read so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The length of the part in bytes.
    pub fn bytes(&self) -> u64 {
        self.expected.bytes
    }

    /// Reads the next block; returns false at the end. The content is not checked yet, see
    /// [`Block::content`].
    pub fn next(&mut self, block: &mut Block) -> Result<bool, Error> {
        if self.at >= self.expected.bytes {
            if self.rows != self.expected.rows {
                let what = format!(
                    "it has {} rows and not {}, as it should",
                    self.rows, self.expected.rows
                );
                return Err(damaged(&self.path, self.expected.bytes, &what));
            }
            return Ok(false);
        }
        block.bytes.clear();
        block.offset = self.at;
        self.read(&mut block.bytes, BLOCK_HEAD)?;
        let head = block.head(&self.path, self.expected.bytes)?;
        self.read(&mut block.bytes, head.stored)?;
        self.at += block.bytes.len() as u64;
        debug_assert!(self.at <= self.expected.bytes, "a block ends within its part");
        self.rows += u64::from(head.rows);
        Ok(true)
    }

    /// Appends the next `length` bytes of the block at `self.at`.
    fn read(&self, bytes: &mut Vec<u8>, length: usize) -> Result<(), Error> {
        let from = bytes.len();
        bytes.resize(from + length, 0);
        let offset = self.at + from as u64;
        let n = self
            .file
            .read_at(&mut bytes[from..], offset)
            .map_err(|e| damaged(&self.path, offset, &format!("it cannot be read ({e})")))?;
        if n < length {
            return Err(damaged(&self.path, offset + n as u64, "it is cut off"));
        }
        Ok(())
    }
}

impl Block {
    fn head(&self, path: &Path, end: u64) -> Result<BlockHead, Error> {
        PartId::block_head(path, self.offset, end, &self.bytes)
    }

    /// Checks the block, read from the part `id`. Returns the content, possibly stored in `out`,
    /// and the number of rows.
    pub fn content<'b>(
        &'b self,
        id: PartId,
        path: &Path,
        out: &'b mut Vec<u8>,
    ) -> Result<(&'b [u8], u32), Error> {
        let head = self.head(path, self.offset + self.bytes.len() as u64)?;
        let content = id.content(path, self.offset, &head, &self.bytes, out)?;
        Ok((content, head.rows))
    }
}
