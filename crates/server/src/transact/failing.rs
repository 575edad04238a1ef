//! Errors for clients if the engine fails.

use crate::state::Shared;
use hyades::Error;

/// The reply for a transaction whose record may be on disk or not.
pub const OUTCOME_UNKNOWN: &str = "OUTCOMEUNKNOWN the log failed before this was durable: after \
                                   the restart it is there whole or not at all";

/// The reply if the engine fails.
pub fn failure(shared: &Shared, error: Error) -> String {
    match error {
        Error::Poisoned(cause) => {
            let cause = shared.store.log_failure().unwrap_or(cause);
            shared.stop_for_log(&cause);
            format!("MISCONF {cause}")
        }
        Error::OutcomeUnknown => {
            shared.store.log_failure().iter().for_each(|cause| shared.stop_for_log(cause));
            OUTCOME_UNKNOWN.to_string()
        }
        Error::Aborted(abort) => super::abort_text(abort),
        // A reader of a standby that is about to be the primary, say.
        _ if shared.membership.waits_for().is_some() => shared.loading(),
        other => format!("ERR {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    #[test]
    fn each_failure_of_the_log_has_its_code() {
        let shared = Shared::new(Settings::default());
        assert_eq!(failure(&shared, Error::OutcomeUnknown), OUTCOME_UNKNOWN);
        assert_eq!(shared.stopping(), None, "this log has not failed");
        let text = failure(&shared, Error::Poisoned("the disk is gone".into()));
        assert_eq!(text, "MISCONF the disk is gone");
        assert!(shared.stopping().is_some());
    }
}
