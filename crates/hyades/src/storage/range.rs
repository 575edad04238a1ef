//! Ranges of keys, as a scan is given one.

use super::value::Value;
use std::ops::Bound;

/// A key range. Bounds are key prefixes: an included upper bound takes every key that starts with
/// it, an excluded lower bound passes over every key that starts with it.
#[derive(Clone, Copy, Debug)]
pub struct Range<'k> {
    /// Where the range begins.
    pub lower: Bound<&'k [Value<'k>]>,
    /// Where the range ends.
    pub upper: Bound<&'k [Value<'k>]>,
    /// From the upper end downwards.
    pub descending: bool,
    /// At most this many rows.
    pub limit: usize,
}
