//! Indexes added to and dropped from tables with rows, in bounded transactions, with crashes in the
//! middle.
#![allow(missing_docs)]

mod common;

use common::{PlainPlayer, Player, World};
use hyades_deuteronomy::{Database, Session};
use hyades_platform::device::{SimulatedDisk, SimulatedFault};
use hyades_tables::{Error, Tables, TypedTable};
use std::sync::Arc;

/// Enough rows for many transactions.
const ROWS: u32 = 6000;

fn open_plain(database: &Database) -> TypedTable<PlainPlayer> {
    let tables = Tables::builder().table_of::<PlainPlayer>().open(database).unwrap();
    tables.table_of().unwrap()
}

fn fill(database: &Database, mail: impl Fn(u32) -> Option<String>) {
    let (players, mut session) = (open_plain(database), database.session().unwrap());
    let mut rng = fastrand::Rng::with_seed(9);
    for start in (0..ROWS).step_by(500) {
        let rows: Vec<_> = (start..start + 500)
            .map(|id| Player {
                mail: mail(id),
                picture: Vec::new(),
                ..Player::random(id, &mut rng)
            })
            .collect();
        let insert =
            session.execute(|tx| rows.iter().try_for_each(|row| players.insert(tx, &row.plain())));
        insert.unwrap();
    }
}

/// The numbers of rows under keys of an index's progress, and of all index entries, as they stand.
fn progress(session: &mut Session) -> (usize, usize) {
    let count = |session: &mut Session, from: &[u8], to: &[u8]| {
        use std::ops::Bound::{Excluded, Included};
        let rows = session.execute(|tx| tx.scan(Included(from), Excluded(to), usize::MAX));
        rows.unwrap().len()
    };
    // Table `player` has number 2, and later numbers are those of indexes.
    (count(session, b"\0f", b"\0g"), count(session, b"\x03", b"\x7f"))
}

fn open_indexed(database: &Database) -> Result<(Tables, TypedTable<Player>), Error> {
    let tables = Tables::builder().table_of::<Player>().open(database)?;
    let players = tables.table_of()?;
    Ok((tables, players))
}

#[test]
fn an_added_index_is_filled_and_a_dropped_one_removed() {
    let world = World::new();
    let database = world.open();
    fill(&database, |id| (id % 3 > 0).then(|| format!("m{id}")));
    let (tables, players) = open_indexed(&database).unwrap();
    assert_eq!(tables.changes().len(), 2, "{:?}", tables.changes());
    let mut snapshot = database.long_snapshot().unwrap();
    let checked = tables.check(&mut snapshot).unwrap();
    assert_eq!((checked.rows, checked.entries), (u64::from(ROWS), 2 * u64::from(ROWS)));
    let scan = players.index(&mut snapshot, Player::BY_MAIL).equal(Some("m4001"));
    assert_eq!(scan.rows().unwrap().map(|row| row.unwrap().id).collect::<Vec<_>>(), [4001]);
    open_plain(&database);
    assert_eq!(progress(&mut database.session().unwrap()), (0, 0));
    // Again, with other numbers.
    let (tables, _) = open_indexed(&database).unwrap();
    tables.check(&mut database.long_snapshot().unwrap()).unwrap();
}

/// Power cuts in the middle of filling and of removal: the next opening goes on.
#[test]
fn filling_and_removal_go_on_after_power_cuts() {
    let mut rng = fastrand::Rng::with_seed(11);
    let (mut world, disk) = (World::new(), SimulatedDisk::new());
    world.device = Arc::new(disk.process(1));
    let database = world.open();
    fill(&database, |id| Some(format!("m{id}")));
    world.crash(database, &mut rng);
    let mut interrupted = 0;
    for round in 0..6 {
        let device = disk.process(rng.u64(..));
        world.device = Arc::new(device.clone());
        let database = world.open();
        let adds = round % 2 == 0;
        device.arm(SimulatedFault::Stop(rng.u64(0..25)));
        let opened = match adds {
            true => open_indexed(&database).map(drop),
            false => Tables::builder().table_of::<PlainPlayer>().open(&database).map(drop),
        };
        interrupted += usize::from(opened.is_err());
        world.crash(database, &mut rng);
        disk.power_cut(rng.u64(..));
        world.device = Arc::new(disk.process(rng.u64(..)));
        let database = world.open();
        if adds {
            let (tables, _) = open_indexed(&database).unwrap();
            let mut session = database.session().unwrap();
            let checked = session.execute(|tx| tables.check(tx)).unwrap();
            assert_eq!((checked.rows, checked.entries), (u64::from(ROWS), 2 * u64::from(ROWS)));
        } else {
            open_plain(&database);
            assert_eq!(progress(&mut database.session().unwrap()), (0, 0));
        }
        world.crash(database, &mut rng);
    }
    assert!(interrupted > 2, "{interrupted} openings were interrupted");
}

/// Two rows of the same key: the opening is refused, the old declaration opens, and once the rows
/// differ the new one does.
#[test]
fn a_unique_index_over_rows_of_the_same_key_is_refused() {
    let world = World::new();
    let database = world.open();
    let twice = ROWS - 7;
    fill(&database, |id| Some(format!("m{}", if id == twice { 5 } else { id })));
    for _ in 0..2 {
        let error = open_indexed(&database).map(drop).unwrap_err();
        assert!(matches!(&error, Error::Unique { index, .. } if index == "by_mail"), "{error}");
        // Filled up to a row before the second one.
        let (unfilled, entries) = progress(&mut database.session().unwrap());
        assert!(unfilled == 1 && entries > 0, "{unfilled} {entries}");
    }
    let players = open_plain(&database);
    let mut session = database.session().unwrap();
    assert_eq!(progress(&mut session), (0, 0));
    session.execute(|tx| players.modify(tx, twice, |row| row.mail = Some("other".into()))).unwrap();
    let (tables, _) = open_indexed(&database).unwrap();
    session.execute(|tx| tables.check(tx)).unwrap();
}

/// Two openings fill the same index at the same time, and writers of before are refused or done.
#[test]
fn openings_fill_an_index_together() {
    let world = World::new();
    let database = world.open();
    fill(&database, |id| Some(format!("m{id}")));
    let plain = open_plain(&database);
    std::thread::scope(|scope| {
        let openings = [(); 2].map(|()| scope.spawn(|| open_indexed(&database).map(drop)));
        let mut session = database.session().unwrap();
        for id in 0..2000 {
            let done = session.execute(|tx| plain.delete(tx, id));
            assert!(matches!(done, Ok(true) | Err(Error::Changed(_))), "{done:?}");
        }
        openings.into_iter().for_each(|opening| opening.join().unwrap().unwrap());
    });
    let (tables, _) = open_indexed(&database).unwrap();
    assert!(tables.changes().is_empty());
    let mut session = database.session().unwrap();
    session.execute(|tx| tables.check(tx)).unwrap();
}

/// The transactions of a filling fit into little memory.
#[test]
fn an_index_is_filled_within_a_small_budget() {
    let mut world = World::new();
    let database = world.open();
    fill(&database, |id| Some(format!("m{id}")));
    database.close().unwrap();
    world.memory_bytes = 64 << 10;
    let database = world.open();
    let (tables, _) = open_indexed(&database).unwrap();
    let mut snapshot = database.long_snapshot().unwrap();
    assert_eq!(tables.check(&mut snapshot).unwrap().rows, u64::from(ROWS));
}
