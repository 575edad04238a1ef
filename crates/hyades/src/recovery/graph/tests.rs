//! Tests the graph against the basic recovery in three phases.

use super::lane::CELL;
use super::oracle::{self, Logged};
use super::*;
use crate::logging::predecessors::{end, id, lane};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Transactions over a few rows, on streams cut at random positions.
struct World {
    logged: Vec<Logged>,
    /// The rows written by each record.
    writes: BTreeMap<Id, Vec<usize>>,
    starts: Vec<Lsn>,
    ends: Vec<Lsn>,
}

/// Runs transactions serially and logs each as the protocol does. Then cuts off the end of every
/// stream, and sometimes truncates a prefix held by a checkpoint.
fn world(rng: &mut Rng) -> World {
    let lanes = rng.usize(1..5);
    let rows = rng.usize(1..12);
    let mut last: Vec<Id> = vec![0; rows];
    let mut at: Vec<Lsn> = (0..lanes).map(|_| rng.u64(0..100)).collect();
    at.iter_mut().for_each(|at| *at *= CELL);
    let begin = at.clone();
    let (mut logged, mut writes) = (Vec::new(), BTreeMap::new());
    for _ in 0..rng.usize(1..120) {
        let stream = rng.usize(0..lanes);
        let mut list: BTreeMap<Id, bool> = BTreeMap::new();
        for _ in 0..rng.usize(0..4) {
            list.insert(last[rng.usize(0..rows)], false);
        }
        let wrote: Vec<usize> = (0..rng.usize(1..4)).map(|_| rng.usize(0..rows)).collect();
        for row in &wrote {
            list.entry(last[*row]).or_insert(rng.bool());
        }
        list.remove(&0);
        let mut vector = vec![0; lanes];
        if rng.u32(0..8) == 0 {
            let on = rng.usize(0..lanes);
            vector[on] = at[on].saturating_sub(rng.u64(0..40) * CELL);
        }
        at[stream] += CELL + rng.u64(0..8 * CELL);
        let id = id(stream, at[stream]);
        wrote.iter().for_each(|row| last[*row] = id);
        let named = |(id, overwritten)| Predecessor { id, overwritten };
        logged.push(Logged { id, list: list.into_iter().map(named).collect(), vector });
        writes.insert(id, wrote);
    }
    // A checkpoint holds the effects of a prefix of the serial order.
    let kept = rng.usize(0..logged.len());
    let mut starts = begin;
    for gone in logged.drain(..if rng.bool() { kept } else { 0 }) {
        starts[lane(gone.id)] = end(gone.id);
    }
    let ends: Vec<Lsn> = starts
        .iter()
        .zip(&at)
        .map(|(start, at)| if rng.u32(0..3) == 0 { *at } else { rng.u64(*start..=*at) })
        .collect();
    logged.retain(|record| end(record.id) <= ends[lane(record.id)]);
    World { logged, writes, starts, ends }
}

/// The observed results of a run of the graph.
struct Shown {
    live: BTreeSet<Id>,
    /// In the order of replay.
    order: Vec<Id>,
}

/// A run of the graph on a world.
struct GraphRun<'w> {
    world: &'w World,
    ordered: bool,
    graph: Graph<Id>,
    /// The unread records of each stream.
    streams: Vec<VecDeque<&'w Logged>>,
    ended: Vec<bool>,
    /// Threads that read and replay in turn.
    threads: [GraphThread; 2],
    /// Records released by the graph.
    released: Vec<ReleasedRecord<Id>>,
    /// Records whose replay has begun, if records settle only after replay.
    replaying: Vec<Id>,
    shown: Shown,
}

/// Bytes of the window: less than many streams have.
const SMALL: u64 = 32 * CELL;

impl<'w> GraphRun<'w> {
    fn new(world: &'w World, ordered: bool) -> Self {
        let lanes = world.starts.len();
        let mut streams: Vec<VecDeque<&Logged>> = vec![VecDeque::new(); lanes];
        for logged in &world.logged {
            streams[lane(logged.id)].push_back(logged);
        }
        let graph = Graph::with_window(world.starts.iter().copied(), ordered, 2, SMALL);
        GraphRun {
            world,
            ordered,
            threads: [0, 1].map(|number| graph.thread(number)),
            graph,
            streams,
            ended: vec![false; lanes],
            released: Vec::new(),
            replaying: Vec::new(),
            shown: Shown { live: BTreeSet::new(), order: Vec::new() },
        }
    }

