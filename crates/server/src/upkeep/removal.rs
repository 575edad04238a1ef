//! Removes expired keys, keys of flushed databases, and expired fields of hashes, in transactions
//! of many keys: for the threads that find the keys ([`crate::upkeep::expiry`],
//! [`crate::upkeep::reaper`]).

use crate::clients::tracking::Changed;
use crate::config::EventClasses;
use crate::data::Tables;
use crate::data::collections::discard;
use crate::data::databases;
use crate::data::expiries::{Expiries, Expiry};
use crate::data::head::{Head, Kind};
use crate::data::keyspace::{Context, Effects, Events};
use crate::data::waiting::WaitKey;
use crate::state::{Opened, Shared};
use crate::transact;
use crate::upkeep::lapsing::lapse;
use hyades::{Abort, Column, Error, Session, Ticket, Transaction};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::config::MOST_DATABASES;

const HEAD: Column<u64> = Column::at(2);
const BODY: Column<[u8]> = Column::at(3);

/// Generations of keys.
#[derive(Clone, Default)]
pub struct Generations {
    /// The generations of the databases, by number.
    live: Vec<u64>,
    /// The first generation that no database may have yet.
    next: u64,
}

impl Generations {
    /// Reads the generations. Databases beyond the number of this run keep their keys, flushed ever
    /// before or not.
    pub fn read(tx: &Transaction<'_>, tables: Tables) -> Result<Generations, Abort> {
        let (live, next) = databases::live(tx, tables, MOST_DATABASES)?;
        Ok(Generations { live, next })
    }

    /// Whether a database had this generation and was flushed since.
    pub fn is_dead(&self, generation: u64) -> bool {
        let is_given = (databases::FIRST_GIVEN..self.next).contains(&generation);
        let may_be_live = is_given || generation < u64::from(MOST_DATABASES);
        may_be_live && !self.live.contains(&generation)
    }

    /// The number of the database with this generation.
    fn database_of(&self, generation: u64) -> Option<u32> {
        self.live.iter().position(|live| *live == generation).map(|at| at as u32)
    }
}

/// Messages about expired keys.
pub struct ToldRemovals {
    /// The messages wait for this ticket.
    ticket: Ticket,
    events: Events,
    changed: Changed,
}

/// The result of a removing transaction.
pub struct Removed {
    /// Existing keys that expire later, or have fields that expire later.
    pub later: Expiries,
    /// Hashes with more expired fields.
    pub again: Expiries,
    /// Messages about expired keys, if a client receives any.
    pub told: Option<ToldRemovals>,
}

/// The effects of a transaction, applied and told after the commit.
#[derive(Default)]
struct Removal {
    effects: Effects,
    expired_fields: u64,
    later: Expiries,
    again: Expiries,
    events: Events,
    /// Expired keys, or keys with expired fields, if clients track.
    expired: Vec<Vec<u8>>,
    /// Expired streams: clients wait for the end of a stream as well.
    ended: Vec<WaitKey>,
}

/// The context of lookups of keys.
struct Remover<'r> {
    tables: Tables,
    now_ms: i64,
    generations: &'r Generations,
    classes: EventClasses,
    tracks: bool,
    /// The context of the removal of fields; messages about the removal are made here.
    context: Context<'r>,
}

