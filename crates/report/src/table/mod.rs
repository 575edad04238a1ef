//! The table of experiments, with a file for each paper, and the building blocks of their commands.

mod command_logging;
mod concurrency;
mod poplar;
mod shapes;
pub mod simulated;
mod taurus_2016;
mod taurus_2020;
mod taurus_2020_more;

use crate::data::View;
use crate::experiment::{Experiment, Run};
use crate::metric::Metric;
use crate::scale::{Rates, Size};
use serde_json::Value;

/// All experiments, in the order of the report.
pub fn all(size: &Size, rates: &Rates) -> Vec<Experiment> {
    let table = Table { size: *size, rates };
    let slow = Table { size: Size { seconds: size.device_seconds, ..*size }, rates };
    let mut out = taurus_2020::experiments(&table, &slow);
    out.extend(taurus_2020_more::experiments(&table));
    out.extend(taurus_2016::experiments(&table, &slow));
    out.extend(poplar::experiments(&table, &slow));
    out.extend(command_logging::experiments(&table));
    out.extend(concurrency::experiments(&table));
    out.extend(shapes::experiments(&table));
    out.extend(simulated::experiments(&table));
    out
}

/// The runs that fix the scale of throttled devices: YCSB, Payment, New-Order.
pub fn calibration(size: &Size) -> [Run; 3] {
    let table = Table { size: *size, rates: &Rates::TYPICAL };
    let to_memory = "--protocol taurus --record command --device memory";
    [("YCSB", table.ycsb()), ("Payment", table.payment()), ("New-Order", table.new_order())]
        .map(|(name, command)| command.with(to_memory).run(name, "Taurus command", 0.0))
}

/// The rates that the runs of [`calibration`] gave; none if one failed.
pub fn rates(results: [Option<&Value>; 3]) -> Option<Rates> {
    let [ycsb, payment, new_order] = results.map(|run| Metric::Throughput.of(run?));
    let measured = |rate: Option<f64>| rate.filter(|rate| *rate > 0.0);
    Some(Rates {
        ycsb: measured(ycsb)?,
        payment: measured(payment)?,
        new_order: measured(new_order)?,
    })
}

/// The sizes and rates that a table is made for.
pub(crate) struct Table<'a> {
    pub size: Size,
    pub rates: &'a Rates,
}

/// The segment size for short logs. Recovery searches the rest of the last segment and the
/// preallocated next one, which on a slow device must be little compared with the log.
pub(crate) const SEGMENT: &str = "--segment 512KiB";

/// Measures the workers' processor time, which excludes other processes.
pub(crate) const PROCESSOR: &str = "--processor-time";

/// A command under construction.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    words: Vec<String>,
    /// Seconds to load the population.
    load: f64,
    seconds: f64,
}

/// A protocol with a kind of record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheme {
    pub label: &'static str,
    pub options: &'static str,
    /// Whether it has one stream, whatever the number of devices.
    pub single: bool,
}

const fn scheme(label: &'static str, options: &'static str, single: bool) -> Scheme {
    Scheme { label, options, single }
}

pub(crate) const NONE: Scheme = scheme("No logging", "--protocol none", true);
pub(crate) const SERIAL_DATA: Scheme =
    scheme("Serial data", "--protocol serial --record data", true);
pub(crate) const SERIAL_COMMAND: Scheme =
    scheme("Serial command", "--protocol serial --record command", true);
pub(crate) const TAURUS_DATA: Scheme =
    scheme("Taurus data", "--protocol taurus --record data", false);
pub(crate) const TAURUS_COMMAND: Scheme =
    scheme("Taurus command", "--protocol taurus --record command", false);
pub(crate) const TAURUS_2016_DATA: Scheme =
    scheme("Taurus 2016 data", "--protocol taurus-2016 --record data", false);
pub(crate) const TAURUS_2016_COMMAND: Scheme =
    scheme("Taurus 2016 command", "--protocol taurus-2016 --record command", false);
pub(crate) const SILO_R: Scheme = scheme("Silo-R", "--protocol silo-r --record data", false);
pub(crate) const PLOVER: Scheme = scheme("Plover", "--protocol plover --record data", false);
pub(crate) const POPLAR: Scheme = scheme("Poplar", "--protocol poplar --record data", false);
pub(crate) const GSN: Scheme = scheme("GSN (NVM-D)", "--protocol gsn --record data", false);
pub(crate) const PHYSIOLOGICAL: Scheme =
    scheme("Physiological", "--protocol physiological --record data", true);

