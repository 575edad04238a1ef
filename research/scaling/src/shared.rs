//! Resources shared by cores: cache lines of the log's counters, and rows.

use crate::costs::CACHED_ROWS;
use crate::machine::MAX_WORKERS;

/// Nanoseconds of simulated time.
pub(crate) type Time = u64;

/// The time of the event in progress, and the time that its thread has reached since. Requests are
/// queued by the former: a thread ahead of the event holds up no earlier request.
pub(crate) type Moment = (Time, Time);

/// What serves one request at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Server {
    free: Time,
    busy: Time,
}

impl Server {
    /// Serves a request of `ns`; returns the end.
    fn serve(&mut self, (event, at): Moment, ns: Time) -> Time {
        let begin = self.free.max(event);
        self.free = begin + ns;
        self.busy += ns;
        begin.max(at) + ns
    }
}

/// Cache lines, each owned by one core at a time.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: Vec<Line>,
    /// The time to move a line.
    ns: f64,
    /// Time that workers have waited for lines.
    pub waited: Time,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    server: Server,
    owner: Option<usize>,
}

impl Lines {
    pub(crate) fn new(lines: usize, ns: f64) -> Lines {
        Lines { lines: vec![Line::default(); lines], ns, waited: 0 }
    }

    /// Moves a line to a worker; returns when the worker goes on.
    pub(crate) fn take(&mut self, line: usize, worker: usize, now: Moment) -> Time {
        let line = &mut self.lines[line];
        if line.owner.replace(worker) == Some(worker) {
            return now.1;
        }
        let until = line.server.serve(now, self.ns as Time);
        self.waited += until - now.1;
        until
    }

    /// The time in which the busiest line was moved.
    pub(crate) fn busiest(&self) -> Time {
        self.lines.iter().map(|line| line.server.busy).max().unwrap_or(0)
    }
}

/// A bit for each core.
pub(crate) type Cores = [u64; MAX_WORKERS / 64];

/// A cache line that any number of cores may hold as it is, until one core writes. The line is
/// served to one core at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedLine {
    /// A bit for each core that has the current content.
    holders: Cores,
    server: Server,
}

impl SharedLine {
    /// The time in which the line was moved.
    pub(crate) fn busy(&self) -> Time {
        self.server.busy
    }

    /// A core reads or writes the line; returns when the core has the line, which takes `ns` to
    /// move.
    pub(crate) fn reach(&mut self, write: bool, core: usize, now: Moment, ns: Time) -> Time {
        let mut own = [0; MAX_WORKERS / 64];
        own[core / 64] = 1 << (core % 64);
        let held = self.holders[core / 64] & own[core / 64] != 0;
        let others = self.holders.iter().zip(own).any(|(holders, own)| holders & !own != 0);
        if write {
            self.holders = own;
        } else {
            self.holders[core / 64] |= own[core / 64];
        }
        if others && (write || !held) { self.server.serve(now, ns) } else { now.1 }
    }

    /// The line is served to these cores, which poll the line.
    pub(crate) fn serve(&mut self, cores: &Cores, now: Time, ns: Time) {
        let count = cores.iter().map(|cores| Time::from(cores.count_ones())).sum::<Time>();
        self.holders.iter_mut().zip(cores).for_each(|(holders, cores)| *holders |= cores);
        self.server.serve((now, now), ns * count);
    }
}

/// The cores with the popular rows in their caches, and the last write time of each row.
#[derive(Debug)]
pub(crate) struct Caches {
    /// The popular rows, the most popular first.
    hot: Vec<SharedLine>,
    /// The last write time of each row; a reader that began before has to run again.
    written: Vec<Time>,
    miss_ns: Time,
    row_ns: Time,
    /// Time that workers have waited for rows of other cores.
    pub waited: Time,
}

