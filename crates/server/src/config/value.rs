//! How the text of a setting is checked.

use super::table::Value;
use super::{ConfigError, memory, output_limits, tls};
use crate::data::keyspace::EventClasses;

impl Value {
    /// Checks a value and brings it into its usual form.
    pub fn read(self, name: &str, text: &str) -> Result<String, ConfigError> {
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
            Value::MemoryOrPercent => match (text.strip_suffix('%'), memory(text)) {
                (Some(percent), _) => match percent.parse::<u64>() {
                    Ok(0..=100) => Ok(text.to_string()),
                    Ok(_) => Err(ConfigError(
                        "percentage argument must be less or equal to 100".to_string(),
                    )),
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
            Value::Percentiles => {
                let numbers = text.split_whitespace().map(|of| of.parse::<f64>().ok());
                let numbers: Option<Vec<f64>> = numbers
                    .map(|number| number.filter(|number| (0.0..=100.0).contains(number)))
                    .collect();
                match numbers {
                    Some(numbers) => {
                        Ok(numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" "))
                    }
                    None => wrong("numbers from 0 to 100"),
                }
            }
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
            Value::TlsProtocols => match tls::read_protocols(text) {
                Some(versions) => Ok(versions),
                None => wrong("TLSv1.2, TLSv1.3 or both (older versions are not secure)"),
            },
            Value::Text => Ok(text.to_string()),
        }
    }
}
