//! Every key expires in time, whatever changes the time; timers are bounded.

use super::turning::Turner;
use super::*;
use crate::config::Settings;
use crate::data::Tables;
use crate::data::field_times::next_of_row;
use crate::data::head::{Form, Head, Kind};
use crate::data::keyspace::Keyspace;
use crate::data::packed::TimedValue;
use crate::data::values::hash::StoredHash;
use crate::data::values::timed_hash::FieldEdit;
use crate::state::timers::FINEST_MS;
use crate::state::{Opened, Shared};
use crate::transact;
use hyades::{Column, Columns, Session};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

struct House {
    shared: Arc<Shared>,
    session: Session,
    _dir: tempfile::TempDir,
}

impl House {
    fn new() -> House {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let shared = Shared::new(Settings::default());
        let mut builder = hyades::Database::builder();
        let tables = Tables::declare(&mut builder);
        let database = builder.open(dir.path()).unwrap();
        let session = database.session().unwrap();
        assert!(shared.store.opened.set(Opened { database, tables }).is_ok());
        House { shared, session, _dir: dir }
    }

    fn opened(&self) -> Opened {
        self.shared.store.opened.cloned()
    }

    /// A transaction of commands in database 0.
    fn write(&mut self, body: impl Fn(&Keyspace<'_>)) {
        let effects = RefCell::new(crate::data::keyspace::Effects::default());
        let shared = self.shared.clone();
        let (_, ticket) = self
            .session
            .submit(|tx| {
                effects.borrow_mut().clear();
                let context = transact::context(&shared, &effects);
                body(&Keyspace::open(*tx, context, 0)?);
                Ok(())
            })
            .unwrap();
        drop(ticket);
        self.shared.apply(&effects.borrow());
    }

    /// Stores a key, with or without a time of expiry.
    fn set(&mut self, key: &str, at_ms: Option<i64>) {
        self.write(|keys| {
            let entry = keys.find(key.as_bytes()).unwrap();
            let head = Head::new(Kind::String, Form::Plain).with_expiry(at_ms);
            entry.put(head, b"value").unwrap();
        });
    }

    fn remove(&mut self, key: &str) {
        self.write(|keys| {
            let entry = keys.find(key.as_bytes()).unwrap();
            entry.remove().unwrap();
        });
    }

    /// The times of expiry of the stored keys.
    fn stored(&self) -> HashMap<String, Option<i64>> {
        let mut all = HashMap::new();
        let (key, head) = (Column::<[u8]>::at(1), Column::<u64>::at(2));
        let snapshot = self.opened().database.open_snapshot();
        let mut visit = |row: &hyades::Row<'_>| {
            let head = Head::from_word(row.get(head)).unwrap();
            all.insert(String::from_utf8(row.get(key).to_vec()).unwrap(), head.expires());
        };
        snapshot.for_each(self.opened().tables.keys, Columns::of(&[1, 2]), &mut visit).unwrap();
        all
    }
}

/// Drives the wheel as the thread does, until nothing is due.
fn turn(turner: &mut Turner, house: &House) {
    turner.take_new(&house.shared);
    let (shared, opened) = (&house.shared, &house.opened());
    while turner.next_due(shared.clock.now_ms()) {
        turner.remove_batch(shared, opened, &mut Vec::new()).unwrap();
    }
}

/// Times are set, put off, brought forward and removed, and keys removed, at random: an expired key
/// is removed within two ticks of the wheel, other keys stay, and sweeps lose no timer.
#[test]
fn what_expires_is_removed_whatever_was_done_with_its_time() {
    let mut house = House::new();
    let (mut turner, mut sweeps) = (Turner::default(), 0);
    for seed in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..400 {
            let key = format!("key:{}", random.u8(0..20));
            let now = house.shared.clock.now_ms();
            match random.u8(0..8) {
                0 => house.remove(&key),
                1 => house.set(&key, None),
                2 => house.set(&key, Some(now + 1_000_000)),
                _ => house.set(&key, Some(now + random.i64(1..200))),
            }
            if random.u8(0..20) == 0 {
                turn(&mut turner, &house);
            }
            while turner.sweep_once(&house.shared, &house.opened()) {
                sweeps += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(200 + 2 * FINEST_MS as u64));
        let before = house.shared.clock.now_ms() - 2 * FINEST_MS;
        turn(&mut turner, &house);
        let late = house.stored().into_iter().filter(|(_, at)| at.is_some_and(|at| at <= before));
        assert_eq!(late.collect::<Vec<_>>(), [], "seed {seed}");
        let counted = house.shared.store.counts.of(0);
        let stored = house.stored();
        let expiring = stored.values().filter(|at| at.is_some()).count() as i64;
        assert_eq!(counted, (stored.len() as i64, expiring), "seed {seed}");
    }
    assert!(sweeps > 10, "{sweeps} steps of sweeps");
}

