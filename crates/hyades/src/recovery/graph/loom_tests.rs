//! Every schedule of stream readers that insert records, settle records and end.

use super::*;
use crate::logging::predecessors::id;
use hyades_platform::sync::Arc;
use loom::thread;

const READ: bool = false;
const OVERWRITTEN: bool = true;

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// The first thread reads the last stream, and the others read one stream each.
fn graph(lanes: usize, ordered: bool) -> Arc<Graph<()>> {
    Arc::new(Graph::with_window((0..lanes).map(|_| 0), ordered, lanes, 16))
}

fn named<const N: usize>(list: [(usize, bool); N]) -> [Predecessor; N] {
    list.map(|(lane, overwritten)| Predecessor { id: id(lane, 10), overwritten })
}

/// Reads the only record of a stream. The record ends at 10, lists nothing, is replayed at once,
/// and settles as live if `live`, or as dead.
fn read_alone(
    graph: &Graph<()>,
    lane: usize,
    live: bool,
    replayed: &AtomicU64,
    thread: &mut GraphThread,
) {
    // Relaxed: the graph alone must make the replay visible.
    replayed.store(1, Ordering::Relaxed);
    graph.settle(id(lane, 10), live, thread);
    graph.pass(lane, 10, thread);
}

/// Inserts a record into a stream, and returns whether the record was found ready, or dead, at
/// once.
fn arrive(
    graph: &Graph<()>,
    lane: usize,
    list: &[Predecessor],
    vector: &[Lsn],
    thread: &mut GraphThread,
) -> Admission {
    let admission = graph.arrive((lane, 10), list, vector, || (), thread);
    graph.pass(lane, 10, thread);
    admission
}

/// Takes the records released by the graph so far, and returns whether each is dead.
fn released(graph: &Graph<()>, thread: &mut GraphThread) -> Vec<bool> {
    std::iter::from_fn(|| graph.next_ready(thread)).map(|released| released.dead).collect()
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
            thread::spawn(move || {
                let thread = &mut graph.thread(1 + lane);
                read_alone(&graph, lane, true, &replayed[lane], thread);
            })
        });
        let own = &mut graph.thread(0);
        let check = || {
            let all = replayed.iter().all(|one| one.load(Ordering::Relaxed) == 1);
            assert!(all, "it runs too early");
        };
        let list = named([(0, READ), (1, OVERWRITTEN)]);
        let mut found = match arrive(&graph, 2, &list, &[0; 3], own) {
            Admission::Ready => 1,
            Admission::Waits => released(&graph, own).len(),
            Admission::Dead => panic!("nothing is lost"),
        };
        if found > 0 {
            check();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        found += released(&graph, own).len();
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
                thread::spawn(move || {
                    let thread = &mut graph.thread(1 + lane);
                    match lane {
                        0 => read_alone(&graph, 0, false, &AtomicU64::new(0), thread),
                        _ => graph.end(1, 5, thread),
                    }
                })
            });
            let own = &mut graph.thread(0);
            let list = named([(0, dead), (1, lost)]);
            let mut found = match arrive(&graph, 2, &list, &[0; 3], own) {
                Admission::Ready => vec![false],
                Admission::Dead => vec![true],
                Admission::Waits => released(&graph, own),
            };
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            found.extend(released(&graph, own));
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
                let thread = &mut other.thread(1);
                if end == 10 {
                    read_alone(&other, 0, true, &AtomicU64::new(0), thread);
                }
                other.end(0, end, thread);
            });
            let own = &mut graph.thread(0);
            let mut found = match arrive(&graph, 1, &[], &[10, 0], own) {
                Admission::Ready => vec![false],
                Admission::Dead => vec![true],
                Admission::Waits => released(&graph, own),
            };
            thread.join().unwrap();
            found.extend(released(&graph, own));
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
        let own = &mut graph.thread(0);
        for lane in [1, 2] {
            let admission = arrive(&graph, lane, &named([(0, READ)]), &[0; 3], own);
            assert_eq!(admission, Admission::Waits);
        }
        let serve = |graph: &Graph<()>, thread: &mut GraphThread| {
            let mut taken = 0;
            while let Some(released) = graph.next_ready(thread) {
                graph.settle(released.id, true, thread);
                taken += 1;
            }
            taken
        };
        let other = Arc::clone(&graph);
        let thread = thread::spawn(move || serve(&other, &mut other.thread(1)));
        read_alone(&graph, 0, true, &AtomicU64::new(0), own);
        let taken = serve(&graph, own);
        let taken = taken + thread.join().unwrap() + serve(&graph, own);
        assert_eq!(taken, 2);
        assert_eq!([0, 1, 2].map(|lane| graph.settled(lane)), [10; 3]);
    });
}

