//! REPLICAOF and SLAVEOF: begin a live import, and cut it over.
//!
//! An import begins on an empty database. Clients may be writing at that moment, so in this order:
//!
//! 1. Writes are refused from here on.
//! 2. A transaction writes the generations of all databases as they are. A transaction of a client
//!    that was admitted before and commits later reads another version, and runs again: it is
//!    refused then.
//! 3. A snapshot shows what has committed before. If it has a key, nothing has changed, and clients
//!    write again.
//! 4. The row of the import is written. Once that is on disk the client has its reply.
//!
//! The end waits until all that was received and run is on disk, then writes the row once more, and
//! only then lets clients write. Values that are not loaded whole are removed.

use super::{Done, Job, Local, integer, is};
use crate::config::{MOST_DATABASES, PrimaryAddress};
use crate::data::databases;
use crate::data::keyspace::Keyspace;
use crate::data::primary::{ImportStage, PrimaryPosition, clear, fence};
use crate::resp::reply::Reply;
use crate::state::Shared;
use crate::transact::{durably, failure};
use hyades::{Column, Columns};

const GENERATION: Column<u64> = Column::at(0);

/// Keys that are read at once, and places that are looked at for them.
const STEP_KEYS: usize = 1_024;
const STEPS: usize = 16 << 10;

/// REPLICAOF and SLAVEOF.
pub fn replicaof(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    #[cfg(feature = "replication")]
    if local.shared.membership.is_on() {
        return super::members::replicaof(local, args, reply);
    }
    let import = &local.shared.live_import;
    if is(args[1], "NO") && is(args[2], "ONE") {
        if !import.is_on() {
            reply.ok();
            return Ok(());
        }
        *local.job = Some(Job::on_disk(|shared, reply| answer(cut_over(shared), reply)));
        return Ok(());
    }
    let port = integer(args[2]).ok().and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or("ERR Invalid master port")?;
    let host = std::str::from_utf8(args[1]).ok();
    let is_host = |host: &&str| !host.is_empty() && !host.contains(|c: char| c.is_whitespace());
    let host = host.filter(is_host).ok_or("ERR Invalid master host")?.to_string();
    let address = PrimaryAddress { host, port };
    if import.primary().as_ref() == Some(&address) {
        reply.simple("OK Already connected to specified master");
        return Ok(());
    }
    *local.job = Some(Job::on_disk(move |shared, reply| answer(begin(shared, address), reply)));
    Ok(())
}

/// The number of keys of all databases, without those that were flushed and are not removed yet.
fn count(shared: &Shared) -> Result<i64, String> {
    let live =
        durably(shared, |tx, context| Ok(databases::live(tx, context.tables, MOST_DATABASES)?.0))?;
    Ok(shared.store.counts.of_all(&live))
}

fn answer(done: Result<(), String>, reply: &mut Reply<'_>) {
    match done {
        Ok(()) => reply.ok(),
        Err(text) => reply.error(&text),
    }
}

/// The error of an import into a database that has something.
fn not_empty(what: &str) -> String {
    format!(
        "ERR the database has {what}, and an import begins with an empty one: start a server with \
         another dir, or remove all with FLUSHALL and FUNCTION FLUSH"
    )
}

/// Begins an import, or goes on with one from another address.
fn begin(shared: &Shared, address: PrimaryAddress) -> Result<(), String> {
    let import = &shared.live_import;
    let _changing = import.lock();
    let was_on = import.is_on();
    let position = if was_on {
        // The thread writes the row no more.
        if !import.leave(&shared.stop_signal) {
            return Err("ERR the server stops".to_string());
        }
        let stored = durably(shared, PrimaryPosition::read)?;
        let new = PrimaryPosition::new(address.clone());
        PrimaryPosition { address: address.clone(), ..stored.unwrap_or(new) }
    } else {
        let keys = count(shared)?;
        if keys > 0 {
            return Err(not_empty(&format!("{keys} keys")));
        }
        import.set_stage(ImportStage::Loading);
        if let Err(text) = check_empty(shared) {
            import.set_stage(ImportStage::Over);
            return Err(text);
        }
        PrimaryPosition::new(address.clone())
    };
    if let Err(text) = keep(shared, &position) {
        if !was_on {
            import.set_stage(ImportStage::Over);
        }
        return Err(text);
    }
    shared.settings.set_primary(Some(&address));
    import.follow(address);
    Ok(())
}

/// Cuts an import over.
fn cut_over(shared: &Shared) -> Result<(), String> {
    let import = &shared.live_import;
    let _changing = import.lock();
    if !import.is_on() {
        return Ok(());
    }
    if !import.leave(&shared.stop_signal) {
        return Err("ERR the server stops".to_string());
    }
    match durably(shared, PrimaryPosition::read)? {
        Some(position) if position.stage == ImportStage::Loading => {
            remove_part(shared, position)?;
        }
        Some(position) => {
            let id = String::new();
            keep(shared, &PrimaryPosition { stage: ImportStage::Over, id, offset: 0, ..position })?;
        }
        None => {}
    }
    shared.settings.set_primary(None);
    import.set_stage(ImportStage::Over);
    // What has expired meanwhile is removed now.
    shared.store.timers.wake();
    Ok(())
}

/// Writes the row, to disk.
fn keep(shared: &Shared, position: &PrimaryPosition) -> Result<(), String> {
    durably(shared, |tx, context| Ok(position.keep(tx, context.tables)?))
}

/// Removes values that are no whole. The row stays: a restart with the same setting does not begin
/// the import again.
fn remove_part(shared: &Shared, position: PrimaryPosition) -> Result<(), String> {
    let id = String::new();
    let over = PrimaryPosition { stage: ImportStage::Over, id, offset: 0, ..position };
    durably(shared, |tx, context| {
        clear(&Keyspace::open(*tx, context, 0)?)?;
        Ok(over.keep(tx, context.tables)?)
    })
}

/// Whether there is nothing, once no client writes any more.
fn check_empty(shared: &Shared) -> Result<(), String> {
    let databases = shared.settings.databases();
    let libraries = durably(shared, |tx, context| {
        fence(tx, context.tables, databases)?;
        Ok(Keyspace::open(*tx, context, 0)?.libraries()?.len())
    })?;
    if libraries > 0 {
        return Err(not_empty(&format!("{libraries} libraries of functions")));
    }
    let opened = shared.opened()?;
    let (tables, snapshot) = (opened.tables, opened.database.open_snapshot());
    let mut cursor = 0;
    loop {
        let step = snapshot.read(|tx| {
            let (live, _) = databases::live(tx, tables, databases)?;
            let step = tx.walk(tables.keys, cursor).limit(STEP_KEYS).steps(STEPS);
            let step = step.columns(Columns::of(&[0])).rows()?;
            let mut has_keys = false;
            for row in step.rows {
                has_keys |= live.contains(&row.get(GENERATION));
            }
            Ok((step.next, has_keys))
        });
        let (next, has_keys) = step.map_err(|error| failure(shared, error))?;
        if has_keys {
            return Err(not_empty("keys, which were written just now"));
        }
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}
