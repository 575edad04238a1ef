//! The memory of the process: the allocator, with a count of the allocated bytes, and the
//! reservation of memory for the rows of a benchmark, and for a log in memory, before the run.
//!
//! A fresh process gets its pages one fault at a time, and on a virtual machine a page without
//! recent use has to come from the host: measured here, 0.5 GB/s against 11 GB/s for pages already
//! mapped. A database with a run of days pays the cost once. A benchmark of a few seconds with
//! inserts would measure little else.

#![allow(unsafe_code)]

use crate::failure::Failure;
use crate::progress::Bar;
use crate::units;
use mimalloc::MiMalloc;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ffi::c_void;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The allocator of the program. Replay allocates rows on all threads at once, so a slow allocator
/// would limit the speed of replay.
pub struct CountingAllocator;

/// Allocated bytes, without the sums not yet added by threads.
static ALLOCATED: AtomicI64 = AtomicI64::new(0);

/// A thread adds its allocated or freed bytes once the sum reaches this number: the counter of all
/// threads is not written at each allocation, and is wrong by at most this number per thread.
const MOST_NOT_ADDED: i64 = 64 << 10;

/// A thread that asks for the sum adds its own part, from this many bytes on.
const LEAST_ADDED: i64 = 4 << 10;

/// Bytes allocated by a thread, less the freed bytes, since the thread's last addition. A thread
/// adds the rest when the thread ends: other threads free the remaining blocks.
struct NotAdded(Cell<i64>);

impl Drop for NotAdded {
    fn drop(&mut self) {
        ALLOCATED.fetch_add(self.0.get(), Relaxed);
    }
}

thread_local! {
    static NOT_ADDED: NotAdded = const { NotAdded(Cell::new(0)) };
}

/// Counts bytes that were allocated, or freed if they are negative.
#[inline]
fn count(bytes: i64) {
    let add = |NotAdded(bytes_left): &NotAdded| {
        let sum = bytes_left.get() + bytes;
        if sum.abs() < MOST_NOT_ADDED {
            return bytes_left.set(sum);
        }
        ALLOCATED.fetch_add(sum, Relaxed);
        bytes_left.set(0);
    };
    // A thread that ends drops the variable before other thread-local variables free memory.
    if NOT_ADDED.try_with(add).is_err() {
        ALLOCATED.fetch_add(bytes, Relaxed);
    }
}

/// Bytes allocated and not freed by the program. The bytes of the calling thread are all added, but
/// for a few KiB: a thread with repeated calls does not write the counter each time.
pub fn allocated() -> u64 {
    let _ = NOT_ADDED.try_with(|NotAdded(bytes)| {
        if bytes.get().abs() >= LEAST_ADDED {
            ALLOCATED.fetch_add(bytes.take(), Relaxed);
        }
    });
    ALLOCATED.load(Relaxed).max(0) as u64
}

/// The size of an allocation; none is larger than `isize::MAX`.
fn size(layout: Layout) -> i64 {
    layout.size() as i64
}

