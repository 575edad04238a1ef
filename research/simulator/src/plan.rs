//! The parameters of a history, derived from a seed, and reductions that make a failing history
//! smaller.

use crate::conduct::Conduct;
use crate::schema::Tables;
use crate::shape::{PlanParts, Shape};
use fastrand::Rng;
use hyades::{Concurrency, Database, Error, Protocol, RecordKind, RetrySettings};
use hyades_platform::device::SimulatedDisk;
use hyades_schemes::{all_controls, all_protocols};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How an incarnation of the database works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Combination {
    /// The logging protocol.
    pub protocol: Protocol,
    /// The concurrency control.
    pub concurrency: Concurrency,
    /// How procedures are logged.
    pub record: RecordKind,
    /// Number of log streams.
    pub streams: usize,
}

/// Maximum number of streams of a combination.
const STREAMS: usize = 4;

impl Combination {
    /// Every combination that the engine opens with a log, and in which closures may write.
    pub fn all() -> &'static [Combination] {
        static ALL: OnceLock<Vec<Combination>> = OnceLock::new();
        ALL.get_or_init(|| Self::with_calls().iter().filter(|c| !c.calls_only()).copied().collect())
    }

    /// Whether calls of procedures are logged, before they run, and nothing else.
    pub fn calls_only(&self) -> bool {
        !self.protocol.takes_data()
    }

    /// Every combination that the engine opens with a log. The engine decides: combinations refused
    /// as misuse are left out.
    pub fn with_calls() -> &'static [Combination] {
        // Computed once, on first use.
        static ALL: OnceLock<Vec<Combination>> = OnceLock::new();
        ALL.get_or_init(|| {
            let mut all = Vec::new();
            for protocol in all_protocols().filter(|protocol| *protocol != Protocol::None) {
                for streams in 1..=STREAMS {
                    for concurrency in all_controls() {
                        for record in [RecordKind::Data, RecordKind::Command, RecordKind::Adaptive]
                        {
                            all.push(Combination { protocol, concurrency, record, streams });
                        }
                    }
                }
            }
            all.retain(|combination| combination.is_sound());
            all
        })
    }

    /// Whether the engine opens a database with the combination.
    fn is_sound(&self) -> bool {
        let builder = Database::builder()
            .protocol(self.protocol)
            .concurrency(self.concurrency)
            .record(self.record)
            .streams(self.streams)
            .log_settings(|log| {
                log.device = Some(Arc::new(SimulatedDisk::new().process(0)));
                log.research.stepped = true;
                log.buffer_bytes = 1 << 13;
                log.segment_bytes = 1 << 16;
            });
        match builder.open("/db") {
            Ok(_) => true,
            Err(Error::Misuse(_)) => false,
            Err(error) => panic!("{self:?} cannot be opened, and not for misuse: {error}"),
        }
    }

    /// A random combination.
    pub fn random(rng: &mut Rng) -> Combination {
        let all = Self::all();
        all[rng.usize(0..all.len())]
    }

    /// A random combination that may follow this combination in a history. A history that states
    /// partitions from the first life on may log calls alone in a later life.
    pub fn next(&self, rng: &mut Rng) -> Combination {
        if !self.calls_only() {
            return Self::random(rng);
        }
        let all = Self::with_calls();
        let own = || all.iter().filter(|c| c.calls_only());
        let others = Self::random(rng);
        match rng.bool() {
            true => *own().nth(rng.usize(0..own().count())).expect("it is one of them"),
            false => others,
        }
    }
}

/// A history to be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Seed of everything left open by the other fields.
    pub seed: u64,
    /// The combination of the first life.
    pub combination: Combination,
    /// Whether later lives draw other combinations.
    pub varies: bool,
    /// Number of openings of the database.
    pub lives: usize,
    /// Threads that run transactions.
    pub sessions: usize,
    /// Transactions of each session in a life, at most.
    pub transactions: usize,
    /// The tables.
    pub tables: Tables,
    /// Whether checkpoints are taken while transactions run.
    pub checkpoints: bool,
    /// Whether fsync lies, a fault that the checks must find.
    pub lying_sync: bool,
    /// Whether one thread does everything, in an order that follows from the seed.
    pub stepped: bool,
    /// Unusual features.
    #[serde(default)]
    pub shape: Shape,
    /// Unusual conduct of the program around the database.
    #[serde(default)]
    pub conduct: Conduct,
    /// Whether to run list appends and registers, checked as a client history, with threads and
    /// power cuts only.
    pub isolation: bool,
}

