//! Definition 1 of the report on Taurus (2016): a transaction is committable if its record is
//! durable, and all rows that it read were written by committable transactions. Promise: all
//! committable transactions, and no others, are acknowledged, and recovered after a power cut. So a
//! transaction may be acknowledged before the transactions whose rows it overwrites blindly, and
//! survive them.

use crate::common::{definition, directory};
use definition::{Form, Op, Program, World};
use hyades::inspect::Inspector;
use hyades::{Concurrency, RecordKind};
use hyades_schemes::{TAURUS_2016, all_controls};
use hyades_wal::LogOptions;
use std::path::Path;

/// The pairs and kinds of records.
fn forms() -> Vec<Form> {
    let mut all = Vec::new();
    for concurrency in all_controls() {
        let takes = concurrency.takes_commands_under(TAURUS_2016);
        for record in [RecordKind::Data, RecordKind::Command, RecordKind::Adaptive] {
            let fits = record == RecordKind::Data || takes;
            if concurrency.runs_under(TAURUS_2016) && fits {
                all.push(Form { concurrency, record, streams: 4, compresses: false, anchor: 0 });
            }
        }
    }
    assert_eq!(all.len(), 12, "four controls, three kinds of records");
    all
}

const X: i64 = 0;
const Y: i64 = 1;
const Z: i64 = 2;

/// Figure 1 of the report, in its serial order: T3 reads Y and writes X, T1 overwrites Y, T2 reads
/// Y and writes Z, T4 overwrites X. Each is alone in a stream.
fn figure_1() -> [Program; 4] {
    [
        Program { number: 3, ops: vec![Op::Read(Y), Op::Put(X)] },
        Program { number: 1, ops: vec![Op::Put(Y)] },
        Program { number: 2, ops: vec![Op::Read(Y), Op::Put(Z)] },
        Program { number: 4, ops: vec![Op::Put(X)] },
    ]
}

/// Whichever of the four streams are durable: T4 needs T3 no more than T3 needs T1, and T2 needs
/// T1.
#[test]
fn figure_1_is_acknowledged_and_recovered_by_definition_1() {
    for form in forms() {
        for durable in 0..16u32 {
            let dir = directory();
            let mut world = World::new(dir.path(), form);
            for (stream, program) in figure_1().into_iter().enumerate() {
                world.run(stream, program);
            }
            (0..4).filter(|stream| durable >> stream & 1 == 1).for_each(|s| world.flush(s));
            let [t3, t1, t2, t4] = world.committable()[..] else { panic!("there are four") };
            let is_durable = |stream: u32| durable >> stream & 1 == 1;
            assert_eq!([t3, t1, t4], [0, 1, 3].map(is_durable), "they have read nothing of it");
            assert_eq!(t2, is_durable(1) && is_durable(2));
            world.crash_and_check(&format!("{form:?} {durable:04b}"));
        }
    }
}

/// T1 and T3 survive, and T2, which overwrote T1's row before T3 did, is lost; beside them a reader
/// of T1's row. Nothing orders T1 and T3 but the version of the row.
#[test]
fn a_lost_middle_writer_leaves_the_last_one() {
    for form in forms() {
        for durable in 0..16u32 {
            let dir = directory();
            let mut world = World::new(dir.path(), form);
            world.run(0, Program { number: 1, ops: vec![Op::Put(X)] });
            world.run(3, Program { number: 4, ops: vec![Op::Read(X), Op::Put(Z)] });
            world.run(1, Program { number: 2, ops: vec![Op::Put(X), Op::Put(Y)] });
            world.run(2, Program { number: 3, ops: vec![Op::Put(X)] });
            world.run(3, Program { number: 5, ops: vec![Op::Read(Y), Op::Update(X)] });
            (0..4).filter(|stream| durable >> stream & 1 == 1).for_each(|s| world.flush(s));
            world.crash_and_check(&format!("{form:?} {durable:04b}"));
        }
    }
}

/// A row read, or changed in a column, and then replaced is a row that was read.
#[test]
fn what_was_read_before_it_is_overwritten_is_needed() {
    let bodies = [
        vec![Op::Read(X), Op::Put(X)],
        vec![Op::Update(X)],
        vec![Op::Update(X), Op::Put(X)],
        vec![Op::Upsert(X)],
        vec![Op::Upsert(X), Op::Put(X)],
        vec![Op::Undone(X), Op::Read(X), Op::Put(X)],
    ];
    for form in forms() {
        for ops in &bodies {
            let dir = directory();
            let mut world = World::new(dir.path(), form);
            world.run(0, Program { number: 1, ops: vec![Op::Put(X)] });
            world.run(1, Program { number: 2, ops: ops.clone() });
            world.flush(1);
            assert_eq!(world.committable(), [false, false]);
            world.crash_and_check(&format!("{form:?} {ops:?}"));
        }
        // The transaction reads its own write.
        for ops in [
            vec![Op::Put(X), Op::Read(X)],
            vec![Op::Put(X), Op::Update(X)],
            vec![Op::Put(X), Op::Upsert(X), Op::Put(X)],
        ] {
            let dir = directory();
            let mut world = World::new(dir.path(), form);
            world.run(0, Program { number: 1, ops: vec![Op::Put(X)] });
            world.run(1, Program { number: 2, ops: ops.clone() });
            world.flush(1);
            assert_eq!(world.committable(), [false, true]);
            world.crash_and_check(&format!("{form:?} {ops:?}"));
        }
    }
}

