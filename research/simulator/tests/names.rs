//! A process is killed, a second process continues from the page cache, and then the power is cut.
//! Promise: the acknowledged writes of the second process are recovered.
#![allow(missing_docs)]

use hyades::{Abort, Builder, Database, Schema, Table, Type};
use hyades_platform::device::{SimulatedDevice, SimulatedDisk, SimulatedFault};
use std::sync::Arc;

const NUMBERS: Table = Table::nth(0);

fn builder(device: &SimulatedDevice) -> Builder {
    let mut builder = Database::builder().streams(2).recovery_threads(1).log_settings(|log| {
        log.device = Some(Arc::new(device.clone()));
        // No segment is prepared ahead, which would also sync the directory.
        log.research.stepped = true;
        log.segment_bytes = 1 << 16;
        log.buffer_bytes = 1 << 13;
        log.dirs = vec!["/second".into()];
    });
    builder.table(Schema::new("numbers").column("number", Type::U64).primary_key(&["number"]));
    builder
}

/// Inserts numbers and makes them durable.
fn insert(db: &Database, numbers: std::ops::Range<u64>) {
    let mut session = db.session().unwrap();
    for number in numbers {
        let (result, _) = session.try_submit(|tx| tx.insert(NUMBERS, &[number.into()])).unwrap();
        result.unwrap();
    }
    db.log().unwrap().flush().unwrap();
}

#[test]
fn a_name_that_a_killed_process_left_unsynced_is_durable_before_it_is_relied_on() {
    stop_and_go_on_and_cut().unwrap();
    #[cfg(feature = "mutations")]
    {
        use hyades_platform::mutation::{self, Mutation};
        mutation::set(Some(Mutation::TrustDirectoryEntries));
        let noticed = stop_and_go_on_and_cut();
        mutation::set(None);
        eprintln!("with the rule broken: {}", noticed.expect_err("it goes unnoticed"));
    }
}

/// Stops the first process at each of its changes of the disk, among others between the rename of a
/// file and the sync of its directory.
fn stop_and_go_on_and_cut() -> Result<(), String> {
    for stop in 0..60 {
        for seed in 0..6 {
            let disk = SimulatedDisk::new();
            if seed % 2 == 1 {
                let db = builder(&disk.process(seed)).open("/first").unwrap();
                insert(&db, 0..50);
                disk.kill();
            }
            let stopped = disk.process(seed);
            stopped.arm(SimulatedFault::Stop(stop));
            drop(builder(&stopped).open("/first"));
            disk.kill();
            let db = builder(&disk.process(seed)).open("/first").unwrap();
            insert(&db, 100..150);
            disk.power_cut(seed);
            drop(db);
            let what = format!("stopped at change {stop}, seed {seed}");
            let db = builder(&disk.process(seed)).open("/first");
            let db = db.map_err(|error| format!("{what}: {error}"))?;
            let first: u64 = if seed % 2 == 1 { 0 } else { 100 };
            let mut session = db.session().unwrap();
            let read = session.try_submit(|tx| {
                for number in (first..50).chain(100..150) {
                    if tx.get(NUMBERS, number)?.is_none() {
                        return Ok::<_, Abort>(Some(number));
                    }
                }
                Ok(None)
            });
            if let Some(number) = read.unwrap().0.unwrap() {
                return Err(format!("{what}: {number} is missing"));
            }
        }
    }
    Ok(())
}