impl Plan {
    /// The plan of a seed, in this combination.
    pub fn random(seed: u64, combination: Combination) -> Plan {
        let mut rng = Rng::with_seed(seed);
        let mut plan = Plan {
            seed,
            combination,
            varies: rng.u32(0..3) == 0,
            lives: rng.usize(2..8),
            sessions: rng.usize(1..5),
            transactions: [20, 60, 200, 400][rng.usize(0..4)],
            tables: Tables {
                count: rng.u32(1..3),
                keys: [2, 4, 12, 40, 400][rng.usize(0..5)],
                indexed: rng.bool(),
                hashed_marks: rng.bool(),
                longest_text: 0,
                longest_key: 0,
                spare: 0,
                pairs: false,
                changes: false,
                noted: false,
                by_version: false,
            },
            checkpoints: rng.u32(0..3) != 0,
            lying_sync: false,
            stepped: false,
            shape: Shape::default(),
            conduct: Conduct::default(),
            isolation: false,
        };
        let Plan { tables, sessions, transactions, lives, .. } = &mut plan;
        let drawn = PlanParts { tables, sessions, transactions, lives };
        plan.shape = Shape::random(&mut Rng::with_seed(seed ^ 0x0005_4A9E), drawn);
        plan.conduct = Conduct::random(&mut Rng::with_seed(seed ^ 0xC04D), &mut plan);
        plan
    }

    /// Whether recovering the database takes much longer than usual.
    pub(crate) fn is_heavy(&self) -> bool {
        let Tables { longest_text, longest_key, keys, .. } = self.tables;
        longest_text > 0 || longest_key > 1000 || keys > 1000
    }

    /// Reductions of this plan, in the order of the tries.
    pub fn smaller(&self) -> Vec<Plan> {
        let mut all = Vec::new();
        let mut push = |change: &dyn Fn(&mut Plan)| {
            let mut plan = self.clone();
            change(&mut plan);
            if plan != *self {
                all.push(plan);
            }
        };
        if self.lives > 2 {
            push(&|p| p.lives = 2);
            push(&|p| p.lives -= 1);
        }
        if self.sessions > 1 {
            push(&|p| p.sessions -= 1);
        }
        if self.transactions > 4 {
            push(&|p| p.transactions /= 2);
        }
        if self.tables.count > 1 {
            push(&|p| p.tables.count = 1);
        }
        if self.tables.indexed {
            push(&|p| p.tables.indexed = false);
        }
        if self.checkpoints {
            push(&|p| p.checkpoints = false);
        }
        let plain = Shape::default();
        if self.shape != plain {
            push(&|p| p.shape = plain);
            push(&|p| p.shape.extremes = false);
            push(&|p| p.shape.in_flight = None);
            push(&|p| p.shape.session_each = false);
        }
        if self.conduct != Conduct::default() {
            push(&|p| p.conduct = Conduct::default());
            push(&|p| p.conduct.wakers = false);
            push(&|p| p.conduct.speculative_reads = false);
        }
        if self.tables.changes {
            push(&|p| p.tables.changes = false);
        }
        if self.tables.longest_key > 0 {
            push(&|p| p.tables.longest_key = 0);
        }
        if self.tables.longest_text > 0 {
            push(&|p| p.tables.longest_text /= 2);
        }
        if self.tables.spare > 0 {
            push(&|p| p.tables.spare = 0);
        }
        if self.tables.keys > 1000 {
            push(&|p| p.tables.keys /= 2);
        }
        if self.varies {
            push(&|p| p.varies = false);
        }
        all
    }
}

impl Plan {
    /// The time for which a transaction may starve: far less than a history may take, far more than
    /// a transaction needs.
    pub(crate) fn retry_settings(&self, settings: u64, retries: &mut RetrySettings) {
        let mut rng = Rng::with_seed(settings ^ 0x4E74);
        retries.deadline = Some(Duration::from_secs(if self.shape.reader { 3 } else { 20 }));
        if self.shape.reader {
            retries.alone_after = Some(Duration::from_millis(20));
        } else if self.shape.extremes {
            // Sessions that wait for each other's locks may never end if no session ever runs
            // alone.
            let waits_for_locks = self.conduct.patience > 0;
            let never = if waits_for_locks { retries.alone_after } else { None };
            retries.alone_after = [never, Some(Duration::ZERO)][rng.usize(0..2)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Approximate number of bytes written by the transactions of a life.
    fn written(plan: &Plan) -> usize {
        let rows = if plan.shape.bulk { 2 + plan.tables.keys as usize / 12 } else { 2 };
        plan.sessions * plan.transactions * rows * plan.tables.row_bytes()
    }

    #[test]
    fn whatever_is_drawn_a_history_fits_in_memory() {
        let mut shapes = [0; 3];
        for seed in 0..50_000 {
            let plan = Plan::random(seed, Combination::all()[0]);
            assert!(written(&plan) <= 1 << 30, "a life writes {} bytes: {plan:?}", written(&plan));
            assert!(plan.sessions * plan.transactions <= 8000, "{plan:?}");
            assert!(plan.sessions > 0 && plan.transactions >= 3, "{plan:?}");
            shapes[0] += usize::from(plan.sessions == 64);
            shapes[1] += usize::from(plan.sessions == 64 && plan.tables.longest_text > 0);
            shapes[2] += usize::from(plan.shape.stalled && plan.transactions == 2000);
        }
        assert!(shapes.iter().all(|drawn| *drawn > 20), "features are still drawn: {shapes:?}");
    }
}