/// Random transactions on a few rows, whose streams are flushed at random.
#[test]
fn all_and_only_committable_transactions_are_acknowledged_and_recovered() {
    for (at, form) in (0..).zip(forms()) {
        for seed in 0..40u64 {
            let mut rng = fastrand::Rng::with_seed(880_000 + 1000 * at + seed);
            let form = Form {
                streams: rng.usize(1..5),
                compresses: rng.u32(0..3) == 0,
                anchor: [0, 200][rng.usize(0..2)],
                ..form
            };
            let dir = directory();
            let mut world = World::new(dir.path(), form);
            for number in 1..rng.i64(4..60) {
                let ops = (0..rng.usize(1..5)).map(|_| Op::random(&mut rng)).collect();
                world.run(rng.usize(0..form.streams), Program { number, ops });
                if rng.u32(0..6) == 0 {
                    world.flush(rng.usize(0..form.streams));
                }
            }
            world.crash_and_check(&format!("{form:?} seed {seed}"));
        }
    }
}

/// A record of the first incarnation: its stream and end, and the records that it names as read and
/// as overwritten, by stream and end.
struct Named {
    place: (usize, u64),
    read: Vec<(usize, u64)>,
    overwritten: Vec<(usize, u64)>,
}

/// The records of the first incarnation of a log of two streams, by stream.
fn named(dir: &Path) -> [Vec<Named>; 2] {
    let recovering = hyades_wal::open_read(LogOptions::new(vec![dir.to_owned()], 1)).unwrap();
    let manifest = recovering.manifest();
    let first = &manifest.incarnations[0];
    let inspector = Inspector::new(manifest).unwrap();
    let mut out = [Vec::new(), Vec::new()];
    for mut reader in recovering.readers().into_iter().filter(|r| r.incarnation == first.number) {
        let lane = first.dims.iter().position(|dim| dim.stream == reader.stream).unwrap();
        let mut inspect = inspector.stream(first, reader.stream.0);
        while let Some(chunk) = reader.next_chunk().unwrap() {
            inspect.enter(&chunk);
            for frame in chunk.frames() {
                let Some(record) = inspect.read(&frame).unwrap() else { continue };
                let all = record.predecessors();
                let list = |overwritten: bool| {
                    let own = all.iter().filter(|listed| listed.overwritten == overwritten);
                    own.map(|listed| (listed.component, listed.lsn)).collect()
                };
                let (read, overwritten) = (list(false), list(true));
                out[lane].push(Named { place: (lane, frame.end), read, overwritten });
            }
        }
    }
    out
}

/// The report's lists: a data record names the writers of all rows that it overwrites, read or not,
/// also those that anchors cover.
#[test]
fn data_records_name_what_they_overwrite() {
    for anchor in [0, 1] {
        let dir = directory();
        let (concurrency, record) = (Concurrency::Silo, RecordKind::Data);
        let form = Form { concurrency, record, streams: 2, compresses: false, anchor };
        let mut world = World::new(dir.path(), form);
        world.run(0, Program { number: 1, ops: vec![Op::Put(X)] });
        world.run(1, Program { number: 2, ops: vec![Op::Put(X)] });
        world.run(0, Program { number: 3, ops: vec![Op::Update(X)] });
        world.run(1, Program { number: 4, ops: vec![Op::Read(X), Op::Put(Y)] });
        world.flush(0);
        world.flush(1);
        world.crash_and_check("");
        let [even, odd] = named(dir.path());
        let ([fill_x, one, three], [fill_y, two, four]) = (&even[..], &odd[..]) else {
            panic!("{} and {} records, not three each", even.len(), odd.len())
        };
        assert_eq!((&one.read[..], &one.overwritten[..]), (&[][..], &[fill_x.place][..]));
        assert_eq!((&two.read[..], &two.overwritten[..]), (&[][..], &[one.place][..]));
        // Read as well: the writer is needed, and overwritten.
        assert_eq!((&three.read[..], &three.overwritten[..]), (&[two.place][..], &[two.place][..]));
        assert_eq!(
            (&four.read[..], &four.overwritten[..]),
            (&[three.place][..], &[fill_y.place][..])
        );
    }
}
