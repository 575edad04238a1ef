//! Options of `hyades-lab bench ycsb` that are for a transaction component alone.

use clap::Args;
use hyades_cli::units;
use hyades_cli::words;
use hyades_deuteronomy::Options;
use serde::{Deserialize, Serialize};

words! {
    /// When writes are logged.
    UpdateLogging("time to log updates") {
        /// In one record, at commit.
        AtCommit = "at-commit",
        /// Each in a part of its own, at once.
        AtOnce = "at-once",
    }
}

words! {
    /// Which transactions that only read log a record.
    ReaderRecords("choice of readers") {
        /// None.
        Never = "never",
        /// Readers of rows that are not durable.
        IfNeeded = "if-needed",
        /// All.
        Always = "always",
    }
}

words! {
    /// How places in the log are reserved.
    ReserveBy("way to reserve") {
        /// By an atomic addition.
        Addition = "addition",
        /// By compare-and-swap.
        Exchange = "exchange",
    }
}

/// Options of a transaction component's experiments.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
pub struct ComponentOptions {
    /// When deuteronomy logs updates: at-commit (in one record) or at-once (each in a part of its
    /// own, as in the paper) [default: at-commit]
    #[arg(long, value_name = "WHEN")]
    log_updates: Option<UpdateLogging>,
    /// Which transactions of deuteronomy that only read log a record: never, if-needed (if they
    /// have read what is not durable, as in the paper) or always [default: never]
    #[arg(long, value_name = "WHICH")]
    reader_records: Option<ReaderRecords>,
    /// How deuteronomy reserves places in the log: addition or exchange (compare-and-swap)
    /// [default: addition]
    #[arg(long, value_name = "HOW")]
    reserve: Option<ReserveBy>,
    /// Take a checkpoint of deuteronomy's data component when redo would read more of the log
    /// [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    redo: Option<u64>,
    /// The most threads that apply operations to deuteronomy's data component; more than one helps
    /// where that takes pieces of a batch at the same time, as fjall does [default: the number of
    /// cores, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    proxy_threads: Option<u8>,
    /// Also report how deuteronomy's operations are distributed over time: latencies, keys touched,
    /// memory for versions, time spent on collecting these
    #[arg(long)]
    pub observe: bool,
}

impl ComponentOptions {
    /// The first that is set, if any.
    pub fn first_set(&self) -> Option<&'static str> {
        let set = [
            ("--log-updates", self.log_updates.is_some()),
            ("--reader-records", self.reader_records.is_some()),
            ("--reserve", self.reserve.is_some()),
            ("--redo", self.redo.is_some()),
            ("--proxy-threads", self.proxy_threads.is_some()),
            ("--observe", self.observe),
        ];
        set.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    /// Sets the options of a database.
    pub fn apply(&self, options: &mut Options) {
        if let Some(when) = self.log_updates {
            options.update_logging = match when {
                UpdateLogging::AtCommit => hyades_deuteronomy::UpdateLogging::AtCommit,
                UpdateLogging::AtOnce => hyades_deuteronomy::UpdateLogging::AtOnce,
            };
        }
        if let Some(which) = self.reader_records {
            options.reader_records = match which {
                ReaderRecords::Never => hyades_deuteronomy::ReaderRecords::Never,
                ReaderRecords::IfNeeded => hyades_deuteronomy::ReaderRecords::IfNeeded,
                ReaderRecords::Always => hyades_deuteronomy::ReaderRecords::Always,
            };
        }
        options.log.reserve_by_exchange = self.reserve == Some(ReserveBy::Exchange);
        if let Some(most) = self.proxy_threads {
            options.proxy_threads = 1..=usize::from(most);
        }
        options.redo_bytes = self.redo.unwrap_or(options.redo_bytes);
    }
}
