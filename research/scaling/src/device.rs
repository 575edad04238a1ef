//! A device: the arithmetic of the engine's throttled device.

/// The time when a device will be done with its requests. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    ns_per_byte: f64,
    latency_ns: u64,
    /// The completion time of the last request in each slot; requests in different slots overlap.
    slots: Vec<u64>,
    /// The time when the last requested byte has been transferred.
    transferred: u64,
    /// The time of all requests in their slots.
    served: u64,
}

impl Device {
    pub(crate) fn new(bandwidth: f64, latency: f64, depth: usize) -> Device {
        Device {
            ns_per_byte: 1e9 / bandwidth,
            latency_ns: (latency * 1e9) as u64,
            slots: vec![0; depth],
            transferred: 0,
            served: 0,
        }
    }

    /// Accepts a request at `now`; returns when the request is complete.
    pub(crate) fn admit(&mut self, now: u64, bytes: u64) -> u64 {
        let Some(slot) = self.slots.iter_mut().min() else { return now };
        let begin = now.max(*slot);
        let transfer = (bytes as f64 * self.ns_per_byte).round() as u64;
        self.transferred = self.transferred.max(begin) + transfer;
        *slot = self.transferred + self.latency_ns;
        self.served += *slot - begin;
        *slot
    }

    /// The time in which the device served requests, of as many at a time as it takes.
    pub(crate) fn busy(&self) -> u64 {
        self.served / self.slots.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn transfers_never_overlap_and_latencies_only_in_a_queue() {
        // 8 MB/s is 125 ns per byte.
        let mut shallow = Device::new(8e6, 0.010, 1);
        assert_eq!([shallow.admit(0, 8_000), shallow.admit(0, 8_000)], [11 * MS, 22 * MS]);
        let mut deep = Device::new(8e6, 0.010, 2);
        assert_eq!([deep.admit(0, 8_000), deep.admit(0, 8_000)], [11 * MS, 12 * MS]);
        assert_eq!(deep.admit(0, 8_000), 22 * MS);
    }
}