// SAFETY: every call is passed on unchanged to an allocator that keeps the contract; counting
// neither allocates nor panics.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        let block = unsafe { MiMalloc.alloc(layout) };
        if !block.is_null() {
            count(size(layout));
        }
        block
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        let block = unsafe { MiMalloc.alloc_zeroed(layout) };
        if !block.is_null() {
            count(size(layout));
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-size(layout));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { MiMalloc.dealloc(block, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`.
        let moved = unsafe { MiMalloc.realloc(block, layout, new_size) };
        if !moved.is_null() {
            count(new_size as i64 - size(layout));
        }
        moved
    }
}

/// The allocator takes memory from the system in blocks of this size.
const BLOCK: usize = 64 << 20;

/// Bytes populated between two updates of the progress bar.
const STEP: usize = 4 * BLOCK;

/// A reservation that takes longer is reported.
const WORTH_TELLING: Duration = Duration::from_millis(500);

/// `mi_option_purge_delay`: milliseconds until unused memory is returned to the system; -1: never.
const PURGE_DELAY: i32 = 15;

/// Default reservation in bytes, limited to a quarter of the free memory.
const DEFAULT: u64 = 4 << 30;

/// Memory reserved for rows, over the memory for a log in memory.
const ROWS_TO_LOG: u64 = 4;

/// The requested number of bytes, or the default.
fn wanted(bytes: Option<u64>) -> u64 {
    bytes.unwrap_or_else(|| {
        let system = rustix::system::sysinfo();
        DEFAULT.min(system.freeram * u64::from(system.mem_unit) / 4)
    })
}

/// Reserves memory for a log under `root`, a file system in memory: a quarter of the bytes that
/// [`reserve`] takes for the rows. An unnamed file allocates the pages and is dropped, so that the
/// system has the pages ready for the log.
///
/// # Errors
/// No file can be created in `root`.
pub fn reserve_for_log(root: &Path, bytes: Option<u64>) -> Result<(), Failure> {
    let bytes = wanted(bytes) / ROWS_TO_LOG;
    let what = format!("cannot make a temporary file in {}", root.display());
    let mut file = tempfile::tempfile_in(root).map_err(Failure::doing(what))?;
    let bar = Bar::new("reserving log memory", bytes);
    let zeros = vec![0; BLOCK];
    let mut taken = 0;
    while taken < bytes {
        let some = zeros.len().min((bytes - taken) as usize);
        // The file system is full: its free memory is reserved.
        if file.write_all(&zeros[..some]).is_err() {
            break;
        }
        taken += some as u64;
        bar.set(taken);
    }
    bar.clear();
    Ok(())
}

/// Gives the allocator at least `bytes` of populated memory, or a default. Where the system cannot
/// populate memory, pages are mapped at their first use as usual.
///
/// # Errors
/// Not enough memory is free.
pub fn reserve(bytes: Option<u64>) -> Result<(), Failure> {
    let bytes = usize::try_from(wanted(bytes)).unwrap_or(usize::MAX).next_multiple_of(BLOCK);
    if bytes == 0 {
        return Ok(());
    }
    // Never return memory, so that a later database in this process reuses the pages of an earlier
    // one: under a log, one database loads the rows and another database is measured.
    // SAFETY: the call stores an integer option of the allocator and has no precondition.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, -1) };
    let began = Instant::now();
    let bar = Bar::new("reserving memory", bytes as u64);
    let taken = reserve_on(&bar, bytes);
    let took = began.elapsed();
    if taken.is_ok() && took >= WORTH_TELLING {
        let (size, took) = (units::bytes(bytes as f64), units::time(took.as_secs_f64()));
        bar.finish(&format!("reserved {size} of memory in {took}"));
    } else {
        bar.clear();
    }
    taken
}

fn reserve_on(bar: &Bar, bytes: usize) -> Result<(), Failure> {
    // The allocator uses its present memory before the new memory.
    let had = heap();
    let held = had.len().min(bytes);
    populate(had.start as *mut c_void, held, |done| bar.set(done as u64));
    let bytes = bytes.saturating_sub(had.len());
    if bytes == 0 {
        return Ok(());
    }
    let out = |error| Failure::Failed(format!("cannot reserve {bytes} bytes of memory: {error}"));
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new anonymous mapping at an address of the system's choice aliases nothing.
    let start = unsafe { mmap_anonymous(null_mut(), bytes + BLOCK, access, flags) }.map_err(out)?;
    let start = start.wrapping_byte_add(start.cast::<u8>().align_offset(BLOCK));
    populate(start, bytes, |done| bar.set((held + done) as u64));
    let mut arena = null_mut();
    // SAFETY: the range is mapped, writable, zeroed, aligned as the allocator requires, used by no
    // other code, and stays mapped for the life of the process. The range is declared as large
    // pages so that the allocator never returns the memory.
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

/// Populates a mapping of this process with pages, huge pages if possible, and calls `done` with
/// the number of bytes so far. Failures are ignored: the first use maps the pages.
fn populate(start: *mut c_void, bytes: usize, done: impl Fn(usize)) {
    // SAFETY: the hint keeps the contents of the pages; with an invalid range the call only fails.
    let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
    for from in (0..bytes).step_by(STEP) {
        let step = STEP.min(bytes - from);
        // SAFETY: populating keeps the contents of the pages; with an invalid range the call fails.
        let _ = unsafe { madvise(start.wrapping_byte_add(from), step, Advice::LinuxPopulateWrite) };
        done(from + step);
    }
}

/// The mapping from which the allocator serves allocations; empty if the system reports none.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::sync::Mutex;

    /// Less than [`MOST_NOT_ADDED`] of this thread may be missing, and any bytes of other tests.
    const OTHERS: u64 = 32 << 20;

    /// The tests here allocate more than `OTHERS`, one test after the other.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn what_is_allocated_counts_until_it_is_freed() {
        let _alone = ALONE.lock();
        let before = allocated();
        let mut large = black_box(vec![1u8; 1 << 28]);
        let with = allocated();
        assert!(with.abs_diff(before + (1 << 28)) < OTHERS, "{before} {with}");
        large.truncate(1 << 27);
        large.shrink_to_fit();
        let with = allocated();
        assert!(with.abs_diff(before + (1 << 27)) < OTHERS, "{before} {with}");
        drop(large);
        assert!(allocated().abs_diff(before) < OTHERS);
        let zeroed = black_box(vec![0u8; 1 << 28]);
        assert!(allocated().abs_diff(before + (1 << 28)) < OTHERS);
        drop(zeroed);
        // On several threads, in small blocks, freed by another thread.
        let blocks: Vec<_> = (0..4)
            .map(|_| {
                let make = || (0..100_000).map(|_| Box::new([0u8; 1_000])).collect::<Vec<_>>();
                std::thread::spawn(make).join().expect("it does not panic")
            })
            .collect();
        assert!(allocated().abs_diff(before + 400_000_000) < OTHERS);
        drop(blocks);
        assert!(allocated().abs_diff(before) < OTHERS);
    }

    /// The bytes not yet added by a thread at its end would be missing for ever.
    #[test]
    fn threads_that_end_leave_nothing_behind() {
        const BYTES: usize = 60_000;
        const THREADS: usize = 2_000;
        let _alone = ALONE.lock();
        const { assert!((BYTES as i64) < MOST_NOT_ADDED && BYTES * THREADS > 2 * OTHERS as usize) };
        let before = allocated();
        for _ in 0..THREADS {
            let block = std::thread::spawn(|| black_box(vec![1u8; BYTES])).join();
            drop(block.expect("it does not panic"));
        }
        assert!(allocated().abs_diff(before) < OTHERS, "{before} {}", allocated());
    }
}
