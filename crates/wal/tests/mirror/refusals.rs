//! The refusals of a mirror, with the errors, and the frames kept apart.

use crate::common::{append, read_all, small, truncate};
use crate::world::{ANCHOR, Stored, World, frames};
use hyades_platform::device::{SimulatedDevice, SimulatedDisk, SimulatedFault};
use hyades_wal::{
    BeginAt, Checkpoint, Covered, Error, FROM_LANES, FrameKind, IncarnationSettings, Log,
    LogOptions, MIRRORED, Mirror, RemoteEnded, Seen, StreamId, StreamStart, open, open_read,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn on(disk: &SimulatedDisk) -> LogOptions {
    let mut options = small("/db".as_ref(), 2, Arc::new(disk.process(1)));
    options.stepped = true;
    options
}

/// A primary of two streams with some records, the disk, and the log in which they are stored.
fn primary() -> (Log, SimulatedDisk, World) {
    let disk = SimulatedDisk::new();
    let (log, _, world) = primary_on(&disk);
    (log, disk, world)
}

fn primary_on(disk: &SimulatedDisk) -> (Log, SimulatedDevice, World) {
    let mut world = World::default();
    let mut options = on(disk);
    let device = disk.process(1);
    options.device = Arc::new(device.clone());
    let mut recovering = open(options).unwrap();
    world.database = recovering.manifest().uuid();
    let stored = Stored::new(world.next(2), "a");
    recovering.set_remote(stored.clone());
    let verdict = recovering.verdict(&[]).unwrap();
    let settings = IncarnationSettings::default();
    let log = recovering.start_as("a", settings, &verdict, 1, &stored.at).unwrap();
    world.incarnations.push(stored);
    for round in 0..10u8 {
        records(&log, round);
        (0..2).for_each(|stream| assert!(log.step(stream)));
    }
    (log, device, world)
}

fn records(log: &Log, content: u8) {
    let mut writer = log.writer().unwrap();
    (0..2).for_each(|stream| _ = append(&mut writer, stream, &[content; 300]));
}

fn mirror(disk: &SimulatedDisk, world: &World) -> Mirror {
    Mirror::open(on(disk), "b", world.database).unwrap()
}

/// A mirror with the first messages of the first incarnation.
fn begun(disk: &SimulatedDisk, world: &World, messages: usize) -> Mirror {
    let mut mirror = mirror(disk, world);
    mirror.begin(&world.newest().at, &[], IncarnationSettings::default(), 1).unwrap();
    for _ in 0..messages {
        for lane in 0..2 {
            let (start, bytes) = world.newest().message(lane, mirror.received()[lane]).unwrap();
            mirror.append(lane, start, &bytes).unwrap();
        }
    }
    mirror
}

/// Appends all that the lanes have.
fn fill(mirror: &mut Mirror, world: &World) {
    for (lane, end) in world.newest().ends().into_iter().enumerate() {
        while mirror.received()[lane] < end {
            let (start, bytes) = world.newest().message(lane, mirror.received()[lane]).unwrap();
            mirror.append(lane, start, &bytes).unwrap();
        }
    }
}

fn invalid<T: std::fmt::Debug>(result: Result<T, Error>, text: &str) {
    match result {
        Err(Error::Invalid(message)) => assert!(message.contains(text), "{message}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn frames_that_are_damaged_or_do_not_follow_are_refused_and_change_nothing() {
    let (_log, _, world) = primary();
    let mut mirror = begun(&SimulatedDisk::new(), &world, 2);
    let before = mirror.received();
    let (start, bytes) = world.newest().message(0, before[0]).unwrap();
    assert_eq!(start, before[0]);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match mirror.append(0, start, &flipped) {
            Err(Error::Remote(RemoteEnded::Different(what))) => {
                assert!(what.contains("stream 0") && what.contains("Lsn"), "{what}");
            }
            other => panic!("bit {bit}: {other:?}"),
        }
        assert_eq!(mirror.received(), before);
    }
    for cut in 1..bytes.len() {
        assert!(mirror.append(0, start, &bytes[..cut]).is_err(), "cut at {cut}");
    }
    // The frames of another stream, at another position, or behind a gap.
    let (other, of_other) = world.newest().message(1, before[1]).unwrap();
    assert!(mirror.append(0, start, &of_other).is_err() && other == before[1]);
    assert!(mirror.append(0, start - 1, &bytes).is_err());
    let behind = world.newest().message(0, start + bytes.len() as u64).unwrap();
    invalid(mirror.append(0, behind.0, &behind.1), "give what is between first");
    invalid(mirror.append(2, start, &bytes), "2 streams");
    assert_eq!(mirror.received(), before);
    assert_eq!(mirror.append(0, start, &bytes).unwrap(), behind.0);
    // What is there is skipped, in part or as a whole.
    assert_eq!(mirror.append(0, start, &bytes).unwrap(), behind.0);
    invalid(mirror.chunks(0, behind.0, behind.0 + 1), "up to Lsn");
    invalid(mirror.chunks(0, start + 1, behind.0), "ends at Lsn");
}

#[test]
fn a_members_directory_is_opened_with_the_replicated_log_alone() {
    let (log, disk, world) = primary();
    let standby = SimulatedDisk::new();
    drop(begun(&standby, &world, 3));
    invalid(open(on(&standby)), "member \"b\" of a replicated database");
    invalid(Mirror::open(on(&standby), "c", world.database), "member \"b\"");
    invalid(Mirror::open(on(&standby), "b", [1; 16]), "another database");
    let recovering = open_read(on(&standby)).unwrap();
    let newest = recovering.manifest().newest().unwrap();
    assert_eq!(newest.settings.get(MIRRORED).map(String::as_str), Some(FROM_LANES));
    drop((recovering, log));
    invalid(open(on(&disk)), "member \"a\" of a replicated database");
    drop(Mirror::open(on(&disk), "a", world.database).unwrap());
}

#[test]
fn a_database_of_its_own_is_taken_over_closed_alone() {
    let disk = SimulatedDisk::new();
    let start = |disk: &SimulatedDisk| {
        let recovering = open(on(disk)).unwrap();
        let (_, verdict) = read_all(&recovering).unwrap();
        recovering.start(IncarnationSettings::default(), &verdict, 1).unwrap()
    };
    let log = start(&disk);
    records(&log, 1);
    (0..2).for_each(|stream| assert!(log.step(stream)));
    let database = log.manifest().uuid();
    disk.kill();
    drop(log);
    // The last batch was acknowledged, and no other has it.
    invalid(Mirror::open(on(&disk), "a", database), "was not closed");
    start(&disk).close().unwrap();
    let (mut recovering, verdict) =
        Mirror::open(on(&disk), "a", database).unwrap().into_recovering().unwrap();
    let newest = recovering.manifest().newest().unwrap().clone();
    let stream = |dim: &hyades_wal::Dimension| hyades_wal::StreamStart {
        stream: dim.stream,
        start: dim.end.unwrap(),
    };
    let at = BeginAt { number: 9, streams: newest.dims.iter().map(stream).collect() };
    assert!(at.streams[0].start > 300);
    recovering.set_remote(Stored::new(at.clone(), "a"));
    let settings = IncarnationSettings::default();
    let log = recovering.start_as("a", settings, &verdict, 1, &at).unwrap();
    assert_eq!((log.incarnation(), log.next_lsn(0)), (9, at.streams[0].start));
}

#[test]
fn an_incarnation_begins_where_the_last_has_ended() {
    let (log, _, world) = primary();
    let mut mirror = begun(&SimulatedDisk::new(), &world, 3);
    let (ends, received) = (world.newest().ends(), mirror.received());
    invalid(mirror.end(&ends), "append what is between first");
    invalid(mirror.end(&ends[..1]), "1 ends are given");
    invalid(mirror.into_recovering().map(drop), "has not ended");
    let mut mirror = begun(&SimulatedDisk::new(), &world, 3);
    mirror.end(&received).unwrap();
    mirror.end(&received).unwrap();
    assert!(matches!(mirror.end(&ends), Err(Error::Remote(RemoteEnded::Different(_)))));
    invalid(mirror.append(0, received[0], &[]), "has ended");
    let settings = IncarnationSettings::default;
    let mut at = world.next(2);
    invalid(mirror.begin(&at, &received, settings(), 1), "begins stream 0 at Lsn");
    at.streams.iter_mut().zip(&received).for_each(|(stream, &end)| stream.start = end);
    let begin = |number, change: fn(&mut BeginAt)| {
        let mut at = BeginAt { number, ..at.clone() };
        change(&mut at);
        at
    };
    let used = begin(1, |_| {});
    invalid(mirror.begin(&used, &received, settings(), 1), "knows incarnations up to 1");
    let twice = begin(2, |at| at.streams[1] = at.streams[0]);
    invalid(mirror.begin(&twice, &received, settings(), 1), "twice");
    let (recovering, verdict) = mirror.into_recovering().unwrap();
    assert_eq!(&verdict.ends()[0].ends[..], received);
    let other = begin(2, |at| at.streams[0].start += 1);
    invalid(recovering.start_as("b", settings(), &verdict, 1, &other), "the files end at");
    drop(log);
}

/// A database that was not closed becomes a member's: at each step of the opening its last records,
/// which no header proves and no lane has, are kept.
#[test]
fn a_database_becomes_a_members_with_all_that_it_has() {
    let disk = SimulatedDisk::new();
    let recovering = open(on(&disk)).unwrap();
    let verdict = recovering.verdict(&[]).unwrap();
    let log = recovering.start(IncarnationSettings::default(), &verdict, 1).unwrap();
    records(&log, 1);
    (0..2).for_each(|stream| assert!(log.step(stream)));
    let ends = [log.next_lsn(0), log.next_lsn(1)];
    let database = log.manifest().uuid();
    disk.power_cut(1);
    drop(log);
    let stream = |id: usize| StreamStart { stream: StreamId(id as u32), start: ends[id] };
    let at = BeginAt { number: 2, streams: [0, 1].map(stream).to_vec() };
    let mut steps = 0;
    loop {
        let disk = disk.fork();
        let mut options = on(&disk);
        // A directory more: the manifest is written once more.
        options.dirs.push("/more".into());
        let device = disk.process(2);
        options.device = Arc::new(device.clone());
        let recovering = open(options).unwrap();
        let (_, verdict) = read_all(&recovering).unwrap();
        device.arm(SimulatedFault::Stop(steps));
        let settings = IncarnationSettings::default();
        let started = recovering.start_as("a", settings, &verdict, 1, &at).is_ok();
        disk.power_cut(steps);
        let mut options = on(&disk);
        options.dirs.push("/more".into());
        let verdict = match open(options.clone()) {
            Ok(recovering) => read_all(&recovering).unwrap().1,
            Err(_) => {
                let mirror = Mirror::open(options, "a", database).unwrap();
                let ends = BTreeMap::from([(1, ends.to_vec()), (2, mirror.received())]);
                assert_eq!(ends[&mirror.incarnation().unwrap()], ends[&1]);
                drop(mirror);
                read_all(&open_read(on(&disk)).unwrap()).unwrap().1
            }
        };
        assert_eq!(verdict.ends()[0].ends[..], ends, "step {steps}");
        if started {
            break;
        }
        steps += 1;
    }
    assert!(steps > 10, "{steps} steps");
}

/// The last batch of a former primary that no lane has: not recovered, kept apart.
#[test]
fn a_ghost_tail_is_kept_apart() {
    let (log, disk, world) = primary();
    let ends = world.newest().ends();
    world.newest().loses.store(3, Ordering::SeqCst);
    records(&log, 77);
    (0..2).for_each(|stream| _ = log.step(stream));
    disk.kill();
    drop(log);
    let mut mirror = Mirror::open(on(&disk), "a", world.database).unwrap();
    let found = mirror.found();
    assert!(found.iter().zip(&ends).all(|(found, end)| found > end), "{found:?} {ends:?}");
    fill(&mut mirror, &world);
    mirror.end(&ends).unwrap();
    let discarded: Vec<_> = disk
        .content()
        .into_iter()
        .filter(|(path, _)| path.starts_with("/db/DISCARDED-1"))
        .collect();
    assert_eq!(discarded.len(), 2, "{discarded:?}");
    for (lane, (path, bytes)) in discarded.iter().enumerate() {
        let name = format!("stream-000{lane}-from-{:020}", ends[lane]);
        assert!(path.ends_with(&name), "{path:?}, not {name}");
        // Behind the segment's header and the batch's.
        let length = (found[lane] - ends[lane]) as usize;
        let ghost = frames(ends[lane], &bytes[1024 + 40..][..length], &[0, 0]);
        let is_record =
            |kind: u8, payload: &[u8]| kind == FrameKind::Record as u8 && payload == [77; 300];
        assert!(ghost.iter().any(|(_, _, kind, payload, _)| is_record(*kind, payload)));
    }
    world.check_files(&disk, "a", &BTreeMap::new());
}

/// The check is in the remote, `Stored::send`: here a lane is behind its file.
#[test]
fn anchors_of_a_primary_state_what_the_lanes_have() {
    let (log, _, world) = primary();
    world.newest().loses.store(1, Ordering::SeqCst);
    let anchors = |lane| {
        let frames = world.newest().frames(lane).into_iter();
        frames.filter(|(_, _, kind, ..)| *kind == ANCHOR).count()
    };
    let before = anchors(1);
    for round in 0..40 {
        if log.backlog(0) < 2000 {
            records(&log, round);
        } else {
            let mut writer = log.writer().unwrap();
            append(&mut writer, 1, &[round; 300]);
        }
        log.step(0);
        assert!(log.step(1));
    }
    assert!(log.frontier().durable(0) < log.next_lsn(0));
    assert!(anchors(1) > before, "the other lane has anchors");
}

/// A segment found by an opening may have its header in the page cache only: the segment before
/// states the anchor in effect until another one is synced.
#[test]
pub fn a_segment_that_was_found_is_not_relied_on() {
    let (_log, _, world) = primary();
    let disk = SimulatedDisk::new();
    let mut mirror = begun(&disk, &world, 0);
    let append = |mirror: &mut Mirror| {
        let received = mirror.received()[0];
        let (start, bytes) = world.newest().message(0, received).unwrap();
        mirror.append(0, start, &bytes).unwrap();
    };
    for _ in 0..6 {
        append(&mut mirror);
        mirror.sync().unwrap();
    }
    drop(mirror);
    // A segment begins, is not synced, and is found.
    let mut options = on(&disk);
    let device = disk.process(5);
    options.device = Arc::new(device.clone());
    let mut mirror = Mirror::open(options, "b", world.database).unwrap();
    append(&mut mirror);
    device.arm(SimulatedFault::Sync { after: 0, for_ever: false });
    assert!(mirror.sync().is_err());
    drop(mirror);
    let mut mirror = self::mirror(&disk, &world);
    let streams = world.newest().at.streams.iter().zip(mirror.received());
    let streams = streams.map(|(at, from)| Covered { stream: at.stream, from }).collect();
    mirror.adopt(checkpoint(1, streams), None).unwrap();
    drop(mirror);
    for seed in 0..20 {
        let disk = disk.fork();
        disk.power_cut(seed);
        world.check_files(&disk, "b", &BTreeMap::new());
        let mut mirror = self::mirror(&disk, &world);
        fill(&mut mirror, &world);
        mirror.sync().unwrap();
        world.check_files(&disk, "b", &BTreeMap::new());
    }
}

/// The device of a primary fails when a segment was taken, and not yet written.
#[test]
fn a_primary_truncates_no_segment_that_its_mirror_needs() {
    let mut truncated = 0;
    for (batches, write) in (14..20).flat_map(|batches| (0..8).map(move |write| (batches, write))) {
        let disk = SimulatedDisk::new();
        let (log, device, world) = primary_on(&disk);
        let mut writer = log.writer().unwrap();
        for _ in 0..batches {
            append(&mut writer, 1, &[1; 2900]);
            assert!(log.step(1));
        }
        append(&mut writer, 1, &[1; 2900]);
        // A write of the preparation, or of the batch.
        device.arm(SimulatedFault::Write(write));
        if log.step(1) {
            continue;
        }
        truncated += truncate(&log, &[0, log.frontier().durable(1)]);
        disk.kill();
        drop((writer, log));
        for seed in 0..10 {
            let disk = disk.fork();
            disk.power_cut(seed);
            let mut mirror = Mirror::open(on(&disk), "a", world.database).unwrap();
            fill(&mut mirror, &world);
            mirror.end(&world.newest().ends()).unwrap();
            drop(mirror);
            world.check_files(&disk, "a", &BTreeMap::new());
        }
    }
    assert!(truncated > 0, "nothing was truncated");
}

fn checkpoint(incarnation: u32, streams: Vec<Covered>) -> Checkpoint {
    Checkpoint {
        number: 1,
        cut: 1,
        incarnation,
        scan_end: None,
        taken_at_us: 0,
        next_row_id: 0,
        rows: 0,
        parts: Vec::new(),
        streams,
    }
}

#[test]
fn a_failed_sync_stops_the_mirror() {
    let (_log, _, world) = primary();
    let disk = SimulatedDisk::new();
    let mut options = on(&disk);
    let device = disk.process(4);
    options.device = Arc::new(device.clone());
    let mut mirror = Mirror::open(options, "b", world.database).unwrap();
    mirror.begin(&world.newest().at, &[], IncarnationSettings::default(), 1).unwrap();
    let (start, bytes) = world.newest().message(0, 0).unwrap();
    mirror.append(0, start, &bytes).unwrap();
    device.arm(SimulatedFault::Sync { after: 0, for_ever: false });
    assert!(matches!(mirror.sync(), Err(Error::Io { .. })));
    assert!(matches!(mirror.sync(), Err(Error::Poisoned(_))));
    assert!(matches!(mirror.append(0, start, &bytes), Err(Error::Poisoned(_))));
    assert!(matches!(mirror.into_recovering(), Err(Error::Poisoned(_))));
}

#[test]
fn hints_where_to_read_on_are_no_further_than_the_files() {
    let (_log, _, world) = primary();
    let disk = SimulatedDisk::new();
    let mut mirror = begun(&disk, &world, 2);
    let ends = world.newest().ends();
    let seen = |place: u64, end| Seen { stream: StreamId(0), place, index: place, chain: 5, end };
    mirror.note_seen(0, seen(1, mirror.received()[0]));
    mirror.sync().unwrap();
    fill(&mut mirror, &world);
    mirror.note_seen(0, seen(2, ends[0]));
    mirror.sync().unwrap();
    drop(mirror);
    // The end of the last batch is not proven, and no manifest was written since the first hint.
    let mut mirror = self::mirror(&disk, &world);
    assert_eq!(mirror.manifest().member.as_ref().unwrap().seen, []);
    mirror.note_seen(0, seen(1, mirror.received()[0].min(mirror.proven()[0])));
    fill(&mut mirror, &world);
    mirror.note_seen(0, seen(2, ends[0]));
    mirror.end(&ends).unwrap();
    drop(mirror);
    let mirror = self::mirror(&disk, &world);
    assert_eq!(mirror.manifest().member.as_ref().unwrap().seen, [seen(2, ends[0])]);
}
