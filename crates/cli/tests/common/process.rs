//! `hyades serve` as a process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server.
pub struct Process {
    pub child: Child,
    pub address: String,
}

impl Process {
    /// Starts one over the database in `dir`, on a port of its choice, with two loops, and
    /// waits until it is ready.
    pub fn start(dir: &Path) -> Process {
        Process::start_with(dir, &[])
    }

    /// As [`Process::start`], with further settings.
    pub fn start_with(dir: &Path, settings: &[&str]) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_hyades"))
            .args(["serve", "--loops", "2", "--streams", "4", "--port", "0", "--dir"])
            .arg(dir)
            .args(settings)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it says that it is ready");
        let address = line.strip_prefix("ready on ").expect("it is ready").trim().to_string();
        Process { child, address }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