/// A key whose time is put off has one timer; with deleted keys there are no more timers than twice
/// the needed timers, and a few.
#[test]
fn timers_are_bounded() {
    let mut house = House::new();
    let mut turner = Turner::default();
    let later = house.shared.clock.now_ms() + 1_000_000;
    let mut most = 0;
    for n in 0..2_000 {
        house.set("put off", Some(later + n));
        house.set("lock", Some(later + n));
        house.remove("lock");
        house.set("again", Some(later));
        house.set("again", None);
        turn(&mut turner, &house);
        while turner.sweep_once(&house.shared, &house.opened()) {}
        most = most.max(turner.timers());
    }
    assert!(most <= sweeping::LEAST + 16, "{most} timers");
    assert!(turner.timers() > 0);
}

/// The wheel is filled from the rows when the database is opened.
#[test]
fn a_start_finds_what_expires() {
    let mut house = House::new();
    let now = house.shared.clock.now_ms();
    house.set("soon", Some(now + 20));
    house.set("late", Some(now + 1_000_000));
    house.set("never", None);
    let shared = Shared::new(Settings::default());
    let Opened { database, tables } = &house.opened();
    crate::upkeep::opening::count_keys(&shared, database, *tables).unwrap();
    let opened = Opened { database: database.clone(), tables: *tables };
    assert!(shared.store.opened.set(opened).is_ok());
    house.shared = shared;
    std::thread::sleep(Duration::from_millis(20 + 2 * FINEST_MS as u64));
    remove_expired(&house.shared, &house.opened()).unwrap();
    let mut left: Vec<_> = house.stored().into_keys().collect();
    left.sort();
    assert_eq!(left, ["late", "never"]);
    assert_eq!(house.shared.stats.counters.expired.load(Relaxed), 1);
}

/// Times of fields are set, put off, brought forward and removed at random, while sweeps go on:
/// fields whose times have come are removed within two ticks of the wheel, from packed hashes and
/// from hashes in blocks, and other fields stay.
#[test]
fn sweeps_lose_no_timer_of_a_field() {
    for seed in 0..4 {
        let (mut house, mut random) = (House::new(), fastrand::Rng::with_seed(seed));
        let (mut turner, mut sweeps) = (Turner::default(), 0);
        // Ahead of the wall clock time passes only here.
        let mut now = house.shared.clock.now_ms() + 1_000_000;
        let keys = ["few", "many", "again", "more"];
        house.write(|space| {
            let fields: Vec<String> = (0..200).map(|n| format!("field:{n}")).collect();
            let names: Vec<&[u8]> = fields.iter().map(|field| field.as_bytes()).collect();
            let set = &mut |_: usize, _: Option<TimedValue<'_>>| {
                Ok(FieldEdit::Set(Cow::Borrowed(&b"value"[..]), None))
            };
            hash(space, "many").edit_timed(&names, set).unwrap();
            hash(space, "more").edit_timed(&names, set).unwrap();
        });
        for _ in 0..2_500 {
            house.shared.clock.advance(now);
            let key = keys[random.usize(..4)];
            let field = format!("field:{}", random.u8(..12));
            let at = match random.u8(..8) {
                0 => None,
                1 => Some(now + 1_000_000),
                _ => Some(now + random.i64(1..20_000)),
            };
            let removes = random.u8(..8) == 0;
            house.write(|space| {
                let set = &mut |_: usize, _: Option<TimedValue<'_>>| match removes {
                    true => Ok(FieldEdit::Remove),
                    false => Ok(FieldEdit::Set(Cow::Borrowed(&b"value"[..]), at)),
                };
                hash(space, key).edit_timed(&[field.as_bytes()], set).unwrap();
            });
            now += random.i64(0..4);
            if random.u8(0..60) == 0 {
                turn(&mut turner, &house);
            }
            turner.take_new(&house.shared);
            while turner.sweep_once(&house.shared, &house.opened()) {
                sweeps += 1;
            }
        }
        house.shared.clock.advance(now + 20_000 + 2 * FINEST_MS);
        turn(&mut turner, &house);
        assert!(sweeps > 0, "seed {seed}");
        for key in keys {
            // No time that has come is stored, nor one before the last that may be.
            let late = first_time(&mut house, key).filter(|at| *at <= now + 20_000);
            assert_eq!(late, None, "{key}, seed {seed}");
        }
    }
}

fn hash<'t, 's>(space: &'s Keyspace<'t>, key: &'s str) -> StoredHash<'t, 's> {
    StoredHash::of(space.find(key.as_bytes()).unwrap()).unwrap()
}

/// The first stored time of a field of a hash, whether the time has come or not.
fn first_time(house: &mut House, key: &str) -> Option<i64> {
    let first = std::cell::Cell::new(None);
    let tables = house.opened().tables;
    house.write(|space| {
        let head = space.find_head(key.as_bytes()).unwrap().head();
        first.set(head.and_then(|head| {
            let place = (0, key.as_bytes());
            next_of_row(&space.transaction(), tables, place, head).unwrap()
        }));
    });
    first.get()
}
