//! Child processes of the same program: a run that is to crash, a recovery in a fresh process.

use crate::failure::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

/// How a child is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with exit code 0.
    Good,
    /// By killing itself once it has told its result.
    Killed,
}

const KILL: i32 = 9;

/// Starts this program with a hidden command, its settings on standard input.
///
/// # Errors
/// It could not be started.
pub fn spawn(command: &str, settings: &impl Serialize) -> Result<Child, Failure> {
    let started = || {
        let program = std::env::current_exe()?;
        let mut child = Command::new(program)
            .args(["hidden", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().expect("it was asked for");
        stdin.write_all(serde_json::to_string(settings)?.as_bytes())?;
        Ok::<_, std::io::Error>(child)
    };
    started().map_err(Failure::doing(format!("cannot start the process for {command:?}")))
}

/// Runs a child to its end and returns the result that it printed as JSON.
///
/// # Errors
/// It ended otherwise than it should; what it has to say about it is on standard error.
pub fn run<T: DeserializeOwned>(
    command: &str,
    settings: &impl Serialize,
    ending: Ending,
) -> Result<T, Failure> {
    let mut child = spawn(command, settings)?;
    let mut text = String::new();
    let mut stdout = child.stdout.take().expect("it was asked for");
    let read = stdout.read_to_string(&mut text);
    let status = child.wait().map_err(Failure::doing(format!("cannot wait for {command:?}")))?;
    let as_it_should = match ending {
        Ending::Good => status.success(),
        Ending::Killed => status.signal() == Some(KILL),
    };
    if !as_it_should {
        return Err(Failure::Failed(match status.code() {
            Some(2) => return Err(Failure::Usage(format!("{command:?} refused, see above"))),
            _ => format!("the process for {command:?} ended with {status}"),
        }));
    }
    read.map_err(Failure::doing(format!("cannot read from the process for {command:?}")))?;
    serde_json::from_str(&text)
        .map_err(Failure::doing(format!("the process for {command:?} did not give its result")))
}

/// In a child: the settings from standard input.
///
/// # Errors
/// They are not what this command takes.
pub fn settings<T: DeserializeOwned>() -> Result<T, Failure> {
    serde_json::from_reader(std::io::stdin().lock()).map_err(|error| {
        Failure::Usage(format!("this command is for the program's own use ({error})"))
    })
}

/// In a child: prints the result.
///
/// # Errors
/// The parent has gone.
pub fn tell(result: &impl Serialize) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let text = serde_json::to_string(result).map_err(Failure::doing("the result has no JSON"))?;
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Failure::doing("cannot tell the result"))
}

/// In a child: ends this process at once, as a crash would.
pub fn crash() -> ! {
    use rustix::process::{Signal, getpid, kill_process};
    // A process may always signal itself, and this signal is never held up.
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}
