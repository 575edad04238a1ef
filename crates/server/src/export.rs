//! Writes all databases into an RDB file, which Redis and further programs read.

use crate::commands::payload;
use crate::config::Settings;
use crate::data::keyspace::Keyspace;
use crate::rdb::{FileWriter, FormatVersion};
use crate::state::Shared;
use crate::transact::{in_parts, is_too_much, patiently};
use crate::upkeep::opening;
use hyades::SessionOrder;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

/// Keys looked up at once.
const KEYS_AT_ONCE: usize = 1_000;

/// Numbers of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Keys.
    pub keys: u64,
    /// Libraries of functions.
    pub libraries: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// A key with the time of its expiry, and the payload of its value.
type Exported = (Vec<u8>, Option<i64>, Vec<u8>);

/// Values of keys of a database, in several transactions if too large for a single transaction.
fn values(shared: &Arc<Shared>, database: u32, keys: &[Vec<u8>]) -> Result<Vec<Exported>, String> {
    let mut found = Vec::new();
    in_parts(keys, 0, &mut |keys: &[Vec<u8>], _| {
        let read = patiently(shared, &mut SessionOrder::default(), |tx, context| {
            let (space, mut all) = (Keyspace::open(*tx, context, database)?, Vec::new());
            for key in keys {
                let entry = space.read(key)?;
                if let Some((head, value)) = entry.value()? {
                    all.push((key.clone(), head.expires(), payload(&value)?));
                }
            }
            Ok(all)
        });
        match read {
            Ok((all, ..)) => found.extend(all),
            Err(text) if is_too_much(&text) && keys.len() > 1 => return Err(text),
            Err(text) => {
                let first = keys.first().map(|key| String::from_utf8_lossy(key).into_owned());
                let first = first.unwrap_or_default();
                return Err(format!("key {first:?} of database {database}: {text}"));
            }
        }
        Ok(())
    })?;
    Ok(found)
}

fn write(
    shared: &Arc<Shared>,
    file: &File,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<ExportReport, String> {
    let failed = |error: std::io::Error| format!("the file cannot be written: {error}");
    let timed_hashes = shared.store.opening().map_or(0, |opening| opening.timed_hashes);
    let version = match timed_hashes {
        0 => FormatVersion::Redis70,
        _ => FormatVersion::Redis74,
    };
    let mut writer = FileWriter::new(BufWriter::new(file), version).map_err(failed)?;
    let mut report = ExportReport::default();
    let total = shared.store.counts.all() as u64;
    let mut order = SessionOrder::default();
    let (libraries, ..) = patiently(shared, &mut order, |tx, context| {
        Ok(Keyspace::open(*tx, context, 0)?.libraries()?)
    })?;
    for (_, code) in libraries {
        writer.library(&code).map_err(failed)?;
        report.libraries += 1;
    }
    for database in 0..shared.settings.databases() {
        let mut cursor = 0;
        loop {
            let ((next, keys), ..) = patiently(shared, &mut order, |tx, context| {
                let (space, mut keys) = (Keyspace::open(*tx, context, database)?, Vec::new());
                let next = space.walk(cursor, KEYS_AT_ONCE, |key, _| keys.push(key.to_vec()))?;
                Ok((next, keys))
            })?;
            for (key, expires, payload) in values(shared, database, &keys)? {
                writer.key(database, &key, expires, &payload).map_err(failed)?;
                report.keys += 1;
            }
            tell(report.keys, total);
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
    }
    writer.finish().map_err(failed)?;
    file.sync_all().map_err(failed)?;
    report.bytes = file.metadata().map_err(failed)?.len();
    Ok(report)
}

/// Writes the databases of the settings, which no other process has open, into a new file. Calls
/// `tell` with the number of written keys, and of all keys.
///
/// # Errors
/// The fault, in a sentence. The file does not exist then.
pub fn export(
    settings: Settings,
    path: &Path,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<ExportReport, String> {
    let shared = Shared::new(settings);
    let shown = path.display();
    let file = File::create_new(path).map_err(|error| format!("{shown}: {error}"))?;
    let exported = opening::open(&shared).map_err(|error| error.to_string()).and_then(|()| {
        if shared.live_import.is_loading() {
            return Err("the values are being imported, and are no whole".to_string());
        }
        let report = write(&shared, &file, tell)?;
        let opened = shared.store.opened.get().expect("it was opened");
        opened.database.clone().close().map_err(|error| error.to_string())?;
        Ok(report)
    });
    if exported.is_err() {
        // The file is incomplete.
        let _ = std::fs::remove_file(path);
    }
    exported.map_err(|text| format!("{shown}: {text}"))
}
