//! A log over several openings: clean closes, drops, failing devices, power cuts.

mod common;
use common::{append, kept_from, read_all, reopen, small, truncate};
use hyades_platform::device::{
    Device, Fault, FaultyDevice, FileDevice, MemoryDevice, PowerCutDevice, PowerCutOptions,
};
use hyades_wal::{Error, FrameKind, IncarnationSettings, Lane, Log, open};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Wake, Waker};
use std::time::Duration;

#[test]
fn acknowledged_is_recovered_over_incarnations() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for round in 1..=4u32 {
        let (log, frames) = reopen(small(dir.path(), 2, FileDevice::shared())).unwrap();
        let records: Vec<_> = frames.iter().filter(|f| f.kind == FrameKind::Record).collect();
        assert_eq!(records.len(), expected.len());
        for (read, (incarnation, stream, end, payload)) in records.iter().zip(&expected) {
            assert_eq!((&read.payload, read.end), (payload, *end));
            assert_eq!((read.incarnation, read.lane), (*incarnation, *stream));
        }
        let mut writer = log.writer().unwrap();
        for stream in 0..2 {
            for i in 0..200u32 {
                let payload = vec![i as u8; (i * 7 % 900) as usize];
                let end = append(&mut writer, stream, &payload);
                expected.push((log.incarnation(), stream, end, payload));
            }
        }
        log.flush().unwrap();
        drop(writer);
        // Whether closed cleanly or dropped, durable records are recovered.
        if round % 2 == 0 { log.close().unwrap() } else { drop(log) }
    }
}

#[test]
fn a_void_keeps_its_place_and_what_follows() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = reopen(small(dir.path(), 1, MemoryDevice::shared())).unwrap();
    let mut writer = log.writer().unwrap();
    let dropped = writer.reserve(0, 300);
    let (start, end) = (dropped.start(), dropped.end());
    drop(dropped);
    writer.reserve(0, 0).void();
    let last = append(&mut writer, 0, b"after");
    log.frontier().wait(Lane::position(0), last).unwrap();
    log.close().unwrap();
    let (_, frames) = reopen(small(dir.path(), 1, MemoryDevice::shared())).unwrap();
    assert_eq!((frames[0].kind, frames[0].start, frames[0].end), (FrameKind::Void, start, end));
    assert_eq!(frames[1].kind, FrameKind::Void);
    assert_eq!(frames[2].payload, b"after");
}

/// The number of segments in a stream's directory under final names.
fn segments(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| path.extension().is_none()).count()
}

#[test]
fn a_failed_sync_poisons_and_is_never_retried() {
    let dir = tempfile::tempdir().unwrap();
    let device = FaultyDevice::new(FileDevice::shared());
    let options = small(dir.path(), 2, Arc::new(device.clone()));
    let (log, _) = reopen(options.clone()).unwrap();
    let mut writer = log.writer().unwrap();
    let first = append(&mut writer, 0, b"durable");
    log.frontier().wait(Lane::position(0), first).unwrap();
    // Segments made ahead of need are synced as well: wait until each stream has a second segment.
    while (0..2).any(|s| segments(&dir.path().join(format!("stream-{:04}", log.stream_id(s)))) < 2)
    {
        std::thread::yield_now();
    }
    device.arm(Fault::Sync(0));
    let lost = append(&mut writer, 0, b"lost?");
    let error = log.frontier().wait(Lane::position(0), lost).unwrap_err();
    assert!(error.cause.contains("could not sync"), "{error}");
    // The other stream and later records fail, too; earlier acknowledgements stay valid.
    let other = append(&mut writer, 1, b"too late");
    assert_eq!(log.frontier().wait(Lane::position(1), other), Err(error));
    log.frontier().wait(Lane::position(0), first).unwrap();
    // A full buffer does not block a writer of a stopped log.
    for _ in 0..100 {
        append(&mut writer, 1, &[1; 1000]);
    }
    writer.wait_for_room(1);
    assert!(matches!(log.clone().close(), Err(Error::Poisoned(_))));
    drop((writer, log));
    let (_, frames) = reopen(options).unwrap();
    assert_eq!(frames[0].payload, b"durable");
}

#[test]
fn a_full_disk_poisons() {
    let dir = tempfile::tempdir().unwrap();
    let device = FaultyDevice::new(FileDevice::shared());
    let (log, _) = reopen(small(dir.path(), 1, Arc::new(device.clone()))).unwrap();
    let mut writer = log.writer().unwrap();
    device.arm(Fault::Write(3));
    let mut result = Ok(());
    for _ in 0..10 {
        let end = append(&mut writer, 0, b"x");
        result = log.frontier().wait(Lane::position(0), end);
    }
    assert!(result.unwrap_err().cause.contains("could not write"));
}

