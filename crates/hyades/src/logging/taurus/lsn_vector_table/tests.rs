use super::reference::{LOW, TICKS};
use super::*;
use hyades_wal::lsn_vector::join;

/// For rows with slots, which never need the reserved ends.
fn table_of(lanes: usize) -> LsnVectorTable {
    LsnVectorTable::new(lanes, 1 << 30, Box::new(|_| u64::MAX >> 1))
}

fn fold(table: &LsnVectorTable, row: &Reference) -> (Vec<u64>, Vec<u64>) {
    let (mut write, mut both) = (vec![0; table.lanes], vec![0; table.lanes]);
    if table.fold(row, FoldTarget::Apart(&mut write, &mut both), &mut table.ring()).joins_eviction {
        table.join_eviction(&mut write);
        table.join_eviction(&mut both);
    }
    (write, both)
}

#[test]
fn a_row_never_stands_for_less_than_it_had() {
    let table = table_of(3);
    let mut ring = table.ring();
    let rows: Vec<Reference> = (0..200).map(|_| Reference::new(0)).collect();
    let mut had = vec![(vec![0; 3], vec![0; 3]); rows.len()];
    let mut rng = fastrand::Rng::with_seed(7);
    for step in 1..20_000u64 {
        let at = rng.usize(0..rows.len());
        let mut vector: Vec<u64> = (0..3).map(|_| rng.u64(0..=step)).collect();
        table.begin(&mut ring);
        if rng.bool() {
            // A command's vector covers writers and readers of overwritten rows.
            join(&mut vector, &had[at].1);
            table.set_write(&rows[at], &vector, 1, &mut ring);
            join(&mut had[at].0, &vector);
        } else {
            table.raise_read(&rows[at], &vector, 1, &mut ring);
        }
        join(&mut had[at].1, &vector);
        if step % 50 == 0 {
            table.raise_eviction(&[step - 40; 3], |reserved| reserved.fill(step));
        }
        let look = rng.usize(0..rows.len());
        let (write, both) = fold(&table, &rows[look]);
        assert!(covers(&write, &had[look].0), "step {step}");
        assert!(covers(&both, &had[look].1), "step {step}");
    }
    assert!(table.slots() < 2000, "slots are used again: {}", table.slots());
}

#[test]
fn a_reference_of_a_tick_that_comes_round_again_is_evicted() {
    let table = table_of(1);
    let mut ring = table.ring();
    let row = Reference::new(0);
    table.set_write(&row, &[5], 1, &mut ring);
    let hot =
        |row: &Reference| table.fold(row, FoldTarget::Write(&mut [0]), &mut table.ring()).warm;
    // No tick is evicted while the log is stalled, for however long.
    for _ in 0..TICKS {
        table.raise_eviction(&[4], |reserved| reserved.fill(5));
        assert!(hot(&row));
    }
    // The slot was not reused, so the row has its vector even when the tick seems recent.
    let mut hot_again = 0;
    for _ in 0..TICKS + 10 {
        table.raise_eviction(&[5], |reserved| reserved.fill(5));
        hot_again += u64::from(hot(&row));
        assert_eq!(fold(&table, &row).0, [5]);
    }
    assert!(hot_again <= 4, "{hot_again}");
    table.begin(&mut ring);
    table.set_write(&row, &[6], 1, &mut ring);
    assert!(hot(&row));
}

#[test]
fn a_stream_that_stands_still_holds_up_only_what_depends_on_it() {
    let table = table_of(2);
    let mut ring = table.ring();
    let rows: Vec<Reference> = (0..100).map(|_| Reference::new(0)).collect();
    for lsn in 1..100_000u64 {
        table.begin(&mut ring);
        let other = if lsn % 1000 == 0 { 9 } else { 0 };
        table.set_write(&rows[lsn as usize % 100], &[lsn, other], 1, &mut ring);
        if lsn % 50 == 0 {
            // The second stream is reserved up to 9, and durable up to 8.
            table.raise_eviction(&[lsn - 20, 8], |reserved| reserved.copy_from_slice(&[lsn, 9]));
        }
    }
    assert!(table.slots() < 1000, "slots are used again: {}", table.slots());
}

