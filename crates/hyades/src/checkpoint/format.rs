//! The files of a checkpoint, byte by byte: docs/format.md, section 10.

use crate::error::Error;
use crate::storage::row::take;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use std::path::Path;

const MAGIC: &[u8; 8] = b"HYADCKPT";
const VERSION: u32 = 1;
/// The length of a part's header in bytes.
pub(crate) const HEADER: usize = 64;
/// The length of a block's head in bytes.
pub(crate) const BLOCK_HEAD: usize = 16;
/// Maximum length of the content of a written block, in bytes: slightly more than a full block plus
/// the longest row. A reader accepts any length that fits into the file.
pub(crate) const MAX_CONTENT: usize = 32 << 20;
/// Maximum expansion by LZ4, content bytes per stored byte: each continuation byte of a length in
/// LZ4's format adds 255.
const MAX_EXPANSION: u64 = 255;

/// Identifies one part file of one checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartId {
    pub uuid: [u8; 16],
    pub number: u64,
    pub part: u32,
    pub cut: EpochNumber,
}

/// A block's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockHead {
    crc: u32,
    pub stored: usize,
    content: usize,
    pub rows: u32,
}

pub(crate) fn damaged(path: &Path, offset: u64, what: &str) -> Error {
    Error::Checkpoint { path: path.to_owned(), offset, message: what.to_string() }
}

impl PartId {
    pub fn header(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(self.part.to_le_bytes());
        out.extend(self.uuid);
        out.extend(self.number.to_le_bytes());
        out.extend(self.cut.0.to_le_bytes());
        let crc = crc32c::crc32c(&out);
        out.extend(crc.to_le_bytes());
        debug_assert!(out.len() <= HEADER, "the fields of a header fit it");
        out.resize(HEADER, 0);
        out
    }

    /// Checks that a file begins with the header of this part.
    pub fn check_header(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() < HEADER || &bytes[..8] != MAGIC {
            return Err(damaged(path, 0, "it does not begin with the header of a checkpoint part"));
        }
        let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if version != VERSION {
            let what = format!(
                "it has format version {version}, and this program reads version {VERSION}: use \
                 the program that wrote it"
            );
            return Err(damaged(path, 8, &what));
        }
        if bytes[..HEADER] != self.header()[..] {
            let what = "its header is damaged, or it belongs to another checkpoint";
            return Err(damaged(path, 0, what));
        }
        Ok(())
    }

    fn seed(&self, offset: u64) -> u32 {
        let mut bytes = Vec::with_capacity(40);
        bytes.extend(self.uuid);
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.part.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(offset.to_le_bytes());
        crc32c::crc32c(&bytes)
    }

