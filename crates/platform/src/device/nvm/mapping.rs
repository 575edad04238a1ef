//! A file of the file system, mapped into memory.
//!
//! A mapping covers the file's bytes at the time of mapping and no more, and its space is allocated
//! first: a store would otherwise end the process (`SIGBUS`) behind the end of the file, or on a
//! full file system. Nothing may shorten a mapped file: [`NvmDevice`](super::NvmDevice) replaces
//! files by new ones, and the log's directory is locked for other processes of a database. A file
//! shortened from outside, or memory that is broken, ends the process.

#![allow(unsafe_code)]

use super::lines::{self, LineFlush};
use crate::device::FileMemory;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};

/// A mapped file.
#[derive(Debug)]
struct MappedFile {
    start: NonNull<u8>,
    len: usize,
    flush: LineFlush,
    persists: bool,
}

// SAFETY: the mapping belongs to this value alone, whichever thread has it.
unsafe impl Send for MappedFile {}

/// Maps a file, which is open for reading and writing. `in_memory` says that the file system keeps
/// its files in memory; otherwise flushed lines persist if it maps the medium itself (DAX).
pub(in crate::device) fn map(file: &File, in_memory: bool) -> io::Result<Box<dyn FileMemory>> {
    let flush = LineFlush::of_machine()?;
    let bytes = file.metadata()?.len();
    let len = usize::try_from(bytes).map_err(io::Error::other)?;
    if len == 0 {
        let nothing = NonNull::dangling();
        return Ok(Box::new(MappedFile { start: nothing, len, flush, persists: true }));
    }
    // A hole gets its space now; what is there stays.
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)?;
    let direct = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    let (start, persists) = match map_as(file, len, direct) {
        Ok(start) => (start, true),
        Err(Errno::OPNOTSUPP | Errno::INVAL) => (map_as(file, len, MapFlags::SHARED)?, in_memory),
        Err(error) => return Err(error.into()),
    };
    let mapped = MappedFile { start, len, flush, persists };
    if persists {
        // A store then finds its page and enters no system call. Where it is not so, the pages
        // would count as written, and the next sync would write all of them.
        // SAFETY: the range is the mapping, and the advice changes no byte.
        match unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, POPULATE) } {
            // Linux before 5.14 does not know the advice.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Box::new(mapped))
}

const POPULATE: Advice = Advice::LinuxPopulateWrite;

fn map_as(file: &File, len: usize, flags: MapFlags) -> Result<NonNull<u8>, Errno> {
    // SAFETY: the system chooses an address where nothing is mapped.
    let start = unsafe {
        rustix::mm::mmap(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0)?
    };
    NonNull::new(start.cast()).ok_or(Errno::NOMEM)
}

impl MappedFile {
    /// The place of `len` bytes at `offset`.
    ///
    /// # Panics
    /// The bytes are not within the mapping.
    fn at(&self, offset: u64, len: u64) -> *mut u8 {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len as u64),
            "{len} bytes at {offset} are beyond a mapping of {} bytes",
            self.len
        );
        self.start.as_ptr().wrapping_add(offset as usize)
    }
}

impl FileMemory for MappedFile {
    fn length(&self) -> u64 {
        self.len as u64
    }

    fn persists(&self) -> bool {
        self.persists
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let to = self.at(offset, bytes.len() as u64);
        // SAFETY: `at` checked that the bytes are within the mapping, which lives as long as
        // `self`, is writable, and is reached through `self` alone, which is borrowed mutably; so
        // `bytes` lies elsewhere. The file is not shorter than the mapping (see the module).
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    fn flush(&mut self, bytes: Range<u64>) -> io::Result<()> {
        let len = bytes.end - bytes.start;
        let start = self.at(bytes.start, len);
        // SAFETY: `at` checked that the bytes are within the mapping.
        unsafe { self.flush.flush(start, len as usize) };
        Ok(())
    }

    fn fence(&mut self) -> io::Result<()> {
        lines::fence();
        Ok(())
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the mapping was made with this start and length, and nothing refers to it any
            // more.
            let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
    }
}