/// Two records of a stream wait, and two threads settle them while the stream is read on: the
/// settled position passes both, whichever is the last.
#[test]
fn the_settled_position_passes_all_that_has_settled() {
    model(|| {
        let graph: Arc<Graph<()>> = Arc::new(Graph::with_window([0, 0], true, 2, 32));
        let own = &mut graph.thread(0);
        let list = named([(1, OVERWRITTEN)]);
        for end in [10, 20] {
            let admission = graph.arrive((0, end), &list, &[0; 2], || (), own);
            assert_eq!(admission, Admission::Waits);
            graph.pass(0, end, own);
        }
        graph.end(1, 5, own);
        let [first, second] = [0; 2].map(|_| graph.next_ready(own).expect("it lacks nothing"));
        let other = Arc::clone(&graph);
        let thread = thread::spawn(move || {
            other.settle(first.id, true, &mut other.thread(1));
        });
        graph.settle(second.id, true, own);
        graph.pass(0, 25, own);
        thread.join().unwrap();
        assert_eq!((graph.settled(0), graph.waiting(0)), (25, 0));
    });
}

/// A record lists a record behind the window of a stream while the stream comes near, or ends.
#[test]
fn a_record_far_ahead_is_found_when_the_stream_comes_near() {
    for end in [40, 30] {
        model(move || {
            let graph: Arc<Graph<()>> = Arc::new(Graph::with_window([0, 0], true, 2, 16));
            let other = Arc::clone(&graph);
            let thread = thread::spawn(move || {
                let thread = &mut other.thread(1);
                other.pass(0, 30, thread);
                if end == 40 {
                    other.settle(id(0, 40), true, thread);
                    other.pass(0, 40, thread);
                }
                other.end(0, end, thread);
            });
            let own = &mut graph.thread(0);
            let list = [Predecessor { id: id(0, 40), overwritten: READ }];
            let mut found = match arrive(&graph, 1, &list, &[0; 2], own) {
                Admission::Ready => vec![false],
                Admission::Dead => vec![true],
                Admission::Waits => released(&graph, own),
            };
            thread.join().unwrap();
            found.extend(released(&graph, own));
            assert_eq!(found, [end < 40]);
        });
    }
}

/// A stream is read a window further while its last waiting record settles, and a record of another
/// stream names the settled record: the cell stays with the later record.
#[test]
fn an_earlier_name_takes_no_cell_of_a_later_record() {
    model(|| {
        let graph: Arc<Graph<()>> = Arc::new(Graph::with_window([0; 3], true, 3, 16));
        let own = &mut graph.thread(0);
        let admission = arrive(&graph, 0, &named([(1, OVERWRITTEN)]), &[0; 3], own);
        assert_eq!(admission, Admission::Waits);
        graph.end(1, 5, own);
        let first = graph.next_ready(own).expect("it lacks nothing").id;
        let threads = [1, 2].map(|number| {
            let graph = Arc::clone(&graph);
            thread::spawn(move || {
                let thread = &mut graph.thread(number);
                if number == 1 {
                    graph.settle(first, true, thread);
                } else {
                    let admission = arrive(&graph, 2, &named([(0, READ)]), &[0; 3], thread);
                    assert_ne!(admission, Admission::Dead);
                }
            })
        });
        let is_read = graph.has_room(0, 26);
        if is_read {
            let list = [Predecessor { id: id(2, 20), overwritten: OVERWRITTEN }];
            let admission = graph.arrive((0, 26), &list, &[0; 3], || (), own);
            assert_eq!(admission, Admission::Waits);
            graph.pass(0, 26, own);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        graph.end(2, 12, own);
        while let Some(released) = graph.next_ready(own) {
            assert!(!released.dead, "nothing that was read is lost");
            graph.settle(released.id, true, own);
        }
        let to = if is_read { 26 } else { 10 };
        assert_eq!([0, 2].map(|lane| graph.settled(lane)), [to, 12]);
        assert_eq!([0, 2].map(|lane| graph.waiting(lane)), [0, 0]);
    });
}
