//! Compares the index with a `BTreeMap`, in one thread.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use hyades_platform::reclaim as epoch;
use proptest::prelude::*;

use super::*;

mod dividing;

pub(super) struct Entry {
    key: Vec<u8>,
}

impl Keyed for Entry {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

pub(super) fn entry(key: &[u8]) -> *mut Entry {
    Box::into_raw(Box::new(Entry { key: key.to_vec() }))
}

/// Retires an unlinked entry through the epoch.
pub(super) fn retire(entry: *const Entry, guard: &Guard) {
    // SAFETY: the tests retire an entry once, when not, or no longer, linked.
    unsafe { epoch::retire(guard, 0, move || drop(Box::from_raw(entry.cast_mut()))) };
}

/// A stamp copied by splits and joined by maximum in merges. A leaf with [`HELD`] in its stamp is
/// not merged.
#[derive(Default)]
pub(super) struct Stamp(pub AtomicU64);

const HELD: u64 = 1 << 63;

pub(super) struct Stamps;

impl GapHooks<Stamp> for Stamps {
    fn split(&self, from: &Stamp, to: &Stamp) {
        to.0.store(from.0.load(Ordering::SeqCst), Ordering::SeqCst);
    }
    fn merge(&self, into: &Stamp, from: &Stamp) {
        into.0.fetch_max(from.0.load(Ordering::SeqCst), Ordering::SeqCst);
    }
    fn may_merge(&self, from: &Stamp) -> bool {
        from.0.load(Ordering::SeqCst) & HELD == 0
    }
}

type Index = OrderedIndex<Entry, Stamp>;

pub(super) fn insert(index: &Index, key: &[u8], guard: &Guard) -> bool {
    insert_near(index, key, &mut Finger::new(guard))
}

pub(super) fn insert_near<'g>(index: &Index, key: &[u8], finger: &mut Finger<'g>) -> bool {
    let new = entry(key);
    // SAFETY: the entry has the key, and is retired only after the unlinking.
    match unsafe { index.insert_near(key, new, &Stamps, finger) } {
        Inserted::New(_) => true,
        Inserted::Exists(..) => {
            retire(new, finger.guard());
            false
        }
    }
}

pub(super) fn remove(index: &Index, key: &[u8], guard: &Guard) -> bool {
    let Some(found) = index.find(key, guard) else { return false };
    let taken = index.take(key, found, &Stamps, &|_| (), guard);
    taken.inspect(|&entry| retire(entry, guard)).is_some()
}

pub(super) fn drain(index: &Index) {
    let guard = epoch::pin();
    let mut keys = Vec::new();
    index.for_each(&guard, |e| keys.push(e.key.clone()));
    keys.iter().for_each(|key| assert!(remove(index, key, &guard)));
    assert_eq!(index.len_estimate(&guard), 0);
}

fn leaves(index: &Index, guard: &Guard) -> usize {
    let mut leaves = 0;
    index.scan(Bound::Unbounded, Bound::Unbounded, false, guard, &mut |_, _| {
        leaves += 1;
        ControlFlow::Continue(())
    });
    leaves
}

fn scan_keys(
    index: &Index,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
    descending: bool,
    guard: &Guard,
) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    index.scan(lower, upper, descending, guard, &mut |leaf, entries| {
        assert!(leaf.is_current());
        keys.extend(entries.iter().map(|e| e.key.clone()));
        ControlFlow::Continue(())
    });
    keys
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>),
    Remove(Vec<u8>),
    Get(Vec<u8>),
    Scan(Bound<Vec<u8>>, Bound<Vec<u8>>, bool),
    /// Removes up to a number of keys from a key on, to empty whole leaves.
    Clear(Vec<u8>, usize),
}

fn bound(key: impl Strategy<Value = Vec<u8>> + Clone) -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key.clone().prop_map(Bound::Included),
        key.prop_map(Bound::Excluded)
    ]
}

