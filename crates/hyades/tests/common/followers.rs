//! A primary with random changes, and followers that replay from mark to mark.

use super::tee::Tee;
use super::{
    ACCOUNT_COUNT, BY_GROUP, Churn, Combination, How, ITEMS, Opened, Transfer, builder, directory,
    populate, watched,
};
use fastrand::Rng;
use hyades::wal::Incarnation;
use hyades::{
    Abort, Builder, Columns, CutMark, Database, Error, FollowedLog, Follower, ProcedureId,
    RecordKind, Row, Schema, Session, Snapshot, Table, Ticket, Transaction, Type,
};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Behind the tables of the bank.
pub const PARTS: Table = Table::nth(4);
pub const HASHED: Table = Table::nth(5);
/// The columns of each table.
const COLUMNS: [u16; 6] = [2, 4, 4, 2, 3, 3];
const PART_COUNT: u64 = 3;

/// Changes counts, by their sum.
fn sums(tx: &Transaction<'_>, seed: u64) -> Result<(), Abort> {
    let mut rng = Rng::with_seed(seed);
    let (part, row) = (rng.u64(0..PART_COUNT), rng.u32(0..8));
    let total = tx.sum(PARTS, part, None)?;
    if rng.u32(0..4) == 0 {
        tx.delete(PARTS, (part, row)).map(drop)
    } else {
        let count = (total % 50) as u32 + 1;
        tx.upsert(PARTS, &[part.into(), row.into(), count.into()]).map(drop)
    }
}

/// Inserts, changes and deletes rows of a hash table.
fn hashed(tx: &Transaction<'_>, seed: u64) -> Result<(), Abort> {
    let mut rng = Rng::with_seed(seed);
    for _ in 0..rng.u32(1..4) {
        let id = rng.u64(0..40);
        // Long values take several frames: parts, and the record behind them.
        let longest = if id < 2 { 30_000 } else { 300 };
        let text = "h".repeat(rng.usize(0..longest));
        match rng.u32(0..3) {
            0 => tx.delete(HASHED, id).map(drop)?,
            _ => tx.upsert(HASHED, &[id.into(), seed.into(), text[..].into()]).map(drop)?,
        }
    }
    Ok(())
}

pub struct Procedures {
    bank: [ProcedureId; 2],
    own: [ProcedureId; 2],
}

