//! Power cuts of the log's disk while several sessions write rows, index entries and long values:
//! acknowledged transactions stay, none is there in part.
#![allow(missing_docs)]

mod common;

use common::{Player, World};
use hyades_deuteronomy::{Database, Session};
use hyades_platform::device::{SimulatedDevice, SimulatedDisk, SimulatedFault};
use hyades_tables::{Error, Keyspace, Tables, TypedTable};
use std::sync::Arc;

const SESSIONS: u32 = 3;

/// The file of a session after its transaction `n`; None if deleted.
fn file(n: i64) -> Option<Vec<u8>> {
    (n % 5 != 4).then(|| vec![n as u8; (n * 977 % 9000) as usize])
}

fn player(session: u32, n: i64) -> Player {
    let (group, mail) = (format!("g{}", n % 3), Some(format!("{session}-{}", n % 7)));
    Player { id: session, group, score: n, mail, picture: vec![n as u8; (n % 40) as usize * 50] }
}

#[derive(Clone)]
struct Handles {
    players: TypedTable<Player>,
    files: Keyspace,
}

impl Handles {
    /// Transaction `n` of a session: a row, and a file.
    fn write(&self, session: &mut Session, own: u32, n: i64) -> Result<(), Error> {
        session.execute(|tx| {
            self.players.upsert(tx, &player(own, n))?;
            match file(n) {
                Some(file) => self.files.put(tx, &own.to_be_bytes(), &file),
                None => self.files.delete(tx, &own.to_be_bytes()),
            }
        })
    }

    /// The last transaction of a session, by its row. The file is of the same transaction.
    fn last(&self, session: &mut Session, own: u32) -> i64 {
        let found = session.execute(|tx| {
            let row = self.players.get(tx, own)?;
            Ok::<_, Error>((row, self.files.get(tx, &own.to_be_bytes())?))
        });
        let (row, found) = found.unwrap();
        let Some(row) = row else {
            assert_eq!(found, None);
            return -1;
        };
        assert_eq!(row, player(own, row.score));
        assert_eq!(found.as_deref(), file(row.score).as_deref());
        row.score
    }
}

fn open(database: &Database) -> Result<(Tables, Handles), Error> {
    let builder = Tables::builder().table_of::<Player>().keyspace("files").piece_bytes(1000);
    let tables = builder.open(database)?;
    let (players, files) = (tables.table_of()?, tables.keyspace("files")?);
    Ok((tables, Handles { players, files }))
}

/// Writes on all sessions, behind their last transactions, until the disk stops. Returns, for each
/// session, the last acknowledged transaction and the last begun.
fn write_until_the_end(
    database: &Database,
    handles: &Handles,
    last: &[i64],
    (device, changes): (&SimulatedDevice, u64),
) -> Vec<(i64, i64)> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(last)
            .map(|(own, &last)| {
                let (mut session, handles) = (database.session().unwrap(), handles.clone());
                scope.spawn(move || {
                    let mut acknowledged = last;
                    for n in acknowledged + 1.. {
                        if handles.write(&mut session, own, n).is_err() {
                            return (acknowledged, n);
                        }
                        acknowledged = n;
                    }
                    unreachable!("the disk stops")
                })
            })
            .collect();
        device.arm(SimulatedFault::Stop(changes));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn acknowledged_transactions_survive_power_cuts_and_none_is_there_in_part() {
    for seed in 0..6 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut world, disk) = (World::new(), SimulatedDisk::new());
        let mut states = vec![(-1, -1); SESSIONS as usize];
        for _ in 0..6 {
            let device = disk.process(rng.u64(..));
            world.device = Arc::new(device.clone());
            let database = world.open();
            let (tables, handles) = open(&database).unwrap();
            let mut session = database.session().unwrap();
            session.execute(|tx| tables.check(tx)).unwrap();
            let last: Vec<_> = (0..SESSIONS).map(|own| handles.last(&mut session, own)).collect();
            for (last, (acknowledged, begun)) in last.iter().zip(&states) {
                let is_one_of_both = (*acknowledged..=*begun).contains(last);
                assert!(is_one_of_both, "{last} of {acknowledged} and {begun}, seed {seed}");
            }
            drop(session);
            let stop = (&device, rng.u64(5..200));
            states = write_until_the_end(&database, &handles, &last, stop);
            drop((handles, tables));
            world.crash(database, &mut rng);
            disk.power_cut(rng.u64(..));
        }
    }
}
