//! Fuzz target for clients of the server: it parses, runs and answers whatever they send. All
//! inputs of a process go to one database, in memory.
#![no_main]

use hyades_server::fuzzing::Fuzzed;
use std::cell::RefCell;

thread_local! {
    static SERVER: RefCell<Fuzzed> = {
        let dir = tempfile::tempdir_in("/dev/shm").expect("there is memory");
        // It is removed by the system: the process ends by a signal.
        RefCell::new(Fuzzed::new(&dir.keep()))
    };
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    SERVER.with_borrow_mut(|server| server.say(bytes));
});
