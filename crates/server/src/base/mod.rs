//! What any room uses: time, patterns, histograms.

pub mod clock;
pub mod glob;
pub mod histogram;