    /// Encodes a block for this file offset into `out`. Returns whether the block was stored
    /// compressed.
    ///
    /// # Errors
    /// The content is longer than [`MAX_CONTENT`].
    pub fn block(
        &self,
        offset: u64,
        content: &[u8],
        rows: u32,
        compress: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, String> {
        if content.len() > MAX_CONTENT && !broken!(LongBlocks) {
            return Err(format!(
                "a block of {} bytes is longer than the {MAX_CONTENT} that it may have",
                content.len()
            ));
        }
        Ok(self.compose(offset, content, rows, compress, out))
    }

    /// Like [`PartId::block`], without the length limit.
    fn compose(
        &self,
        offset: u64,
        content: &[u8],
        rows: u32,
        compress: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        out.clear();
        out.resize(BLOCK_HEAD, 0);
        let mut stored = 0;
        if compress {
            let most = lz4_flex::block::get_maximum_output_size(content.len());
            out.resize(BLOCK_HEAD + most, 0);
            let into = lz4_flex::block::compress_into(content, &mut out[BLOCK_HEAD..]);
            // Saving less than an eighth is not worth the time to decompress.
            stored = into.ok().filter(|n| *n < content.len() / 8 * 7).unwrap_or(0);
            out.truncate(BLOCK_HEAD + stored);
        }
        let paid = stored > 0;
        if !paid {
            out.extend_from_slice(content);
            stored = content.len();
        }
        debug_assert!(
            content.len() <= u32::MAX as usize,
            "the length of a content is stored in a u32"
        );
        debug_assert!(
            stored <= content.len(),
            "a block is stored in no more bytes than its content has"
        );
        debug_assert_eq!(out.len(), BLOCK_HEAD + stored, "a block is its head and what is stored");
        out[4..8].copy_from_slice(&(stored as u32).to_le_bytes());
        out[8..12].copy_from_slice(&(content.len() as u32).to_le_bytes());
        out[12..16].copy_from_slice(&rows.to_le_bytes());
        let crc = crc32c::crc32c_append(self.seed(offset), &out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        paid
    }

    /// Decodes a block's head. Fails if the block would extend beyond `end`.
    pub fn block_head(
        path: &Path,
        offset: u64,
        end: u64,
        mut bytes: &[u8],
    ) -> Result<BlockHead, Error> {
        let mut number =
            || -> Option<u32> { Some(u32::from_le_bytes(take(&mut bytes, 4)?.try_into().ok()?)) };
        let numbers = (number(), number(), number(), number());
        let (Some(crc), Some(stored), Some(content), Some(rows)) = numbers else {
            return Err(damaged(path, offset, "it is cut off"));
        };
        let (stored, content) = (stored as usize, content as usize);
        let fits = stored as u64 + BLOCK_HEAD as u64 <= end.saturating_sub(offset);
        let too_long = broken!(LongBlocks) && content > MAX_CONTENT;
        let expands = content as u64 <= stored as u64 * MAX_EXPANSION;
        if !fits || stored > content || !expands || too_long {
            return Err(damaged(path, offset, "the lengths of a block cannot be right"));
        }
        Ok(BlockHead { crc, stored, content, rows })
    }

    /// Checks a block's checksum and returns its content, decompressed into `out` if necessary.
    pub fn content<'b>(
        &self,
        path: &Path,
        offset: u64,
        head: &BlockHead,
        block: &'b [u8],
        out: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], Error> {
        debug_assert_eq!(
            block.len(),
            BLOCK_HEAD + head.stored,
            "the block is as long as its head says"
        );
        let crc = crc32c::crc32c_append(self.seed(offset), &block[4..]);
        if crc != head.crc {
            return Err(damaged(
                path,
                offset,
                "the checksum of a block does not match its content",
            ));
        }
        let stored = &block[BLOCK_HEAD..];
        if head.stored == head.content {
            return Ok(stored);
        }
        out.clear();
        out.resize(head.content, 0);
        match lz4_flex::block::decompress_into(stored, out) {
            Ok(n) if n == head.content => Ok(&out[..]),
            _ => Err(damaged(path, offset, "a block cannot be decompressed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: PartId = PartId { uuid: [7; 16], number: 3, part: 1, cut: EpochNumber(9) };

    fn read(id: &PartId, offset: u64, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let path = Path::new("p");
        let head = PartId::block_head(path, offset, offset + bytes.len() as u64, bytes)?;
        let mut out = Vec::new();
        let block = &bytes[..BLOCK_HEAD + head.stored];
        Ok(id.content(path, offset, &head, block, &mut out)?.to_vec())
    }

    proptest! {
        #[test]
        fn a_block_reads_back_and_any_flipped_bit_is_an_error(
            content in proptest::collection::vec(0u8..4, 0..300), compress: bool, at: usize,
        ) {
            let mut block = Vec::new();
            ID.block(64, &content, 5, compress, &mut block).unwrap();
            prop_assert_eq!(read(&ID, 64, &block).unwrap(), content);
            // A block is valid only at its own offset and in its own part.
            prop_assert!(read(&ID, 72, &block).is_err());
            let other = PartId { part: 2, ..ID };
            prop_assert!(read(&other, 64, &block).is_err());
            let bit = at % (block.len() * 8);
            block[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(read(&ID, 64, &block).is_err());
        }

        #[test]
        fn random_bytes_are_an_error_and_no_panic(bytes: Vec<u8>) {
            prop_assert!(read(&ID, 64, &bytes).is_err());
            prop_assert!(ID.check_header(Path::new("p"), &bytes).is_err());
        }
    }

    #[test]
    fn a_block_of_the_longest_content_reads_back_and_a_longer_one_is_not_written() {
        let mut content = vec![0; MAX_CONTENT];
        (0..content.len()).step_by(4096).for_each(|at| content[at] = (at >> 12) as u8);
        let mut block = Vec::new();
        for compress in [false, true] {
            assert_eq!(ID.block(64, &content, 1, compress, &mut block), Ok(compress));
            assert!(read(&ID, 64, &block).unwrap() == content);
        }
        content.push(0);
        let error = ID.block(64, &content, 1, true, &mut block).unwrap_err();
        assert!(error.contains("33554433 bytes is longer than the 33554432"), "{error}");
        // Blocks written by versions without the limit are still readable.
        for compress in [false, true] {
            ID.compose(64, &content, 1, compress, &mut block);
            assert!(read(&ID, 64, &block).unwrap() == content);
        }
    }

    #[test]
    fn a_header_of_a_newer_format_is_named() {
        let mut header = ID.header();
        ID.check_header(Path::new("p"), &header).unwrap();
        header[8] = 2;
        let error = ID.check_header(Path::new("p"), &header).unwrap_err().to_string();
        assert!(error.contains("format version 2"), "{error}");
    }
}
