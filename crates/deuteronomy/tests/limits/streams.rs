//! One stream, up to the most, and around six: the dependencies on further streams lie apart.

use super::{Content, content, options_of_small_buffers, refusal};
use hyades_deuteronomy::{
    DataComponent, Database, Error, LogOptions, MemoryData, Options, Session, Ticket, UpdateLogging,
};
use hyades_platform::device::MemoryDevice;
use std::path::Path;
use std::sync::Arc;

const NUMBERS: [usize; 6] = [1, 6, 7, 8, 9, 64];

/// Little of all, as 64 streams have to be opened many times.
fn options(dir: &Path, streams: usize) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], streams);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 14;
    log.segment_bytes = 1 << 16;
    log.stepped = true;
    let mut options = Options::new(log);
    options.transactions = 512;
    options
}

fn open(dir: &Path, streams: usize, data: &Arc<MemoryData>) -> Database {
    let data = Arc::clone(data) as Arc<dyn DataComponent>;
    Database::open(options(dir, streams), data).unwrap()
}

/// A session for each stream, by stream: each session writes its record there. The written keys are
/// the streams' numbers.
fn sessions(database: &Database, round: u8) -> Vec<Session> {
    let streams = database.log().streams();
    let mut sessions: Vec<Option<Session>> = (0..streams).map(|_| None).collect();
    for _ in 0..streams {
        let mut session = database.session().unwrap();
        let before: Vec<_> = (0..streams).map(|s| database.log().next_lsn(s)).collect();
        let mut tx = session.begin().unwrap();
        tx.put(b"stream", &[round]).unwrap();
        drop(tx.commit().unwrap());
        let is_its = |stream: &usize| database.log().next_lsn(*stream) > before[*stream];
        let stream = (0..streams).find(is_its).unwrap();
        assert!(sessions[stream].replace(session).is_none(), "two sessions in {stream}");
    }
    sessions.into_iter().map(Option::unwrap).collect()
}

/// Reads a key and writes another key.
fn depend(session: &mut Session, read: &[u8], write: &[u8], value: &[u8]) -> Ticket {
    let mut tx = session.begin().unwrap();
    drop(tx.get(read).unwrap());
    tx.put(write, value).unwrap();
    tx.commit().unwrap()
}

fn step_all(database: &Database) {
    (0..database.log().streams()).for_each(|stream| while database.log().step(stream) {});
}

#[test]
fn each_number_of_streams_is_recovered_with_each_other_up_and_down() {
    for is_durable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut data = match is_durable {
            true => Arc::new(MemoryData::outliving()),
            false => Arc::new(MemoryData::new()),
        };
        let mut expected = Content::new();
        let up_and_down = NUMBERS.iter().chain(NUMBERS.iter().rev()).chain(&[64, 7, 1, 8]);
        for (round, &streams) in up_and_down.enumerate() {
            let round = round as u8;
            let database = open(dir.path(), streams, &data);
            assert_eq!(content(&mut database.session().unwrap()), expected, "{streams}");
            let mut tickets = Vec::new();
            let mut all = sessions(&database, round);
            expected.insert(b"stream".to_vec(), vec![round]);
            // Each transaction depends on the transaction in the stream before.
            for (stream, session) in all.iter_mut().enumerate() {
                let (key, before) = ([stream as u8], [(stream as u8).wrapping_sub(1)]);
                tickets.push(depend(session, &before, &key, &[round]));
                expected.insert(key.to_vec(), vec![round]);
            }
            step_all(&database);
            for ticket in tickets {
                ticket.wait().unwrap();
            }
            database.step_proxy().unwrap();
            if round % 3 == 2 {
                database.checkpoint().unwrap();
            }
            drop((all, database));
            data = Arc::new(data.after_crash(|| round.is_multiple_of(2)));
        }
    }
}

/// The record of the dependent is durable in one stream, and the record of the version read is not
/// durable in another.
#[test]
fn a_dependency_on_any_stream_decides_what_is_acknowledged_and_what_is_recovered() {
    for (streams, far_stream) in [(6, 5), (7, 6), (8, 6), (8, 7), (9, 8), (64, 6), (64, 63)] {
        for logging in [UpdateLogging::AtCommit, UpdateLogging::AtOnce] {
            for is_lost in [true, false] {
                let dir = tempfile::tempdir().unwrap();
                let mut options = options(dir.path(), streams);
                options.update_logging = logging;
                let data = Arc::new(MemoryData::new());
                let database = Database::open(options, data).unwrap();
                let mut all = sessions(&database, 0);
                step_all(&database);
                let first = depend(&mut all[far_stream], b"-", b"first", b"1");
                // From the far stream to another stream, and from there to a third.
                let second = depend(&mut all[0], b"first", b"second", b"1");
                let third = depend(&mut all[far_stream - 1], b"second", b"third", b"1");
                (0..streams)
                    .filter(|s| *s != far_stream)
                    .for_each(|s| while database.log().step(s) {});
                let tickets = [&first, &second, &third];
                let are = || tickets.map(|ticket| ticket.is_acknowledged().unwrap());
                assert_eq!(are(), [false; 3], "{far_stream} of {streams}");
                if !is_lost {
                    while database.log().step(far_stream) {}
                    assert_eq!(are(), [true; 3], "{far_stream} of {streams}");
                }
                drop((first, second, third));
                drop((all, database));
                let database = open(dir.path(), streams % 64 + 1, &Arc::new(MemoryData::new()));
                let dead = if is_lost { 2 } else { 0 };
                assert_eq!(database.recovered().dead, dead, "{far_stream} of {streams}");
                let found = content(&mut database.session().unwrap());
                let keys: Vec<&[u8]> = found.keys().map(|key| &key[..]).collect();
                let all_keys: [&[u8]; 4] = [b"first", b"second", b"stream", b"third"];
                let left: &[&[u8]] = if is_lost { &[b"stream"] } else { &all_keys };
                assert_eq!(keys, left, "{far_stream} of {streams}, {logging:?}");
            }
        }
    }
}

