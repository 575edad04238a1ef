//! Opens the database while the server already answers.

use crate::data::Tables;
use crate::data::counts::CountChange;
use crate::data::head::Head;
use crate::shared::{Opened, Shared};
use hyades::{Column, Columns, Database, Error};
use std::sync::Arc;
use std::time::Duration;

const GENERATION: Column<u64> = Column::at(0);
const HEAD: Column<u64> = Column::at(2);

/// Opens the database of the settings and counts its keys.
pub fn open(shared: &Arc<Shared>) -> Result<(), Error> {
    let settings = &shared.settings;
    let telling = Arc::downgrade(shared);
    let mut builder = Database::builder()
        .streams(settings.streams())
        .max_recovery(Duration::from_secs(settings.max_recovery_seconds()))
        .on_progress(move |progress| {
            if let Some(shared) = telling.upgrade() {
                *shared.progress.lock().expect("no holder panics") = Some(progress.clone());
            }
        });
    let tables = Tables::declare(&mut builder);
    let database = builder.open(settings.dir())?;
    count_keys(shared, &database, tables)?;
    let opened = Opened { database, tables };
    assert!(shared.opened.set(opened).is_ok(), "a server opens its database once");
    // What has expired meanwhile, and what was flushed before, is removed at once: not before the
    // reaper finds the database, or it would forget.
    shared.reap_no_later_than(0);
    shared.wake_all();
    Ok(())
}

/// Counts the keys, and finds out when the first one expires.
fn count_keys(shared: &Shared, database: &Database, tables: Tables) -> Result<(), Error> {
    let snapshot = database.open_snapshot();
    snapshot.for_each(tables.keys, Columns::of(&[0, 2]), |row| {
        let expires = Head::from_word(row.get(HEAD)).and_then(Head::expires);
        let (generation, expiring) = (row.get(GENERATION), i64::from(expires.is_some()));
        shared.counts.apply(CountChange { generation, keys: 1, expiring });
    })?;
    Ok(())
}
