//! Data larger than the budget of memory, and transactions open while the budget is used up.
#![allow(missing_docs)]

#[path = "common/late_fetch.rs"]
mod late_fetch;

use hyades_deuteronomy::{
    Abort, DataComponent, DataLayer, Database, Error, Found, LogOptions, MemoryData, Options,
    Session,
};
use hyades_platform::device::MemoryDevice;
use late_fetch::{BeforeEnd, reads_around_a_late_fetch};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// The data component in memory; with a count of reads, and a time for each read.
struct Slow {
    data: MemoryData,
    gets: AtomicU64,
    takes: Duration,
}

impl Slow {
    fn new(takes: Duration) -> Arc<Self> {
        Arc::new(Self { data: MemoryData::new(), gets: AtomicU64::new(0), takes })
    }
}

impl DataLayer for Slow {
    fn below(&self) -> &dyn DataComponent {
        &self.data
    }

    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.takes);
        self.data.get(key)
    }
}

fn options(dir: &Path, memory_bytes: usize) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], 2);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 16;
    log.segment_bytes = 1 << 18;
    let mut options = Options::new(log);
    options.memory_bytes = memory_bytes;
    options
}

fn put(session: &mut Session, key: u64, value: &[u8]) {
    let put = session.submit(|tx| tx.put(&key.to_be_bytes(), value));
    drop(put.unwrap());
}

const KEYS: u64 = 4000;
const VALUE: usize = 500;
const BUDGET: usize = 200 << 10;
/// The hot keys; their records and versions take about a third of the budget.
const HOT: u64 = 100;

/// A value of a key: the value names the key's pair and the number of times the pair was written.
fn value(key: u64, number: u64) -> Vec<u8> {
    let mut value = vec![key as u8; VALUE];
    value[..8].copy_from_slice(&(key / 2).to_be_bytes());
    value[8..16].copy_from_slice(&number.to_be_bytes());
    value
}

fn number(key: u64, found: &[u8]) -> u64 {
    let number = u64::from_be_bytes(found[8..16].try_into().unwrap());
    assert_eq!(found, value(key, number));
    number
}

/// Reads pairs, and writes some; both keys of a pair are always written together, with the last
/// number plus one. Returns the number of written pairs.
fn read_and_write(session: &mut Session, seed: u64, transactions: u64) -> u64 {
    let (mut rng, mut written) = (fastrand::Rng::with_seed(seed), 0);
    for _ in 0..transactions {
        let pair = match rng.u8(0..10) {
            0 => rng.u64(0..KEYS / 2),
            _ => rng.u64(0..HOT / 2),
        };
        let keys = [2 * pair, 2 * pair + 1].map(|key| (key, key.to_be_bytes()));
        let writes = rng.u8(0..8) == 0;
        let done = session.submit(|tx| {
            let mut numbers = [0; 2];
            for (at, (key, bytes)) in keys.iter().enumerate() {
                numbers[at] = number(*key, &tx.get(bytes)?.expect("it was loaded"));
            }
            assert_eq!(numbers[0], numbers[1], "half of a transaction is seen");
            if writes {
                for (key, bytes) in &keys {
                    tx.put(bytes, &value(*key, numbers[0] + 1))?;
                }
            }
            Ok::<_, Error>(())
        });
        drop(done.unwrap());
        written += u64::from(writes);
    }
    written
}

#[test]
fn ten_times_the_budget_is_read_and_written_and_what_is_hot_stays_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let data = Slow::new(Duration::ZERO);
    let database = Database::open(options(dir.path(), BUDGET), data.clone()).unwrap();
    let mut session = database.session().unwrap();
    (0..KEYS).for_each(|key| put(&mut session, key, &value(key, 0)));
    assert!(KEYS as usize * VALUE > 9 * BUDGET, "{KEYS} keys are too few");
    // The hot keys enter memory.
    read_and_write(&mut session, 1, 2000);
    let (written, transactions) = (AtomicU64::new(0), 3000);
    let stays = |round: u64| {
        let before = data.gets.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for seed in 3 * round + 2..3 * round + 5 {
                let (database, written) = (&database, &written);
                scope.spawn(move || {
                    let mut session = database.session().unwrap();
                    for piece in 0..10 {
                        let n = read_and_write(&mut session, seed * 100 + piece, transactions / 10);
                        written.fetch_add(n, Ordering::Relaxed);
                        let bytes = database.stats().version_bytes;
                        assert!(bytes <= BUDGET + 8 * (VALUE + 300), "{bytes} bytes");
                    }
                });
            }
        });
        let (gets, reads) = (data.gets.load(Ordering::Relaxed) - before, 2 * 3 * transactions);
        println!("{gets} of {reads} reads were at the data component, {written:?} writes");
        gets < reads / 5
    };
    // A tenth is of cold keys. On a busy machine unapplied versions may take the place of hot keys
    // for a while: then the test tries again.
    assert!((0..5).any(stays), "what is hot leaves memory");
    // Every write is there, once.
    let mut sum = 0;
    for pair in 0..KEYS / 2 {
        let key = 2 * pair;
        let read = session.execute(|tx| tx.get(&key.to_be_bytes())).unwrap().unwrap();
        sum += number(key, &read);
    }
    let mut before = fastrand::Rng::with_seed(1);
    let before = (0..2000).filter(|_| {
        match before.u8(0..10) {
            0 => before.u64(0..KEYS / 2),
            _ => before.u64(0..HOT / 2),
        };
        before.u8(0..8) == 0
    });
    assert_eq!(sum, before.count() as u64 + written.into_inner());
    drop(session);
    database.close().unwrap();
}

