//! The modelled machine.

use serde::{Deserialize, Serialize};

/// Maximum number of log streams.
pub const MAX_STREAMS: usize = 16;

/// A machine and its load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Worker threads, each on a core of its own.
    pub workers: usize,
    /// Log streams, up to [`MAX_STREAMS`].
    pub streams: usize,
    /// Devices; streams are assigned to them round-robin.
    pub devices: usize,
    /// Bytes per second of a device.
    pub bandwidth: f64,
    /// Seconds from the last byte of a write to its completion.
    pub latency: f64,
    /// Seconds for which a flusher collects a batch; 0 to flush as soon as the device is free.
    pub flush_interval: f64,
    /// Length of an epoch in seconds.
    pub epoch: f64,
    /// The log buffer of a stream in bytes.
    pub buffer: f64,
    /// Transactions of a worker that may await acknowledgement.
    pub in_flight: usize,
    /// Rows.
    pub rows: u32,
    /// Simulated seconds that are measured, after a warm-up of half as long.
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
            flush_interval: 0.0,
            epoch: 0.04,
            buffer: (512 << 10) as f64,
            in_flight: 65_536,
            rows: 100_000,
            seconds: 0.1,
            seed: 1,
        }
    }
}
