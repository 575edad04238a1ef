//! Fuzz target for pieces of segments; see the `decoding` module.
#![no_main]

#[path = "../../crates/hyades/tests/decoding/mod.rs"]
mod decoding;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decoding::pieces(bytes));
