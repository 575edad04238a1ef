use super::*;
use hyades_wal::admits;

fn access(row: u32, write: bool) -> Access {
    Access { row, write }
}

/// A model of two streams and four rows, with records of ten bytes for each row.
struct World {
    rules: Rules,
    order: Order,
    records: Vec<Logged>,
}

impl World {
    fn new(protocol: Protocol, commands: bool) -> World {
        World {
            rules: Rules::new(protocol, 2, 4, commands, true),
            order: Order::new(2, 1000),
            records: Vec::new(),
        }
    }

    /// Commits, and returns the needs of the transaction, its own record first.
    fn commit(&mut self, stream: usize, accesses: &[Access]) -> Vec<(Lane, u64)> {
        let bytes = |rows: usize, unit: f64| rows as u64 * unit as u64;
        let txn = Committing { accesses, stream, bytes, unit: 10.0 };
        let mut needs = Needs::default();
        self.rules.commit(&txn, &mut self.order, &mut needs, &mut self.records);
        needs.iter().collect()
    }

    fn last(&self) -> &Logged {
        self.records.last().unwrap()
    }
}

const COMMON: Lane = Lane::common(2);

#[test]
fn a_reader_follows_the_writer_and_a_command_is_followed_by_who_overwrites_what_it_read() {
    let [first, second] = [0, 1].map(Lane::position);
    for commands in [false, true] {
        let mut world = World::new(Protocol::Taurus, commands);
        assert_eq!(world.commit(0, &[access(0, true)]), [(first, 10)]);
        let needs = world.commit(1, &[access(0, false), access(1, true)]);
        // The vector takes two bytes instead of one.
        assert_eq!(needs, [(second, 11), (first, 10)]);
        assert_eq!(world.last().vector, [10, 0]);
        // A blind write of the row that the second transaction has read.
        world.commit(0, &[access(0, true)]);
        assert_eq!(world.last().vector, [10, if commands { 11 } else { 0 }], "{commands}");
        // A reader of nothing needs nothing.
        assert_eq!(world.commit(1, &[access(3, false)]), []);
    }
}

/// Replay waits for all positions covered by the anchor, also in the record's own stream.
#[test]
fn components_that_an_anchor_covers_are_those_of_the_anchor() {
    let mut world = World::new(Protocol::Taurus, true);
    world.commit(0, &[access(0, true)]);
    world.order.housekeep(&[600, 400]);
    world.commit(0, &[access(0, false), access(1, true)]);
    assert_eq!(world.last().vector, [600, 400]);
    // In memory the transaction follows only the writers of the touched rows.
    world.commit(1, &[access(1, true)]);
    assert_eq!(world.last().vector, [600, 400]);
    let mut decoded = [0; 2];
    let mut encoded = Vec::new();
    compress::encode(&mut encoded, &[10, 0], &[600, 400], |lsn| *lsn);
    compress::decode(&encoded, &[600, 400], &mut decoded).unwrap();
    assert_eq!(decoded, [600, 400]);
}

/// The sequence of docs/protocols/plover.md: T1 writes x, T2 reads x and writes y, in another
/// partition. The numbers are 1 and 2; T2's own streams may be durable before T1's.
#[test]
fn plover_waits_for_the_common_watermark_and_not_for_touched_partitions() {
    let mut world = World::new(Protocol::Plover, false);
    let rows: Vec<u32> = (0..2)
        .map(|partition| (0..4).find(|row| world.rules.partition(*row) == partition).unwrap())
        .collect();
    assert_eq!(world.commit(0, &[access(rows[0], true)]), [(COMMON, 1)]);
    // A row that was never written touches no partition.
    assert_eq!(world.commit(0, &[access(rows[1], false)]), []);
    let needs = world.commit(0, &[access(rows[0], false), access(rows[1], true)]);
    assert_eq!(needs, [(COMMON, 2)]);
    assert_eq!((world.last().stream, world.last().number), (1, 2));
    // A record in each partition written to, with one number.
    assert_eq!(world.commit(0, &[access(rows[0], true), access(rows[1], true)]), [(COMMON, 3)]);
    let records: Vec<_> = world.records.iter().map(|r| (r.stream, r.number)).collect();
    assert_eq!(records, [(0, 1), (1, 2), (0, 3), (1, 3)]);
    // A reader waits for the last number of each partition touched.
    assert_eq!(world.commit(0, &[access(rows[0], false)]), [(COMMON, 3)]);
}

#[test]
fn poplar_waits_for_its_own_record_only_if_it_wrote_blindly() {
    let mut world = World::new(Protocol::Poplar, false);
    assert_eq!(world.commit(0, &[access(0, true)]), [(Lane::position(0), 10)]);
    assert_eq!(world.commit(1, &[access(0, false), access(1, true)]), [(COMMON, 2)]);
    // A reader's number is not in the row read.
    assert_eq!(world.commit(1, &[access(0, false)]), [(COMMON, 1)]);
    // Updates read.
    world.rules = Rules::new(Protocol::Poplar, 2, 4, false, false);
    assert_eq!(world.commit(0, &[access(0, true), access(1, true)]), [(COMMON, 1)]);
}

#[test]
fn gsn_raises_what_a_writer_read_and_nothing_for_those_that_only_read() {
    let mut world = World::new(Protocol::Gsn, false);
    world.commit(0, &[access(0, false), access(1, true)]);
    assert_eq!(world.commit(1, &[access(0, false)]), [(COMMON, 1)]);
    assert_eq!(world.commit(1, &[access(2, false), access(0, false)]), [(COMMON, 1)]);
    assert_eq!(world.commit(1, &[access(2, false)]), []);
    assert_eq!(world.commit(1, &[access(0, true)]), [(COMMON, 2)]);
}

#[test]
fn epochs_and_positions_of_protocols_without_row_stamps() {
    let mut world = World::new(Protocol::SiloR, false);
    assert_eq!(world.commit(0, &[access(0, false)]), []);
    world.rules.epoch = 3;
    assert_eq!(world.commit(0, &[access(0, true)]), [(COMMON, 3)]);
    world.rules.epoch = 4;
    assert_eq!(world.commit(1, &[access(1, false)]), [(COMMON, 3)]);
    assert_eq!(world.rules.mark(0, 9), 3);
    let mut world = World::new(Protocol::Serial, true);
    assert_eq!(world.commit(1, &[access(0, true)]), [(Lane::position(0), 10)]);
    assert_eq!(world.commit(1, &[access(3, false)]), [(Lane::position(0), 10)]);
}

#[test]
fn an_idle_stream_skips_numbers_only_if_one_is_wanted() {
    for protocol in [Protocol::Poplar, Protocol::Gsn] {
        let mut world = World::new(protocol, false);
        (0..5).for_each(|_| drop(world.commit(0, &[access(0, true)])));
        assert_eq!(world.rules.mark(1, 0), 0);
        assert_eq!(world.rules.mark(1, 2), 5);
        assert_eq!(world.rules.mark(0, 3), 5);
        world.commit(1, &[access(2, true)]);
        assert_eq!(world.last().number, 6);
    }
}

/// The rule is the engine's, and so is the frontier's layout.
#[test]
fn a_need_is_met_when_its_slot_has_reached_it() {
    let mut frontier = vec![0; Lane::count(2)];
    frontier[COMMON.index()] = 3;
    let is_met = |need| admits(|lane: Lane| frontier[lane.index()], [need]);
    assert!(is_met((COMMON, 3)) && !is_met((COMMON, 4)) && !is_met((Lane::position(0), 1)));
}
