//! When streams get anchors: durable vectors that a compressed record may leave out what they cover
//! (Taurus, VLDB 2020, algorithm 5, FlushPLV).

use super::lsn_vector_table::LsnVectorTable;
use super::settings::LogSettings;
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
    /// The number of an anchor that is at least the cold vector. Raised under `durable`, before the cold vector
    /// is; read by sessions after they found something cold.
    cold: AtomicU64,
}

/// Where slots of the hot-row table get few there is an anchor after so many bytes at least, and all that is durable
/// is cold. Not more often: while a stream stands still it would be of no use.
const PRESSED_INTERVAL_BYTES: u64 = 128 << 10;

/// How far the streams were durable.
struct Durable {
    vector: Vec<u64>,
    /// The sum of its lanes.
    sum: u64,
    /// The number of the anchor that it is, or of one that is above it.
    number: u64,
}

impl Durable {
    fn now(log: &Log, number: u64) -> Durable {
        let mut vector = vec![0; log.streams()];
        log.frontier().load_into(&mut vector);
        let sum = vector.iter().sum();
        Durable { vector, sum, number }
    }
}

impl Anchoring {
    pub fn new(log: &Log, settings: &LogSettings) -> Self {
        // It is no anchor itself, and below the first that there will be.
        let first = Durable::now(log, 1);
        Anchoring {
            due: AtomicU64::new(first.sum.saturating_add(settings.anchor_interval_bytes)),
            log: log.clone(),
            delta_bytes: settings.delta_bytes.saturating_mul(log.streams() as u64),
            interval_bytes: settings.anchor_interval_bytes,
            durable: Mutex::new(VecDeque::from([first])),
            generation: AtomicU64::new(0),
            anchored: (0..log.streams()).map(|_| AtomicU64::new(0)).collect(),
            cold: AtomicU64::new(0),
        }
    }

    /// Whether the stream's anchor covers all that the caller has found to be cold: of what a record that gets its
    /// place there from now on depends on, that can be left out.
    #[inline(always)]
    pub fn covers_cold(&self, stream: usize) -> bool {
        // Relaxed: what was found to be cold is so since after this was raised. Acquire: the anchor has its place.
        let cold = self.cold.load(Ordering::Relaxed);
        self.anchored[stream].load(Ordering::Acquire) >= cold
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
        // Release: who finds the number gets a place behind the anchor.
        self.anchored[stream].fetch_max(newest, Ordering::Release);
    }

    /// Once in a while: what is durable now becomes the anchor that each stream gets before its next
    /// record. What lies delta bytes behind is cold; `cooled` is told that.
    pub fn keep_house(&self, table: &LsnVectorTable, cooled: impl FnOnce(&[u64])) {
        let sum: u64 = (0..self.anchored.len()).map(|s| self.log.frontier().durable(s)).sum();
        let pressed = table.is_pressed();
        if sum < self.due.load(Ordering::Relaxed) && !pressed {
            return;
        }
        let Ok(mut durable) = self.durable.try_lock() else { return };
        let number = self.generation.load(Ordering::Relaxed) + 1;
        let now = Durable::now(&self.log, number);
        let newest = durable.back().expect("the last one is kept").sum;
        // The settings say how much is worth while to keep, not how much has to be: what is durable may be cold.
        let (interval_bytes, delta_bytes) = match pressed {
            true => (self.interval_bytes.min(PRESSED_INTERVAL_BYTES), 0),
            false => (self.interval_bytes, self.delta_bytes),
        };
        if now.sum < newest.saturating_add(interval_bytes) {
            return;
        }
        table.relieve();
        let is_cold = |of: &Durable| of.sum.saturating_add(delta_bytes) <= now.sum;
        let cold = durable.iter().filter(|of| is_cold(of)).count();
        let cool = |cold: &Durable| {
            // Relaxed: whatever tells that something is cold is stored with Release after this.
            self.cold.store(cold.number, Ordering::Relaxed);
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
        self.generation.store(number, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use hyades_wal::{FrameKind, IncarnationSettings, LogOptions};

    /// Appends to the stream and waits until that is durable.
    fn write(log: &Log, writer: &mut Writer, stream: usize) {
        let reservation = writer.reserve(stream, 100);
        let end = reservation.end();
        reservation.fill(FrameKind::Record, &[7; 100]);
        log.wait(stream, end).unwrap();
    }

    #[test]
    fn a_stream_covers_what_is_cold_once_it_has_the_anchor() {
        for delta_bytes in [0, 150] {
            let dir = tempfile::tempdir().unwrap();
            let recovering =
                hyades_wal::open(LogOptions::new(vec![dir.path().to_owned()], 2)).unwrap();
            let verdict = recovering.verdict(&[]).unwrap();
            let log = recovering.start(IncarnationSettings::default(), &verdict, 1).unwrap();
            let mut writer = log.writer().unwrap();
            let mut settings = LogSettings::default();
            (settings.anchor_interval_bytes, settings.delta_bytes) = (100, delta_bytes);
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
                    let mut cold = [0; 2];
                    table.load_cold(&mut cold);
                    let published =
                        log.anchors(stream).iter().map(|lsn| lsn.load(Ordering::Acquire));
                    let covered = published.zip(cold).all(|(lsn, cold)| lsn >= cold);
                    assert!(covered || !anchoring.covers_cold(stream), "{delta_bytes}, {round}");
                    assert!(!enters || anchoring.covers_cold(stream));
                    behind += u32::from(!covered);
                }
                write(&log, &mut writer, round % 2);
                write(&log, &mut writer, round % 2);
                anchoring.keep_house(&table, |_| ());
            }
            assert!(behind > 0, "no stream was ever without the anchor: nothing was tried");
            drop(writer);
            log.close().unwrap();
        }
    }
}
