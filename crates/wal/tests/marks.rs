//! The marks of streams about the numbers of frames, and the result of recovery.
#![allow(missing_docs)]

mod common;
use common::{Drawn, append, kept_from, read_all, reopen, small, truncate};
use hyades_platform::device::{Fault, FaultyDevice, FileDevice, MemoryDevice};
use hyades_wal::{Lane, Log, open};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn marked(log: &Log) -> Arc<Drawn> {
    let marks = Arc::new(Drawn::default());
    log.install_marks(marks.clone());
    marks
}

#[test]
fn the_common_mark_is_the_lowest_and_waiting_for_it_moves_idle_streams() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = reopen(small(dir.path(), 3, MemoryDevice::shared())).unwrap();
    let marks = marked(&log);
    let mut writer = log.writer().unwrap();
    marks.0.store(7, Ordering::SeqCst);
    let end = append(&mut writer, 1, b"seven");
    log.wait(Lane::position(1), end).unwrap();
    let common = log.frontier().common_lane();
    // No other stream has stated anything so far.
    assert_eq!([0, 2].map(|s| log.frontier().mark(s)), [0, 0]);
    assert_eq!((log.frontier().at(common), log.stats(0).syncs), (0, 0));
    log.wait(common, 7).unwrap();
    assert_eq!([0, 1, 2].map(|s| log.frontier().mark(s)), [7, 7, 7]);
    // A mark not yet possible is stated as soon as possible.
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| log.wait(common, 9));
        std::thread::sleep(Duration::from_millis(5));
        assert!(!waits.is_finished());
        marks.0.store(9, Ordering::SeqCst);
        waits.join().unwrap().unwrap();
    });
    let syncs = log.stats(0).syncs;
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(log.stats(0).syncs, syncs, "something was written though no thread waits");
}

/// The heartbeat is in the last truncated segment: the next segment was begun in memory only when
/// the device failed.
#[test]
fn a_mark_outlives_the_heartbeat_that_stated_it() {
    let dir = tempfile::tempdir().unwrap();
    let device = FaultyDevice::new(FileDevice::shared());
    let mut options = small(dir.path(), 2, Arc::new(device.clone()));
    options.stepped = true;
    let (log, _) = reopen(options).unwrap();
    let marks = marked(&log);
    let mut writer = log.writer().unwrap();
    marks.0.store(41, Ordering::SeqCst);
    // Batches of three blocks: 21 fill a segment behind its header. None has a higher number.
    for _ in 0..21 {
        append(&mut writer, 1, &[1; 2900]);
        assert!(log.step(1));
    }
    let truncate_1 = || truncate(&log, &[0, log.frontier().durable(1)]);
    truncate_1();
    assert_eq!((log.frontier().mark(1), kept_from(&log, 1)), (41, 0));
    append(&mut writer, 1, &[1; 2900]);
    device.arm(Fault::Write(0));
    assert!(!log.step(1), "the device is full");
    truncate_1();
    assert_eq!(kept_from(&log, 1), log.frontier().durable(1), "the last segment is truncated");
    drop((writer, log));
    for _ in 0..2 {
        let recovering = open(small(dir.path(), 2, FileDevice::shared())).unwrap();
        let (_, verdict) = read_all(&recovering).unwrap();
        assert_eq!(verdict.ends()[0].marks, [0, 41]);
        // The death of a process here changes nothing.
    }
}

#[test]
fn marks_are_of_their_incarnation_and_stay_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let open_again = || reopen(small(dir.path(), 1, FileDevice::shared())).unwrap();
    for (life, mark) in [5, 90, 3].into_iter().enumerate() {
        let (log, _) = open_again();
        assert_eq!(log.frontier().mark(0), 0, "nothing has been stated in this incarnation");
        let marks = marked(&log);
        marks.0.store(mark, Ordering::SeqCst);
        append(&mut log.writer().unwrap(), 0, b"a record");
        log.flush().unwrap();
        // Closed cleanly, or not.
        if life == 1 { log.close().unwrap() } else { drop(log) }
    }
    let recovering = open(small(dir.path(), 1, FileDevice::shared())).unwrap();
    let (_, verdict) = read_all(&recovering).unwrap();
    let stated: Vec<&[u64]> = verdict.ends().iter().map(|end| &end.marks[..]).collect();
    assert_eq!(stated, [&[5][..], &[90], &[3]]);
    assert_eq!(recovering.manifest().incarnations[1].dims[0].mark, 90);
}