impl Remover<'_> {
    fn look_at(
        &self,
        tx: &Transaction<'_>,
        (generation, key): (u64, &[u8]),
        removal: &mut Removal,
    ) -> Result<(), Abort> {
        let row = tx.get_columns(self.tables.keys, (generation, key), HEAD.only())?;
        let Some(head) = row.and_then(|row| Head::from_word(row.get(HEAD))) else { return Ok(()) };
        if self.generations.is_dead(generation) || head.is_expired(self.now_ms) {
            return self.remove_key(tx, (generation, key), head, removal);
        }
        match self.generations.database_of(generation) {
            Some(database) if head.form().is_timed() => {
                self.remove_fields(tx, database, (generation, key), removal)
            }
            // A database flushed just now, unknown to this thread so far.
            None if head.form().is_timed() => {
                removal.later.push(Expiry { at_ms: self.now_ms + 1_000, generation, key });
                Ok(())
            }
            _ => {
                let later = head.expires().map(|at_ms| Expiry { at_ms, generation, key });
                later.into_iter().for_each(|expiry| removal.later.push(expiry));
                Ok(())
            }
        }
    }

    fn remove_key(
        &self,
        tx: &Transaction<'_>,
        place: (u64, &[u8]),
        head: Head,
        removal: &mut Removal,
    ) -> Result<(), Abort> {
        let (generation, key) = place;
        let is_dead = self.generations.is_dead(generation);
        if head.form().is_numbered() {
            let row = tx.get_columns(self.tables.keys, place, BODY.only())?;
            discard(tx, self.tables, row.ok_or(Abort::Conflict)?.get(BODY))?;
            removal.effects.discarded = true;
        }
        tx.delete(self.tables.keys, place)?;
        removal.effects.removed(generation, head);
        if is_dead {
            return Ok(());
        }
        removal.effects.expired += 1;
        removal.effects.changes += 1;
        removal.expired.extend(self.tracks.then(|| key.to_vec()));
        if let Some(database) = self.generations.database_of(generation) {
            self.classes.publish_expired(database, key, &mut removal.events);
            if head.kind() == Kind::Stream {
                removal.ended.push(WaitKey { database, kind: Kind::Stream, key: key.to_vec() });
            }
        }
        Ok(())
    }

    fn remove_fields(
        &self,
        tx: &Transaction<'_>,
        database: u32,
        (generation, key): (u64, &[u8]),
        removal: &mut Removal,
    ) -> Result<(), Abort> {
        let context = Context { now_ms: self.now_ms, ..self.context };
        let lapsed = lapse(tx, context, database, (generation, key))?;
        if lapsed.has_more {
            removal.again.push(Expiry { at_ms: self.now_ms, generation, key });
        } else if let Some(at_ms) = lapsed.next {
            removal.later.push(Expiry { at_ms, generation, key });
        }
        if lapsed.is_over || lapsed.fields > 0 {
            removal.expired_fields += lapsed.fields as u64;
            let (key, events) = ((database, key), &mut removal.events);
            self.classes.publish_fields_expired(key, lapsed.is_over, events);
            removal.expired.extend(self.tracks.then(|| key.1.to_vec()));
        }
        Ok(())
    }
}

/// Removes expired keys and keys of flushed databases among `keys`, and expired fields of the keys.
///
/// # Errors
/// The errors of a transaction.
pub fn remove<'k>(
    shared: &Shared,
    opened: &Opened,
    session: &mut Session,
    keys: impl Iterator<Item = (u64, &'k [u8])> + Clone,
    generations: &Generations,
) -> Result<Removed, Error> {
    let of_fields = RefCell::new(Effects::default());
    let context = Context {
        events: EventClasses::default(),
        tracks: false,
        is_patient: true,
        ..transact::context(shared, &of_fields)
    };
    let remover = Remover {
        tables: opened.tables,
        now_ms: shared.clock.now_ms(),
        generations,
        classes: shared.settings.events(),
        tracks: shared.wiring.tracking.is_on(),
        context,
    };
    let mut removal = Removal::default();
    let (_, ticket) = session.submit(|tx| {
        removal = Removal::default();
        of_fields.borrow_mut().clear();
        for place in keys.clone() {
            tx.prefetch(remover.tables.keys, place, HEAD.only());
        }
        for place in keys.clone() {
            remover.look_at(tx, place, &mut removal)?;
        }
        Ok(())
    })?;
    let of_fields = of_fields.borrow();
    let Removal { mut effects, expired_fields, later, again, mut events, expired, ended } = removal;
    let counts = effects.counts.iter().chain(&of_fields.counts);
    counts.for_each(|change| shared.store.counts.apply(*change));
    effects.discarded |= of_fields.discarded;
    effects.changes += of_fields.changes;
    shared.wiring.waiting.call(ended.iter());
    if effects.discarded {
        shared.reaping.remove_garbage();
    }
    shared.stats.counters.expired.fetch_add(effects.expired, Relaxed);
    shared.stats.counters.expired_fields.fetch_add(expired_fields, Relaxed);
    // The removal tells clients nothing but these messages: it may become durable at any time.
    let changed = shared.changed(remover.tracks, &effects, expired);
    if !shared.wiring.channels.is_heard() {
        events.clear();
    }
    let is_heard = !events.is_empty() || !matches!(changed, Changed::Nothing);
    Ok(Removed { later, again, told: is_heard.then_some(ToldRemovals { ticket, events, changed }) })
}

/// Tells subscribers and tracking clients, once the removal is on disk.
///
/// # Errors
/// The log has failed.
pub fn tell(shared: &Shared, told: ToldRemovals) -> Result<(), Error> {
    told.ticket.wait()?;
    shared.wiring.tracking.tell(told.changed, 0);
    told.events.into_iter().for_each(|event| shared.wiring.channels.deliver(&Arc::new(event)));
    Ok(())
}
