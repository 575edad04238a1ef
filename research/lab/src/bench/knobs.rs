//! Options of the papers' experiments: how the log is flushed and compressed, which devices it is
//! on, and how it is replayed.

use super::choices::Protocol;
use crate::device::DeviceChoice;
use clap::Args;
use hyades::{LogSettings, Replay};
use hyades_cli::failure::{Failure, usage};
use hyades_cli::place::DeviceKind;
use hyades_cli::units;
use hyades_cli::words;
use hyades_platform::phase;
use hyades_wal::LogOptions;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

words! {
    /// Whether something is used.
    Switch("switch") {
        /// It is.
        On = "on",
        /// It is not.
        Off = "off",
    }
}

words! {
    /// Which stream a worker logs to.
    StreamChoice("way to choose streams") {
        /// The one in which a record would be durable first.
        Fastest = "fastest",
        /// Always the same.
        Fixed = "fixed",
    }
}

words! {
    /// What writes and syncs the log.
    FlushedBy("way to flush") {
        /// A thread for each stream.
        Streams = "streams",
        /// Each worker its own records.
        Workers = "workers",
    }
}

words! {
    /// How a log is replayed.
    RecoveryKind("way to recover") {
        /// On all threads, or one while it is faster.
        Automatic = "automatic",
        /// On all threads.
        Parallel = "parallel",
        /// On one thread.
        Serial = "serial",
        /// With the pools of the Taurus paper.
        Pools = "pools",
        /// In the three phases of Taurus's report of 2016.
        Phases = "phases",
    }
}

impl RecoveryKind {
    /// The engine's name for it.
    pub fn replay(self) -> Replay {
        match self {
            RecoveryKind::Automatic => Replay::Automatic,
            RecoveryKind::Parallel => Replay::Wavefront,
            RecoveryKind::Serial => Replay::Serial,
            RecoveryKind::Pools => Replay::Pools,
            RecoveryKind::Phases => Replay::Phases,
        }
    }

    /// Checks that recovery replays a log in this way. The engine replays a log that has no pools
    /// or phases on all threads, and a result must not name what did not run.
    ///
    /// # Errors
    /// Wrong usage, in one sentence.
    pub fn check(self, protocol: Protocol) -> Result<(), Failure> {
        let has_vectors = matches!(protocol, Protocol::Taurus | Protocol::Arrival);
        let (fits, needs) = match self {
            RecoveryKind::Pools => {
                (has_vectors, "a log with LSN vectors: --protocol taurus or arrival")
            }
            RecoveryKind::Phases => (protocol == Protocol::Taurus2016, "--protocol taurus-2016"),
            RecoveryKind::Automatic | RecoveryKind::Parallel | RecoveryKind::Serial => {
                return Ok(());
            }
        };
        match fits {
            true => Ok(()),
            false => usage(format!("--recovery {} needs {needs}", self.word())),
        }
    }
}

/// Default buffer of a stream on NVM. It holds only records that are not flushed yet; Poplar's
/// experiments use a megabyte.
const NVM_BUFFER: u64 = 1 << 20;

/// Default segment size on throttled devices. Recovery searches for proof that bytes are missing
/// behind the end of each stream: in the rest of the last segment and in the preallocated next one.
/// On a slow device that must not take longer than reading the log itself.
const THROTTLED_SEGMENT: u64 = 4 << 20;

/// Default bytes between two anchors: the engine's.
const ANCHOR_INTERVAL: u64 = 128 << 10;

