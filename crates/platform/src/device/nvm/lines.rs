//! Cache lines: their flush with the best instruction of the machine, and its time.

#![allow(unsafe_code)]

use super::Nvm;
use std::io;
use std::sync::OnceLock;
use std::time::Instant;

/// Bytes of a cache line.
pub const LINE: u64 = 64;
/// Lines of a measured sequence.
const SEQUENCE: usize = 1024;
/// Sequences measured, of which the median counts: another thread may run in between.
const ROUNDS: usize = 33;

/// An instruction that writes a cache line back to memory, known to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineFlush(Instruction);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "of another processor"))]
enum Instruction {
    /// Writes the line back and may keep it in the cache.
    Clwb,
    /// Writes the line back and drops it, in any order.
    Clflushopt,
    /// Writes the line back and drops it, one line after the other.
    Clflush,
}

impl LineFlush {
    /// The best instruction of the machine.
    ///
    /// # Errors
    /// There is none with lines of 64 bytes.
    pub fn of_machine() -> io::Result<LineFlush> {
        best().map(LineFlush).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "this processor has none of CLWB, CLFLUSHOPT and CLFLUSH with cache lines of 64 \
                 bytes, by which files are kept in non-volatile memory",
            )
        })
    }

    /// The instruction's name.
    pub fn name(self) -> &'static str {
        match self.0 {
            Instruction::Clwb => "CLWB",
            Instruction::Clflushopt => "CLFLUSHOPT",
            Instruction::Clflush => "CLFLUSH",
        }
    }

    /// Begins to write back the lines with any of `len` bytes from `start` on.
    ///
    /// # Safety
    /// The bytes are mapped memory.
    pub(super) unsafe fn flush(self, start: *const u8, len: usize) {
        let into_line = start.addr() % LINE as usize;
        let first = start.wrapping_sub(into_line);
        for at in (0..into_line + len).step_by(LINE as usize) {
            // SAFETY: each of these lines holds a byte of the mapped range, and a page is whole
            // lines. `self` was made by `of_machine`, so the machine has the instruction.
            unsafe { flush_line(self.0, first.wrapping_add(at)) };
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn best() -> Option<Instruction> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let (most, base) = (__cpuid(0).eax, __cpuid(1));
    // Bits 8 to 15: the bytes of a line, in eights.
    if (base.ebx >> 8 & 0xff) * 8 != LINE as u32 {
        return None;
    }
    let extended = if most >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
    let known = [
        (extended >> 24, Instruction::Clwb),
        (extended >> 23, Instruction::Clflushopt),
        (base.edx >> 19, Instruction::Clflush),
    ];
    known.into_iter().find(|(bit, _)| bit & 1 == 1).map(|(_, instruction)| instruction)
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn best() -> Option<Instruction> {
    None
}

/// # Safety
/// The address is mapped, and the machine has the instruction.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn flush_line(instruction: Instruction, line: *const u8) {
    use std::arch::asm;
    // SAFETY: a flush changes no byte; the caller vouches for the address and the instruction. The
    // blocks may read memory, so the compiler moves no earlier store behind them.
    unsafe {
        match instruction {
            Instruction::Clwb => {
                asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags));
            }
            Instruction::Clflushopt => {
                asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
            }
            Instruction::Clflush => {
                asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags));
            }
        }
    }
}

/// # Safety
/// None: no machine of this kind has an instruction.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn flush_line(_: Instruction, _: *const u8) {}

/// Orders the flushes before it before all later stores: the flushed lines are in memory.
pub(super) fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has the instruction, which changes no byte. The block may write memory,
    // so the compiler moves no store across it.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
}

/// The times of the machine's ordinary memory, measured once in the life of the process, and its
/// instruction.
pub(super) fn measured() -> io::Result<(LineFlush, LineTimes)> {
    static TIMES: OnceLock<LineTimes> = OnceLock::new();
    let flush = LineFlush::of_machine()?;
    Ok((flush, *TIMES.get_or_init(|| LineTimes::measure(flush))))
}

