//! Replay of commands in the order of their vectors, by the engine's rule
//! (`crates/hyades/src/recovery/wavefront.rs`).
//!
//! A thread takes a stream (`lane` in the engine) and runs the stream's records in order. A record
//! whose vector is above a stream's watermark in any component, including its own stream's, is
//! parked in its stream's window; so are a few records behind it, and, while threads have no work,
//! some runnable records. Any thread runs parked records that lack nothing. A watermark never
//! passes an unresolved record.
//!
//! Time is spent on a record by its own work, by reading and decoding (the thread that holds the
//! stream), and, with several threads, by what they share (`lane.rs`): the stream's cursor, the
//! lock of its window and the copy in the window's place, and the line of its watermark, which
//! every thread without work polls. A thread that has polled for long sleeps, and is notified.

mod lane;
mod state;
mod threads;

use crate::rules::Logged;
use crate::shared::{Caches, Time};
use crate::usage::{OWN_WORK, Usage, share};
pub(crate) use state::Timing;
use state::{
    ACTIVITIES, Activity, Doing, Front, LONGEST, LOOKAHEAD, Lane, OFFERED, PUBLISH_EVERY, Parked,
    Place, Thread, WINDOW,
};
use std::cmp::Reverse;

/// Replays the log; returns the records per second, and where the time goes.
pub(crate) fn replay(
    log: &[Logged],
    streams: usize,
    threads: usize,
    timing: Timing,
    read_ns: impl Fn(u64) -> f64,
) -> (f64, Usage) {
    let mut lanes: Vec<Lane> = (0..streams).map(|_| Lane::default()).collect();
    for (number, record) in log.iter().enumerate() {
        lanes[record.stream].records.push(number);
    }
    let highest = log.iter().flat_map(|record| record.accesses.iter().flatten()).map(|a| a.row);
    let mut front = Front {
        log,
        timing,
        lanes,
        threads: vec![Thread::new(streams); threads],
        rows: Caches::new(highest.max().map_or(1, |row| row + 1), 0.0, timing.row),
        lookahead: if threads == 1 { 0 } else { LOOKAHEAD },
        read_ns,
        events: (0..threads).map(|thread| Reverse((0, thread))).collect(),
        resolved: 0,
        event: 0,
        spent: [0; ACTIVITIES.len()],
    };
    let mut last = 0;
    while front.resolved < log.len() && last < LONGEST {
        let Some(Reverse((now, thread))) = front.events.pop() else { break };
        if front.threads[thread].next == now {
            last = front.go_on(thread, now).max(last);
        }
    }
    let is_whole = front.resolved == log.len();
    assert!(is_whole || last >= LONGEST, "every record can run once those before it have");
    let usage = front.usage(last);
    (front.resolved as f64 / last.max(1) as f64 * 1e9, usage)
}

