//! What a history is made of, by seed; small changes of it make a failing history smaller.

use crate::schema::Tables;
use fastrand::Rng;
use hyades::{Concurrency, Protocol, Record};
use serde::{Deserialize, Serialize};

/// How an incarnation of the database works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Combination {
    /// Serial logging; Taurus otherwise.
    pub serial: bool,
    /// Silo; no-wait otherwise.
    pub silo: bool,
    /// How procedures are logged.
    pub record: Record,
    /// Log streams.
    pub streams: usize,
}

impl Combination {
    /// Every combination, with few streams and with more.
    pub fn all() -> Vec<Combination> {
        let mut all = Vec::new();
        for streams in [0, 1, 2, 3, 4] {
            for silo in [false, true] {
                for record in [Record::Data, Record::Command, Record::Adaptive] {
                    let serial = streams == 0;
                    all.push(Combination { serial, silo, record, streams: streams.max(1) });
                }
            }
        }
        all
    }

    /// Any of them.
    pub fn random(rng: &mut Rng) -> Combination {
        let all = Self::all();
        all[rng.usize(0..all.len())]
    }

    /// The protocol.
    pub fn protocol(self) -> Protocol {
        if self.serial { Protocol::Serial } else { Protocol::Taurus }
    }

    /// The concurrency control.
    pub fn concurrency(self) -> Concurrency {
        if self.silo { Concurrency::Silo } else { Concurrency::NoWait }
    }
}

/// A history to be run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Decides everything that is not said here.
    pub seed: u64,
    /// How the first life of the database works.
    pub combination: Combination,
    /// Whether later lives work otherwise.
    pub varies: bool,
    /// How often the database is opened.
    pub lives: usize,
    /// Threads that run transactions.
    pub sessions: usize,
    /// Transactions of each session in a life, at most.
    pub transactions: usize,
    /// The tables.
    pub tables: Tables,
    /// Whether syncs lie: a mutation of the world.
    pub lying_sync: bool,
    /// One thread does everything, in an order that follows from the seed.
    pub stepped: bool,
    /// List appends and registers, checked as a history of clients; with threads and power cuts only.
    pub isolation: bool,
}

impl Plan {
    /// The plan that a seed stands for, in this combination.
    pub fn random(seed: u64, combination: Combination) -> Plan {
        let mut rng = Rng::with_seed(seed);
        Plan {
            seed,
            combination,
            varies: rng.u32(0..3) == 0,
            lives: rng.usize(2..8),
            sessions: rng.usize(1..5),
            transactions: [20, 60, 200, 400][rng.usize(0..4)],
            tables: Tables {
                count: rng.u32(1..3),
                keys: [2, 4, 12, 40][rng.usize(0..4)],
                indexed: rng.bool(),
                hashed_marks: rng.bool(),
            },
            lying_sync: false,
            stepped: false,
            isolation: false,
        }
    }

    /// Smaller plans, the smallest first.
    pub fn smaller(&self) -> Vec<Plan> {
        let mut all = Vec::new();
        let mut push = |change: &dyn Fn(&mut Plan)| {
            let mut plan = self.clone();
            change(&mut plan);
            all.push(plan);
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
        if self.varies {
            push(&|p| p.varies = false);
        }
        all
    }
}
