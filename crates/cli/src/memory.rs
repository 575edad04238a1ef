//! Memory for the rows of a benchmark, and for a log that is in memory, taken from the system before it is needed.
//!
//! A fresh process gets its pages one fault at a time, and on a virtual machine a page that no one
//! has touched for a while has to come from the host: measured here, 0.5 GB/s where memory in hand
//! gives 11. An in-memory database that runs for days pays that once, a benchmark of a few seconds
//! would measure little else in a workload that inserts.

#![allow(unsafe_code)]

use crate::failure::Failure;
use crate::progress::Bar;
use crate::units;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::ffi::c_void;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// The allocator takes memory in blocks of this size.
const BLOCK: usize = 64 << 20;

/// Taken at once: progress is shown between.
const STEP: usize = 4 * BLOCK;

/// Who waits longer than this is told what for.
const WORTH_TELLING: Duration = Duration::from_millis(500);

/// `mi_option_purge_delay`: after how many milliseconds unused memory goes back to the system; -1 for never.
const PURGE_DELAY: i32 = 15;

/// Reserved unless told otherwise, but never more than a quarter of what is free.
const DEFAULT: u64 = 4 << 30;

/// For a log in memory there is so much less than for the rows.
const ROWS_TO_LOG: u64 = 4;

/// What is asked for, or a default.
fn wanted(bytes: Option<u64>) -> u64 {
    bytes.unwrap_or_else(|| {
        let system = rustix::system::sysinfo();
        DEFAULT.min(system.freeram * u64::from(system.mem_unit) / 4)
    })
}

/// Takes memory that a log under `root`, a file system in memory, will get its pages from: a quarter of what
/// [`reserve`] takes for the rows. A file without a name has it for a moment; after that the system has it in hand.
///
/// # Errors
/// No file can be made there.
pub fn reserve_for_log(root: &Path, bytes: Option<u64>) -> Result<(), Failure> {
    let bytes = wanted(bytes) / ROWS_TO_LOG;
    let what = format!("cannot make a temporary file in {}", root.display());
    let mut file = tempfile::tempfile_in(root).map_err(Failure::doing(what))?;
    let bar = Bar::new("taking memory for the log", bytes);
    let zeros = vec![0; BLOCK];
    let mut taken = 0;
    while taken < bytes {
        let some = zeros.len().min((bytes - taken) as usize);
        // A small one gives what it has.
        if file.write_all(&zeros[..some]).is_err() {
            break;
        }
        taken += some as u64;
        bar.set(taken);
    }
    bar.clear();
    Ok(())
}

/// Hands the allocator at least `bytes` of memory that is in hand, or a default. No effect where the
/// system does not know how to populate memory.
///
/// # Errors
/// There is not so much memory.
pub fn reserve(bytes: Option<u64>) -> Result<(), Failure> {
    let bytes = usize::try_from(wanted(bytes)).unwrap_or(usize::MAX).next_multiple_of(BLOCK);
    if bytes == 0 {
        return Ok(());
    }
    // What one database has used the next one finds as it was, in large pages: the database that is loaded
    // under a log is another than the one that is measured.
    // SAFETY: sets a number.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, -1) };
    let began = Instant::now();
    let bar = Bar::new("taking memory", bytes as u64);
    let taken = reserve_on(&bar, bytes);
    let took = began.elapsed();
    if taken.is_ok() && took >= WORTH_TELLING {
        let (size, took) = (units::bytes(bytes as f64), units::time(took.as_secs_f64()));
        bar.finish(&format!("took {size} of memory from the system in {took}"));
    } else {
        bar.clear();
    }
    taken
}

fn reserve_on(bar: &Bar, bytes: usize) -> Result<(), Failure> {
    // What the allocator had before it uses up first, and then what it is given.
    let had = heap();
    let held = had.len().min(bytes);
    populate(had.start as *mut c_void, held, |done| bar.set(done as u64));
    let bytes = bytes.saturating_sub(had.len());
    if bytes == 0 {
        return Ok(());
    }
    let out = |error| Failure::Failed(format!("no {bytes} bytes of memory to reserve: {error}"));
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a fresh anonymous mapping where the system likes, of which nobody knows yet.
    let start = unsafe { mmap_anonymous(null_mut(), bytes + BLOCK, access, flags) }.map_err(out)?;
    let start = start.wrapping_byte_add(start.cast::<u8>().align_offset(BLOCK));
    populate(start, bytes, |done| bar.set((held + done) as u64));
    let mut arena = null_mut();
    // SAFETY: the range is mapped, writable, all zeros, aligned as the allocator wants it, used by
    // nobody else, and stays mapped as long as the process lives. It is declared as large pages so
    // that the allocator never gives it back.
    let taken = unsafe {
        libmimalloc_sys::mi_manage_os_memory_ex(
            start,
            bytes,
            true,
            true,
            true,
            -1,
            false,
            &raw mut arena,
        )
    };
    if taken { Ok(()) } else { Err(Failure::Failed("the allocator refused the memory".into())) }
}

/// Lets a mapping of this process have its pages, and says how many bytes it has. Smaller ones will do where
/// there are no huge ones, and later ones where these cannot be had at once.
fn populate(start: *mut c_void, bytes: usize, done: impl Fn(usize)) {
    // SAFETY: a hint.
    let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
    for from in (0..bytes).step_by(STEP) {
        let step = STEP.min(bytes - from);
        // SAFETY: a hint; populating keeps what is written there.
        let _ = unsafe { madvise(start.wrapping_byte_add(from), step, Advice::LinuxPopulateWrite) };
        done(from + step);
    }
}

/// The mapping in which the allocator places what it is asked for; empty where the system does not tell.
fn heap() -> Range<usize> {
    let probe = Box::new(0u64);
    let address = (&raw const *probe).addr();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let ranges = maps.lines().filter_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    });
    ranges.into_iter().find(|range| range.contains(&address)).unwrap_or_default()
}
