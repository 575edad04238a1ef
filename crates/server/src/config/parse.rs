//! Configuration files and command lines.

use super::change::{Change, Moment, is_secret};
use super::value::NUMBER_OF_ARGUMENTS;
use super::{Settings, place};
use crate::config::table::{SETTINGS, TextRule, first_name};
use crate::resp::inline;
use std::fmt;
use std::io::Write;
use std::iter::Peekable;
use std::path::Path;

/// An impossible setting. As text, a sentence; for a line of a file, or a setting on the command
/// line, the lines with which Redis shows the error, and the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub(crate) String);

impl ConfigError {
    pub(crate) fn unknown(name: &str) -> ConfigError {
        let way_out = match name.to_ascii_lowercase().as_str() {
            "include" => ": put the lines of that file in its place",
            "loadmodule" => ": there are no modules",
            _ => "",
        };
        let said = "Bad directive or wrong number of arguments";
        ConfigError(format!("{said}: there is no setting {name:?}{way_out}"))
    }
}

impl ConfigError {
    /// Names the setting with the error, of several settings.
    pub(crate) fn related_to(self, name: &str) -> ConfigError {
        ConfigError(format!("(possibly related to argument '{name}') - {}", self.0))
    }

    /// Shows the line with the error, and its place, as Redis does.
    fn in_line(self, place: &str, line: &str) -> ConfigError {
        let printable = |letter: char| if letter.is_control() { '?' } else { letter };
        let line: String = line.chars().map(printable).collect();
        let text = self.0;
        let head = "*** FATAL CONFIG FILE ERROR ***";
        ConfigError(format!("{head}\nReading {place}\n>>> '{line}'\n{text}"))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// Reads a number of bytes: `k`, `m`, `g` are powers of 1000, `kb`, `mb`, `gb` of 1024.
pub fn memory(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

/// Whether a setting may stand alone: no times of saving are none.
fn may_be_empty(name: &str) -> bool {
    name.eq_ignore_ascii_case("save")
}

/// Checks the number of values of a setting. `shutdown-on-sigterm` checks its values itself.
fn check_number(name: &str, values: &[String]) -> Result<(), ConfigError> {
    let lower = name.to_ascii_lowercase();
    let Some(setting) = place(&lower).map(|at| &SETTINGS[at]) else {
        return Err(ConfigError::unknown(name));
    };
    let text = match values.len() {
        0 if may_be_empty(name) || matches!(setting.value, TextRule::ShutdownWords) => {
            return Ok(());
        }
        0 => format!("{name} needs a value"),
        1 => return Ok(()),
        _ if setting.takes_several() => return Ok(()),
        count => format!("{name} takes one value, and not {count}: quotes make one of several"),
    };
    Err(ConfigError(format!("{NUMBER_OF_ARGUMENTS}: {text}")))
}

/// A setting of the command line, as Redis shows the setting. Passwords are not shown.
fn shown_setting(name: &str, values: &[String]) -> String {
    let word = |value: &String| match is_secret(name) {
        true => " (redacted)".to_string(),
        false => format!(" {}", inline::quoted(value.as_bytes())),
    };
    name.to_string() + &values.iter().map(word).collect::<String>()
}

/// A line of a file, or of a flag, without a password. The rules of a user may contain passwords.
/// As the line may be wrong, an unclosed quote may stand between a name and its value.
fn shown_line(line: &str) -> String {
    let is_quote = |letter: char| matches!(letter, '"' | '\'');
    let rest = line.trim_start_matches(is_quote);
    let end = rest.find(|letter: char| letter.is_whitespace() || is_quote(letter));
    let (name, behind) = rest.split_at(end.unwrap_or(rest.len()));
    let has_secret = is_secret(name) || name.eq_ignore_ascii_case("user");
    if !has_secret || behind.is_empty() {
        return line.to_string();
    }
    let hidden = behind.strip_prefix(is_quote).unwrap_or(behind);
    format!("{} (redacted)", &line[..line.len() - hidden.len()])
}

/// Whether a line is about the name of a command.
fn is_rename(name: impl AsRef<[u8]>) -> bool {
    name.as_ref().eq_ignore_ascii_case(b"rename-command")
}

/// Gives a command another name.
fn rename(settings: &mut Settings, names: &[impl AsRef<str>]) -> Result<(), ConfigError> {
    let [old, new] = names else {
        let text = "rename-command needs the name of a command, and its new name or \"\"";
        return Err(ConfigError(text.to_string()));
    };
    let renamed = settings.renamed.rename(old.as_ref(), new.as_ref());
    renamed.map_err(|error| ConfigError(format!("rename-command: {error}")))
}

/// Settings, as far as read.
#[derive(Default)]
struct Reading {
    settings: Settings,
    /// The first refused, but valid value. An invalid value in a later line is reported instead, as
    /// by Redis.
    refused: Option<ConfigError>,
}

impl Reading {
    /// Takes a setting and its values.
    fn take(&mut self, name: &str, values: &[String]) -> Result<Change, ConfigError> {
        if is_rename(name) {
            return rename(&mut self.settings, values).map(|()| Change::Done);
        }
        check_number(name, values)?;
        self.settings.change(name, &values.join(" "), Moment::Start)
    }

    /// Notes the result of a change. `told` adds the place of the setting to an error.
    fn note(
        &mut self,
        change: Result<Change, ConfigError>,
        told: impl FnOnce(ConfigError) -> ConfigError,
    ) -> Result<(), ConfigError> {
        match change {
            Ok(Change::Done) => Ok(()),
            Ok(Change::Refused(error)) => {
                self.refused.get_or_insert_with(|| told(error));
                Ok(())
            }
            Err(error) => Err(told(error)),
        }
    }

    /// Takes the name of a user, with its rules.
    fn take_user(&mut self, words: Vec<Vec<u8>>) -> Result<Change, ConfigError> {
        if words.is_empty() {
            return Err(ConfigError(format!("{NUMBER_OF_ARGUMENTS}: user needs a value")));
        }
        self.settings.user_lines.push(words);
        Ok(Change::Done)
    }

    /// Takes the words of a line.
    fn take_words(&mut self, words: Vec<Vec<u8>>) -> Result<Change, ConfigError> {
        if words[0].eq_ignore_ascii_case(b"user") {
            return self.take_user(words[1..].to_vec());
        }
        let what = if is_rename(&words[0]) { "name" } else { "setting" };
        let words = words.into_iter().map(String::from_utf8).collect::<Result<Vec<_>, _>>();
        let words = words.map_err(|_| ConfigError(format!("a {what} is not UTF-8")))?;
        let (name, values) = words.split_first().expect("the line has a word");
        self.take(name, values)
    }

    fn read_file(&mut self, file: &Path) -> Result<(), ConfigError> {
        let at = file.display();
        let text = std::fs::read(file);
        let text = text.map_err(|e| ConfigError(format!("cannot read {at}: {e}")))?;
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let change = match inline::split(line) {
                // Blanks that end the line for the parser only.
                Some(words) if words.is_empty() => continue,
                Some(words) => self.take_words(words),
                None => {
                    let said = "Unbalanced quotes in configuration line";
                    Err(ConfigError(format!("{said}: the quotes do not match")))
                }
            };
            let place = format!("the configuration file, at line {} of {at}", number + 1);
            let line = String::from_utf8_lossy(line);
            self.note(change, |error| error.in_line(&place, &shown_line(&line)))?;
        }
        Ok(())
    }

    fn read_environment(
        &mut self,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), ConfigError> {
        for setting in SETTINGS {
            let name = variable(setting.name);
            let Some(value) = environment(&name) else { continue };
            if is_service_address(setting.name, &value) {
                self.settings.notices.push(format!(
                    "{name}={value} is the address of a service, as Kubernetes and Docker set it \
                     for one named hyades, and no setting: it is ignored"
                ));
                continue;
            }
            let change = self.settings.change(setting.name, &value, Moment::Start);
            self.note(change, |error| ConfigError(format!("{name}: {error}")))?;
        }
        Ok(())
    }

    fn read_flags<'a>(
        &mut self,
        mut arguments: Peekable<impl Iterator<Item = &'a str>>,
    ) -> Result<(), ConfigError> {
        while let Some(flag) = arguments.next() {
            let (name, mut values) = flag_words(flag)?;
            // The word behind a name is its value, whatever its form, except behind a name that may
            // stand alone.
            let is_value = |value: &&str| !value.starts_with("--");
            if values.is_empty() && !may_be_empty(&name) {
                values.extend(arguments.next().map(str::to_string));
            }
            while let Some(value) = arguments.next_if(is_value) {
                values.push(value.to_string());
            }
            let change = match name.eq_ignore_ascii_case("user") {
                true => {
                    let words = values.iter().flat_map(|value| value.split_whitespace());
                    self.take_user(words.map(|word| word.as_bytes().to_vec()).collect())
                }
                false => self.take(&name, &values),
            };
            let line = || shown_setting(&name, &values);
            self.note(change, |error| error.in_line("the command line", &line()))?;
        }
        Ok(())
    }
}

impl Settings {
    /// Given and ignored settings, in words.
    pub(crate) fn notices(&self) -> &[String] {
        &self.notices
    }
}

/// The variable of the environment for a setting.
fn variable(setting: &str) -> String {
    format!("HYADES_{}", setting.to_uppercase().replace(['-', '.'], "_"))
}

/// Whether a variable of the environment is the address of a service, and no setting. Kubernetes
/// gives every container of a namespace with a service `hyades` the variable
/// `HYADES_PORT=tcp://10.0.0.1:6379`, for a service `hyades-tls` `HYADES_TLS_PORT`; links of Docker
/// do the same. No setting with a name of this ending has a value of this form.
fn is_service_address(setting: &str, value: &str) -> bool {
    let is_port = setting == "port" || setting.ends_with("-port");
    is_port && ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme))
}

