//! Recovery: streams are read from their devices, records are replayed in the protocol's order.

use crate::costs::Costs;
use crate::forward::RunResult;
use crate::machine::Machine;
use crate::rules::Protocol;
use crate::wavefront;

/// Returns records per second, with as many threads as workers; `None` if replay was not measured.
///
/// As in the engine, row images are applied in any order by all threads, whatever the protocol,
/// because their versions decide. Commands of a single stream are replayed by one thread, commands
/// of Taurus in the order of their vectors.
pub fn rate(
    costs: &Costs,
    protocol: Protocol,
    words: (&str, &str),
    machine: &Machine,
    ran: &RunResult,
) -> Option<f64> {
    let own = costs.scheme(words.0, words.1)?;
    let commands = words.1 == "command";
    let threads = match (protocol, commands) {
        (Protocol::Serial, true) => 1,
        _ => machine.workers,
    };
    // Resolving a record is published to the other threads on a shared cache line.
    let line = if threads > 1 { costs.line_ns } else { 0.0 };
    let each = own.replay_ns? * costs.slowed(&own, threads) + line;
    let log = &ran.log;
    let streams = log.iter().map(|record| record.stream + 1).max()?;
    // The streams of a device take turns: bytes at this position are read at this time.
    let per_device = streams.div_ceil(machine.devices.min(streams)) as f64;
    let read_ns = |position: u64| position as f64 * per_device / machine.bandwidth * 1e9;
    let ns = if protocol.has_vectors() && commands {
        wavefront::replay(log, streams, threads, each, read_ns)
    } else {
        // Bounded by reading all streams, or by the threads' work.
        let read = log.iter().map(|record| read_ns(record.end)).fold(0.0, f64::max);
        read.max(log.len() as f64 * each / threads as f64)
    };
    Some(log.len() as f64 / ns.max(1.0) * 1e9)
}
