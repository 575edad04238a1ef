//! Tombstones and stale index entries, taken out once nobody can need what they remember.
//!
//! A deleted row stays in its index as a tombstone, because its version and stamps order what comes
//! after it. It may go once its version's epoch has passed, for then whoever puts the key in anew
//! gets a higher version; its stamps go over to the gap that it leaves. Waiting until the stamps are
//! cold would not do: a scan that passes a tombstone again and again keeps it warm for ever.

use crate::concurrency::ConcurrencyControl;
use crate::engine::Engine;
use crate::logging::LoggingProtocol;
use crate::logging::record::Tid;
use crate::storage::gap::Inherit;
use crate::storage::key::KeyBytes;
use crate::storage::ordered_index::Keyed;
use crate::storage::record::{Record, word};
use crate::storage::table::{Lookup, Table};
use crate::transaction::state::{Pending, State};
use crossbeam_epoch::Guard;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

enum Item {
    /// A row that may be absent, by primary key.
    Row { table: u32, key: KeyBytes },
    /// An index entry that may no longer describe its row, by its key.
    Entry { table: u32, index: u16, key: KeyBytes },
}

/// What a session has still to clear away, oldest first.
#[derive(Default)]
pub(crate) struct Garbage {
    items: VecDeque<Item>,
    /// Transactions until the next look.
    pause: u32,
}

/// After a look that found the oldest item still needed, this many transactions go by.
const PAUSE: u32 = 32;

/// So many items are looked at in one go.
const BATCH: usize = 8;

enum Swept {
    Done,
    NotYet,
}

impl Garbage {
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Notes a row that may be absent.
    pub fn add_row(&mut self, table: u32, key: KeyBytes) {
        self.items.push_back(Item::Row { table, key });
    }

    /// Notes what a transaction that has ended leaves behind.
    pub fn collect_from<P: LoggingProtocol>(
        &mut self,
        tables: &[Table<P::RowStamp>],
        state: &State<'_, P>,
        committed: bool,
    ) {
        debug_assert!(tables.len() <= u32::MAX as usize);
        for link in &state.links {
            link.entry.unpin();
            if !committed || state.rolled_back {
                let key = KeyBytes::from_slice(link.entry.key());
                self.items.push_back(Item::Entry { table: link.table, index: link.index, key });
            }
        }
        if committed {
            for stale in &state.stale {
                let key = KeyBytes::from_slice(stale.key);
                self.items.push_back(Item::Entry { table: stale.table, index: stale.index, key });
            }
            for write in state.final_writes() {
                if matches!(write.pending, Pending::Delete) {
                    let key = KeyBytes::from_slice(write.record.key());
                    self.items.push_back(Item::Row { table: write.table, key });
                }
            }
        }
        if !committed || state.rolled_back {
            for (table, record) in &state.placed {
                let key = KeyBytes::from_slice(record.key());
                self.items.push_back(Item::Row { table: *table, key });
            }
        }
    }

