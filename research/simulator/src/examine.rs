//! Checks after each crash, and other ways to recover the same disk.

use crate::case::{Case, Opened, Outcome};
use crate::history::ExecutedTransaction;
use crate::kept::SavedFailure;
use crate::{database, schema};
use hyades::{Database, Error, Replay};
use hyades_platform::device::{Rot, SimulatedDisk, SimulatedFault};

impl Case {
    pub(crate) fn fail(&mut self, image: SimulatedDisk, what: impl FnOnce(&mut Outcome)) {
        what(&mut self.outcome);
        self.outcome.image.get_or_insert(image);
        if self.outcome.story.is_empty() {
            self.outcome.story = self.story();
            self.outcome.kept = Some(SavedFailure {
                plan: self.plan.clone(),
                combination: self.now,
                dirs: self.dirs,
                programs: self.counters.programs(),
                history: self.history.clone(),
            });
        }
    }

    pub(crate) fn story(&self) -> String {
        let mut all: Vec<&ExecutedTransaction> = self.history.life.iter().collect();
        all.sort_by_key(|ran| ran.began);
        let lines = all.iter().map(|ran| {
            let answered = if ran.acknowledged { "acknowledged" } else { "open" };
            format!(
                "{} [{}, {}] {answered}, {}\n  saw {:?}\n  left {:?}\n",
                ran.id, ran.began, ran.returned, ran.how, ran.trace.reads, ran.trace.writes
            )
        });
        let lines: String = lines.collect();
        format!("before this life: {:#?}\nin this life:\n{lines}", self.history.base)
    }

    /// Checks the recovered state, compares other ways to recover it, and makes it the base of the
    /// next life.
    pub(crate) fn examine(&mut self, opened: &Opened, image: SimulatedDisk) {
        let state = match schema::dump(&opened.db, self.plan.tables, self.counters.programs()) {
            Ok(state) => state,
            Err(complaint) => {
                self.fail(image, |outcome| outcome.verdict.diverged.push(complaint));
                return;
            }
        };
        let verdict = self.history.judge(&state);
        if !verdict.is_sound() {
            self.fail(image, |outcome| outcome.verdict = verdict);
            return;
        }
        let (counted, held) = (opened.db.tables(), opened.db.recount());
        if counted != held {
            self.fail(image, |outcome| {
                let sentence = format!("the tables hold {held:?}, not {counted:?}, as counted");
                outcome.verdict.diverged.push(sentence);
            });
            return;
        }
        let digest = opened.db.digest();
        if self.rng.u32(0..3) == 0 {
            // Of a clone: known seeds draw the same as before.
            let third = [Replay::Pools, Replay::Phases][self.rng.clone().usize(0..2)];
            let ways = [(1, Replay::Serial), (2, Replay::Wavefront), (3, third)];
            // Only a recovery by one thread can be repeated exactly.
            let ways = if self.plan.stepped { &ways[..1] } else { &ways[..] };
            for &(threads, replay) in ways {
                self.recover_otherwise(opened, &image, threads, replay, digest);
            }
        }
        if self.rng.u32(0..3) == 0 {
            for _ in 0..3 {
                self.rot(opened, &image);
            }
        }
        // These do dozens of recoveries each, which takes too long with tens of megabytes.
        let light = !self.plan.is_heavy();
        if self.rng.u32(0..16) == 0 && light {
            self.crash_at_each_step(opened, &image);
        }
        if self.rng.u32(0..16) == 0 && light {
            self.checkpoint_stopped_at_each_step(opened, &image);
        }
        self.history.advance(state, &verdict);
    }

    /// Recovers a copy of the disk.
    pub(crate) fn recover_copy(
        &mut self,
        opened: &Opened,
        copy: &SimulatedDisk,
        threads: usize,
        replay: Replay,
    ) -> Result<Database, Error> {
        let device = copy.process(self.rng.u64(..));
        let settings = self.rng.u64(..);
        let (builder, _) =
            database::builder(&self.plan, opened.combination, &device, self.dirs, settings);
        builder.recovery_threads(threads).replay(replay).open("/db")
    }

    fn recover_otherwise(
        &mut self,
        opened: &Opened,
        image: &SimulatedDisk,
        threads: usize,
        replay: Replay,
        digest: u64,
    ) {
        self.note("recovered again, another way");
        let copy = image.fork();
        let what = format!("recovered by {threads} threads, {replay:?}");
        match self.recover_copy(opened, &copy, threads, replay) {
            Ok(db) if db.digest() == digest => {}
            Ok(db) => {
                let other = db.digest();
                self.fail(image.fork(), |outcome| {
                    let sentence = format!("{what}, the digest is {other:x}, not {digest:x}");
                    outcome.verdict.diverged.push(sentence);
                });
            }
            Err(error) => self.fail(image.fork(), |outcome| {
                outcome.refused_wrongly.push(format!("{what}: {error}"));
            }),
        }
    }

    /// Opens copies of the disk, stopped at the first change of the disk, at the second, and so on.
    /// The state recovered after each must be sound.
    fn crash_at_each_step(&mut self, opened: &Opened, image: &SimulatedDisk) {
        for step in 0.. {
            let copy = image.fork();
            let device = copy.process(self.rng.u64(..));
            device.arm(SimulatedFault::Stop(step));
            let settings = self.rng.u64(..);
            let combination = opened.combination;
            let (builder, _) =
                database::builder(&self.plan, combination, &device, self.dirs, settings);
            let died = builder.recovery_threads(1).open("/db").is_err();
            if !died && device.is_alive() {
                break;
            }
            self.note("stopped at each step of opening");
            self.outcome.crashes += 1;
            if self.rng.bool() {
                copy.power_cut(self.rng.u64(..));
            }
            let before = copy.fork();
            let what = format!("opened after an opening that stopped at step {step}");
            self.check_recovery(opened, &copy, &before, &what);
            if !self.outcome.is_sound() {
                break;
            }
        }
    }

    /// Flips bits of a copy. Opening must refuse it or recover a sound state. Acknowledged
    /// transactions may be missing only if the damage is in the last write, which looks like a torn
    /// tail.
    fn rot(&mut self, opened: &Opened, image: &SimulatedDisk) {
        let copy = image.fork();
        // `rot` damages page cache and medium alike, as after a reboot.
        let Some(Rot { path, offset, in_last_write }) = copy.rot(self.rng.u64(..)) else { return };
        self.note("bit rot");
        let damaged = copy.fork();
        let (threads, replay) = self.random_replay();
        let Ok(db) = self.recover_copy(opened, &copy, threads, replay) else {
            self.note("bit rot refused");
            return;
        };
        let what = format!("a flipped bit in byte {offset} of {} was accepted", path.display());
        let mut wrong: Vec<String> = Vec::new();
        match schema::dump(&db, self.plan.tables, self.counters.programs()) {
            Err(complaint) => wrong.push(complaint),
            Ok(state) => {
                let verdict = self.history.judge(&state);
                let lost = if in_last_write { &[][..] } else { &verdict.lost[..] };
                wrong.extend(lost.iter().cloned());
                for all in [verdict.partial, verdict.resurrected, verdict.diverged] {
                    wrong.extend(all);
                }
            }
        }
        if !wrong.is_empty() {
            self.fail(damaged, |outcome| {
                let all = wrong.into_iter().map(|w| format!("{what}: {w}"));
                outcome.verdict.diverged.extend(all);
            });
        }
    }
}
