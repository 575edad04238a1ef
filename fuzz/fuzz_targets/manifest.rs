//! See `decoding`, which this runs the target `manifest` of.
#![no_main]

#[path = "../../crates/hyades/tests/decoding/mod.rs"]
mod decoding;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decoding::manifest(bytes));
