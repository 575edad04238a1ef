//! Counts instructions: runs this program again under valgrind's callgrind, to count the
//! instructions of a function, including all called functions, on the calling thread.

use std::fs;
use std::process::Command;

/// The counted function. The name must not occur elsewhere in the program.
const COUNTED: &str = "*counted_by_callgrind*";

/// Calls `work` inside the counted function.
#[inline(never)]
pub fn counted_by_callgrind(work: &mut dyn FnMut()) {
    work();
}

/// Runs the current program with `arguments` and returns the instructions executed in
/// [`counted_by_callgrind`]. Panics with a message if something is missing.
pub fn instructions(arguments: &[String]) -> u64 {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let counts = directory.path().join("counts");
    let program = std::env::current_exe().expect("the path of this program");
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| {
            panic!("valgrind does not start ({error}): install it, nothing can be counted without")
        });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?} failed under valgrind:\n{said}");
    let text = fs::read_to_string(&counts)
        .unwrap_or_else(|error| panic!("callgrind wrote no counts ({error}):\n{said}"));
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total.and_then(|number| number.trim().parse().ok());
    total.unwrap_or_else(|| panic!("callgrind counted nothing for {arguments:?}:\n{said}"))
}
