//! How the text of a setting is checked.

use super::EventClasses;
use super::table::TextRule;
use super::{ConfigError, memory, output_limits, tls};
use std::fmt::Display;

/// The error of Redis for a setting with too few or too many values.
pub const NUMBER_OF_ARGUMENTS: &str = "wrong number of arguments";

/// The error of Redis for an invalid score.
const OOM_SCORES: &str = "Invalid oom-score-adj-values, elements must be between -2000 and 2000";

/// The error of Redis for a share of the memory above 100 percent.
const TOO_MUCH_PERCENT: &str = "percentage argument must be less or equal to 100";

/// The error of Redis for a template with faults.
const TITLE_FORMAT: &str = "template format is invalid or contains unknown variables";

/// The fields of a template.
const TITLE_FIELDS: [&str; 7] =
    ["title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"];

/// The error of Redis for an invalid number.
const NO_INTEGER: &str = "argument couldn't be parsed into an integer";

/// The error of Redis for an invalid number of bytes.
const NO_MEMORY: &str = "argument must be a memory value";

impl TextRule {
    /// Checks a value and brings the value into its usual form. An error begins with the text of
    /// Redis for the fault, then names the possible values.
    pub fn read(self, name: &str, text: &str) -> Result<String, ConfigError> {
        let wrong = |said: &str, wanted: &str| {
            Err(ConfigError(format!("{said}: {name} must be {wanted}, and not {text:?}")))
        };
        let checked = |value: Option<String>, said: &str, wanted: &str| {
            value.map_or_else(|| wrong(said, wanted), Ok)
        };
        match self {
            TextRule::YesNo => match text.to_ascii_lowercase().as_str() {
                yes_or_no @ ("yes" | "no") => Ok(yes_or_no.to_string()),
                _ => wrong("argument must be 'yes' or 'no'", "yes or no"),
            },
            TextRule::Number(least, most) => {
                let wanted = format!("a number from {least} to {most}");
                match text.parse::<i64>() {
                    Ok(number) if (least..=most).contains(&number) => Ok(number.to_string()),
                    Ok(_) => wrong(&out_of_range(least, most), &wanted),
                    Err(_) => wrong(NO_INTEGER, &wanted),
                }
            }
            TextRule::Memory => match memory(text) {
                Some(bytes) => Ok(bytes.to_string()),
                None => wrong(NO_MEMORY, "a size such as 1024, 64kb or 1gb"),
            },
            TextRule::MemoryOrPercent => memory_or_percent(text).unwrap_or_else(|| {
                wrong(
                    "argument must be a memory or percent value",
                    "a size such as 1024, 64kb or 1gb, or percent such as 5%",
                )
            }),
            TextRule::MemoryIn(least, most) => {
                let wanted = format!("a size from {least} to {most} bytes");
                match memory(text) {
                    Some(bytes) if (least..=most).contains(&bytes) => Ok(bytes.to_string()),
                    Some(_) => wrong(&out_of_range(least, most), &wanted),
                    None => wrong(NO_MEMORY, &wanted),
                }
            }
            TextRule::OneOf(words) => {
                match words.iter().find(|word| word.eq_ignore_ascii_case(text)) {
                    Some(word) => Ok((*word).to_string()),
                    None => wrong(&none_of(words), "one of these"),
                }
            }
            TextRule::Text => Ok(text.to_string()),
            TextRule::Permissions => checked(
                permissions(text),
                "argument couldn't be parsed as an octal number",
                "permissions in octal digits, from 0 to 777",
            ),
            TextRule::SaveTimes => checked(
                save_times(text),
                "Invalid save parameters",
                "pairs of seconds, from 1, and numbers of changes, or \"\"",
            ),
            TextRule::ShutdownWords => checked(
                shutdown_words(text),
                &none_of(&["default", "save", "nosave", "now", "force"]),
                "default, or some of the others, but not save beside nosave",
            ),
            other => other.read_other(text, checked),
        }
    }