/// Moves amounts between accounts until the log is stopped, and waits for none. Counts the
/// transactions in a separate key; returns the numbers of acknowledged and of committed
/// transactions.
fn transfer(database: &Database, thread: u8, stop_at: u64, rng: &mut fastrand::Rng) -> [u64; 2] {
    let (mut session, mut tickets) = (database.session().unwrap(), Vec::new());
    let counter = [b"thread", &[thread][..]].concat();
    for number in 1.. {
        let (from, to) = (rng.u8(0..ACCOUNTS), rng.u8(0..ACCOUNTS));
        let moved = session.submit(|tx| {
            for (account, change) in [(from, u64::MAX), (to, 1)] {
                let found = tx.get(&[account])?.expect("it was filled");
                let sum = u64::from_le_bytes((*found).try_into().unwrap());
                tx.put(&[account], &sum.wrapping_add(change).to_le_bytes())?;
            }
            // So each transaction depends on the transaction before.
            let before = tx.get(&counter)?.map(|value| (*value).try_into().unwrap());
            assert_eq!(before.map_or(0, u64::from_le_bytes), number - 1);
            tx.put(&counter, &u64::to_le_bytes(number))
        });
        match moved {
            Ok(((), ticket)) => tickets.push(ticket),
            Err(Error::OutcomeUnknown | Error::Log(_)) => break,
            Err(other) => panic!("{other}"),
        }
        if number == stop_at {
            database.log().stop("a test says so");
        }
    }
    let committed = tickets.len() as u64;
    let outcomes: Vec<_> = tickets.into_iter().map(Ticket::wait).collect();
    assert!(outcomes.is_sorted_by_key(Result::is_err));
    [outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64, committed]
}

const ACCOUNTS: u8 = 12;

/// Threads with transactions dependent on all streams, until the log stops in between.
#[test]
fn threads_over_each_number_of_streams_lose_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let data = Arc::new(MemoryData::new());
    let threaded = |streams| {
        let mut options = options(dir.path(), streams);
        options.log.stepped = false;
        options
    };
    let database = Database::open(threaded(2), data).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(|tx| (0..ACCOUNTS).try_for_each(|key| tx.put(&[key], &1000u64.to_le_bytes())))
        .unwrap();
    drop((session, database));
    let mut rng = fastrand::Rng::with_seed(5);
    for (life, streams) in [9, 7, 64, 1, 8, 6, 64].into_iter().enumerate() {
        let database = Database::open(threaded(streams), Arc::new(MemoryData::new())).unwrap();
        let stop_at = rng.u64(100..400);
        // The idle sessions take the first streams: the threads get the remaining streams, if any.
        let idle: Vec<_> = (0..6).map(|_| database.session().unwrap()).collect();
        let counts: Vec<[u64; 2]> = std::thread::scope(|scope| {
            let run = |thread: u8| {
                let (mut rng, database) = (rng.fork(), &database);
                // Threads of the life before have separate counters.
                let thread = thread + 10 * life as u8;
                scope.spawn(move || transfer(database, thread, stop_at, &mut rng))
            };
            let threads: Vec<_> = (0..8).map(run).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(counts.iter().any(|[_, committed]| *committed >= stop_at), "{counts:?}");
        drop((idle, database));
        let data = Arc::new(MemoryData::new());
        let database = Database::open(threaded(streams % 9 + 1), data).unwrap();
        let found = content(&mut database.session().unwrap());
        let number = |key: &[u8]| {
            let value = found.get(key).map(|value| value[..].try_into().unwrap());
            value.map_or(0, u64::from_le_bytes)
        };
        let sum: u64 = (0..ACCOUNTS).map(|key| number(&[key])).sum();
        assert_eq!(sum, 1000 * u64::from(ACCOUNTS), "{streams} streams");
        for (thread, [acknowledged, committed]) in counts.into_iter().enumerate() {
            let found = number(&[&b"thread"[..], &[thread as u8 + 10 * life as u8]].concat());
            // The last transaction may be in the log although not known to be committed.
            let may_be = acknowledged..=committed + 1;
            assert!(may_be.contains(&found), "{found} of {may_be:?} over {streams} streams");
        }
    }
}

#[test]
fn no_stream_and_one_too_many_are_refused_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = Arc::new(MemoryData::new());
    let database = open(dir.path(), 64, &data);
    drop(depend(&mut database.session().unwrap(), b"", b"k", b"1"));
    step_all(&database);
    drop(database);
    for streams in [0, 65, usize::MAX] {
        let options = options_of_small_buffers(dir.path(), streams);
        let wrong = refusal(Database::open(options, Arc::new(MemoryData::new())));
        assert!(wrong.contains("log streams: choose 1 to 64"), "{wrong}");
    }
    let database = open(dir.path(), 1, &Arc::new(MemoryData::new()));
    assert_eq!(content(&mut database.session().unwrap()).len(), 1);
}
