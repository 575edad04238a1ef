//! Archives of the log. Promise: with an archive, a backup is restored to any later moment, over
//! checkpoints, openings and crashes.

use crate::common::archiving::{PLAIN, a_gap_is_found, any_moment_comes_back, cut_truncations};
use crate::common::{directory, refused};
use crate::some_combinations_of_closures;
use hyades::wal::Continuation;
use hyades::{Database, Restore, Schema, Type};

#[test]
fn any_moment_since_a_backup_comes_back_over_checkpoints_and_crashes() {
    for (seed, c) in some_combinations_of_closures(0).into_iter().filter(|(_, c)| c.streams < 16) {
        any_moment_comes_back(c, seed as u64);
    }
}

#[test]
fn a_power_cut_at_any_step_of_a_truncation_loses_nothing_of_an_archive() {
    let cuts = cut_truncations(PLAIN);
    assert!(cuts > 5, "only {cuts} checkpoints were cut off");
}

#[test]
fn a_gap_is_refused_and_a_later_backup_goes_on() {
    a_gap_is_found(PLAIN);
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
