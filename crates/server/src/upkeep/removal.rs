//! Removes keys that have expired, or whose database was flushed, in transactions of many: for the
//! threads that find such keys ([`crate::upkeep::expiry`], [`crate::upkeep::reaper`]).

use crate::data::Tables;
use crate::data::collections::discard;
use crate::data::databases;
use crate::data::expiries::{Expiries, Expiry};
use crate::data::head::Head;
use crate::data::keyspace::{Effects, Events};
use crate::state::{Opened, Shared};
use hyades::{Abort, Column, Error, Session, Ticket, Transaction};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::config::MOST_DATABASES;

const HEAD: Column<u64> = Column::at(2);
const BODY: Column<[u8]> = Column::at(3);

/// Generations of keys.
#[derive(Clone, Default)]
pub struct Generations {
    /// Those of the databases, by number.
    live: Vec<u64>,
    /// The first that no database may have yet.
    next: u64,
}

impl Generations {
    /// Reads them. Databases beyond the number of this run keep what they have, flushed ever
    /// before or not.
    pub fn read(tx: &Transaction<'_>, tables: Tables) -> Result<Generations, Abort> {
        let (live, next) = databases::live(tx, tables, MOST_DATABASES)?;
        Ok(Generations { live, next })
    }

    /// Whether a database had it that was flushed since.
    pub fn is_dead(&self, generation: u64) -> bool {
        let is_given = (databases::FIRST_GIVEN..self.next).contains(&generation);
        let may_be_live = is_given || generation < u64::from(MOST_DATABASES);
        may_be_live && !self.live.contains(&generation)
    }

    /// The number of the database that has it.
    fn database_of(&self, generation: u64) -> Option<u32> {
        self.live.iter().position(|live| *live == generation).map(|at| at as u32)
    }
}

/// What a transaction has removed.
pub struct Removed {
    /// Keys that are there and expire later.
    pub later: Expiries,
    /// The events of those that have expired, and the ticket that they wait for.
    pub events: Option<(Ticket, Events)>,
}

/// Removes those of some keys that have expired, or whose database was flushed.
///
/// # Errors
/// Those of a transaction.
pub fn remove<'k>(
    shared: &Shared,
    opened: &Opened,
    session: &mut Session,
    keys: impl Iterator<Item = (u64, &'k [u8])> + Clone,
    generations: &Generations,
) -> Result<Removed, Error> {
    let (tables, now) = (opened.tables, shared.clock.now_ms());
    let (mut effects, mut events) = (Effects::default(), Vec::new());
    let classes = shared.settings.events();
    let mut later = Expiries::default();
    let (_, ticket) = session.submit(|tx| {
        effects.clear();
        events.clear();
        later.clear();
        for (generation, key) in keys.clone() {
            tx.prefetch(tables.keys, (generation, key), HEAD.only());
        }
        for (generation, key) in keys.clone() {
            let place = (generation, key);
            let row = tx.get_columns(tables.keys, place, HEAD.only())?;
            let Some(head) = row.and_then(|row| Head::from_word(row.get(HEAD))) else { continue };
            let is_dead = generations.is_dead(generation);
            if !is_dead && !head.is_expired(now) {
                if let Some(at_ms) = head.expires() {
                    later.push(Expiry { at_ms, generation, key });
                }
                continue;
            }
            if head.form().is_numbered() {
                let row = tx.get_columns(tables.keys, place, BODY.only())?;
                discard(tx, tables, row.ok_or(Abort::Conflict)?.get(BODY))?;
                effects.discarded = true;
            }
            tx.delete(tables.keys, place)?;
            effects.removed(generation, head);
            effects.expired += u64::from(!is_dead);
            if !is_dead && let Some(database) = generations.database_of(generation) {
                classes.publish_expired(database, key, &mut events);
            }
        }
        Ok(())
    })?;
    effects.counts.iter().for_each(|change| shared.store.counts.apply(*change));
    if effects.discarded {
        shared.reaping.remove_garbage();
    }
    shared.stats.counters.expired.fetch_add(effects.expired, Relaxed);
    // The removal tells no client anything, but for its events: it may become durable when it
    // likes.
    let is_heard = !events.is_empty() && shared.wiring.channels.is_heard();
    Ok(Removed { later, events: is_heard.then_some((ticket, events)) })
}

/// Tells subscribers of events once they are on disk.
///
/// # Errors
/// The log has failed.
pub fn tell(shared: &Shared, (ticket, events): (Ticket, Events)) -> Result<(), Error> {
    ticket.wait()?;
    events.into_iter().for_each(|event| shared.wiring.channels.deliver(&Arc::new(event)));
    Ok(())
}
