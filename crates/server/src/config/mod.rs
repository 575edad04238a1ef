//! Settings: Redis's names and syntax. Each known name works, is stored because it is harmless, or
//! is refused in a sentence.

mod parse;
mod table;

pub use parse::{ConfigError, memory};
pub(crate) use table::MOST_DATABASES;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, RwLock};
use table::{Rule, SETTINGS, Value};

/// The settings of a server.
///
/// ```
/// let settings = hyades_server::Settings::from_arguments(&["--port", "0", "--dir", "data"])?;
/// assert_eq!(settings.port(), 0);
/// let error = hyades_server::Settings::from_arguments(&["--port", "x"]).unwrap_err();
/// assert!(error.to_string().contains("port"));
/// # Ok::<_, hyades_server::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Settings {
    /// By place in the table.
    values: RwLock<Vec<String>>,
    /// Places of those that were given or changed.
    given: RwLock<Vec<usize>>,
    file: Option<PathBuf>,
    /// Held while several are changed, or the file is written.
    changing: Mutex<()>,
    /// Those that every run of commands needs, as numbers.
    databases: AtomicU64,
    longest_argument: AtomicU64,
}

impl Default for Settings {
    fn default() -> Self {
        let values = SETTINGS.iter().map(|of| of.default.to_string()).collect();
        let settings = Settings {
            values: RwLock::new(values),
            given: RwLock::default(),
            file: None,
            changing: Mutex::default(),
            databases: AtomicU64::new(0),
            longest_argument: AtomicU64::new(0),
        };
        settings.refresh();
        settings
    }
}

fn place(name: &str) -> Option<usize> {
    SETTINGS.iter().position(|of| of.name == name)
}

/// When a setting is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Start,
    Running,
}

impl Settings {
    /// Settings of a command line: the name of a file, if the first argument is none of the others,
    /// then `--name value` pairs. Values of the environment, `HYADES_NAME`, come between the two.
    ///
    /// # Errors
    /// The file cannot be read; a name is unknown; a value is not possible.
    pub fn from_arguments<A: AsRef<str>>(arguments: &[A]) -> Result<Settings, ConfigError> {
        parse::from_arguments(arguments, &|name| std::env::var(name).ok())
    }

    fn change(&self, name: &str, text: &str, moment: Moment) -> Result<(), ConfigError> {
        let lower = name.to_ascii_lowercase();
        let at = place(&lower).ok_or_else(|| ConfigError::unknown(name))?;
        let setting = &SETTINGS[at];
        let value = setting.value.read(&lower, text)?;
        match setting.rule {
            Rule::Fixed if moment == Moment::Running => {
                return Err(ConfigError(format!("{lower} can only be set when the server starts")));
            }
            Rule::Refused(why) if value != setting.default => {
                return Err(ConfigError(format!("{lower} cannot be {text:?}: {why}")));
            }
            _ => {}
        }
        self.values.write().expect("no holder panics")[at] = value;
        let mut given = self.given.write().expect("no holder panics");
        if !given.contains(&at) {
            given.push(at);
        }
        drop(given);
        self.refresh();
        Ok(())
    }

    /// Reads the numbers that are needed often.
    fn refresh(&self) {
        self.databases.store(self.number("databases"), Relaxed);
        self.longest_argument.store(self.number("proto-max-bulk-len"), Relaxed);
    }