/// How long a write waits for its lines, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LineTimes {
    /// For a line alone, with its fence: the way to memory.
    pub first_ns: f64,
    /// For each further line of a sequence, on its way beside the others.
    pub next_ns: f64,
}

impl LineTimes {
    /// Stores to cold lines and flushes them: each with a fence, and all with one fence.
    fn measure(flush: LineFlush) -> LineTimes {
        let mut lines = vec![0u8; SEQUENCE * LINE as usize];
        let mut alone: Vec<_> = (0..ROUNDS).map(|n| sequence(flush, &mut lines, n, 1)).collect();
        let mut all: Vec<_> =
            (0..ROUNDS).map(|n| sequence(flush, &mut lines, n, SEQUENCE)).collect();
        let [alone, all] = [&mut alone, &mut all].map(|rounds| {
            rounds.sort_by(f64::total_cmp);
            rounds[ROUNDS / 2]
        });
        let first_ns = alone / SEQUENCE as f64;
        let next_ns = (all - first_ns).max(0.0) / (SEQUENCE - 1) as f64;
        LineTimes { first_ns, next_ns }
    }
}

/// The time to store to and flush all lines, `group` lines with a fence each time, in nanoseconds.
fn sequence(flush: LineFlush, lines: &mut [u8], round: usize, group: usize) -> f64 {
    evict(lines);
    let began = Instant::now();
    for group in lines.chunks_mut(group * LINE as usize) {
        group.fill(round as u8);
        // SAFETY: the bytes of a slice are mapped.
        unsafe { flush.flush(group.as_ptr(), group.len()) };
        fence();
    }
    let took = began.elapsed();
    std::hint::black_box(lines);
    took.as_nanos() as f64
}

/// Takes the lines out of the caches.
fn evict(lines: &[u8]) {
    // SAFETY: the bytes of a slice are mapped, and a machine with another flush has this one too.
    unsafe { LineFlush(Instruction::Clflush).flush(lines.as_ptr(), lines.len()) };
    fence();
}

impl Nvm {
    /// Memory `factor` times as slow as the machine's, whose times are measured once.
    ///
    /// # Errors
    /// The machine has no instruction to flush a cache line.
    pub fn measured(factor: f64) -> io::Result<Nvm> {
        let (_, times) = measured()?;
        Ok(Nvm { factor, first_ns: times.first_ns, line_ns: times.next_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_measured_once_and_a_sequence_is_faster_than_its_lines() {
        let Ok((flush, times)) = measured() else { return };
        eprintln!("{}: {times:?}", flush.name());
        assert!((1.0..100_000.0).contains(&times.first_ns), "{times:?}");
        // CLFLUSH writes one line after the other.
        let most_next = times.first_ns * if flush.name() == "CLFLUSH" { 2.0 } else { 1.0 };
        assert!((0.0..most_next).contains(&times.next_ns), "{times:?}");
        assert_eq!(measured().unwrap(), (flush, times));
        let nvm = Nvm::measured(2.0).unwrap();
        assert_eq!((nvm.first_ns, nvm.line_ns), (times.first_ns, times.next_ns));
    }

    #[test]
    fn a_flush_takes_every_line_it_touches() {
        let Ok(best) = LineFlush::of_machine() else { return };
        let known = [Instruction::Clwb, Instruction::Clflushopt, Instruction::Clflush];
        let known = known.into_iter().skip_while(|instruction| *instruction != best.0);
        for instruction in known {
            let mut bytes = vec![0u8; 4096];
            for (at, len) in [(0, 0), (0, 1), (63, 2), (1, 64), (4095, 1), (0, 4096)] {
                bytes[at..at + len].fill(7);
                // SAFETY: the bytes of a slice are mapped.
                unsafe { LineFlush(instruction).flush(bytes[at..].as_ptr(), len) };
                fence();
                assert!(bytes[at..at + len].iter().all(|byte| *byte == 7));
            }
        }
    }
}
