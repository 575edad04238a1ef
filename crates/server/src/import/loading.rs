//! Loads an RDB file: one thread cuts the file into batches of keys, and several threads decode and
//! write the batches, a transaction each.

use super::report::ImportReport;
use crate::commands::store_restored;
use crate::data::keyspace::{Context, Keyspace, Stop};
use crate::rdb::file::{BadFile, FilePart, FileReader};
use crate::rdb::{self, MOST_BYTES};
use crate::state::Shared;
use crate::transact::{in_parts, is_too_much, patiently};
use hyades::{Abort, SessionOrder, Ticket};
use hyades_platform::sync::Unpoisoned;
use std::io::Read;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};

/// Keys of a batch, at most.
const MOST_KEYS: usize = 1_000;

/// Bytes of a batch after which no key is added.
const BATCH_BYTES: usize = 1 << 20;

/// Batches waiting for a thread.
const MOST_WAITING: usize = 2;

/// Most bytes of all batches under way, except of a single larger batch: a file may have many long
/// values.
const MOST_UNDER_WAY: usize = 64 << 20;

/// The bytes of the batches under way.
#[derive(Default)]
struct BatchRoom {
    taken: Mutex<usize>,
    freed: Condvar,
}

/// The bytes of a batch, until the batch is written.
struct TakenRoom<'r> {
    room: &'r BatchRoom,
    bytes: usize,
}

impl BatchRoom {
    /// Waits until there is room for a batch.
    fn take(&self, bytes: usize) -> TakenRoom<'_> {
        let is_full = |taken: &mut usize| *taken > 0 && *taken + bytes > MOST_UNDER_WAY;
        let taken = self.taken.lock().unpoisoned();
        *self.freed.wait_while(taken, is_full).unpoisoned() += bytes;
        TakenRoom { room: self, bytes }
    }
}

impl Drop for TakenRoom<'_> {
    fn drop(&mut self) {
        *self.room.taken.lock().unpoisoned() -= self.bytes;
        self.room.freed.notify_one();
    }
}

/// A key of a batch; the ranges refer to the bytes of the batch.
struct BatchKey {
    database: u32,
    expires: Option<i64>,
    key: Range<usize>,
    kind: u8,
    value: Range<usize>,
}

/// Keys written by one transaction.
#[derive(Default)]
struct Batch {
    number: u64,
    bytes: Vec<u8>,
    keys: Vec<BatchKey>,
}

impl Batch {
    fn push(&mut self, bytes: &[u8]) -> Range<usize> {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        from..self.bytes.len()
    }

    fn is_full(&self) -> bool {
        self.keys.len() >= MOST_KEYS || self.bytes.len() >= BATCH_BYTES
    }
}

/// A batch on the way to a thread, with the room taken.
type RoomyBatch<'r> = (Batch, TakenRoom<'r>);