/// Options of experiments.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
#[command(next_help_heading = "For experiments")]
pub struct Knobs {
    /// Number of devices, each a temporary directory; to use your own directories, repeat --log-dir
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "log_dir")]
    pub devices: usize,
    /// How long each flush collects records [default: flush as soon as a transaction waits]
    #[arg(long, value_name = "TIME", value_parser = units::some_seconds)]
    pub flush_interval: Option<f64>,
    /// Flush before the interval ends once this much is collected, up to half of the buffer
    /// [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size, requires = "flush_interval")]
    pub flush_fill: Option<u64>,
    /// Flush before the interval ends once this many records are collected (group commit by count)
    #[arg(long, value_name = "N", requires = "flush_interval")]
    pub flush_count: Option<u64>,
    /// What writes and syncs records: streams (a thread for each) or workers (each its own, when a
    /// transaction commits, as in NVM-D; give as many streams as workers for a file of each worker)
    #[arg(long, value_name = "WHAT", default_value = "streams")]
    pub flushed_by: FlushedBy,
    /// Which stream a worker logs to: fastest (where a record would be durable first) or fixed (the
    /// papers' map of workers to streams; always so with --flushed-by workers)
    #[arg(long, value_name = "WHICH", default_value = "fastest")]
    pub stream_choice: StreamChoice,
    /// Unit of writing: a power of two, 64 to 65536; less than 4096 is for memory [default: 4KiB;
    /// 64, a cache line, on nvm with --flushed-by workers]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub block: Option<u64>,
    /// Buffer of each stream: a power of two, 4KiB or more [default: 8MiB; 1MiB on nvm]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub buffer: Option<u64>,
    /// Largest segment file of a stream [default: 64MiB; 4MiB on throttled devices]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub segment: Option<u64>,
    /// Write an anchor, against which LSN vectors are compressed, after this many bytes of log
    /// [default: 128KiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub anchor_interval: Option<u64>,
    /// Keep the LSN vectors of rows until they are this many bytes below the durable LSNs [default:
    /// 0]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub delta: Option<u64>,
    /// Under hekaton: read what other transactions are about to commit, and depend on their
    /// commits, as in the paper [default: wait at the read]
    #[arg(long)]
    #[serde(default)]
    pub speculative_reads: bool,
    /// Under physiological logging: log no before-images, and recover without an undo pass
    #[arg(long)]
    pub no_undo: bool,
    /// Under physiological logging: write only this much of each transaction's changes, to learn
    /// what the bytes cost; such a log cannot be recovered
    #[arg(long, value_name = "SIZE", value_parser = units::size, conflicts_with = "recover")]
    pub cut_changes: Option<u64>,
    /// Log updates as whole rows instead of changed columns, as the papers' systems do
    #[arg(long)]
    pub whole_rows: bool,
    /// Under taurus-2016: log a vector in place of each list of the records that were read from
    #[arg(long)]
    pub compress_lists: bool,
    /// Device of the last log directory, if it differs from --device
    #[arg(long, value_name = "DEVICE")]
    pub last_device: Option<DeviceChoice>,
    /// Fold and compare LSN vectors of more than eight streams with the processor's vector
    /// instructions (on) or without (off)
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    pub simd: Switch,
    /// Also measure the workers' processor time per transaction
    #[arg(long)]
    pub processor_time: bool,
    /// Also measure the phases of transactions, by a sample of them: where the workers' time goes
    #[arg(long)]
    #[serde(default)]
    pub phases: bool,
    /// How to recover: parallel (on all threads), automatic (the same, but on one thread while
    /// transactions mostly wait for each other and one is faster, as measured), serial (on one
    /// thread), pools (as in the Taurus paper, for a log with vectors) or phases (as in its report
    /// of 2016, for a taurus-2016 log); the last two are refused for other logs
    #[arg(long, value_name = "HOW", default_value = "automatic")]
    pub recovery: RecoveryKind,
    /// Take a checkpoint of the population, so that recovery loads it instead of replaying the
    /// population's log
    #[arg(long)]
    pub checkpoint_population: bool,
    /// Files of a checkpoint in each directory of the log, written in parallel: 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub checkpoint_files: usize,
    /// Drop the log's files from the page cache before recovery, so that they are read from disk
    #[arg(long, requires = "recover")]
    pub cold: bool,
}

