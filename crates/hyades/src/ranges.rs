//! Range checks of all settings, before anything is opened.

use crate::checkpoint::CheckpointSettings;
use crate::config::Builder;
use crate::error::Error;
use crate::logging::settings::LogSettings;
use crate::storage::partition::SLOTS;
use hyades_wal::MAX_LANES;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Files are written in blocks of this many bytes.
const BLOCK_BYTES: u64 = 4096;
const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const HOUR: Duration = Duration::from_secs(3600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Returns an error if the value is outside the range.
fn within<T: PartialOrd>(
    what: &str,
    value: &T,
    range: RangeInclusive<T>,
    text: impl Fn(&T) -> String,
) -> Result<(), Error> {
    if range.contains(value) {
        return Ok(());
    }
    let (from, to) = (text(range.start()), text(range.end()));
    Err(Error::Misuse(format!("{what} cannot be {}: choose {from} to {to}", text(value))))
}

fn bytes(what: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), Error> {
    within(what, &value, range, |n| format!("{n} bytes"))
}

fn time(what: &str, value: Option<Duration>, range: RangeInclusive<Duration>) -> Result<(), Error> {
    value.map_or(Ok(()), |value| within(what, &value, range, |d| format!("{d:?}")))
}

fn log(log: &LogSettings) -> Result<(), Error> {
    within("the number of streams", &log.streams, 1..=MAX_LANES, usize::to_string)?;
    if let Some(least) = &log.probe_streams {
        within("the least number of streams", least, 1..=log.streams, usize::to_string)?;
    }
    bytes("a stream's buffer", log.buffer_bytes as u64, 4 * KIB..=GIB)?;
    if !log.buffer_bytes.is_power_of_two() {
        let n = log.buffer_bytes;
        return Err(Error::Misuse(format!("a buffer of {n} bytes: choose a power of two")));
    }
    bytes("a segment", log.segment_bytes, 16 * BLOCK_BYTES..=TIB)?;
    if !log.segment_bytes.is_multiple_of(BLOCK_BYTES) {
        let n = log.segment_bytes;
        return Err(Error::Misuse(format!(
            "a segment of {n} bytes: choose a multiple of {BLOCK_BYTES}"
        )));
    }
    let block = log.research.block_bytes;
    bytes("a block", block as u64, 64..=64 * KIB)?;
    if !block.is_power_of_two() {
        return Err(Error::Misuse(format!("a block of {block} bytes: choose a power of two")));
    }
    bytes("a segment", log.segment_bytes, 16 * block as u64..=TIB)?;
    if log.research.flushed_by_sessions && log.flush_interval.is_some() {
        return Err(Error::Misuse(
            "sessions that flush their own records do so at once: set no flush interval".into(),
        ));
    }
    let count = log.research.flush_fill_count.unwrap_or(1);
    within("the records of a group", &count, 1..=1 << 40, u64::to_string)?;
    time("the interval between flushes", log.flush_interval, Duration::ZERO..=HOUR)?;
    bytes("the interval between anchors", log.research.anchor_interval_bytes, 1..=TIB)?;
    let cut = log.research.cut_changes.unwrap_or(1) as u64;
    bytes("what is left of cut changes", cut, 1..=GIB)?;
    bytes("delta", log.research.delta_bytes, 0..=TIB)?;
    bytes("the hot-row table", log.hot_rows_bytes, 1..=TIB)?;
    // Shorter epochs would use up the 34 bits of an epoch's number within days.
    time("an epoch", log.epoch, Duration::from_micros(100)..=HOUR)
}

fn checkpoints(settings: &CheckpointSettings) -> Result<(), Error> {
    let CheckpointSettings { interval, max_recovery, share, buffer_bytes, block_bytes, .. } =
        settings;
    within("the files of a checkpoint", &settings.files_per_dir, 1..=64, usize::to_string)?;
    time("the interval between checkpoints", *interval, Duration::from_millis(1)..=YEAR)?;
    time("the bound on recovery", *max_recovery, Duration::from_millis(1)..=YEAR)?;
    // Written so that NaN is refused, too.
    if !(*share > 0.0 && *share <= 1.0) {
        return Err(Error::Misuse(format!(
            "a checkpoint cannot take a share of {share}: choose one above 0 and up to 1"
        )));
    }
    bytes("the buffer of checkpoints", *buffer_bytes, 1..=TIB)?;
    bytes("a block of a checkpoint", *block_bytes as u64, 1..=GIB)
}

fn sites(builder: &Builder) -> Result<(), Error> {
    let Some(sites) = builder.sites else { return Ok(()) };
    within("the number of sites", &sites, 1..=builder.partitions, usize::to_string)?;
    let fault = if !builder.control().has_partitions() {
        "sites own partitions: choose partitioned execution, or leave out Builder::sites"
    } else if builder.post_threads.is_some() {
        "sites run posted calls: leave out Builder::post_threads, or Builder::sites"
    } else if builder.log.research.stepped {
        "in a simulation one thread does everything: leave out Builder::sites"
    } else {
        return Ok(());
    };
    Err(Error::Misuse(fault.to_string()))
}

/// Returns an error if a setting of the builder is outside its range.
pub(crate) fn check(builder: &Builder) -> Result<(), Error> {
    log(&builder.log)?;
    checkpoints(&builder.checkpoints)?;
    within("the number of partitions", &builder.partitions, 1..=SLOTS as usize, usize::to_string)?;
    if !builder.partitions.is_power_of_two() {
        let n = builder.partitions;
        return Err(Error::Misuse(format!("{n} partitions: choose a power of two")));
    }
    within("the number of posted calls", &builder.posted_calls, 1..=10_000, usize::to_string)?;
    sites(builder)?;
    let threads = builder.post_threads.unwrap_or(1);
    within("the threads of posted calls", &threads, 0..=200, usize::to_string)?;
    within("the threads of recovery", &builder.recovery_threads, 0..=1024, usize::to_string)
}
