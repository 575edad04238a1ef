//! Basics for all modules: time, patterns, histograms, digests, ids of streams.

pub mod clock;
pub mod geohash;
pub mod glob;
pub mod hash_slot;
pub mod histogram;
pub mod sha1;
pub mod stream_id;
pub mod xxh3;
