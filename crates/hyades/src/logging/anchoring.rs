//! When streams get anchors: durable vectors that a compressed record may leave out what they cover
//! (Taurus, VLDB 2020, algorithm 5, FlushPLV).

use super::lsn_vector_table::LsnVectorTable;
use crate::config::LogSettings;
use hyades_wal::{Log, Writer};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Anchoring {
    log: Log,
    /// In all streams together: one that stands still does not hold the cold vector up.
    delta_bytes: u64,
    interval_bytes: u64,
    /// The durable vectors that were made anchors: the last one, and those before it that are not yet delta
    /// bytes behind in every stream, on average; the first of all is, if any.
    durable: Mutex<VecDeque<Durable>>,
    /// The sum of lanes from which on there is to be another anchor. Written under `durable`; read by sessions as a
    /// hint, Relaxed.
    due: AtomicU64,
    /// Counts anchors. Written under `durable`; read by sessions to see that there is a new one.
    generation: AtomicU64,
    /// The number of the anchor last written to each stream. Raised by whoever writes one.
    anchored: Box<[AtomicU64]>,
}

/// How far the streams were durable.
struct Durable {
    vector: Vec<u64>,
    /// The sum of its lanes.
    sum: u64,
}

impl Durable {
    fn now(log: &Log) -> Durable {
        let mut vector = vec![0; log.streams()];
        log.frontier().load_into(&mut vector);
        let sum = vector.iter().sum();
        Durable { vector, sum }
    }
}

impl Anchoring {
    pub fn new(log: &Log, settings: &LogSettings) -> Self {
        let first = Durable::now(log);
        Anchoring {
            due: AtomicU64::new(first.sum.saturating_add(settings.anchor_interval_bytes)),
            log: log.clone(),
            delta_bytes: settings.delta_bytes.saturating_mul(log.streams() as u64),
            interval_bytes: settings.anchor_interval_bytes,
            durable: Mutex::new(VecDeque::from([first])),
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
        if self.anchored[stream].load(Ordering::Relaxed) != newest {
            self.anchor(writer, stream, newest);
        }
    }

    #[cold]
    fn anchor(&self, writer: &mut Writer, stream: usize, newest: u64) {
        let durable = self.durable.lock().expect("no holder panics");
        let vector = durable.back().expect("the last one is kept").vector.clone();
        drop(durable);
        writer.append_anchor(stream, &vector);
        self.anchored[stream].fetch_max(newest, Ordering::Relaxed);
    }

    /// Once in a while: what is durable now becomes the anchor that each stream gets before its next
    /// record. What lies delta bytes behind is cold; `cooled` is told that.
    pub fn keep_house(&self, table: &LsnVectorTable, cooled: impl FnOnce(&[u64])) {
        let sum: u64 = (0..self.anchored.len()).map(|s| self.log.frontier().durable(s)).sum();
        if sum < self.due.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut durable) = self.durable.try_lock() else { return };
        let now = Durable::now(&self.log);
        let newest = durable.back().expect("the last one is kept").sum;
        if now.sum < newest.saturating_add(self.interval_bytes) {
            return;
        }
        let is_cold = |of: &Durable| of.sum.saturating_add(self.delta_bytes) <= now.sum;
        let cold = durable.iter().filter(|of| is_cold(of)).count();
        let cool = |cold: &Durable| {
            table.raise_cold(&cold.vector, |reserved| {
                for (stream, lsn) in reserved.iter_mut().enumerate() {
                    *lsn = self.log.next_lsn(stream);
                }
            });
            cooled(&cold.vector);
        };
        if is_cold(&now) {
            durable.clear();
            cool(&now);
        } else if cold > 0 {
            durable.drain(..cold - 1);
            cool(&durable[0]);
        }
        self.due.store(now.sum.saturating_add(self.interval_bytes), Ordering::Relaxed);
        durable.push_back(now);
        self.generation.fetch_add(1, Ordering::Release);
    }
}
