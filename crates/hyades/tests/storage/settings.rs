//! Promise: every setting has a range, and values outside it are refused before anything is opened.

use hyades::{
    Builder, CheckpointSettings, Concurrency, Database, Error, Isolation, LogSettings, Protocol,
    RecordKind, Schema, Type,
};
use hyades_schemes::{ARRIVAL, PARTITIONED, PHYSIOLOGICAL, all_controls};
use std::time::Duration;

fn builder() -> Builder {
    let mut builder = Database::builder().streams(2);
    builder.table(Schema::new("t").column("id", Type::I64).primary_key(&["id"]));
    builder.log_settings(|log| log.buffer_bytes = 1 << 14)
}

fn is_taken(what: &str, builder: Builder) {
    let dir = tempfile::tempdir().unwrap();
    let db = builder.open(dir.path()).unwrap_or_else(|error| panic!("{what}: {error}"));
    db.try_transact(|tx| tx.insert(hyades::Table::nth(0), &[1i64.into()])).unwrap().unwrap();
    db.close().unwrap();
}

fn is_refused(what: &str, builder: Builder) {
    let dir = tempfile::tempdir().unwrap();
    let error = builder.open(dir.path().join("db")).err().unwrap_or_else(|| panic!("{what}"));
    assert!(matches!(&error, Error::Misuse(text) if text.contains("choose")), "{what}: {error}");
    assert!(!dir.path().join("db").exists(), "{what}: nothing is made");
}

fn log(change: impl FnOnce(&mut LogSettings)) -> Builder {
    builder().log_settings(change)
}

fn checkpoints(change: impl FnOnce(&mut CheckpointSettings)) -> Builder {
    builder().checkpoint_settings(change)
}

#[test]
fn the_concurrency_control_is_chosen_by_what_needs_one() {
    let chosen = |builder: Builder| {
        let dir = tempfile::tempdir().unwrap();
        builder.open(dir.path()).unwrap().concurrency()
    };
    hyades_schemes::register();
    assert_eq!(chosen(builder()), Concurrency::Silo);
    assert_eq!(chosen(builder().isolation(Isolation::Snapshot)), Concurrency::Hekaton);
    assert_eq!(chosen(builder().patience(100)), Concurrency::NoWait);
    assert_eq!(chosen(builder().sites(2)), PARTITIONED);
    let arrival = builder().protocol(ARRIVAL).record(RecordKind::Command);
    assert_eq!(chosen(arrival), PARTITIONED);
    for control in all_controls() {
        assert_eq!(chosen(builder().concurrency(control)), control);
    }
}

#[test]
fn the_logs_settings_have_ranges() {
    for streams in [1, 64] {
        is_taken("streams", log(|log| log.streams = streams));
    }
    for streams in [0, 65, usize::MAX] {
        is_refused("streams", log(|log| log.streams = streams));
    }
    let probed =
        |least, most| log(move |log| (log.probe_streams, log.streams) = (Some(least), most));
    is_taken("least streams", probed(2, 2));
    for (least, most) in [(0, 2), (3, 2), (usize::MAX, 64)] {
        is_refused("least streams", probed(least, most));
    }
    is_taken("buffer", log(|log| log.buffer_bytes = 4096));
    for bytes in [0, 1, 2048, 5000, (1 << 30) + 1, 1 << 31, usize::MAX] {
        is_refused("buffer", log(|log| log.buffer_bytes = bytes));
    }
    for bytes in [1 << 16, 1 << 40] {
        is_taken("segment", log(|log| log.segment_bytes = bytes));
    }
    for bytes in [0, 1, 1 << 15, (1 << 16) + 1, (1 << 40) + 4096, u64::MAX] {
        is_refused("segment", log(|log| log.segment_bytes = bytes));
    }
    let hour = Duration::from_secs(3600);
    is_taken("flush interval", log(|log| log.flush_interval = Some(Duration::ZERO)));
    // A fill of 0 bytes triggers a flush at once, whatever the interval.
    let fill = |log: &mut LogSettings| {
        (log.flush_interval, log.research.flush_fill_bytes) = (Some(hour), Some(0));
    };
    is_taken("flush interval", log(fill));
    for interval in [hour + Duration::from_nanos(1), Duration::MAX] {
        is_refused("flush interval", log(|log| log.flush_interval = Some(interval)));
    }
    is_taken("flush fill", log(|log| log.research.flush_fill_bytes = Some(usize::MAX)));
    for bytes in [1, 1 << 40] {
        is_taken("anchor interval", log(|log| log.research.anchor_interval_bytes = bytes));
    }
    for bytes in [0, (1 << 40) + 1, u64::MAX] {
        is_refused("anchor interval", log(|log| log.research.anchor_interval_bytes = bytes));
    }
    for bytes in [0, 1 << 40] {
        is_taken("delta", log(|log| log.research.delta_bytes = bytes));
    }
    for bytes in [(1 << 40) + 1, u64::MAX] {
        is_refused("delta", log(|log| log.research.delta_bytes = bytes));
    }
    for epoch in [Duration::from_micros(100), hour] {
        is_taken("epoch", log(|log| log.epoch = Some(epoch)));
    }
    for epoch in [Duration::ZERO, Duration::from_micros(99), hour * 2, Duration::MAX] {
        is_refused("epoch", log(|log| log.epoch = Some(epoch)));
    }
    for threads in [0, 1] {
        is_taken("threads", builder().recovery_threads(threads));
    }
    for threads in [1025, usize::MAX] {
        is_refused("threads", builder().recovery_threads(threads));
    }
}

