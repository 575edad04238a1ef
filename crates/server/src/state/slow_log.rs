//! The slow commands, for SLOWLOG.

use hyades_platform::sync::Unpoisoned;
use std::collections::VecDeque;
use std::sync::Mutex;

/// Number of kept arguments of a command, with its name.
const MOST_ARGUMENTS: usize = 32;

/// Number of kept bytes of an argument.
const MOST_BYTES: usize = 128;

/// A slow command.
#[derive(Clone, Debug)]
pub struct SlowEntry {
    /// The number of the entry, counted from 0 since the start of the server.
    pub id: u64,
    /// The time of the end of the run, in seconds since 1970.
    pub at_seconds: u64,
    /// Duration of the run, in microseconds.
    pub micros: u64,
    /// The name and arguments, as far as kept.
    pub args: Vec<Vec<u8>>,
    /// The address of the client.
    pub address: String,
    /// The name of the client.
    pub name: String,
}

/// The kept part of a command's name and arguments; `shown` returns the visible part of each.
pub fn kept<'a>(args: &[&'a [u8]], shown: impl Fn(usize) -> &'a [u8]) -> Vec<Vec<u8>> {
    let is_cut = args.len() > MOST_ARGUMENTS;
    let whole = if is_cut { MOST_ARGUMENTS - 1 } else { args.len() };
    let mut kept: Vec<Vec<u8>> = (0..whole)
        .map(|at| match shown(at) {
            long if long.len() > MOST_BYTES => {
                let more = format!("... ({} more bytes)", long.len() - MOST_BYTES);
                [&long[..MOST_BYTES], more.as_bytes()].concat()
            }
            short => short.to_vec(),
        })
        .collect();
    if is_cut {
        kept.push(format!("... ({} more arguments)", args.len() - whole).into_bytes());
    }
    kept
}

#[derive(Default)]
struct Kept {
    next: u64,
    /// The newest first.
    entries: VecDeque<SlowEntry>,
}

/// The last slow commands.
#[derive(Default)]
pub struct SlowLog(Mutex<Kept>);

impl SlowLog {
    /// Adds an entry, with a number given here; the last `most` entries are kept.
    pub fn add(&self, entry: SlowEntry, most: usize) {
        let mut kept = self.0.lock().unpoisoned();
        let id = kept.next;
        kept.next += 1;
        kept.entries.push_front(SlowEntry { id, ..entry });
        kept.entries.truncate(most);
    }

    /// The last entries, the newest first.
    pub fn last(&self, count: usize) -> Vec<SlowEntry> {
        self.0.lock().unpoisoned().entries.iter().take(count).cloned().collect()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.lock().unpoisoned().entries.len()
    }

    /// Removes all entries. The numbering goes on.
    pub fn clear(&self) {
        self.0.lock().unpoisoned().entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_arguments_and_many_are_cut() {
        let long = vec![b'A'; MOST_BYTES + 1];
        let mut args: Vec<&[u8]> = vec![b"sadd"; MOST_ARGUMENTS];
        args[1] = &long;
        let all = kept(&args, |at| args[at]);
        assert_eq!(all.len(), MOST_ARGUMENTS);
        assert_eq!(all[1], [&long[1..], b"... (1 more bytes)"].concat());
        args.push(b"x");
        let all = kept(&args, |at| args[at]);
        assert_eq!(all.len(), MOST_ARGUMENTS);
        assert_eq!(all[MOST_ARGUMENTS - 1], b"... (2 more arguments)");
    }

    #[test]
    fn the_newest_are_kept() {
        let log = SlowLog::default();
        let entry = |micros| SlowEntry {
            id: 0,
            at_seconds: 0,
            micros,
            args: Vec::new(),
            address: String::new(),
            name: String::new(),
        };
        (0..5).for_each(|micros| log.add(entry(micros), 3));
        let last: Vec<_> = log.last(2).iter().map(|entry| (entry.id, entry.micros)).collect();
        assert_eq!((last, log.len()), (vec![(4, 4), (3, 3)], 3));
        log.clear();
        log.add(entry(9), 3);
        assert_eq!(log.last(9)[0].id, 5);
        log.add(entry(9), 0);
        assert_eq!(log.len(), 0);
    }
}