impl Knobs {
    /// Checks the options against one another.
    ///
    /// # Errors
    /// Wrong usage, in one sentence.
    pub fn check(&self, device: &DeviceChoice, dirs: &[PathBuf]) -> Result<(), Failure> {
        let devices = if dirs.is_empty() { self.devices } else { dirs.len() };
        self.check_devices(device, devices)?;
        if let Some(buffer) = self.buffer.filter(|b| !b.is_power_of_two() || *b < 4096) {
            return usage(format!(
                "--buffer must be a power of two, 4KiB or more, as in 16MiB, not {buffer} bytes"
            ));
        }
        let longest = 1 << 32;
        if let Some(buffer) = self.buffer.filter(|b| *b > longest) {
            return usage(format!("--buffer must be 4GiB or less, not {buffer} bytes"));
        }
        let segments = 64 << 10..=1 << 40;
        if let Some(segment) =
            self.segment.filter(|s| !segments.contains(s) || !s.is_multiple_of(64 << 10))
        {
            return usage(format!(
                "--segment must be a multiple of 64KiB, up to 1TiB, not {segment} bytes"
            ));
        }
        if let Some(block) =
            self.block.filter(|b| !b.is_power_of_two() || !(64..=65536).contains(b))
        {
            return usage(format!(
                "--block must be a power of two from 64 to 65536, not {block} bytes"
            ));
        }
        if self.flush_count == Some(0) {
            return usage("--flush-count must be at least 1");
        }
        if self.flushed_by == FlushedBy::Workers && self.flush_interval.is_some() {
            return usage("--flushed-by workers flushes at once: give no --flush-interval");
        }
        if !(1..=64).contains(&self.checkpoint_files) {
            let files = self.checkpoint_files;
            return usage(format!("--checkpoint-files must be 1 to 64, not {files}"));
        }
        if self.anchor_interval == Some(0) {
            return usage("--anchor-interval must be at least a byte, as in 128KiB");
        }
        if self.cold && device.lowest() == DeviceKind::Memory {
            return usage(
                "--cold drops the page cache, but a log in memory is stored nowhere else: choose \
                 --device file, or one over it",
            );
        }
        Ok(())
    }

    /// Checks the measurement of phases, where workers may post their calls.
    ///
    /// # Errors
    /// Wrong usage, in one sentence.
    pub fn check_phases(&self, posts: bool) -> Result<(), Failure> {
        match self.phases {
            true if !phase::MEASURED => {
                usage("--phases needs a build with it: `--features phases` of hyades-lab")
            }
            true if posts => usage(
                "--phases is about workers that run their transactions: leave out --post and \
                 --sites",
            ),
            _ => Ok(()),
        }
    }

    /// Checks the devices of the log, `devices` in number.
    fn check_devices(&self, device: &DeviceChoice, devices: usize) -> Result<(), Failure> {
        if !(1..=64).contains(&devices) {
            return usage(format!("--devices must be 1 to 64, not {devices}"));
        }
        if let Err(error) = device.nvm() {
            return usage(format!("--device {device}: {error}"));
        }
        if device.is_striped() && devices == 1 {
            return usage(
                "striped needs several devices: give --devices 4, for example, or repeat --log-dir",
            );
        }
        if let Some(last) = &self.last_device
            && (devices == 1 || device.is_striped() || last.is_striped())
        {
            return usage(
                "--last-device needs several devices, not striped: give --devices 4, for example",
            );
        }
        if let Some(last) = &self.last_device
            && last.lowest() != device.lowest()
        {
            return usage(
                "--last-device must be over the same storage as --device: file or memory",
            );
        }
        Ok(())
    }

