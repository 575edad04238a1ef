//! Sizes of runs, and the speed of this machine relative to the papers'.
//!
//! A claim about a device that is the bottleneck is tested with a device of scaled bandwidth: the
//! paper's, times our transaction rate over the paper's, so that the device is the bottleneck at
//! the same fraction of what the processors can do. Our rate is that of Taurus command logging to
//! memory, measured once before all experiments. The paper's rate is what its own figures imply for
//! the same protocol. There is one factor for each machine of a paper and workload; no factor is
//! chosen for a figure.

use serde::Serialize;

/// The durations and sizes of runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Size {
    /// Rows of YCSB.
    pub rows: u64,
    /// Warehouses of TPC-C.
    pub warehouses: u32,
    /// Length of the measured interval in seconds.
    pub seconds: f64,
    /// The same on slow devices: flushes are long, and a run needs some tens of them.
    pub device_seconds: f64,
    /// Seconds of warm-up.
    pub warmup: f64,
    /// Repetitions of each run.
    pub repeats: usize,
    /// Whether sweeps have all their steps, or only a few.
    pub fine: bool,
}

impl Size {
    /// For a report in an hour.
    pub const FULL: Size = Size {
        rows: 400_000,
        warehouses: 2,
        seconds: 2.0,
        device_seconds: 4.0,
        warmup: 0.5,
        repeats: 3,
        fine: true,
    };
    /// For a report in ten minutes.
    pub const QUICK: Size = Size {
        rows: 100_000,
        warehouses: 1,
        seconds: 0.3,
        device_seconds: 0.6,
        warmup: 0.15,
        repeats: 1,
        fine: false,
    };
    /// For tests; its figures mean nothing.
    pub const TINY: Size = Size {
        rows: 2_000,
        warehouses: 1,
        seconds: 0.05,
        device_seconds: 0.05,
        warmup: 0.02,
        repeats: 1,
        fine: false,
    };
}

/// Rates of this machine: transactions per second of Taurus command logging to memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// YCSB, two accesses, half of them writes.
    pub ycsb: f64,
    /// TPC-C Payment.
    pub payment: f64,
    /// TPC-C New-Order.
    pub new_order: f64,
}

impl Rates {
    /// Rates of a typical machine, for use before or without a measurement.
    pub const TYPICAL: Rates = Rates { ycsb: 1.0e6, payment: 250e3, new_order: 100e3 };

    /// Payment and New-Order, half and half.
    pub fn mixed(&self) -> f64 {
        2.0 / (1.0 / self.payment + 1.0 / self.new_order)
    }
}

/// A machine of a paper: its devices, and the rates that its figures imply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// A description of its devices.
    pub name: &'static str,
    /// The number of devices.
    pub devices: u32,
    /// Bytes per second of one device.
    pub bandwidth: f64,
    /// Latency of a write. It is not scaled.
    pub latency: &'static str,
    /// Transactions per second of the workload that the paper's figures imply.
    pub ycsb: f64,
    /// As `ycsb`.
    pub payment: f64,
    /// As `ycsb`.
    pub new_order: f64,
}

/// Taurus 2020, 8 hard disks of 160 MB/s, 56 workers. There Silo-R is limited by 1.28 GB/s; a YCSB
/// transaction logs 1,100 bytes of whole rows, a Payment 920, a New-Order 3,500. Taurus command
/// logging is 9.2, 5.2 and 7.7 times as fast.
pub const HDD: Machine = Machine {
    name: "8 hard disks of 160 MB/s",
    devices: 8,
    bandwidth: 160e6,
    latency: "2ms",
    ycsb: 9.2 * 1.28e9 / 1_100.0,
    payment: 5.2 * 1.28e9 / 920.0,
    new_order: 7.7 * 1.28e9 / 3_500.0,
};