    /// As [`TextRule::read`], for kinds of values of only one or two settings.
    fn read_other(
        self,
        text: &str,
        checked: impl Fn(Option<String>, &str, &str) -> Result<String, ConfigError>,
    ) -> Result<String, ConfigError> {
        let said = |text: &str| ConfigError(text.to_string());
        match self {
            TextRule::Percentiles => checked(
                percentiles(text),
                "Invalid latency-tracking-info-percentiles parameters",
                "numbers from 0 to 100",
            ),
            TextRule::Events => checked(
                EventClasses::read(text).map(|classes| classes.to_string()),
                "Invalid event class character. Use 'Ag$lshzxeKEtmdn'",
                "letters of Ag$lshzxeKEtmdn",
            ),
            TextRule::OutputLimits => output_limits::read(text).map_err(said),
            TextRule::TlsProtocols => checked(
                tls::read_protocols(text),
                &none_of(&["TLSv1.2", "TLSv1.3"]),
                "TLSv1.2, TLSv1.3 or both (older versions are not secure)",
            ),
            TextRule::OomScores => match text.split_whitespace().count() {
                3 => checked(oom_scores(text), OOM_SCORES, "three such numbers"),
                _ => checked(None, NUMBER_OF_ARGUMENTS, "three numbers"),
            },
            TextRule::Master => read_master(text, checked),
            // As in Redis.
            TextRule::TitleTemplate if !is_title_template(text) => Err(said(TITLE_FORMAT)),
            _ => Ok(text.to_string()),
        }
    }
}

fn out_of_range(least: impl Display, most: impl Display) -> String {
    format!("argument must be between {least} and {most} inclusive")
}

fn none_of(words: &[&str]) -> String {
    format!("argument(s) must be one of the following: {}", words.join(", "))
}

/// A size, or up to a hundred percent; `None` if neither.
fn memory_or_percent(text: &str) -> Option<Result<String, ConfigError>> {
    let Some(percent) = text.strip_suffix('%') else {
        return memory(text).map(|bytes| Ok(bytes.to_string()));
    };
    Some(match percent.parse::<u64>().ok()? {
        0..=100 => Ok(text.to_string()),
        _ => Err(ConfigError(TOO_MUCH_PERCENT.to_string())),
    })
}

/// Permissions of a file.
fn permissions(text: &str) -> Option<String> {
    let is_octal = !text.is_empty() && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777)?;
    Some(format!("{mode:o}"))
}

/// Numbers, each a possible addend to the system's score of a process.
fn oom_scores(text: &str) -> Option<String> {
    let in_range = |number: &i32| (-2_000..=2_000).contains(number);
    let numbers = text.split_whitespace().map(|word| word.parse::<i32>().ok().filter(in_range));
    let numbers = numbers.collect::<Option<Vec<_>>>()?;
    Some(numbers.iter().map(i32::to_string).collect::<Vec<_>>().join(" "))
}

/// The place of a master. The absence of a master has two forms.
fn read_master(
    text: &str,
    checked: impl Fn(Option<String>, &str, &str) -> Result<String, ConfigError>,
) -> Result<String, ConfigError> {
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        [] => Ok(String::new()),
        [no, one] if no.eq_ignore_ascii_case("no") && one.eq_ignore_ascii_case("one") => {
            Ok(String::new())
        }
        [host, port] => {
            let port = port.parse::<u16>().ok();
            let place = port.map(|port| format!("{host} {port}"));
            checked(place, "Invalid master port", "a host and a port from 0 to 65535")
        }
        _ => checked(None, NUMBER_OF_ARGUMENTS, "a host and a port"),
    }
}

/// Numbers from 0 to 100.
fn percentiles(text: &str) -> Option<String> {
    let numbers = text.split_whitespace().map(|word| word.parse::<f64>().ok());
    let in_range = |number: Option<f64>| number.filter(|number| (0.0..=100.0).contains(number));
    let numbers: Option<Vec<f64>> = numbers.map(in_range).collect();
    Some(numbers?.iter().map(f64::to_string).collect::<Vec<_>>().join(" "))
}

/// Pairs of seconds and changes. None at all is possible, too.
fn save_times(text: &str) -> Option<String> {
    let numbers: Option<Vec<u32>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    let numbers = numbers
        .filter(|all| all.len().is_multiple_of(2) && all.chunks(2).all(|pair| pair[0] > 0))?;
    Some(numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
}

/// Whether a text is not empty, and its braces hold names of fields; two opening braces mean a
/// literal brace.
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

/// The words in the order in which Redis shows the words.
fn shutdown_words(text: &str) -> Option<String> {
    const WORDS: [&str; 4] = ["save", "nosave", "now", "force"];
    let given: Vec<String> = text.split_whitespace().map(str::to_ascii_lowercase).collect();
    if given == ["default"] {
        return Some("default".to_string());
    }
    let has = |word: &&str| given.iter().any(|option| option == word);
    let is_known = given.iter().all(|option| WORDS.contains(&option.as_str()));
    let contradicts = has(&"save") && has(&"nosave");
    (is_known && !given.is_empty() && !contradicts)
        .then(|| WORDS.into_iter().filter(has).collect::<Vec<_>>().join(" "))
}
