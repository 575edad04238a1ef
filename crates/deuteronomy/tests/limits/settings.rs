//! Options at the ends of their ranges: a database opened there works, and values past the ends are
//! refused.

use super::{block_on, content, options_of_small_buffers, refusal};
use hyades_deuteronomy::{DataComponent, Database, Error, MemoryData, Options};
use std::sync::Arc;

/// Changes options to a value at an end of the range.
type Change = Box<dyn Fn(&mut Options)>;

fn change(change: impl Fn(&mut Options) + 'static) -> Change {
    Box::new(change)
}

/// Opens a database with changed options, writes, reads in all ways, crashes, and reads again.
fn assert_works(name: &str, change: &Change) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options_of_small_buffers(dir.path(), 2);
    change(&mut options);
    let mut data = Arc::new(MemoryData::outliving());
    for life in 0..3u8 {
        let database =
            Database::open(options.clone(), Arc::clone(&data) as Arc<dyn DataComponent>).unwrap();
        let mut session = database.session().unwrap();
        if life > 0 {
            let found = content(&mut session);
            assert_eq!(found.len(), 40, "{name}");
            assert!(found.values().all(|value| *value == [life - 1; 100]), "{name}");
        }
        for key in 0..40u8 {
            session.execute(|tx| tx.put(&[key], &[life; 100])).unwrap();
            let mut snapshot = session.snapshot().unwrap();
            assert_eq!(snapshot.get(&[key]).unwrap().as_deref(), Some(&[life; 100][..]), "{name}");
        }
        for key in 0..40u8 {
            let tx = session.begin().unwrap();
            let found = block_on(tx.get_async(&[key])).unwrap();
            assert_eq!(found.as_deref(), Some(&[life; 100][..]), "{name}");
            block_on(tx.commit().unwrap()).unwrap();
        }
        database.checkpoint().unwrap();
        drop(session);
        match life {
            0 => drop(database),
            _ => database.close().unwrap(),
        }
        data = Arc::new(data.after_crash(|| false));
    }
}

fn refused(change: &Change) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options_of_small_buffers(dir.path(), 1);
    change(&mut options);
    let wrong = refusal(Database::open(options, Arc::new(MemoryData::new())));
    let is_empty = std::fs::read_dir(dir.path()).unwrap().next().is_none();
    assert!(is_empty, "it has begun a log and then refused: {wrong}");
    wrong
}

#[test]
fn memory_bytes() {
    for bytes in [4096, 1 << 40] {
        assert_works("memory", &change(move |options| options.memory_bytes = bytes));
    }
    for bytes in [0, 1, 4095, (1 << 40) + 1, usize::MAX] {
        let wrong = refused(&change(move |options| options.memory_bytes = bytes));
        assert_eq!(wrong, format!("{bytes} bytes of memory: choose 4 KiB to 1 TiB"));
    }
}

#[test]
fn reader_threads() {
    for threads in [1, 1024] {
        assert_works("readers", &change(move |options| options.reader_threads = threads));
    }
    for threads in [0, 1025, usize::MAX] {
        let wrong = refused(&change(move |options| options.reader_threads = threads));
        assert_eq!(wrong, format!("{threads} reader threads: choose 1 to 1024"));
    }
}

#[test]
fn bytes_that_wait_and_bytes_of_redo() {
    for end in [0, 1, usize::MAX] {
        assert_works("lag", &change(move |options| options.lag_bytes = end));
        assert_works("redo", &change(move |options| options.redo_bytes = end as u64));
    }
    assert_works("both", &change(|o| (o.lag_bytes, o.redo_bytes) = (0, 0)));
}

