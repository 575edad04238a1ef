//! Recovery: streams are read from their devices, records are replayed in the protocol's order.

use crate::chunks;
use crate::costs::Costs;
use crate::forward::RunResult;
use crate::machine::Machine;
use crate::rules::Protocol;
use crate::usage::Usage;
use crate::wavefront::{self, Timing};

/// The result of a replay.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Records per second.
    pub records_per_s: f64,
    /// Where time goes.
    pub usage: Usage,
}

/// Replays the log with as many threads as workers; `None` if replay was not measured.
///
/// As in the engine, row images are applied in any order by all threads, whatever the protocol,
/// because their versions decide. Commands of a single stream are replayed by one thread, commands
/// of Taurus in the order of their vectors.
pub fn replay(
    costs: &Costs,
    protocol: Protocol,
    words: (&str, &str),
    machine: &Machine,
    ran: &RunResult,
) -> Option<Replayed> {
    let own = costs.scheme(words.0, words.1)?;
    let commands = words.1 == "command";
    let threads = match (protocol, commands) {
        (Protocol::Serial, true) => 1,
        _ => machine.workers,
    };
    let timing = Timing::of(costs, &own, threads)?;
    let log = &ran.log;
    let streams = log.iter().map(|record| record.stream + 1).max()?;
    // The streams of a device take turns: bytes at this position are read at this time.
    let per_device = streams.div_ceil(machine.devices.min(streams)) as f64;
    let read_ns = |position: u64| position as f64 * per_device / machine.bandwidth * 1e9;
    if commands {
        // Streams without records are streams too.
        let streams = streams.max(log.first().map_or(0, |record| record.vector.len()));
        let (records_per_s, usage) = wavefront::replay(log, streams, threads, timing, read_ns);
        return Some(Replayed { records_per_s, usage });
    }
    let memory_ns = match machine.memory.unwrap_or_else(|| costs.memory(threads)) {
        bandwidth if bandwidth > 0.0 => 1e9 / bandwidth,
        _ => 0.0,
    };
    let source = (memory_ns, read_ns);
    let (records_per_s, usage) = chunks::replay(log, streams, threads, timing, source);
    Some(Replayed { records_per_s, usage })
}
