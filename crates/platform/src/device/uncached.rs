//! Writes that bypass the page cache.
//!
//! The log syncs its writes at once and does not read them again while running. The page cache
//! costs a copy and a page-by-page write-back, and a large write-back delays the syncs of other
//! files.

use super::whole;
use rustix::fs::OFlags;
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Alignment of address, offset and length; some file systems need less.
const ALIGNMENT: usize = 4096;
/// Shorter writes go through the page cache, which is as fast for short writes.
const LEAST: usize = 16 << 10;
/// Longer writes go through the page cache, too.
const MOST: usize = 4 << 20;

/// A second descriptor of the file, opened with `O_DIRECT` at the first write fit to bypass the
/// page cache.
#[derive(Debug, Default)]
pub(super) struct Uncached {
    /// `None` where the file system does not support `O_DIRECT`.
    file: OnceLock<Option<File>>,
    /// The file system supports `O_DIRECT`, but refused the alignment of a write.
    refused: AtomicBool,
}

impl Uncached {
    /// Writes all slices at `offset`. Returns false if the slices have to go through the page
    /// cache; a part may have been written already.
    pub(super) fn write(
        &self,
        file: &File,
        slices: &[IoSlice<'_>],
        offset: u64,
    ) -> io::Result<bool> {
        let total: usize = slices.iter().map(|s| s.len()).sum();
        let aligned = total.is_multiple_of(ALIGNMENT) && offset.is_multiple_of(ALIGNMENT as u64);
        // Relaxed: a hint.
        if !aligned || !(LEAST..=MOST).contains(&total) || self.refused.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let Some(uncached) = self.file.get_or_init(|| reopen(file).ok()) else { return Ok(false) };
        let written = with_copy(slices, total, |bytes| {
            whole::write(&[IoSlice::new(bytes)], offset, |slices, offset| {
                uncached.write_at(&slices[0], offset)
            })
        });
        match written {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                self.refused.store(true, Ordering::Relaxed);
                Ok(false)
            }
            written => written.map(|()| true),
        }
    }
}

fn reopen(file: &File) -> io::Result<File> {
    // Opened by descriptor: the file may have been renamed.
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let direct = OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new().write(true).custom_flags(direct).open(path)
}

/// Copies the slices into an aligned buffer of the thread and passes the buffer to `act`.
fn with_copy<R>(slices: &[IoSlice<'_>], total: usize, act: impl FnOnce(&[u8]) -> R) -> R {
    thread_local!(static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < total + ALIGNMENT {
            *buffer = vec![0; total.next_power_of_two() + ALIGNMENT];
        }
        let start = buffer.as_ptr().align_offset(ALIGNMENT);
        let copy = &mut buffer[start..start + total];
        let mut at = 0;
        for slice in slices {
            copy[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        act(copy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_goes_past_the_cache_is_what_the_cache_finds() {
        let mut file = tempfile::tempfile().unwrap();
        let mut expected = vec![0; 1 << 20];
        file.write_all(&expected).unwrap();
        let uncached = Uncached::default();
        let mut past = 0;
        for turn in 0..200u64 {
            let (offset, first) = ((turn * 7919 % 200) << 12, turn as usize * 131 % 9000);
            let total = if turn % 5 == 0 { 9000 } else { (turn as usize % 12 + 1) << 12 };
            let bytes: Vec<u8> = (0..total).map(|i| (i as u64 * 31 + turn) as u8).collect();
            let (a, b) = bytes.split_at(first.min(total));
            let slices = [a, &[], b].map(IoSlice::new);
            let offset = offset + if turn % 7 == 0 { 512 } else { 0 };
            if uncached.write(&file, &slices, offset).unwrap() {
                assert!(total >= LEAST && total % ALIGNMENT == 0 && turn % 7 != 0);
                past += 1;
            } else {
                file.write_all_at(&bytes, offset).unwrap();
            }
            expected[offset as usize..][..total].copy_from_slice(&bytes);
            let mut found = vec![0; expected.len()];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == expected, "turn {turn}");
        }
        let can =
            uncached.file.get().is_some_and(Option::is_some) && !uncached.refused.into_inner();
        assert_eq!(can, past > 50, "{past} of 200 past the cache");
    }
}