#[test]
fn attempts_patience_and_threads_of_the_proxy() {
    use std::time::Duration;
    assert_works("attempts", &change(|options| options.attempts = 1));
    assert_works("attempts", &change(|options| options.attempts = u64::MAX));
    for patience in [Duration::ZERO, Duration::MAX] {
        assert_works("patience", &change(move |options| options.patience = patience));
        assert_works("patience", &change(move |options| options.room_patience = patience));
    }
    for threads in [1..=1, 1..=64, 64..=64] {
        assert_works("proxy", &change(move |o| o.proxy_threads = threads.clone()));
    }
    let wrong = refused(&change(|options| options.attempts = 0));
    assert!(wrong.contains("at least one attempt"), "{wrong}");
    #[expect(clippy::reversed_empty_ranges)]
    for threads in [0..=1, 1..=65, 2..=1] {
        let wrong = refused(&change(move |o| o.proxy_threads = threads.clone()));
        assert!(wrong.contains("choose 1 to 64"), "{wrong}");
    }
}

#[test]
fn transactions() {
    // A table of the fewest entries, in use by the most sessions allowed.
    let dir = tempfile::tempdir().unwrap();
    let mut options = options_of_small_buffers(dir.path(), 2);
    (options.transactions, options.sessions) = (16, 15);
    let database = Database::open(options, Arc::new(MemoryData::new())).unwrap();
    let mut sessions: Vec<_> = (0..15).map(|_| database.session().unwrap()).collect();
    for round in 0..20u8 {
        let mut open: Vec<_> = sessions.iter_mut().map(|s| s.begin().unwrap()).collect();
        for (nth, tx) in open.iter_mut().enumerate() {
            tx.put(&[nth as u8], &[round]).unwrap();
        }
        open.into_iter().for_each(|tx| drop(tx.commit().unwrap()));
    }
    let found = content(&mut sessions[0]);
    assert!(found.len() == 15 && found.values().all(|value| *value == [19]));
    assert!(matches!(database.session().map(drop), Err(Error::Sessions(15))));
    for (entries, sessions) in [(16, 16), (32, 33)] {
        let wrong = refused(&change(move |o| (o.transactions, o.sessions) = (entries, sessions)));
        assert!(wrong.contains("choose more entries than sessions"), "{wrong}");
    }
    for entries in [0, 7, 8, 15, 17, (1 << 24) + 1, 1 << 25, usize::MAX] {
        let wrong = refused(&change(move |o| (o.transactions, o.sessions) = (entries, 1)));
        assert!(wrong.contains("choose a power of two from 16 to 2^24"), "{wrong}");
    }
}

#[test]
fn sessions() {
    const MOST: usize = 1 << 16;
    let most = |options: &mut Options| (options.sessions, options.log.max_writers) = (MOST, MOST);
    assert_works("sessions", &change(most));
    let dir = tempfile::tempdir().unwrap();
    let mut options = options_of_small_buffers(dir.path(), 2);
    most(&mut options);
    let database = Database::open(options, Arc::new(MemoryData::new())).unwrap();
    let mut sessions: Vec<_> = (0..MOST).map(|_| database.session().unwrap()).collect();
    assert!(matches!(database.session().map(drop), Err(Error::Sessions(MOST))));
    for nth in [0, 1, MOST / 2, MOST - 1] {
        sessions[nth].execute(|tx| tx.put(&nth.to_be_bytes(), b"1")).unwrap();
    }
    // A leaving session makes room for another.
    drop(sessions.pop());
    let mut last = database.session().unwrap();
    assert!(matches!(database.session().map(drop), Err(Error::Sessions(MOST))));
    assert_eq!(content(&mut last).len(), 4);
    drop((last, sessions));
    database.close().unwrap();
    for (sessions, writers) in
        [(0, 9), (10, 9), (MOST + 1, MOST + 1), (MOST + 1, MOST), (usize::MAX, MOST)]
    {
        let wrong = refused(&change(move |options| {
            (options.sessions, options.log.max_writers) = (sessions, writers);
        }));
        assert!(wrong.contains("sessions: choose 1 to 65536"), "{wrong}");
    }
}