/// The port named by the environment, as [`Settings::from_arguments`] reads the variable, or else
/// the usual port.
///
/// # Errors
/// The value is no port.
pub fn environment_port() -> Result<u16, ConfigError> {
    port(&|name| std::env::var(name).ok())
}

/// See [`environment_port`].
pub(super) fn port(environment: &dyn Fn(&str) -> Option<String>) -> Result<u16, ConfigError> {
    let mut reading = Reading::default();
    let name = variable("port");
    let own = |variable: &str| environment(variable).filter(|_| variable == name);
    reading.read_environment(&own)?;
    Ok(reading.settings.port())
}

/// The name in a flag, and the values in the same argument, if any, as in a file.
fn flag_words(flag: &str) -> Result<(String, Vec<String>), ConfigError> {
    let no_setting = || ConfigError(format!("{flag:?} is no setting: write --name value"));
    let line = flag.strip_prefix("--").ok_or_else(no_setting)?;
    let shown = || format!("--{}", shown_line(line));
    let quotes = || ConfigError(format!("{:?}: the quotes do not match", shown()));
    let words = inline::split(line.as_bytes()).ok_or_else(quotes)?;
    let mut words = words.iter().map(|word| String::from_utf8_lossy(word).into_owned());
    let name = words.next().ok_or_else(no_setting)?;
    Ok((name, words.collect()))
}

