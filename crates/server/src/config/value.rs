//! How the text of a setting is checked.

use super::table::Value;
use super::{ConfigError, memory, output_limits, tls};
use crate::data::keyspace::EventClasses;

/// What Redis says of a share of the memory that is more than all of it.
const TOO_MUCH_PERCENT: &str = "percentage argument must be less or equal to 100";

/// What Redis says of a template that it cannot fill in.
const TITLE_FORMAT: &str = "template format is invalid or contains unknown variables";

/// The fields of a template.
const TITLE_FIELDS: [&str; 7] =
    ["title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"];

impl Value {
    /// Checks a value and brings it into its usual form.
    pub fn read(self, name: &str, text: &str) -> Result<String, ConfigError> {
        let wrong =
            |wanted: &str| Err(ConfigError(format!("{name} must be {wanted}, and not {text:?}")));
        let checked = |value: Option<String>, wanted| value.map_or_else(|| wrong(wanted), Ok);
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
            Value::MemoryOrPercent => match (text.strip_suffix('%'), memory(text)) {
                (Some(percent), _) => match percent.parse::<u64>() {
                    Ok(0..=100) => Ok(text.to_string()),
                    Ok(_) => Err(ConfigError(TOO_MUCH_PERCENT.to_string())),
                    Err(_) => wrong("a size, or a number of percent such as 5%"),
                },
                (None, Some(bytes)) => Ok(bytes.to_string()),
                (None, None) => wrong("a size such as 1024, 64kb or 1gb, or percent such as 5%"),
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
            Value::Percentiles => checked(percentiles(text), "numbers from 0 to 100"),
            Value::Events => match EventClasses::read(text) {
                Some(classes) => Ok(classes.to_string()),
                None => wrong("letters of Ag$lshzxeKEtmdn"),
            },
            Value::OutputLimits => {
                output_limits::read(text).map_err(|error| ConfigError(error.to_string()))
            }
            Value::Permissions => {
                let is_octal = !text.is_empty() && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
                match u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777) {
                    Some(mode) => Ok(format!("{mode:o}")),
                    None => wrong("permissions in octal digits, from 0 to 777"),
                }
            }
            Value::TlsProtocols => checked(
                tls::read_protocols(text),
                "TLSv1.2, TLSv1.3 or both (older versions are not secure)",
            ),
            Value::SaveTimes => checked(
                save_times(text),
                "pairs of seconds, from 1, and numbers of changes, or \"\"",
            ),
            // As Redis says it.
            Value::TitleTemplate => match is_title_template(text) {
                true => Ok(text.to_string()),
                false => Err(ConfigError(TITLE_FORMAT.to_string())),
            },
            Value::ShutdownWords => {
                checked(shutdown_words(text), "default, or words of save, nosave, now and force")
            }
            Value::Text => Ok(text.to_string()),
        }
    }
}

/// Numbers from 0 to 100.
fn percentiles(text: &str) -> Option<String> {
    let numbers = text.split_whitespace().map(|of| of.parse::<f64>().ok());
    let in_range = |number: Option<f64>| number.filter(|number| (0.0..=100.0).contains(number));
    let numbers: Option<Vec<f64>> = numbers.map(in_range).collect();
    Some(numbers?.iter().map(f64::to_string).collect::<Vec<_>>().join(" "))
}

/// Pairs of seconds and changes. None at all is possible, too.
fn save_times(text: &str) -> Option<String> {
    let numbers: Option<Vec<u32>> = text.split_whitespace().map(|of| of.parse().ok()).collect();
    let numbers = numbers
        .filter(|all| all.len().is_multiple_of(2) && all.chunks(2).all(|pair| pair[0] > 0))?;
    Some(numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
}

/// Whether a text is not empty, and its braces hold names of fields; two opening ones are one that
/// is meant.
fn is_title_template(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('{') {
        rest = match behind.strip_prefix('{') {
            Some(literal) => literal,
            None => match behind.split_once('}') {
                Some((field, behind)) if TITLE_FIELDS.contains(&field) => behind,
                _ => return false,
            },
        };
    }
    !text.is_empty()
}

/// In the order in which Redis shows them.
fn shutdown_words(text: &str) -> Option<String> {
    const WORDS: [&str; 4] = ["save", "nosave", "now", "force"];
    let given: Vec<String> = text.split_whitespace().map(str::to_ascii_lowercase).collect();
    if given == ["default"] {
        return Some("default".to_string());
    }
    let has = |word: &&str| given.iter().any(|of| of == word);
    let is_known = given.iter().all(|of| WORDS.contains(&of.as_str()));
    let contradicts = has(&"save") && has(&"nosave");
    (is_known && !given.is_empty() && !contradicts)
        .then(|| WORDS.into_iter().filter(has).collect::<Vec<_>>().join(" "))
}
