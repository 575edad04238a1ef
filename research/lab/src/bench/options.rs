//! Options of `hyades-lab bench`.

use super::choices::{Concurrency, Isolation, Protocol, RecordKind};
use super::help::CHOICES;
use super::knobs::{FlushedBy, Knobs};
use super::posting::Posting;
use super::replicating::Replicating;
use super::scanners::Scanning;
use super::settings::Settings;
use super::smallbank::{self, SmallBank};
use super::tatp::{self, Tatp};
use super::voter::{self, Voter};
use super::workload::{Bank, Tpcc, Workload};
use super::ycsb::Ycsb;
use crate::device::DeviceChoice;
use clap::{Args, Subcommand};
use hyades_cli::failure::{Failure, usage};
use hyades_cli::machine::cores;
use hyades_cli::units;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Default limit of transactions per worker that await acknowledgement.
pub const IN_FLIGHT: usize = 8192;

/// Offered loads, per second.
const RATES: RangeInclusive<f64> = 1e-3..=1e9;

/// Options of every workload.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Every workload")]
pub struct Common {
    /// Logging protocol: none, serial, taurus, taurus-2016, poplar, silo-r, plover, gsn,
    /// physiological or arrival (see below)
    #[arg(long, default_value = "taurus")]
    protocol: Protocol,
    /// What is logged: data, command or adaptive; not every protocol can log commands (see below)
    #[arg(long, default_value = "data")]
    record: RecordKind,
    /// Concurrency control: silo, no-wait, wait-die, tictoc, hekaton, timestamp-order,
    /// partitioned, or auto: hekaton for snapshot isolation, no-wait with patience, partitioned
    /// under arrival and with partitions or sites, and otherwise silo
    #[arg(long, default_value = "auto")]
    concurrency: Concurrency,
    /// Isolation: serializable or, under hekaton, snapshot
    #[arg(long, default_value = "serializable")]
    isolation: Isolation,
    /// How often no-wait looks again for a lock before it aborts [default: 0]
    #[arg(long, value_name = "N")]
    patience: Option<u32>,
    #[command(flatten)]
    posting: Posting,
    #[command(flatten)]
    replicating: Replicating,
    /// Acknowledge transactions when they are pre-committed, before they are on disk; the report
    /// says what a crash can lose
    #[arg(long)]
    asynchronous: bool,
    /// Log streams, 1 to 64 [default: 4; serial and physiological have 1]
    #[arg(long)]
    streams: Option<usize>,
    /// Log directory, empty or absent, which is kept; may be given several times [default: a
    /// temporary directory, removed at the end]
    #[arg(long, value_name = "DIR")]
    log_dir: Vec<PathBuf>,
    /// Device of the log: file, memory, throttled:.., nvm:.. or striped:.. (see below)
    #[arg(long, default_value = "file", value_name = "DEVICE")]
    device: DeviceChoice,
    /// Worker threads [default: the number of cores]
    #[arg(long)]
    workers: Option<usize>,
    /// Most transactions per worker that await acknowledgement
    #[arg(long, default_value_t = IN_FLIGHT, value_name = "K")]
    in_flight: usize,
    /// Offered load in transactions per second over all workers (open loop) [default: none; each
    /// worker runs its transactions one after another, as fast as it can]
    #[arg(long, value_parser = units::positive)]
    rate: Option<f64>,
    /// Length of the measured interval, in seconds or with a unit
    #[arg(long, default_value = "5", value_parser = units::some_seconds)]
    seconds: f64,
    /// Length of the warm-up before it, in seconds or with a unit
    #[arg(long, default_value = "1", value_parser = units::seconds)]
    warmup: f64,
    /// Memory to reserve before the run, so that page faults are not measured; a log in memory gets
    /// a quarter of this in addition [default: 4GiB, or a quarter of the free memory if that is
    /// less]
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    reserve_memory: Option<u64>,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Length of an epoch; under silo-r, commits take about this long [default: 10ms; 40ms under
    /// silo-r]
    #[arg(long, value_name = "TIME", value_parser = units::some_seconds)]
    epoch: Option<f64>,
    /// Take checkpoints often enough that replaying the log, at the last measured speed, takes less
    /// than this [default: not set]
    #[arg(long, value_name = "TIME", value_parser = units::some_seconds)]
    max_recovery: Option<f64>,
    /// Time between two checkpoints [default: none are taken]
    #[arg(long, value_name = "TIME", value_parser = units::some_seconds)]
    checkpoint_interval: Option<f64>,
    /// Share of the time of all processors that writing checkpoints may use: above 0, at most 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = units::positive)]
    checkpoint_share: f64,
    /// Write a timeline of the run to this file, as CSV, and a chart beside it, as SVG: throughput,
    /// latency, bytes on disk, and when checkpoints were written
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Crash at the end, recover in a fresh process, and compare the states
    #[arg(long)]
    recover: bool,
    /// Threads for recovery [default: the number of cores]
    #[arg(long, value_name = "N")]
    recovery_threads: Option<usize>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    scanning: Scanning,
    #[command(flatten)]
    knobs: Knobs,
}

/// The options of one workload, and those of every workload.
#[derive(Args, Clone, Debug)]
pub struct With<W: Args> {
    #[command(flatten)]
    own: W,
    #[command(flatten)]
    common: Common,
}

/// `hyades-lab bench`.
#[derive(Subcommand, Clone, Debug)]
pub enum Bench {
    /// YCSB: Zipf-distributed accesses to rows of ten columns
    #[command(after_help = CHOICES)]
    Ycsb(With<Ycsb>),
    /// TPC-C: order processing, all five transactions
    #[command(after_help = CHOICES)]
    Tpcc(With<Tpcc>),
    /// Bank: transfers between accounts, each recorded as a row
    #[command(after_help = CHOICES)]
    Bank(With<Bank>),
    /// SmallBank: short transactions on savings and checking accounts, some of them hot
    #[command(after_help = CHOICES, long_about = smallbank::ABOUT)]
    Smallbank(With<SmallBank>),
    /// TATP: short transactions on the subscribers of a mobile network, 80 % only read
    #[command(after_help = CHOICES, long_about = tatp::ABOUT)]
    Tatp(With<Tatp>),
    /// Voter: votes by telephone, a row each
    #[command(after_help = CHOICES, long_about = voter::ABOUT)]
    Voter(With<Voter>),
    /// Repeat the papers' experiments, and write a page with their figures beside ours
    Paper(crate::paper::PaperOptions),
    /// Measure every protocol under each workload, in several rounds, and write Markdown tables
    ///
    /// Each row of a table is a run of this program in a process of its own; its command stands
    /// beside its figures. A run crashes at the end, recovers and compares the states. Figures:
    /// transactions acknowledged per second, latency to the acknowledgement (in the tables of
    /// workloads with many transactions in flight, so that it is mostly waiting for a shared sync),
    /// transactions replayed per second, and log bytes per transaction; each the median of the
    /// rounds, with the lowest and the highest. Rounds alternate in direction.
    Table(super::table::TableOptions),
    /// The time of LSN vectors alone: to fold, to compare and to encode them
    Vectors(super::vectors::VectorOptions),
}

impl Bench {
    /// Checks the options and fills in what depends on others.
    ///
    /// # Errors
    /// Wrong usage, in one sentence.
    pub fn settings(self) -> Result<Settings, Failure> {
        let (workload, common) = match self {
            Bench::Ycsb(with) => (Workload::Ycsb(with.own), with.common),
            Bench::Tpcc(with) => (Workload::Tpcc(with.own), with.common),
            Bench::Bank(with) => (Workload::Bank(with.own), with.common),
            Bench::Smallbank(with) => (Workload::Smallbank(with.own), with.common),
            Bench::Tatp(with) => (Workload::Tatp(with.own), with.common),
            Bench::Voter(with) => (Workload::Voter(with.own), with.common),
            Bench::Paper(_) | Bench::Table(_) | Bench::Vectors(_) => {
                return usage("bench paper, table and vectors run no workload: no settings");
            }
        };
        let mut common = common;
        if let Workload::Ycsb(ycsb) = &workload {
            if ycsb.engine.check(ycsb.of_rows_only(), common.of_the_engine_only())? {
                common.concurrency = Concurrency::OF_COMPONENT;
            }
            if ycsb.engine.is_store() {
                common.leave_log_out()?;
            }
        }
        let by_partitions =
            common.protocol == Protocol::Arrival || common.posting.is_about_partitions();
        common.concurrency = common.concurrency.or_chosen(
            common.isolation,
            common.patience.is_some(),
            by_partitions,
        );
        if !common.protocol.protocol().takes_data() {
            common.record = RecordKind::Command;
        }
        workload.check()?;
        common.check()?;
        let streams = match common.protocol {
            Protocol::None => 0,
            Protocol::Serial | Protocol::Physiological => 1,
            _ => common.streams.unwrap_or(4),
        };
        Ok(Settings {
            workload,
            protocol: common.protocol,
            record: common.record,
            concurrency: common.concurrency,
            isolation: common.isolation,
            patience: common.patience.unwrap_or(0),
            posting: common.posting,
            replicating: common.replicating,
            asynchronous: common.asynchronous,
            streams,
            dirs: common.log_dir,
            device: common.device,
            workers: common.workers.unwrap_or_else(cores),
            in_flight: common.in_flight,
            rate: common.rate,
            seconds: common.seconds,
            warmup: common.warmup,
            reserve_memory: common.reserve_memory,
            seed: common.seed,
            epoch: common.epoch,
            max_recovery: common.max_recovery,
            checkpoint_interval: common.checkpoint_interval,
            checkpoint_share: common.checkpoint_share,
            timeline: common.timeline,
            recover: common.recover,
            recovery_threads: common.recovery_threads.unwrap_or(0),
            scanning: common.scanning,
            knobs: common.knobs,
            json: common.json,
        })
    }
}

impl Common {
    /// The first option that is not for a transaction component, if one is set.
    fn of_the_engine_only(&self) -> Option<&'static str> {
        let its_own = [Concurrency::Auto, Concurrency::OF_COMPONENT];
        let set = [
            ("--protocol", self.protocol != Protocol::Taurus),
            ("--record", self.record != RecordKind::Data),
            ("--concurrency", !its_own.contains(&self.concurrency)),
            ("--isolation", self.isolation != Isolation::Serializable),
            ("--patience", self.patience.is_some()),
            ("--asynchronous", self.asynchronous),
            ("--rate", self.rate.is_some()),
            ("--epoch", self.epoch.is_some()),
            ("--max-recovery", self.max_recovery.is_some()),
            ("--checkpoint-interval", self.checkpoint_interval.is_some()),
            ("--timeline", self.timeline.is_some()),
            ("--recovery-threads", self.recovery_threads.is_some()),
            ("--scanners", self.scanning.scanners > 0),
            ("--standbys", self.replicating.standbys.is_some()),
        ];
        let first = set.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name);
        let first = first.or_else(|| self.posting.first_set());
        first.or_else(|| self.knobs.of_the_engine_only())
    }

    /// For a store that is not ours: it has no log of ours.
    fn leave_log_out(&mut self) -> Result<(), Failure> {
        let set = [
            ("--recover", self.recover),
            ("--streams", self.streams.is_some()),
            ("--device", self.device.word() != "file"),
            ("--standbys", self.replicating.standbys.is_some()),
        ];
        if let Some((name, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
            return usage(format!(
                "{name} is about a log of this program, which other stores do not have: leave \
                 {name} out, or choose --engine memory or deuteronomy"
            ));
        }
        self.protocol = Protocol::None;
        Ok(())
    }

    /// Whether the engine is sound with this protocol, concurrency control and kind of record.
    fn check_pair(&self) -> Result<(), Failure> {
        let protocol = self.protocol.protocol();
        if self.record != RecordKind::Data && !protocol.takes_commands() {
            return usage(format!(
                "{} logging does not record the dependencies that replaying commands needs: \
                 choose --record data, or --protocol {}",
                self.protocol.word(),
                hyades::Protocol::names_taking_commands()
            ));
        }
        let concurrency = self.concurrency.control();
        if !concurrency.runs_under(protocol) {
            let sound = hyades_schemes::all_protocols()
                .filter(|candidate| concurrency.runs_under(*candidate));
            let sound: Vec<&str> = sound.map(hyades::Protocol::name).collect();
            return usage(format!(
                "{} is not sound under {} logging: choose --concurrency {}, or one of \
                 --protocol {}",
                self.concurrency.word(),
                self.protocol.word(),
                protocol.names_of_sound_controls(),
                sound.join(", ")
            ));
        }
        if self.record != RecordKind::Data && !concurrency.takes_commands_under(protocol) {
            return usage(format!(
                "{} logging does not order commands for their replay under {}: choose --record \
                 data, or --concurrency silo or no-wait",
                self.protocol.word(),
                self.concurrency.word()
            ));
        }
        Ok(())
    }

    /// Whether what runs transactions, and when they begin and are acknowledged, fits the rest.
    fn check_execution(&self) -> Result<(), Failure> {
        // Starts are scheduled in nanoseconds.
        if let Some(rate) = self.rate.filter(|rate| !RATES.contains(rate)) {
            return usage(format!(
                "--rate must be {} to {} per second, not {rate}",
                RATES.start(),
                RATES.end()
            ));
        }
        if self.asynchronous && self.protocol == Protocol::None {
            return usage(
                "without a log nothing is on disk: leave --asynchronous out, or choose --protocol \
                 taurus",
            );
        }
        self.posting.check(self.concurrency)?;
        self.knobs.check_phases(self.posting.posts())?;
        if self.knobs.speculative_reads && self.concurrency != Concurrency::Hekaton {
            return usage("--speculative-reads is for --concurrency hekaton");
        }
        let others = [
            ("--recover", self.recover),
            ("--max-recovery", self.max_recovery.is_some()),
            ("--checkpoint-interval", self.checkpoint_interval.is_some()),
            ("--timeline", self.timeline.is_some()),
            ("--log-dir", !self.log_dir.is_empty()),
            ("--asynchronous", self.asynchronous),
            ("--checkpoint-population", self.knobs.checkpoint_population),
            ("--flushed-by workers", self.knobs.flushed_by == FlushedBy::Workers),
        ];
        self.replicating.check((self.protocol, self.concurrency), &others)
    }

    fn check(&self) -> Result<(), Failure> {
        let streams = self.streams.unwrap_or(1);
        if matches!(self.protocol, Protocol::Serial | Protocol::Physiological) && streams != 1 {
            return usage(format!(
                "{} logging has one stream, not {streams}: leave --streams out, or choose \
                 --protocol taurus",
                self.protocol.word()
            ));
        }
        if !(1..=hyades_wal::MAX_LANES).contains(&streams) {
            return usage(format!(
                "--streams must be 1 to {}, not {streams}",
                hyades_wal::MAX_LANES
            ));
        }
        self.check_pair()?;
        if self.protocol == Protocol::None && self.recover {
            return usage(
                "--protocol none keeps no log to recover from: leave --recover out, or choose \
                 another protocol, such as --protocol taurus",
            );
        }
        if self.protocol == Protocol::None
            && (self.max_recovery.is_some() || self.checkpoint_interval.is_some())
        {
            return usage(
                "--protocol none keeps no log and takes no checkpoints: leave --max-recovery and \
                 --checkpoint-interval out, or choose another protocol, such as --protocol taurus",
            );
        }
        if let Some(workers) = self.workers.filter(|n| !(1..=255).contains(n)) {
            return usage(format!("--workers must be 1 to 255, not {workers}"));
        }
        if let Some(threads) = self.recovery_threads.filter(|n| !(1..=1024).contains(n)) {
            return usage(format!("--recovery-threads must be 1 to 1024, not {threads}"));
        }
        if !(1..=1 << 20).contains(&self.in_flight) {
            return usage(format!("--in-flight must be 1 to {}, not {}", 1 << 20, self.in_flight));
        }
        let isolation = self.isolation.isolation();
        if !self.concurrency.control().offers(isolation) {
            return usage(format!(
                "{} keeps transactions serializable: --isolation {} is for --concurrency hekaton",
                self.concurrency.word(),
                self.isolation.word()
            ));
        }
        if self.patience.is_some() && self.concurrency != Concurrency::NoWait {
            return usage(format!(
                "{} never waits for locks that transactions hold: --patience is for \
                 --concurrency no-wait",
                self.concurrency.word()
            ));
        }
        self.check_execution()?;
        if self.knobs.no_undo && self.protocol != Protocol::Physiological {
            return usage(format!(
                "{} logging has nothing to undo: --no-undo is for --protocol physiological",
                self.protocol.word()
            ));
        }
        if self.knobs.cut_changes.is_some() && self.protocol != Protocol::Physiological {
            return usage("--cut-changes is for --protocol physiological");
        }
        self.knobs.recovery.check(self.protocol)?;
        self.knobs.check(&self.device, &self.log_dir)
    }
}
