//! Tables over redb, with data larger than the budget, over crashes and a backup.
#![cfg(feature = "redb")]
#![allow(missing_docs)]

mod common;

use common::Player;
use hyades_deuteronomy::{Database, LogOptions, Options, RedbData};
use hyades_tables::{Error, Tables, TypedTable};
use std::path::Path;
use std::sync::Arc;

fn open(dir: &Path) -> (Database, Tables) {
    let mut options = Options::new(LogOptions::new(vec![dir.to_owned()], 2));
    options.memory_bytes = 1 << 20;
    let data = RedbData::open(&dir.join("data.redb"), 1 << 20).unwrap();
    let database = Database::open(options, Arc::new(data)).unwrap();
    let builder = Tables::builder().table_of::<Player>().keyspace("files");
    let tables = builder.piece_bytes(20_000).open(&database).unwrap();
    (database, tables)
}

#[test]
fn tables_larger_than_memory_survive_crashes() {
    let dir = tempfile::tempdir().unwrap();
    let (database, tables) = open(dir.path());
    let players: TypedTable<Player> = tables.table_of().unwrap();
    let files = tables.keyspace("files").unwrap();
    let (mut session, mut tickets) = (database.session().unwrap(), Vec::new());
    for id in 0..400u32 {
        let mut row = Player::random(id, &mut fastrand::Rng::with_seed(u64::from(id)));
        (row.mail, row.picture) = (Some(format!("m{id}")), vec![id as u8; 10_000]);
        let written = session.submit(|tx| {
            players.insert(tx, &row)?;
            match id % 40 {
                0 => files.put(tx, &id.to_be_bytes(), &vec![id as u8; 100_000]),
                _ => Ok(()),
            }
        });
        tickets.push(written.unwrap().1);
    }
    session.execute(|tx| players.delete(tx, 13)).unwrap();
    tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
    // Without a close: as in a crash.
    drop((session, tables, players, files, database));

    let (database, tables) = open(dir.path());
    let mut snapshot = database.long_snapshot().unwrap();
    let checked = tables.check(&mut snapshot).unwrap();
    assert_eq!((checked.rows, checked.entries, checked.pieces), (399, 798, 50));
    let players: TypedTable<Player> = tables.table_of().unwrap();
    let mut session = database.session().unwrap();
    let groups = session.execute(|tx| {
        let rows = players.index(tx, Player::BY_GROUP_AND_SCORE).prefix("a").rows()?;
        rows.map(|row| Ok(row?.picture.len())).sum::<Result<usize, Error>>()
    });
    assert!(groups.unwrap() > 500_000);
    drop((session, snapshot));
    database.close().unwrap();
}
