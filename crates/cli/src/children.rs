//! Child processes of this program: a run that ends in a crash, a recovery in a fresh process.

use crate::failure::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

/// How a child process is expected to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The child exits with code 0.
    Good,
    /// The child kills itself after printing its result.
    Killed,
}

const KILL: i32 = 9;

/// Starts this program with a hidden command. The settings go to its standard input as JSON.
///
/// # Errors
/// The process could not be started.
pub fn spawn(command: &str, settings: &impl Serialize) -> Result<Child, Failure> {
    let started = || {
        let program = std::env::current_exe()?;
        let mut child = Command::new(program)
            .args(["hidden", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().expect("standard input is piped");
        stdin.write_all(serde_json::to_string(settings)?.as_bytes())?;
        Ok::<_, std::io::Error>(child)
    };
    started().map_err(Failure::doing(format!("cannot start the process for {command:?}")))
}

/// Runs a child to its end and returns the result, printed by the child as JSON.
///
/// # Errors
/// The child did not end as expected; its messages are on standard error.
pub fn run<T: DeserializeOwned>(
    command: &str,
    settings: &impl Serialize,
    ending: Ending,
) -> Result<T, Failure> {
    let mut child = spawn(command, settings)?;
    let mut text = String::new();
    let mut stdout = child.stdout.take().expect("standard output is piped");
    let read = stdout.read_to_string(&mut text);
    let status = child.wait().map_err(Failure::doing(format!("cannot wait for {command:?}")))?;
    let as_it_should = match ending {
        Ending::Good => status.success(),
        Ending::Killed => status.signal() == Some(KILL),
    };
    if !as_it_should {
        return Err(Failure::Failed(match status.code() {
            Some(2) => return Err(Failure::Usage(format!("{command:?} was rejected, see above"))),
            _ => format!("the process for {command:?} ended with {status}"),
        }));
    }
    read.map_err(Failure::doing(format!("cannot read from the process for {command:?}")))?;
    serde_json::from_str(&text)
        .map_err(Failure::doing(format!("the process for {command:?} printed no valid result")))
}

/// In a child: reads the settings from standard input.
///
/// # Errors
/// The input is not the settings of the command.
pub fn settings<T: DeserializeOwned>() -> Result<T, Failure> {
    serde_json::from_reader(std::io::stdin().lock()).map_err(|error| {
        Failure::Usage(format!("only child processes of this program run this ({error})"))
    })
}

/// In a child: prints the result.
///
/// # Errors
/// The parent has exited.
pub fn tell(result: &impl Serialize) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let text =
        serde_json::to_string(result).map_err(Failure::doing("cannot write the result as JSON"))?;
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Failure::doing("cannot print the result"))
}

/// In a child: ends this process at once, as a crash would.
pub fn crash() -> ! {
    use rustix::process::{Signal, getpid, kill_process};
    // A process may always signal itself, and SIGKILL cannot be blocked.
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}
