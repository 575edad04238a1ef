//! The modelled machine and its load.

use serde::{Deserialize, Serialize};

/// Maximum number of log streams.
pub const MAX_STREAMS: usize = 16;
/// Maximum number of workers.
pub const MAX_WORKERS: usize = 256;

/// A machine and its load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Worker threads, each on a core of its own; at replay as many threads.
    pub workers: usize,
    /// Log streams, up to [`MAX_STREAMS`].
    pub streams: usize,
    /// Devices; streams are assigned to devices round-robin.
    pub devices: usize,
    /// Bytes per second of a device.
    pub bandwidth: f64,
    /// Seconds from the last byte of a write to the completion of the write.
    pub latency: f64,
    /// Requests served at a time by a device: their latencies overlap, their transfers do not.
    pub depth: usize,
    /// The time between flushes in seconds; 0 to flush by the engine's own rule.
    pub flush_interval: f64,
    /// Length of an epoch in seconds.
    pub epoch: f64,
    /// The log buffer of a stream in bytes.
    pub buffer: u64,
    /// Log bytes from one anchor to the next, summed over all streams.
    pub anchor_interval: u64,
    /// Transactions of a worker that may await acknowledgement.
    pub in_flight: usize,
    /// Bytes per second that all cores copy in memory; `None`: as measured, for each pair of cores.
    pub memory: Option<f64>,
    /// Rows.
    pub rows: u32,
    /// The exponent of the Zipf distribution of accesses over rows; 0 is uniform.
    pub theta: f64,
    /// Whether writes replace rows without reading them, like YCSB's writes of all columns.
    pub blind_writes: bool,
    /// Measured seconds of simulated time, after a warm-up of half as long.
    pub seconds: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            workers: 2,
            streams: 4,
            devices: 1,
            bandwidth: 20e9,
            latency: 20e-6,
            depth: 1,
            flush_interval: 0.0,
            epoch: 0.04,
            buffer: 8 << 20,
            anchor_interval: 128 << 10,
            in_flight: 65_536,
            memory: None,
            rows: 100_000,
            theta: 0.6,
            blind_writes: true,
            seconds: 0.1,
            seed: 1,
        }
    }
}

impl Machine {
    /// Checks that the machine can exist, and that the model can run the machine.
    ///
    /// # Errors
    /// A sentence that names the value and its limits.
    pub fn check(&self) -> Result<(), String> {
        let count = |what: &str, value: u64, most: u64| {
            if (1..=most).contains(&value) {
                return Ok(());
            }
            Err(format!("{what}: {value} is not simulated; choose 1 to {most}"))
        };
        count("workers", self.workers as u64, MAX_WORKERS as u64)?;
        count("log streams", self.streams as u64, MAX_STREAMS as u64)?;
        count("devices", self.devices as u64, 256)?;
        count("requests that a device serves at a time", self.depth as u64, 1 << 16)?;
        count("transactions in flight", self.in_flight as u64, 1 << 20)?;
        count("bytes between anchors", self.anchor_interval, 1 << 40)?;
        if !(2..=1 << 28).contains(&self.rows) {
            return Err(format!("{} rows are not simulated; choose 2 to {}", self.rows, 1 << 28));
        }
        if !(4096..=1 << 30).contains(&self.buffer) {
            let buffer = self.buffer;
            return Err(format!(
                "a buffer of {buffer} bytes is not simulated; choose 4 KiB to 1 GiB"
            ));
        }
        let above_zero = |what: &str, value: f64| {
            if value > 0.0 && value.is_finite() {
                return Ok(());
            }
            Err(format!("{what} must be above 0, not {value}"))
        };
        above_zero("the bandwidth of a device", self.bandwidth)?;
        above_zero("the bandwidth of memory", self.memory.unwrap_or(1.0))?;
        above_zero("the length of an epoch", self.epoch)?;
        above_zero("the simulated time", self.seconds)?;
        let from_zero = |what: &str, value: f64, most: f64| {
            if (0.0..=most).contains(&value) {
                return Ok(());
            }
            Err(format!("{what} must be 0 to {most}, not {value}"))
        };
        from_zero("the latency of a device in seconds", self.latency, 3600.0)?;
        from_zero("the flush interval in seconds", self.flush_interval, 3600.0)?;
        from_zero("the Zipf exponent", self.theta, 10.0)
    }
}
