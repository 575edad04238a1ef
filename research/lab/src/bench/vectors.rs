//! `hyades-lab bench vectors`: the time of LSN vectors alone, by operation.
//!
//! The axis of the Taurus paper's figure on the number of log files (2020, figure 16) is the time
//! of vectors, not of transactions. So this folds, compares and encodes vectors in a loop on one
//! thread, without rows, locks and a log.

use super::knobs::Switch;
use clap::Args;
use hyades_cli::failure::Failure;
use hyades_cli::units;
use hyades_wal::{compress, lsn_vector};
use serde_json::json;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Options of `hyades-lab bench vectors`.
#[derive(Args, Clone, Debug)]
pub struct VectorOptions {
    /// Log streams: the components of a vector
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=64))]
    streams: u64,
    /// Fold and compare vectors of more than eight streams with the processor's vector
    /// instructions (on) or without (off)
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    simd: Switch,
    /// Length of the measurement, in seconds or with a unit
    #[arg(long, default_value = "1", value_parser = units::some_seconds)]
    seconds: f64,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Vectors that are folded in turn: with 64 components they fit into the first-level cache.
const VECTORS: usize = 32;
/// One component of this number is above the last anchor, and so in a record.
const APART: usize = 8;
/// Operations between two looks at the clock.
const BATCH: usize = 8_192;
/// Folds of a transaction that reads one row and writes another: it folds what the read row's last
/// writer left, what the written row's last writer and its readers left, and then its own vector
/// into both rows.
const FOLDS: f64 = 5.0;

/// Nanoseconds of an operation.
struct VectorTimes {
    fold: f64,
    compare: f64,
    encode: f64,
}

impl VectorTimes {
    /// The times of a transaction with two accesses: one comparison for the acknowledgement, and
    /// one vector in the record.
    fn transaction(&self) -> f64 {
        FOLDS * self.fold + self.compare + self.encode
    }
}

/// Runs `hyades-lab bench vectors`.
///
/// # Errors
/// The result cannot be written.
pub fn vectors(options: &VectorOptions) -> Result<bool, Failure> {
    lsn_vector::set_portable(options.simd == Switch::Off);
    let streams = options.streams as usize;
    let wide = lsn_vector::uses_vector_instructions() && streams > lsn_vector::INLINE_LANES;
    let times = measure(streams, options.seconds);
    let whole = times.transaction();
    let VectorTimes { fold, compare, encode } = times;
    if options.json {
        let report = json!({
            "streams": streams,
            "vector_instructions": wide,
            "vectors": {
                "fold_ns": fold, "compare_ns": compare, "encode_ns": encode,
                "folds": FOLDS, "transaction_ns": whole,
            },
        });
        println!("{report}");
    } else {
        let how = if wide { "with" } else { "without" };
        println!("  {:<14}{streams}, {how} vector instructions", "streams");
        for (name, nanoseconds) in
            [("fold", fold), ("compare", compare), ("encode", encode), ("transaction", whole)]
        {
            println!("  {name:<14}{nanoseconds:.1} ns");
        }
        println!("  a transaction of two accesses: {FOLDS} folds, a comparison, an encoding");
    }
    Ok(true)
}

fn measure(streams: usize, seconds: f64) -> VectorTimes {
    let seconds = seconds / 3.0;
    let component = |vector: usize, lane: usize| 1_000_000 + (vector * 37 + lane * 11) as u64 % 997;
    let rows: Vec<Vec<u64>> = (0..VECTORS)
        .map(|vector| (0..streams).map(|lane| component(vector, lane)).collect())
        .collect();
    // Read like the log's own anchor, which flushers raise.
    let anchor: Vec<AtomicU64> = (0..streams)
        .map(|lane| AtomicU64::new(if lane % APART == 0 { 0 } else { 2_000_000 }))
        .collect();
    let mut own = vec![0; streams];
    let mut out = Vec::with_capacity(16 * streams);
    let fold = nanoseconds(seconds, |at| {
        lsn_vector::join(black_box(&mut own), black_box(&rows[at % VECTORS]));
    });
    let compare = nanoseconds(seconds, |at| {
        black_box(lsn_vector::covers(black_box(&own), black_box(&rows[at % VECTORS])));
    });
    let encode = nanoseconds(seconds, |at| {
        out.clear();
        let vector = black_box(&rows[at % VECTORS]);
        compress::encode(&mut out, vector, &anchor, |lsn| lsn.load(Ordering::Acquire));
        black_box(&out);
    });
    VectorTimes { fold, compare, encode }
}

/// The nanoseconds of an operation: the median over batches, so that an interruption counts once.
fn nanoseconds(seconds: f64, mut operation: impl FnMut(usize)) -> f64 {
    let (limit, began) = (Duration::from_secs_f64(seconds), Instant::now());
    let mut batches = Vec::new();
    while batches.is_empty() || began.elapsed() < limit {
        let start = Instant::now();
        (0..BATCH).for_each(&mut operation);
        batches.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    batches.sort_by(f64::total_cmp);
    batches[batches.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More components take longer, and a transaction takes longer than any of its operations.
    #[test]
    fn times_grow_with_the_streams() {
        let (few, many) = (measure(1, 0.03), measure(64, 0.03));
        assert!(many.encode > few.encode, "{} {}", many.encode, few.encode);
        for times in [few, many] {
            let VectorTimes { fold, compare, encode } = times;
            let least = fold.min(compare).min(encode);
            assert!(least > 0.0 && times.transaction() > fold.max(compare).max(encode));
        }
    }
}
