//! The records of a pool, in the order of their stream. One thread at a time puts records in, any
//! thread takes out any record, and no thread waits for another.
//!
//! A record has a number; its slot is the number modulo the ring's size. The slot's state includes
//! the number, too, and goes *waiting*, *running*, *done*. `head` is the lowest number not yet
//! done: the next record has a free slot if its number is below `head` plus the ring's size.
//!
//! A reader of a slot reads only values of the requested record. The producer writes a slot's start
//! and words (Release) after seeing the slot's last record below `head`, thus after the last record
//! became done. A reader of any new value (Acquire) then reads the state again, and finds the old
//! record no longer there.
//!
//! `head` is raised by delegation: a thread whose record is done goes on at once, unless the record
//! is the first. The thread with the first record raises `head` over all done records. Neither
//! thread misses the other: each writes its own variable, then reads the variable of the other, all
//! SeqCst.

use hyades_platform::sync::{AtomicU64, Mutex, Ordering, Padded, Unpoisoned, checker_fence};
use hyades_wal::Lsn;

const WAITING: u64 = 1;
const RUNNING: u64 = 2;
const DONE: u64 = 3;

/// The state of the slot of the record with this number.
fn state(number: u64, what: u64) -> u64 {
    number << 2 | what
}

struct RingSlot<T> {
    /// 0 before the first record. Written by the producer, then by the record's taker.
    state: AtomicU64,
    /// The start of the record's frame.
    start: AtomicU64,
    /// The words that decide whether the record may run.
    words: Box<[AtomicU64]>,
    /// Locked by the producer before the record waits, and by its taker: never by two threads.
    record: Mutex<Option<T>>,
}

/// Records of one stream.
pub(super) struct RecordRing<T> {
    slots: Box<[RingSlot<T>]>,
    /// The lowest number not yet done. Raised by a thread that finds the record done.
    head: Padded<AtomicU64>,
    /// The number of the next record. Written by the producer.
    tail: Padded<AtomicU64>,
}

impl<T> RecordRing<T> {
    /// Creates a ring of `slots` records, each with `words` words.
    pub fn new(slots: usize, words: usize) -> RecordRing<T> {
        debug_assert!(slots.is_power_of_two(), "numbers are masked");
        let slot = |_| RingSlot {
            state: AtomicU64::new(0),
            start: AtomicU64::new(0),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            record: Mutex::new(None),
        };
        RecordRing {
            slots: (0..slots).map(slot).collect(),
            head: Padded(AtomicU64::new(0)),
            tail: Padded(AtomicU64::new(0)),
        }
    }

    fn slot(&self, number: u64) -> &RingSlot<T> {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }

    /// Returns the numbers of the records possibly present.
    pub fn numbers(&self) -> std::ops::Range<u64> {
        // The head first: the head is never above a later tail.
        let head = self.head.load(Ordering::Acquire);
        head..self.tail.load(Ordering::Acquire)
    }

    /// Returns the number of records possibly present.
    pub fn len(&self) -> usize {
        let numbers = self.numbers();
        (numbers.end - numbers.start) as usize
    }

    /// Whether a record can be put in. For the producer.
    pub fn has_room(&self) -> bool {
        self.len() < self.slots.len()
    }

    /// Puts a record in; the ring must have [room](Self::has_room). One thread at a time may call.
    pub fn put(&self, start: Lsn, words: impl Iterator<Item = u64>, record: T) {
        debug_assert!(self.has_room(), "the slot has a record that is not done");
        let number = self.tail.load(Ordering::Relaxed);
        let slot = self.slot(number);
        slot.start.store(start, Ordering::Release);
        for (to, word) in slot.words.iter().zip(words) {
            to.store(word, Ordering::Release);
        }
        *slot.record.lock().unpoisoned() = Some(record);
        slot.state.store(state(number, WAITING), Ordering::SeqCst);
        self.tail.store(number + 1, Ordering::Release);
    }

    /// Reads the words of a waiting record; false if the record does not wait.
    pub fn look(&self, number: u64, words: &mut [u64]) -> bool {
        let slot = self.slot(number);
        let waiting = || slot.state.load(Ordering::Acquire) == state(number, WAITING);
        if !waiting() {
            return false;
        }
        for (to, word) in words.iter_mut().zip(&slot.words) {
            *to = word.load(Ordering::Acquire);
        }
        waiting()
    }

    /// Takes a waiting record, with its start: the record runs from then on. `None` if the record
    /// does not wait any more.
    pub fn take(&self, number: u64) -> Option<(Lsn, T)> {
        let slot = self.slot(number);
        let (from, to) = (state(number, WAITING), state(number, RUNNING));
        slot.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        // No other thread touches the slot until the record is done.
        let record = slot.record.lock().unpoisoned().take();
        let record = record.expect("it was put in before it waited");
        Some((slot.start.load(Ordering::Acquire), record))
    }

