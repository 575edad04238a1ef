//! Compares the index with a `HashSet`, in one thread and in several.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::thread;

use hyades_platform::reclaim as epoch;
use proptest::prelude::*;

use super::*;

pub(super) struct Entry {
    pub(super) key: Vec<u8>,
}

impl Keyed for Entry {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

pub(super) type Index = HashIndex<Entry>;

pub(super) fn retire(entry: *const Entry, guard: &Guard) {
    // SAFETY: the tests retire an entry once, when it is not, or no longer, linked.
    unsafe { epoch::retire(guard, 0, move || drop(Box::from_raw(entry.cast_mut()))) };
}

pub(super) fn find<'g>(index: &Index, key: &[u8], guard: &'g Guard) -> Option<&'g Entry> {
    index.get(key, hash_key(key), guard)
}

pub(super) fn insert(index: &Index, key: &[u8], guard: &Guard) -> bool {
    let new = Box::into_raw(Box::new(Entry { key: key.to_vec() }));
    // SAFETY: the entry has the key, and is retired only after it was unlinked.
    let inserted = unsafe { index.insert(key, hash_key(key), new, guard) };
    if let Err(existing) = inserted {
        assert_eq!(existing.key, key);
        retire(new, guard);
    }
    inserted.is_ok()
}

pub(super) fn remove(index: &Index, key: &[u8], guard: &Guard) -> bool {
    let Some(found) = find(index, key, guard) else { return false };
    let taken = index.take(key, hash_key(key), found, guard);
    taken.inspect(|&entry| retire(entry, guard)).is_some()
}

