//! The set-up of the experiments: schemes, workloads and devices, as building blocks of commands.

use crate::axis::grouped;
pub(super) use crate::data::View;
pub(super) use crate::experiment::{Experiment, Run};
pub(super) use crate::metric::Metric;
pub(super) use crate::scale::Size;
use crate::scale::{Axes, Machine, Processors, Rates, Setup};

/// The set-up of a table.
pub(crate) struct Table<'a> {
    pub size: Size,
    pub rates: &'a Rates,
    pub here: Processors,
    pub axes: &'a Axes,
}

/// The name of the directory that a run makes in each of the given directories. The directory is
/// removed after the run.
pub const RUN_DIR: &str = "hyades-paper-log";

/// The segment size for short logs. Recovery searches the rest of the last segment and the
/// preallocated next segment, which on a slow device must be little compared with the log.
pub(crate) const SEGMENT: &str = "--segment 512KiB";

/// Measures the workers' processor time, which excludes other processes.
pub(crate) const PROCESSOR: &str = "--processor-time";

/// A command under construction.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    words: Vec<String>,
    /// Seconds to load the population.
    pub load: f64,
    pub seconds: f64,
    /// Directories for logs; none: the directories below the throttled devices.
    dirs: Vec<String>,
    /// The concurrency control chosen on the command line.
    control: Option<String>,
}

/// A protocol with a kind of record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheme {
    pub label: &'static str,
    pub options: &'static str,
    /// Whether the scheme has a single stream, whatever the number of devices.
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

pub(crate) const ARRIVAL: Scheme =
    scheme("On arrival", "--protocol arrival --record command", false);

/// Enough transactions in flight for a throughput not limited by an epoch of 50 ms.
pub(crate) const DEEP: &str = "--in-flight 65536";