fn steps(
    key: impl Strategy<Value = Vec<u8>> + Clone,
    end: impl Strategy<Value = Vec<u8>> + Clone,
) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => key.clone().prop_map(Step::Insert),
        3 => key.clone().prop_map(Step::Remove),
        2 => key.clone().prop_map(Step::Get),
        2 => (bound(end.clone()), bound(end), any::<bool>())
            .prop_map(|(a, b, descending)| Step::Scan(a, b, descending)),
        1 => (key, 1usize..150).prop_map(|(key, n)| Step::Clear(key, n)),
    ];
    prop::collection::vec(step, 1..900)
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn in_range(key: &[u8], lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
    let above = match lower {
        Bound::Unbounded => true,
        Bound::Included(l) => key >= &l[..],
        Bound::Excluded(l) => key > &l[..],
    };
    above
        && match upper {
            Bound::Unbounded => true,
            Bound::Included(u) => key <= &u[..],
            Bound::Excluded(u) => key < &u[..],
        }
}

fn agree(shape: KeyShape, steps: Vec<Step>) {
    let index = Index::new(shape);
    let mut oracle: BTreeMap<Vec<u8>, ()> = BTreeMap::new();
    for step in steps {
        let guard = epoch::pin();
        match step {
            Step::Insert(key) => {
                let new = insert(&index, &key, &guard);
                assert_eq!(new, oracle.insert(key, ()).is_none());
            }
            Step::Remove(key) => {
                assert_eq!(remove(&index, &key, &guard), oracle.remove(&key).is_some());
            }
            Step::Get(key) => {
                let (found, leaf) = index.get(&key, &guard);
                assert_eq!(found.map(|e| &e.key), oracle.get_key_value(&key).map(|(k, _)| k));
                assert!(leaf.is_current());
            }
            Step::Scan(lower, upper, descending) => {
                let found =
                    scan_keys(&index, as_slice(&lower), as_slice(&upper), descending, &guard);
                let mut expected: Vec<Vec<u8>> =
                    oracle.keys().filter(|k| in_range(k, &lower, &upper)).cloned().collect();
                if descending {
                    expected.reverse();
                }
                assert_eq!(found, expected);
            }
            Step::Clear(from, n) => {
                let keys: Vec<_> = oracle.range(from..).take(n).map(|(k, _)| k.clone()).collect();
                for key in keys {
                    assert!(remove(&index, &key, &guard));
                    oracle.remove(&key);
                }
            }
        }
    }
    let guard = epoch::pin();
    let all = scan_keys(&index, Bound::Unbounded, Bound::Unbounded, false, &guard);
    assert_eq!(all, oracle.into_keys().collect::<Vec<_>>());
    drain(&index);
    assert_eq!(leaves(&index, &guard), 1, "empty leaves are given back");
}

/// Keys of `length` bytes with differences at both ends and long common prefixes.
fn fixed(length: usize) -> impl Strategy<Value = Vec<u8>> + Clone {
    (0u8..3, 0u16..700).prop_map(move |(head, tail)| {
        let mut key = vec![0x61; length];
        key[0] += head;
        key[length - 2..].copy_from_slice(&tail.to_be_bytes());
        key
    })
}

fn variable() -> impl Strategy<Value = Vec<u8>> + Clone {
    let short = prop::collection::vec(0u8..3, 0..12);
    let long = prop::collection::vec(0u8..2, 28..45);
    let zeros = (0usize..80).prop_map(|n| vec![0; n]);
    let tails = (0u16..600).prop_map(|n| [&[7; 40][..], &n.to_be_bytes()].concat());
    prop_oneof![short, long, zeros, tails]
}

/// Bounds may be shorter or longer than the keys.
fn ends(length: usize) -> impl Strategy<Value = Vec<u8>> + Clone {
    (fixed(length), 0usize..4, any::<bool>()).prop_map(|(mut key, n, longer)| {
        if longer {
            key.extend(std::iter::repeat_n(0, n));
        } else {
            key.truncate(key.len() - n);
        }
        key
    })
}

