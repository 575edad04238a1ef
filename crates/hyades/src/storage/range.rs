//! The key range of a scan.

use super::value::Value;
use std::ops::Bound;

/// A key range. Bounds are key prefixes: an included upper bound includes every key that starts
/// with the bound, an excluded lower bound excludes every key that starts with the bound.
#[derive(Clone, Copy, Debug)]
pub struct Range<'k> {
    /// The lower bound.
    pub lower: Bound<&'k [Value<'k>]>,
    /// The upper bound.
    pub upper: Bound<&'k [Value<'k>]>,
    /// Whether to scan from the upper bound downwards.
    pub descending: bool,
    /// The maximum number of rows.
    pub limit: usize,
}