#[test]
fn a_key_is_fetched_once_for_all_that_miss_it() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than a thread's time without a processor between its look and its wait.
    let data = Slow::new(Duration::from_millis(500));
    let database = Database::open(options(dir.path(), 4 << 10), data.clone()).unwrap();
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut session = database.session().unwrap();
                barrier.wait();
                assert_eq!(session.execute(|tx| tx.get(b"a")).unwrap(), None);
            });
        }
    });
    assert_eq!(data.gets.load(Ordering::Relaxed), 1);
}

#[test]
fn an_open_transaction_keeps_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path(), 64 << 10);
    // Each transaction is run again until the log is durable, not until the other has ended.
    settings.attempts = 100_000;
    let database = Database::open(settings, Slow::new(Duration::ZERO)).unwrap();
    let (mut one, mut other) = (database.session().unwrap(), database.session().unwrap());
    (0..1000).for_each(|key| put(&mut one, key, &[1; 300]));
    for reads in [false, true] {
        let mut open = other.begin().unwrap();
        open.put(b"mine", &[u8::from(reads)]).unwrap();
        if reads {
            assert_eq!(open.get(&0u64.to_be_bytes()).unwrap().as_deref(), Some(&[2; 300][..]));
        }
        for key in 0..1000 {
            put(&mut one, key, &[2; 300]);
            let bytes = database.stats().version_bytes;
            assert!(bytes <= 66 << 10, "{bytes} bytes");
        }
        match reads {
            // The version to read was overwritten, and is not kept any more.
            true => {
                let gone = open.get(&1u64.to_be_bytes());
                assert!(matches!(gone, Err(Error::Aborted(Abort::SnapshotTooOld))), "{gone:?}");
            }
            // The transaction conflicts with no other.
            false => open.commit().unwrap().wait().unwrap(),
        }
    }
    let mine = one.execute(|tx| tx.get(b"mine")).unwrap();
    assert_eq!(mine.as_deref(), Some(&[0][..]), "of the second, nothing is there");
}

/// With a key written by an open transaction, younger transactions' versions leave memory, and are
/// not mistaken for the open transaction's write.
#[test]
fn an_open_transaction_keeps_none_from_a_key_that_it_has_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = options(dir.path(), 64 << 10);
    settings.attempts = 1000;
    let database = Database::open(settings, Slow::new(Duration::ZERO)).unwrap();
    let mut sessions = [(); 4].map(|()| database.session().unwrap());
    let [one, two, three, four] = &mut sessions;
    let key = 7u64.to_be_bytes();
    for ends_first in [true, false] {
        put(one, 7, &[0; 300]);
        let mut open = two.begin().unwrap();
        open.put(&key, &[1; 300]).unwrap();
        put(one, 7, &[2; 300]);
        // The version due to the reader leaves memory, and so does the version that the writer may
        // not write below.
        let (mut reader, mut writer) = (three.begin().unwrap(), four.begin().unwrap());
        for n in 0..2000 {
            put(one, if n < 1000 { 7 } else { n }, &[3; 300]);
            let bytes = database.stats().version_bytes;
            assert!(bytes <= 66 << 10, "{bytes} bytes");
        }
        let written = writer.put(&key, &[4; 300]);
        let is_refused =
            matches!(written, Err(Error::Aborted(Abort::ReadByYounger | Abort::TooLate)));
        assert!(is_refused, "{written:?}");
        drop(writer);
        let read = one.execute(|tx| tx.get(&key)).unwrap();
        assert_eq!(read.as_deref(), Some(&[3; 300][..]));
        if ends_first {
            open.commit().unwrap().wait().unwrap();
        } else {
            drop(open);
        }
        let gone = reader.get(&key);
        assert!(matches!(gone, Err(Error::Aborted(Abort::SnapshotTooOld))), "{gone:?}");
        drop(reader);
        let read = one.execute(|tx| tx.get(&key)).unwrap();
        assert_eq!(read.as_deref(), Some(&[3; 300][..]));
    }
}

#[test]
fn an_open_transaction_does_not_write_below_what_has_left_memory() {
    let dir = tempfile::tempdir().unwrap();
    let database =
        Database::open(options(dir.path(), 64 << 10), Slow::new(Duration::ZERO)).unwrap();
    let (mut one, mut other) = (database.session().unwrap(), database.session().unwrap());
    let mut open = other.begin().unwrap();
    (0..1000).for_each(|key| put(&mut one, key, &[2; 300]));
    // The unread write of a younger transaction is in the data component alone.
    let late = open.put(&0u64.to_be_bytes(), &[1; 300]);
    assert!(matches!(late, Err(Error::Aborted(_))), "{late:?}");
    drop(open);
    let read = one.execute(|tx| tx.get(&0u64.to_be_bytes())).unwrap();
    assert_eq!(read.as_deref(), Some(&[2; 300][..]));
}

#[test]
fn a_fetch_is_not_shared_with_one_that_began_before_a_write_has_come_and_gone() {
    let [older, younger, last] = reads_around_a_late_fetch(BeforeEnd::Read);
    assert_eq!(older, None, "it is before the write");
    assert_eq!(younger.as_deref(), Some(&b"1"[..]), "it has not joined the older fetch");
    assert_eq!(last.as_deref(), Some(&b"1"[..]));
}

#[test]
fn what_was_fetched_late_does_not_come_back_as_the_newest() {
    let [older, _, last] = reads_around_a_late_fetch(BeforeEnd::Abort);
    assert_eq!(older, None, "it is before the write");
    assert_eq!(last.as_deref(), Some(&b"1"[..]));
}
