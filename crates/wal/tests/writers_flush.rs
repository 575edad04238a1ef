//! Writers flushing their own records, and blocks of a cache line. Promise: a record flushed by a
//! writer is durable; the rest becomes durable when a thread waits for the rest.
#![allow(missing_docs)]

mod common;
use common::{Read, append, reopen, small};
use hyades_platform::callback::is_on_database_thread;
use hyades_platform::device::{
    FileDevice, PowerCutDevice, PowerCutOptions, SimulatedDevice, SimulatedDisk, SimulatedFault,
};
use hyades_wal::{FrameKind, Lane, LogOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// The records among the frames read.
fn records(read: Vec<Read>) -> Vec<Vec<u8>> {
    let records = read.into_iter().filter(|frame| frame.kind == FrameKind::Record);
    records.map(|frame| frame.payload).collect()
}

fn options(dir: &std::path::Path, streams: usize) -> LogOptions {
    let mut options = small(dir, streams, FileDevice::shared());
    options.flushed_by_writers = true;
    options
}

#[test]
fn nothing_is_durable_before_its_writer_flushes_it() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = reopen(options(dir.path(), 2)).unwrap();
    let mut writer = log.writer().unwrap();
    // The threads find nothing to do, and sleep. A thread not yet asleep, on a busy machine,
    // flushes the frames found.
    let mut kept_back = || {
        std::thread::sleep(Duration::from_millis(50));
        let begun = log.frontier().durable(0);
        let end = append(&mut writer, 0, b"kept");
        std::thread::sleep(Duration::from_millis(20));
        (log.frontier().durable(0) == begun).then_some(end)
    };
    let end = (0..100).find_map(|_| kept_back()).expect("no thread flushes unasked");
    assert!(writer.flush(0, end));
    assert_eq!(log.frontier().durable(0), end);
    assert!(writer.flush(0, end), "it is durable already");
    // The thread of the stream flushes awaited records.
    let end = append(&mut writer, 1, b"asked for");
    log.wait(Lane::position(1), end).unwrap();
    let end = append(&mut writer, 0, b"and at the end");
    drop(writer);
    log.close().unwrap();
    let (log, read) = reopen(options(dir.path(), 2)).unwrap();
    let payloads = records(read);
    assert!(payloads.contains(&b"and at the end".to_vec()), "up to {end}: {payloads:?}");
    log.close().unwrap();
}

#[test]
fn a_frame_behind_an_unfilled_one_is_flushed_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = reopen(options(dir.path(), 1)).unwrap();
    let mut writers = [(); 2].map(|()| log.writer().unwrap());
    let [first, second] = &mut writers;
    let reserved = first.reserve(0, 4);
    let end = append(second, 0, b"waits");
    assert!(!second.flush(0, end), "a frame before it is not filled");
    drop(reserved);
    // The stream's thread goes on, even unasked.
    log.wait(Lane::position(0), end).unwrap();
}

#[test]
fn many_writers_of_one_stream_flush_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for block in [64, 4096] {
        let mut options = options(&dir.path().join(block.to_string()), 2);
        options.block_bytes = block;
        let (log, _) = reopen(options.clone()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let log = &log;
                scope.spawn(move || {
                    let mut writer = log.writer().unwrap();
                    for n in 0..200u32 {
                        let stream = thread % 2;
                        let end = append(&mut writer, stream, &n.to_le_bytes());
                        if !writer.flush(stream, end) {
                            log.wait(Lane::position(stream), end).unwrap();
                        }
                        assert!(log.frontier().durable(stream) >= end);
                    }
                });
            }
        });
        drop(log);
        let (log, read) = reopen(options).unwrap();
        assert_eq!(records(read).len(), 800, "in blocks of {block}");
        log.close().unwrap();
    }
}

