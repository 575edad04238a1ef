//! MIGRATE: sends keys to another server, and removes them here once the other server has them.
//!
//! A thread of its own waits for the other server, the *target*. No event loop does, so clients go
//! on, and may write the keys during the send. Hence three steps:
//!
//! 1. A transaction reads the keys. Nothing is sent before all data read is on disk.
//! 2. The target is sent a RESTORE for each key, and replies to each.
//! 3. A transaction removes the keys to which the target has replied OK, except keys written here
//!    since the first step. The client has its reply once the removal is on disk.
//!
//! Invariant: only keys acknowledged by the target are removed here. So whatever ends in between,
//! this server, the target or the connection: a value is here, or there, or at both. A target's
//! replies count only while there is exactly one to each request: otherwise an OK may belong to
//! another request, and nothing is removed.

use super::collections::distinct;
use super::{Done, Job, Local, SYNTAX, dump, integer, is};
use crate::catalogue::{self, Command};
use crate::client::RunEnd;
use crate::client::{Client, Silence};
use crate::clients::ClientEntry;
use crate::data::keyspace::{Keyspace, Notices, Stop};
use crate::resp::reply::Reply;
use crate::state::Shared;
use crate::state::migration::{
    MigrationTarget, TargetFailure, TargetName, TargetPatience, push_words,
};
use crate::transact;
use hyades::{Abort, Ticket};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time for a step if the client names none.
const USUAL_TIME: Duration = Duration::from_secs(1);

/// The longest time that the client may name; longer times are reduced to this bound.
const LONGEST_TIME: Duration = Duration::from_secs(86_400);

/// After this many keys, or bytes of values, the replies are read, so that neither side waits until
/// the other side has read.
const BATCH_KEYS: usize = 64;
const BATCH_BYTES: usize = 1 << 20;

/// A longer value is not copied for the send.
const LONG_VALUE: usize = 64 << 10;

/// The request of a client.
struct Migration {
    client: Arc<ClientEntry>,
    target: TargetName,
    /// The arguments of AUTH at the target.
    credentials: Option<Vec<Vec<u8>>>,
    /// The number of the database at the target.
    to: i64,
    /// The number of the database here.
    from: u32,
    keys: Vec<Vec<u8>>,
    /// The keys stay here.
    copies: bool,
    /// The keys replace existing keys of the target.
    replaces: bool,
    /// How long each step may take.
    time: Duration,
}

/// A key to be sent.
struct SentKey {
    key: Vec<u8>,
    /// The value, until the target has it.
    payload: Vec<u8>,
    expires: Option<i64>,
    /// The key's last write at the time of the read.
    seen: (u64, u64),
    /// The hash of the payload, if the value may change without a write of the key's row.
    digest: Option<[u8; 32]>,
    /// The target has replied OK.
    is_taken: bool,
}

/// The result of sending keys.
#[derive(Default)]
struct SentKeys {
    /// The target has replied to a request.
    has_reply: bool,
    /// The target's first error.
    error: Option<String>,
    failure: Option<TargetFailure>,
}

impl SentKeys {
    /// Notes a reply; whether it is OK.
    fn note(&mut self, reply: Result<(), String>) -> bool {
        self.has_reply = true;
        match reply {
            Ok(()) => true,
            Err(text) => {
                self.error.get_or_insert(text);
                false
            }
        }
    }
}

/// The options behind the first six arguments.
#[derive(Default)]
struct MigrateOptions<'a> {
    copies: bool,
    replaces: bool,
    credentials: Option<&'a [&'a [u8]]>,
    /// The keys behind KEYS.
    keys: Option<&'a [&'a [u8]]>,
}

