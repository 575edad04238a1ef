//! Short runs of `hyades bench`, as a script would start them.

use crate::common::{code, hyades, stderr, stdout};
use serde_json::Value;

/// Options of a short run whose report is JSON.
pub const SHORT: &str = "--seconds 0.3 --warmup 0.05 --reserve-memory 0 --json";

/// The report of a run with these words, which succeeds.
pub fn bench(words: &str) -> Value {
    let output = hyades(&format!("bench {words} {SHORT}"), &[]);
    assert_eq!(code(&output), 0, "{words}: {}", stderr(&output));
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 1, "{words}: one object, and nothing else: {text}");
    serde_json::from_str(&text).expect("it is JSON")
}