/// Enough transactions in flight that an epoch of 50 ms does not limit the throughput.
pub(crate) const DEEP: &str = "--in-flight 65536";

impl Table<'_> {
    fn command(&self, words: &str, load: f64) -> Command {
        let Size { rows, seconds, warmup, .. } = &self.size;
        let command = Command {
            words: vec!["bench".to_string()],
            load: load + 0.2,
            seconds: seconds + warmup,
        };
        // Reserving memory would take longer than the runs of a test.
        let reserve = if *rows < 10_000 { "0" } else { "512MiB" };
        let short =
            format!("{words} --seconds {seconds} --warmup {warmup} --reserve-memory {reserve}");
        command.with(&short)
    }

    /// YCSB with these options.
    pub fn ycsb_with(&self, options: &str) -> Command {
        let rows = self.size.rows;
        self.command(&format!("ycsb --rows {rows} {options}"), rows as f64 * 2.5e-6)
    }

    /// The same with at most this many rows: a population that is logged as rows is read back from
    /// its devices when the run begins.
    pub fn small_ycsb_with(&self, rows: u64, options: &str) -> Command {
        let rows = self.size.rows.min(rows);
        self.command(&format!("ycsb --rows {rows} {options}"), rows as f64 * 2.5e-6)
    }

    /// YCSB as in the paper of 2020: whole rows are written, and their values derived at replay.
    pub fn ycsb(&self) -> Command {
        self.ycsb_with("--theta 0.6 --accesses 2 --write-columns all --values derived")
    }

    fn tpcc(&self, mix: &str) -> Command {
        let warehouses = self.size.warehouses;
        let load = f64::from(warehouses) * 1.0;
        self.command(&format!("tpcc --warehouses {warehouses} --mix {mix}"), load)
    }

    /// TPC-C Payment.
    pub fn payment(&self) -> Command {
        self.tpcc("payment")
    }

    /// TPC-C New-Order.
    pub fn new_order(&self) -> Command {
        self.tpcc("new-order")
    }

    /// Payment and New-Order, half and half.
    pub fn mixed(&self) -> Command {
        self.tpcc("payment-new-order")
    }

    /// All five transactions.
    pub fn full_mix(&self) -> Command {
        self.tpcc("full")
    }

    /// All steps of a sweep, or the few that show its shape.
    pub fn steps(&self, all: &[f64], few: &[f64]) -> Vec<f64> {
        if self.size.fine { all.to_vec() } else { few.to_vec() }
    }
}

impl Command {
    /// Adds options.
    pub fn with(mut self, options: &str) -> Command {
        self.words.extend(options.split_whitespace().map(str::to_string));
        self
    }

    /// Adds the options of a scheme, on this many devices with this many streams each.
    pub fn by(self, scheme: Scheme, device: &str, devices: u32, streams_each: u32) -> Command {
        let command = self.with(scheme.options);
        match (scheme.label, scheme.single) {
            ("No logging", _) => command,
            (_, true) => command.with(&format!("--device {device}")),
            (_, false) => {
                let streams = devices * streams_each;
                let set = if devices > 1 { format!(" --devices {devices}") } else { String::new() };
                command.with(&format!("--streams {streams} --device {device}{set}"))
            }
        }
    }

    /// Adds a crash at the end, and recovery.
    pub fn recovered(self) -> Command {
        self.with("--recover")
    }

    /// Makes it a run of a figure.
    pub fn run(self, group: &'static str, series: impl Into<String>, x: f64) -> Run {
        let recovers = self.words.iter().any(|word| word == "--recover");
        // The population is recovered too, the log is read about as fast as it was written, and
        // digests of both states are computed.
        let again = if recovers { self.load * 1.3 + self.seconds * 1.2 } else { 0.0 };
        let cost = 0.3 + self.load + self.seconds + again;
        Run { group, series: series.into(), x, words: self.words, cost }
    }
}

/// Worker time per transaction in microseconds, of a series at `x`.
pub(crate) fn worker_time(view: &View<'_>, group: &str, series: &str, x: f64) -> Option<f64> {
    view.median(group, series, x, Metric::WorkerTime)
}