fn read_options<'a>(args: &'a [&'a [u8]]) -> Result<MigrateOptions<'a>, Stop> {
    let (mut options, mut at) = (MigrateOptions::default(), 6);
    while let Some(&option) = args.get(at) {
        at += 1;
        let words = |count: usize| args.get(at..at + count).ok_or(SYNTAX);
        if is(option, "COPY") {
            options.copies = true;
        } else if is(option, "REPLACE") {
            options.replaces = true;
        } else if is(option, "AUTH") {
            options.credentials = Some(words(1)?);
            at += 1;
        } else if is(option, "AUTH2") {
            options.credentials = Some(words(2)?);
            at += 2;
        } else if is(option, "KEYS") {
            if !args[3].is_empty() {
                let text = "ERR When using MIGRATE KEYS option, the key argument must be set to \
                            the empty string";
                return Err(text.into());
            }
            options.keys = Some(&args[at..]);
            break;
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(options)
}

/// The hash of credentials. Their lengths are part of the hash: two words differ from one.
fn hash_of(credentials: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for word in credentials {
        hash.update((word.len() as u64).to_le_bytes());
        hash.update(word);
    }
    hash.finalize().into()
}

/// How long each step may take; 0 and less stand for the usual time.
fn read_time(text: &[u8]) -> Result<Duration, Stop> {
    Ok(match u64::try_from(integer(text)?) {
        Ok(0) | Err(_) => USUAL_TIME,
        Ok(ms) => Duration::from_millis(ms).min(LONGEST_TIME),
    })
}

impl Migration {
    fn read(args: &[&[u8]], client: &Client) -> Result<Migration, Stop> {
        let options = read_options(args)?;
        let (time, to) = (read_time(args[5])?, integer(args[4])?);
        let host = std::str::from_utf8(args[1]).map_err(|_| "ERR the host is not UTF-8")?;
        let port = integer(args[2]).ok().and_then(|port| u16::try_from(port).ok());
        let port = port.filter(|port| *port > 0).ok_or("ERR the port is not from 1 to 65535")?;
        let keys = options.keys.unwrap_or(&args[3..4]);
        let owned = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
        let target = TargetName {
            host: host.to_string(),
            port,
            credentials: options.credentials.map(hash_of),
        };
        Ok(Migration {
            client: client.entry.clone(),
            target,
            credentials: options.credentials.map(owned),
            to,
            from: client.database,
            keys: owned(&distinct(keys)),
            copies: options.copies,
            replaces: options.replaces,
            time,
        })
    }

    /// Migrates the keys, and returns the reply if there is no error. `end` gets the ticket of the
    /// reply's transaction, and messages.
    fn run(&self, shared: &Shared, end: &mut RunEnd) -> Result<&'static str, String> {
        let mut keys = self.find(shared, end)?;
        if keys.is_empty() {
            return Ok("NOKEY");
        }
        let SentKeys { error, failure, .. } = self.send_all(shared, &mut keys);
        let written = match self.copies {
            true => 0,
            false => self.remove(shared, &keys, end)?,
        };
        let told = error.map(|error| format!("ERR Target instance replied with error: {error}"));
        let failed = failure.map(|failure| failure.text().to_string());
        let error = match failure {
            // The error may belong to another target.
            Some(TargetFailure::Foreign) => failed,
            _ => told.or(failed),
        };
        let stay = format!(
            "keys that were written here while they were sent: {written}; they stay, and the \
             target has older values of them"
        );
        match (error, written) {
            (None, 0) => Ok("OK"),
            (None, _) => Err(format!("ERR {stay}")),
            (Some(error), 0) => Err(error),
            (Some(error), _) => Err(format!("{error}; {stay}")),
        }
    }

    /// Runs a transaction on the keys here.
    fn transact<T>(
        &self,
        shared: &Shared,
        end: &mut RunEnd,
        body: impl Fn(&Keyspace<'_>) -> Result<T, Stop>,
    ) -> Result<(T, Ticket), String> {
        let notes_keys = shared.wiring.tracking.is_on();
        let (value, mut effects, ticket) =
            transact::patiently(shared, end.order.get_or_insert_default(), |tx, context| {
                body(&Keyspace::open(*tx, context, self.from)?)
            })?;
        let (mut notices, written) =
            (Notices::default(), std::mem::take(&mut effects.written_keys));
        notices.note_written((shared.settings.events(), notes_keys), own(), &[], written);
        end.events.append(&mut notices.events);
        let changed = shared.changed(notes_keys, &effects, notices.keys);
        end.changed = std::mem::take(&mut end.changed).and(changed);
        Ok((value, ticket))
    }

    /// Reads the existing keys. The returned data is on disk.
    fn find(&self, shared: &Shared, end: &mut RunEnd) -> Result<Vec<SentKey>, String> {
        let (found, ticket) = self.transact(shared, end, |space| {
            let mut found = Vec::new();
            for key in &self.keys {
                let entry = space.read(key)?;
                let (Some((head, value)), Some(seen)) = (entry.value()?, space.write_of(key)?)
                else {
                    continue;
                };
                let payload = dump::payload(&value)?;
                let is_numbered = head.form().is_numbered();
                found.push(SentKey {
                    digest: is_numbered.then(|| Sha256::digest(&payload).into()),
                    key: key.clone(),
                    payload,
                    expires: head.expires(),
                    seen,
                    is_taken: false,
                });
            }
            Ok(found)
        })?;
        ticket.wait().map_err(|error| transact::failure(shared, error))?;
        Ok(found)
    }

    /// Sends keys over a kept connection, or over a new one.
    fn send_all(&self, shared: &Shared, keys: &mut [SentKey]) -> SentKeys {
        let patience = TargetPatience {
            stop: &shared.stop_signal,
            clock: &shared.clock,
            client: &self.client,
            idle: self.time,
        };
        let mut kept = shared.wiring.targets.take(&self.target, Instant::now());
        loop {
            let (was_kept, mut done) = (kept.is_some(), SentKeys::default());
            let target = match kept.take() {
                Some(target) => Ok(target),
                None => MigrationTarget::connect(&self.target, &shared.wiring.lookups, &patience),
            };
            let sent = target.and_then(|mut target| {
                self.send(&mut target, keys, &patience, &mut done)?;
                Ok(target)
            });
            match sent {
                Ok(target) if !target.has_refused => {
                    shared.wiring.targets.keep(self.target.clone(), target, Instant::now());
                }
                Ok(_) => {}
                // The target had closed the connection. Nothing was done there, or it is done
                // again.
                Err(failure) if was_kept && !done.has_reply && failure.may_be_stale() => continue,
                Err(failure) => done.failure = Some(failure),
            }
            if done.failure == Some(TargetFailure::Foreign) {
                keys.iter_mut().for_each(|key| key.is_taken = false);
            }
            return done;
        }
    }

    fn send(
        &self,
        target: &mut MigrationTarget,
        keys: &mut [SentKey],
        patience: &TargetPatience<'_>,
        done: &mut SentKeys,
    ) -> Result<(), TargetFailure> {
        if !self.prepare(target, patience, done)? {
            target.has_refused = true;
            return Ok(());
        }
        let mut rest = keys;
        while !rest.is_empty() {
            let (batch, behind) = rest.split_at_mut(batch_length(rest));
            target.check_step()?;
            for at in self.send_batch(target, batch, patience)? {
                if done.note(target.read(patience)?) {
                    batch[at].is_taken = true;
                    batch[at].payload = Vec::new();
                }
            }
            rest = behind;
        }
        // A surplus reply may belong to an earlier request.
        match target.check_step() {
            Err(TargetFailure::Foreign) => Err(TargetFailure::Foreign),
            // The connection may be closed now.
            _ => Ok(()),
        }
    }

    /// Logs in and chooses the database; returns whether the target agrees. Nothing else is sent
    /// before the reply: other requests would run as another user, or in another database.
    fn prepare(
        &self,
        target: &mut MigrationTarget,
        patience: &TargetPatience<'_>,
        done: &mut SentKeys,
    ) -> Result<bool, TargetFailure> {
        if let Some(credentials) = &self.credentials {
            let mut words: Vec<&[u8]> = vec![b"AUTH"];
            words.extend(credentials.iter().map(Vec::as_slice));
            if !done.note(target.ask(&words, patience)?) {
                return Ok(false);
            }
        }
        if target.database != Some(self.to) {
            if !done.note(target.ask(&[b"SELECT", self.to.to_string().as_bytes()], patience)?) {
                return Ok(false);
            }
            target.database = Some(self.to);
        }
        Ok(true)
    }

    /// Sends a batch, except keys that have expired meanwhile. Returns the places of the sent keys,
    /// in their order.
    fn send_batch(
        &self,
        target: &mut MigrationTarget,
        batch: &[SentKey],
        patience: &TargetPatience<'_>,
    ) -> Result<Vec<usize>, TargetFailure> {
        let now = patience.clock.now_ms();
        let (mut out, mut sent) = (Vec::new(), Vec::new());
        for (at, key) in batch.iter().enumerate() {
            let ttl = match key.expires {
                None => 0,
                Some(expires) if expires <= now => continue,
                Some(expires) => expires - now,
            };
            let ttl = ttl.to_string();
            let words: [&[u8]; 3] = [b"RESTORE", &key.key, ttl.as_bytes()];
            push_words(&mut out, if self.replaces { 5 } else { 4 }, &words);
            out.extend_from_slice(format!("${}\r\n", key.payload.len()).as_bytes());
            if key.payload.len() > LONG_VALUE {
                target.write(&out, patience)?;
                out.clear();
                target.write(&key.payload, patience)?;
            } else {
                out.extend_from_slice(&key.payload);
            }
            out.extend_from_slice(b"\r\n");
            if self.replaces {
                out.extend_from_slice(b"$7\r\nREPLACE\r\n");
            }
            sent.push(at);
        }
        target.write(&out, patience)?;
        Ok(sent)
    }

    /// Removes the keys that the target has, except keys written since the read. Returns the number
    /// of written keys.
    fn remove(&self, shared: &Shared, keys: &[SentKey], end: &mut RunEnd) -> Result<usize, String> {
        if !keys.iter().any(|key| key.is_taken) {
            return Ok(0);
        }
        let (written, ticket) = self.transact(shared, end, |space| {
            let mut written = 0;
            for key in keys.iter().filter(|key| key.is_taken) {
                match key.is_unchanged(space)? {
                    true => drop(space.find_head(&key.key)?.remove()?),
                    false => written += usize::from(!key.has_expired(space)?),
                }
            }
            Ok(written)
        })?;
        end.ticket = Some(ticket);
        Ok(written)
    }
}

impl SentKey {
    /// Whether the key still has the sent value and time of expiry here.
    fn is_unchanged(&self, space: &Keyspace<'_>) -> Result<bool, Stop> {
        if space.write_of(&self.key)? != Some(self.seen) {
            return Ok(false);
        }
        let Some(digest) = self.digest else { return Ok(true) };
        let entry = space.find(&self.key)?;
        let (_, value) = entry.value()?.ok_or(Abort::Conflict)?;
        let now: [u8; 32] = Sha256::digest(dump::payload(&value)?).into();
        Ok(now == digest)
    }

    /// Whether the key has expired and is not there any more.
    fn has_expired(&self, space: &Keyspace<'_>) -> Result<bool, Stop> {
        let is_due = self.expires.is_some_and(|at| at <= space.now_ms());
        Ok(is_due && !space.find_head(&self.key)?.exists())
    }
}

/// The number of keys sent before the replies are read: at least one.
fn batch_length(keys: &[SentKey]) -> usize {
    let mut bytes = 0;
    let is_more = |key: &&SentKey| {
        let fits = bytes < BATCH_BYTES;
        bytes += key.payload.len();
        fits
    };
    keys.iter().take(BATCH_KEYS).take_while(is_more).count()
}

/// MIGRATE in the table.
fn own() -> &'static Command {
    catalogue::command(b"migrate").expect("it has a row")
}

pub fn migrate(local: &mut Local<'_>, args: &[&[u8]], _: &mut Reply<'_>) -> Done {
    let migration = Migration::read(args, local.client)?;
    let is_silent = local.client.silence != Silence::None;
    if local.client.silence == Silence::This {
        local.client.silence = Silence::None;
    }
    let order = Some(local.order.clone());
    *local.job = Some(Job::on_network(move |shared, reply| {
        let mut end = RunEnd { order, ..RunEnd::default() };
        match migration.run(shared, &mut end) {
            Ok(text) if !is_silent => reply.simple(text),
            Ok(_) => {}
            Err(text) => {
                shared.stats.count_error(&text);
                if !is_silent {
                    reply.error(&text);
                }
            }
        }
        end
    }));
    Ok(())
}
