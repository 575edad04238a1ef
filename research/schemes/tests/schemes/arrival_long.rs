//! Promise: a call with long arguments waits for room in the log before its partitions do, and is
//! replayed whole, also behind a checkpoint that is taken while it waits.

use crate::common::arriving::{self, Calls};
use crate::common::partitions::{count, set};
use crate::common::{directory, held::HeldDevice};
use hyades::{Builder, Database, Partitions, ProcedureId, Transaction};
use hyades_platform::device::{Device, FileDevice};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

/// The shop of the calls.
const SHOP: i64 = 1;
/// Bytes of the buffer of a stream, and of arguments that do not fit it.
const BUFFER: usize = 1 << 14;
const LONG: usize = 1 << 17;

/// Time for a thread to meet a full buffer, or a call that has not ended.
const MOMENT: Duration = Duration::from_millis(300);

fn builder(device: &HeldDevice) -> (Builder, Calls, ProcedureId) {
    let (mut builder, calls) = arriving::builder(64);
    let note = builder.procedure("note", 1, |tx: &Transaction<'_>, (shop, text): (i64, String)| {
        let n = count(tx, shop)?;
        set(tx, shop, n + text.len() as i64)?;
        Ok(n)
    });
    builder.on(note, |(shop,): (i64,)| Partitions::of(shop));
    let own: Arc<dyn Device> = Arc::new(device.clone());
    let builder = builder.streams(4).log_settings(|log| {
        log.device = Some(own);
        log.buffer_bytes = BUFFER;
        log.research.fixed_streams = true;
    });
    (builder, calls, note)
}

fn shown(db: &Database) -> i64 {
    db.try_transact(|tx| count(tx, SHOP)).unwrap().unwrap()
}

/// Calls with long arguments on a stream whose syncs do not end, and lets `beside` run when the
/// buffer is full. Returns the count of the shop before and after reopening.
fn beside_a_long_call(dir: &Path, beside: impl FnOnce(&Database, Calls, &dyn Fn())) -> [i64; 2] {
    let device = HeldDevice::new(FileDevice::shared());
    let (opening, calls, note) = builder(&device);
    let db = opening.open(dir).unwrap();
    let mut slow = db.session().unwrap();
    let (_, filled) = slow.call(calls.fill, &()).unwrap();
    let stream = filled.transaction_id().unwrap().stream;
    filled.wait().unwrap();
    let held = device.hold(&format!("stream-{stream:04}"));
    std::thread::scope(|scope| {
        let long = scope.spawn(move || {
            let (outcome, ticket) = slow.call(note, &(SHOP, "x".repeat(LONG))).unwrap();
            outcome.unwrap();
            ticket.wait().unwrap();
        });
        std::thread::sleep(MOMENT);
        assert!(!long.is_finished(), "the buffer holds no such arguments");
        beside(&db, calls, &|| device.release());
        device.release();
        long.join().unwrap();
    });
    drop(held);
    let before = shown(&db);
    db.close().unwrap();
    let (opening, ..) = builder(&device);
    [before, shown(&opening.open(dir).unwrap())]
}

#[test]
fn other_calls_of_a_partition_do_not_wait_for_room_in_the_log() {
    let dir = directory();
    let [before, after] = beside_a_long_call(dir.path(), |db, calls, release| {
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (outcome, ticket) = db.session().unwrap().call(calls.bump, &SHOP).unwrap();
                outcome.unwrap();
                ticket.wait().unwrap();
                tell.send(()).unwrap();
            });
            let ended = told.recv_timeout(Duration::from_secs(20));
            // A call that does wait must not hang the test.
            release();
            assert!(ended.is_ok(), "it waits for another call's arguments");
        });
    });
    assert_eq!(before, after);
    // First the short call, then the long one.
    assert_eq!(before, 501 + LONG as i64);
}

/// The cut of the checkpoint is between the arguments and the record: its positions are behind the
/// arguments, and the record is of a later epoch.
#[test]
fn arguments_are_not_truncated_behind_a_cut_before_their_record() {
    let dir = directory();
    let [before, after] = beside_a_long_call(dir.path(), |db, _, release| {
        std::thread::scope(|scope| {
            let checkpoint = scope.spawn(|| db.checkpoint().unwrap());
            std::thread::sleep(MOMENT);
            assert!(!checkpoint.is_finished(), "the cut waits for the call");
            release();
            checkpoint.join().unwrap();
        });
    });
    assert_eq!((before, after), (100 + LONG as i64, 100 + LONG as i64));
}
