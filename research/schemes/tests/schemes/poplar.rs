//! Poplar's orders of acknowledgements and numbers, and the state after a crash: the scenarios (a)
//! to (h) of figure 1 of its paper, step by step. C is the acknowledgement, L the number of a
//! transaction.

use crate::common::by_hand::*;
use hyades::{Abort, Index, Transaction};
use hyades_schemes::POPLAR;
use std::path::Path;
use std::time::Duration;

/// The numbers of all records, ordered by stream and position, and whether each record has read:
/// docs/format.md, "Numbers".
fn numbers(dir: &Path) -> Vec<(u64, bool)> {
    let mut numbers = Vec::new();
    let options = hyades_wal::LogOptions::new(vec![dir.to_owned()], 4);
    for mut reader in hyades_wal::open(options).unwrap().readers() {
        while let Some(chunk) = reader.next_chunk().unwrap() {
            for frame in chunk.frames().filter(|f| f.kind == hyades_wal::FrameKind::Record) {
                // Flags (only the flag for the start of an epoch may be set), two varints, 8 bytes
                // for the start of the epoch if flagged, the stamp.
                let mut rest = &frame.payload[1..];
                let varint = |rest: &mut &[u8]| {
                    let len = rest.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
                    *rest = &rest[len..];
                };
                varint(&mut rest);
                varint(&mut rest);
                match frame.payload[0] {
                    0 => {}
                    32 => rest = &rest[8..],
                    flags => panic!("flags {flags}"),
                }
                let stamp = u64::from_le_bytes(rest[..8].try_into().unwrap());
                numbers.push((stamp >> 1, stamp & 1 == 1));
            }
        }
    }
    numbers
}

/// The numbers of the last records of streams 0 and 1.
fn last_two(crashed: &CrashedDb, lens: [usize; 2]) -> [u64; 2] {
    let all = numbers(crashed.dir.path());
    assert_eq!(all.len(), lens[0] + lens[1]);
    [all[lens[0] - 1].0, all[all.len() - 1].0]
}

/// RAW, C1 before C2, L1 below L2: each is acknowledged in turn.
#[test]
fn scenario_a_the_reader_follows_its_writer() {
    for concurrency in BOTH {
        for both in [false, true] {
            let mut world = SteppedDb::new(POPLAR, concurrency, 2);
            let (t1, t2) = (world.t1(0), world.t2(1));
            world.flush(0);
            assert!(world.is_answered(t1) && !world.is_answered(t2));
            if both {
                assert!(world.answered(t2, &[1, 0]));
            }
            let crashed = world.crash();
            if both {
                let [l1, l2] = last_two(&crashed, [2, 2]);
                assert!(l1 < l2);
            }
            assert_eq!(crashed.recovered(), if both { (1, 21, 0) } else { (1, 0, 0) });
        }
    }
}

/// RAW, C1 before C2, L2 below L1: harmless according to the paper. Impossible here: the reader's
/// number is above its writer's even if the numbers of its stream are low.
#[test]
fn scenario_b_the_reader_is_numbered_above_a_high_writer() {
    for concurrency in BOTH {
        let mut world = SteppedDb::new(POPLAR, concurrency, 2);
        world.make_high(0);
        let (t1, t2) = (world.t1(0), world.t2(1));
        assert!(world.answered(t1, &[0]) && !world.is_answered(t2));
        assert!(world.answered(t2, &[1, 0]));
        let crashed = world.crash();
        let [l1, l2] = last_two(&crashed, [52, 2]);
        assert!(l1 > 50 && l2 > l1);
        assert_eq!(crashed.recovered(), (1, 21, 0));
    }
}

/// RAW, C2 before C1: forbidden. The reader is durable, its writer is not: the reader is neither
/// acknowledged nor recovered.
#[test]
fn scenario_c_a_reader_without_its_writer_is_dead() {
    for concurrency in BOTH {
        let mut world = SteppedDb::new(POPLAR, concurrency, 2);
        let (t1, t2) = (world.t1(0), world.t2(1));
        assert!(!world.answered(t2, &[1]));
        assert!(!world.is_answered(t1));
        assert_eq!(world.crash().recovered(), (0, 0, 1));
    }
}

/// WAW, C2 before C3, L2 below L3.
#[test]
fn scenario_d_the_later_writer_wins() {
    for concurrency in BOTH {
        for both in [false, true] {
            let mut world = SteppedDb::new(POPLAR, concurrency, 2);
            let t2 = world.t2(0);
            assert!(world.answered(t2, &[0, 1]));
            let t3 = world.t3(1);
            assert!(!world.is_answered(t3));
            if both {
                assert!(world.answered(t3, &[1]));
            }
            assert_eq!(world.crash().recovered(), if both { (0, 3, 0) } else { (0, 20, 0) });
        }
    }
}

/// WAW, L3 below L2: forbidden. Impossible, however high the numbers of the first writer's stream
/// are.
#[test]
fn scenario_e_the_later_writer_is_numbered_above_a_high_first() {
    for concurrency in BOTH {
        let mut world = SteppedDb::new(POPLAR, concurrency, 2);
        world.make_high(0);
        let (t2, t3) = (world.t2(0), world.t3(1));
        assert!(world.answered(t2, &[0, 1]) && world.answered(t3, &[1]));
        let crashed = world.crash();
        let [l2, l3] = last_two(&crashed, [52, 2]);
        assert!(l2 > 50 && l3 > l2);
        assert_eq!(crashed.recovered(), (0, 3, 0));
    }
}