/// Taurus 2020, 8 NVMe drives of 2 GB/s, 80 workers. The rates per worker are those of the machine
/// with hard disks; for YCSB this also follows from 9.9 times the throughput that one drive allows.
pub const NVME: Machine = Machine {
    name: "8 NVMe drives of 2 GB/s",
    devices: 8,
    bandwidth: 2e9,
    latency: "100us",
    ycsb: HDD.ycsb * 80.0 / 56.0,
    payment: HDD.payment * 80.0 / 56.0,
    new_order: HDD.new_order * 80.0 / 56.0,
};

/// Taurus 2016, 4 flash cards with 2 GB/s together. One card limits serial data logging to 2 M/s.
/// Taurus data logging reaches 3.8 times that without saturating four. On TPC-C serial command
/// logging reaches 2 M/s.
pub const FLASH: Machine = Machine {
    name: "4 flash cards of 500 MB/s",
    devices: 4,
    bandwidth: 500e6,
    latency: "100us",
    ycsb: 3.8 * 2e6,
    payment: 2e6,
    new_order: 2e6,
};

/// Poplar, SSDs of 1.2 GB/s. With more than two SSDs the processors limit YCSB, at 1,100 bytes per
/// transaction; they do not limit TPC-C with four, at 2,400 bytes.
pub const SSD: Machine = Machine {
    name: "1 to 4 SSDs of 1.2 GB/s",
    devices: 2,
    bandwidth: 1.2e9,
    latency: "100us",
    ycsb: 2.0 * 1.2e9 / 1_100.0,
    payment: 4.0 * 1.2e9 / 2_400.0,
    new_order: 4.0 * 1.2e9 / 2_400.0,
};

/// A workload whose rate determines the scale of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// YCSB.
    Ycsb,
    /// Payment.
    Payment,
    /// New-Order.
    NewOrder,
    /// Both, half and half.
    Mixed,
}

impl Machine {
    /// The bandwidth in MB/s of the throttled device that replaces one of this machine's.
    pub fn scaled(&self, rates: &Rates, load: Load) -> f64 {
        let (ours, theirs) = match load {
            Load::Ycsb => (rates.ycsb, self.ycsb),
            Load::Payment => (rates.payment, self.payment),
            Load::NewOrder => (rates.new_order, self.new_order),
            Load::Mixed => (rates.mixed(), 2.0 / (1.0 / self.payment + 1.0 / self.new_order)),
        };
        let megabytes = self.bandwidth / 1e6 * ours / theirs;
        // Two digits, so that commands are short.
        let step = 10f64.powf(megabytes.log10().floor() - 1.0);
        let short = (megabytes / step).round() * step;
        // Removes rounding errors. The lower limit lets a run measure something.
        ((short * 10.0).round() / 10.0).clamp(0.5, 20_000.0)
    }

    /// The value of `--device` for it.
    pub fn device(&self, rates: &Rates, load: Load) -> String {
        let megabytes = self.scaled(rates, load);
        let digits = if megabytes < 10.0 { 1 } else { 0 };
        format!("throttled:bandwidth={megabytes:.digits$}MB/s,latency={},depth=1", self.latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_binds_at_the_same_fraction() {
        let device = |rates: &Rates, load| HDD.scaled(rates, load) / HDD.bandwidth * 1e6;
        let rates = Rates { ycsb: HDD.ycsb / 10.0, payment: 1e5, new_order: 1e5 };
        assert!((device(&rates, Load::Ycsb) - 0.1).abs() < 1e-9);
        assert_eq!(
            HDD.device(&rates, Load::Ycsb),
            "throttled:bandwidth=16MB/s,latency=2ms,depth=1"
        );
        assert!(HDD.scaled(&Rates { ycsb: 1.0, ..rates }, Load::Ycsb) >= 0.5);
    }

    #[test]
    fn the_rate_of_a_mix_lies_between() {
        let mixed = Rates::TYPICAL.mixed();
        assert!(Rates::TYPICAL.new_order < mixed && mixed < Rates::TYPICAL.payment);
    }
}
