//! `oom-score-adj`: how soon the system kills this process, and not others, when memory runs out.

use crate::config::Settings;
use hyades_platform::sync::Unpoisoned;
use std::fs::OpenOptions;
use std::io::{Error, Write};
use std::path::PathBuf;
use std::sync::Mutex;

/// Where Linux keeps what is added to the score of the process.
const FILE: &str = "/proc/self/oom_score_adj";

/// The system takes this number, and its negative one, at most.
const MOST: i32 = 1_000;

/// What is added to the score of the process.
#[derive(Debug)]
pub struct OomScore {
    file: PathBuf,
    /// What it was before it was changed; `None` while it is left alone.
    before: Mutex<Option<i32>>,
}

impl Default for OomScore {
    fn default() -> OomScore {
        OomScore { file: PathBuf::from(FILE), before: Mutex::default() }
    }
}

impl OomScore {
    /// Does what the settings say now. What it was before they changed it is restored when they say
    /// `no`.
    ///
    /// # Errors
    /// The system does not let this process change it, or has no such thing. Called again once the
    /// settings are what they were, this undoes what it did.
    pub fn apply(&self, settings: &Settings) -> Result<(), String> {
        // The settings are read under the lock: of two that change them, the last one to be here
        // does what both have left.
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
        // Not before: as long as it has another score, what it was is known.
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
        // It is not created where there is none.
        let mut file = OpenOptions::new().write(true).truncate(true).open(&self.file)?;
        file.write_all(score.to_string().as_bytes())
    }

    /// What Redis says, and why.
    fn failure(&self, what: &str, why: &str) -> String {
        let file = self.file.display();
        format!("Failed to set current oom_score_adj: cannot {what} {file}: {why}")
    }
}

/// A program that goes on without its server has what it had.
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
        // Others may change it while it is left alone.
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
        // It is gone between two calls.
        std::fs::write(&file, "3").unwrap();
        oom_score.apply(&on).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(oom_score.apply(&off).unwrap_err().contains("cannot write"));
        assert!(
            oom_score.apply(&off).unwrap_err().contains("cannot write"),
            "it is not restored yet"
        );
    }

    /// What cannot be written changes nothing of what is known: the settings go back to what they
    /// were, and what the process had before is restored later.
    #[test]
    fn what_it_was_is_known_after_a_failure() {
        let (oom_score, file, _dir) = score("22");
        let shown = || std::fs::read_to_string(&file).unwrap();
        let (on, off) = (settings("yes", "10 0 0"), settings("no", "10 0 0"));
        oom_score.apply(&on).unwrap();
        assert_eq!(shown(), "32");
        // It cannot be written for a time.
        let aside = file.with_extension("aside");
        std::fs::rename(&file, &aside).unwrap();
        assert!(oom_score.apply(&off).unwrap_err().contains("cannot write"));
        std::fs::rename(&aside, &file).unwrap();
        // CONFIG SET has failed, and undoes what it did.
        oom_score.apply(&on).unwrap();
        assert_eq!(shown(), "32", "it is not added twice");
        oom_score.apply(&off).unwrap();
        assert_eq!(shown(), "22");
    }
}
