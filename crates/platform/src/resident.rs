//! Resident memory: the pages of a process in memory, including all allocations.

use crate::reclaim;

/// The number of histories in a window; only the history with the least memory counts: threads of a
/// previous history may be ending.
const WINDOW: u64 = 32;

/// Windows before the first counted window, for the growth of caches and heaps.
const WARM_UP: u64 = 2;

/// The permitted growth of memory beyond twice the first counted window, in bytes.
const SLACK: u64 = 96 << 20;

/// Returns the bytes of the current process in memory; 0 where the system does not tell.
pub fn resident_bytes() -> u64 {
    status_bytes("self", "VmRSS:").unwrap_or(0)
}

/// Returns the most bytes of the current process in memory so far; 0 where the system does not
/// tell.
pub fn most_resident_bytes() -> u64 {
    status_bytes("self", "VmHWM:").unwrap_or(0)
}

/// Returns the bytes of a process, given by number, in memory; `None` if the process has ended.
pub fn resident_bytes_of(process: u32) -> Option<u64> {
    status_bytes(&process.to_string(), "VmRSS:")
}

/// Returns a line of the system's status of a process, in bytes.
fn status_bytes(process: &str, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// Watches that the memory of a process does not grow from history to history: memory left behind
/// by one history would be left by all.
#[derive(Debug, Default)]
pub struct MemoryWatch {
    histories: u64,
    /// The least bytes after a history of the current window.
    least: u64,
    /// The least bytes of the first counted window.
    first: Option<u64>,
}

impl MemoryWatch {
    /// Measures, after each history. Returns a sentence if memory has grown.
    pub fn after_history(&mut self) -> Option<String> {
        reclaim::settle();
        self.note(resident_bytes())
    }

    fn note(&mut self, bytes: u64) -> Option<String> {
        self.least =
            if self.histories.is_multiple_of(WINDOW) { bytes } else { self.least.min(bytes) };
        self.histories += 1;
        if !self.histories.is_multiple_of(WINDOW) || self.histories / WINDOW <= WARM_UP {
            return None;
        }
        let (first, least) = (*self.first.get_or_insert(self.least), self.least);
        (least > 2 * first + SLACK).then(|| {
            format!(
                "the process keeps {least} bytes in memory after {} histories, and kept {first}",
                self.histories
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_each_history_leaves_is_found_and_a_large_history_is_not() {
        let run = |bytes: &dyn Fn(u64) -> u64| {
            let mut watch = MemoryWatch::default();
            (0..4000).find(|history| watch.note(bytes(*history)).is_some())
        };
        assert_eq!(run(&|history| (50 << 20) + history % 31 * (100 << 20)), None);
        let found = run(&|history| (50 << 20) + history * (1 << 20)).expect("it is found");
        assert!(found < 400, "after {found} histories");
        assert!(!cfg!(target_os = "linux") || resident_bytes() > 1 << 20);
    }
}
