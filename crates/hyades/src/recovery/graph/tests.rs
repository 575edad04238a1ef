//! Tests the graph against the basic recovery in three phases.

use super::oracle::{self, Logged};
use super::*;
use crate::logging::predecessors::{end, id, lane};
use fastrand::Rng;
use std::collections::{BTreeMap, VecDeque};

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
            vector[on] = at[on].saturating_sub(rng.u64(0..40));
        }
        at[stream] += rng.u64(1..30);
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
    /// Records released by the graph.
    released: Vec<Arc<RecordNode<Id>>>,
    /// Records whose replay has begun, if records settle only after replay.
    replaying: Vec<Id>,
    shown: Shown,
}

impl<'w> GraphRun<'w> {
    fn new(world: &'w World, ordered: bool) -> Self {
        let lanes = world.starts.len();
        let mut streams: Vec<VecDeque<&Logged>> = vec![VecDeque::new(); lanes];
        for logged in &world.logged {
            streams[lane(logged.id)].push_back(logged);
        }
        GraphRun {
            world,
            ordered,
            graph: Graph::new(world.starts.iter().copied(), ordered),
            streams,
            ended: vec![false; lanes],
            released: Vec::new(),
            replaying: Vec::new(),
            shown: Shown { live: BTreeSet::new(), order: Vec::new() },
        }
    }

    /// Reads the next record of a stream, or its end. Returns false if the end was read before.
    fn read(&mut self, at: usize) -> bool {
        // A record replayed at once holds up its stream's reader.
        let Some(logged) = self.streams[at].pop_front() else {
            let is_new = !std::mem::replace(&mut self.ended[at], true);
            if is_new {
                self.graph.end(at, self.world.ends[at]);
            }
            return is_new;
        };
        let place = (at, end(logged.id));
        match self.graph.arrive(place, &logged.list, &logged.vector, || logged.id) {
            Admission::Waits => {}
            Admission::Dead => self.graph.settle(logged.id, false),
            Admission::Ready => {
                self.shown.live.insert(logged.id);
                self.shown.order.push(logged.id);
                self.graph.settle(logged.id, true);
            }
        }
        self.graph.pass(at, end(logged.id));
        true
    }

    /// Handles a record released by the graph. Returns false if there is none.
    fn replay_released(&mut self, rng: &mut Rng) -> bool {
        self.released.extend(self.graph.next_ready());
        if self.released.is_empty() {
            return false;
        }
        let node = self.released.swap_remove(rng.usize(0..self.released.len()));
        if node.is_dead() {
            self.graph.settle(node.id, false);
            return true;
        }
        assert_eq!(node.take(), node.id);
        self.shown.live.insert(node.id);
        if self.ordered {
            self.replaying.push(node.id);
        } else {
            self.shown.order.push(node.id);
            self.graph.settle(node.id, true);
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
        self.graph.settle(id, true);
        true
    }

    /// Whether nothing is left to be done. Takes the records that the graph still releases.
    fn is_over(&mut self) -> bool {
        self.released.extend(self.graph.next_ready());
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
            0 => run.read(rng.usize(0..lanes)),
            1 => run.replay_released(rng),
            _ => run.finish_replay(rng),
        };
        if !moved && run.is_over() {
            break;
        }
    }
    for at in 0..lanes {
        assert_eq!(run.graph.waiting(at), 0, "a record waits for ever");
        assert_eq!(run.graph.settled(at), world.ends[at], "the stream has not settled");
        assert!(run.graph.inside(at).nodes.is_empty(), "a node was not collected");
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
    let graph: Graph<()> = Graph::new([0, 0], true);
    let named = |id| [Predecessor { id, overwritten: true }];
    assert_eq!(graph.arrive((0, 10), &named(id(1, 10)), &[0, 0], || ()), Admission::Waits);
    assert_eq!(graph.arrive((1, 10), &named(id(0, 10)), &[0, 0], || ()), Admission::Waits);
    for lane in [0, 1] {
        graph.pass(lane, 10);
        graph.end(lane, 10);
    }
    assert!(graph.next_ready().is_none());
    assert_eq!((graph.waiting(0), graph.settled(0)), (1, 9));
}

#[test]
fn a_lost_predecessor_that_was_only_overwritten_harms_nobody() {
    for (overwritten, dead) in [(true, false), (false, true)] {
        let graph: Graph<()> = Graph::new([0, 0], false);
        let list = [Predecessor { id: id(1, 50), overwritten }];
        assert_eq!(graph.arrive((0, 10), &list, &[0, 0], || ()), Admission::Waits);
        graph.pass(0, 10);
        assert!(graph.next_ready().is_none(), "the other stream was not read");
        graph.end(1, 40);
        assert_eq!(graph.next_ready().expect("the end of the stream was told").is_dead(), dead);
    }
}