/// WAW, C3 before C2, L2 below L3: a blind writer does not wait for the overwritten writer.
#[test]
fn scenario_f_a_blind_writer_is_answered_before_the_one_it_overwrites() {
    for concurrency in BOTH {
        for both in [false, true] {
            let mut world = SteppedDb::new(POPLAR, concurrency, 2);
            let (t2, t3) = (world.t2(0), world.t3(1));
            assert!(world.answered(t3, &[1]) && !world.is_answered(t2));
            if both {
                assert!(world.answered(t2, &[0, 1]));
            }
            assert_eq!(world.crash().recovered(), (0, 3, 0));
        }
    }
}

/// WAR, C2 before C4, L2 below L4.
#[test]
fn scenario_g_the_overwriter_follows_the_reader() {
    for concurrency in BOTH {
        for both in [false, true] {
            let mut world = SteppedDb::new(POPLAR, concurrency, 2);
            let t2 = world.t2(0);
            assert!(world.answered(t2, &[0, 1]));
            let t4 = world.t4(1);
            assert!(!world.is_answered(t4));
            if both {
                assert!(world.answered(t4, &[1]));
            }
            assert_eq!(world.crash().recovered(), if both { (4, 20, 0) } else { (0, 20, 0) });
        }
    }
}

/// WAR, C4 before C2, L4 below L2: allowed, and possible. Therefore numbers do not order commands.
#[test]
fn scenario_h_the_overwriter_is_numbered_and_answered_before_the_reader() {
    for concurrency in BOTH {
        for both in [false, true] {
            // Numbers of a later epoch are higher.
            let epoch = Duration::from_secs(60);
            let mut world = SteppedDb::with_epoch(POPLAR, concurrency, 2, epoch);
            world.make_high(0);
            let (t2, t4) = (world.t2(0), world.t4(1));
            assert!(world.answered(t4, &[1]) && !world.is_answered(t2));
            if both {
                assert!(world.answered(t2, &[0, 1]));
            }
            let crashed = world.crash();
            if both {
                let [l2, l4] = last_two(&crashed, [52, 2]);
                assert!(l4 < l2);
            }
            assert_eq!(crashed.recovered(), if both { (4, 20, 0) } else { (4, 0, 0) });
        }
    }
}

/// Stream 2 states no watermark, so transactions that have read are dead. The later blind writer is
/// live with its whole row, and the following update is dead again.
#[test]
fn a_blind_row_outlives_the_dead_writer_before_and_after_it() {
    for concurrency in BOTH {
        let mut world = SteppedDb::new(POPLAR, concurrency, 3);
        let t1 = world.t1(0);
        assert!(world.answered(t1, &[0]));
        let change = |n: i64| move |tx: &Transaction<'_>| tx.update(ROWS, X, &[N.set(n)]).map(drop);
        let middle = world.run(0, change(2));
        let blind = world.run(1, |tx| put(tx, X, 3));
        let after = world.run(0, change(5));
        assert!(!world.answered(middle, &[0, 1]) && !world.answered(after, &[0, 1]));
        assert!(world.is_answered(blind));
        assert_eq!(world.crash().recovered(), (3, 0, 2));
    }
}

#[test]
fn the_reader_of_a_missing_row_waits_for_its_deletion() {
    for concurrency in BOTH {
        assert!(a_missing_row_depends_on_its_deletion(concurrency), "{concurrency:?}");
    }
}

/// Only puts into tables without secondary indexes are blind. All other operations make a
/// transaction wait for the common mark, and its record states a read.
#[test]
fn everything_but_a_blind_put_counts_as_having_read() {
    type Body = fn(&Transaction<'_>) -> Result<(), Abort>;
    let blind: [Body; 4] = [
        |tx| put(tx, X, 1),
        |tx| put(tx, 50, 1),
        |tx| tx.overwrite(LOOSE, &[1i64.into(), 1i64.into()]),
        |tx| {
            let savepoint = tx.savepoint();
            put(tx, X, 1)?;
            tx.rollback_to(savepoint)?;
            put(tx, Y, tx.now_us())
        },
    ];
    let reads: [Body; 9] = [
        |tx| tx.upsert(ROWS, &[X.into(), 1i64.into()]).map(drop),
        |tx| tx.insert(ROWS, &[60i64.into(), 1i64.into()]).map(drop),
        |tx| tx.update(ROWS, Y, &[N.set(5i64)]).map(drop),
        |tx| tx.delete(ROWS, Y).map(drop),
        |tx| tx.overwrite(INDEXED, &[X.into(), 1i64.into()]),
        |tx| read(tx, X).and_then(|_| put(tx, X, 1)),
        |tx| read(tx, 999).and_then(|_| put(tx, X, 1)),
        |tx| tx.scan(ROWS).limit(1).rows().and_then(|_| put(tx, X, 1)),
        |tx| tx.scan_index(INDEXED, Index(0)).rows().and_then(|_| put(tx, X, 1)),
    ];
    for concurrency in BOTH {
        for (bodies, expected) in [(&blind[..], false), (&reads[..], true)] {
            for (at, body) in bodies.iter().enumerate() {
                let mut world = SteppedDb::new(POPLAR, concurrency, 2);
                let prepared = world.run(0, |tx| put(tx, X, 1).and_then(|()| put(tx, Y, 1)));
                world.db.log().unwrap().flush().unwrap();
                assert!(world.is_answered(prepared));
                let ticket = world.run(0, body);
                assert_eq!(!world.answered(ticket, &[0]), expected, "{expected} {at}");
                let crashed = world.crash();
                assert_eq!(numbers(crashed.dir.path())[2].1, expected, "{expected} {at}");
                assert_eq!(crashed.recovered().2, u64::from(expected), "{expected} {at}");
            }
        }
    }
}