    /// Reads the next record of a stream, or its end. Returns false if the end was read before, or
    /// the stream may not be read further.
    fn read(&mut self, at: usize, rng: &mut Rng) -> bool {
        let (graph, thread) = (&self.graph, &mut self.threads[rng.usize(0..2)]);
        let Some(logged) = self.streams[at].front() else {
            let is_new = !std::mem::replace(&mut self.ended[at], true);
            if is_new {
                graph.end(at, self.world.ends[at], thread);
            }
            return is_new;
        };
        if !graph.has_room(at, end(logged.id)) {
            return false;
        }
        // A record replayed at once holds up its stream's reader.
        let logged = self.streams[at].pop_front().expect("it was there");
        let place = (at, end(logged.id));
        match graph.arrive(place, &logged.list, &logged.vector, || logged.id, thread) {
            Admission::Waits => {}
            Admission::Dead => graph.settle(logged.id, false, thread),
            Admission::Ready => {
                self.shown.live.insert(logged.id);
                self.shown.order.push(logged.id);
                graph.settle(logged.id, true, thread);
            }
        }
        graph.pass(at, end(logged.id), thread);
        true
    }

    /// Handles a record released by the graph. Returns false if there is none.
    fn replay_released(&mut self, rng: &mut Rng) -> bool {
        let (graph, thread) = (&self.graph, &mut self.threads[rng.usize(0..2)]);
        self.released.extend(graph.next_ready(thread));
        if self.released.is_empty() {
            return false;
        }
        let released = self.released.swap_remove(rng.usize(0..self.released.len()));
        let id = released.id;
        assert_eq!(released.record, id);
        if released.dead {
            graph.settle(id, false, thread);
            return true;
        }
        self.shown.live.insert(id);
        if self.ordered {
            self.replaying.push(id);
        } else {
            self.shown.order.push(id);
            graph.settle(id, true, thread);
        }
        true
    }

    /// Ends the replay of a record. Returns false if none is being replayed.
    fn finish_replay(&mut self, rng: &mut Rng) -> bool {
        if self.replaying.is_empty() {
            return false;
        }
        let id = self.replaying.swap_remove(rng.usize(0..self.replaying.len()));
        self.shown.order.push(id);
        self.graph.settle(id, true, &mut self.threads[rng.usize(0..2)]);
        true
    }

    /// Whether nothing is left to be done. Takes the records that the graph still releases.
    fn is_over(&mut self) -> bool {
        self.released.extend(self.graph.next_ready(&mut self.threads[0]));
        let all_ended = self.ended.iter().all(|ended| *ended);
        all_ended && self.released.is_empty() && self.replaying.is_empty()
    }
}

/// Runs the graph in a random order of reading and replaying.
fn run(world: &World, ordered: bool, rng: &mut Rng) -> Shown {
    let mut run = GraphRun::new(world, ordered);
    let lanes = world.starts.len();
    loop {
        let moved = match rng.u32(0..3) {
            0 => run.read(rng.usize(0..lanes), rng),
            1 => run.replay_released(rng),
            _ => run.finish_replay(rng),
        };
        if !moved && run.is_over() {
            break;
        }
    }
    assert_eq!(run.graph.misnamed(), None, "a record ends at each name");
    for at in 0..lanes {
        assert_eq!(run.graph.waiting(at), 0, "a record waits for ever");
        assert_eq!(run.graph.settled(at), world.ends[at], "the stream has not settled");
        assert!(run.graph.lanes[at].has_no_edges(), "a successor was forgotten");
    }
    run.shown
}

#[test]
fn the_graph_recovers_what_the_three_phases_recover() {
    for seed in 0..4_000 {
        let mut rng = Rng::with_seed(seed);
        let world = world(&mut rng);
        let expected = oracle::live(&world.logged, &world.starts, &world.ends);
        for ordered in [false, true] {
            let shown = run(&world, ordered, &mut rng);
            assert_eq!(shown.live, expected, "seed {seed}, ordered {ordered}");
            assert_eq!(shown.order.len(), expected.len(), "seed {seed}: something replayed twice");
        }
    }
}

/// Phase 3: the state left by the live records. Versions decide, so the middle writer may be lost
/// (docs/protocols/taurus-2016.md).
#[test]
fn versions_leave_the_state_of_the_three_phases() {
    for seed in 0..2_000 {
        let mut rng = Rng::with_seed(seed);
        let world = world(&mut rng);
        let alone: BTreeMap<Id, usize> =
            world.logged.iter().enumerate().map(|(at, logged)| (logged.id, at)).collect();
        // The serial order serves as versions: both rise along every row.
        let mut expected: BTreeMap<usize, Id> = BTreeMap::new();
        let live = oracle::live(&world.logged, &world.starts, &world.ends);
        for logged in world.logged.iter().filter(|logged| live.contains(&logged.id)) {
            for row in &world.writes[&logged.id] {
                expected.insert(*row, logged.id);
            }
        }
        for ordered in [false, true] {
            let mut state: BTreeMap<usize, Id> = BTreeMap::new();
            for id in run(&world, ordered, &mut rng).order {
                for row in &world.writes[&id] {
                    let newest = state.entry(*row).or_insert(id);
                    if alone[newest] < alone[&id] {
                        *newest = id;
                    }
                }
            }
            assert_eq!(state, expected, "seed {seed}, ordered {ordered}");
        }
    }
}