#[test]
fn a_split_gap_has_what_the_whole_had() {
    let table = table_of(2);
    let mut ring = table.ring();
    let (from, to) = (Reference::new(0), Reference::new(0));
    table.raise_read(&from, &[5, 9], 3, &mut ring);
    table.inherit(&to, &from, &mut ring);
    assert_eq!(fold(&table, &to).1, vec![5, 9]);
    // An evicted tombstone leaves a gap that is not evicted: the gap is raised to the eviction
    // vector.
    table.raise_eviction(&[7, 7], |reserved| reserved.fill(9));
    let gap = Reference::new(0);
    table.begin(&mut ring);
    table.raise_read(&gap, &[8, 8], 0, &mut ring);
    let tombstone = Reference::new(0);
    table.raise_eviction(&[20, 7], |reserved| reserved.fill(20));
    table.inherit(&gap, &tombstone, &mut ring);
    assert!(covers(&fold(&table, &gap).0, &[20, 7]));
}

#[test]
fn rows_of_one_transaction_share_a_slot_until_one_of_them_is_read() {
    let table = table_of(2);
    let (mut writer, mut reader) = (table.ring(), table.ring());
    let rows: Vec<Reference> = (0..10).map(|_| Reference::new(0)).collect();
    rows.iter().for_each(|row| table.set_write(row, &[3, 9], 1, &mut writer));
    assert_eq!(table.slots(), 1);
    table.raise_read(&rows[4], &[12, 9], 2, &mut reader);
    for (i, row) in rows.iter().enumerate() {
        let (write, both) = fold(&table, row);
        assert_eq!(write, [3, 9]);
        assert_eq!(both, if i == 4 { [12, 9] } else { [3, 9] });
    }
    // Evicted rows read by a transaction share a slot too, and reading twice changes nothing.
    let evicted: Vec<Reference> = (0..10).map(|_| Reference::new(0)).collect();
    for row in evicted.iter().chain(&evicted) {
        table.raise_read(row, &[12, 9], 2, &mut reader);
    }
    assert_eq!(table.slots(), 3);
    let (rows, one) = (table.hot_rows(), table.own.bytes() / u64::from(table.own.len()));
    assert_eq!(rows.slots, 3);
    assert!(rows.bytes >= 4 * one, "the slots, and the common one: {rows:?}");
    table.begin(&mut reader);
    table.raise_read(&evicted[0], &[12, 20], 2, &mut reader);
    assert_eq!(fold(&table, &evicted[0]), (vec![0, 0], vec![12, 20]));
    assert_eq!(fold(&table, &evicted[1]), (vec![0, 0], vec![12, 9]));
}