#[test]
fn what_was_flushed_in_lines_survives_a_power_cut() {
    for seed in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let cut = PowerCutOptions { seed, early_sectors: 0.5, lying_sync: false };
        let device = PowerCutDevice::new(cut);
        let lines = |device: Option<PowerCutDevice>| {
            let mut options = options(dir.path(), 1);
            options.block_bytes = 64;
            if let Some(device) = device {
                options.device = Arc::new(device);
            }
            options
        };
        let (log, _) = reopen(lines(Some(device.clone()))).unwrap();
        let mut writer = log.writer().unwrap();
        let mut flushed = 0;
        for n in 0..40 {
            let end = append(&mut writer, 0, &vec![n as u8; 1 + n * 7 % 130]);
            if n % 3 != 2 {
                assert!(writer.flush(0, end));
                flushed = n + 1;
            }
        }
        device.cut();
        drop((writer, log));
        let (log, read) = reopen(lines(None)).unwrap();
        let read = records(read);
        assert!(read.len() >= flushed, "seed {seed}: {} of {flushed}", read.len());
        for (n, payload) in read.iter().enumerate() {
            assert_eq!(*payload, vec![n as u8; 1 + n * 7 % 130], "seed {seed}");
        }
        // The next opening may have another block.
        drop(log);
        let (log, again) = reopen(options(dir.path(), 1)).unwrap();
        assert_eq!(records(again).len(), read.len(), "seed {seed}");
        log.close().unwrap();
    }
}

#[test]
fn an_interval_is_refused_where_writers_flush() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path(), 1);
    options.flush_interval = Some(Duration::from_millis(5));
    assert!(reopen(options).unwrap_err().to_string().contains("set no interval"));
}

/// A sync fails, once, while other writers wait to flush: no writer writes behind the failed batch,
/// so the log is whole for the next opening. An earlier fault of the log showed only if a thread
/// was woken before the waking thread went on: on one processor, every hundredth round.
#[test]
fn nothing_is_written_behind_a_batch_that_failed() {
    let began = Instant::now();
    let mut rounds = 0;
    while rounds < 50 || began.elapsed() < Duration::from_secs(2) {
        rounds += 1;
        let disk = SimulatedDisk::new();
        let open = |device: SimulatedDevice| {
            let mut options = options(Path::new("/db"), 1);
            options.device = Arc::new(device);
            reopen(options)
        };
        let device = disk.process(rounds);
        let (log, _) = open(device.clone()).unwrap();
        device.arm(SimulatedFault::Sync { after: rounds % 20, for_ever: false });
        let acknowledged: usize = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..6)
                .map(|_| {
                    scope.spawn(|| {
                        let mut writer = log.writer().unwrap();
                        let flush = || {
                            let end = append(&mut writer, 0, b"record");
                            writer.flush(0, end)
                        };
                        std::iter::repeat_with(flush).take(100).take_while(|told| *told).count()
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        drop(log);
        let (log, read) = open(disk.process(rounds)).unwrap_or_else(|error| {
            panic!("round {rounds}: {error}");
        });
        let found = records(read).len();
        assert!(found >= acknowledged, "round {rounds}: {found} of {acknowledged}");
        log.close().unwrap();
    }
}

/// The writer holds the flusher's lock: work begun by the waker might wait for that lock.
#[test]
fn a_waker_is_told_that_it_must_not_wait_for_the_log() {
    struct Asks(AtomicU64);
    impl Wake for Asks {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(u64::from(is_on_database_thread()), Ordering::SeqCst);
            panic!("a panic of this test's waker");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = reopen(options(dir.path(), 1)).unwrap();
    let mut writer = log.writer().unwrap();
    let asks = Arc::new(Asks(AtomicU64::new(0)));
    for woken in 1..=3 {
        let reserved = writer.reserve(0, 4);
        let end = reserved.end();
        let key = log.register(Lane::position(0), end, Waker::from(asks.clone()));
        let other = log.register(Lane::position(0), end, Waker::from(asks.clone()));
        log.withdraw(Lane::position(0), end, other);
        reserved.fill(FrameKind::Record, b"here");
        log.wait(Lane::position(0), end).unwrap();
        assert!(writer.flush(0, end));
        while log.frontier().wakers() != (0, woken) {
            std::thread::yield_now();
        }
        assert_eq!(asks.0.load(Ordering::SeqCst), woken, "it is marked each time");
        // The waker was woken: there is nothing left to withdraw.
        log.withdraw(Lane::position(0), end, key);
        assert!(!is_on_database_thread());
    }
    drop(writer);
    log.close().unwrap();
}