impl<F: Fn(u64) -> f64> Front<'_, F> {
    fn usage(&self, last: Time) -> Usage {
        let whole = last as f64;
        let all = whole * self.threads.len() as f64;
        let threads =
            ACTIVITIES.iter().zip(self.spent).map(|(what, spent)| share(what, spent, all));
        let busiest = |busy: &dyn Fn(&Lane) -> Time| self.lanes.iter().map(busy).max().unwrap_or(0);
        let own = self.spent[Activity::Run as usize] + self.spent[Activity::Decode as usize];
        let position = |lane: &Lane| {
            let reached = lane.next.checked_sub(1).map(|last| lane.records[last]);
            reached.map_or(0, |last| self.log[last].end)
        };
        let read = self.lanes.iter().map(|lane| (self.read_ns)(position(lane)) as Time).max();
        let resources = vec![
            share(OWN_WORK, own, all),
            share("the one runner of a stream", busiest(&|lane| lane.worked), whole),
            share("notifications by a stream's runner", busiest(&|lane| lane.notified), whole),
            share("the lock of a window", busiest(&|lane| lane.lock.busy()), whole),
            share("the line of a watermark", busiest(&|lane| lane.mark.busy()), whole),
            share("a row that moves between cores", self.rows.busiest(), whole),
            share("a device", read.unwrap_or(0), whole),
        ];
        Usage { threads: threads.collect(), resources }
    }

    /// Counts a thread's time, and of a stream's runner also as time of the stream: work there, or
    /// notifications.
    fn spend(&mut self, thread: usize, what: Activity, from: Time, until: Time) -> Time {
        self.spent[what as usize] += until - from;
        if let Some((lane, _)) = self.threads[thread].holds {
            let stream = &mut self.lanes[lane];
            match what {
                Activity::Run | Activity::Decode | Activity::Copy | Activity::Cursor => {
                    stream.worked += until - from;
                }
                Activity::Notify => stream.notified += until - from,
                Activity::Window | Activity::Line | Activity::Row | Activity::Search => {}
            }
        }
        until
    }

    /// A thread goes on with its next event; returns when the thread has finished a record, else 0.
    fn go_on(&mut self, thread: usize, now: Time) -> Time {
        let mut last = 0;
        self.event = now;
        self.threads[thread].read_at = None;
        let next = match std::mem::take(&mut self.threads[thread].doing) {
            Doing::Running(lane, place) => {
                let at = self.finish(lane, place, thread, now);
                self.call_one(at);
                last = now;
                self.look(thread, at)
            }
            Doing::Decoding(lane) => match self.decide(lane, thread, now) {
                Ok(next) => Ok(next),
                Err(at) => self.look(thread, at),
            },
            Doing::Nothing => self.look(thread, now),
        };
        match next {
            Ok(next) => {
                self.threads[thread].waits_since = None;
                self.schedule(thread, next);
                // There may be more work.
                self.call_one(now);
            }
            Err(at) => self.wait(thread, at),
        }
        last
    }

    /// Finds work for a thread, as [`Self::step`]; the time of a round in vain is counted apart.
    fn look(&mut self, thread: usize, now: Time) -> Result<Time, Time> {
        let spent = self.spent;
        let found = self.step(thread, now);
        if let Err(at) = found {
            self.spent = spent;
            self.spend(thread, Activity::Search, now, at);
        }
        found
    }

    /// Finds work for a thread; returns when the thread goes on. `Err` with the time if there is
    /// none.
    fn step(&mut self, thread: usize, mut now: Time) -> Result<Time, Time> {
        if let Some((lane, _)) = self.threads[thread].holds {
            match self.advance(lane, thread, now) {
                Ok(next) => return Ok(next),
                Err(at) => now = self.release(lane, thread, at),
            }
        }
        // Streams run by another thread come last: such streams may have parked records.
        let first = thread % self.lanes.len();
        let in_turn = (0..self.lanes.len()).map(|at| (first + at) % self.lanes.len());
        let has_work = |lane: &usize| {
            let stream = &self.lanes[*lane];
            stream.waiting > 0 || stream.next < stream.records.len()
        };
        let mut order: Vec<usize> = in_turn.filter(has_work).collect();
        order.sort_by_key(|lane| (self.lanes[*lane].holder.is_some(), self.lanes[*lane].progress));
        for lane in order {
            let (at, taken) = self.take(lane, thread, now);
            if taken {
                return Ok(at);
            }
            now = at;
            let tried = self.threads[thread].tried >> lane & 1 == 1;
            if self.lanes[lane].holder.is_none() && !tried {
                now = self.hold(lane, thread, now);
                match self.advance(lane, thread, now) {
                    Ok(next) => return Ok(next),
                    Err(at) => now = self.release(lane, thread, at),
                }
            }
        }
        Err(now)
    }

    /// Goes on in a stream until there is a record to decode or to run; `Err` if the stream
    /// cannot continue.
    fn advance(&mut self, lane: usize, thread: usize, now: Time) -> Result<Time, Time> {
        if !matches!(self.threads[thread].holds, Some((_, 1..))) {
            return Err(now);
        }
        let mut at = now;
        if self.lookahead > 0 {
            if self.lanes[lane].waiting > self.lookahead / 2 {
                // A record of this stream, or else of another stream.
                let others = (0..self.lanes.len()).filter(|other| *other != lane);
                for lane in std::iter::once(lane).chain(others) {
                    let (until, taken) = self.take(lane, thread, at);
                    if taken {
                        return Ok(until);
                    }
                    at = until;
                }
            }
            if self.lanes[lane].waiting >= self.lookahead {
                return Err(at);
            }
        }
        let stream = &mut self.lanes[lane];
        let Some(&record) = stream.records.get(stream.next) else { return Err(at) };
        let read = (self.read_ns)(self.log[record].end) as Time;
        if read > at {
            let first = &mut self.threads[thread].read_at;
            *first = Some(first.map_or(read, |first| first.min(read)));
            return Err(at);
        }
        let reads = if std::mem::replace(&mut stream.is_read, true) { 0 } else { self.timing.read };
        self.threads[thread].doing = Doing::Decoding(lane);
        Ok(self.spend(thread, Activity::Decode, at, at + reads + self.timing.decode))
    }

    /// Runs or parks the record just decoded. `Err` with the time if the thread goes on at once:
    /// the record is parked, or can be neither.
    fn decide(&mut self, lane: usize, thread: usize, now: Time) -> Result<Time, Time> {
        let own = &mut self.threads[thread];
        own.locked = None;
        let Some((_, left)) = own.holds else { return Err(now) };
        let idle = self.threads.iter().any(|thread| thread.is_idle);
        let offers = self.lookahead > 0 && idle;
        let stream = &self.lanes[lane];
        let record = stream.records[stream.next];
        let has_room = stream.window.len() < WINDOW;
        let is_offered = offers && stream.waiting < OFFERED && has_room;
        let mut at = now;
        if !is_offered && (stream.waiting == 0 || offers) {
            let (until, may) = self.may_run(thread, record, Some(lane), at);
            at = until;
            if may {
                // The record needs no place in the window, even if the window is full.
                return Ok(self.begin(thread, lane, Place::InTurn, (record, left - 1), at));
            }
        }
        if self.lookahead == 0 || !has_room {
            let at = self.release(lane, thread, at);
            self.threads[thread].tried |= 1 << lane;
            return Err(at);
        }
        at = self.publish(lane, thread, at);
        let Timing { line, lock, copy, .. } = self.timing;
        let until = self.lanes[lane].lock.hold(thread, (self.event, at), line, lock + copy);
        self.spend(thread, Activity::Window, at, until - copy);
        at = self.spend(thread, Activity::Copy, until - copy, until);
        // The counts of parked and waiting records are beside the watermark and the places.
        at = self.write_lines(lane, thread, at);
        let stream = &mut self.lanes[lane];
        stream.window.push_back(Parked { record, taken: false, done: false, by: thread });
        (stream.next, stream.waiting) = (stream.next + 1, stream.waiting + 1);
        stream.is_read = false;
        let own = &mut self.threads[thread];
        (own.holds, own.tried) = (Some((lane, left - 1)), 0);
        if is_offered {
            at = self.notify(thread, at);
        }
        self.call_one(at);
        Err(at)
    }

    /// Begins to run a record; `left` is the rest of the thread's quantum, for a record in turn.
    fn begin(
        &mut self,
        thread: usize,
        lane: usize,
        place: Place,
        (record, left): (usize, usize),
        now: Time,
    ) -> Time {
        let own = &mut self.threads[thread];
        (own.doing, own.tried) = (Doing::Running(lane, place), 0);
        if place == Place::InTurn {
            own.holds = Some((lane, left));
        }
        let mut at = now;
        for access in self.log[record].accesses.iter().flatten() {
            at = self.rows.reach(access.row, access.write, thread, (self.event, at));
        }
        self.spend(thread, Activity::Row, now, at);
        self.spend(thread, Activity::Run, at, at + self.timing.run)
    }

    /// A record has been run; returns when the thread goes on.
    fn finish(&mut self, lane: usize, place: Place, thread: usize, now: Time) -> Time {
        self.resolved += 1;
        let mut at = now;
        match place {
            Place::InTurn => {
                let stream = &mut self.lanes[lane];
                (stream.next, stream.unpublished) = (stream.next + 1, stream.unpublished + 1);
                stream.is_read = false;
                let is_due = stream.unpublished >= PUBLISH_EVERY;
                if is_due || self.lanes[lane].wanted <= self.position(lane) {
                    at = self.publish(lane, thread, at);
                }
            }
            Place::Window(record) => {
                let Timing { line, lock, .. } = self.timing;
                let until = self.lanes[lane].lock.hold(thread, (self.event, at), line, lock);
                at = self.spend(thread, Activity::Window, at, until);
                // A runner that goes on with its window takes the next record under the same lock.
                let holds = self.threads[thread].holds.is_some_and(|(held, _)| held == lane);
                self.threads[thread].locked = holds.then_some(lane);
                let window = &mut self.lanes[lane].window;
                if let Some(parked) = window.iter_mut().find(|parked| parked.record == record) {
                    parked.done = true;
                }
                while window.front().is_some_and(|parked| parked.done) {
                    window.pop_front();
                }
                at = self.publish(lane, thread, at);
            }
        }
        at
    }

    /// Takes the first parked record of a stream that lacks nothing. Returns when the thread has
    /// looked, or has run the record.
    fn take(&mut self, lane: usize, thread: usize, now: Time) -> (Time, bool) {
        let locked = self.threads[thread].locked.take() == Some(lane);
        if self.lookahead == 0 {
            return (now, false);
        }
        let Timing { line, lock, .. } = self.timing;
        let until = self.lanes[lane].places.reach(false, thread, (self.event, now), line);
        let mut at = self.spend(thread, Activity::Window, now, until);
        if self.lanes[lane].waiting == 0 {
            return (at, false);
        }
        for place in 0..self.lanes[lane].window.len() {
            let Parked { record, taken, by, .. } = self.lanes[lane].window[place];
            if taken {
                continue;
            }
            let (until, may) = self.may_run(thread, record, None, at);
            at = until;
            if !may {
                continue;
            }
            let moved = if by == thread { 0 } else { self.content_ns(record) };
            if !locked {
                let until = self.lanes[lane].lock.hold(thread, (self.event, at), line, lock);
                at = self.spend(thread, Activity::Window, at, until);
            }
            at = self.spend(thread, Activity::Copy, at, at + moved);
            at = self.write_lines(lane, thread, at);
            let stream = &mut self.lanes[lane];
            stream.window[place].taken = true;
            stream.waiting -= 1;
            return (self.begin(thread, lane, Place::Window(record), (record, 0), at), true);
        }
        (at, false)
    }
}

#[cfg(test)]
mod tests;