pub(super) fn drain(index: &Index) {
    let guard = epoch::pin();
    let mut keys = Vec::new();
    index.for_each(&guard, |e| keys.push(e.key.clone()));
    assert_eq!(keys.len(), index.len(&guard));
    keys.iter().for_each(|key| assert!(remove(index, key, &guard)));
    assert!(index.is_empty(&guard));
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let length = prop::sample::select(&[0usize, 1, 3, 4, 7, 8, 9, 12, 16, 17, 40][..]);
    (length, 0u32..9_000).prop_map(|(length, n)| {
        let mut key = n.to_le_bytes().to_vec();
        key.resize(length, 0x55);
        key
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 24 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn agrees_with_a_hash_map(steps in prop::collection::vec((0u8..8, key()), 1..12_000)) {
        let index = Index::new(0, HashSecret::KNOWN);
        let mut oracle = HashSet::new();
        for (step, key) in steps {
            let guard = epoch::pin();
            prop_assert_eq!(find(&index, &key, &guard).is_some(), oracle.contains(&key));
            if step < 7 {
                prop_assert_eq!(insert(&index, &key, &guard), oracle.insert(key));
            } else {
                prop_assert_eq!(remove(&index, &key, &guard), oracle.remove(&key));
            }
        }
        let guard = epoch::pin();
        let mut all = HashSet::new();
        index.for_each(&guard, |e| assert!(all.insert(e.key.clone()), "each entry once"));
        prop_assert_eq!(all, oracle);
        drain(&index);
    }
}

pub(super) const MANY: u64 = if cfg!(miri) { 300 } else { 200_000 };

#[test]
fn nothing_is_lost_while_it_grows() {
    for expected in [0, MANY as usize] {
        let index = Index::new(expected, HashSecret::KNOWN);
        let guard = epoch::pin();
        (0..MANY).for_each(|i| assert!(insert(&index, &i.to_be_bytes(), &guard)));
        assert_eq!(index.len(&guard), MANY as usize);
        assert!((0..MANY).all(|i| find(&index, &i.to_be_bytes(), &guard).is_some()));
        assert!(find(&index, &MANY.to_be_bytes(), &guard).is_none());
        drain(&index);
    }
}

/// A walk in steps of a few entries, while entries are inserted and segments split: each entry
/// linked from beginning to end is visited, and no entry twice.
#[test]
fn a_walk_in_stretches_sees_what_stays_once() {
    let index = Index::new(0, HashSecret::KNOWN);
    let guard = epoch::pin();
    let stays = MANY / 10;
    (0..stays).for_each(|i| assert!(insert(&index, &i.to_be_bytes(), &guard)));
    let (mut seen, mut next) = (HashSet::new(), stays);
    let mut at = Some(HashPosition::default());
    while let Some(from) = at {
        let mut taken = 0;
        at = index.for_each_from(from, &guard, |entry| {
            assert!(seen.insert(entry.key.clone()), "each entry once");
            taken += 1;
            if taken >= 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(taken < 200, "{taken} entries at a time");
        for _ in 0..300 {
            assert!(insert(&index, &next.to_be_bytes(), &guard));
            next += 1;
        }
    }
    assert!(next > 2 * stays, "it has grown meanwhile");
    assert!((0..stays).all(|i| seen.contains(&i.to_be_bytes()[..])));
    drain(&index);
}

/// Walks over ranges, in turns of a few entries, while the index grows: each entry linked from
/// beginning to end is visited by one walk, and no entry twice.
#[test]
fn walks_over_ranges_see_together_what_stays_once() {
    for (expected, most) in [(0, 8), (MANY as usize, 1), (MANY as usize, 3), (MANY as usize, 64)] {
        let index = Index::new(expected, HashSecret::KNOWN);
        let guard = epoch::pin();
        let stays = MANY / 10;
        (0..stays).for_each(|i| assert!(insert(&index, &i.to_be_bytes(), &guard)));
        let mut walks = index.range_starts(most, &guard);
        assert!(walks.len() <= most && (walks.len() > 1 || most == 1 || expected == 0));
        let (mut seen, mut next) = (HashSet::new(), stays);
        while !walks.is_empty() {
            let mut on = Vec::new();
            for from in walks {
                let mut taken = 0;
                on.extend(index.for_each_from(from, &guard, |entry| {
                    assert!(seen.insert(entry.key.clone()), "each entry once");
                    taken += 1;
                    if taken >= 50 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                }));
                for _ in 0..40 {
                    assert!(insert(&index, &next.to_be_bytes(), &guard));
                    next += 1;
                }
            }
            walks = on;
        }
        assert!((0..stays).all(|i| seen.contains(&i.to_be_bytes()[..])), "{expected}, {most}");
        drain(&index);
    }
}

/// Takes all steps of a walk with cursors kept as numbers, and calls `between` after each step.
/// Returns the number of visits of each entry, and checks that no step takes longer than allowed.
fn walk(index: &Index, steps: usize, limit: usize, mut between: impl FnMut()) -> Visits {
    let (mut visits, mut number) = (Visits::new(), 0);
    loop {
        let guard = epoch::pin();
        let cursor = HashCursor::from_number(number).expect("a position");
        let (mut left, mut seen) = (steps, 0);
        let next = index.walk_from(cursor, &mut left, &guard, |entry| {
            *visits.entry(entry.key.clone()).or_default() += 1;
            seen += 1;
            if seen >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // At most a chain more: longer than a bucket where hashes happen to be alike.
        assert!(seen < limit + 4 * SLOTS && seen < steps + 4 * SLOTS, "{seen} entries");
        let Some(next) = next else { return visits };
        assert!(next.number() > number && next.number() < 1 << 53);
        assert!(left == 0 || seen >= limit, "it stops early");
        assert_eq!(HashCursor::from_number(next.number()), Some(next));
        number = next.number();
        between();
    }
}

type Visits = HashMap<Vec<u8>, u32>;

/// The promise of SCAN: every entry present from the first step to the last is returned exactly
/// once, while other entries come and go, and segments are split.
#[test]
fn a_walk_by_cursors_sees_what_stays_once() {
    let long = MANY / 4;
    for seed in 0..if cfg!(miri) { 1 } else { 8 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let index = Index::new(0, HashSecret::KNOWN);
        let guard = epoch::pin();
        // From an index split often, or never, at the beginning.
        let stays = [long, 40][seed as usize % 2];
        let key = |n: u64| n.to_be_bytes();
        (0..stays).for_each(|n| assert!(insert(&index, &key(n), &guard)));
        let (mut others, mut next) = (Vec::new(), stays);
        let (steps, limit) = match seed {
            0 | 1 => (50, 30),
            _ => (random.usize(1..3_000), random.usize(1..1_500)),
        };
        let before = index.directory(&guard).depth;
        let visits = walk(&index, steps, limit, || {
            for _ in 0..random.usize(0..1_000) {
                if random.u8(0..5) == 0 && !others.is_empty() {
                    let gone: u64 = others.swap_remove(random.usize(0..others.len()));
                    assert!(remove(&index, &key(gone), &guard));
                } else if next < MANY {
                    assert!(insert(&index, &key(next), &guard));
                    others.push(next);
                    next += 1;
                }
            }
        });
        assert!((0..stays).all(|n| visits.get(&key(n)[..]) == Some(&1)), "seed {seed}");
        assert!(visits.values().all(|times| *times == 1), "nothing comes twice");
        let after = index.directory(&guard).depth;
        assert!(cfg!(miri) || seed > 1 || after > before, "it has grown meanwhile");
        drain(&index);
    }
}

/// A cursor of a larger index, as after a restart, lies inside of a segment: nothing is missed.
#[test]
fn a_walk_goes_on_in_an_index_that_was_built_anew() {
    let guard = epoch::pin();
    let fill = |index: &Index| {
        (0..MANY).for_each(|n| assert!(insert(index, &n.to_be_bytes(), &guard)));
    };
    let (large, small) =
        (Index::new(4 * MANY as usize, HashSecret::KNOWN), Index::new(0, HashSecret::KNOWN));
    fill(&large);
    fill(&small);
    assert!(large.directory(&guard).depth > small.directory(&guard).depth);
    let mut seen = HashSet::new();
    let mut first = |entry: &Entry| {
        seen.insert(entry.key.clone());
        ControlFlow::Continue(())
    };
    let begin = HashCursor::default();
    let mut left = MANY as usize / 2 + 3;
    let cursor = large.walk_from(begin, &mut left, &guard, &mut first).expect("there is more");
    assert_eq!(small.walk_from(cursor, &mut usize::MAX.clone(), &guard, first), None);
    assert_eq!(seen.len(), MANY as usize);
    drain(&large);
    drain(&small);
}

#[test]
fn numbers_of_cursors() {
    let cursor = HashCursor::from_number;
    assert_eq!(cursor(0), Some(HashCursor::default()));
    let last = (BUCKETS as u64) << 43;
    assert_eq!(cursor(last - 1).map(HashCursor::number), Some(last - 1));
    assert_eq!((cursor(last), cursor(u64::MAX)), (None, None));
    // At the end of the hashes the next bucket follows, and nothing behind the last bucket.
    let end = |bucket| HashCursor { bucket, first: 1 << 63 }.behind(1);
    assert_eq!(end(0), Some(HashCursor { bucket: 1, first: 0 }));
    assert_eq!(end(BUCKETS - 1), None);
    assert_eq!(HashCursor::default().behind(0), Some(HashCursor { bucket: 1, first: 0 }));
    let half = HashCursor { bucket: 0, first: 1 << 63 };
    assert_eq!(HashCursor::default().behind(1), Some(half));
}

#[test]
fn another_entry_of_the_same_key_is_not_removed() {
    let index = Index::new(0, HashSecret::KNOWN);
    let guard = epoch::pin();
    assert!(insert(&index, b"key", &guard));
    let other = Box::into_raw(Box::new(Entry { key: b"key".to_vec() }));
    assert!(!index.remove(b"key", hash_key(b"key"), other, &guard));
    assert!(find(&index, b"key", &guard).is_some());
    retire(other, &guard);
    drain(&index);
}

/// More keys with one hash than a segment holds: chains grow, the directory does not.
#[test]
fn colliding_keys_stay_correct_and_bounded() {
    // The first word makes one factor of the product zero, whatever the second word is.
    let stuck = 0x9e37_79b9_7f4a_7c15u64.to_le_bytes();
    let count: u64 = if cfg!(miri) { 20 } else { 9_000 };
    let keys: Vec<Vec<u8>> = (0..count).map(|i| [&stuck[..], &i.to_le_bytes()].concat()).collect();
    assert!(keys.iter().all(|k| hash_key(k) == hash_key(&keys[0])), "these keys collide");
    let index = Index::new(0, HashSecret::KNOWN);
    let guard = epoch::pin();
    keys.iter().for_each(|k| assert!(insert(&index, k, &guard)));
    assert!(keys.iter().rev().step_by(100).all(|k| find(&index, k, &guard).is_some()));
    assert!(index.directory(&guard).segments.len() <= 1 << 12);
    assert_eq!(index.len(&guard), keys.len());
    drain(&index);
}

#[test]
fn hashes_spread_over_buckets_tags_and_segments() {
    let lengths = [4usize, 8, 12, 16, 24];
    for length in lengths {
        let count = 1u32 << 16;
        for (name, shift) in [("bucket", 0), ("tag", BUCKET_BITS + 7), ("segment", 55)] {
            let mut loads = HashMap::new();
            for i in 0..count {
                let mut key = vec![0; length];
                key[length - 4..].copy_from_slice(&i.to_be_bytes());
                *loads.entry(hash_key(&key) >> shift & 511).or_insert(0u32) += 1;
            }
            let most = *loads.values().max().unwrap();
            assert_eq!(loads.len(), 512, "{name} of {length} bytes");
            // The mean is 128, its deviation about 11.
            assert!(most < 200, "{name} of {length} bytes: {most}");
        }
    }
}

/// Each thread owns the keys of its residue class, and knows the linked keys among them.
#[test]
fn threads_lose_no_key() {
    let threads = 3u64;
    let (rounds, space) = if cfg!(miri) { (80, 30) } else { (100_000, 20_000) };
    let index = Index::new(0, HashSecret::KNOWN);
    let stop = AtomicBool::new(false);
    let expected: HashSet<Vec<u8>> = thread::scope(|scope| {
        let work = |me: u64| {
            let mut random = fastrand::Rng::with_seed(me);
            let mut mine = HashSet::new();
            for _ in 0..rounds {
                let guard = epoch::pin();
                let key = (random.u64(0..space) * threads + me).to_be_bytes();
                if random.u8(0..4) > 0 {
                    assert_eq!(insert(&index, &key, &guard), mine.insert(key.to_vec()));
                } else {
                    assert_eq!(remove(&index, &key, &guard), mine.remove(&key[..]));
                }
                let key = (random.u64(0..space) * threads + me).to_be_bytes();
                assert_eq!(find(&index, &key, &guard).is_some(), mine.contains(&key[..]));
            }
            mine
        };
        let walker = scope.spawn(|| {
            // Relaxed: only tells the walker to stop.
            while !stop.load(Ordering::Relaxed) {
                let guard = epoch::pin();
                let mut seen = HashSet::new();
                index.for_each(&guard, |e| {
                    seen.insert(std::ptr::from_ref(e));
                });
                thread::yield_now();
            }
        });
        let handles: Vec<_> = (0..threads).map(|me| scope.spawn(move || work(me))).collect();
        let sets = handles.into_iter().flat_map(|h| h.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        walker.join().unwrap();
        sets
    });
    let guard = epoch::pin();
    let mut all = HashSet::new();
    index.for_each(&guard, |e| assert!(all.insert(e.key.clone())));
    assert_eq!(all, expected);
    drain(&index);
}

#[test]
fn only_one_of_many_inserts_of_a_key_succeeds() {
    let index = Index::new(0, HashSecret::KNOWN);
    let count: u64 = if cfg!(miri) { 40 } else { 30_000 };
    let won: u64 = thread::scope(|scope| {
        let work =
            || (0..count).filter(|i| insert(&index, &i.to_be_bytes(), &epoch::pin())).count();
        let handles: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        handles.into_iter().map(|h| h.join().unwrap() as u64).sum()
    });
    assert_eq!(won, count);
    drain(&index);
}
