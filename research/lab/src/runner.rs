//! Runs a command of this program in a separate process, and reads the output.

use hyades_cli::failure::Failure;
use hyades_cli::units;
use hyades_report::data::Outcome;
use hyades_report::table::RUN_DIR;
use hyades_report::table::simulated::CALIBRATION;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A run longer than this limit plus the measured time is considered hung and killed.
const LIMIT: Duration = Duration::from_secs(300);
/// Placeholder for the log directory of a command, for an inspection of the log afterwards.
const LOG: &str = "LOG";

/// Runs commands.
pub struct Runner {
    program: PathBuf,
    calibration: Option<PathBuf>,
}

impl Runner {
    /// Creates a runner. `calibration`, the file with the model's costs, replaces the placeholder
    /// in the commands of a report.
    ///
    /// # Errors
    /// The executable of this program is not found.
    pub fn new(calibration: Option<PathBuf>) -> Result<Runner, Failure> {
        let program = std::env::current_exe();
        let program = program.map_err(Failure::doing("cannot find this program's executable"))?;
        Ok(Runner { program, calibration })
    }

    /// Runs this program with `words` and `--json`. A temporary directory replaces the word `LOG`,
    /// and the output of `log stat` on the directory is added to the result as `log`. Directories
    /// named [`RUN_DIR`] are removed afterwards; if a directory is there before, nothing is run.
    pub fn run(&self, words: &[String]) -> Outcome {
        if let Some(why) = taken(words) {
            return Outcome::Failed(why);
        }
        let outcome = self.run_with_log(words);
        for dir in run_dirs(words) {
            // A refused run did not make the directory.
            let _ = std::fs::remove_dir_all(dir);
        }
        outcome
    }

    fn run_with_log(&self, words: &[String]) -> Outcome {
        let needs_log = words.iter().any(|word| word == LOG);
        if !needs_log {
            return self.json(words, None);
        }
        // In shared memory, where runs with `LOG` keep their logs.
        let Ok(dir) = tempfile::Builder::new().prefix("hyades-").tempdir_in("/dev/shm") else {
            return Outcome::Failed("cannot create a directory in /dev/shm".to_string());
        };
        let log = dir.path().join("log");
        let ran = self.json(words, Some(&log));
        let Outcome::Done(mut value) = ran else { return ran };
        let look = ["log".to_string(), "stat".to_string(), LOG.to_string()];
        match self.json(&look, Some(&log)) {
            Outcome::Done(stat) => {
                value["log"] = stat;
                Outcome::Done(value)
            }
            failed => failed,
        }
    }

    fn json(&self, words: &[String], log: Option<&Path>) -> Outcome {
        let child = Command::new(&self.program)
            .args(words.iter().map(|word| match (word.as_str(), log, &self.calibration) {
                (LOG, Some(log), _) => log.as_os_str().to_owned(),
                (CALIBRATION, _, Some(file)) => file.as_os_str().to_owned(),
                (word, _, _) => word.into(),
            }))
            .arg("--json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        match child {
            Ok(child) => wait(child, limit_of(words)),
            Err(error) => Outcome::Failed(format!("cannot be started: {error}")),
        }
    }
}

/// A run's own directories, below the given directories for logs.
fn run_dirs(words: &[String]) -> impl Iterator<Item = &Path> {
    let pairs = words.iter().zip(words.iter().skip(1));
    let dirs = pairs.filter(|(option, _)| *option == "--log-dir").map(|(_, dir)| Path::new(dir));
    dirs.filter(|dir| dir.file_name().is_some_and(|name| name == RUN_DIR))
}

/// Why a run's own directories cannot be made; none if the directories can be made.
fn taken(words: &[String]) -> Option<String> {
    let there = run_dirs(words).find(|dir| dir.symlink_metadata().is_ok())?;
    Some(format!("{} is there already, and is not touched", there.display()))
}

/// How long a command may take.
fn limit_of(words: &[String]) -> Duration {
    let pairs = words.iter().zip(words.iter().skip(1));
    let measured = pairs.filter(|(option, _)| *option == "--seconds");
    let measured = measured.filter_map(|(_, text)| units::seconds(text).ok());
    LIMIT + Duration::from_secs_f64(measured.sum())
}

/// Waits for the child, and reads both outputs of the child, so neither pipe fills.
fn wait(mut child: Child, limit: Duration) -> Outcome {
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let reading = std::thread::spawn(move || text(&mut out));
    let errors = std::thread::spawn(move || text(&mut err));
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if began.elapsed() > limit => {
                // The child's own child processes end with the closing of the pipes.
                let _ = child.kill();
                let _ = child.wait();
                break Err(format!("took longer than {} s", limit.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => break Err(format!("cannot be waited for: {error}")),
        }
    };
    let status = match status {
        Ok(status) => status,
        Err(why) => return Outcome::Failed(why),
    };
    let printed = reading.join().unwrap_or_default();
    let errors = errors.join().unwrap_or_default();
    let last = said(&errors);
    if status.code() == Some(2) {
        return Outcome::Unavailable(last);
    }
    // A run with failed checks exits with 1, but prints the JSON object.
    match serde_json::from_str::<Value>(printed.trim()) {
        Ok(value) => Outcome::Done(value),
        Err(_) if last.is_empty() => Outcome::Failed(format!("ended with {status}")),
        Err(_) => Outcome::Failed(last),
    }
}

fn text(from: &mut Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        let _ = from.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The line of standard error with the reason: of the option parser, or of this program.
fn said(errors: &str) -> String {
    let lines = || errors.lines().map(str::trim).filter(|line| !line.is_empty());
    let tells = |line: &&str| line.starts_with("error:") || line.starts_with("hyades-lab:");
    let telling = lines().find(tells);
    telling.or(lines().next_back()).unwrap_or("").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_a_run_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join(RUN_DIR);
        let (own, other) = (own.to_str().unwrap(), dir.path().to_str().unwrap());
        let text = format!("bench ycsb --log-dir {own} --log-dir {other} --out {own}");
        let words: Vec<String> = text.split(' ').map(str::to_string).collect();
        assert_eq!(run_dirs(&words).collect::<Vec<_>>(), [Path::new(own)]);
        assert_eq!(taken(&words), None);
        // A directory from before the run is not the run's own.
        std::fs::create_dir(own).unwrap();
        let runner = Runner { program: PathBuf::from("/nowhere"), calibration: None };
        let Outcome::Failed(why) = runner.run(&words) else { panic!("it was run") };
        assert!(why.contains("is there already"), "{why}");
        assert!(Path::new(own).exists());
    }

    #[test]
    fn a_long_run_is_not_hung() {
        let limit = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_string).collect();
            limit_of(&words)
        };
        assert_eq!(limit("bench ycsb --workers 2"), LIMIT);
        assert_eq!(limit("bench ycsb --seconds 400 --json"), LIMIT + Duration::from_secs(400));
        assert_eq!(limit("bench ycsb --seconds 10m"), LIMIT + Duration::from_secs(600));
    }

    #[test]
    fn the_telling_line_is_found() {
        assert_eq!(said("loaded\nhyades-lab: no\n"), "hyades-lab: no");
        assert_eq!(
            said("error: invalid value 'x'\n\nFor more, try '--help'.\n"),
            "error: invalid value 'x'"
        );
        assert_eq!(said(""), "");
    }
}
