//! Values above a piece's size: whole or not there, without leftovers, read whole or in pieces.
#![allow(missing_docs)]

mod common;

use common::World;
use hyades_deuteronomy::Database;
use hyades_tables::{Error, Keyspace, Tables};
use std::io::{BufRead, Read};
use std::ops::Bound::{Excluded, Included};

fn open(database: &Database, piece_bytes: usize) -> (Tables, Keyspace) {
    let builder = Tables::builder().keyspace("films").piece_bytes(piece_bytes);
    let tables = builder.open(database).unwrap();
    let films = tables.keyspace("films").unwrap();
    (tables, films)
}

/// A value whose bytes tell their places.
fn film(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn values_of_any_length_around_the_size_of_a_piece_come_back() {
    let world = World::new();
    let database = world.open();
    let (tables, films) = open(&database, 1000);
    let mut session = database.session().unwrap();
    for len in [0, 1, 999, 1000, 1001, 1999, 2000, 2001, 50_000] {
        session
            .execute(|tx| {
                films.put(tx, b"film", &film(len))?;
                assert_eq!(*films.get(tx, b"film")?.unwrap(), *film(len), "its own write");
                Ok::<_, Error>(())
            })
            .unwrap();
        let mut snapshot = database.long_snapshot().unwrap();
        assert_eq!(*films.get(&mut snapshot, b"film").unwrap().unwrap(), *film(len));
        let pieces = if len > 1000 { len.div_ceil(1000) } else { 0 };
        assert_eq!(tables.check(&mut snapshot).unwrap().pieces, pieces as u64);
    }
    session.execute(|tx| films.delete(tx, b"film")).unwrap();
    assert_eq!(session.execute(|tx| tables.check(tx)).unwrap().pieces, 0);
}

#[test]
fn a_long_value_is_read_in_pieces_from_each_view() {
    let world = World::new();
    let database = world.open();
    let (_, films) = open(&database, 1000);
    let mut session = database.session().unwrap();
    let whole = film(12_345);
    session.execute(|tx| films.put(tx, b"film", &whole)).unwrap();
    let mut snapshot = database.long_snapshot().unwrap();
    let mut reader = films.open_value(&mut snapshot, b"film").unwrap().unwrap();
    assert_eq!((reader.len(), reader.is_empty()), (12_345, false));
    assert_eq!(reader.fill_buf().unwrap().len(), 1000);
    let mut read = Vec::new();
    let mut buffer = [0; 777];
    while let count @ 1.. = reader.read(&mut buffer).unwrap() {
        read.extend_from_slice(&buffer[..count]);
    }
    assert_eq!(read, whole);
    let copied = session.execute(|tx| {
        let mut read = Vec::new();
        let mut reader = films.open_value(tx, b"film")?.expect("it was written");
        reader.read_to_end(&mut read).expect("its pieces are there");
        Ok::<_, Error>(read)
    });
    assert_eq!(copied.unwrap(), whole);
    assert!(films.open_value(&mut snapshot, b"none").unwrap().is_none());
}

/// Sizes of pieces change between openings, the values stay.
#[test]
fn a_value_keeps_the_size_of_its_pieces() {
    let world = World::new();
    let database = world.open();
    let mut session = database.session().unwrap();
    for (key, piece_bytes) in [(b"a", 700), (b"b", 5000), (b"c", 1)] {
        let (_, films) = open(&database, piece_bytes);
        session.execute(|tx| films.put(tx, key, &film(3000))).unwrap();
    }
    let (tables, films) = open(&database, 1000);
    let mut snapshot = session.snapshot().unwrap();
    for key in [b"a", b"b", b"c"] {
        assert_eq!(*films.get(&mut snapshot, key).unwrap().unwrap(), *film(3000));
    }
    assert_eq!(tables.check(&mut snapshot).unwrap().pieces, 5 + 3000);
    drop(snapshot);
    session
        .execute(|tx| [b"a", b"b", b"c"].iter().try_for_each(|key| films.put(tx, *key, b"short")))
        .unwrap();
    assert_eq!(session.execute(|tx| tables.check(tx)).unwrap().pieces, 0);
}

/// Overwrites and deletions, some of them twice in a transaction, with crashes in between.
#[test]
fn crashes_leave_a_value_whole_and_no_piece_behind() {
    for seed in 0..8 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut world, mut lens) = (World::new(), [None; 4]);
        for _ in 0..5 {
            let database = world.open();
            let (tables, films) = open(&database, rng.usize(500..4000));
            let mut session = database.session().unwrap();
            let mut snapshot = session.snapshot().unwrap();
            for (key, len) in lens.iter().enumerate() {
                let found = films.get(&mut snapshot, &[key as u8]).unwrap();
                assert_eq!(found.map(|film| film.into_vec()), len.map(film));
            }
            tables.check(&mut snapshot).unwrap();
            drop(snapshot);
            for _ in 0..rng.usize(1..15) {
                let changes: Vec<_> = (0..rng.usize(1..4))
                    .map(|_| (rng.usize(0..4), rng.bool().then(|| rng.usize(0..20_000))))
                    .collect();
                let written = session.execute(|tx| {
                    changes.iter().try_for_each(|(key, len)| match len {
                        Some(len) => films.put(tx, &[*key as u8], &film(*len)),
                        None => films.delete(tx, &[*key as u8]),
                    })
                });
                written.unwrap();
                changes.iter().for_each(|(key, len)| lens[*key] = *len);
            }
            drop((session, films, tables));
            world.crash(database, &mut rng);
        }
    }
}

