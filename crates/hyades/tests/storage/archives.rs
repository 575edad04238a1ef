//! Archives of the log. Promise: with an archive, a backup is restored to any later moment, over
//! checkpoints, openings and crashes.

use crate::common::{
    Combination, How, Opened, Transfer, builder, combinations, directory, populate, power_cut,
    refused, run,
};
use hyades::wal::Continuation;
use hyades::{Concurrency, Database, Error, Protocol, RecordKind, Restore, Schema, Type, Until};
use hyades_platform::clock;
use hyades_platform::device::Device;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A state, and a time at which no transaction was running.
struct Moment {
    at_us: u64,
    digest: u64,
}

/// The directories of a database, of its archive and of a backup.
struct Place {
    dir: tempfile::TempDir,
    c: Combination,
    device: Option<Arc<dyn Device>>,
}

impl Place {
    fn new(c: Combination) -> Self {
        Place { dir: directory(), c, device: None }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self) -> Result<Opened, Error> {
        let how = How { device: self.device.clone(), ..How::default() };
        let (builder, [transfer, churn]) = builder(self.c, how);
        let builder = builder.log_settings(|log| {
            log.epoch = Some(Duration::from_millis(10));
            log.segment_bytes = 1 << 16;
            log.archive = Some(self.at("archive"));
        });
        let watched = crate::common::watched::watched(&format!("{:?}", self.c));
        let db = builder.open(self.at("log"))?;
        Ok(Opened { db, watched, transfer, churn, inserting: None })
    }

    /// A life with checkpoints, whose end is a crash if `crashes`.
    fn live(&self, seed: u64, crashes: bool) -> Vec<Moment> {
        let opened = self.open().unwrap();
        let mut moments = Vec::new();
        for part in 0..3 {
            run(&opened, seed * 10 + part, 250);
            moments.push(pause(&opened));
            opened.db.checkpoint().unwrap();
        }
        run(&opened, seed * 10 + 9, 30);
        moments.push(pause(&opened));
        match crashes {
            true => opened.db.log().unwrap().flush().unwrap(),
            false => opened.db.close().unwrap(),
        }
        moments
    }

    fn restore(&self, later: Continuation, until: Until) -> Result<u64, Error> {
        let to = directory();
        let new = to.path().join("new");
        let how = Restore::new(vec![self.at("backup")], &new).continued(later).until(until);
        builder(self.c, How::default()).0.restore(&how)?;
        Ok(builder(self.c, How::default()).0.open(&new)?.digest())
    }

    fn archive(&self) -> Continuation {
        Continuation { archive: Some(self.at("archive")), log: Vec::new() }
    }

    fn archive_and_log(&self) -> Continuation {
        Continuation { log: vec![self.at("log")], ..self.archive() }
    }
}

/// Lets an epoch pass before and after a moment.
fn pause(opened: &Opened) -> Moment {
    std::thread::sleep(Duration::from_millis(25));
    let moment = Moment { at_us: clock::wall_us(), digest: opened.db.digest() };
    std::thread::sleep(Duration::from_millis(25));
    moment
}

fn segments(dir: &Path) -> usize {
    let streams = std::fs::read_dir(dir).into_iter().flatten().flatten();
    streams.filter_map(|stream| std::fs::read_dir(stream.path()).ok()).map(Iterator::count).sum()
}

#[test]
fn any_moment_since_a_backup_comes_back_over_checkpoints_and_crashes() {
    for (seed, c) in combinations().into_iter().filter(|c| c.streams < 16).enumerate() {
        let place = Place::new(c);
        let opened = place.open().unwrap();
        populate(&opened);
        opened.db.backup(place.at("backup")).unwrap();
        let mut moments = vec![pause(&opened)];
        opened.db.close().unwrap();
        for life in 0..3 {
            moments.extend(place.live(seed as u64 + life, life != 1));
        }
        assert!(segments(&place.at("archive")) > 3, "{c:?}: little was archived");
        for (nth, moment) in moments.iter().enumerate() {
            let until = Until::Time(moment.at_us);
            let digest = place.restore(place.archive_and_log(), until).unwrap();
            assert_eq!(digest, moment.digest, "{c:?}: moment {nth}");
        }
        let newest = place.restore(place.archive_and_log(), Until::Newest).unwrap();
        assert_eq!(newest, moments[moments.len() - 1].digest, "{c:?}");
        let alone = refused(place.restore(place.archive(), Until::Newest), "an archive alone");
        assert!(alone.to_string().contains("end at no common moment"), "{alone}");
    }
}

#[test]
fn a_power_cut_at_any_step_of_a_truncation_loses_nothing_of_an_archive() {
    let (protocol, concurrency) = (Protocol::Taurus, Concurrency::Silo);
    let c = Combination { protocol, concurrency, record: RecordKind::Adaptive, streams: 2 };
    let (mut step, mut cuts) = (0, 0);
    loop {
        let mut place = Place::new(c);
        let device = power_cut(step);
        place.device = Some(Arc::new(device.clone()));
        let opened = place.open().unwrap();
        populate(&opened);
        opened.db.backup(place.at("backup")).unwrap();
        let done: Vec<Transfer> = run(&opened, step, 400);
        assert!(!done.is_empty());
        opened.db.log().unwrap().flush().unwrap();
        let digest = opened.db.digest();
        device.cut_after(step);
        let through = opened.db.checkpoint().is_ok();
        device.cut();
        drop(opened);
        place.device = None;
        cuts += u64::from(!through);
        let opened = place.open().unwrap();
        assert_eq!(opened.db.digest(), digest, "step {step}");
        let between = pause(&opened);
        run(&opened, step + 1000, 400);
        opened.db.checkpoint().unwrap();
        run(&opened, step + 2000, 10);
        opened.db.log().unwrap().flush().unwrap();
        let newest = opened.db.digest();
        drop(opened);
        let found = |until| place.restore(place.archive_and_log(), until).unwrap();
        assert_eq!(found(Until::Time(between.at_us)), digest, "step {step}");
        assert_eq!(found(Until::Newest), newest, "step {step}");
        if through {
            break;
        }
        step += 1;
        assert!(step < 300, "a checkpoint has no more steps than that");
    }
    assert!(cuts > 5, "only {cuts} checkpoints were cut off");
}

#[test]
fn a_restore_over_another_schema_is_refused() {
    let dir = directory();
    let at = |name: &str| dir.path().join(name);
    let describe = |more: bool| {
        let mut builder = Database::builder().log_settings(|log| {
            log.archive = Some(at("archive"));
        });
        builder.table(Schema::new("a").column("k", Type::I64).primary_key(&["k"]));
        if more {
            builder.table(Schema::new("b").column("k", Type::I64).primary_key(&["k"]));
        }
        builder
    };
    let db = describe(false).open(at("log")).unwrap();
    db.backup(at("backup")).unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    let db = describe(true).open(at("log")).unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    let later = Continuation { archive: Some(at("archive")), log: vec![at("log")] };
    let how = Restore::new(vec![at("backup")], at("new")).continued(later);
    let error = refused(describe(true).restore(&how), "another schema");
    assert!(error.to_string().contains("have changed since the backup"), "{error}");
}
