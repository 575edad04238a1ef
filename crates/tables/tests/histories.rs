//! Random histories against ordered maps, with crashes: tables, indexes and keyspaces of values of
//! any size.
#![allow(missing_docs)]

mod common;

use common::{Player, World};
use hyades_deuteronomy::{Database, Session, Transaction};
use hyades_tables::{Error, Keyspace, Tables, TypedTable};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    players: BTreeMap<u32, Player>,
    files: BTreeMap<Vec<u8>, Vec<u8>>,
    small: BTreeMap<Vec<u8>, Vec<u8>>,
}

struct Handles {
    tables: Tables,
    players: TypedTable<Player>,
    files: Keyspace,
    small: Keyspace,
}

fn open(database: &Database, piece_bytes: usize) -> Handles {
    let builder = Tables::builder().keyspace("files").small_keyspace("small");
    let builder = builder.table_of::<Player>().piece_bytes(piece_bytes);
    let tables = builder.open(database).unwrap();
    Handles {
        players: tables.table_of().unwrap(),
        files: tables.keyspace("files").unwrap(),
        small: tables.keyspace("small").unwrap(),
        tables,
    }
}

/// A key of few bytes of few kinds, so that keys meet.
fn key(rng: &mut fastrand::Rng) -> Vec<u8> {
    (0..rng.usize(0..4)).map(|_| [0, 1, 127, 128, 255][rng.usize(0..5)]).collect()
}

/// An operation in the transaction and in the model. Expected refusals leave both as they are.
fn operate(
    tx: &mut Transaction<'_>,
    handles: &Handles,
    model: &mut Model,
    rng: &mut fastrand::Rng,
) -> Result<(), Error> {
    let id = rng.u32(0..30);
    match rng.u8(0..9) {
        0..=2 => write_player(tx, handles, model, rng, id)?,
        3 => {
            let deleted = handles.players.delete(tx, id)?;
            assert_eq!(deleted, model.players.remove(&id).is_some());
        }
        4 => {
            let score = rng.i64(-3..3);
            let found = handles.players.update(tx, id, &[Player::SCORE.set(score)])?;
            assert_eq!(found, model.players.contains_key(&id));
            if let Some(player) = model.players.get_mut(&id) {
                player.score = score;
            }
        }
        5 | 6 => {
            let (key, len) = (key(rng), rng.usize(0..3000));
            let value = vec![rng.u8(..); len];
            handles.files.put(tx, &key, &value)?;
            model.files.insert(key, value);
        }
        7 => {
            let key = key(rng);
            handles.files.delete(tx, &key)?;
            model.files.remove(&key);
        }
        _ => {
            let key = key(rng);
            if rng.bool() {
                handles.small.put(tx, &key, b"value")?;
                model.small.insert(key, b"value".to_vec());
            } else {
                handles.small.delete(tx, &key)?;
                model.small.remove(&key);
            }
        }
    }
    Ok(())
}

fn write_player(
    tx: &mut Transaction<'_>,
    handles: &Handles,
    model: &mut Model,
    rng: &mut fastrand::Rng,
    id: u32,
) -> Result<(), Error> {
    let player = Player::random(id, rng);
    let is_taken = |other: &&Player| other.id != id && other.mail == player.mail;
    let is_taken = player.mail.is_some() && model.players.values().find(is_taken).is_some();
    let inserts = rng.bool();
    let written = match inserts {
        true => handles.players.insert(tx, &player),
        false => handles.players.upsert(tx, &player).map(drop),
    };
    match written {
        Err(Error::Exists(_)) => assert!(inserts && model.players.contains_key(&id)),
        Err(Error::Unique { index, .. }) => assert!(is_taken && index == "by_mail"),
        Err(error) => return Err(error),
        Ok(()) => {
            assert!(!is_taken);
            assert!(!inserts || !model.players.contains_key(&id));
            model.players.insert(id, player);
        }
    }
    Ok(())
}

/// Compares everything, read in each way, with the model.
fn compare(database: &Database, session: &mut Session, handles: &Handles, model: &Model) {
    let found = session.execute(|tx| {
        assert_ranges(tx, handles, model)?;
        handles.tables.check(tx)
    });
    assert_eq!(found.unwrap().rows, model.players.len() as u64);
    let mut snapshot = session.snapshot().unwrap();
    let files: BTreeMap<_, _> = handles
        .files
        .scan(&mut snapshot)
        .rows()
        .map(|row| row.map(|(key, value)| (key, value.into_vec())).unwrap())
        .collect();
    assert_eq!(files, model.files);
    drop(snapshot);
    let mut snapshot = database.long_snapshot().unwrap();
    let mut small = BTreeMap::new();
    let each = |key: &[u8], value: &[u8]| {
        small.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    };
    handles.small.scan(&mut snapshot).descending().each(each).unwrap();
    assert_eq!(small, model.small);
    handles.tables.check(&mut snapshot).unwrap();
}

