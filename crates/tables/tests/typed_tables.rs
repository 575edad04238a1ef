//! Typed tables: operations, keys, indexes, errors.
#![allow(missing_docs)]

mod common;

use common::{Player, World};
use hyades::Table;
use hyades_deuteronomy::{Database, Session};
use hyades_tables::{Error, Tables, TypedTable};
use std::error::Error as _;
use std::ops::ControlFlow;

fn open(database: &Database) -> (Tables, TypedTable<Player>) {
    let tables = Tables::builder().table_of::<Player>().open(database).unwrap();
    let players = tables.table_of().unwrap();
    (tables, players)
}

fn player(id: u32, mail: Option<&str>) -> Player {
    let (group, mail) = ("g".into(), mail.map(str::to_owned));
    Player { id, group, score: i64::from(id), mail, picture: Vec::new() }
}

#[test]
fn operations_answer_as_those_of_the_engine() {
    let world = World::new();
    let database = world.open();
    let (tables, players) = open(&database);
    let mut session = database.session().unwrap();
    session
        .execute(|tx| {
            assert_eq!(players.get(tx, 1)?, None);
            assert!(matches!(players.require(tx, 1), Err(Error::NotFound(_))));
            assert!(!players.update(tx, 1, &[Player::SCORE.set(9)])?);
            assert!(!players.modify(tx, 1, |_| panic!("there is no row"))?);
            assert!(!players.delete(tx, 1)?);
            players.insert(tx, &player(1, None))?;
            assert!(matches!(players.insert(tx, &player(1, None)), Err(Error::Exists(_))));
            assert!(players.upsert(tx, &player(1, Some("m")))?);
            assert!(!players.upsert(tx, &player(2, None))?);
            let sets = [Player::SCORE.set(-5), Player::GROUP.set("other")];
            assert!(players.update(tx, 1, &sets)?);
            assert!(players.modify(tx, 2, |row| row.picture = vec![1; 10])?);
            let score = players.read(tx, 1, |row| row.score)?;
            assert_eq!(score, Some(-5));
            assert_eq!(players.require(tx, 2)?.picture, [1; 10]);
            assert!(players.delete(tx, 2)?);
            assert_eq!(players.get(tx, 2)?, None);
            Ok::<_, Error>(())
        })
        .unwrap();
    let checked = session.execute(|tx| tables.check(tx)).unwrap();
    assert_eq!((checked.rows, checked.entries), (1, 2));
}

#[test]
fn a_change_of_the_primary_key_is_refused_and_names_the_column() {
    let world = World::new();
    let database = world.open();
    let (_, players) = open(&database);
    let mut session = database.session().unwrap();
    session
        .execute(|tx| {
            players.insert(tx, &player(1, None))?;
            let update = players.update(tx, 1, &[Player::ID.set(2)]).unwrap_err();
            let modify = players.modify(tx, 1, |row| row.id = 2).unwrap_err();
            for error in [update, modify] {
                let text = error.to_string();
                assert!(matches!(error, Error::Row(_)) && text.contains("\"id\""), "{text}");
            }
            assert_eq!(players.get(tx, 1)?, Some(player(1, None)));
            Ok::<_, Error>(())
        })
        .unwrap();
}

#[test]
fn a_key_of_a_unique_index_is_free_again_once_its_row_has_another() {
    let world = World::new();
    let database = world.open();
    let (tables, players) = open(&database);
    let mut session = database.session().unwrap();
    session
        .execute(|tx| {
            players.insert(tx, &player(1, Some("a")))?;
            let taken = players.insert(tx, &player(2, Some("a"))).unwrap_err();
            assert!(taken.to_string().contains("\"by_mail\""), "{taken}");
            assert_eq!(players.get(tx, 2)?, None, "the refused row is not there");
            players.insert(tx, &player(2, Some("b")))?;
            let taken = players.modify(tx, 2, |row| row.mail = Some("a".into())).unwrap_err();
            assert!(matches!(taken, Error::Unique { .. }));
            players.modify(tx, 1, |row| row.mail = None)?;
            players.modify(tx, 2, |row| row.mail = Some("a".into()))?;
            players.delete(tx, 2)?;
            players.insert(tx, &player(3, Some("a")))?;
            players.insert(tx, &player(4, None))
        })
        .unwrap();
    session.execute(|tx| tables.check(tx)).unwrap();
}

/// Sessions insert rows of the same mails: each mail gets a single row.
#[test]
fn a_unique_index_holds_beside_other_sessions() {
    let world = World::new();
    let database = world.open();
    let (tables, players) = open(&database);
    let inserted = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u32)
            .map(|thread| {
                let (mut session, players) = (database.session().unwrap(), players.clone());
                scope.spawn(move || {
                    let insert = |n: u32, session: &mut Session| {
                        let row = player(thread * 1000 + n, Some(&format!("{}", n % 25)));
                        match session.execute(|tx| players.insert(tx, &row)) {
                            Ok(()) => 1,
                            Err(Error::Unique { .. }) => 0,
                            Err(error) => panic!("{error}"),
                        }
                    };
                    (0..50).map(|n| insert(n, &mut session)).sum::<u32>()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u32>()
    });
    assert_eq!(inserted, 25);
    let mut session = database.session().unwrap();
    assert_eq!(session.execute(|tx| tables.check(tx)).unwrap().rows, 25);
}

/// A struct that borrows, with a key of several columns of each kind.
#[derive(Table, Debug, PartialEq)]
#[table(name = "words", key(language, word, meaning), index(by_rank(common, rank)))]
struct Word<'a> {
    language: [u8; 2],
    word: &'a str,
    meaning: i32,
    common: bool,
    rank: Option<f64>,
    note: Option<&'a [u8]>,
}

