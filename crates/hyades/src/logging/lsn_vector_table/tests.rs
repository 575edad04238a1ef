use super::reference::TICKS;
use super::*;
use hyades_wal::lsn_vector::join;

fn fold(table: &LsnVectorTable, row: &Reference) -> (Vec<u64>, Vec<u64>) {
    let (mut write, mut both) = (vec![0; table.lanes], vec![0; table.lanes]);
    if table.fold(row, Into::Apart(&mut write, &mut both)).cold {
        table.join_cold(&mut write);
        table.join_cold(&mut both);
    }
    (write, both)
}

#[test]
fn a_row_never_stands_for_less_than_it_had() {
    let table = LsnVectorTable::new(3);
    let mut ring = table.ring();
    let rows: Vec<Reference> = (0..200).map(|_| Reference::new(0)).collect();
    let mut had = vec![(vec![0; 3], vec![0; 3]); rows.len()];
    let mut rng = fastrand::Rng::with_seed(7);
    for step in 1..20_000u64 {
        let at = rng.usize(0..rows.len());
        let mut vector: Vec<u64> = (0..3).map(|_| rng.u64(0..=step)).collect();
        table.begin(&mut ring);
        if rng.bool() {
            // A command's vector covers writers and readers of what it overwrites.
            join(&mut vector, &had[at].1);
            table.set_write(&rows[at], &vector, 1, &mut ring);
            join(&mut had[at].0, &vector);
        } else {
            table.raise_read(&rows[at], &vector, 1, &mut ring);
        }
        join(&mut had[at].1, &vector);
        if step % 50 == 0 {
            table.raise_cold(&[step - 40; 3], |reserved| reserved.fill(step));
        }
        let look = rng.usize(0..rows.len());
        let (write, both) = fold(&table, &rows[look]);
        assert!(covers(&write, &had[look].0), "step {step}");
        assert!(covers(&both, &had[look].1), "step {step}");
    }
    assert!(table.slots() < 2000, "slots are used again: {}", table.slots());
}

#[test]
fn a_reference_of_a_tick_that_comes_round_again_is_cold() {
    let table = LsnVectorTable::new(1);
    let mut ring = table.ring();
    let row = Reference::new(0);
    table.set_write(&row, &[5], 1, &mut ring);
    let hot = |row: &Reference| table.fold(row, Into::Write(&mut [0])).replayed.is_some();
    // Nothing is known to be cold while the log stands still, for however long.
    for _ in 0..TICKS {
        table.raise_cold(&[4], |reserved| reserved.fill(5));
        assert!(hot(&row));
    }
    // Its slot has not been given out again, so where its tick seems to be a late one it has what it had.
    let mut hot_again = 0;
    for _ in 0..TICKS + 10 {
        table.raise_cold(&[5], |reserved| reserved.fill(5));
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
    let table = LsnVectorTable::new(2);
    let mut ring = table.ring();
    let rows: Vec<Reference> = (0..100).map(|_| Reference::new(0)).collect();
    for lsn in 1..100_000u64 {
        table.begin(&mut ring);
        let other = if lsn % 1000 == 0 { 9 } else { 0 };
        table.set_write(&rows[lsn as usize % 100], &[lsn, other], 1, &mut ring);
        if lsn % 50 == 0 {
            // The second stream is reserved up to 9, and durable up to 8.
            table.raise_cold(&[lsn - 20, 8], |reserved| reserved.copy_from_slice(&[lsn, 9]));
        }
    }
    assert!(table.slots() < 1000, "slots are used again: {}", table.slots());
}

#[test]
fn a_split_gap_has_what_the_whole_had() {
    let table = LsnVectorTable::new(2);
    let mut ring = table.ring();
    let (from, to) = (Reference::new(0), Reference::new(0));
    table.raise_read(&from, &[5, 9], 3, &mut ring);
    table.inherit(&to, &from, &mut ring);
    assert_eq!(fold(&table, &to).1, vec![5, 9]);
    // A tombstone that was cold leaves a gap that is hot: the gap is raised to the cold vector.
    table.raise_cold(&[7, 7], |reserved| reserved.fill(9));
    let gap = Reference::new(0);
    table.begin(&mut ring);
    table.raise_read(&gap, &[8, 8], 0, &mut ring);
    let tombstone = Reference::new(0);
    table.raise_cold(&[20, 7], |reserved| reserved.fill(20));
    table.inherit(&gap, &tombstone, &mut ring);
    assert!(covers(&fold(&table, &gap).0, &[20, 7]));
}

#[test]
fn rows_of_one_transaction_share_a_slot_until_one_of_them_is_read() {
    let table = LsnVectorTable::new(2);
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
    // Cold rows that one transaction reads share a slot too, and reading twice changes nothing.
    let cold: Vec<Reference> = (0..10).map(|_| Reference::new(0)).collect();
    for row in cold.iter().chain(&cold) {
        table.raise_read(row, &[12, 9], 2, &mut reader);
    }
    assert_eq!(table.slots(), 3);
    table.begin(&mut reader);
    table.raise_read(&cold[0], &[12, 20], 2, &mut reader);
    assert_eq!(fold(&table, &cold[0]), (vec![0, 0], vec![12, 20]));
    assert_eq!(fold(&table, &cold[1]), (vec![0, 0], vec![12, 9]));
}

#[test]
fn readers_raise_together_and_none_is_lost() {
    let table = std::sync::Arc::new(LsnVectorTable::new(2));
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
                    let cold = (i * 4).saturating_sub(8);
                    table.raise_cold(&[cold; 2], |reserved| {
                        reserved.fill(placed.load(Ordering::SeqCst));
                    });
                    assert!(covers(&fold(&table, &row).1, &vector));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}
