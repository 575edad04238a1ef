//! Several threads change an index at once, checked against each thread's knowledge of its own
//! keys.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use hyades_platform::reclaim as epoch;

use super::tests::{Stamp, Stamps, drain, insert, insert_near, remove};
use super::*;

type Index = OrderedIndex<super::tests::Entry, Stamp>;

const ROUNDS: u64 = if cfg!(miri) { 60 } else { 60_000 };

type MakeKey = fn(u64) -> Vec<u8>;

fn shapes() -> Vec<(KeyShape, MakeKey)> {
    vec![
        (KeyShape::Fixed(8), |i| i.to_be_bytes().to_vec()),
        (KeyShape::Fixed(12), |i| [&[1; 4][..], &i.to_be_bytes()].concat()),
        (KeyShape::Variable, |i| [&[1; 32][..], &i.to_be_bytes()].concat()),
    ]
}

const THREADS: u64 = 3;

/// Each thread owns the keys of its residue class; `work` returns the keys left linked.
fn all_know_their_own(work: impl Fn(&Index, MakeKey, u64) -> BTreeSet<u64> + Sync) {
    for (shape, key) in shapes() {
        let index = Index::new(shape);
        let sets: Vec<BTreeSet<u64>> = thread::scope(|scope| {
            let (index, work) = (&index, &work);
            let spawn = |me| scope.spawn(move || work(index, key, me));
            let handles: Vec<_> = (0..THREADS).map(spawn).collect();
            handles.into_iter().map(|h| h.join().unwrap()).collect()
        });
        let guard = epoch::pin();
        let mut found = Vec::new();
        index.for_each(&guard, |e| found.push(e.key().to_vec()));
        let expected: BTreeSet<u64> = sets.into_iter().flatten().collect();
        assert_eq!(found, expected.into_iter().map(key).collect::<Vec<_>>());
        drain(&index);
    }
}

#[test]
fn no_key_is_lost_or_doubled() {
    let space = if cfg!(miri) { 40 } else { 3_000 };
    all_know_their_own(|index, key, me| {
        let mut random = fastrand::Rng::with_seed(me);
        let mut mine = BTreeSet::new();
        for round in 0..ROUNDS {
            let guard = epoch::pin();
            // In waves, to fill and empty leaves.
            let growing = (round / (space * 2)).is_multiple_of(2);
            let i = random.u64(0..space) * THREADS + me;
            if random.u64(0..8) < if growing { 6 } else { 2 } {
                assert_eq!(insert(index, &key(i), &guard), mine.insert(i));
            } else {
                assert_eq!(remove(index, &key(i), &guard), mine.remove(&i));
            }
            let i = random.u64(0..space) * THREADS + me;
            assert_eq!(index.find(&key(i), &guard).is_some(), mine.contains(&i));
        }
        mine
    });
}

/// Runs of adjacent keys, inserted by a finger under one guard, while other threads fill, empty,
/// split and merge the same leaves: no key gets into a leaf with another key range.
#[test]
fn a_finger_puts_no_key_where_it_does_not_belong() {
    let space = if cfg!(miri) { 40 } else { 2_000 };
    all_know_their_own(|index, key, me| {
        let mut random = fastrand::Rng::with_seed(me);
        let mut mine = BTreeSet::new();
        for round in 0..ROUNDS / 8 {
            let guard = epoch::pin();
            let mut finger = Finger::new(&guard);
            let growing = (round / space).is_multiple_of(2);
            let from = random.u64(0..space);
            for step in 0..random.u64(1..12) {
                // Mostly the next key, now and then a key below or far away.
                let at = match random.u8(0..16) {
                    0 => random.u64(0..space),
                    1 => from.saturating_sub(step),
                    _ => from + step,
                };
                let i = at * THREADS + me;
                if random.u64(0..8) < if growing { 7 } else { 2 } {
                    assert_eq!(insert_near(index, &key(i), &mut finger), mine.insert(i), "{i}");
                } else {
                    assert_eq!(remove(index, &key(i), &guard), mine.remove(&i), "{i}");
                }
                assert_eq!(index.find(&key(i), &guard).is_some(), mine.contains(&i));
            }
        }
        mine
    });
}