macro_rules! agrees_with_a_btree_map {
    ($($name:ident: $shape:expr, $key:expr, $end:expr;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig {
                cases: if cfg!(miri) { 1 } else { 48 },
                failure_persistence: None,
                ..ProptestConfig::default()
            })]
            $(#[test]
            fn $name(steps in steps($key, $end)) {
                agree($shape, steps);
            })*
        }
    };
}

agrees_with_a_btree_map! {
    fixed_4_agrees_with_a_btree_map: KeyShape::Fixed(4), fixed(4), ends(4);
    fixed_8_agrees_with_a_btree_map: KeyShape::Fixed(8), fixed(8), ends(8);
    fixed_12_agrees_with_a_btree_map: KeyShape::Fixed(12), fixed(12), ends(12);
    fixed_16_agrees_with_a_btree_map: KeyShape::Fixed(16), fixed(16), ends(16);
    fixed_25_agrees_with_a_btree_map: KeyShape::Fixed(25), fixed(25), ends(25);
    fixed_40_agrees_with_a_btree_map: KeyShape::Fixed(40), fixed(40), ends(40);
    variable_agrees_with_a_btree_map: KeyShape::Variable, variable(), variable();
}

const MANY: u64 = if cfg!(miri) { 300 } else { 20_000 };

#[test]
fn ascending_inserts_leave_full_leaves() {
    let index = Index::new(KeyShape::Fixed(8));
    let guard = epoch::pin();
    (0..MANY).for_each(|i| assert!(insert(&index, &i.to_be_bytes(), &guard)));
    let full = (MANY as usize).div_ceil(32);
    assert_eq!(leaves(&index, &guard), full);
    drain(&index);
}

#[test]
fn ascending_runs_in_the_middle_leave_full_leaves() {
    let index = Index::new(KeyShape::Fixed(16));
    let guard = epoch::pin();
    let runs = 8;
    for i in 0..MANY / runs {
        for run in 0..runs {
            let key = [run.to_be_bytes(), i.to_be_bytes()].concat();
            assert!(insert(&index, &key, &guard));
        }
    }
    let full = (MANY as usize).div_ceil(32);
    let used = leaves(&index, &guard);
    assert!(used <= full + full / 8 + 3 * runs as usize, "{used} leaves where {full} suffice");
    drain(&index);
}

#[test]
fn a_queue_gives_its_leaves_back() {
    let index = Index::new(KeyShape::Fixed(8));
    for i in 0..MANY {
        let guard = epoch::pin();
        assert!(insert(&index, &i.to_be_bytes(), &guard));
        if i >= 100 {
            assert!(remove(&index, &(i - 100).to_be_bytes(), &guard));
        }
        assert!(leaves(&index, &guard) <= 6);
    }
    drain(&index);
}

/// Leaves that may not be merged stay when emptied, with their ranges, and leave together with a
/// neighbour.
#[test]
fn leaves_that_were_held_leave_with_a_neighbour() {
    let (index, guard) = (Index::new(KeyShape::Fixed(8)), epoch::pin());
    let key = |i: u64| i.to_be_bytes();
    (0..MANY).for_each(|i| assert!(insert(&index, &key(i), &guard)));
    let held = (MANY / 2..MANY / 2 + 200).step_by(10).map(|i| index.get(&key(i), &guard).1);
    let held: BTreeMap<usize, Leaf<'_, Stamp>> = held.map(|leaf| (leaf.id(), leaf)).collect();
    held.values().for_each(|leaf| _ = leaf.gap().0.fetch_or(HELD, Ordering::SeqCst));
    (0..MANY).for_each(|i| assert!(remove(&index, &key(i), &guard)));
    assert!(leaves(&index, &guard) >= held.len());
    let leaf = index.get(&key(MANY / 2), &guard).1.id();
    assert!(held.contains_key(&leaf), "its range is where it was");
    held.values().for_each(|leaf| _ = leaf.gap().0.fetch_and(!HELD, Ordering::SeqCst));
    assert!(insert(&index, &key(MANY / 2), &guard) && remove(&index, &key(MANY / 2), &guard));
    assert_eq!(leaves(&index, &guard), 1);
}

