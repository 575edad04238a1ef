//! Prefetch hints for cache lines that are about to be read.

pub(crate) use hyades_platform::prefetch::{prefetch, prefetch_bytes};