/// The declarations of a primary and its followers.
pub fn declared(c: Combination, how: How) -> (Builder, Procedures) {
    let (mut builder, bank) = builder(c, how);
    let parts = Schema::new("parts")
        .column("part", Type::U64)
        .column("row", Type::U32)
        .column("count", Type::U32);
    builder.table(parts.primary_key(&["part", "row"]).sum("count", 1));
    let rows = Schema::new("hashed")
        .column("id", Type::U64)
        .column("by", Type::U64)
        .column("text", Type::Text);
    builder.table(rows.primary_key(&["id"]).hash());
    let sums = builder.procedure("sums", 1, |tx: &Transaction<'_>, seed: u64| sums(tx, seed));
    let hashed = builder.procedure("hashed", 1, |tx: &Transaction<'_>, seed: u64| hashed(tx, seed));
    (builder, Procedures { bank, own: [sums, hashed] })
}

/// A primary, and the tee of its log.
pub struct Primary {
    pub c: Combination,
    pub opened: Opened,
    procedures: Procedures,
    pub tee: Arc<Tee>,
    pub dir: tempfile::TempDir,
    /// The transactions that its workers may run.
    credits: AtomicI64,
}

impl Primary {
    pub fn new(c: Combination, seed: u64) -> Primary {
        let primary = Primary::open(c, seed, directory(), How::default());
        populate(&primary.opened);
        primary
    }

    /// Opens a primary in a directory, which may have a log already.
    pub fn open(c: Combination, seed: u64, dir: tempfile::TempDir, how: How) -> Primary {
        let tee = Tee::new(c.streams, seed);
        let (builder, procedures) = declared(c, how);
        let [transfer, churn] = procedures.bank;
        let db = builder.remote(tee.clone()).open(dir.path()).unwrap();
        tee.begin(db.log().unwrap().manifest().newest().unwrap());
        let watched = watched::watched(&format!("a follower of {c:?}, seed {seed}"));
        let opened = Opened { db, watched, transfer, churn, inserting: None };
        Primary { c, opened, procedures, tee, dir, credits: AtomicI64::new(200) }
    }

    /// A primary with these declarations, opened by other means.
    pub fn of(
        (c, procedures): (Combination, Procedures),
        db: Database,
        tee: Arc<Tee>,
        dir: tempfile::TempDir,
    ) -> Primary {
        let watched = watched::watched(&format!("a primary of {c:?}"));
        let [transfer, churn] = procedures.bank;
        let opened = Opened { db, watched, transfer, churn, inserting: None };
        Primary { c, opened, procedures, tee, dir, credits: AtomicI64::new(200) }
    }

    pub fn db(&self) -> &Database {
        &self.opened.db
    }

    pub fn incarnation(&self) -> Incarnation {
        self.db().log().unwrap().manifest().newest().unwrap().clone()
    }

    /// The catalogue of the log.
    pub fn catalogue(&self) -> Vec<u8> {
        self.db().log().unwrap().manifest().catalogue
    }

    /// Lets the workers run some transactions, so that the tables stay small.
    pub fn allow(&self, transactions: i64) {
        self.credits.fetch_add(transactions, Ordering::Relaxed);
    }

    /// Runs random transactions, as far as allowed, until told to stop.
    pub fn work(&self, seed: u64, stop: &AtomicBool, number: &AtomicU64) {
        let mut rng = Rng::with_seed(seed);
        let mut session = self.db().session().unwrap();
        while !stop.load(Ordering::Relaxed) {
            if self.credits.fetch_sub(1, Ordering::Relaxed) <= 0 {
                self.credits.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            if rng.u32(0..200) == 0 {
                session = self.db().session().unwrap();
            }
            self.change(&mut session, &mut rng, number);
        }
    }

    /// Runs one random transaction, and waits for it now and then.
    pub fn change(&self, session: &mut Session, rng: &mut Rng, number: &AtomicU64) {
        let ticket = self.submit(session, rng, number);
        if rng.u32(0..20) == 0 {
            ticket.wait().unwrap();
        }
    }

    /// Runs one random transaction.
    pub fn submit(&self, session: &mut Session, rng: &mut Rng, number: &AtomicU64) -> Ticket {
        match rng.u32(0..10) {
            0..4 => {
                let id = number.fetch_add(1, Ordering::Relaxed);
                let (from, to) = (rng.i64(0..ACCOUNT_COUNT), rng.i64(0..ACCOUNT_COUNT));
                let t = Transfer { id, from, to, amount: rng.i64(0..50) };
                session.call(self.procedures.bank[0], &t).unwrap().1
            }
            4..7 => session.call(self.procedures.bank[1], &Churn { seed: rng.u64(..) }).unwrap().1,
            7 => session.call(self.procedures.own[0], &rng.u64(..)).unwrap().1,
            8 => session.call(self.procedures.own[1], &rng.u64(..)).unwrap().1,
            _ => {
                // A closure is logged as data in any log.
                let seed = rng.u64(..);
                session.try_submit(|tx| hashed(tx, seed)).unwrap().1
            }
        }
    }

    /// Returns once the tee has what the mark needs.
    pub fn wait_for(&self, mark: &CutMark) {
        while !self.tee.has(&mark.to) {
            self.db().log().unwrap().flush().unwrap();
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// A mark made in ticks.
    pub fn mark(&self) -> CutMark {
        let mut marks = self.db().cut_marks().unwrap();
        loop {
            if let Some(mark) = marks.tick() {
                return mark;
            }
            std::thread::yield_now();
        }
    }

    pub fn source(&self) -> &Tee {
        &self.tee
    }

    /// A follower that begins with empty tables.
    pub fn follower(&self) -> Follower {
        let manifest = self.db().log().unwrap().manifest();
        let followed = FollowedLog {
            catalogue: &manifest.catalogue,
            incarnation: &self.incarnation(),
            base: None,
        };
        self.declared().follow(&followed).unwrap()
    }

    pub fn declared(&self) -> Builder {
        declared(self.c, How::default()).0
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// A hash of all rows, of two indexes in their order, and of sums, as a snapshot shows them.
pub fn content(snapshot: &Snapshot) -> u64 {
    try_content(snapshot).unwrap()
}

/// As [`content`], unless the snapshot has ended.
pub fn try_content(snapshot: &Snapshot) -> Result<u64, Error> {
    let mut sum = 0u64;
    let values = |row: &Row<'_>, columns: u16| {
        (0..columns).fold(String::new(), |text, at| format!("{text} {:?}", row.value(at)))
    };
    for (table, columns) in COLUMNS.into_iter().enumerate() {
        let visit = |row: &Row<'_>| {
            sum = sum.wrapping_add(hash(&format!("{table}{}", values(row, columns))));
        };
        snapshot.for_each(Table::nth(table as u32), Columns::ALL, visit)?;
    }
    let all = |rows: &[Row<'_>], columns: u16| {
        rows.iter().fold(String::new(), |text, row| text + &values(row, columns) + ";")
    };
    let more = snapshot.read(|tx| {
        let mut text = String::new();
        for group in 0..8i32 {
            text += &all(tx.scan_index(ITEMS, BY_GROUP).prefix(&[group.into()]).rows()?, 4);
        }
        text += &all(tx.scan(ITEMS).descending().rows()?, 4);
        for part in 0..PART_COUNT {
            text += &format!("{}:", tx.sum(PARTS, part, None)?);
            text += &all(tx.scan(PARTS).prefix(&[part.into()]).rows()?, 3);
        }
        Ok(text)
    });
    Ok(sum.wrapping_add(hash(&more?)))
}

/// The contents at marks, by epoch.
pub type Expected = Mutex<HashMap<u64, u64>>;

/// Reads a follower's state again and again: it is the state at some mark, and stays the same.
pub fn read_beside(db: &Database, expected: &Expected, stop: &AtomicBool) -> Option<String> {
    while !stop.load(Ordering::Relaxed) {
        let snapshot = db.open_snapshot();
        let Some(epoch) = snapshot.epoch() else {
            std::thread::sleep(Duration::from_micros(200));
            continue;
        };
        let first = content(&snapshot);
        let second = content(&snapshot);
        let at_mark = expected.lock().unwrap().get(&epoch).copied();
        if first != second || at_mark.is_some_and(|content| content != first) {
            return Some(format!("a reader of epoch {epoch} saw another state than at the mark"));
        }
    }
    None
}

/// What a history does.
#[derive(Clone, Copy, Debug)]
pub struct History {
    pub c: Combination,
    pub seed: u64,
    pub marks: usize,
    /// Threads that read the follower meanwhile.
    pub readers: usize,
}

/// Sets a flag when dropped, also by a panic.
struct SetOnDrop<'f>(&'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a primary, and a follower beside it. Returns the first difference between both.
pub fn differs(history: History) -> Option<String> {
    let History { c, seed, marks, readers } = history;
    let primary = Primary::new(c, seed);
    let (stop, number) = (AtomicBool::new(false), AtomicU64::new(1));
    let (expected, stop_reading) = (Expected::default(), AtomicBool::new(false));
    let mut follower = primary.follower();
    let database = follower.database().clone();
    let found = std::thread::scope(|scope| {
        for worker in 0..3 {
            let (primary, stop, number) = (&primary, &stop, &number);
            scope.spawn(move || primary.work(seed * 10 + worker, stop, number));
        }
        let readers: Vec<_> = (0..readers)
            .map(|_| scope.spawn(|| read_beside(&database, &expected, &stop_reading)))
            .collect();
        let found = {
            let _stops = (SetOnDrop(&stop), SetOnDrop(&stop_reading));
            follow(&primary, &mut follower, &expected, (marks, seed))
        };
        let read = readers.into_iter().filter_map(|reader| reader.join().unwrap()).next();
        found.or(read)
    });
    found.or_else(|| ends_equal(&primary, &mut follower))
}

/// Takes marks while the primary runs, and compares the follower with the primary at each.
fn follow(
    primary: &Primary,
    follower: &mut Follower,
    expected: &Expected,
    (marks, seed): (usize, u64),
) -> Option<String> {
    let (mut rng, source) = (Rng::with_seed(seed), primary.source());
    // A reader that stays while some rounds pass.
    let mut held: Option<(Snapshot, u64)> = None;
    for _ in 0..marks {
        if let Some((snapshot, before)) = &held
            && rng.u32(0..4) == 0
        {
            if content(snapshot) != *before {
                return Some("a reader of some rounds ago saw a change".to_string());
            }
            held = None;
        }
        primary.allow(rng.i64(0..60));
        std::thread::sleep(Duration::from_micros(rng.u64(0..1500)));
        if rng.u32(0..3) == 0 {
            // A mark that nothing is compared with, and perhaps no round ends at.
            let mark = primary.mark();
            if rng.bool() {
                primary.wait_for(&mark);
                if let Err(error) = follower.round(&mark, source) {
                    return Some(error.to_string());
                }
            }
            continue;
        }
        let (mark, snapshot) = primary.db().mark_with_snapshot().unwrap();
        let then = content(&snapshot);
        expected.lock().unwrap().insert(mark.epoch, then);
        primary.wait_for(&mark);
        let report = match follower.round(&mark, source) {
            Ok(report) => report,
            Err(error) => return Some(error.to_string()),
        };
        assert_eq!((Some(mark.epoch), report.epoch), (follower.served(), mark.epoch));
        let state = follower.database().open_snapshot();
        if content(&state) != then {
            return Some(format!("at the mark of epoch {} the states differ", mark.epoch));
        }
        if held.is_none() && rng.bool() {
            held = Some((state, then));
        }
    }
    None
}

/// Once the primary rests: a last round, and everything is equal; and so is what another follower
/// has replayed in two rounds.
fn ends_equal(primary: &Primary, follower: &mut Follower) -> Option<String> {
    let (mark, source) = (primary.mark(), primary.source());
    primary.wait_for(&mark);
    let mut late = primary.follower();
    for follower in [follower, &mut late] {
        if let Err(error) = follower.round(&mark, source) {
            return Some(error.to_string());
        }
        let (ours, theirs) = (primary.db(), follower.database());
        if (ours.digest(), ours.rows()) != (theirs.digest(), theirs.rows()) {
            return Some("the digests differ at the end".to_string());
        }
        assert_eq!(ours.tables(), theirs.tables());
        assert_eq!(theirs.recount(), theirs.tables());
        // Nothing is kept any more, but for blocks of versions not full.
        let stats = theirs.stats();
        assert!(stats.snapshots == 0 && stats.snapshot_bytes <= 128 << 10, "{stats:?}");
    }
    None
}

/// The combinations that can be followed.
pub fn followed() -> Vec<Combination> {
    use hyades::{Concurrency, Protocol};
    let mut all = Vec::new();
    for (protocol, streams) in [(Protocol::Serial, 1), (Protocol::Taurus, 1), (Protocol::Taurus, 4)]
    {
        for concurrency in [Concurrency::Silo, Concurrency::NoWait, Concurrency::Hekaton] {
            for record in [RecordKind::Data, RecordKind::Command, RecordKind::Adaptive] {
                if concurrency != Concurrency::Hekaton || record == RecordKind::Data {
                    all.push(Combination { protocol, concurrency, record, streams });
                }
            }
        }
    }
    all
}
