//! Short runs of `hyades-lab bench`, as started by a script.

use crate::common::{code, lab, stderr, stdout};
use serde_json::Value;

/// Options of a short run with a report in JSON.
pub const SHORT: &str = "--seconds 0.3 --warmup 0.05 --reserve-memory 0 --json";

/// The report of a successful run with `words`. A busy disk may acknowledge nothing in the short
/// interval: then the run is repeated.
pub fn bench(words: &str) -> Value {
    bench_until(words, |report| report["acknowledged"].as_u64() > Some(0))
}

/// The report of a run with `words`, repeated some times until `holds` is true.
pub fn bench_until(words: &str, holds: impl Fn(&Value) -> bool) -> Value {
    const TRIES: usize = 10;
    let mut report = bench_once(words);
    for _ in 1..TRIES {
        if holds(&report) {
            break;
        }
        report = bench_once(words);
    }
    report
}

/// The report of a single, successful run with `words`.
pub fn bench_once(words: &str) -> Value {
    let output = lab(&format!("bench {words} {SHORT}"), &[]);
    assert_eq!(code(&output), 0, "{words}: {}", stderr(&output));
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 1, "{words}: one object, and nothing else: {text}");
    serde_json::from_str(&text).expect("it is JSON")
}