#[test]
fn readers_raise_together_and_none_is_lost() {
    let table = std::sync::Arc::new(table_of(2));
    let row = std::sync::Arc::new(Reference::new(0));
    let placed = std::sync::Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let (table, row, placed) = (table.clone(), row.clone(), placed.clone());
            std::thread::spawn(move || {
                let mut ring = table.ring();
                for i in 0..500u64 {
                    let mut vector = [0; 2];
                    vector[t % 2] = i * 4 + t as u64;
                    placed.fetch_max(vector[t % 2], Ordering::SeqCst);
                    table.begin(&mut ring);
                    table.raise_read(&row, &vector, 0, &mut ring);
                    let evicted = (i * 4).saturating_sub(8);
                    table.raise_eviction(&[evicted; 2], |reserved| {
                        reserved.fill(placed.load(Ordering::SeqCst));
                    });
                    assert!(covers(&fold(&table, &row).1, &vector));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// Three streams, by their reserved ends.
struct Streams(std::sync::Arc<[AtomicU64; 3]>);

impl Streams {
    fn from(start: u64) -> Self {
        Streams(std::sync::Arc::new([0; 3].map(|_| AtomicU64::new(start))))
    }
    fn at(&self, lane: usize) -> u64 {
        self.0[lane].load(Ordering::SeqCst)
    }
    fn reserve(&self, lane: usize, bytes: u64) -> u64 {
        self.0[lane].fetch_add(bytes, Ordering::SeqCst) + bytes
    }
    fn all(&self) -> Vec<u64> {
        (0..3).map(|lane| self.at(lane)).collect()
    }
    fn table(&self) -> LsnVectorTable {
        let streams = Streams(self.0.clone());
        LsnVectorTable::new(3, 1 << 30, Box::new(move |lane| streams.at(lane)))
    }
}

/// Some sessions know outdated reserved ends, and the low bits of positions wrap around.
#[test]
fn a_row_with_a_single_position_never_stands_for_less_nor_for_what_is_not_reserved() {
    for seed in 0..8 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let start = if seed % 2 == 0 { LOW - 300_000 } else { LOW / 2 - 300_000 };
        let streams = Streams::from(start);
        let table = streams.table();
        table.raise_eviction(&[start; 3], |reserved| reserved.fill(start));
        let mut rings = [0; 3].map(|_| table.ring());
        let rows: Vec<Reference> = (0..60).map(|_| Reference::new(0)).collect();
        let mut had = vec![(vec![0; 3], vec![0; 3]); rows.len()];
        for step in 0..20_000 {
            let at = rng.usize(0..rows.len());
            let session = rng.usize(0..if step % 500 < 400 { 2 } else { 3 });
            let ring = &mut rings[session];
            table.begin(ring);
            let (mut write, mut both) = (vec![0; 3], vec![0; 3]);
            if table.fold(&rows[at], FoldTarget::Apart(&mut write, &mut both), ring).joins_eviction
            {
                table.join_eviction(&mut write);
                table.join_eviction(&mut both);
            }
            assert!(covers(&write, &had[at].0) && covers(&both, &had[at].1), "{seed}, {step}");
            assert!(covers(&streams.all(), &both), "{seed}, {step}: not yet reserved");
            let writes = rng.bool();
            let mut vector = if writes { both } else { write };
            let lane = rng.usize(0..3);
            let single = table.is_single(&vector, lane);
            vector[lane] = streams.reserve(lane, rng.u64(20..60));
            if single {
                table.take_single(ring, lane, vector[lane]);
            }
            if writes {
                table.set_write(&rows[at], &vector, 0, ring);
                had[at].0.copy_from_slice(&vector);
            } else {
                table.raise_read(&rows[at], &vector, 0, ring);
            }
            join(&mut had[at].1, &vector);
            if step % 40 == 0 {
                // All but the last 500 bytes is durable.
                let evicted: Vec<u64> = streams.all().iter().map(|lsn| lsn - 500).collect();
                table.raise_eviction(&evicted, |reserved| reserved.copy_from_slice(&streams.all()));
            }
        }
        assert!(streams.at(0) > start + 200_000);
    }
}

#[test]
fn an_old_single_position_whose_tick_comes_round_is_not_above_what_is_reserved() {
    for bytes in [LOW / 2, LOW - 10, LOW, LOW + 10, LOW + LOW / 3] {
        let streams = Streams::from(1000);
        let table = streams.table();
        let (mut ring, mut other) = (table.ring(), table.ring());
        let row = Reference::new(0);
        let lsn = streams.reserve(1, 30);
        table.take_single(&mut ring, 1, lsn);
        table.set_write(&row, &[0, lsn, 0], 0, &mut ring);
        streams.reserve(1, bytes);
        for _ in 0..=TICKS {
            table.raise_eviction(&streams.all(), |reserved| {
                reserved.copy_from_slice(&streams.all())
            });
            let mut write = vec![0; 3];
            table.fold(&row, FoldTarget::Write(&mut write), &mut other);
            assert!(write[1] <= streams.at(1), "{bytes}: {write:?}");
        }
    }
}

/// Many rows and few slots: rows without a slot do not stand for less either, and once everything
/// is durable the rows are evicted like all rows.
#[test]
fn rows_for_which_there_is_no_slot_stand_for_no_less() {
    for bytes in [0, 2_000, 20_000] {
        let table = LsnVectorTable::new(3, bytes, Box::new(|_| u64::MAX >> 1));
        let mut rings = [table.ring(), table.ring()];
        let rows: Vec<Reference> = (0..200).map(|_| Reference::new(0)).collect();
        let mut had = vec![(vec![0; 3], vec![0; 3]); rows.len()];
        let mut rng = fastrand::Rng::with_seed(bytes);
        for step in 1..20_000u64 {
            let (at, from) = (rng.usize(0..rows.len()), rng.usize(0..rows.len()));
            let ring = &mut rings[rng.usize(0..2)];
            let mut vector: Vec<u64> = (0..3).map(|_| rng.u64(0..=step)).collect();
            table.begin(ring);
            match rng.u32(0..3) {
                0 => {
                    join(&mut vector, &had[at].1);
                    table.set_write(&rows[at], &vector, 1, ring);
                    join(&mut had[at].0, &vector);
                    join(&mut had[at].1, &vector);
                }
                1 => {
                    table.raise_read(&rows[at], &vector, 1, ring);
                    join(&mut had[at].1, &vector);
                    // Another row read by the same transaction.
                    table.raise_read(&rows[from], &vector, 1, ring);
                    join(&mut had[from].1, &vector);
                }
                _ => {
                    table.inherit(&rows[at], &rows[from], ring);
                    let (write, both) = had[from].clone();
                    join(&mut had[at].0, &write);
                    join(&mut had[at].1, &both);
                }
            }
            // In every second phase nothing becomes durable.
            if step % 50 == 0 && step / 4000 % 2 == 0 {
                table.raise_eviction(&[step - 40; 3], |reserved| reserved.fill(step));
            }
            for look in [at, from, rng.usize(0..rows.len())] {
                let (write, both) = fold(&table, &rows[look]);
                assert!(covers(&write, &had[look].0), "{bytes}, step {step}");
                assert!(covers(&both, &had[look].1), "{bytes}, step {step}");
                let most = *both.iter().max().unwrap();
                assert!(most <= step, "step {step}: nothing is followed that is not reserved");
            }
        }
        assert!(table.is_short_of_slots());
        assert!(table.slots() as u64 <= 2 + bytes / 64, "{bytes}: {}", table.slots());
        for _ in 0..2 {
            table.raise_eviction(&[20_000; 3], |reserved| reserved.fill(20_000));
        }
        let warm = |row| table.fold(row, FoldTarget::Write(&mut [0; 3]), &mut rings[0]).warm;
        assert_eq!(rows.iter().map(warm).filter(|warm| *warm).count(), 0, "{bytes}");
    }
}

#[test]
fn free_slots_are_passed_on_where_there_may_be_no_new_ones() {
    let table = LsnVectorTable::new(2, 2 * 5000 * 64, Box::new(|_| u64::MAX >> 1));
    let (mut first, mut second) = (table.ring(), table.ring());
    let row = Reference::new(0);
    for lsn in 1..=5000 {
        table.begin(&mut first);
        table.set_write(&row, &[lsn, lsn], 1, &mut first);
    }
    let has_own_vector = |ring: &mut Ring, lsn| {
        table.begin(ring);
        table.set_write(&row, &[lsn, lsn], 1, ring);
        let slots = fold(&table, &row).0 == [lsn, lsn];
        // If the common slot was used, the next use raises the slot above this vector.
        table.begin(ring);
        table.set_write(&Reference::new(0), &[1 << 20; 2], 1, ring);
        slots
    };
    has_own_vector(&mut second, 5001);
    assert!(!has_own_vector(&mut second, 5002), "there was a slot");
    for _ in 0..2 {
        table.raise_eviction(&[5002; 2], |reserved| reserved.fill(5002));
    }
    assert!(has_own_vector(&mut first, 5003));
    assert!(has_own_vector(&mut second, 5004), "none was passed on");
}
