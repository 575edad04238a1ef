//! Checkpoints in a history: taken while transactions run, and stopped at each of their steps.

use crate::case::{Case, Opened};
use crate::plan::Plan;
use crate::{database, schema};
use fastrand::Rng;
use hyades::{CheckpointSettings, Database};
use hyades_platform::device::{SimulatedDisk, SimulatedFault};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Draws checkpoint settings: mostly small blocks, so that much happens between the cut and the
/// last row, and little buffer space for rows that are overwritten meanwhile.
pub(crate) fn settings(plan: &Plan, rng: &mut Rng, settings: &mut CheckpointSettings) {
    if !plan.checkpoints {
        return;
    }
    settings.share = [0.1, 1.0, 1.0][rng.usize(0..3)];
    settings.block_bytes = [1, 300, settings.block_bytes][rng.usize(0..3)];
    settings.buffer_bytes = [1 << 10, 1 << 13, settings.buffer_bytes][rng.usize(0..3)];
    if !plan.stepped && rng.u32(0..4) == 0 {
        settings.interval = Some(Duration::from_micros(rng.u64(1000..5000)));
    }
}

/// The checkpoints taken in a life.
#[derive(Debug, Default)]
pub(crate) struct CheckpointCounts {
    pub number: u64,
    /// The first failure. No checkpoint is attempted afterwards.
    pub failed: Option<String>,
}

/// Takes checkpoints until `over` is set or a checkpoint fails.
pub(crate) fn take(db: &Database, seed: u64, over: &AtomicBool) -> CheckpointCounts {
    let mut rng = Rng::with_seed(seed);
    let pause = rng.u64(0..3000);
    let mut taken = CheckpointCounts::default();
    // Acquire: the flag only says when to stop; it protects no data.
    while !over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_micros(rng.u64(0..pause + 1)));
        match db.checkpoint() {
            Ok(_) => taken.number += 1,
            Err(error) => {
                taken.failed = Some(error.to_string());
                break;
            }
        }
    }
    taken
}

impl CheckpointCounts {
    /// Takes a checkpoint between two transactions of a stepped life, unless one has failed.
    pub fn take_stepped(&mut self, db: &Database) {
        // A stepped log has no flusher threads, so it is flushed up to the cut here.
        let flushed = db.log().is_some_and(|log| log.flush().is_ok());
        if self.failed.is_some() || !flushed {
            return;
        }
        match db.checkpoint() {
            Ok(_) => self.number += 1,
            Err(error) => self.failed = Some(error.to_string()),
        }
    }
}

impl Case {
    /// Whether this life may take checkpoints. A stepped life needs a single directory: then the
    /// checkpoint has one part, written by the calling thread.
    pub(crate) fn takes_checkpoints(&self) -> bool {
        self.plan.checkpoints && (!self.plan.stepped || self.dirs == 1)
    }

    /// Counts the checkpoints. On a healthy disk none may have failed.
    pub(crate) fn note_checkpoints(&mut self, taken: CheckpointCounts, healthy: bool) {
        const NAME: &str = "checkpoints taken while transactions ran";
        *self.outcome.faults.entry(NAME).or_default() += taken.number;
        match taken.failed {
            Some(why) if healthy => {
                let image = self.disk.fork();
                self.fail(image, |outcome| {
                    outcome.refused_wrongly.push(format!("a checkpoint: {why}"));
                });
            }
            Some(_) => self.note("checkpoints that the end of a life, or a fault, stopped"),
            None => {}
        }
    }

    /// Opens copies of the disk and takes a checkpoint that stops at its first change of the disk,
    /// at its second, and so on, up to the removal of the last truncated log file. The state
    /// recovered after each must be sound.
    pub(crate) fn checkpoint_stopped_at_each_step(
        &mut self,
        opened: &Opened,
        image: &SimulatedDisk,
    ) {
        if !self.takes_checkpoints() {
            return;
        }
        for step in 0.. {
            let copy = image.fork();
            let device = copy.process(self.rng.u64(..));
            let settings = self.rng.u64(..);
            let combination = opened.combination;
            let (builder, _) =
                database::builder(&self.plan, combination, &device, self.dirs, settings);
            let db = match builder.recovery_threads(1).open("/db") {
                Ok(db) => db,
                Err(error) => {
                    self.fail(image.fork(), |outcome| {
                        outcome.refused_wrongly.push(format!("for a checkpoint: {error}"));
                    });
                    return;
                }
            };
            device.arm(SimulatedFault::Stop(step));
            let taken = db.checkpoint();
            if device.is_alive() {
                if let Err(error) = taken {
                    self.fail(image.fork(), |outcome| {
                        outcome.refused_wrongly.push(format!("a checkpoint: {error}"));
                    });
                }
                return;
            }
            drop(db);
            self.note("stopped at each step of a checkpoint");
            self.outcome.crashes += 1;
            if self.rng.bool() {
                copy.power_cut(self.rng.u64(..));
            }
            let before = copy.fork();
            let what = format!("opened after a checkpoint that stopped at step {step}");
            self.check_recovery(opened, &copy, &before, &what);
            if !self.outcome.is_sound() {
                return;
            }
        }
    }

    /// Recovers a copy of the disk and checks the state. Keeps `before` after a violation.
    pub(crate) fn check_recovery(
        &mut self,
        opened: &Opened,
        copy: &SimulatedDisk,
        before: &SimulatedDisk,
        what: &str,
    ) {
        let (threads, replay) = self.random_replay();
        match self.recover_copy(opened, copy, threads, replay) {
            Ok(db) => {
                let state = schema::dump(&db, self.plan.tables, self.counters.programs());
                let wrong = match state {
                    Ok(state) => self.history.judge(&state).sentences().collect(),
                    Err(complaint) => vec![complaint],
                };
                for sentence in wrong {
                    self.fail(before.fork(), |outcome| {
                        outcome.verdict.diverged.push(format!("{what}: {sentence}"));
                    });
                }
            }
            Err(error) => self.fail(before.fork(), |outcome| {
                outcome.refused_wrongly.push(format!("{what}: {error}"));
            }),
        }
    }
}
