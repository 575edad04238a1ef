//! A log accepts values at each of its limits, and refuses values past a limit, before anything is
//! written.
#![allow(missing_docs)]

mod common;
use common::{append, read_all, reopen, small};
use hyades_platform::device::FileDevice;
use hyades_wal::{LogOptions, MAX_LANES, MAX_PAYLOAD, open, open_read};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn a_frame_as_large_as_the_limit_reads_back_and_a_larger_one_is_refused() {
    for (buffer_bytes, segment_bytes, largest) in
        [(1 << 14, 1 << 16, 1 << 12), (1 << 20, 1 << 16, 1 << 14), (8 << 20, 64 << 20, MAX_PAYLOAD)]
    {
        let dir = tempfile::tempdir().unwrap();
        let mut options = small(dir.path(), 2, FileDevice::shared());
        (options.buffer_bytes, options.segment_bytes) = (buffer_bytes, segment_bytes);
        assert_eq!(options.max_payload(), largest);
        let (log, _) = reopen(options.clone()).unwrap();
        let mut writer = log.writer().unwrap();
        for n in 0..20 {
            append(&mut writer, 0, &vec![n; largest]);
        }
        let larger = AssertUnwindSafe(|| drop(writer.reserve(1, largest + 1)));
        assert!(catch_unwind(larger).is_err(), "{largest}");
        append(&mut writer, 1, b"nothing is held");
        drop(writer);
        log.close().unwrap();
        let recovering = open_read(options).unwrap();
        let (frames, _) = read_all(&recovering).unwrap();
        let records: Vec<_> = frames.iter().filter(|f| f.payload.len() == largest).collect();
        assert_eq!(records.len(), 20);
        assert!(records.iter().zip(0u8..).all(|(f, n)| f.payload == vec![n; largest]));
    }
}

#[test]
fn the_options_have_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let fits = |change: &dyn Fn(&mut LogOptions)| {
        let mut options = small(dir.path(), 1, FileDevice::shared());
        change(&mut options);
        open(options).is_ok()
    };
    for (streams, taken) in [(0, false), (1, true), (MAX_LANES, true), (MAX_LANES + 1, false)] {
        assert_eq!(fits(&|o| o.streams = streams), taken, "{streams} streams");
    }
    for (bytes, taken) in [(0, false), (2048, false), (4096, true), (4097, false)] {
        assert_eq!(fits(&|o| o.buffer_bytes = bytes), taken, "a buffer of {bytes}");
    }
    assert!(!fits(&|o| o.buffer_bytes = 1 << 31), "a buffer of 2 GiB");
    for (bytes, taken) in [
        (0, false),
        (32, false),
        (64, true),
        (96, false),
        (1024, true),
        (1 << 16, true),
        (1 << 17, false),
    ] {
        let change = |o: &mut LogOptions| (o.block_bytes, o.segment_bytes) = (bytes, 1 << 20);
        assert_eq!(fits(&change), taken, "a block of {bytes}");
    }
    for (bytes, taken) in [
        (0, false),
        (15 << 10, false),
        (16 << 10, true),
        (1 << 40, true),
        ((1 << 40) + 1024, false),
    ] {
        assert_eq!(fits(&|o| o.segment_bytes = bytes), taken, "a segment of {bytes}");
    }
    for (writers, taken) in [(0, false), (1, true), (1 << 16, true), ((1 << 16) + 1, false)] {
        assert_eq!(fits(&|o| o.max_writers = writers), taken, "{writers} writers");
    }
    assert!(!fits(&|o| o.dirs.clear()));
    assert!(!fits(&|o| o.dirs.push(o.dirs[0].clone())));
}
