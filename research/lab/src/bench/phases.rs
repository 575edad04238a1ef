//! Where the time of the workers goes: the phases of transactions, measured by the engine with the
//! feature `phases`.

use super::measured::Measured;
use hyades_platform::phase::{Phase, PhaseTimes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Time of the workers per acknowledged transaction, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// Measured attempts.
    pub attempts: u64,
    /// Attempts left out, since the thread lost its processor.
    pub interrupted: u64,
    /// By the name of the phase, all attempts of a transaction together.
    pub us: BTreeMap<String, f64>,
    /// Processor time outside of attempts: drawing inputs, taking acknowledgements.
    pub driver_us: f64,
    /// Time without a processor outside of attempts: waiting for acknowledgements, or for other
    /// threads to leave the processor.
    pub idle_us: f64,
}

impl PhaseReport {
    /// Of a run with this many workers; none if nothing was acknowledged.
    pub fn new(times: &PhaseTimes, measured: &Measured, workers: usize) -> Option<PhaseReport> {
        let acknowledged = measured.acknowledged as f64;
        let (cpu_ns, _) = measured.busy_ns.filter(|_| measured.acknowledged > 0)?;
        let attempts_each = 1.0 + measured.conflicts as f64 / acknowledged;
        let us = |phase: Phase| times.ns[phase as usize] * attempts_each / 1e3;
        let busy = Phase::ALL.into_iter().filter(|phase| *phase != Phase::Wait);
        let in_attempts: f64 = busy.map(us).sum();
        let cpu_us = cpu_ns as f64 / 1e3 / acknowledged;
        let all_us = workers as f64 * measured.seconds * 1e6 / acknowledged;
        Some(PhaseReport {
            attempts: times.attempts,
            interrupted: times.interrupted,
            us: Phase::ALL.into_iter().map(|phase| (phase.name().to_string(), us(phase))).collect(),
            driver_us: (cpu_us - in_attempts).max(0.0),
            idle_us: (all_us - cpu_us - us(Phase::Wait)).max(0.0),
        })
    }

    /// The phases in a line, with their shares of all time.
    pub fn text(&self) -> String {
        let named = Phase::ALL.into_iter().map(|phase| (phase.name(), self.us[phase.name()]));
        let parts: Vec<_> =
            named.chain([("driver", self.driver_us), ("idle", self.idle_us)]).collect();
        let all: f64 = parts.iter().map(|(_, us)| us).sum();
        let part = |(name, us): &(&str, f64)| format!("{name} {:.1} %", 100.0 * us / all);
        let shares: Vec<_> = parts.iter().map(part).collect();
        format!("{} of {all:.2} \u{b5}s each", shares.join(", "))
    }
}
