//! Every schedule of stream readers that insert records, settle records and end.

use super::*;
use crate::logging::predecessors::id;
use loom::thread;

const READ: bool = false;
const OVERWRITTEN: bool = true;

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

fn graph(lanes: usize, ordered: bool) -> Arc<Graph<()>> {
    Arc::new(Graph::new((0..lanes).map(|_| 0), ordered))
}

fn named<const N: usize>(list: [(usize, bool); N]) -> [Predecessor; N] {
    list.map(|(lane, overwritten)| Predecessor { id: id(lane, 10), overwritten })
}

/// Reads the only record of a stream. The record ends at 10, lists nothing, is replayed at once,
/// and settles as live if `live`, or as dead.
fn read_alone(graph: &Graph<()>, lane: usize, live: bool, replayed: &AtomicU64) {
    // Relaxed: the graph alone must make the replay visible.
    replayed.store(1, Ordering::Relaxed);
    graph.settle(id(lane, 10), live);
    graph.pass(lane, 10);
}

/// Inserts a record into a stream, and returns whether the record was found ready, or dead, at
/// once.
fn arrive(graph: &Graph<()>, lane: usize, list: &[Predecessor], vector: &[Lsn]) -> Admission {
    let admission = graph.arrive((lane, 10), list, vector, || ());
    graph.pass(lane, 10);
    admission
}

/// Takes the records released by the graph so far, and returns whether each is dead.
fn released(graph: &Graph<()>) -> Vec<bool> {
    std::iter::from_fn(|| graph.next_ready()).map(|node| node.is_dead()).collect()
}

/// Two streams are read while a record is inserted, a reader of the first stream's record and an
/// overwriter of the second's: the new record is released once, after both are replayed, by either
/// thread.
#[test]
fn a_record_is_released_once_and_after_what_it_lists() {
    model(|| {
        let graph = graph(3, true);
        let replayed = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let threads = [0, 1].map(|lane| {
            let (graph, replayed) = (Arc::clone(&graph), Arc::clone(&replayed));
            thread::spawn(move || read_alone(&graph, lane, true, &replayed[lane]))
        });
        let check = || {
            let all = replayed.iter().all(|one| one.load(Ordering::Relaxed) == 1);
            assert!(all, "it runs too early");
        };
        let list = named([(0, READ), (1, OVERWRITTEN)]);
        let mut found = match arrive(&graph, 2, &list, &[0; 3]) {
            Admission::Ready => 1,
            Admission::Waits => released(&graph).len(),
            Admission::Dead => panic!("nothing is lost"),
        };
        if found > 0 {
            check();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        found += released(&graph).len();
        check();
        assert_eq!(found, 1);
    });
}

/// A record settles as dead, and a second is beyond the end of its stream, while a follower of both
/// is inserted: the follower is dead iff it has read from the first or the second.
#[test]
fn a_record_is_dead_if_it_has_read_what_is_dead_or_lost() {
    for (dead, lost) in [(READ, OVERWRITTEN), (OVERWRITTEN, READ), (OVERWRITTEN, OVERWRITTEN)] {
        model(move || {
            let graph = graph(3, true);
            let threads = [0, 1].map(|lane| {
                let graph = Arc::clone(&graph);
                thread::spawn(move || match lane {
                    0 => read_alone(&graph, 0, false, &AtomicU64::new(0)),
                    _ => graph.end(1, 5),
                })
            });
            let list = named([(0, dead), (1, lost)]);
            let mut found = match arrive(&graph, 2, &list, &[0; 3]) {
                Admission::Ready => vec![false],
                Admission::Dead => vec![true],
                Admission::Waits => released(&graph),
            };
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            found.extend(released(&graph));
            let has_read = !(dead && lost);
            assert_eq!(found, [has_read], "released once, and dead if it has read");
        });
    }
}

/// A record waits for a position needed by its vector while the stream reaches the position, or
/// ends before.
#[test]
fn a_record_waits_for_the_positions_of_its_vector() {
    for (end, ordered) in [(10, true), (10, false), (5, true), (5, false)] {
        model(move || {
            let graph = graph(2, ordered);
            let other = Arc::clone(&graph);
            let thread = thread::spawn(move || {
                if end == 10 {
                    read_alone(&other, 0, true, &AtomicU64::new(0));
                }
                other.end(0, end);
            });
            let mut found = match arrive(&graph, 1, &[], &[10, 0]) {
                Admission::Ready => vec![false],
                Admission::Dead => vec![true],
                Admission::Waits => released(&graph),
            };
            thread.join().unwrap();
            found.extend(released(&graph));
            assert_eq!(found, [end < 10]);
        });
    }
}

/// Two records wait for a third, and two threads look for released records: each thread takes one
/// record, or a single thread takes both, and the streams settle up to their ends.
#[test]
fn each_released_record_is_taken_by_one_thread() {
    model(|| {
        let graph = graph(3, true);
        for lane in [1, 2] {
            let admission = arrive(&graph, lane, &named([(0, READ)]), &[0; 3]);
            assert_eq!(admission, Admission::Waits);
        }
        let serve = |graph: &Graph<()>| {
            let taken = std::iter::from_fn(|| graph.next_ready());
            taken.inspect(|node| graph.settle(node.id, true)).count()
        };
        let other = Arc::clone(&graph);
        let thread = thread::spawn(move || serve(&other));
        read_alone(&graph, 0, true, &AtomicU64::new(0));
        let taken = serve(&graph);
        let taken = taken + thread.join().unwrap() + serve(&graph);
        assert_eq!(taken, 2);
        assert_eq!([0, 1, 2].map(|lane| graph.settled(lane)), [10; 3]);
    });
}
