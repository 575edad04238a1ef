//! Many writers on small buffers.

mod common;
use common::{append, reopen, small};
use hyades_platform::device::MemoryDevice;
use hyades_platform::random::Random;
use hyades_wal::{FrameKind, Lane, LogOptions, compress};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

fn options(dir: &std::path::Path) -> LogOptions {
    let mut options = small(dir, 2, MemoryDevice::shared());
    options.buffer_bytes = 8192;
    options.segment_bytes = 1 << 20;
    options
}

/// Four writers, two streams, always full buffers: every record is read back once, in the writer's
/// order, and every compressed vector decodes to a vector between itself and its join with the
/// anchor.
#[test]
fn every_record_of_every_writer_comes_back() {
    const RECORDS: u32 = 4000;
    let dir = tempfile::tempdir_in(MemoryDevice::ROOT).unwrap();
    let (log, _) = reopen(options(dir.path())).unwrap();
    let threads: Vec<_> = (0..4u8)
        .map(|id| {
            let log = log.clone();
            std::thread::spawn(move || {
                let mut random = Random::seeded(u64::from(id));
                let mut writer = log.writer().unwrap();
                let mut last = [0; 2];
                for i in 0..RECORDS {
                    let stream = random.below(2) as usize;
                    writer.wait_for_room(stream);
                    let mut payload = vec![id];
                    payload.extend(i.to_le_bytes());
                    payload.extend(last.iter().flat_map(|l: &u64| l.to_le_bytes()));
                    let anchor = log.anchors(stream);
                    compress::encode(&mut payload, &last, anchor, |lsn| {
                        lsn.load(Ordering::Acquire)
                    });
                    payload.resize(payload.len() + random.below(300) as usize, id);
                    if random.chance(0.05) {
                        writer.reserve(stream, random.below(100) as usize).void();
                    }
                    last[stream] = append(&mut writer, stream, &payload);
                    if random.chance(0.01) {
                        log.frontier().wait(Lane::position(stream), last[stream]).unwrap();
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    log.close().unwrap();
    let (_, frames) = reopen(options(dir.path())).unwrap();
    let mut seen: BTreeMap<u8, Vec<(u32, usize, u64)>> = BTreeMap::new();
    for frame in frames.iter().filter(|f| f.kind == FrameKind::Record) {
        let p = &frame.payload;
        let number = u32::from_le_bytes(p[1..5].try_into().unwrap());
        let lanes: Vec<u64> =
            p[5..21].chunks(8).map(|l| u64::from_le_bytes(l.try_into().unwrap())).collect();
        let mut decoded = [0; 2];
        compress::decode(&p[21..], &frame.anchor, &mut decoded).unwrap();
        for lane in 0..2 {
            assert!(
                decoded[lane] >= lanes[lane]
                    && decoded[lane] <= lanes[lane].max(frame.anchor[lane])
            );
        }
        seen.entry(p[0]).or_default().push((number, frame.lane, frame.end));
    }
    for records in seen.values_mut() {
        for lane in 0..2 {
            let of_lane: Vec<u32> = records.iter().filter(|r| r.1 == lane).map(|r| r.0).collect();
            assert!(of_lane.is_sorted(), "a writer's records keep their order in a stream");
        }
        records.sort_unstable();
        let numbers: Vec<u32> = records.iter().map(|r| r.0).collect();
        assert_eq!(numbers, (0..RECORDS).collect::<Vec<_>>());
    }
    assert_eq!(seen.len(), 4);
    assert!(frames.iter().any(|f| f.kind == FrameKind::Anchor));
    assert!(frames.iter().any(|f| f.kind == FrameKind::Void));
}

/// Dropping the log releases its writers and waiters.
#[test]
fn dropping_the_log_hangs_nobody() {
    let dir = tempfile::tempdir_in(MemoryDevice::ROOT).unwrap();
    for _ in 0..20 {
        let (log, _) = reopen(options(dir.path())).unwrap();
        let mut writer = log.writer().unwrap();
        let thread = std::thread::spawn(move || {
            for i in 0..2000u32 {
                writer.wait_for_room((i % 2) as usize);
                append(&mut writer, (i % 2) as usize, &[1; 500]);
            }
        });
        std::thread::yield_now();
        drop(log);
        thread.join().unwrap();
    }
}