    /// The first option that is not about the log alone, if one is set.
    pub fn of_the_engine_only(&self) -> Option<&'static str> {
        let set = [
            ("--delta", self.delta.is_some()),
            ("--no-undo", self.no_undo),
            ("--speculative-reads", self.speculative_reads),
            ("--cut-changes", self.cut_changes.is_some()),
            ("--whole-rows", self.whole_rows),
            ("--compress-lists", self.compress_lists),
            ("--processor-time", self.processor_time),
            ("--phases", self.phases),
            ("--simd", self.simd == Switch::Off),
            ("--stream-choice", self.stream_choice != StreamChoice::Fastest),
            ("--flushed-by", self.flushed_by != FlushedBy::Streams),
            ("--recovery", self.recovery != RecoveryKind::Automatic),
            ("--checkpoint-population", self.checkpoint_population),
            ("--checkpoint-files", self.checkpoint_files != 1),
        ];
        set.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    /// Applies the options that are about the log alone.
    pub fn apply_to_log(&self, device: &DeviceChoice, log: &mut LogOptions) {
        log.flush_interval = self.flush_interval.map(Duration::from_secs_f64);
        if let Some(fill) = self.flush_fill {
            log.flush_fill_bytes = fill as usize;
        }
        log.flush_fill_frames = self.flush_count;
        if let Some(block) = self.block_on(device) {
            log.block_bytes = block as usize;
        }
        if let Some(buffer) = self.buffer.or(device.is_nvm().then_some(NVM_BUFFER)) {
            log.buffer_bytes = buffer as usize;
        }
        if let Some(segment) = self.segment_on(device) {
            log.segment_bytes = segment;
        }
        log.anchor_interval_bytes = self.anchor_interval.unwrap_or(ANCHOR_INTERVAL);
    }

    /// The unit of writing on this device; none: the engine's default.
    fn block_on(&self, device: &DeviceChoice) -> Option<u64> {
        let is_nvm_d = device.is_nvm() && self.flushed_by == FlushedBy::Workers;
        self.block.or(is_nvm_d.then_some(64))
    }

    /// The largest segment file on this device; none: the engine's default.
    pub fn segment_on(&self, device: &DeviceChoice) -> Option<u64> {
        self.segment.or(device.is_throttled().then_some(THROTTLED_SEGMENT))
    }

