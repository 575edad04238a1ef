//! Fuzz target for requests of Redis's protocol, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hyades_server::fuzzing::requests(bytes));
