//! Loads all values of the primary, in the place of whatever was imported before.

use super::link::Link;
use super::log;
use super::payload::Payload;
use crate::clients::tracking::Changed;
use crate::data::keyspace::Keyspace;
use crate::data::primary::{ImportStage, PrimaryPosition, clear};
use crate::import::loading::{self, Loaded, Loading};
use crate::import::loading_threads;
use crate::import::runner::Runner;
use crate::rdb::file::FileReader;
use crate::state::Shared;
use crate::transact::durably;
use hyades_platform::sync::Unpoisoned;
use std::io::Read;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// Removes what was imported before. Reads are refused from here on.
fn begin(shared: &Shared, before: &PrimaryPosition) -> Result<PrimaryPosition, String> {
    if before.stage == ImportStage::Following {
        log(&format!(
            "the primary has no longer what follows offset {}: what was imported before is \
             removed, and imported again",
            before.offset
        ));
    }
    shared.live_import.set_stage(ImportStage::Loading);
    let position = PrimaryPosition::new(before.address.clone());
    durably(shared, |tx, context| {
        clear(&Keyspace::open(*tx, context, 0)?)?;
        Ok(position.keep(tx, context.tables)?)
    })?;
    shared.wiring.tracking.tell(Changed::All, 0);
    Ok(position)
}

/// Loads all values as they are at an offset of a history. They are on disk when this returns, and
/// so is the position, which is returned: clients may read.
///
/// # Errors
/// What is wrong, in a sentence.
pub fn load(
    shared: &Arc<Shared>,
    link: &mut Link<'_>,
    before: &PrimaryPosition,
    (id, offset): (String, u64),
) -> Result<PrimaryPosition, String> {
    let import = &shared.live_import;
    let position = begin(shared, before)?;
    import.numbers.sync_read.store(0, Relaxed);
    import.numbers.sync_total.store(0, Relaxed);
    let payload = Payload::begin(link, &import.numbers.sync_read)?;
    let length = payload.length();
    import.numbers.sync_total.store(length.unwrap_or(0), Relaxed);
    let name = format!("the values of {}", position.address);
    let reader = FileReader::new(payload, length.unwrap_or(u64::MAX));
    let reader = reader.map_err(|bad| format!("{name} {bad}"))?;
    let libraries = Mutex::new(Runner::new(shared));
    let loading = Loading {
        shared,
        name: name.clone(),
        threads: loading_threads(),
        // The commands behind them may prolong what has expired, or remove it.
        keeps_expired: true,
        is_behind: &|_, _| false,
        keep: &|_, _, _| Ok(()),
        load_library: &|code| {
            let mut runner = libraries.lock().unpoisoned();
            runner.run_one(shared, &[b"FUNCTION", b"LOAD", b"REPLACE", code])
        },
    };
    let Loaded { report, stream_database, behind: mut rest, source } =
        loading::load(&loading, reader, |_| ())?;
    let ended = source.take(1).read_to_end(&mut rest);
    ended.map_err(|error| format!("{name}: {error}"))?;
    if !rest.is_empty() {
        return Err(format!("{name} go on behind their end"));
    }
    libraries.lock().unpoisoned().wait()?;
    report.named.iter().for_each(|text| log(&format!("left out: {text}")));
    import.leave_out(report.left_out, report.named);
    let stage = ImportStage::Following;
    // A replica passes on what it gets, and tells here in which database that goes on.
    let database = stream_database.unwrap_or(0);
    let databases = shared.settings.databases();
    if database >= databases {
        return Err(format!(
            "{name} are followed by commands for database {database}: this server \
                            has {databases} databases"
        ));
    }
    let position = PrimaryPosition { stage, id, offset, database, ..position };
    durably(shared, |tx, context| Ok(position.keep(tx, context.tables)?))?;
    import.set_stage(ImportStage::Following);
    Ok(position)
}