#[test]
fn stamps_survive_splits_and_merges() {
    for shape in [KeyShape::Fixed(8), KeyShape::Fixed(40)] {
        let index = Index::new(shape);
        let guard = epoch::pin();
        let key = |i: u64| match shape {
            KeyShape::Fixed(8) => i.to_be_bytes().to_vec(),
            _ => [&[5; 32][..], &i.to_be_bytes()].concat(),
        };
        let order = |i: u64| i * 7919 % MANY;
        // The minimum stamp of each key's gap, as if each key had its own gap.
        let mut floor = vec![0; MANY as usize];
        let check = |index: &Index, floor: &[u64]| {
            for i in 0..MANY {
                let (_, leaf) = index.get(&key(i), &guard);
                assert!(leaf.gap().0.load(Ordering::SeqCst) >= floor[i as usize], "key {i}");
            }
        };
        for n in 0..MANY {
            insert(&index, &key(order(n)), &guard);
            if n.is_multiple_of(16) {
                let at = order(n + 5);
                index.get(&key(at), &guard).1.gap().0.fetch_max(n, Ordering::SeqCst);
                floor[at as usize] = n;
            }
        }
        check(&index, &floor);
        for n in 0..MANY {
            assert!(remove(&index, &key(order(n)), &guard));
        }
        check(&index, &floor);
        assert_eq!(leaves(&index, &guard), 1);
    }
}

#[test]
fn an_entry_leaves_its_stamp_to_the_gap() {
    let index = Index::new(KeyShape::Variable);
    let guard = epoch::pin();
    assert!(insert(&index, b"a", &guard));
    let found = index.find(b"a", &guard).unwrap();
    let leave = |gap: &Stamp| gap.0.store(42, Ordering::SeqCst);
    retire(index.take(b"a", found, &Stamps, &leave, &guard).unwrap(), &guard);
    assert_eq!(index.get(b"a", &guard).1.gap().0.load(Ordering::SeqCst), 42);
}

#[test]
fn another_entry_of_the_same_key_is_not_removed() {
    let index = Index::new(KeyShape::Fixed(4));
    let guard = epoch::pin();
    assert!(insert(&index, b"abcd", &guard));
    let other = entry(b"abcd");
    assert!(!index.remove(b"abcd", other, &Stamps, &guard));
    assert!(index.find(b"abcd", &guard).is_some());
    retire(other, &guard);
    drain(&index);
}

/// Observes misses, inserts, and applies its own changes to the observations, like a transaction.
#[test]
fn an_insertion_says_how_to_carry_observations_over() {
    let index = Index::new(KeyShape::Fixed(8));
    let guard = epoch::pin();
    let mut observed: BTreeMap<usize, Leaf<'_, Stamp>> = BTreeMap::new();
    for n in 0..MANY {
        let key = (n * 7919 % MANY).to_be_bytes();
        let (found, leaf) = index.get(&key, &guard);
        assert!(found.is_none());
        observed.insert(leaf.id(), leaf);
        // SAFETY: the entry has the key, and is retired only after the unlinking.
        let inserted = unsafe { index.insert(&key, entry(&key), &Stamps, &guard) };
        let Inserted::New(insertion) = inserted else { panic!("the key was free") };
        assert_eq!(leaf.id(), insertion.leaf.id());
        assert_eq!(leaf.version(), insertion.version_before);
        assert!(!leaf.is_current(), "the insertion changed the version");
        assert_eq!(index.get(&key, &guard).1.id(), insertion.holder().id());
        observed.insert(leaf.id(), insertion.leaf);
        if let Some(sibling) = insertion.sibling {
            observed.insert(sibling.id(), sibling);
        }
        if n.is_multiple_of(64) {
            assert!(observed.values().all(Leaf::is_current));
        }
    }
    assert!(observed.values().all(Leaf::is_current));
    drain(&index);
}

