//! `oom-score-adj`: how readily the system kills this process, before other processes, when memory
//! runs out.

use crate::config::Settings;
use hyades_platform::sync::Unpoisoned;
use std::fs::OpenOptions;
use std::io::{Error, Write};
use std::path::PathBuf;
use std::sync::Mutex;

/// The file in which Linux keeps the addend to the score of the process.
const FILE: &str = "/proc/self/oom_score_adj";

/// The system takes this number, and its negative, at most.
const MOST: i32 = 1_000;

/// The addend to the score of the process.
#[derive(Debug)]
pub struct OomScore {
    file: PathBuf,
    /// The value before the first change; `None` while the value is left alone.
    before: Mutex<Option<i32>>,
}

impl Default for OomScore {
    fn default() -> OomScore {
        OomScore { file: PathBuf::from(FILE), before: Mutex::default() }
    }
}

impl OomScore {
    /// Applies the present settings. The value before the change is restored when the settings say
    /// `no`.
    ///
    /// # Errors
    /// The system does not let this process change the value, or has no such value. A second call,
    /// after the settings are restored, undoes the change.
    pub fn apply(&self, settings: &Settings) -> Result<(), String> {
        // The settings are read under the lock: of two threads with changes, the last thread
        // applies the result of both.
        let mut before = self.before.lock().unpoisoned();
        let (score, known) = match (settings.oom_score(), *before) {
            (None, None) => return Ok(()),
            (None, Some(own)) => (own, None),
            (Some((added, is_relative)), known) => {
                let own = known.map_or_else(|| self.read(), Ok)?;
                let score = if is_relative { own.saturating_add(added) } else { added };
                (score.clamp(-MOST, MOST), Some(own))
            }
        };
        self.write(score).map_err(|error| self.failure("write", &error.to_string()))?;
        // Not earlier: as long as the process has another score, the original value is known.
        *before = known;
        Ok(())
    }

    fn read(&self) -> Result<i32, String> {
        let text = std::fs::read_to_string(&self.file);
        let text = text.map_err(|error| self.failure("read", &error.to_string()))?;
        let score = text.trim().parse();
        score.map_err(|_| self.failure("read", &format!("{text:?} is no number")))
    }

    fn write(&self, score: i32) -> Result<(), Error> {
        // A missing file is not created.
        let mut file = OpenOptions::new().write(true).truncate(true).open(&self.file)?;
        file.write_all(score.to_string().as_bytes())
    }

    /// The error text of Redis, and the cause.
    fn failure(&self, what: &str, why: &str) -> String {
        let file = self.file.display();
        format!("Failed to set current oom_score_adj: cannot {what} {file}: {why}")
    }
}

/// A program that goes on without its server gets the original value back.
impl Drop for OomScore {
    fn drop(&mut self) {
        if let Some(own) = self.before.get_mut().ok().and_then(Option::take) {
            let _ = self.write(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A file in the place of the system's.
    fn score(text: &str) -> (OomScore, PathBuf, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("oom_score_adj");
        std::fs::write(&file, text).unwrap();
        (OomScore { file: file.clone(), before: Mutex::default() }, file, dir)
    }

    fn settings(how: &str, values: &str) -> Settings {
        let flags = ["--oom-score-adj", how, "--oom-score-adj-values", values];
        Settings::from_arguments(&flags).unwrap()
    }

    #[test]
    fn it_is_relative_to_what_it_was_when_it_was_turned_on() {
        let (oom_score, file, _dir) = score("22\n");
        let shown = || std::fs::read_to_string(&file).unwrap();
        let apply = |how: &str, values: &str| {
            oom_score.apply(&settings(how, values)).unwrap();
            shown()
        };
        assert_eq!(apply("no", "1 2 3"), "22\n", "it is not touched");
        assert_eq!(apply("yes", "9 20 30"), "31");
        assert_eq!(apply("relative", "977 0 0"), "999");
        assert_eq!(apply("relative", "979 0 0"), "1000", "no more than the system takes");
        assert_eq!(apply("relative", "-2000 0 0"), "-1000", "and no less");
        assert_eq!(apply("absolute", "9 9 9"), "9");
        assert_eq!(apply("no", "9 9 9"), "22");
        // Other programs may change the value while the server leaves the value alone.
        std::fs::write(&file, "-5").unwrap();
        assert_eq!(apply("no", "9 9 9"), "-5");
        assert_eq!(apply("yes", "9 9 9"), "4");
        drop(oom_score);
        assert_eq!(shown(), "-5");
    }

    #[test]
    fn what_cannot_be_set_is_an_error_that_names_the_file() {
        let (on, off) = (settings("yes", "1 1 1"), settings("no", "1 1 1"));
        let (oom_score, file, dir) = score("many");
        let failed = oom_score.apply(&on).unwrap_err();
        let said = format!("Failed to set current oom_score_adj: cannot read {}", file.display());
        assert!(failed.starts_with(&said) && failed.contains("\"many\" is no number"), "{failed}");
        std::fs::remove_file(&file).unwrap();
        let failed = oom_score.apply(&on).unwrap_err();
        assert!(failed.starts_with(&said), "{failed}");
        assert_eq!(oom_score.apply(&off), Ok(()), "nothing was changed");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "none is created");
        // The file is removed between two calls.
        std::fs::write(&file, "3").unwrap();
        oom_score.apply(&on).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(oom_score.apply(&off).unwrap_err().contains("cannot write"));
        assert!(
            oom_score.apply(&off).unwrap_err().contains("cannot write"),
            "it is not restored yet"
        );
    }

    /// A failed write leaves the known value: the settings return to their earlier state, and the
    /// original value is restored later.
    #[test]
    fn what_it_was_is_known_after_a_failure() {
        let (oom_score, file, _dir) = score("22");
        let shown = || std::fs::read_to_string(&file).unwrap();
        let (on, off) = (settings("yes", "10 0 0"), settings("no", "10 0 0"));
        oom_score.apply(&on).unwrap();
        assert_eq!(shown(), "32");
        // The file cannot be written for a time.
        let aside = file.with_extension("aside");
        std::fs::rename(&file, &aside).unwrap();
        assert!(oom_score.apply(&off).unwrap_err().contains("cannot write"));
        std::fs::rename(&aside, &file).unwrap();
        // CONFIG SET has failed, and undoes its change.
        oom_score.apply(&on).unwrap();
        assert_eq!(shown(), "32", "it is not added twice");
        oom_score.apply(&off).unwrap();
        assert_eq!(shown(), "22");
    }
}
