//! Recovery: streams are read from their devices, records are replayed in the protocol's order.

use crate::costs::Costs;
use crate::forward::{Logged, RunResult};
use crate::machine::{MAX_STREAMS, Machine};
use crate::rules::Protocol;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Returns records per second, with as many threads as workers; `None` if replay was not measured.
///
/// A serial log is replayed by one thread. Row images are applied in any order. Commands of Taurus
/// wait until the resolved prefix of every stream covers their vector.
pub fn rate(
    costs: &Costs,
    protocol: Protocol,
    words: (&str, &str),
    machine: &Machine,
    ran: &RunResult,
) -> Option<f64> {
    let own = costs.scheme(words.0, words.1)?;
    let threads = if protocol == Protocol::Serial { 1 } else { machine.workers };
    let slowdown = if threads > 1 { costs.slowdown } else { 1.0 };
    // Resolving a record is published to the other threads on a shared cache line.
    let each = own.replay_ns? * slowdown + if threads > 1 { costs.line_ns } else { 0.0 };
    let log = &ran.log;
    let streams = log.iter().map(|record| record.stream + 1).max()?;
    let seconds = match (protocol, words.1) {
        (Protocol::Taurus, "command") => wavefront(log, streams, threads, each, machine) / 1e9,
        _ => {
            // Bounded by reading all streams from their devices, or by the threads' work.
            let devices = machine.devices.min(streams) as f64;
            let last = (0..streams)
                .filter_map(|s| log.iter().rev().find(|r| r.stream == s))
                .map(|record| record.end as f64)
                .sum::<f64>();
            let read = last / (devices * machine.bandwidth);
            read.max(log.len() as f64 * each / threads as f64 / 1e9)
        }
    };
    Some(log.len() as f64 / seconds.max(1e-9))
}

/// Pairs of a position that a stream's resolved prefix has to reach and the record that waits for
/// it.
type Waiters = BinaryHeap<Reverse<(u64, usize)>>;

struct Front {
    /// Records of each stream, in order.
    streams: Vec<Vec<usize>>,
    /// The number of resolved records at the head of each stream, without a gap.
    prefix: Vec<usize>,
    waiters: Vec<Waiters>,
    resolved: Vec<bool>,
    /// Vector components that a record still waits for.
    unmet: Vec<usize>,
}

/// Replays commands in vector order; returns the time in nanoseconds.
fn wavefront(log: &[Logged], streams: usize, threads: usize, each: f64, machine: &Machine) -> f64 {
    let mut front = Front::new(log, streams);
    let per_device = streams.div_ceil(machine.devices.min(streams)) as f64;
    // When a record has been read; the streams of a device take turns.
    let read = |at: usize| log[at].end as f64 * per_device / machine.bandwidth * 1e9;
    let mut ready: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for at in 0..log.len() {
        if front.unmet[at] == 0 {
            ready.push(Reverse((read(at) as u64, at)));
        }
    }
    let mut free: BinaryHeap<Reverse<u64>> = (0..threads).map(|_| Reverse(0)).collect();
    let mut running: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut last = 0;
    loop {
        // The next event: a record ends, or a free thread starts one.
        let start = match (ready.peek(), free.peek()) {
            (Some(Reverse((read, _))), Some(Reverse(free))) => Some((*read).max(*free)),
            _ => None,
        };
        let end = running.peek().map(|Reverse((end, _))| *end);
        match (start, end) {
            (Some(start), end) if end.is_none_or(|end| start < end) => {
                let Some(Reverse((_, at))) = ready.pop() else { break };
                free.pop();
                running.push(Reverse((start + each as u64, at)));
            }
            (_, Some(end)) => {
                let Some(Reverse((_, at))) = running.pop() else { break };
                free.push(Reverse(end));
                last = end;
                for woken in front.resolve(log, at) {
                    ready.push(Reverse(((read(woken) as u64).max(end), woken)));
                }
            }
            _ => break,
        }
    }
    last as f64
}

impl Front {
    fn new(log: &[Logged], streams: usize) -> Front {
        let mut front = Front {
            streams: vec![Vec::new(); streams],
            prefix: vec![0; streams],
            waiters: vec![Waiters::new(); streams],
            resolved: vec![false; log.len()],
            unmet: vec![0; log.len()],
        };
        for (at, record) in log.iter().enumerate() {
            front.streams[record.stream].push(at);
        }
        for (at, record) in log.iter().enumerate() {
            let Some(vector) = &record.vector else { continue };
            for (stream, position) in vector.iter().enumerate().take(streams.min(MAX_STREAMS)) {
                // A record does not wait for its own position. It may depend on what precedes it in
                // its stream, but a maximum cannot tell, so only other streams' components count.
                let beyond = || {
                    let last = front.streams[stream].last().map_or(0, |last| log[*last].end);
                    *position > last
                };
                if stream != record.stream && *position > 0 && !beyond() {
                    front.waiters[stream].push(Reverse((*position, at)));
                    front.unmet[at] += 1;
                }
            }
        }
        front
    }

    /// Marks a record as resolved; returns the records that now wait for nothing more.
    fn resolve(&mut self, log: &[Logged], at: usize) -> Vec<usize> {
        self.resolved[at] = true;
        let stream = log[at].stream;
        let order = &self.streams[stream];
        let mut watermark = None;
        while let Some(next) = order.get(self.prefix[stream]).filter(|next| self.resolved[**next]) {
            watermark = Some(log[*next].end);
            self.prefix[stream] += 1;
        }
        let Some(watermark) = watermark else { return Vec::new() };
        let mut woken = Vec::new();
        while let Some(Reverse((position, waiter))) = self.waiters[stream].peek().copied() {
            if position > watermark {
                break;
            }
            self.waiters[stream].pop();
            self.unmet[waiter] -= 1;
            if self.unmet[waiter] == 0 {
                woken.push(waiter);
            }
        }
        woken
    }
}
