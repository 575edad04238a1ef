//! The change of a setting: its possible values, and refused values.

use super::table::{AT_START, Rule, SECRETS, SETTINGS, TextRule, first_name};
use super::{ConfigError, Settings, place};
use hyades_platform::sync::Unpoisoned;

/// The time of a change of a setting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Start,
    Running,
}

/// The result for a valid value.
pub(super) enum Change {
    /// The value is stored, or was there already.
    Done,
    /// This server does not support the value, or not now.
    Refused(ConfigError),
}

impl Change {
    /// An error if the value is refused.
    pub(super) fn or_error(self) -> Result<(), ConfigError> {
        match self {
            Change::Done => Ok(()),
            Change::Refused(error) => Err(error),
        }
    }
}

/// Whether a setting is a password.
pub(super) fn is_secret(name: &str) -> bool {
    SECRETS.iter().any(|secret| secret.eq_ignore_ascii_case(name))
}

impl Settings {
    /// Changes a setting.
    ///
    /// # Errors
    /// The name is unknown, or the value is invalid.
    pub(super) fn change(
        &self,
        name: &str,
        text: &str,
        moment: Moment,
    ) -> Result<Change, ConfigError> {
        let lower = name.to_ascii_lowercase();
        let at = place(first_name(&lower)).ok_or_else(|| ConfigError::unknown(name))?;
        let setting = &SETTINGS[at];
        let is_running = moment == Moment::Running;
        let was_given = self.given.read().unpoisoned().contains(&at);
        let before = || format!("{} {text}", self.text(&lower));
        let value = match setting.value {
            // Classes without a new limit stay.
            TextRule::OutputLimits => setting.value.read(&lower, &before())?,
            // Several lines all count, up to a line without times.
            TextRule::SaveTimes if !is_running && was_given && !text.trim().is_empty() => {
                setting.value.read(&lower, &before())?
            }
            other => other.read(&lower, text)?,
        };
        let refused = |text: String| Ok(Change::Refused(ConfigError(text)));
        match setting.rule {
            // The present value may be set again.
            Rule::Fixed if is_running && value != self.text(setting.name) => {
                return refused("can't set immutable config".to_string());
            }
            Rule::Fixed if is_running => return Ok(Change::Done),
            Rule::Refused(why)
                if value != setting.default && is_running && AT_START.contains(&lower.as_str()) =>
            {
                return refused(format!("can't set immutable config ({why})"));
            }
            Rule::Refused(why) if value != setting.default => {
                let text = if is_secret(&lower) { "(redacted)" } else { text };
                return refused(format!("{lower} cannot be {text:?}: {why}"));
            }
            _ => {}
        }
        self.values.write().unpoisoned()[at] = value;
        let mut given = self.given.write().unpoisoned();
        if !given.contains(&at) {
            given.push(at);
        }
        drop(given);
        self.refresh();
        Ok(Change::Done)
    }
}
