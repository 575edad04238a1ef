//! Configuration files and command lines.

use super::{Moment, Settings};
use crate::config::table::{SETTINGS, first_name};
use crate::resp::inline;
use std::fmt;
use std::io::Write;
use std::path::Path;

/// A setting is not possible. As text, one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub(crate) String);

impl ConfigError {
    pub(crate) fn unknown(name: &str) -> ConfigError {
        let way_out = match name.to_ascii_lowercase().as_str() {
            "include" => ": put the lines of that file in its place",
            "loadmodule" => ": there are no modules",
            _ => "",
        };
        ConfigError(format!("there is no setting {name:?}{way_out}"))
    }
}

impl ConfigError {
    /// Says which of several settings it is about.
    pub(crate) fn related_to(self, name: &str) -> ConfigError {
        ConfigError(format!("(possibly related to argument '{name}') - {}", self.0))
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

/// A name and its value, from the words of a line.
fn pair(words: Vec<Vec<u8>>) -> Result<(String, String), ConfigError> {
    let mut words = words.into_iter().map(|word| {
        String::from_utf8(word).map_err(|_| ConfigError("a setting is not UTF-8".to_string()))
    });
    let name = words.next().expect("the line has a word")?;
    let values = words.collect::<Result<Vec<_>, _>>()?;
    if values.is_empty() && !may_be_empty(&name) {
        return Err(ConfigError(format!("{name} needs a value")));
    }
    Ok((name, values.join(" ")))
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

fn read_file(settings: &mut Settings, file: &Path) -> Result<(), ConfigError> {
    let at = file.display();
    let text = std::fs::read(file).map_err(|e| ConfigError(format!("cannot read {at}: {e}")))?;
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let words = inline::split(line);
        let result = match words {
            // Blanks that end the line for the parser only.
            Some(words) if words.is_empty() => continue,
            Some(words) if words.len() > 1 && words[0].eq_ignore_ascii_case(b"user") => {
                settings.user_lines.push(words[1..].to_vec());
                Ok(())
            }
            Some(words) if is_rename(&words[0]) => {
                let names = words[1..].iter().map(|name| std::str::from_utf8(name));
                let names = names.collect::<Result<Vec<_>, _>>();
                let names = names.map_err(|_| ConfigError("a name is not UTF-8".to_string()));
                names.and_then(|names| rename(settings, &names))
            }
            Some(words) => {
                pair(words).and_then(|(name, value)| settings.change(&name, &value, Moment::Start))
            }
            None => Err(ConfigError("the quotes do not match".to_string())),
        };
        result.map_err(|e| ConfigError(format!("line {} of {at}: {e}", number + 1)))?;
    }
    Ok(())
}

impl Settings {
    /// What was given and is ignored, in words.
    pub(crate) fn notices(&self) -> &[String] {
        &self.notices
    }
}

/// The variable of the environment that holds a setting.
fn variable(setting: &str) -> String {
    format!("HYADES_{}", setting.to_uppercase().replace(['-', '.'], "_"))
}

/// Whether a variable of the environment is the address of a service, and no setting. Kubernetes
/// gives every container of a namespace with a service `hyades` the variable
/// `HYADES_PORT=tcp://10.0.0.1:6379`, for one named `hyades-tls` `HYADES_TLS_PORT`; links of Docker
/// do the same. No setting whose name ends so has a value of that form.
fn is_service_address(setting: &str, value: &str) -> bool {
    let is_port = setting == "port" || setting.ends_with("-port");
    is_port && ["tcp://", "udp://", "sctp://"].iter().any(|of| value.starts_with(of))
}

fn read_environment(
    settings: &mut Settings,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<(), ConfigError> {
    for setting in SETTINGS {
        let name = variable(setting.name);
        let Some(value) = environment(&name) else { continue };
        if is_service_address(setting.name, &value) {
            settings.notices.push(format!(
                "{name}={value} is the address of a service, as Kubernetes and Docker set it for \
                 one named hyades, and no setting: it is ignored"
            ));
            continue;
        }
        let change = settings.change(setting.name, &value, Moment::Start);
        change.map_err(|e| ConfigError(format!("{name}: {e}")))?;
    }
    Ok(())
}

/// The port that the environment names, as [`Settings::from_arguments`] reads it, or else the usual
/// one.
///
/// # Errors
/// The value is no port.
pub fn environment_port() -> Result<u16, ConfigError> {
    port(&|name| std::env::var(name).ok())
}

/// See [`environment_port`].
pub(super) fn port(environment: &dyn Fn(&str) -> Option<String>) -> Result<u16, ConfigError> {
    let mut settings = Settings::default();
    let name = variable("port");
    let own = |of: &str| environment(of).filter(|_| of == name);
    read_environment(&mut settings, &own)?;
    Ok(settings.port())
}

/// The name in a flag, and its values if they stand in the same argument, as in a file.
fn flag_words(flag: &str) -> Result<(String, Vec<String>), ConfigError> {
    let no_setting = || ConfigError(format!("{flag:?} is no setting: write --name value"));
    let line = flag.strip_prefix("--").ok_or_else(no_setting)?;
    let quotes = || ConfigError(format!("{flag:?}: the quotes do not match"));
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
    let mut settings = Settings::default();
    let mut arguments = arguments.iter().map(A::as_ref).peekable();
    if let Some(file) = arguments.next_if(|first| !first.starts_with("--")) {
        // The directory of the data may be relative to another place than the file.
        let file = std::path::absolute(file);
        let file = file.map_err(|e| ConfigError(format!("cannot find the config file: {e}")))?;
        read_file(&mut settings, &file)?;
        settings.file = Some(file);
    }
    read_environment(&mut settings, environment)?;
    while let Some(flag) = arguments.next() {
        let (name, mut values) = flag_words(flag)?;
        // What follows a name is its value, whatever it looks like, but for a name that may stand
        // alone.
        let is_value = |value: &&str| !value.starts_with("--");
        if values.is_empty() && !may_be_empty(&name) {
            values.extend(arguments.next().map(str::to_string));
        }
        while let Some(value) = arguments.next_if(is_value) {
            values.push(value.to_string());
        }
        if values.is_empty() && !may_be_empty(&name) {
            return Err(ConfigError(format!("--{name} needs a value")));
        }
        if name.eq_ignore_ascii_case("user") {
            let words = values.iter().flat_map(|value| value.split_whitespace());
            settings.user_lines.push(words.map(|word| word.as_bytes().to_vec()).collect());
        } else if is_rename(&name) {
            rename(&mut settings, &values)?;
        } else {
            settings.change(&name, &values.join(" "), Moment::Start)?;
        }
    }
    settings.make_users()?;
    Ok(settings)
}

/// A line that defines a user, with quotes where they are needed.
fn user_line(line: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    let word = |word: &[u8]| match word.iter().all(is_plain) {
        true => String::from_utf8_lossy(word).into_owned(),
        false => inline::quoted(word),
    };
    line.split(|byte| *byte == b' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Replaces the lines of these settings and of users in a file, adds those that it lacks, and puts
/// the new file in the place of the old one.
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
        let name = old_line.split_whitespace().next().unwrap_or("").to_ascii_lowercase();
        // A line with a second name gives way to the first name.
        match settings.iter().find(|(of, _)| *of == first_name(&name)) {
            None if name == "user" => continue,
            // Of several lines the last one counts.
            Some((of, _)) if written.contains(of) => continue,
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

/// Puts new content in the place of a file, at once: there is the old one, or the new one. A file
/// behind a symbolic link is replaced where it is, and keeps its permissions.
pub fn replace(file: &Path, content: &[u8]) -> std::io::Result<()> {
    let file = std::fs::canonicalize(file)?;
    let permissions = std::fs::metadata(&file)?.permissions();
    let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let mut next = name.to_os_string();
    next.push(format!(".{}.rewriting", std::process::id()));
    let next = dir.join(next);
    let write = || {
        // Refuses a file, or a link, that is there already.
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