impl Caches {
    pub(crate) fn new(rows: u32, miss_ns: f64, row_ns: f64) -> Caches {
        Caches {
            hot: vec![SharedLine::default(); rows.min(CACHED_ROWS) as usize],
            written: vec![0; rows as usize],
            miss_ns: miss_ns as Time,
            row_ns: row_ns as Time,
            waited: 0,
        }
    }

    /// A worker reads a row, or is about to write the row; returns when the worker has the row.
    pub(crate) fn reach(&mut self, row: u32, write: bool, worker: usize, now: Moment) -> Time {
        let Some(hot) = self.hot.get_mut(row as usize) else { return now.1 + self.miss_ns };
        let until = hot.reach(write, worker, now, self.row_ns);
        self.waited += until - now.1;
        until
    }

    /// The time in which the busiest row was moved.
    pub(crate) fn busiest(&self) -> Time {
        self.hot.iter().map(SharedLine::busy).max().unwrap_or(0)
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

/// A mutex, whose line moves to each new holder.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lock {
    server: Server,
    owner: Option<usize>,
}

impl Lock {
    /// The time in which the lock was held or moved.
    pub(crate) fn busy(&self) -> Time {
        self.server.busy
    }

    /// A thread locks, as soon as the lock is free, for `inside`; returns the end.
    pub(crate) fn hold(&mut self, thread: usize, now: Moment, move_ns: Time, inside: Time) -> Time {
        let moved = if self.owner.is_none_or(|owner| owner == thread) { 0 } else { move_ns };
        self.owner = Some(thread);
        self.server.serve(now, moved + inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_moves_to_those_that_do_not_have_it_as_it_is() {
        let mut caches = Caches::new(2 * CACHED_ROWS, 7.0, 100.0);
        let mut reach = |row, write, core, now| caches.reach(row, write, core, (now, now));
        assert_eq!(reach(CACHED_ROWS, false, 0, 0), 7);
        // No other core has the row.
        assert_eq!(reach(0, true, 70, 0), 0);
        assert_eq!([reach(0, false, 3, 0), reach(0, false, 3, 500)], [100, 500]);
        // A second reader waits until the row can move again.
        assert_eq!(reach(0, false, 4, 50), 200);
        // A write takes the row from all readers.
        assert_eq!([reach(0, true, 3, 1000), reach(0, true, 3, 2000)], [1100, 2000]);
        assert_eq!(reach(0, false, 70, 2000), 2100);
    }

    #[test]
    fn a_line_that_stays_costs_nothing_and_one_that_moves_waits_its_turn() {
        let mut lines = Lines::new(1, 50.0);
        let mut take = |core, now| lines.take(0, core, (now, now));
        assert_eq!([take(1, 0), take(1, 60), take(2, 0)], [50, 60, 100]);
        assert_eq!((lines.waited, lines.busiest()), (150, 100));
    }

    #[test]
    fn a_lock_moves_to_a_new_holder_and_is_waited_for() {
        let mut lock = Lock::default();
        let mut hold = |thread, now| lock.hold(thread, (now, now), 50, 10);
        assert_eq!([hold(0, 0), hold(0, 100)], [10, 110]);
        assert_eq!(hold(1, 100), 170);
        assert_eq!(lock.busy(), 80);
    }

    #[test]
    fn those_that_poll_a_line_hold_it_up() {
        let mut line = SharedLine::default();
        assert_eq!(line.reach(true, 0, (0, 0), 50), 0);
        line.serve(&[0b1110, 0, 0, 0], 0, 50);
        assert_eq!((line.reach(false, 1, (10, 10), 50), line.busy()), (10, 150));
        assert_eq!((line.reach(true, 0, (10, 10), 50), line.busy()), (200, 200));
    }

    /// A thread that asks ahead of the event is served later than one that asks at the event.
    #[test]
    fn nobody_waits_for_a_request_of_the_future() {
        let mut line = SharedLine::default();
        line.reach(true, 0, (0, 0), 50);
        assert_eq!(line.reach(false, 1, (0, 1_000), 50), 1_050);
        assert_eq!(line.reach(false, 2, (10, 10), 50), 100);
    }
}
