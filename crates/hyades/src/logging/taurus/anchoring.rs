//! Anchoring: decides when streams get anchors, frames that state a durable vector, so that later
//! compressed vectors may leave out covered components (Taurus, VLDB 2020, algorithm 5, FlushPLV).

use super::lsn_vector_table::LsnVectorTable;
use crate::logging::settings::LogSettings;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Log, Writer};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Anchoring {
    log: Log,
    /// Summed over all streams, so that a stalled stream does not hold back the eviction vector.
    delta_bytes: u64,
    interval_bytes: u64,
    /// History of anchor vectors, oldest first. `back()` is the newest. `front()` is the newest
    /// vector already `delta_bytes` behind the durable frontier, summed over streams, if there is
    /// any.
    durable: Mutex<VecDeque<Durable>>,
    /// The sum of durable positions at which the next anchor is due. Written under `durable`;
    /// sessions read it as a hint, Relaxed.
    due: AtomicU64,
    /// The number of the newest anchor. Written under `durable`; sessions read it to detect a new
    /// anchor.
    generation: AtomicU64,
    /// By stream: the number of the stream's last anchor. Raised by the session that writes an
    /// anchor.
    anchored: Box<[AtomicU64]>,
}

/// The longest anchor interval while the LSN vector table is short of slots; everything durable is
/// evicted then. A shorter interval would be of no use while a stream is stalled.
const PRESSED_INTERVAL_BYTES: u64 = 128 << 10;

/// A durable vector.
struct Durable {
    vector: Vec<u64>,
    /// The sum of the components.
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
            due: AtomicU64::new(first.sum.saturating_add(settings.research.anchor_interval_bytes)),
            log: log.clone(),
            delta_bytes: settings.research.delta_bytes.saturating_mul(log.streams() as u64),
            interval_bytes: settings.research.anchor_interval_bytes,
            durable: Mutex::new(VecDeque::from([first])),
            generation: AtomicU64::new(0),
            anchored: (0..log.streams()).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Writes the newest anchor to the stream, unless already written, before the next record that
    /// may be compressed against the anchor. An idle stream gets no anchor.
    #[inline]
    pub fn enter_stream(&self, writer: &mut Writer, stream: usize) {
        // Acquire: pairs with the Release store of the anchor's number.
        let newest = self.generation.load(Ordering::Acquire);
        // Relaxed: a session that reads an old number writes the same anchor once more.
        if self.anchored[stream].load(Ordering::Relaxed) != newest {
            self.anchor(writer, stream, newest);
        }
    }

    #[cold]
    fn anchor(&self, writer: &mut Writer, stream: usize, newest: u64) {
        let durable = self.durable.lock().unpoisoned();
        let vector = durable.back().expect("the last one is kept").vector.clone();
        drop(durable);
        writer.append_anchor(stream, &vector);
        // Release: a session that reads the number reserves its record behind the anchor.
        self.anchored[stream].fetch_max(newest, Ordering::Release);
    }

    /// Makes the durable frontier the next anchor, if due; each stream gets the anchor before the
    /// next record. Evicts positions `delta_bytes` behind, and passes the eviction vector to
    /// `raised`.
    pub fn housekeep(&self, table: &LsnVectorTable, raised: impl FnOnce(&[u64])) {
        let sum: u64 = (0..self.anchored.len()).map(|s| self.log.frontier().durable(s)).sum();
        let short_of_slots = table.is_short_of_slots();
        if sum < self.due.load(Ordering::Relaxed) && !short_of_slots {
            return;
        }
        let Ok(mut durable) = self.durable.try_lock() else { return };
        let now = Durable::now(&self.log);
        let newest = durable.back().expect("the last one is kept").sum;
        // The settings are preferences: anything durable may be evicted.
        let (interval_bytes, delta_bytes) = match short_of_slots {
            true => (self.interval_bytes.min(PRESSED_INTERVAL_BYTES), 0),
            false => (self.interval_bytes, self.delta_bytes),
        };
        if now.sum < newest.saturating_add(interval_bytes) {
            return;
        }
        table.clear_shortage();
        let is_evicted = |candidate: &Durable| candidate.sum.saturating_add(delta_bytes) <= now.sum;
        let evicted = durable.iter().filter(|candidate| is_evicted(candidate)).count();
        let evict = |last: &Durable| {
            table.raise_eviction(&last.vector, |reserved| {
                for (stream, lsn) in reserved.iter_mut().enumerate() {
                    *lsn = self.log.next_lsn(stream);
                }
            });
            raised(&last.vector);
        };
        if is_evicted(&now) {
            durable.clear();
            evict(&now);
        } else if evicted > 0 {
            durable.drain(..evicted - 1);
            evict(&durable[0]);
        }
        self.due.store(now.sum.saturating_add(self.interval_bytes), Ordering::Relaxed);
        durable.push_back(now);
        // Release: pairs with the Acquire load of a session that then loads the vector.
        self.generation.fetch_add(1, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use hyades_wal::{FrameKind, IncarnationSettings, Lane, LogOptions};

    /// Appends a record to the stream and waits until it is durable.
    fn write(log: &Log, writer: &mut Writer, stream: usize) {
        let reservation = writer.reserve(stream, 100);
        let end = reservation.end();
        reservation.fill(FrameKind::Record, &[7; 100]);
        log.wait(Lane::position(stream), end).unwrap();
    }

    #[test]
    fn a_stream_covers_what_is_evicted_once_it_has_the_anchor() {
        for delta_bytes in [0, 150] {
            let dir = tempfile::tempdir().unwrap();
            let recovering =
                hyades_wal::open(LogOptions::new(vec![dir.path().to_owned()], 2)).unwrap();
            let verdict = recovering.verdict(&[]).unwrap();
            let log = recovering.start(IncarnationSettings::default(), &verdict, 1).unwrap();
            let mut writer = log.writer().unwrap();
            let mut settings = LogSettings::default();
            (settings.research.anchor_interval_bytes, settings.research.delta_bytes) =
                (100, delta_bytes);
            let (table, anchoring) = (
                LsnVectorTable::on(&log, settings.hot_rows_bytes),
                Anchoring::new(&log, &settings),
            );
            let mut behind = 0;
            for round in 0..20 {
                let enters = round % 4 == 3;
                for stream in 0..2 {
                    if enters {
                        anchoring.enter_stream(&mut writer, stream);
                    }
                    let anchor = log.anchors(stream).iter();
                    let anchor = anchor.map(|lsn| lsn.load(Ordering::Acquire));
                    let covered = table.is_eviction_below(anchor);
                    assert!(covered || !enters, "{delta_bytes}, {round}");
                    behind += u32::from(!covered);
                }
                write(&log, &mut writer, round % 2);
                write(&log, &mut writer, round % 2);
                anchoring.housekeep(&table, |_| ());
            }
            assert!(behind > 0, "no stream was ever without the anchor: nothing was tried");
            drop(writer);
            log.close().unwrap();
        }
    }
}
