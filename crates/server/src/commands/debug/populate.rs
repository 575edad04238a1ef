//! DEBUG POPULATE: fills a database, for tests.
//!
//! The command runs many transactions of a bounded size, on a thread of its own: clients go on
//! meanwhile. OK says that all keys are on disk. The command ends early, with the keys added by
//! then, if memory runs out, the server stops, or the client is killed (CLIENT KILL).

use super::check_open;
use crate::client::RunEnd;
use crate::clients::ClientEntry;
use crate::clients::tracking::Changed;
use crate::commands::{Job, Local, integer};
use crate::config::EventClasses;
use crate::data::keyspace::{Context, Keyspace, Stop};
use crate::state::Shared;
use crate::state::live_import::READ_ONLY;
use crate::state::memory::OUT_OF_MEMORY;
use crate::transact;
use hyades::{SessionOrder, Ticket, Transaction};
use std::sync::atomic::Ordering::Relaxed;

/// Most keys of a transaction.
const MOST_KEYS: u64 = 1_000;

/// A transaction ends with the key that reaches this many bytes, with its value.
const MOST_BYTES: usize = 256 << 10;

/// The keys to be added.
struct Population {
    database: u32,
    /// The number of keys.
    count: u64,
    /// The beginning of the keys' names.
    prefix: Vec<u8>,
    /// The length of the values in bytes; 0: their natural length.
    size: usize,
}

/// Takes a number of keys, perhaps with the beginning of the names and the size of the values.
pub fn populate(local: &mut Local<'_>, args: &[&[u8]]) -> Result<(), Stop> {
    let count = positive(args[0])?;
    let size = args.get(2).map_or(Ok(0), |size| positive(size))?;
    check_open(local.shared)?;
    if local.shared.live_import.is_on() || local.shared.membership.only_reads() {
        return Err(READ_ONLY.into());
    }
    let longest = local.shared.settings.longest_argument();
    let size = usize::try_from(size).ok().filter(|size| *size <= longest);
    let size = size.ok_or("ERR string exceeds maximum allowed size (proto-max-bulk-len)")?;
    let prefix = args.get(1).map_or(b"key".to_vec(), |prefix| prefix.to_vec());
    let population = Population { database: local.client.database, count, prefix, size };
    let (client, mut order) = (local.client.entry.clone(), local.order.clone());
    *local.job = Some(Job::unbounded(move |shared, reply| {
        match population.fill(shared, &client, &mut order) {
            Ok(()) => reply.ok(),
            Err(text) => reply.error(&text),
        }
        // The keys are too many to name.
        let is_told = shared.wiring.tracking.is_on();
        let changed = if is_told { Changed::All } else { Changed::Nothing };
        RunEnd { order: Some(order), changed, ..RunEnd::default() }
    }));
    Ok(())
}

/// A non-negative number.
fn positive(text: &[u8]) -> Result<u64, Stop> {
    let number = u64::try_from(integer(text)?);
    number.map_err(|_| "ERR value is out of range, must be positive".into())
}

impl Population {
    /// Adds all keys that do not exist.
    ///
    /// # Errors
    /// The error for the client.
    fn fill(
        &self,
        shared: &Shared,
        client: &ClientEntry,
        order: &mut SessionOrder,
    ) -> Result<(), String> {
        let (mut next, mut last) = (0, None);
        while next < self.count {
            let has_ended = shared.stopping().is_some() || shared.membership.only_reads();
            if has_ended || client.is_killed.load(Relaxed) {
                return Err(format!("ERR DEBUG POPULATE has ended before key {next}"));
            }
            if shared.is_out_of_memory() {
                shared.note_out_of_memory();
                return Err(OUT_OF_MEMORY.to_string());
            }
            let (behind, _, ticket) =
                transact::patiently(shared, order, |tx, context| self.add(tx, context, next))?;
            // A transaction is written to disk while the next one runs.
            wait(shared, last.replace(ticket))?;
            next = behind;
        }
        wait(shared, last)
    }

    /// Adds the first keys from `first` on, and returns the number of the next key.
    fn add(&self, tx: &Transaction<'_>, context: Context<'_>, first: u64) -> Result<u64, Stop> {
        // As in Redis, which sends no events of the keys.
        let context = Context { events: EventClasses::from_bits(0), tracks: false, ..context };
        let space = Keyspace::open(*tx, context, self.database)?;
        let (mut number, mut bytes) = (first, 0);
        while number < self.count && number - first < MOST_KEYS && bytes < MOST_BYTES {
            let key = [&self.prefix[..], format!(":{number}").as_bytes()].concat();
            let entry = space.find_head(&key)?;
            // A key has up to 1 MiB itself, and an existing key is looked for as well.
            bytes += key.len();
            if !entry.exists() {
                let value = self.value(number);
                entry.put_string(&value)?;
                bytes += value.len();
            }
            number += 1;
        }
        Ok(number)
    }

    fn value(&self, number: u64) -> Vec<u8> {
        let mut value = format!("value:{number}").into_bytes();
        if self.size > 0 {
            value.resize(self.size, 0);
        }
        value
    }
}

/// Waits until a transaction is on disk.
fn wait(shared: &Shared, ticket: Option<Ticket>) -> Result<(), String> {
    let done = ticket.map_or(Ok(()), Ticket::wait);
    done.map_err(|error| transact::failure(shared, error))
}