/// Stores, in a transaction, the number of batches written by a thread.
type KeepBatches<'a> = &'a (dyn Fn(&Keyspace<'_>, u8, u64) -> Result<(), Abort> + Sync);

/// The target and the options of loading an RDB file.
pub struct Loading<'a> {
    /// The server, or the import.
    pub shared: &'a Arc<Shared>,
    /// The name of the file in errors.
    pub name: String,
    /// The number of writing threads.
    pub threads: u8,
    /// Expired values are loaded: later commands may still prolong them.
    pub keeps_expired: bool,
    /// Whether a batch of a thread was written before.
    pub is_behind: &'a (dyn Fn(u8, u64) -> bool + Sync),
    /// Is called in the last transaction of a batch.
    pub keep: KeepBatches<'a>,
    /// Loads a library of functions.
    pub load_library: &'a (dyn Fn(&[u8]) -> Result<(), String> + Sync),
}

/// A loaded file.
pub struct Loaded<R> {
    pub report: ImportReport,
    /// The database in which a stream of commands behind the file begins, if the file tells.
    pub stream_database: Option<u32>,
    /// Bytes of the source behind the file, already read.
    pub behind: Vec<u8>,
    pub source: R,
}

/// Loads a file. Returns a report, and the source behind the end of the RDB file: bytes already
/// read, and the rest.
///
/// # Errors
/// A description of the error, in a sentence.
pub fn load<R: Read>(
    import: &Loading<'_>,
    mut reader: FileReader<R>,
    mut tell: impl FnMut(u64),
) -> Result<Loaded<R>, String> {
    let room = BatchRoom::default();
    std::thread::scope(|scope| {
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        for thread in 0..import.threads {
            let (sender, batches) = sync_channel(MOST_WAITING);
            senders.push(sender);
            threads.push(scope.spawn(move || write_batches(import, thread, &batches)));
        }
        let scanned = scan(import, &mut reader, (&senders, &room), &mut tell);
        drop(senders);
        let mut report = ImportReport::default();
        for thread in threads {
            let own = thread.join().map_err(|_| "a thread of the import has panicked")?;
            report.add(own?);
        }
        report.add(scanned.map_err(|bad| format!("{} {bad}", import.name))?);
        let stream_database = reader.stream_database();
        let (behind, source) = reader.into_rest();
        Ok(Loaded { report, stream_database, behind, source })
    })
}

/// Cuts the file into batches and deals them to the threads in turn. Ends early if a thread has
/// ended.
fn scan<'r, R: Read>(
    import: &Loading<'_>,
    reader: &mut FileReader<R>,
    (senders, room): (&[SyncSender<RoomyBatch<'r>>], &'r BatchRoom),
    tell: &mut dyn FnMut(u64),
) -> Result<ImportReport, BadFile> {
    let (mut report, mut batch) = (ImportReport::default(), Batch::default());
    let databases = import.shared.settings.databases();
    loop {
        let offset = reader.position();
        let is_last = match reader.next()? {
            Some(FilePart::Key { database, .. }) if database >= databases => {
                let text = format!(
                    "a key of database {database}, and there are {databases}: --databases {} \
                     makes room",
                    database + 1
                );
                return Err(BadFile { offset, text });
            }
            Some(FilePart::Key { database, expires, key, kind, value }) => {
                let (key, value) = (batch.push(&key), batch.push(value));
                batch.keys.push(BatchKey { database, expires, key, kind, value });
                false
            }
            Some(FilePart::Library(code)) => {
                match (import.load_library)(&code) {
                    Ok(()) => report.libraries += 1,
                    Err(text) => report.leave_out(format!("a library of functions: {text}")),
                }
                false
            }
            Some(FilePart::LeftOut(name)) => {
                report.leave_out(format!("{name} at byte {offset}"));
                false
            }
            None => true,
        };
        if batch.is_full() || is_last && !batch.keys.is_empty() {
            tell(reader.position());
            let next = Batch { number: batch.number + 1, ..Batch::default() };
            let full = std::mem::replace(&mut batch, next);
            let thread = full.number as usize % senders.len();
            let taken = room.take(full.bytes.len());
            if senders[thread].send((full, taken)).is_err() {
                return Ok(report);
            }
        }
        if is_last {
            return Ok(report);
        }
    }
}

/// The work of a thread. The batches are on disk when the function returns.
fn write_batches(
    import: &Loading<'_>,
    thread: u8,
    batches: &Receiver<RoomyBatch<'_>>,
) -> Result<ImportReport, String> {
    let (mut report, mut order) = (ImportReport::default(), SessionOrder::default());
    let mut last = None;
    for (batch, _taken) in batches {
        if (import.is_behind)(thread, batch.number) {
            continue;
        }
        last = write(import, (thread, &batch), &mut order, &mut report)?.or(last);
    }
    match last.map(Ticket::wait) {
        None | Some(Ok(_)) => Ok(report),
        Some(Err(error)) => Err(error.to_string()),
    }
}

/// Writes a batch, in several transactions if too large for one. Returns the ticket of the last
/// transaction, which serves for all: the transactions are in the order of the thread.
fn write(
    import: &Loading<'_>,
    (thread, batch): (u8, &Batch),
    order: &mut SessionOrder,
    report: &mut ImportReport,
) -> Result<Option<Ticket>, String> {
    let mut last = None;
    in_parts(&batch.keys, 0, &mut |keys: &[BatchKey], behind| {
        let end = (behind == 0).then_some((thread, batch.number + 1));
        let (own, ticket) = match write_keys(import, (batch, keys), end, order) {
            Err(text) if is_too_much(&text) && keys.len() == 1 => {
                report.leave_out(format!("{}: {text}", shown(batch, &keys[0])));
                write_keys(import, (batch, &[]), end, order)?
            }
            written => written?,
        };
        report.add(own);
        last = Some(ticket);
        Ok(())
    })?;
    Ok(last)
}

/// Writes keys in a transaction. With `end`, the transaction ends a batch of a thread.
fn write_keys(
    import: &Loading<'_>,
    (batch, keys): (&Batch, &[BatchKey]),
    end: Option<(u8, u64)>,
    order: &mut SessionOrder,
) -> Result<(ImportReport, Ticket), String> {
    let now_ms = import.shared.clock.now_ms();
    let (own, _, ticket) = patiently(import.shared, order, |tx, context| {
        // Expired values are written, if at all, as any other value.
        let context = Context { is_import: true, ..context };
        let (mut own, mut space) = (ImportReport::default(), Keyspace::open(*tx, context, 0)?);
        for key in keys {
            if key.database != space.database() {
                space = space.of_database(key.database)?;
            }
            if !import.keeps_expired && key.expires.is_some_and(|at| at <= now_ms) {
                own.expired += 1;
            } else {
                put(&space, batch, key, &mut own)?;
            }
        }
        if let Some((thread, batches)) = end {
            (import.keep)(&space, thread, batches)?;
        }
        Ok(own)
    })?;
    Ok((own, ticket))
}

fn shown(batch: &Batch, key: &BatchKey) -> String {
    let name = String::from_utf8_lossy(&batch.bytes[key.key.clone()]);
    format!("key {name:?} of database {}", key.database)
}

fn put(
    space: &Keyspace<'_>,
    batch: &Batch,
    key: &BatchKey,
    report: &mut ImportReport,
) -> Result<(), Stop> {
    let bytes = &batch.bytes[key.value.clone()];
    let value = match rdb::value(key.kind, bytes, MOST_BYTES) {
        Ok(value) => value,
        Err(bad) => {
            report.leave_out(format!("{}: {}", shown(batch, key), bad.text()));
            return Ok(());
        }
    };
    let entry = space.find_head(&batch.bytes[key.key.clone()])?;
    store_restored(&entry, value, key.expires)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_batch_waits_for_room_unless_no_other_is_under_way() {
        let room = BatchRoom::default();
        drop(room.take(3 * MOST_UNDER_WAY));
        let (first, second) = (room.take(MOST_UNDER_WAY - 10), room.take(10));
        let (told, taken) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(room.take(2));
                told.send(()).unwrap();
                drop(room.take(2 * MOST_UNDER_WAY));
            });
            assert!(taken.recv_timeout(Duration::from_millis(50)).is_err(), "there is no room");
            drop(second);
            taken.recv_timeout(Duration::from_secs(60)).expect("there is room");
            drop(first);
        });
    }
}