#[test]
fn what_is_named_comes_first_where_commands_are_in_the_log() {
    for seed in 0..2_000 {
        let mut rng = Rng::with_seed(seed);
        let world = world(&mut rng);
        let order = run(&world, true, &mut rng).order;
        let place: BTreeMap<Id, usize> =
            order.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        for logged in world.logged.iter().filter(|logged| place.contains_key(&logged.id)) {
            let now = place[&logged.id];
            for before in &logged.list {
                assert!(place.get(&before.id).is_none_or(|then| *then < now), "seed {seed}");
            }
            for (id, then) in &place {
                let covered = end(*id) <= logged.vector[lane(*id)];
                assert!(!covered || *then < now, "seed {seed}: not all of its vector came first");
            }
        }
    }
}

#[test]
fn records_that_wait_for_each_other_never_become_ready() {
    let graph: Graph<()> = Graph::new([0, 0], true, 1);
    let thread = &mut graph.thread(0);
    let named = |id| [Predecessor { id, overwritten: true }];
    for (lane, other) in [(0, 1), (1, 0)] {
        let admission = graph.arrive((lane, 10), &named(id(other, 10)), &[0, 0], || (), thread);
        assert_eq!(admission, Admission::Waits);
    }
    for lane in [0, 1] {
        graph.pass(lane, 10, thread);
        graph.end(lane, 10, thread);
    }
    assert!(graph.next_ready(thread).is_none());
    assert_eq!((graph.waiting(0), graph.settled(0)), (1, 9));
}

#[test]
fn a_lost_predecessor_that_was_only_overwritten_harms_nobody() {
    for (overwritten, dead) in [(true, false), (false, true)] {
        // Near, and behind the window.
        for before in [50, 10 * WINDOW] {
            let graph: Graph<()> = Graph::new([0, 0], false, 1);
            let thread = &mut graph.thread(0);
            let list = [Predecessor { id: id(1, before), overwritten }];
            let admission = graph.arrive((0, 10), &list, &[0, 0], || (), thread);
            assert_eq!(admission, Admission::Waits);
            graph.pass(0, 10, thread);
            assert!(graph.next_ready(thread).is_none(), "the other stream was not read");
            graph.end(1, 40, thread);
            let released = graph.next_ready(thread).expect("the end of the stream was told");
            assert_eq!(released.dead, dead);
        }
    }
}

/// One record waits for a stream that is not read: its own stream is read no further than a window,
/// and what it lists far ahead is found once the slow stream comes near.
#[test]
fn a_slow_stream_bounds_what_is_read_of_the_others() {
    let graph: Graph<u64> = Graph::new([0, 0], true, 1);
    let thread = &mut graph.thread(0);
    let far = 3 * WINDOW;
    let list = [Predecessor { id: id(1, far), overwritten: false }];
    let waits = graph.arrive((0, 10), &list, &[0, 0], || 0, thread);
    assert_eq!(waits, Admission::Waits);
    graph.pass(0, 10, thread);
    let mut at = 10;
    while graph.has_room(0, at + 100) {
        at += 100;
        assert_eq!(graph.arrive((0, at), &[], &[0, 0], || 1, thread), Admission::Ready);
        graph.settle(id(0, at), true, thread);
        graph.pass(0, at, thread);
    }
    assert!((WINDOW - 200..=WINDOW + 10).contains(&at), "{at}");
    let mut slow = 0;
    while slow < far {
        slow = (slow + 100).min(far);
        assert!(graph.has_room(1, slow) && graph.next_ready(thread).is_none());
        assert_eq!(graph.arrive((1, slow), &[], &[0, 0], || 2, thread), Admission::Ready);
        graph.settle(id(1, slow), true, thread);
        graph.pass(1, slow, thread);
    }
    let released = graph.next_ready(thread).expect("the record that it lists was replayed");
    assert_eq!((released.id, released.dead, released.record), (id(0, 10), false, 0));
    graph.settle(released.id, true, thread);
    assert_eq!(graph.settled(0), at);
}

/// A name at which no record ends is found when the cell is used again, or when the stream ends.
#[test]
fn a_name_at_which_no_record_ends_is_found() {
    for window in [SMALL, WINDOW] {
        let graph: Graph<()> = Graph::with_window([0, 0], true, 1, window);
        let thread = &mut graph.thread(0);
        let list = [Predecessor { id: id(1, 100), overwritten: false }];
        let waits = graph.arrive((0, 10), &list, &[0, 0], || (), thread);
        assert_eq!(waits, Admission::Waits);
        for at in (1..6 * SMALL / CELL).filter(|n| *n != 12).map(|n| n * CELL) {
            assert_eq!(graph.arrive((1, at), &[], &[0, 0], || (), thread), Admission::Ready);
            graph.settle(id(1, at), true, thread);
            graph.pass(1, at, thread);
        }
        assert_eq!(graph.misnamed().is_some(), window == SMALL, "the cell is used again");
        graph.end(1, 6 * SMALL, thread);
        assert_eq!(graph.misnamed(), Some((1, 96)));
    }
}
