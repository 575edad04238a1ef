//! Splits the replay of a record into its parts: a log is read on one thread, once without and once
//! with decoding, and once more with the copies of a parked record.

use hyades::inspect::Inspector;
use hyades_scaling::costs::ReplayParts;
use hyades_wal::{LogOptions, Lsn};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

/// The steps of a pass over the log.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Pass {
    Read,
    Decode,
    Copy,
}

/// The places of a window.
const WINDOW: usize = 32;

/// The content of a parked record.
#[derive(Default)]
struct Place {
    order: Vec<Lsn>,
    validity: Vec<Lsn>,
    body: Vec<u8>,
}

impl Place {
    fn keep(&mut self, order: &[Lsn], validity: &[Lsn], body: &[u8]) {
        self.order.clear();
        self.order.extend_from_slice(order);
        self.validity.clear();
        self.validity.extend_from_slice(validity);
        self.body.clear();
        self.body.extend_from_slice(body);
    }
}

/// Measures the parts of a log's replay; `None` if the log cannot be read or has no records. The
/// fastest of several passes counts, for a busy machine makes some too slow, and none too fast.
pub(super) fn measure(dir: &Path) -> Option<ReplayParts> {
    let least = |pass: Pass| {
        let all = (0..5).filter_map(|_| each_ns(dir, pass));
        all.min_by(f64::total_cmp)
    };
    let (read, decode, copy) = (least(Pass::Read)?, least(Pass::Decode)?, least(Pass::Copy)?);
    let (decode_ns, copy_ns) = ((decode - read).max(0.0), (copy - decode).max(0.0));
    Some(ReplayParts { read_ns: read, decode_ns, copy_ns, slowdown: None })
}

/// The time of a pass for each record of the newest incarnation, in nanoseconds.
fn each_ns(dir: &Path, pass: Pass) -> Option<f64> {
    let log = hyades_wal::open_read(LogOptions::new(vec![dir.to_owned()], 1)).ok()?;
    let manifest = log.manifest();
    let newest = manifest.newest()?.clone();
    let inspector = Inspector::new(manifest).ok()?;
    let mut window: Vec<Place> = (0..WINDOW).map(|_| Place::default()).collect();
    let (mut records, mut ns) = (0_u64, 0);
    for mut reader in log.readers() {
        if reader.incarnation != newest.number {
            continue;
        }
        let mut stream = inspector.stream(&newest, reader.stream.0);
        loop {
            let began = Instant::now();
            let Some(chunk) = reader.next_chunk().ok()? else { break };
            if pass == Pass::Read {
                ns += began.elapsed().as_nanos();
                records += chunk.frames().filter(is_record).count() as u64;
                continue;
            }
            stream.enter(&chunk);
            for frame in chunk.frames() {
                let Some(record) = stream.read(&frame).ok()? else { continue };
                records += 1;
                if pass == Pass::Copy {
                    let place = &mut window[records as usize % WINDOW];
                    place.keep(record.order(), record.validity(), frame.payload);
                } else {
                    black_box((record.order(), record.validity()));
                }
            }
            ns += began.elapsed().as_nanos();
        }
    }
    black_box(&window);
    (records > 0).then(|| ns as f64 / records as f64)
}

fn is_record(frame: &hyades_wal::Frame<'_>) -> bool {
    frame.kind == hyades_wal::FrameKind::Record
}