/// Descents advancing between other operations, in a tree under change: the finger at the end of a
/// descent puts no key into a leaf with another key range.
#[test]
fn a_descent_ahead_of_need_ends_where_it_belongs() {
    let space = if cfg!(miri) { 40 } else { 2_000 };
    let arrived = AtomicU64::new(0);
    all_know_their_own(|index, key, me| {
        let mut random = fastrand::Rng::with_seed(me);
        let mut mine = BTreeSet::new();
        for round in 0..ROUNDS / 8 {
            let guard = epoch::pin();
            let growing = (round / space).is_multiple_of(2);
            let from = random.u64(0..space) * THREADS + me;
            // To the key, or to the position just below the next key.
            let below = random.bool();
            let to = key(from + u64::from(below));
            let mut descent = index.begin_descent(&to, below, &guard);
            let mut finger = Finger::new(&guard);
            for _ in 0..random.u64(1..12) {
                match descent.as_mut().map(|descent| index.step(descent)) {
                    Some(DescentProgress::Deeper) | None => {}
                    Some(DescentProgress::Lost) => descent = None,
                    Some(DescentProgress::Arrived(there)) => {
                        (descent, finger) = (None, there);
                        arrived.fetch_add(1, Ordering::Relaxed);
                    }
                }
                let i = random.u64(0..space) * THREADS + me;
                if random.u64(0..8) < if growing { 7 } else { 2 } {
                    assert_eq!(insert(index, &key(i), &guard), mine.insert(i), "{i}");
                } else {
                    assert_eq!(remove(index, &key(i), &guard), mine.remove(&i), "{i}");
                }
            }
            for i in [from, from + THREADS] {
                assert_eq!(insert_near(index, &key(i), &mut finger), mine.insert(i), "{i}");
                assert!(index.find(&key(i), &guard).is_some());
            }
        }
        mine
    });
    assert!(cfg!(miri) || arrived.into_inner() > ROUNDS / 16);
}

/// Scans in both directions, while writers insert and remove other keys: each scan sees the keys
/// that stay, in order, without duplicates.
#[test]
fn scans_are_sorted_and_see_what_stays() {
    for (shape, key) in shapes() {
        let index = Index::new(shape);
        let space: u64 = if cfg!(miri) { 90 } else { 2_000 };
        // Multiples of 5 stay.
        let stay: Vec<_> = (0..space).filter(|i| i.is_multiple_of(5)).map(key).collect();
        stay.iter().for_each(|k| assert!(insert(&index, k, &epoch::pin())));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (index, done, stay) = (&index, &done, &stay);
            for seed in 0..2 {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for round in 0..ROUNDS {
                        let i = random.u64(0..space);
                        let growing = (round / (space * 2)).is_multiple_of(2);
                        if i.is_multiple_of(5) {
                            continue;
                        }
                        if random.u64(0..8) < if growing { 6 } else { 2 } {
                            insert(index, &key(i), &epoch::pin());
                        } else {
                            remove(index, &key(i), &epoch::pin());
                        }
                    }
                    // Relaxed: only tells the scanner to stop.
                    done.store(true, Ordering::Relaxed);
                });
            }
            scope.spawn(move || {
                let mut descending = false;
                let mut more = 2;
                while more > 0 {
                    more -= i32::from(done.load(Ordering::Relaxed));
                    let guard = epoch::pin();
                    let mut seen: Vec<Vec<u8>> = Vec::new();
                    let all = (Bound::Unbounded, Bound::Unbounded);
                    index.scan(all.0, all.1, descending, &guard, &mut |_, entries| {
                        seen.extend(entries.iter().map(|e| e.key().to_vec()));
                        ControlFlow::Continue(())
                    });
                    if descending {
                        seen.reverse();
                    }
                    assert!(seen.is_sorted_by(|a, b| a < b));
                    assert!(stay.iter().all(|k| seen.binary_search(k).is_ok()));
                    descending = !descending;
                }
            });
        });
        drain(&index);
    }
}

