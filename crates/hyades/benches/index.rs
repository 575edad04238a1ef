//! Operations per second of the indexes: `cargo bench -p hyades --bench index [entries] [name]`.

use std::hint::black_box;
use std::ops::{Bound, ControlFlow};
use std::time::Instant;

use hyades::hash_index::{HashIndex, HashSecret, hash_key};
use hyades_index::{Inserted, KeyShape, Keyed, NoHooks, OrderedIndex};
use hyades_platform::reclaim as epoch;
use smallvec::{SmallVec, smallvec};

struct Entry {
    key: Vec<u8>,
}

impl Keyed for Entry {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

/// A key built on the stack, without touching the memory of any entry.
type Key = SmallVec<[u8; 24]>;

/// An entry with its key in the same cache line, as in a row.
#[repr(align(32))]
struct Slim {
    key: [u8; 8],
}

impl Keyed for Slim {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

fn report(what: &str, operations: usize, threads: usize, work: impl Fn(usize) + Sync) {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
    let seconds = begin.elapsed().as_secs_f64();
    println!("{what:32} {threads} threads {:8.2} Mop/s", operations as f64 / seconds / 1e6);
}

fn ordered(name: &str, shape: KeyShape, count: usize, key: impl Fn(u64) -> Key + Sync) {
    let mut order: Vec<u64> = (0..count as u64).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut order);
    let entries: Vec<Entry> = order.iter().map(|&i| Entry { key: key(i).to_vec() }).collect();
    for threads in [1, 2] {
        let index: OrderedIndex<Entry, ()> = OrderedIndex::new(shape);
        let part = count / threads;
        report(&format!("{name} insert"), part * threads, threads, |thread| {
            for entry in &entries[thread * part..][..part] {
                let guard = epoch::pin();
                // SAFETY: the entries outlive the index.
                let new = unsafe { index.insert(&entry.key, entry, &NoHooks, &guard) };
                assert!(matches!(new, Inserted::New(_)));
            }
        });
        report(&format!("{name} get"), part * threads, threads, |thread| {
            let mut random = fastrand::Rng::with_seed(thread as u64);
            for _ in 0..part {
                let key = key(random.u64(0..count as u64));
                black_box(index.find(&key, &epoch::pin()));
            }
        });
        let scans = part / 20;
        report(&format!("{name} scan 100 (keys)"), scans * threads * 100, threads, |thread| {
            let mut random = fastrand::Rng::with_seed(thread as u64);
            for _ in 0..scans {
                let lower = key(random.u64(0..count as u64));
                let mut left = 100usize;
                let range = (Bound::Included(&lower[..]), Bound::Unbounded);
                index.scan(range.0, range.1, false, &epoch::pin(), &mut |_, found| {
                    for entry in found.iter().take(left) {
                        black_box(std::ptr::from_ref(*entry));
                    }
                    left = left.saturating_sub(found.len());
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
            }
        });
    }
}

fn hash(count: usize) {
    let slim: Vec<Slim> = (0..count as u64).map(|i| Slim { key: i.to_le_bytes() }).collect();
    for threads in [1, 2] {
        let index: HashIndex<Slim> = HashIndex::new(0, HashSecret::KNOWN);
        let part = count / threads;
        report("hash insert, growing", part * threads, threads, |thread| {
            for entry in &slim[thread * part..][..part] {
                let (hash, guard) = (hash_key(&entry.key), epoch::pin());
                // SAFETY: the entries outlive the index.
                assert!(unsafe { index.insert(&entry.key, hash, entry, &guard) }.is_ok());
            }
        });
        for (what, offset) in [("hash get", 0), ("hash miss", count as u64)] {
            report(what, count * threads, threads, |thread| {
                let mut random = fastrand::Rng::with_seed(thread as u64);
                for _ in 0..count {
                    let key = (random.u64(0..count as u64) + offset).to_le_bytes();
                    black_box(index.get(&key, hash_key(&key), &epoch::pin()));
                }
            });
        }
        report("hash get, prefetched by 8", count * threads, threads, |thread| {
            let mut random = fastrand::Rng::with_seed(thread as u64);
            for _ in 0..count / 8 {
                let keys: [_; 8] =
                    std::array::from_fn(|_| random.u64(0..count as u64).to_le_bytes());
                let guard = epoch::pin();
                keys.iter().for_each(|key| index.prefetch(hash_key(key), &guard));
                for key in &keys {
                    black_box(index.get(key, hash_key(key), &guard));
                }
            }
        });
    }
}

fn main() {
    let count = std::env::args().find_map(|a| a.parse().ok()).unwrap_or(1 << 20);
    let names: Vec<String> =
        std::env::args().skip(1).filter(|a| a.starts_with(char::is_alphabetic)).collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|n| name.contains(n.as_str()));
    if wanted("word") {
        ordered("word", KeyShape::Fixed(8), count, |i| Key::from_slice(&i.to_be_bytes()));
    }
    if wanted("pair") {
        ordered("pair", KeyShape::Fixed(12), count, |i| {
            let mut key = Key::from_slice(&((i % 100) as u32).to_be_bytes());
            key.extend_from_slice(&(i / 100).to_be_bytes());
            key
        });
    }
    if wanted("long") {
        ordered("long", KeyShape::Variable, count, |i| {
            let mut key: Key = smallvec![b'c'; 9];
            key.extend_from_slice(&(i as u32).to_be_bytes());
            key
        });
    }
    if wanted("hash") {
        hash(count);
    }
}
