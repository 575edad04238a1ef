//! The index shrinks, does not thrash, and loses nothing meanwhile; hashes have a secret.

use super::tests::{Entry, Index, MANY, drain, find, insert, remove, retire};
use super::*;
use hyades_platform::reclaim as epoch;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::thread;

fn fill(index: &Index, keys: std::ops::Range<u64>, guard: &Guard) {
    keys.for_each(|n| assert!(insert(index, &n.to_be_bytes(), guard)));
}

/// Removing entries frees memory: segments and directory.
#[test]
fn it_shrinks_as_it_has_grown() {
    let index = Index::new(0, HashSecret::KNOWN);
    let guard = epoch::pin();
    let empty = index.bytes(&guard);
    for kept in [0, MANY / 50] {
        fill(&index, kept..MANY, &guard);
        let full = index.bytes(&guard);
        assert!(full > 8 * empty, "{full} of {empty}");
        (kept..MANY).for_each(|n| assert!(remove(&index, &n.to_be_bytes(), &guard)));
        let left = index.bytes(&guard);
        let most = empty + full * 8 * kept as usize / MANY as usize;
        assert!(left <= most, "{left} bytes of {full} for {kept} entries");
        assert_eq!(index.len(&guard), kept as usize);
        if kept == 0 {
            fill(&index, 0..MANY / 50, &guard);
        }
    }
    assert!((0..MANY / 50).all(|n| find(&index, &n.to_be_bytes(), &guard).is_some()));
    drain(&index);
    assert_eq!(index.bytes(&guard), empty);
}

/// Around every number of entries, a few insertions and removals cause no split and no merge.
#[test]
fn it_does_not_thrash() {
    let index = Index::new(0, HashSecret::KNOWN);
    let guard = epoch::pin();
    let directory = || std::ptr::from_ref(index.directory(&guard)).addr();
    let segment = |hash: u64| std::ptr::from_ref(index.segment(hash, &guard)).addr();
    let step = SEGMENT_FULL as u64 / 8;
    let mut replaced = 0;
    for begin in 0..40 {
        fill(&index, begin * step..(begin + 1) * step, &guard);
        let end = (begin + 1) * step;
        fill(&index, end..end + step / 2, &guard);
        (end..end + step / 2).for_each(|n| assert!(remove(&index, &n.to_be_bytes(), &guard)));
        let before = (directory(), segment(0), segment(u64::MAX));
        for _ in 0..20 {
            fill(&index, end..end + step / 2, &guard);
            (end..end + step / 2).for_each(|n| assert!(remove(&index, &n.to_be_bytes(), &guard)));
        }
        replaced += usize::from(before != (directory(), segment(0), segment(u64::MAX)));
    }
    assert_eq!(replaced, 0);
    drain(&index);
}

