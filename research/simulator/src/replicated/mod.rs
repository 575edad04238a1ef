//! Torture of a replicated database: three members, one log service, clients and faults, on one
//! thread and in an order that follows from the seed.
//!
//! Each history has a shape by its seed: records, streams, how often the service loses, repeats and
//! delays, how often members are killed, lose power, rest or are cut off. In half of the histories
//! the log lies once: lanes lose their last messages, or a message in the middle. Then members may
//! stop, and must not go on without what a witness knew.

mod cluster;
mod judge;
mod service;
mod time;
mod witness;

pub use judge::Column;

use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Options of a torture of replicated databases.
#[derive(Clone, Copy, Debug)]
pub struct ReplicatedOptions {
    /// No history begins after as many seconds. At least one history runs.
    pub seconds: f64,
    /// The most histories.
    pub histories: u64,
    /// The seed of the first history; each later one has the next number.
    pub seed: u64,
    /// Time after which a history counts as hung.
    pub hangs_after: Duration,
}

/// The result of a torture of replicated databases.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReplicatedReport {
    /// The seed of the first history.
    pub seed: u64,
    /// Histories run.
    pub histories: u64,
    /// Acknowledged transactions, reads included.
    pub acknowledged: u64,
    /// By the name of each [`Column`], how often it was found.
    pub wrong: BTreeMap<&'static str, u64>,
    /// The seed of the failing history, if a history failed.
    pub failed: Option<u64>,
    /// What is wrong in the failing history.
    pub sentences: Vec<String>,
    /// The last events of the failing history.
    pub trace: Vec<String>,
    /// Faults, and what else has happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// Duration in seconds.
    pub seconds: f64,
}

impl ReplicatedReport {
    /// Whether nothing was found.
    pub fn is_sound(&self) -> bool {
        self.failed.is_none()
    }
}

fn guarded(seed: u64, hangs_after: Duration) -> cluster::Told {
    let (sender, receiver) = mpsc::channel();
    let spawned = std::thread::Builder::new().name("history".into()).spawn(move || {
        // After a hang the receiver is gone.
        let _ = sender.send(cluster::history(seed));
    });
    let failed = |column, what: &str| {
        let wrong = vec![(column, what.to_owned())];
        cluster::Told { wrong, ..cluster::Told::default() }
    };
    match receiver.recv_timeout(hangs_after) {
        Ok(told) => {
            drop(spawned.map(|thread| thread.join()));
            told
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => failed(Column::Diverged, "a panic"),
        Err(mpsc::RecvTimeoutError::Timeout) => failed(Column::Hung, "it has not ended in time"),
    }
}

/// Returns a digest of all events of the history of a seed.
pub fn digest_of_history(seed: u64) -> u64 {
    guarded(seed, crate::HANGS_AFTER).digest
}

/// Runs histories until the time is over or a history fails. `say` receives progress messages.
pub fn torture_replicated(
    options: &ReplicatedOptions,
    mut say: impl FnMut(&str),
) -> ReplicatedReport {
    let began = Instant::now();
    let wrong = Column::ALL.iter().map(|column| (column.name(), 0)).collect();
    let mut report = ReplicatedReport { seed: options.seed, wrong, ..Default::default() };
    let mut said = 0;
    for n in 0..options.histories {
        let seconds = began.elapsed().as_secs_f64();
        if seconds >= options.seconds && n > 0 {
            break;
        }
        if seconds as u64 / 5 > said {
            said = seconds as u64 / 5;
            let (histories, acknowledged) = (report.histories, report.acknowledged);
            say(&format!("{seconds:.0} s: {histories} histories, {acknowledged} acknowledged"));
        }
        let seed = options.seed.wrapping_add(n);
        let told = guarded(seed, options.hangs_after);
        report.histories += 1;
        report.acknowledged += told.acknowledged;
        for (what, times) in told.counts {
            *report.counts.entry(what).or_default() += times;
        }
        if told.wrong.is_empty() {
            continue;
        }
        for (column, sentence) in told.wrong {
            *report.wrong.entry(column.name()).or_default() += 1;
            report.sentences.push(format!("{}: {sentence}", column.name()));
        }
        (report.failed, report.trace) = (Some(seed), told.trace);
        say(&format!("seed {seed} fails: {}", report.sentences.join("; ")));
        break;
    }
    report.seconds = began.elapsed().as_secs_f64();
    report
}
