//! The limit of open files, which bounds the number of clients.

use crate::config::{ConfigError, Settings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// File descriptors beside clients': of the log, of checkpoints, of the loops.
const OWN_FILES: u64 = 512;

/// Raises the limit of the process as far as needed for `clients`. Returns the allowed number of
/// clients.
pub fn raise_for(clients: u64) -> u64 {
    let wanted = clients.saturating_add(OWN_FILES);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current.filter(|current| *current < wanted) else { return clients };
    let granted = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(granted), maximum });
    let current = if raised.is_ok() { granted } else { current };
    allowed(current, clients)
}

/// The number of clients within a limit of open files: at least one, to be told about the limit.
fn allowed(files: u64, clients: u64) -> u64 {
    files.saturating_sub(OWN_FILES).clamp(1, clients.max(1))
}

/// Makes room for `maxclients`. If the system grants too few descriptors, `maxclients` is lowered:
/// clients beyond the limit get an error, which is better than a connection that is not accepted.
/// Returns the change in words.
pub fn fit_clients(settings: &Settings) -> Result<Option<String>, ConfigError> {
    let wanted = settings.max_clients() as u64;
    let allowed = raise_for(wanted);
    if allowed >= wanted {
        return Ok(None);
    }
    settings.set(&[("maxclients".to_string(), allowed.to_string())])?;
    Ok(Some(format!(
        "maxclients {wanted} needs {} open files, more than the system allows: it is {allowed} \
         now. Raise the limit of open files for more (ulimit -n; LimitNOFILE of a unit)",
        wanted + OWN_FILES
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_what_other_files_leave() {
        assert_eq!(allowed(OWN_FILES + 1_000, 1_000), 1_000);
        assert_eq!(allowed(OWN_FILES + 999, 1_000), 999);
        assert_eq!(allowed(OWN_FILES, 1_000), 1);
        assert_eq!((allowed(0, 1_000), allowed(0, 0)), (1, 1));
    }

    #[test]
    fn more_than_the_system_allows_is_told() {
        let Some(maximum) = getrlimit(Resource::Nofile).maximum.filter(|most| *most < 900_000)
        else {
            return;
        };
        let fits = maximum.saturating_sub(OWN_FILES).max(1);
        assert_eq!((raise_for(fits), raise_for(fits + 1)), (fits, fits));
        let settings = Settings::from_arguments(&["--maxclients", "1000000"]).unwrap();
        let said = fit_clients(&settings).unwrap().expect("it does not fit");
        let words = ["maxclients 1000000 needs 1000512", &format!("it is {fits} now"), "ulimit"];
        assert!(words.iter().all(|words| said.contains(words)), "{said}");
        assert_eq!(settings.max_clients() as u64, fits);
        assert_eq!(fit_clients(&settings), Ok(None));
    }
}
