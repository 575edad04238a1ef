//! The thread that takes checkpoints requested by clients.

use crate::state::Shared;

/// Takes checkpoints in the background, until the server stops.
pub fn run(shared: &Shared) {
    let saves = &shared.store.saves;
    while let Some(kind) = saves.wait() {
        // Commands come once there is a database; a member may have lost it again.
        let Some(opened) = shared.store.opened.get() else { continue };
        let changes = &shared.stats.counters.changes;
        if let Err(error) = saves.take(&opened.database, changes, kind)
            && shared.stops_with_log(&error)
            && !shared.membership.is_on()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::data::Tables;
    use crate::state::saves::Begun;
    use crate::state::saves::SaveKind;
    use crate::state::{Opened, Stopping};
    use SaveKind::{Rewrite, Save};
    use hyades::Error;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::{Duration, Instant};

    fn save(shared: &Shared) -> Option<Result<(), Error>> {
        let opened = shared.store.opened.cloned();
        shared.store.saves.save(&opened.database, &shared.stats.counters.changes)
    }

    #[test]
    fn one_is_taken_at_a_time_and_another_kind_follows() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut builder = hyades::Database::builder();
        let tables = Tables::declare(&mut builder);
        let database = builder.open(dir.path()).unwrap();
        let shared = Shared::new(Settings::default());
        assert!(shared.store.opened.set(Opened { database, tables }).is_ok());
        shared.stats.counters.changes.store(7, Relaxed);
        let saves = &shared.store.saves;
        // No thread takes the checkpoint yet.
        assert_eq!(saves.begin_in_background(Save, false), Some(Begun::Started));
        assert_eq!(saves.begin_in_background(Save, true), None, "one of each kind");
        assert_eq!(saves.begin_in_background(Rewrite, false), None);
        assert!(!saves.stats(Rewrite).is_scheduled);
        assert_eq!(saves.begin_in_background(Rewrite, true), Some(Begun::Scheduled));
        assert_eq!(saves.begin_in_background(Rewrite, true), Some(Begun::Scheduled));
        assert!(save(&shared).is_none(), "SAVE does not come between");
        let both = || [Save, Rewrite].map(|kind| saves.stats(kind));
        assert!(saves.stats(Save).since.is_some() && saves.stats(Rewrite).since.is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| run(&shared));
            let began = Instant::now();
            while both().map(|stats| stats.taken) != [1, 1] {
                assert!(began.elapsed() < Duration::from_secs(60), "they are not taken");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(both().iter().all(|stats| stats.since.is_none() && !stats.is_scheduled));
            assert!(both().iter().all(|stats| stats.last.is_some() && !stats.has_failed));
            assert_eq!(shared.stats.counters.changes.load(Relaxed), 0);
            assert!(save(&shared).unwrap().is_ok());
            assert_eq!(both().map(|stats| stats.taken), [2, 1]);
            assert_eq!(saves.begun_in_background(), 2, "but for the one of SAVE");
            shared.stop(Stopping::Asked);
        });
    }
}