/// Numbers of a seed that are good factors.
fn spread(seed: u64) -> impl Fn(u64) -> u64 {
    move |n| (8 * seed + n).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Walks in steps, while the index shrinks and grows: every lasting entry is visited exactly once.
#[test]
fn a_walk_sees_what_stays_once_while_the_index_shrinks() {
    for seed in 0..if cfg!(miri) { 1 } else { 6 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let index = Index::new(0, HashSecret::from([1, 2, 3].map(spread(seed))));
        let guard = epoch::pin();
        let key = |n: u64| n.to_be_bytes();
        let stays = MANY / 100;
        let put = |n: u64| insert_hashed(&index, &key(n), &guard);
        (0..MANY).for_each(|n| assert!(put(n)));
        let (mut left, mut seen) = (stays..MANY, HashMap::new());
        let mut turn = 0u64;
        let (mut cursor, mut at) = (Some(HashCursor::default()), Some(HashPosition::default()));
        let mut seen_from = HashMap::new();
        while cursor.is_some() || at.is_some() {
            turn += 1;
            if let Some(from) = cursor {
                let mut steps = 200;
                cursor = index.walk_from(from, &mut steps, &guard, |entry| {
                    *seen.entry(entry.key.clone()).or_insert(0) += 1;
                    ControlFlow::Continue(())
                });
            }
            if let Some(from) = at {
                let mut visited = 0;
                at = index.for_each_from(from, &guard, |entry| {
                    *seen_from.entry(entry.key.clone()).or_insert(0) += 1;
                    visited += 1;
                    if visited > 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
            }
            let gone = random.u64(0..MANY / 100);
            let upper = (left.start + gone).min(left.end);
            for n in left.start..upper {
                assert!(remove_hashed(&index, &key(n), &guard));
            }
            left.start = upper;
            // The index grows again, and shrinks.
            if left.is_empty() && turn.is_multiple_of(3) {
                (stays..stays + MANY / 20).for_each(|n| assert!(put(n)));
                left = stays..stays + MANY / 20;
            }
        }
        assert!((0..stays).all(|n| seen.get(&key(n)[..]) == Some(&1)), "seed {seed}");
        assert!((0..stays).all(|n| seen_from.get(&key(n)[..]) == Some(&1)), "seed {seed}");
        let mut once = HashSet::new();
        index.for_each(&guard, |entry| assert!(once.insert(entry.key.clone())));
        for key in once {
            assert!(remove_hashed(&index, &key, &guard));
        }
        assert!(index.is_empty(&guard));
    }
}

fn insert_hashed(index: &Index, key: &[u8], guard: &Guard) -> bool {
    let new = Box::into_raw(Box::new(Entry { key: key.to_vec() }));
    // SAFETY: the entry has the key, and is retired only after it was unlinked.
    let inserted = unsafe { index.insert(key, index.hash(key), new, guard) };
    if inserted.is_err() {
        retire(new, guard);
    }
    inserted.is_ok()
}

fn remove_hashed(index: &Index, key: &[u8], guard: &Guard) -> bool {
    let hash = index.hash(key);
    let Some(found) = index.get(key, hash, guard) else { return false };
    index.take(key, hash, found, guard).inspect(|&entry| retire(entry, guard)).is_some()
}

/// Keys that collide without a secret do not collide with one, and two secrets have other hashes.
#[test]
fn a_secret_keeps_chosen_keys_apart() {
    let stuck = 0x9e37_79b9_7f4a_7c15u64.to_le_bytes();
    let keys: Vec<Vec<u8>> =
        (0..2_000u64).map(|n| [&stuck[..], &n.to_le_bytes()].concat()).collect();
    let secrets = [HashSecret::fresh(), HashSecret::fresh()];
    assert_ne!(secrets[0].hash(b"key"), secrets[1].hash(b"key"));
    for secret in secrets {
        let hashes: HashSet<u64> = keys.iter().map(|key| secret.hash(key)).collect();
        assert_eq!(hashes.len(), keys.len());
        let words: [u64; 3] = secret.into();
        assert_eq!(HashSecret::from(words), secret);
    }
    assert_eq!(keys.iter().map(|key| hash_key(key)).collect::<HashSet<_>>().len(), 1);
}

/// Threads fill and empty an index over and over: each finds its own keys at every moment, and
/// other threads find the lasting keys throughout.
#[test]
fn threads_lose_no_key_while_it_shrinks() {
    let threads = 3u64;
    let (rounds, most) = if cfg!(miri) { (2, 60) } else { (12, 12_000) };
    let index = Index::new(0, HashSecret::KNOWN);
    let stays = most / 40;
    fill(&index, 0..stays, &epoch::pin());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = |seed: u64| {
            let mut random = fastrand::Rng::with_seed(seed);
            // Relaxed: only tells the reader to stop.
            while !stop.load(Ordering::Relaxed) {
                let guard = epoch::pin();
                for _ in 0..100 {
                    let key = random.u64(0..stays).to_be_bytes();
                    assert!(find(&index, &key, &guard).is_some(), "it is there throughout");
                }
                if random.u8(0..50) == 0 {
                    let mut seen = HashMap::new();
                    index.for_each(&guard, |e| *seen.entry(e.key.clone()).or_insert(0) += 1);
                    let has = |n: u64| seen.get(&n.to_be_bytes()[..]) == Some(&1);
                    assert!((0..stays).all(has), "each once");
                }
            }
        };
        let readers = [7, 8].map(|seed| scope.spawn(move || reader(seed)));
        let work = |me: u64| {
            let key = |n: u64| (most + n * threads + me).to_be_bytes();
            for _ in 0..rounds {
                for n in 0..most {
                    assert!(insert(&index, &key(n), &epoch::pin()));
                }
                for n in 0..most {
                    assert!(find(&index, &key(n), &epoch::pin()).is_some());
                    assert!(remove(&index, &key(n), &epoch::pin()));
                    assert!(find(&index, &key(n), &epoch::pin()).is_none());
                }
            }
        };
        let handles: Vec<_> = (0..threads).map(|me| scope.spawn(move || work(me))).collect();
        let ended: Vec<_> = handles.into_iter().map(|h| h.join()).collect();
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(ended.iter().all(Result::is_ok));
    });
    let guard = epoch::pin();
    assert_eq!(index.len(&guard), stays as usize);
    assert!(cfg!(miri) || index.segments(&guard).count() <= 2);
    drain(&index);
}
