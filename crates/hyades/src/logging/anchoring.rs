//! When streams get anchors: durable vectors that a compressed record may leave out what they cover
//! (Taurus, VLDB 2020, algorithm 5, FlushPLV).

use super::lsn_vector_table::LsnVectorTable;
use crate::config::LogSettings;
use hyades_wal::{Log, Writer};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Anchoring {
    log: Log,
    delta_bytes: u64,
    interval_bytes: u64,
    /// The last durable vector that was made an anchor, and the sum of its lanes.
    newest: Mutex<(Vec<u64>, u64)>,
    /// Counts anchors. Written under `newest`; read by sessions to see that there is a new one.
    generation: AtomicU64,
    /// The number of the anchor last written to each stream. Raised by whoever writes one.
    anchored: Box<[AtomicU64]>,
}

impl Anchoring {
    pub fn new(log: &Log, settings: &LogSettings) -> Self {
        let mut durable = vec![0; log.streams()];
        log.frontier().load_into(&mut durable);
        let sum = durable.iter().sum();
        Anchoring {
            log: log.clone(),
            delta_bytes: settings.delta_bytes,
            interval_bytes: settings.anchor_interval_bytes,
            newest: Mutex::new((durable, sum)),
            generation: AtomicU64::new(0),
            anchored: (0..log.streams()).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// A stream gets the newest anchor before the next record that may be compressed against it, and
    /// only then: an idle stream gets none.
    #[inline]
    pub fn enter_stream(&self, writer: &mut Writer, stream: usize) {
        // Acquire: pairs with the Release that counted the anchor.
        let newest = self.generation.load(Ordering::Acquire);
        // Relaxed: a session that finds an old number writes the same anchor once more.
        if self.anchored[stream].load(Ordering::Relaxed) == newest {
            return;
        }
        let vector = self.newest.lock().expect("no holder panics").0.clone();
        writer.append_anchor(stream, &vector);
        self.anchored[stream].fetch_max(newest, Ordering::Relaxed);
    }

    /// Once in a while: what is durable now becomes the anchor that each stream gets before its next
    /// record. What lies delta bytes behind is cold.
    pub fn keep_house(&self, table: &LsnVectorTable) {
        let Ok(mut newest) = self.newest.try_lock() else { return };
        let mut durable = vec![0; self.anchored.len()];
        self.log.frontier().load_into(&mut durable);
        let sum: u64 = durable.iter().sum();
        if sum < newest.1 + self.interval_bytes {
            return;
        }
        let cold: Vec<u64> =
            durable.iter().map(|lsn| lsn.saturating_sub(self.delta_bytes)).collect();
        *newest = (durable, sum);
        table.raise_cold(&cold, |reserved| {
            for (stream, lsn) in reserved.iter_mut().enumerate() {
                *lsn = self.log.next_lsn(stream);
            }
        });
        self.generation.fetch_add(1, Ordering::Release);
    }
}
