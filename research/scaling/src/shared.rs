//! Resources shared by cores: cache lines of the log's counters, and rows.

use crate::costs::CACHED_ROWS;
use crate::machine::MAX_WORKERS;

/// Nanoseconds of simulated time.
pub(crate) type Time = u64;

/// Cache lines, each owned by one core at a time.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: Vec<Line>,
    /// The time to move a line.
    ns: f64,
    /// Time that workers have waited for lines.
    pub waited: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    free: Time,
    owner: Option<usize>,
}

impl Lines {
    pub(crate) fn new(lines: usize, ns: f64) -> Lines {
        Lines { lines: vec![Line::default(); lines], ns, waited: 0.0 }
    }

    /// Moves a line to a worker at `now`; returns when the worker goes on.
    pub(crate) fn take(&mut self, line: usize, worker: usize, now: Time) -> Time {
        let line = &mut self.lines[line];
        let until = match line.owner == Some(worker) {
            true => now,
            false => line.free.max(now) + self.ns as Time,
        };
        *line = Line { free: until, owner: Some(worker) };
        self.waited += (until - now) as f64;
        until
    }
}

/// The cores with the popular rows in their caches, and the last write time of each row.
#[derive(Debug)]
pub(crate) struct Caches {
    /// The popular rows, the most popular first.
    hot: Vec<HotRow>,
    /// The last write time of each row; a reader that began before has to run again.
    written: Vec<Time>,
    miss_ns: Time,
    row_ns: Time,
}

#[derive(Clone, Copy, Debug, Default)]
struct HotRow {
    /// A bit for each core that has the current row.
    holders: [u64; MAX_WORKERS / 64],
    /// The time when the row can move again.
    free: Time,
}

impl Caches {
    pub(crate) fn new(rows: u32, miss_ns: f64, row_ns: f64) -> Caches {
        Caches {
            hot: vec![HotRow::default(); rows.min(CACHED_ROWS) as usize],
            written: vec![0; rows as usize],
            miss_ns: miss_ns as Time,
            row_ns: row_ns as Time,
        }
    }

    /// A worker reads a row, or is about to write the row; returns when the worker has the row.
    pub(crate) fn reach(&mut self, row: u32, write: bool, worker: usize, now: Time) -> Time {
        let Some(hot) = self.hot.get_mut(row as usize) else { return now + self.miss_ns };
        let mut own = [0; MAX_WORKERS / 64];
        own[worker / 64] = 1 << (worker % 64);
        let held = hot.holders[worker / 64] & own[worker / 64] != 0;
        let others = hot.holders.iter().zip(own).any(|(holders, own)| holders & !own != 0);
        let until = match others && (write || !held) {
            true => hot.free.max(now) + self.row_ns,
            false => now,
        };
        if write {
            hot.holders = own;
        } else {
            hot.holders[worker / 64] |= own[worker / 64];
        }
        if until > now {
            hot.free = until;
        }
        until
    }

    /// Notes that a row was written.
    pub(crate) fn write(&mut self, row: u32, at: Time) {
        let written = &mut self.written[row as usize];
        *written = at.max(*written);
    }

    /// Whether a row was written after this time.
    pub(crate) fn changed_since(&self, row: u32, since: Time) -> bool {
        self.written[row as usize] > since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_moves_to_those_that_do_not_have_it_as_it_is() {
        let mut caches = Caches::new(2 * CACHED_ROWS, 7.0, 100.0);
        assert_eq!(caches.reach(CACHED_ROWS, false, 0, 0), 7);
        // No other core has the row.
        assert_eq!(caches.reach(0, true, 70, 0), 0);
        assert_eq!([caches.reach(0, false, 3, 0), caches.reach(0, false, 3, 500)], [100, 500]);
        // A second reader waits until the row can move again.
        assert_eq!(caches.reach(0, false, 4, 50), 200);
        // A write takes the row from all readers.
        assert_eq!([caches.reach(0, true, 3, 1000), caches.reach(0, true, 3, 2000)], [1100, 2000]);
        assert_eq!(caches.reach(0, false, 70, 2000), 2100);
    }

    #[test]
    fn a_line_that_stays_costs_nothing_and_one_that_moves_waits_its_turn() {
        let mut lines = Lines::new(1, 50.0);
        assert_eq!([lines.take(0, 1, 0), lines.take(0, 1, 60), lines.take(0, 2, 0)], [50, 60, 110]);
        assert_eq!(lines.waited, 160.0);
    }
}
