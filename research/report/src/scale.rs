//! Sizes of runs, the machine at hand, and the papers' machines.
//!
//! A claim about a device as the bottleneck is tested on throttled devices. The bandwidth follows
//! from facts about hardware alone: the bytes per second of the paper's devices for each core and
//! cycle of the paper's processors, times the cores and cycles here. No result of a paper goes into
//! the bandwidth, so no result can come out. Where the processors here do more or less per cycle
//! than the paper's, the curve over bandwidth shows the difference.

use serde::{Deserialize, Serialize};

/// The durations and sizes of runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Rows of YCSB.
    pub rows: u64,
    /// Warehouses of TPC-C.
    pub warehouses: u32,
    /// Length of the measured interval in seconds.
    pub seconds: f64,
    /// The same on slow devices: flushes are long, and a run needs some tens of flushes.
    pub device_seconds: f64,
    /// Seconds of warm-up.
    pub warmup: f64,
    /// The most rounds: those of the claims that stay undecided.
    pub rounds: usize,
    /// Whether sweeps have all steps, or only a few.
    pub fine: bool,
    /// Seconds after which no further round begins, and the round in progress ends.
    pub budget: f64,
}

impl Size {
    /// For a report in at most three hours.
    pub const FULL: Size = Size {
        rows: 200_000,
        warehouses: 2,
        seconds: 1.2,
        device_seconds: 1.5,
        warmup: 0.5,
        rounds: 40,
        fine: true,
        budget: 178.0 * 60.0,
    };
    /// For a report in at most 15 minutes.
    pub const QUICK: Size = Size {
        rows: 50_000,
        warehouses: 1,
        seconds: 0.25,
        device_seconds: 0.4,
        warmup: 0.15,
        rounds: 15,
        fine: false,
        budget: 14.0 * 60.0,
    };
    /// For tests; the figures mean nothing.
    pub const TINY: Size = Size {
        rows: 2_000,
        warehouses: 1,
        seconds: 0.05,
        device_seconds: 0.05,
        warmup: 0.02,
        rounds: 2,
        fine: false,
        budget: 14.0 * 60.0,
    };
}

/// The command line's choices for all runs, in place of each experiment's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Axes {
    /// Directories for logs. If there are any, the real devices below the directories replace the
    /// throttled devices, and a curve over bandwidth shrinks to the point at 1.
    pub log_dirs: Vec<String>,
    /// Worker threads; none: the number of cores, or an experiment's own number.
    pub workers: Option<usize>,
    /// The concurrency control of every run; none: the control of the paper's figure.
    pub concurrency: Option<String>,
    /// The address of the log service of runs with standbys; none: a service in the memory of each
    /// run.
    #[serde(default)]
    pub log_service: Option<String>,
    /// The copies of each lane of the log service; none: the service's default.
    #[serde(default)]
    pub lane_replicas: Option<u32>,
}

/// The set-up of the experiments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setup {
    /// The sizes of runs.
    pub size: Size,
    /// Measured rates, for offered loads.
    pub rates: Rates,
    /// The processors here.
    pub processors: Processors,
    /// The choices of the command line.
    pub axes: Axes,
}

impl Setup {
    /// For use without a measurement: a machine of two cores.
    pub fn typical(size: Size) -> Setup {
        let processors = Processors { cores: 2, ghz: 2.0 };
        Setup { size, rates: Rates::TYPICAL, processors, axes: Axes::default() }
    }
}

/// Processors, for the scale of devices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Processors {
    /// Physical cores.
    pub cores: u32,
    /// The nominal clock in GHz.
    pub ghz: f64,
}

impl Processors {
    /// Cycles of all cores in a nanosecond.
    pub fn cycles(&self) -> f64 {
        f64::from(self.cores) * self.ghz
    }
}

/// Rates of this machine: transactions per second of Taurus command logging to memory, unless said
/// otherwise. Offered loads are shares of the rate of the same workload. The scale of devices does
/// not depend on the rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// YCSB, two accesses, half of the accesses writes.
    pub ycsb: f64,
    /// TPC-C Payment.
    pub payment: f64,
    /// TPC-C New-Order.
    pub new_order: f64,
    /// All transactions of TPC-C, posted to sites, with commands logged on arrival.
    #[serde(default = "Rates::typical_tpcc")]
    pub tpcc_commands: f64,
    /// Voter, posted to sites, with commands logged on arrival.
    #[serde(default = "Rates::typical_voter")]
    pub voter_commands: f64,
}

impl Rates {
    /// Rates of a typical machine, for use before or without a measurement.
    pub const TYPICAL: Rates = Rates {
        ycsb: 1.0e6,
        payment: 250e3,
        new_order: 100e3,
        tpcc_commands: 200e3,
        voter_commands: 1.4e6,
    };

    /// For reports older than the measurement.
    fn typical_tpcc() -> f64 {
        Rates::TYPICAL.tpcc_commands
    }