#[test]
fn the_settings_of_checkpoints_have_ranges() {
    let year = Duration::from_secs(365 * 24 * 3600);
    let set = |how: usize, time: Duration| {
        checkpoints(|settings| match how {
            0 => settings.interval = Some(time),
            _ => settings.max_recovery = Some(time),
        })
    };
    for how in [0, 1] {
        for time in [Duration::from_millis(1), year] {
            is_taken("a time", set(how, time));
        }
        for time in [Duration::ZERO, Duration::from_micros(999), year * 2, Duration::MAX] {
            is_refused("a time", set(how, time));
        }
    }
    for share in [f64::MIN_POSITIVE, 0.5, 1.0] {
        is_taken("share", builder().checkpoint_share(share));
    }
    let shares = [0.0, -0.0, -1.0, 1.0 + f64::EPSILON, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for share in shares {
        is_refused("share", builder().checkpoint_share(share));
    }
    for files in [1, 64] {
        is_taken("files", checkpoints(|settings| settings.files_per_dir = files));
    }
    for files in [0, 65, usize::MAX] {
        is_refused("files", checkpoints(|settings| settings.files_per_dir = files));
    }
    for bytes in [1, 1 << 40] {
        is_taken("buffer", checkpoints(|settings| settings.buffer_bytes = bytes));
    }
    for bytes in [0, (1 << 40) + 1, u64::MAX] {
        is_refused("buffer", checkpoints(|settings| settings.buffer_bytes = bytes));
    }
    for bytes in [1, 1 << 30] {
        is_taken("block", checkpoints(|settings| settings.block_bytes = bytes));
    }
    for bytes in [0, (1 << 30) + 1, usize::MAX] {
        is_refused("block", checkpoints(|settings| settings.block_bytes = bytes));
    }
}

#[test]
fn a_database_keeps_the_number_of_streams_that_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let streams = |least, most| {
        let probed = log(|log| (log.probe_streams, log.streams) = (Some(least), most));
        let db = probed.open(dir.path()).unwrap();
        let streams = db.streams();
        db.close().unwrap();
        streams
    };
    assert_eq!(streams(3, 3), 3);
    assert_eq!(streams(1, 8), 3);
    let db = builder().open(dir.path()).unwrap();
    assert_eq!(db.streams(), 2, "a number that is set holds");
    db.close().unwrap();
    assert_eq!(streams(1, 64), 2);
}

#[test]
fn a_protocol_of_one_stream_has_one_whatever_the_database_had() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder().open(dir.path()).unwrap();
    assert_eq!(db.streams(), 2);
    db.close().unwrap();
    for protocol in [Protocol::Serial, PHYSIOLOGICAL] {
        let probed = log(|log| (log.probe_streams, log.streams) = (Some(1), 1));
        let db = probed.protocol(protocol).open(dir.path()).unwrap();
        assert_eq!(db.streams(), 1, "{}", protocol.name());
        db.close().unwrap();
        builder().open(dir.path()).unwrap().close().unwrap();
    }
}
