//! Fuzz target for the records of a transaction component.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hyades_deuteronomy::fuzzing::component_record(bytes));