/// Every insertion into a scanned range changes a leaf visited by the scan.
#[test]
fn an_insertion_into_a_scanned_range_is_noticed() {
    let keys = |n: u64| [&[9; 36][..], &(n * 2).to_be_bytes()].concat();
    let count = if cfg!(miri) { 70 } else { 1_000 };
    let index = Index::new(KeyShape::Variable);
    let guard = epoch::pin();
    (0..count).for_each(|n| assert!(insert(&index, &keys(n * 7919 % count), &guard)));
    for at in 0..count {
        let (lower, upper) = (keys(at), keys(at + 40));
        for descending in [false, true] {
            let mut seen = Vec::new();
            let range = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
            index.scan(range.0, range.1, descending, &guard, &mut |leaf, _| {
                seen.push(leaf);
                ControlFlow::Continue(())
            });
            let place = (at + at * 31 % 40) * 2 + 1;
            let key = [&[9; 36][..], &place.to_be_bytes()].concat();
            assert!(insert(&index, &key, &guard));
            assert!(seen.iter().any(|leaf| !leaf.is_current()));
            assert!(remove(&index, &key, &guard));
        }
    }
    drain(&index);
}

#[test]
fn a_leaf_that_has_left_is_never_current() {
    let index = Index::new(KeyShape::Fixed(8));
    let guard = epoch::pin();
    (0..64u64).for_each(|i| assert!(insert(&index, &i.to_be_bytes(), &guard)));
    let (_, last) = index.get(&63u64.to_be_bytes(), &guard);
    let last = last.as_raw();
    (32..64u64).for_each(|i| assert!(remove(&index, &i.to_be_bytes(), &guard)));
    // SAFETY: the guard has been pinned since the leaf was observed.
    let last: Leaf<'_, Stamp> = unsafe { Leaf::from_raw(last, 0) };
    for version in 0..1_000 {
        assert_ne!(last.current(), version * 4);
    }
    drain(&index);
}

/// The leaf inheriting the range is to the left, or to the right where the empty leaf is the
/// parent's first child.
#[test]
fn a_leaf_that_inherits_a_range_changes() {
    for (heir, gone) in [(0u64, 32..64), (32, 0..32u64)] {
        let index = Index::new(KeyShape::Fixed(8));
        let guard = epoch::pin();
        (0..64u64).for_each(|i| assert!(insert(&index, &i.to_be_bytes(), &guard)));
        let (_, leaf) = index.get(&heir.to_be_bytes(), &guard);
        let next = gone.clone().next().unwrap();
        gone.for_each(|i| assert!(remove(&index, &i.to_be_bytes(), &guard)));
        assert!(!leaf.is_current());
        assert_eq!(index.get(&next.to_be_bytes(), &guard).1.id(), leaf.id());
        drain(&index);
    }
}

static COUNTED: AtomicU64 = AtomicU64::new(0);

/// A payload with a count of its instances.
struct Counted;

impl Default for Counted {
    fn default() -> Self {
        // Relaxed, here and below: only the test and the threads freeing leaves use the count.
        COUNTED.fetch_add(1, Ordering::Relaxed);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        COUNTED.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn every_leaf_is_freed_in_the_end() {
    let index: OrderedIndex<Entry, Counted> = OrderedIndex::new(KeyShape::Fixed(8));
    let entries: Vec<Entry> = (0..MANY).map(|i| Entry { key: i.to_be_bytes().to_vec() }).collect();
    for entry in &entries {
        let guard = epoch::pin();
        // SAFETY: the entries outlive the index.
        unsafe { index.insert(&entry.key, entry, &NoHooks, &guard) };
    }
    assert!(COUNTED.load(Ordering::Relaxed) >= MANY / 32);
    for entry in &entries[..MANY as usize / 2] {
        assert!(index.remove(&entry.key, entry, &NoHooks, &epoch::pin()));
    }
    drop(index);
    while COUNTED.load(Ordering::Relaxed) > 0 {
        epoch::settle();
        std::thread::yield_now();
    }
}