fn word(language: &[u8; 2], word: &'static str, meaning: i32, rank: Option<f64>) -> Word<'static> {
    Word { language: *language, word, meaning, common: meaning % 2 == 0, rank, note: None }
}

#[test]
fn keys_of_several_columns_are_in_the_order_of_their_values() {
    let world = World::new();
    let database = world.open();
    let tables = Tables::builder().table_of::<Word<'_>>().open(&database).unwrap();
    let words: TypedTable<Word<'static>> = tables.table_of().unwrap();
    let mut session = database.session().unwrap();
    let rows = [
        word(b"de", "", -1, None),
        word(b"de", "a", i32::MIN, Some(-0.0)),
        word(b"de", "a", -1, Some(f64::NEG_INFINITY)),
        word(b"de", "a", 7, Some(2.5)),
        word(b"de", "a\0", 0, Some(0.0)),
        word(b"de", "ab", 0, None),
        word(b"en", "a", 2, Some(-1.0)),
    ];
    session.execute(|tx| rows.iter().rev().try_for_each(|row| words.insert(tx, row))).unwrap();
    session
        .execute(|tx| {
            let mut found = Vec::new();
            words.scan(tx).each(|row| {
                found.push((row.language, row.word.to_owned(), row.meaning));
                ControlFlow::Continue(())
            })?;
            assert!(found.iter().map(|(l, w, m)| (l, &**w, m)).eq(rows.iter().map(|row| (
                &row.language,
                row.word,
                &row.meaning
            ))));
            let count = |scan: hyades_tables::TypedScan<'_, '_, _, Word<'static>, _>| {
                let mut count = 0;
                let each = |_: Word<'_>| {
                    count += 1;
                    ControlFlow::Continue(())
                };
                scan.each(each).map(|()| count)
            };
            assert_eq!(count(words.scan(tx).prefix((b"de", "a")))?, 3);
            assert_eq!(count(words.scan(tx).range((b"de", "a", 0)..))?, 4);
            let range = (b"de", "a")..=(b"de", "a\0");
            assert_eq!(count(words.scan(tx).prefix_range(range))?, 4);
            assert_eq!(count(words.scan(tx).equal((b"en", "a", 2)))?, 1);
            let meaning = words.read(tx, (b"de", "a", 7), |row| row.meaning)?;
            assert_eq!(meaning, Some(7));
            let mut ranks = Vec::new();
            words.index(tx, Word::BY_RANK).prefix(true).each(|row| {
                ranks.push(row.rank);
                ControlFlow::Continue(())
            })?;
            assert_eq!(ranks, [None, Some(-1.0), Some(-0.0), Some(0.0)]);
            Ok::<_, Error>(())
        })
        .unwrap();
    let local = String::from("borrowed");
    let row = Word { word: &local, note: Some(local.as_bytes()), ..word(b"de", "", 1, None) };
    session
        .execute(|tx| {
            words.insert(tx, &row)?;
            assert!(words.delete(tx, (b"de", &*local, 1))?);
            words.insert(tx, &row)
        })
        .unwrap();
    session.execute(|tx| tables.check(tx)).unwrap();
}

/// Rows above a piece's size have pieces, and their index entries stay short.
#[test]
fn a_large_row_is_spread_and_found_by_its_indexes() {
    let world = World::new();
    let database = world.open();
    let builder = Tables::builder().table_of::<Player>().piece_bytes(1000);
    let tables = builder.open(&database).unwrap();
    let players: TypedTable<Player> = tables.table_of().unwrap();
    let mut session = database.session().unwrap();
    let large = Player { picture: vec![3; 2 << 20], ..player(1, Some("a")) };
    session.execute(|tx| players.insert(tx, &large)).unwrap();
    let mut snapshot = database.long_snapshot().unwrap();
    let scan = players.index(&mut snapshot, Player::BY_MAIL).equal(Some("a"));
    let found: Vec<_> = scan.rows().unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(found, [large]);
    assert!(tables.check(&mut snapshot).unwrap().pieces > 2000);
    session.execute(|tx| players.modify(tx, 1, |row| row.picture.clear())).unwrap();
    assert_eq!(session.execute(|tx| tables.check(tx)).unwrap().pieces, 0);
    let too_large = Player { picture: vec![3; 16 << 20], ..player(1, None) };
    let refused = session.execute(|tx| players.upsert(tx, &too_large)).unwrap_err();
    assert!(matches!(refused, Error::Row(_)), "{refused}");
}

/// An operation that fails after some of its writes takes them back.
#[test]
fn an_operation_that_fails_has_written_nothing() {
    let mut world = World::new();
    world.memory_bytes = 200_000;
    let database = world.open();
    let (tables, players) = open(&database);
    let mut session = database.session().unwrap();
    let first = Player { picture: vec![0; 100_000], ..player(1, Some("a")) };
    let second = Player { picture: vec![0; 120_000], ..player(2, Some("b")) };
    session
        .execute(|tx| {
            players.insert(tx, &first)?;
            let refused = players.insert(tx, &second).unwrap_err();
            let below = refused.source().expect("the database's error").to_string();
            assert!(matches!(refused, Error::Database(_)), "{refused}");
            assert!(below.contains("memory budget"), "{below}");
            let change = |row: &mut Player| {
                row.picture.resize(220_000, 1);
                row.mail = Some("c".into());
            };
            assert!(players.modify(tx, 1, change).is_err());
            assert_eq!(players.get(tx, 1)?, Some(first.clone()));
            // The mails of refused rows are free.
            players.insert(tx, &player(3, Some("b")))?;
            players.insert(tx, &player(4, Some("c")))
        })
        .unwrap();
    let checked = session.execute(|tx| tables.check(tx)).unwrap();
    assert_eq!((checked.rows, checked.entries), (3, 6));
}