    /// Clears away all that can be, where nobody else is at work on it: replay. What is left has to wait
    /// for something that is yet to come; its rows are handed to `keep`.
    pub fn sweep_all<C: ConcurrencyControl, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P>,
        stamp: &mut P::TxnStamp,
        mut keep: impl FnMut(u32, KeyBytes),
    ) {
        let guard = crossbeam_epoch::pin();
        loop {
            let before = self.items.len();
            for _ in 0..before {
                let item = self.items.pop_front().expect("counted");
                if let Swept::NotYet = sweep_item::<C, P>(engine, stamp, &item, &guard) {
                    self.items.push_back(item);
                }
            }
            if self.items.is_empty() || self.items.len() == before {
                break;
            }
        }
        for item in self.items.drain(..) {
            if let Item::Row { table, key } = item {
                keep(table, key);
            }
        }
    }

    /// As [`Garbage::sweep_all`], but only what is of rows that are `ready`; the rest stays.
    pub fn sweep_ready<C: ConcurrencyControl, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P>,
        stamp: &mut P::TxnStamp,
        ready: impl Fn(&Record<P::RowStamp>) -> bool,
    ) {
        let guard = crossbeam_epoch::pin();
        self.items.retain(|item| {
            let record = match item {
                Item::Row { table, key } => {
                    match engine.tables[*table as usize].find(key, &guard) {
                        Lookup::Found(record) => record,
                        Lookup::Missing(_) => return false,
                    }
                }
                Item::Entry { table, index, key } => {
                    let secondaries = &engine.tables[*table as usize].secondaries;
                    match secondaries[*index as usize].tree.find(key, &guard) {
                        Some(entry) => entry.record(),
                        None => return false,
                    }
                }
            };
            !ready(record)
                || matches!(sweep_item::<C, P>(engine, stamp, item, &guard), Swept::NotYet)
        });
    }

    /// Notes an entry that may be stale.
    pub fn add_entry(&mut self, table: u32, index: u16, key: KeyBytes) {
        self.items.push_back(Item::Entry { table, index, key });
    }

    /// Clears away some of what is ripe. The session is between transactions.
    pub fn sweep<C: ConcurrencyControl, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P>,
        stamp: &mut P::TxnStamp,
    ) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        let guard = crossbeam_epoch::pin();
        for _ in 0..BATCH.min(self.items.len()) {
            let item = self.items.pop_front().expect("counted");
            match sweep_item::<C, P>(engine, stamp, &item, &guard) {
                Swept::Done => {}
                Swept::NotYet => {
                    // Later ones are likely unripe too; this one goes to the back, as it may be held up
                    // by another that stands behind it.
                    self.items.push_back(item);
                    self.pause = PAUSE;
                    break;
                }
            }
        }
    }
}

/// Whether a new row under this key would get a higher version.
fn is_past<P: LoggingProtocol>(engine: &Engine<P>, version: u64) -> bool {
    Tid(word::tid(version)).epoch() < engine.epoch.current()
}

fn sweep_item<C: ConcurrencyControl, P: LoggingProtocol>(
    engine: &Engine<P>,
    stamp: &mut P::TxnStamp,
    item: &Item,
    guard: &Guard,
) -> Swept {
    let stamp = RefCell::new(stamp);
    let inherit = |to: &P::RowStamp, from: &P::RowStamp| {
        engine.protocol.inherit(to, from, *stamp.borrow_mut());
    };
    let hooks = Inherit(inherit);
    match item {
        Item::Row { table, key } => {
            let table = &engine.tables[*table as usize];
            let Lookup::Found(record) = table.find(key, guard) else { return Swept::Done };
            let seen = record.word.load(Ordering::Acquire);
            if seen & word::ABSENT == 0 || seen & word::DEAD != 0 {
                return Swept::Done;
            }
            if record.entries.load(Ordering::Acquire) != 0 || !is_past(engine, seen) {
                return Swept::NotYet;
            }
            let Some(version) = C::try_lock_alone(record) else { return Swept::NotYet };
            let gone = version & word::ABSENT != 0
                && version & word::DEAD == 0
                && record.entries.load(Ordering::Acquire) == 0
                && is_past(engine, version);
            if !gone {
                C::unlock_alone(record, version, false);
                return Swept::NotYet;
            }
            // Dead before it leaves: who still holds it fails, and looks again. A transaction that links
            // an entry to it counts the entry first and then looks whether it is dead.
            C::unlock_alone(record, version, true);
            fence(Ordering::SeqCst);
            if record.entries.load(Ordering::SeqCst) != 0 {
                C::revive_alone(record, version);
                return Swept::NotYet;
            }
            table.unlink(record, &hooks, |gap| inherit(gap, &record.stamp), guard);
            Swept::Done
        }
        Item::Entry { table, index, key } => {
            let table = &engine.tables[*table as usize];
            let at = *index as usize;
            let Some(entry) = table.secondaries[at].tree.find(key, guard) else {
                return Swept::Done;
            };
            let record = entry.record();
            let Some(version) = C::try_lock_alone(record) else { return Swept::NotYet };
            let mut row = Vec::new();
            let there = version & word::ABSENT == 0;
            if there {
                record.read_row(&mut row);
            }
            let true_entry = there && table.secondary_key(at, &row, record.key()) == *key;
            let leave = |gap: &P::RowStamp| inherit(gap, &record.stamp);
            let done = true_entry || table.unlink_entry(at, entry, &hooks, leave, guard);
            C::unlock_alone(record, version, false);
            if done { Swept::Done } else { Swept::NotYet }
        }
    }
}