/// See [`Settings::from_arguments`].
pub(super) fn from_arguments<A: AsRef<str>>(
    arguments: &[A],
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Settings, ConfigError> {
    let mut reading = Reading::default();
    let mut arguments = arguments.iter().map(A::as_ref).peekable();
    if let Some(file) = arguments.next_if(|first| !first.starts_with("--")) {
        // The directory of the data may be relative to another place than the file.
        let file = std::path::absolute(file);
        let file = file.map_err(|e| ConfigError(format!("cannot find the config file: {e}")))?;
        reading.read_file(&file)?;
        reading.settings.file = Some(file);
    }
    reading.read_environment(environment)?;
    reading.read_flags(arguments)?;
    let Reading { mut settings, refused } = reading;
    if let Some(error) = refused {
        return Err(error);
    }
    settings.make_users()?;
    Ok(settings)
}

/// A line with the definition of a user, with quotes if needed.
fn user_line(line: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    let word = |word: &[u8]| match word.iter().all(is_plain) {
        true => String::from_utf8_lossy(word).into_owned(),
        false => inline::quoted(word),
    };
    line.split(|byte| *byte == b' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The name at the start of a line, in lower case, without quotes; empty if the line is no setting.
fn name_in(line: &str) -> String {
    let words = inline::split(line.as_bytes()).unwrap_or_default();
    let name = words.first().map(|name| String::from_utf8_lossy(name).to_ascii_lowercase());
    name.unwrap_or_default()
}

/// Replaces the lines of the settings and of users in a file, adds missing lines, and puts the new
/// file in the place of the old file.
pub(super) fn rewrite(
    file: &Path,
    settings: &[(&str, String)],
    users: &[Vec<u8>],
) -> Result<(), ConfigError> {
    let failed = |e: std::io::Error| ConfigError(format!("cannot write {}: {e}", file.display()));
    let old = std::fs::read_to_string(file).map_err(failed)?;
    let line =
        |(name, value): &(&str, String)| format!("{name} {}", inline::quoted(value.as_bytes()));
    let (mut text, mut written) = (String::new(), Vec::new());
    for old_line in old.lines() {
        let name = name_in(old_line);
        // A line with a second name gives way to the first name.
        match settings.iter().find(|(known, _)| *known == first_name(&name)) {
            None if name == "user" => continue,
            // Of several lines the last line counts.
            Some((known, _)) if written.contains(known) => continue,
            Some(setting) => {
                text.push_str(&line(setting));
                written.push(setting.0);
            }
            None => text.push_str(old_line),
        }
        text.push('\n');
    }
    for setting in settings.iter().filter(|(name, _)| !written.contains(name)) {
        text.push_str(&line(setting));
        text.push('\n');
    }
    for user in users {
        text.push_str(&user_line(user));
        text.push('\n');
    }
    replace(file, text.as_bytes()).map_err(failed)
}

/// Replaces the content of a file atomically: the file has the old content, or the new. A file
/// behind a symbolic link is replaced in its own place, and keeps its permissions.
pub fn replace(file: &Path, content: &[u8]) -> std::io::Result<()> {
    let file = std::fs::canonicalize(file)?;
    let permissions = std::fs::metadata(&file)?.permissions();
    let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let mut next = name.to_os_string();
    next.push(format!(".{}.rewriting", std::process::id()));
    let next = dir.join(next);
    // A killed process may have had the same number: the number in a container is always 1.
    let _ = std::fs::remove_file(&next);
    let write = || {
        // Refuses a file, or a link, that exists even so.
        let mut out = std::fs::File::create_new(&next)?;
        out.set_permissions(permissions)?;
        out.write_all(content)?;
        out.sync_all()?;
        std::fs::rename(&next, &file)?;
        std::fs::File::open(dir)?.sync_all()
    };
    let written = write();
    if written.as_ref().is_err_and(|error| error.kind() != std::io::ErrorKind::AlreadyExists) {
        let _ = std::fs::remove_file(&next);
    }
    written
}