/// The phantom contract: if all leaves of a scan are current afterwards, the scan saw a state that
/// existed.
#[test]
fn a_validated_scan_is_a_state_that_existed() {
    for (shape, key) in shapes() {
        let index = Index::new(shape);
        let pairs: u64 = if cfg!(miri) { 40 } else { 500 };
        // Exactly one of 2i and 2i + 1 is linked whenever no change is in progress. A change
        // inserts a key before removing the other, so no state lacks both.
        (0..pairs).for_each(|i| assert!(insert(&index, &key(2 * i), &epoch::pin())));
        let (done, validated) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let (index, done, validated) = (&index, &done, &validated);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(7);
                let mut odd = vec![0; pairs as usize];
                for round in 0..ROUNDS {
                    let i = random.u64(0..pairs);
                    let side = &mut odd[i as usize];
                    assert!(insert(index, &key(2 * i + (1 - *side)), &epoch::pin()));
                    assert!(remove(index, &key(2 * i + *side), &epoch::pin()));
                    *side = 1 - *side;
                    if round.is_multiple_of(16) {
                        thread::yield_now();
                    }
                }
                // Relaxed: only tells the scanner to stop.
                done.store(true, Ordering::Relaxed);
            });
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(9);
                let mut last = false;
                while !last {
                    last = done.load(Ordering::Relaxed);
                    let from = random.u64(0..pairs);
                    let to = (from + random.u64(0..60)).min(pairs);
                    let (lower, upper) = (key(2 * from), key(2 * to));
                    let guard = epoch::pin();
                    let (mut leaves, mut seen) = (Vec::new(), BTreeSet::new());
                    let range = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
                    index.scan(range.0, range.1, random.bool(), &guard, &mut |leaf, entries| {
                        leaves.push(leaf);
                        seen.extend(entries.iter().map(|e| e.key().to_vec()));
                        ControlFlow::Continue(())
                    });
                    if leaves.iter().all(Leaf::is_current) {
                        // Relaxed: read after the threads have joined.
                        validated.fetch_add(1, Ordering::Relaxed);
                        let both = |i| seen.contains(&key(2 * i)) || seen.contains(&key(2 * i + 1));
                        assert!((from..to).all(both), "a pair is missing");
                        let doubled = seen.len() as u64 - (to - from);
                        assert!(doubled <= 1, "{doubled} changes in progress by one writer");
                    }
                }
            });
        });
        assert!(validated.load(Ordering::Relaxed) > 0);
        drain(&index);
    }
}

/// A stamp raised without a lock, on a leaf still current afterwards, is never lost.
#[test]
fn a_stamp_raised_on_a_current_leaf_stays() {
    let index = Index::new(KeyShape::Fixed(8));
    let space: u64 = if cfg!(miri) { 80 } else { 1_000 };
    let floors: Vec<AtomicU64> = (0..space).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        let (index, floors) = (&index, &floors);
        for seed in 0..2 {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for round in 0..ROUNDS {
                    let key = random.u64(0..space).to_be_bytes();
                    if (round / (space * 3) + random.u64(0..4)).is_multiple_of(2) {
                        insert(index, &key, &epoch::pin());
                    } else {
                        remove(index, &key, &epoch::pin());
                    }
                }
            });
        }
        scope.spawn(move || {
            let mut random = fastrand::Rng::with_seed(5);
            for stamp in 1..ROUNDS {
                let i = random.u64(0..space);
                let guard = epoch::pin();
                loop {
                    let (_, leaf) = index.get(&i.to_be_bytes(), &guard);
                    leaf.gap().0.fetch_max(stamp, Ordering::SeqCst);
                    if leaf.is_current() {
                        break;
                    }
                }
                // Relaxed: read after the threads have joined.
                floors[i as usize].store(stamp, Ordering::Relaxed);
            }
        });
    });
    let guard = epoch::pin();
    for (i, floor) in floors.iter().enumerate() {
        let (_, leaf) = index.get(&(i as u64).to_be_bytes(), &guard);
        assert!(leaf.gap().0.load(Ordering::SeqCst) >= floor.load(Ordering::Relaxed));
    }
    drain(&index);
}

#[test]
fn only_one_of_many_inserts_of_a_key_succeeds() {
    let index = Index::new(KeyShape::Fixed(4));
    let count: u32 = if cfg!(miri) { 50 } else { 5_000 };
    let won = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for i in 0..count {
                    let new = insert(&index, &i.to_be_bytes(), &epoch::pin());
                    // Relaxed: read after the threads have joined.
                    won.fetch_add(new.into(), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(won.load(Ordering::Relaxed), u64::from(count));
    // A removal that names an entry removed before leaves the entry's successor alone.
    let guard = epoch::pin();
    let old = index.find(&0u32.to_be_bytes(), &guard).unwrap();
    assert!(remove(&index, &0u32.to_be_bytes(), &guard));
    assert!(insert(&index, &0u32.to_be_bytes(), &guard));
    assert!(!index.remove(&0u32.to_be_bytes(), old, &Stamps, &guard));
    drain(&index);
}