#[test]
fn streams_come_and_go_and_stay_readable() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut expected: Vec<Vec<u8>> = Vec::new();
    let mut ids = Vec::new();
    for (round, streams) in [2usize, 5, 1, 3].into_iter().enumerate() {
        let mut options = small(a.path(), streams, MemoryDevice::shared());
        if round >= 1 {
            options.dirs.push(b.path().to_owned());
        }
        if round == 3 {
            options.dirs.reverse();
        }
        let (log, frames) = reopen(options).unwrap();
        let payloads: Vec<_> = frames.iter().map(|f| f.payload.clone()).collect();
        assert_eq!(payloads, expected);
        let newest = log.manifest();
        ids.push(newest.newest().unwrap().dims.iter().map(|d| d.stream.0).collect::<Vec<_>>());
        let mut writer = log.writer().unwrap();
        for stream in 0..streams {
            let payload = format!("round {round} stream {stream}").into_bytes();
            append(&mut writer, stream, &payload);
            expected.push(payload);
        }
        log.flush().unwrap();
    }
    assert_eq!(ids[0], [0, 1]);
    assert!(ids[1][0] == 0 && ids[1][2] == 1, "streams in the same directory go on: {ids:?}");
    // The error for a missing directory names the directory.
    let error = open(small(a.path(), 1, MemoryDevice::shared())).unwrap_err().to_string();
    assert!(error.contains(&b.path().display().to_string()), "{error}");
}

/// The marker states a place, not given to any directory added meanwhile.
#[test]
fn a_directory_of_an_opening_that_failed_can_be_added_later() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let device = FaultyDevice::new(FileDevice::shared());
    let options = |given: &[usize]| {
        let mut options = small(dirs[0].path(), given.len(), Arc::new(device.clone()));
        options.dirs = given.iter().map(|&at| dirs[at].path().to_owned()).collect();
        options
    };
    drop(reopen(options(&[0])).unwrap());
    device.arm(Fault::Sync(0));
    let error = reopen(options(&[0, 1])).unwrap_err().to_string();
    assert!(error.contains("could not sync"), "{error}");
    drop(reopen(options(&[0, 2])).unwrap());
    drop(reopen(options(&[0, 2, 1])).unwrap());
}

#[test]
fn a_log_has_one_opener() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = reopen(small(dir.path(), 1, MemoryDevice::shared())).unwrap();
    let writer = log.writer().unwrap();
    let error = open(small(dir.path(), 1, MemoryDevice::shared())).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    // Dropping the log releases the lock, even while a writer exists.
    drop(log);
    open(small(dir.path(), 1, MemoryDevice::shared())).unwrap();
    drop(writer);
}

#[test]
fn an_idle_log_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = reopen(small(dir.path(), 2, MemoryDevice::shared())).unwrap();
    let mut writer = log.writer().unwrap();
    append(&mut writer, 0, b"one");
    log.flush().unwrap();
    let before = (log.stats(0), log.stats(1), log.next_lsn(0));
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!((log.stats(0), log.stats(1), log.next_lsn(0)), before);
    assert_eq!(before.0.syncs, 1);
}

#[test]
fn a_power_cut_keeps_what_was_acknowledged_and_a_lie_is_found_out() {
    for lying_sync in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let cut = PowerCutOptions { seed: 3, early_sectors: 0.3, lying_sync };
        let device = PowerCutDevice::new(cut);
        let (log, _) = reopen(small(dir.path(), 1, Arc::new(device.clone()))).unwrap();
        let mut writer = log.writer().unwrap();
        let mut last = 0;
        for i in 0..100u32 {
            last = append(&mut writer, 0, &i.to_le_bytes());
        }
        log.frontier().wait(Lane::position(0), last).unwrap();
        device.cut();
        drop((writer, log));
        let options = small(dir.path(), 1, FileDevice::shared());
        let found = open(options).and_then(|r| read_all(&r)).map_or(0, |(frames, _)| frames.len());
        assert_eq!(found == 100, !lying_sync, "{found} frames after a cut");
    }
}

#[test]
fn truncated_segments_go_and_the_rest_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(dir.path(), 1, MemoryDevice::shared());
    let (log, _) = reopen(options.clone()).unwrap();
    let mut writer = log.writer().unwrap();
    let mut last = 0;
    for i in 0..2000u32 {
        last = append(&mut writer, 0, &[i as u8; 500]);
        if i == 1000 {
            log.flush().unwrap();
            let truncated = truncate(&log, &[last]);
            let kept = kept_from(&log, 0);
            assert!(kept > 0 && kept <= last && kept == truncated);
            assert_eq!((truncate(&log, &[last]), kept_from(&log, 0)), (0, kept));
        }
    }
    log.flush().unwrap();
    truncate(&log, &[last]);
    let kept = kept_from(&log, 0);
    // Recovery reads the kept frames from here on.
    assert_eq!(truncate(&log, &[kept]), 0);
    drop((writer, log));
    let (log, frames) = reopen(options.clone()).unwrap();
    assert_eq!(frames[0].start, kept);
    let mut records = frames.iter().filter(|f| f.kind == FrameKind::Record);
    assert_eq!(records.next_back().unwrap().end, last);
    // The first kept segment's header has the anchor in effect, although the anchor's frame is
    // gone.
    assert!(frames[0].anchor[0] > 0 && frames[0].anchor[0] <= kept);
    // The incarnation before is truncated.
    truncate(&log, &[log.next_lsn(0)]);
    drop(log);
    let (log, frames) = reopen(options).unwrap();
    assert!(frames.is_empty());
    assert!(log.next_lsn(0) >= last);
}