    /// For reports older than the measurement.
    fn typical_voter() -> f64 {
        Rates::TYPICAL.voter_commands
    }
}

/// A machine of a paper, as described by the paper. Facts left out are assumed, and the page says
/// so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// A description of the devices.
    pub name: &'static str,
    /// A description of the processors.
    pub processors_name: &'static str,
    /// The assumptions about facts not in the paper, in whole sentences.
    pub assumed: &'static str,
    /// The number of devices.
    pub devices: u32,
    /// Bytes per second of one device.
    pub bandwidth: f64,
    /// Latency of a write, not scaled.
    pub latency: &'static str,
    /// The processors.
    pub processors: Processors,
}

/// Taurus 2020, section 5.3: Amazon EC2 h1.16xlarge.
pub const HDD: Machine = Machine {
    name: "8 hard disks of 160 MB/s",
    processors_name: "an EC2 h1.16xlarge",
    assumed: "Assumed, because the paper does not say it: 32 cores of 2.3 GHz, and 2 ms for a \
              write.",
    devices: 8,
    bandwidth: 160e6,
    latency: "2ms",
    processors: Processors { cores: 32, ghz: 2.3 },
};

/// Taurus 2020, section 5.2: Amazon EC2 i3en.metal.
pub const NVME: Machine = Machine {
    name: "8 NVMe drives of 2 GB/s",
    processors_name: "2 x 24 cores (Xeon 8175M)",
    assumed: "Assumed, because the paper does not say it: a clock of 2.5 GHz, and 100 us for a \
              write.",
    devices: 8,
    bandwidth: 2e9,
    latency: "100us",
    processors: Processors { cores: 48, ghz: 2.5 },
};

/// Taurus 2016, section 6.1. Three flash cards and a disk array write 2 GB/s together; a serial log
/// is on a single card with 500 MB/s (section 6.3).
pub const FLASH: Machine = Machine {
    name: "4 devices with 2 GB/s together",
    processors_name: "32 cores of 4 Xeon E7-4830",
    assumed: "Assumed, because the report does not say it: a clock of 2.13 GHz, equal devices, and \
              100 us for a write.",
    devices: 4,
    bandwidth: 500e6,
    latency: "100us",
    processors: Processors { cores: 32, ghz: 2.13 },
};

/// Poplar, section 6.1: hyperthreading is off; a write of 16 KiB takes 21.5 us.
pub const SSD: Machine = Machine {
    name: "up to 4 SSDs of 1.2 GB/s, of which two are used here",
    processors_name: "20 cores of 2.2 GHz (2 Xeon E5-2630 v4)",
    assumed: "A write takes 22 us, as in the paper.",
    devices: 2,
    bandwidth: 1.2e9,
    latency: "22us",
    processors: Processors { cores: 20, ghz: 2.2 },
};

impl Machine {
    /// The bandwidth in MB/s of the throttled device in place of a device of the machine: `times`
    /// the machine's bandwidth for as many cores and cycles as the processors here have.
    pub fn scaled(&self, here: &Processors, times: f64) -> f64 {
        let megabytes = self.bandwidth / 1e6 * here.cycles() / self.processors.cycles() * times;
        // Two digits, so that commands are short.
        let step = 10f64.powf(megabytes.log10().floor() - 1.0);
        let short = (megabytes / step).round() * step;
        // Removes rounding errors. The lower limit lets a run measure something.
        ((short * 10.0).round() / 10.0).clamp(0.5, 20_000.0)
    }

    /// The value of `--device` for the throttled device.
    pub fn device(&self, here: &Processors, times: f64) -> String {
        let megabytes = self.scaled(here, times);
        let digits = if megabytes < 10.0 { 1 } else { 0 };
        format!("throttled:bandwidth={megabytes:.digits$}MB/s,latency={},depth=1", self.latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_same_bytes_for_each_cycle() {
        for machine in [HDD, NVME, FLASH, SSD] {
            for here in [Processors { cores: 2, ghz: 2.0 }, Processors { cores: 96, ghz: 3.1 }] {
                let ours = machine.scaled(&here, 1.0) * 1e6 / here.cycles();
                let theirs = machine.bandwidth / machine.processors.cycles();
                assert!((ours / theirs - 1.0).abs() < 0.06, "{}: {ours} {theirs}", machine.name);
            }
            let own = machine.scaled(&machine.processors, 1.0);
            assert!((own * 1e6 / machine.bandwidth - 1.0).abs() < 0.06, "{}: {own}", machine.name);
        }
        assert_eq!(
            HDD.device(&Processors { cores: 2, ghz: 2.3 }, 1.0),
            "throttled:bandwidth=10MB/s,latency=2ms,depth=1"
        );
        assert!(HDD.scaled(&Processors { cores: 1, ghz: 0.001 }, 1.0) >= 0.5);
    }
}