    /// Marks a taken record as done. Returns whether all records before are done: then the caller
    /// goes on with [`lowest`](Self::lowest).
    pub fn finish(&self, number: u64) -> bool {
        let slot = self.slot(number);
        debug_assert_eq!(
            slot.state.load(Ordering::Relaxed),
            state(number, RUNNING),
            "a record is done once"
        );
        slot.state.store(state(number, DONE), Ordering::SeqCst);
        checker_fence();
        self.head.load(Ordering::SeqCst) == number
    }

    /// Raises the head over all done records. Returns the start of the first record not done;
    /// `None` if all records put in are done.
    pub fn lowest(&self) -> Option<Lsn> {
        loop {
            let head = self.head.load(Ordering::SeqCst);
            let slot = self.slot(head);
            let now = slot.state.load(Ordering::SeqCst);
            if now == state(head, DONE) {
                // If another thread was faster, there is nothing to do.
                let to = head + 1;
                let _ = self.head.compare_exchange(head, to, Ordering::SeqCst, Ordering::Relaxed);
                checker_fence();
            } else if now >> 2 == head && now != 0 {
                let start = slot.start.load(Ordering::Acquire);
                if slot.state.load(Ordering::SeqCst) >> 2 == head {
                    return Some(start);
                }
            } else if self.head.load(Ordering::SeqCst) == head {
                return None;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_unfinished_holds_the_lowest_start() {
        let ring: RecordRing<u64> = RecordRing::new(4, 2);
        assert_eq!(ring.lowest(), None);
        for n in 0..4 {
            assert!(ring.has_room());
            ring.put(10 * (n + 1), [n, n + 100].into_iter(), n);
        }
        assert!(!ring.has_room());
        assert_eq!((ring.numbers(), ring.lowest()), (0..4, Some(10)));
        let mut words = [0; 2];
        assert!(ring.look(2, &mut words) && words == [2, 102]);
        assert_eq!(ring.take(2), Some((30, 2)));
        assert!(!ring.look(2, &mut words), "it runs");
        assert_eq!(ring.take(2), None);
        assert!(!ring.finish(2), "the first is not done");
        assert_eq!(ring.lowest(), Some(10));
        assert_eq!(ring.take(0), Some((10, 0)));
        assert_eq!(ring.lowest(), Some(10), "what runs is not done");
        assert!(ring.finish(0));
        assert_eq!(ring.lowest(), Some(20));
        assert_eq!(ring.take(1), Some((20, 1)));
        assert!(ring.finish(1));
        assert_eq!(ring.lowest(), Some(40));
        // A slot's next record.
        ring.put(50, [7, 8].into_iter(), 9);
        assert!(!ring.look(0, &mut words));
        assert!(ring.look(4, &mut words) && words == [7, 8]);
        assert_eq!(ring.take(3).map(|(start, _)| start), Some(40));
        assert!(ring.finish(3));
        assert_eq!(ring.take(4), Some((50, 9)));
        assert!(!ring.finish(4), "the head is raised by whoever finished the one before");
        assert_eq!((ring.lowest(), ring.len()), (None, 0));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// A producer and two workers on a ring of two slots: in every schedule no start is reported
    /// above an unfinished record, each record is taken once, and at the end all are passed.
    #[test]
    fn the_lowest_start_passes_nothing_that_is_not_done() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            const RECORDS: u64 = 3;
            let done: Vec<_> = (0..RECORDS).map(|_| AtomicU64::new(0)).collect();
            let shared = Arc::new((RecordRing::<u64>::new(2, 1), done));
            let worker = |rounds: usize| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    let (ring, done) = &*shared;
                    for _ in 0..rounds {
                        for number in ring.numbers() {
                            let mut words = [0];
                            if !ring.look(number, &mut words) {
                                continue;
                            }
                            assert_eq!(words, [number + 100]);
                            let Some((start, record)) = ring.take(number) else { continue };
                            assert_eq!((start, record), (number + 1, number));
                            done[number as usize].fetch_add(1, Ordering::SeqCst);
                            if ring.finish(number) {
                                let to = ring.lowest().unwrap_or(0);
                                for below in (0..RECORDS).filter(|n| n + 1 < to) {
                                    assert_eq!(done[below as usize].load(Ordering::SeqCst), 1);
                                }
                            }
                        }
                    }
                })
            };
            let threads = [worker(1), worker(1)];
            let (ring, done) = &*shared;
            for number in 0..RECORDS {
                if ring.has_room() {
                    ring.put(number + 1, [number + 100].into_iter(), number);
                } else {
                    break;
                }
            }
            for thread in threads {
                thread.join().unwrap();
            }
            let left = ring.numbers();
            assert!(
                left.is_empty() || done[left.start as usize].load(Ordering::SeqCst) == 0,
                "nobody has left a done record at the head"
            );
            // The remaining records, in one thread.
            for number in ring.numbers() {
                if ring.take(number).is_some() {
                    done[number as usize].fetch_add(1, Ordering::SeqCst);
                    ring.finish(number);
                }
                ring.lowest();
            }
            assert_eq!(ring.lowest(), None);
        });
    }
}