    /// Changes several settings of a running server: all of them, or none.
    ///
    /// # Errors
    /// Says which one is not possible.
    pub fn set(&self, changes: &[(String, String)]) -> Result<(), ConfigError> {
        // Two clients that change settings at once: neither takes back what the other has set.
        let _changing = self.changing.lock().expect("no holder panics");
        let before = self.values.read().expect("no holder panics").clone();
        let given = self.given.read().expect("no holder panics").clone();
        for (name, value) in changes {
            if let Err(error) = self.change(name, value, Moment::Running) {
                *self.values.write().expect("no holder panics") = before;
                *self.given.write().expect("no holder panics") = given;
                self.refresh();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Names and values of the settings that one of these patterns matches.
    pub(crate) fn matching(&self, patterns: &[&[u8]]) -> Vec<(&'static str, String)> {
        let values = self.values.read().expect("no holder panics");
        let matches = |name: &str| {
            let fits = |pattern: &&[u8]| crate::glob::matches(pattern, name.as_bytes(), true);
            patterns.iter().any(fits)
        };
        let all = SETTINGS.iter().zip(values.iter());
        all.filter(|(of, _)| matches(of.name)).map(|(of, v)| (of.name, v.clone())).collect()
    }

    /// Writes the settings that differ from the file into it: lines stay where they are.
    pub(crate) fn rewrite(&self) -> Result<(), ConfigError> {
        let Some(file) = &self.file else {
            return Err(ConfigError("The server is running without a config file".to_string()));
        };
        let _changing = self.changing.lock().expect("no holder panics");
        let values = self.values.read().expect("no holder panics").clone();
        let given = self.given.read().expect("no holder panics").clone();
        let all = given.into_iter().map(|at| (SETTINGS[at].name, values[at].clone()));
        parse::rewrite(file, &all.collect::<Vec<_>>())
    }

    fn text(&self, name: &str) -> String {
        let at = place(name).expect("the name stands in the table");
        self.values.read().expect("no holder panics")[at].clone()
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().expect("numbers are checked when they are set")
    }

    fn is_yes(&self, name: &str) -> bool {
        self.text(name) == "yes"
    }

    /// The port; 0: any that is free.
    pub fn port(&self) -> u16 {
        self.number("port") as u16
    }

    /// The addresses to listen at. One that begins with `-` may be missing.
    pub(crate) fn bind(&self) -> Vec<String> {
        self.text("bind").split_whitespace().map(str::to_string).collect()
    }

    /// The directory of the data.
    pub fn dir(&self) -> PathBuf {
        Path::new(&self.text("dir")).to_path_buf()
    }

    pub(crate) fn databases(&self) -> u32 {
        self.databases.load(Relaxed) as u32
    }

    pub(crate) fn max_clients(&self) -> usize {
        self.number("maxclients") as usize
    }

    pub(crate) fn is_protected(&self) -> bool {
        self.is_yes("protected-mode")
    }

    pub(crate) fn longest_argument(&self) -> usize {
        self.longest_argument.load(Relaxed) as usize
    }

    pub(crate) fn debug_is_enabled(&self) -> bool {
        self.text("enable-debug-command") != "no"
    }

    pub(crate) fn streams(&self) -> usize {
        self.number("streams") as usize
    }

    /// After this time without a byte the system asks whether a client is still there; 0: never.
    pub(crate) fn keepalive_seconds(&self) -> u64 {
        self.number("tcp-keepalive")
    }

    /// The number of event loops; 0: by the number of cores.
    pub(crate) fn loops(&self) -> usize {
        self.number("loops") as usize
    }

    pub(crate) fn max_recovery_seconds(&self) -> u64 {
        self.number("max-recovery")
    }

    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

impl Value {
    /// Checks a value and brings it into its usual form.
    fn read(self, name: &str, text: &str) -> Result<String, ConfigError> {
        let wrong =
            |wanted: &str| Err(ConfigError(format!("{name} must be {wanted}, and not {text:?}")));
        match self {
            Value::YesNo => match text.to_ascii_lowercase().as_str() {
                yes_or_no @ ("yes" | "no") => Ok(yes_or_no.to_string()),
                _ => wrong("yes or no"),
            },
            Value::Number(least, most) => match text.parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(number.to_string()),
                _ => wrong(&format!("a number from {least} to {most}")),
            },
            Value::Memory => match memory(text) {
                Some(bytes) => Ok(bytes.to_string()),
                None => wrong("a size such as 1024, 64kb or 1gb"),
            },
            Value::MemoryIn(least, most) => match memory(text) {
                Some(bytes) if (least..=most).contains(&bytes) => Ok(bytes.to_string()),
                _ => wrong(&format!("a size from {least} to {most} bytes")),
            },
            Value::OneOf(words) => {
                match words.iter().find(|word| word.eq_ignore_ascii_case(text)) {
                    Some(word) => Ok((*word).to_string()),
                    None => wrong(&format!("one of {}", words.join(", "))),
                }
            }
            Value::Text => Ok(text.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