/// A value within the memory of a transaction is written, a longer one is refused without a trace,
/// and the transaction goes on.
#[test]
fn a_value_above_the_memory_of_a_transaction_is_refused_and_taken_back() {
    let mut world = World::new();
    world.memory_bytes = 1 << 20;
    let database = world.open();
    let (tables, films) = open(&database, 10_000);
    let mut session = database.session().unwrap();
    session.execute(|tx| films.put(tx, b"kept", &film(300_000))).unwrap();
    session
        .execute(|tx| {
            films.put(tx, b"small", b"before")?;
            for key in [&b"kept"[..], b"small", b"new"] {
                let refused = films.put(tx, key, &film(1 << 20)).unwrap_err();
                let text = refused.to_string();
                let is_known = matches!(refused, Error::ValueTooLarge { source: Some(_), .. });
                assert!(is_known && text.contains("Options::memory_bytes"), "{text}");
            }
            films.put(tx, b"after", b"it")
        })
        .unwrap();
    let mut snapshot = session.snapshot().unwrap();
    assert_eq!(*films.get(&mut snapshot, b"kept").unwrap().unwrap(), *film(300_000));
    assert_eq!(*films.get(&mut snapshot, b"small").unwrap().unwrap(), *b"before");
    assert_eq!(*films.get(&mut snapshot, b"after").unwrap().unwrap(), *b"it");
    assert_eq!(films.get(&mut snapshot, b"new").unwrap(), None);
    assert_eq!(tables.check(&mut snapshot).unwrap().pieces, 30);
}

/// Transactions overwrite the same long values: each reads one of them, whole.
#[test]
fn readers_beside_writers_see_whole_values() {
    let world = World::new();
    let database = world.open();
    let (tables, films) = open(&database, 100);
    let mut session = database.session().unwrap();
    session.execute(|tx| films.put(tx, b"film", &[0; 3000])).unwrap();
    std::thread::scope(|scope| {
        for thread in 1..3u8 {
            let (mut session, films) = (database.session().unwrap(), films.clone());
            scope.spawn(move || {
                for n in 0..60u8 {
                    let len = 1000 + usize::from(n) * 50;
                    session.execute(|tx| films.put(tx, b"film", &vec![thread * n; len])).unwrap();
                }
            });
        }
        for _ in 0..100 {
            let read = session.execute(|tx| films.get(tx, b"film")).unwrap().unwrap();
            assert!(read.iter().all(|byte| *byte == read[0]), "of two writers");
        }
    });
    session.execute(|tx| tables.check(tx)).unwrap();
}

/// What the library did not write is told.
#[test]
fn a_missing_piece_is_an_error_of_its_value_alone() {
    let world = World::new();
    let database = world.open();
    let (tables, films) = open(&database, 1000);
    let mut session = database.session().unwrap();
    session
        .execute(|tx| {
            films.put(tx, b"damaged", &film(2500))?;
            films.put(tx, b"sound", &film(10))?;
            // Pieces are in keyspace 1.
            let pieces = tx.scan(Included(b"\x01"), Excluded(b"\x02"), 9)?;
            Ok::<_, Error>(tx.delete(&pieces[2].0)?)
        })
        .unwrap();
    let mut snapshot = session.snapshot().unwrap();
    let error = films.get(&mut snapshot, b"damaged").unwrap_err();
    assert!(matches!(&error, Error::Corrupt(text) if text.contains("piece 2")), "{error}");
    assert!(matches!(tables.check(&mut snapshot), Err(Error::Corrupt(_))));
    let mut reader = films.open_value(&mut snapshot, b"damaged").unwrap().unwrap();
    let error = std::io::copy(&mut reader, &mut std::io::sink()).unwrap_err();
    assert!(error.get_ref().is_some_and(|error| error.is::<Error>()), "{error}");
    assert_eq!(*films.get(&mut snapshot, b"sound").unwrap().unwrap(), *film(10));
    let rows: Vec<_> = films.scan(&mut snapshot).rows().collect();
    assert!(matches!(rows[..], [Err(Error::Corrupt(_))]), "the scan ends with the error");
}

#[test]
fn pieces_that_no_frame_takes_are_refused_at_the_opening() {
    let world = World::new();
    let database = world.open();
    for wrong in [0, 1 << 20] {
        let builder = Tables::builder().keyspace("films").piece_bytes(wrong);
        let error = builder.open(&database).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Declaration(_)) && text.contains("pieces of"), "{text}");
    }
}
