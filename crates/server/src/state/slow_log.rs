//! The commands that took long, for SLOWLOG.

use hyades_platform::sync::Unpoisoned;
use std::collections::VecDeque;
use std::sync::Mutex;

/// Arguments of a command that are kept, with its name.
const MOST_ARGUMENTS: usize = 32;

/// Bytes of an argument that are kept.
const MOST_BYTES: usize = 128;

/// A command that took long.
#[derive(Clone, Debug)]
pub struct SlowEntry {
    /// Its number, counted from 0 since the server was started.
    pub id: u64,
    /// When it had run, in seconds since 1970.
    pub at_seconds: u64,
    /// How long it ran, in microseconds.
    pub micros: u64,
    /// Its name and arguments, as far as they are kept.
    pub args: Vec<Vec<u8>>,
    /// The address of its client.
    pub address: String,
    /// The name of its client.
    pub name: String,
}

/// What is kept of a command's name and arguments; `shown` is what may be seen of each.
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

/// The last of them.
#[derive(Default)]
pub struct SlowLog(Mutex<Kept>);

impl SlowLog {
    /// Adds an entry, whose number is given here; `most` are kept.
    pub fn add(&self, entry: SlowEntry, most: usize) {
        let mut kept = self.0.lock().unpoisoned();
        let id = kept.next;
        kept.next += 1;
        kept.entries.push_front(SlowEntry { id, ..entry });
        kept.entries.truncate(most);
    }

    /// The last ones, the newest first.
    pub fn last(&self, count: usize) -> Vec<SlowEntry> {
        self.0.lock().unpoisoned().entries.iter().take(count).cloned().collect()
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.0.lock().unpoisoned().entries.len()
    }

    /// Forgets all of them. Their numbers go on.
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