impl<'a> Table<'a> {
    pub fn of(setup: &'a Setup) -> Table<'a> {
        let Setup { size, rates, processors, axes } = setup;
        Table { size: *size, rates, here: *processors, axes }
    }

    /// A device of a paper's machine, scaled to the processors here, with `times` the bandwidth.
    /// The device is in memory, so the disk of this machine has no influence.
    pub fn device(&self, machine: &Machine, times: f64) -> String {
        format!("{},over=memory", machine.device(&self.here, times))
    }

    /// The positions of a curve over bandwidth: all positions, or the few that show the shape. Real
    /// devices have a single bandwidth.
    pub fn bandwidths(&self, all: &[f64], few: &[f64]) -> Vec<f64> {
        if self.axes.log_dirs.is_empty() { self.steps(all, few) } else { vec![1.0] }
    }

    /// How a machine's devices are scaled, for the page.
    pub fn scaled(&self, machine: &Machine) -> String {
        let Machine { name, processors_name, assumed, .. } = machine;
        if !self.axes.log_dirs.is_empty() {
            return format!(
                "The paper has {name} and {processors_name}; here the logs are in {}, on devices \
                 as they are.",
                self.axes.log_dirs.join(", ")
            );
        }
        format!(
            "The paper has {name} and {processors_name}; here are {} cores of {:.1} GHz. Throttled \
             devices in memory have {} MB/s each at the mark: as many bytes for each core and \
             cycle as the paper's. {assumed}",
            self.here.cores,
            self.here.ghz,
            machine.scaled(&self.here, 1.0)
        )
    }

    fn command(&self, words: &str, load: f64) -> Command {
        let Size { seconds, warmup, .. } = &self.size;
        let command = Command {
            words: vec!["bench".to_string()],
            load: load + 0.2,
            seconds: seconds + warmup,
            dirs: self.axes.log_dirs.clone(),
            control: self.axes.concurrency.clone(),
        };
        // Reserving memory would take longer than the runs of a test.
        let reserve = if self.is_test() { "0" } else { "512MiB" };
        let command = command
            .with(words)
            .with(&format!("--seconds {seconds} --warmup {warmup} --reserve-memory {reserve}"));
        let command = match self.axes.workers {
            Some(workers) => command.with(&format!("--workers {workers}")),
            None => command,
        };
        match &self.axes.concurrency {
            Some(control) => command.with(&format!("--concurrency {control}")),
            None => command,
        }
    }

    /// Whether the runs are so short that their figures mean nothing.
    pub fn is_test(&self) -> bool {
        self.size.rows < 10_000
    }

    /// YCSB with the given options.
    pub fn ycsb_with(&self, options: &str) -> Command {
        let rows = self.size.rows;
        self.command(&format!("ycsb --rows {rows} {options}"), rows as f64 * 2.5e-6)
    }

    /// YCSB with at most `rows` rows, where slow devices read back a population logged as rows.
    pub fn small_ycsb_with(&self, rows: u64, options: &str) -> Command {
        let rows = self.size.rows.min(rows);
        self.command(&format!("ycsb --rows {rows} {options}"), rows as f64 * 2.5e-6)
    }

    /// YCSB as in the paper of 2020: whole rows are written, and the values derived at replay.
    pub fn ycsb(&self) -> Command {
        self.ycsb_with("--theta 0.6 --accesses 2 --write-columns all --values derived")
    }

    fn tpcc(&self, mix: &str) -> Command {
        let warehouses = self.size.warehouses;
        let load = f64::from(warehouses) * 1.0;
        // Runs of a test load few rows.
        let rows = if self.is_test() { " --items 1000 --customers 30" } else { "" };
        self.command(&format!("tpcc --warehouses {warehouses} --mix {mix}{rows}"), load)
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

    /// The rows of YCSB, as text.
    pub fn rows(&self) -> String {
        grouped(self.size.rows)
    }

    /// Voter with the default options.
    pub fn voter(&self) -> Command {
        self.command("voter", 0.1)
    }

    /// Worker threads of a run that does not set the number.
    pub fn workers(&self) -> u32 {
        self.axes.workers.map_or(self.here.cores, |workers| workers as u32)
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

    /// Runs under the concurrency control of the paper's figure, unless the command line has one.
    pub fn under(self, control: &str) -> Command {
        match self.control {
            Some(_) => self,
            None => self.with(&format!("--concurrency {control}")),
        }
    }

    /// Sets the number of workers of an experiment, unless the command line did.
    pub fn workers(self, workers: u32) -> Command {
        if self.words.iter().any(|word| word == "--workers") {
            return self;
        }
        self.with(&format!("--workers {workers}"))
    }

    /// Sets an option on which an experiment rests, even if the command line chose a value.
    pub fn fixed(mut self, option: &str, value: &str) -> Command {
        if let Some(at) = self.words.iter().position(|word| word == option) {
            self.words.drain(at..at + 2);
        }
        self.with(&format!("{option} {value}"))
    }

    /// Leaves out the command line's concurrency control: the run has its own.
    pub fn without_control(mut self) -> Command {
        if let Some(at) = self.words.iter().position(|word| word == "--concurrency") {
            self.words.drain(at..at + 2);
        }
        self.control = None;
        self
    }

    /// Adds the options of a scheme, on `devices` devices with `streams_each` streams each.
    pub fn by(self, scheme: Scheme, device: &str, devices: u32, streams_each: u32) -> Command {
        let command = self.with(scheme.options);
        match (scheme.label, scheme.single) {
            ("No logging", _) => command,
            (_, true) => command.on(device, 1),
            (_, false) => {
                // Real devices may be fewer than the paper's.
                let devices = if command.is_on_directories(device) {
                    devices.min(command.dirs.len() as u32)
                } else {
                    devices
                };
                let streams = devices * streams_each;
                command.with(&format!("--streams {streams}")).on(device, devices)
            }
        }
    }

    /// Whether the given directories replace this device.
    fn is_on_directories(&self, device: &str) -> bool {
        device.contains("throttled") && !self.dirs.is_empty()
    }

    /// Keeps throttled devices also where directories for logs are given: the experiment is about
    /// the devices' settings.
    pub fn emulated(self) -> Command {
        Command { dirs: Vec::new(), ..self }
    }

    /// Puts the log on `devices` devices. Directories for logs, where given, replace throttled
    /// devices.
    pub fn on(self, device: &str, devices: u32) -> Command {
        if self.is_on_directories(device) {
            let count = (devices as usize).min(self.dirs.len());
            let dirs: String = self.dirs[..count]
                .iter()
                .map(|dir| format!(" --log-dir {dir}/{RUN_DIR}"))
                .collect();
            let kind = if device.starts_with("striped") && count > 1 { "striped" } else { "file" };
            return self.with(&format!("--device {kind}{dirs}"));
        }
        let set = if devices > 1 { format!(" --devices {devices}") } else { String::new() };
        self.with(&format!("--device {device}{set}"))
    }

    /// Adds a buffer and segments as small as the throttled devices. Real devices have the engine's
    /// own buffer and segments.
    pub fn small(self, buffer: &str) -> Command {
        if self.dirs.is_empty() { self.with(buffer).with(SEGMENT) } else { self }
    }

    /// Adds a crash at the end, and recovery: from real devices with a cold page cache, as the
    /// in the papers. Devices in memory, throttled or not, have no page cache.
    pub fn recovered(self) -> Command {
        let on_disk = self.words.windows(2).any(|two| two[0] == "--log-dir" && two[1] != "LOG");
        self.with(if on_disk { "--recover --cold" } else { "--recover" })
    }

    /// Makes the command a run of a figure.
    pub fn run(self, group: &'static str, series: impl Into<String>, x: f64) -> Run {
        let recovers = self.words.iter().any(|word| word == "--recover");
        // The population is recovered too, the log is read about as fast as written, and digests of
        // both states are computed.
        let again = if recovers { self.load * 1.3 + self.seconds * 1.2 } else { 0.0 };
        let cost = 0.3 + self.load + self.seconds + again;
        Run { group, series: series.into(), x, words: self.words, cost }
    }
}