/// A log always truncated by the amount written reuses the same files; with fewer writes, the log
/// keeps fewer files.
#[test]
fn truncated_segments_are_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small(dir.path(), 1, MemoryDevice::shared());
    options.stepped = true;
    let (log, _) = reopen(options.clone()).unwrap();
    let mut writer = log.writer().unwrap();
    let files = || -> BTreeSet<u64> {
        let entries = std::fs::read_dir(dir.path().join("stream-0000")).unwrap();
        entries.map(|entry| entry.unwrap().metadata().unwrap().ino()).collect()
    };
    // Batches of three blocks, 21 to a segment.
    let mut write_segments = |segments: usize| {
        for _ in 0..21 * segments {
            append(&mut writer, 0, &[1; 2900]);
            assert!(log.step(0));
        }
    };
    let mut write_and_truncate = |segments: usize| {
        write_segments(segments);
        truncate(&log, &[log.frontier().durable(0)]);
        files()
    };
    let mut seen = BTreeSet::new();
    for round in 0..6 {
        let now = write_and_truncate(8);
        assert!(now.len() <= 8 + 5, "{} files for 8 segments", now.len());
        assert!(round < 3 || now.is_subset(&seen), "a file was made that was not needed");
        seen.extend(now);
    }
    write_and_truncate(1);
    let left = write_and_truncate(1).len();
    assert!(left <= 2 + 4, "{left} files for one segment");
    write_segments(2);
    drop((writer, log));
    // Frames written over old content are read correctly.
    let (_, frames) = reopen(options).unwrap();
    let records: Vec<_> = frames.iter().filter(|f| f.kind == FrameKind::Record).collect();
    assert_eq!(records.len(), 2 * 21);
    assert!(records.iter().all(|record| record.payload == [1; 2900]));
}

#[test]
fn settings_and_catalogue_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(dir.path(), 1, MemoryDevice::shared());
    let recovering = open(options.clone()).unwrap();
    assert!(recovering.is_fresh());
    let verdict = recovering.verdict(&[]).unwrap();
    let mut settings = IncarnationSettings {
        catalogue: vec![1, 2, 255],
        data_only: true,
        protocol: "taurus".into(),
        ..Default::default()
    };
    settings.settings.insert("a".into(), "b".into());
    let log = recovering.start(settings, &verdict, 77).unwrap();
    let mut writer = log.writer().unwrap();
    append(&mut writer, 0, b"x");
    log.close().unwrap();
    let recovering = open(options).unwrap();
    let manifest = recovering.manifest();
    let newest = manifest.newest().unwrap();
    assert_eq!((&manifest.catalogue[..], manifest.epoch_floor), (&[1, 2, 255][..], 77));
    assert!(newest.clean && newest.data_only && newest.protocol == "taurus");
    assert_eq!(newest.settings["a"], "b");
    assert!(recovering.verdict(&[]).is_err(), "unread readers are no verdict");
}

#[test]
fn memory_is_not_durable_and_files_are() {
    assert!(!MemoryDevice.durable() && FileDevice.durable());
}

/// Holds a handle to the log until woken.
struct LastHandle {
    log: Mutex<Option<Log>>,
    gone: mpsc::Sender<()>,
}

impl Wake for LastHandle {
    fn wake(self: Arc<Self>) {
        drop(self.log.lock().unwrap().take());
        self.gone.send(()).unwrap();
    }
}

#[test]
fn the_last_handle_may_go_on_a_flushers_own_thread() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small(dir.path(), 2, FileDevice::shared());
    options.flush_interval = Some(Duration::from_millis(300));
    let (log, _) = reopen(options.clone()).unwrap();
    let mut writer = log.writer().unwrap();
    let first = append(&mut writer, 0, b"a");
    log.wait(Lane::position(0), first).unwrap();
    // The next flush is 300 ms away.
    let end = append(&mut writer, 0, b"b");
    drop(writer);
    let (gone, went) = mpsc::channel();
    let handle = LastHandle { log: Mutex::new(Some(log.clone())), gone };
    log.register(Lane::position(0), end, Waker::from(Arc::new(handle)));
    drop(log);
    let patience = Duration::from_secs(60);
    went.recv_timeout(patience).expect("the flusher waits for itself");
    // The directory locks have been released.
    let (_, frames) = reopen(options).unwrap();
    let records = frames.iter().filter(|frame| frame.kind == FrameKind::Record);
    assert_eq!(records.count(), 2);
}