/// Compares scans of the table, by key and by index, with the model.
fn assert_ranges(tx: &mut Transaction<'_>, handles: &Handles, model: &Model) -> Result<(), Error> {
    let players: Vec<_> = handles.players.scan(tx).rows()?.collect::<Result<_, _>>()?;
    assert!(players.iter().eq(model.players.values()));
    let by_group = |group: &str| {
        let mut of_group: Vec<_> =
            model.players.values().filter(|player| player.group == group).collect();
        of_group.sort_by_key(|player| (player.score, player.id));
        of_group
    };
    for group in ["", "a", "a\0b", "b"] {
        let scan = handles.players.index(tx, Player::BY_GROUP_AND_SCORE).prefix(group);
        let found: Vec<_> = scan.rows()?.collect::<Result<_, _>>()?;
        assert!(found.iter().eq(by_group(group)), "{group:?}");
        let scan = handles.players.index(tx, Player::BY_GROUP_AND_SCORE);
        let scan = scan.range((group, -1)..(group, 2)).descending().limit(3);
        let found: Vec<_> = scan.rows()?.collect::<Result<_, _>>()?;
        let wanted = by_group(group).into_iter().rev().filter(|p| (-1..2).contains(&p.score));
        assert!(found.iter().eq(wanted.take(3)), "{group:?}");
    }
    for player in model.players.values() {
        let Some(mail) = &player.mail else { continue };
        let scan = handles.players.index(tx, Player::BY_MAIL).equal(Some(mail));
        let found: Vec<_> = scan.rows()?.collect::<Result<_, _>>()?;
        assert_eq!(found, std::slice::from_ref(player));
    }
    let without = handles.players.index(tx, Player::BY_MAIL).equal(None).rows()?.count();
    assert_eq!(without, model.players.values().filter(|p| p.mail.is_none()).count());
    Ok(())
}

fn history(seed: u64, transactions: usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut world, mut model) = (World::new(), Model::default());
    for _ in 0..4 {
        let database = world.open();
        let handles = open(&database, rng.usize(1..2000));
        let mut session = database.session().unwrap();
        compare(&database, &mut session, &handles, &model);
        for _ in 0..transactions {
            let (operations, commits) = (rng.usize(1..6), rng.u8(0..5) > 0);
            let start = rng.fork();
            let (mut changed, mut rolled_back) = (model.clone(), false);
            let done = session.execute(|tx| {
                let mut rng = start.clone();
                changed = model.clone();
                (0..operations).try_for_each(|_| operate(tx, &handles, &mut changed, &mut rng))?;
                rolled_back = !commits;
                match commits {
                    true => Ok(()),
                    false => Err(Error::NotFound("by the test".into())),
                }
            });
            match done {
                Ok(()) => model = changed,
                Err(Error::NotFound(_)) => assert!(rolled_back),
                Err(error) => panic!("{error}"),
            }
        }
        compare(&database, &mut session, &handles, &model);
        drop((session, handles));
        match rng.bool() {
            true => database.close().unwrap(),
            false => world.crash(database, &mut rng),
        }
    }
}

#[test]
fn tables_and_keyspaces_are_ordered_maps_over_crashes() {
    for seed in 0..12 {
        history(seed, 60);
    }
}

/// Threads move points between players of their own group and of others; the sums stay, and the
/// indexes equal the tables.
#[test]
fn indexes_equal_tables_beside_several_sessions_and_after_a_crash() {
    let (mut world, mut rng) = (World::new(), fastrand::Rng::with_seed(7));
    let database = world.open();
    let handles = open(&database, 1000);
    let mut session = database.session().unwrap();
    let all = session.execute(|tx| {
        (0..40).try_for_each(|id| {
            let mut player = Player::random(id, &mut fastrand::Rng::with_seed(u64::from(id)));
            (player.score, player.mail) = (100, None);
            handles.players.insert(tx, &player)
        })
    });
    all.unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (mut session, players) = (database.session().unwrap(), handles.players.clone());
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                for _ in 0..150 {
                    let (from, to, points) = (rng.u32(0..40), rng.u32(0..40), rng.i64(0..5));
                    let group = ["a", "b", "c"][rng.usize(0..3)].to_owned();
                    let moved = session.submit(|tx| {
                        players.modify(tx, from, |player| player.score -= points)?;
                        players.modify(tx, to, |player| {
                            player.score += points;
                            player.group.clone_from(&group);
                        })
                    });
                    drop(moved.unwrap().1);
                }
            });
        }
    });
    let sum = |players: &TypedTable<Player>, session: &mut Session| {
        session.execute(|tx| {
            let rows = players.index(tx, Player::BY_GROUP_AND_SCORE).rows()?;
            rows.map(|player| Ok(player?.score)).sum::<Result<i64, Error>>()
        })
    };
    assert_eq!(sum(&handles.players, &mut session).unwrap(), 4000);
    session.execute(|tx| handles.tables.check(tx)).unwrap();
    drop((session, handles));
    world.crash(database, &mut rng);
    let database = world.open();
    let handles = open(&database, 50);
    let mut session = database.session().unwrap();
    assert_eq!(sum(&handles.players, &mut session).unwrap(), 4000);
    let checked = handles.tables.check(&mut database.long_snapshot().unwrap()).unwrap();
    assert_eq!((checked.rows, checked.entries), (40, 80));
}