    /// Applies these options to the settings of the log.
    pub fn apply(&self, device: &DeviceChoice, log: &mut LogSettings) {
        log.flush_interval = self.flush_interval.map(Duration::from_secs_f64);
        log.research.flush_fill_bytes = self.flush_fill.map(|fill| fill as usize);
        log.research.flush_fill_count = self.flush_count;
        log.research.fixed_streams = self.stream_choice == StreamChoice::Fixed;
        log.research.flushed_by_sessions = self.flushed_by == FlushedBy::Workers;
        if let Some(block) = self.block_on(device) {
            log.research.block_bytes = block as usize;
        }
        if let Some(buffer) = self.buffer.or(device.is_nvm().then_some(NVM_BUFFER)) {
            log.buffer_bytes = buffer as usize;
        }
        if let Some(segment) = self.segment_on(device) {
            log.segment_bytes = segment;
        }
        if let Some(interval) = self.anchor_interval {
            log.research.anchor_interval_bytes = interval;
        }
        hyades_wal::lsn_vector::set_portable(self.simd == Switch::Off);
        log.research.undo = !self.no_undo;
        log.research.cut_changes = self.cut_changes.map(|bytes| bytes as usize);
        log.research.whole_rows = self.whole_rows;
        log.research.compresses_lists = self.compress_lists;
        if let Some(delta) = self.delta {
            log.research.delta_bytes = delta;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[arg(long)]
        recover: bool,
        #[arg(long)]
        log_dir: Vec<PathBuf>,
        #[command(flatten)]
        knobs: Knobs,
    }

    fn knobs(words: &str) -> Knobs {
        let alone = Alone::try_parse_from(std::iter::once("x").chain(words.split_whitespace()));
        alone.unwrap_or_else(|why| panic!("{words}: {why}")).knobs
    }

    fn applied(words: &str, device: &str) -> LogSettings {
        let (knobs, device) = (knobs(words), device.parse().unwrap());
        knobs.check(&device, &[]).unwrap();
        let mut settings = None;
        let _ = hyades::Database::builder().log_settings(|log| {
            knobs.apply(&device, log);
            settings = Some(log.clone());
        });
        settings.unwrap()
    }

    #[test]
    fn every_knob_turns_its_setting() {
        let log = applied(
            "--flush-interval 5ms --flush-fill 100KiB --buffer 16MiB --segment 1MiB \
             --anchor-interval 4KiB --delta 1MB --no-undo --whole-rows --compress-lists",
            "file",
        );
        assert_eq!(log.flush_interval, Some(Duration::from_millis(5)));
        assert_eq!(log.research.flush_fill_bytes, Some(100 << 10));
        assert_eq!((log.buffer_bytes, log.segment_bytes), (16 << 20, 1 << 20));
        assert_eq!(
            (log.research.anchor_interval_bytes, log.research.delta_bytes),
            (4 << 10, 1_000_000)
        );
        assert!(!log.research.undo && log.research.whole_rows);
        assert!(log.research.compresses_lists);
    }

    #[test]
    fn the_log_alone_has_the_engines_settings() {
        for words in [
            "--flush-interval 5ms --flush-fill 100KiB --buffer 16MiB --segment 1MiB \
             --anchor-interval 4KiB",
            "",
        ] {
            let (device, with_engine) = ("file".parse().unwrap(), applied(words, "file"));
            let mut log = LogOptions::new(vec!["x".into()], 1);
            let usual = log.flush_fill_bytes;
            knobs(words).apply_to_log(&device, &mut log);
            assert_eq!(log.flush_interval, with_engine.flush_interval);
            let research = &with_engine.research;
            assert_eq!(log.flush_fill_bytes, research.flush_fill_bytes.unwrap_or(usual));
            assert_eq!(log.buffer_bytes, with_engine.buffer_bytes);
            assert_eq!(log.segment_bytes, with_engine.segment_bytes);
            assert_eq!(log.anchor_interval_bytes, research.anchor_interval_bytes);
        }
    }

    #[test]
    fn defaults_are_the_engines_but_for_small_devices() {
        let usual = applied("", "file");
        assert_eq!((usual.flush_interval, usual.research.flush_fill_bytes), (None, None));
        assert_eq!((usual.buffer_bytes, usual.segment_bytes), (8 << 20, 64 << 20));
        assert_eq!(applied("", "nvm").buffer_bytes, 1 << 20);
        assert_eq!(applied("--buffer 64KiB", "nvm").buffer_bytes, 64 << 10);
        let slow = "throttled:bandwidth=8MB/s";
        assert_eq!(applied("", slow).segment_bytes, 4 << 20);
        assert_eq!(applied("--segment 64KiB", slow).segment_bytes, 64 << 10);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (words, device, says) in [
            ("--devices 0", "file", "1 to 64"),
            ("--last-device throttled:latency=1ms", "file", "several devices"),
            ("--devices 2 --last-device memory", "file", "over the same storage"),
            ("", "striped", "several devices"),
            ("--buffer 10MB", "file", "power of two"),
            ("--buffer 8GiB", "file", "4GiB"),
            ("--segment 100KB", "file", "multiple of 64KiB"),
            ("--anchor-interval 0", "file", "at least a byte"),
            ("--checkpoint-files 0", "file", "1 to 64"),
            ("--checkpoint-files 65", "file", "1 to 64"),
            ("--cold --recover", "nvm", "nowhere else"),
        ] {
            match knobs(words).check(&device.parse().unwrap(), &[]) {
                Err(Failure::Usage(why)) => assert!(why.contains(says), "{words}: {why}"),
                other => panic!("{words}: {other:?}"),
            }
        }
        for (how, protocol, is_taken) in [
            (RecoveryKind::Pools, Protocol::Taurus, true),
            (RecoveryKind::Pools, Protocol::SiloR, false),
            (RecoveryKind::Pools, Protocol::Serial, false),
            (RecoveryKind::Pools, Protocol::Taurus2016, false),
            (RecoveryKind::Phases, Protocol::Taurus2016, true),
            (RecoveryKind::Phases, Protocol::Taurus, false),
            (RecoveryKind::Serial, Protocol::Serial, true),
        ] {
            assert_eq!(how.check(protocol).is_ok(), is_taken, "{how:?} {protocol:?}");
        }
        for words in ["--cold", "--flush-fill 1MiB", "--devices 2 --log-dir x"] {
            assert!(Alone::try_parse_from(format!("x {words}").split(' ')).is_err(), "{words}");
        }
        let both = knobs("--recover --cold").check(&"file".parse().unwrap(), &["a".into()]);
        assert!(both.is_ok());
    }
}
