//! `hyades serve` as a process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// A server.
pub struct Process {
    pub child: Child,
    pub address: String,
    /// Reads the process's output on stderr.
    said: Option<JoinHandle<String>>,
}

impl Process {
    /// Starts a process over the database in `dir`, on a port of the process's choice, with two
    /// loops, and waits until the process is ready.
    pub fn start(dir: &Path) -> Process {
        Process::start_with(dir, &[])
    }

    /// As [`Process::start`], with further settings.
    pub fn start_with(dir: &Path, settings: &[&str]) -> Process {
        Process::spawn(&mut Command::new(env!("CARGO_BIN_EXE_hyades")), dir, settings)
    }

    /// As [`Process::start`], by a command line that ends with the program.
    pub fn spawn(command: &mut Command, dir: &Path, settings: &[&str]) -> Process {
        let mut child = command
            .args(["serve", "--loops", "2", "--streams", "4", "--port", "0", "--dir"])
            .arg(dir)
            .args(settings)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        let stderr = child.stderr.take().expect("it is a pipe");
        let said = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap_or_default());
        BufReader::new(stdout).read_line(&mut line).expect("it says that it is ready");
        let address = line.strip_prefix("ready on ").expect("it is ready").trim().to_string();
        Process { child, address, said: Some(said) }
    }

    /// Waits for the end: the exit code, and the output on stderr.
    #[allow(dead_code, reason = "each test file uses its part")]
    pub fn end(&mut self) -> (Option<i32>, String) {
        let status = self.child.wait().expect("it is a child");
        let said = self.said.take().expect("it ends once");
        (status.code(), said.join().expect("the thread does not panic"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
