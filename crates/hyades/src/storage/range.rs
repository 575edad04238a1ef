//! The key range of a scan.

use super::value::Value;
use std::ops::Bound;

/// A key range. Bounds are key prefixes: an included upper bound includes every key that starts
/// with it, an excluded lower bound excludes every key that starts with it.
#[derive(Clone, Copy, Debug)]
pub struct Range<'k> {
    /// The lower bound.
    pub lower: Bound<&'k [Value<'k>]>,
    /// The upper bound.
    pub upper: Bound<&'k [Value<'k>]>,
    /// Whether to scan from the upper bound downwards.
    pub descending: bool,
    /// At most this many rows.
    pub limit: usize,
}
