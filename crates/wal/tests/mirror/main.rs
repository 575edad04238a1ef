//! Promise: the files of a mirror hold what the lanes of the replicated log hold, at every crash,
//! and nothing else; what a member reports as proven is never lost; after a change of roles all
//! members have the same frames.
#![allow(missing_docs)]

mod bases;
#[path = "../common/mod.rs"]
mod common;
mod refusals;
mod world;

use common::append;
use hyades_platform::device::{SimulatedDisk, SimulatedFault};
use hyades_platform::random::Random;
use hyades_wal::{
    Checkpoint, Covered, Error, IncarnationSettings, Log, Lsn, Mirror, Recovering, Unfinished,
    Verdict, open,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use world::{Stored, World, options};

/// Begins the next incarnation of the world, with a primary on the recovered files.
fn begin(
    world: &mut World,
    node: &'static str,
    (mut recovering, verdict): (Recovering, Verdict),
    streams: usize,
) -> Result<Log, Error> {
    let at = world.next(streams);
    let stored = Stored::new(at.clone(), node);
    recovering.set_remote(stored.clone());
    let log = recovering.start_as(node, IncarnationSettings::default(), &verdict, 1, &at)?;
    assert_eq!((log.incarnation(), log.streams()), (at.number, streams));
    world.incarnations.push(stored);
    Ok(log)
}

/// The first primary, on an empty disk.
fn first(world: &mut World, disk: &SimulatedDisk, streams: usize, random: &mut Random) -> Log {
    let recovering = open(options(disk.process(0), streams, random)).unwrap();
    world.database = recovering.manifest().uuid();
    let verdict = recovering.verdict(&[]).unwrap();
    begin(world, "a", (recovering, verdict), streams).unwrap()
}

/// Writes records, and steps streams at random.
fn write(log: &Log, random: &mut Random, count: u64) {
    let mut writer = log.writer().unwrap();
    for _ in 0..count {
        let stream = random.below(log.streams() as u64) as usize;
        if log.poisoned().is_some() || log.backlog(stream) > 2048 {
            log.step(stream);
            continue;
        }
        let mut payload = vec![0; random.below(700) as usize];
        random.fill(&mut payload);
        append(&mut writer, stream, &payload);
        if random.chance(0.5) {
            log.step(random.below(log.streams() as u64) as usize);
        }
    }
}

/// Flushes everything; false if the primary has stopped, or the lanes store nothing.
fn drain(log: &Log) -> bool {
    let lacks = |at: &usize| log.frontier().durable(*at) < log.next_lsn(*at);
    for _ in 0..10_000 {
        if log.poisoned().is_some() {
            return false;
        }
        let Some(at) = (0..log.streams()).find(lacks) else { return true };
        log.step(at);
    }
    false
}

/// A standby's process on a simulated disk, and what the standby has reported.
struct Standby {
    disk: SimulatedDisk,
    node: &'static str,
    mirror: Option<Mirror>,
    reported: BTreeMap<(u32, usize), Lsn>,
}

impl Standby {
    fn new(disk: SimulatedDisk, node: &'static str) -> Self {
        Standby { disk, node, mirror: None, reported: BTreeMap::new() }
    }

    /// The mirror, opened if there is none. `None` if the opening died.
    fn mirror(&mut self, world: &World, random: &mut Random) -> Option<&mut Mirror> {
        if self.mirror.is_none() {
            let device = self.disk.process(random.next_u64());
            let at = random.below(120);
            match random.below(8) {
                0..4 => device.arm(SimulatedFault::Stop(at)),
                4 => device.arm(SimulatedFault::Sync { after: at / 4, for_ever: at < 60 }),
                5 => device.arm(SimulatedFault::Write(at / 2)),
                _ => {}
            }
            let opened = Mirror::open(options(device, 1, random), self.node, world.database);
            self.mirror = expect_death(opened);
            let mirror = self.mirror.as_mut()?;
            mirror.keep_in_memory(random.below(4) as usize * 2000);
            for (lane, &at) in mirror.received().iter().enumerate() {
                let reported = self.reported.get(&(mirror.incarnation().unwrap(), lane));
                assert!(
                    reported.is_none_or(|r| *r <= at),
                    "{reported:?} was reported, {at} is here"
                );
            }
        }
        self.mirror.as_mut()
    }

    fn report(&mut self, proven: &[Lsn]) {
        let number = self.mirror.as_ref().and_then(Mirror::incarnation).unwrap_or(0);
        for (lane, &lsn) in proven.iter().enumerate() {
            let reported = self.reported.entry((number, lane)).or_default();
            *reported = lsn.max(*reported);
        }
    }

    /// The process dies, or the power fails. Checks the files.
    fn crash(&mut self, world: &World, random: &mut Random) -> usize {
        match random.chance(0.7) {
            true => self.disk.power_cut(random.next_u64()),
            false => self.disk.kill(),
        }
        self.mirror = None;
        if !self.disk.content().iter().any(|(path, _)| path.ends_with("MANIFEST")) {
            return 0;
        }
        world.check_files(&self.disk, self.node, &self.reported)
    }

    /// A random step; `Ok(false)` if there was nothing to follow.
    fn step(&mut self, world: &World, random: &mut Random) -> Result<bool, Error> {
        let Some(mirror) = self.mirror(world, random) else { return Ok(true) };
        match random.below(12) {
            0..8 => return world.follow(mirror, random),
            8..10 => {
                let proven = mirror.sync()?;
                self.report(&proven);
            }
            10 => world.check_chunks(mirror, random)?,
            _ => checkpoint(mirror, world, random)?,
        }
        Ok(true)
    }

    /// Follows until nothing is lacking, through any number of deaths.
    fn catch_up(&mut self, world: &World, random: &mut Random) {
        loop {
            let stepped = self.step(world, random);
            let has_failed = stepped.is_err();
            if expect_death(stepped) == Some(false) {
                return;
            }
            if has_failed || self.mirror.is_none() {
                self.crash(world, random);
            }
        }
    }
}

/// The value, or none if the process has died or its device has failed. Anything else is a fault.
fn expect_death<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Error::Io { .. } | Error::NotReplaced { .. } | Error::Poisoned(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Adopts a checkpoint that needs the streams from some frame on.
fn checkpoint(mirror: &mut Mirror, world: &World, random: &mut Random) -> Result<(), Error> {
    let Some(incarnation) = mirror.incarnation() else { return Ok(()) };
    let stored = world.incarnations.iter().find(|i| i.at.number == incarnation).unwrap();
    let mut streams = Vec::new();
    for (lane, &synced) in mirror.synced().iter().enumerate() {
        let stream = stored.at.streams[lane].stream;
        let least = mirror.manifest().covered(incarnation, stream);
        let ends = stored.frames(lane).into_iter().map(|(_, end, ..)| end);
        let ends: Vec<Lsn> =
            ends.filter(|end| *end <= synced && least.is_none_or(|l| *end >= l)).collect();
        let from = match ends.len() as u64 {
            0 => least.unwrap_or(stored.starts()[lane]),
            count => ends[random.below(count) as usize],
        };
        streams.push(Covered { stream, from });
    }
    let (number, _) = mirror.next_checkpoint(1);
    let checkpoint = Checkpoint {
        number,
        cut: number,
        incarnation,
        scan_end: None,
        taken_at_us: 0,
        next_row_id: 0,
        rows: 0,
        parts: Vec::new(),
        streams,
    };
    mirror.adopt(checkpoint, None).map(drop)
}

/// A primary of several incarnations, and a standby that crashes. Returns how many frames survived
/// crashes.
fn standby_history(seed: u64) -> usize {
    let mut random = Random::seeded(seed);
    let (mut world, disk) = (World::default(), SimulatedDisk::new());
    let mut log = first(&mut world, &disk, 1 + random.below(4) as usize, &mut random);
    let mut standby = Standby::new(SimulatedDisk::new(), "b");
    let mut survived = 0;
    for _ in 0..3 {
        for _ in 0..60 {
            write(&log, &mut random, 4);
            for _ in 0..random.below(6) {
                let stepped = standby.step(&world, &mut random);
                if stepped.is_err() || random.chance(0.02) {
                    expect_death(stepped);
                    survived += standby.crash(&world, &mut random);
                }
            }
        }
        assert!(drain(&log));
        log.close().unwrap();
        let mirror = Mirror::open(options(disk.process(0), 1, &mut random), "a", world.database);
        let recovered = mirror.unwrap().into_recovering().unwrap();
        let streams = 1 + random.below(4) as usize;
        log = begin(&mut world, "a", recovered, streams).unwrap();
    }
    let joiner = joiner(&log, &mut standby, &world, &mut random);
    write(&log, &mut random, 20);
    for mut member in [standby, joiner] {
        member.catch_up(&world, &mut random);
        survived += member.crash(&world, &mut random);
    }
    survived
}

/// A new member, from a base of the primary or of a standby.
fn joiner(log: &Log, source: &mut Standby, world: &World, random: &mut Random) -> Standby {
    let joiner = Standby::new(SimulatedDisk::new(), "c");
    if random.chance(0.5) {
        bases::fetch(log, (source, &joiner.disk), world, random);
        return joiner;
    }
    let to = Unfinished::begin(Arc::new(joiner.disk.process(1)), "/db".as_ref()).unwrap();
    match random.chance(0.5) {
        true => log.base(&to).unwrap(),
        false => loop {
            source.catch_up(world, random);
            let Some(mirror) = &source.mirror else { continue };
            if let Some(copied) = expect_death(mirror.base(&to)) {
                break copied;
            }
            panic!("a mirror that has caught up copies its files");
        },
    };
    to.finish().unwrap();
    let options = options(joiner.disk.process(2), 1, random);
    let refused = open(options).map(drop).unwrap_err().to_string();
    assert!(refused.contains("a base of a replicated database"), "{refused}");
    joiner
}

/// Two members that take over from each other, each time after a crash of the primary: at any step,
/// with a last batch that only its files have, or only the lanes. Returns how many frames both
/// have.
fn takeover_history(seed: u64) -> usize {
    let mut random = Random::seeded(seed);
    let (mut world, disk) = (World::default(), SimulatedDisk::new());
    let streams = 1 + random.below(3) as usize;
    let mut log = first(&mut world, &disk, streams, &mut random);
    let mut primary = Standby::new(disk, "a");
    let mut standby = Standby::new(SimulatedDisk::new(), "b");
    let mut same = 0;
    for _ in 0..4 {
        write(&log, &mut random, 40);
        for _ in 0..random.below(40) {
            let stepped = standby.step(&world, &mut random);
            if stepped.is_err() || standby.mirror.is_none() {
                expect_death(stepped);
                standby.crash(&world, &mut random);
            }
        }
        // The device dies in the middle of a batch that the lanes have, or the other way round.
        match random.below(3) {
            0 => world.newest().loses.store(random.below(16), Ordering::SeqCst),
            1 => primary.disk.kill(),
            _ => {}
        }
        write(&log, &mut random, 20);
        drain(&log);
        match random.chance(0.5) {
            true => primary.disk.power_cut(random.next_u64()),
            false => primary.disk.kill(),
        }
        drop(log);
        let ends = world.newest().ends();
        let recovered = loop {
            standby.catch_up(&world, &mut random);
            let Some(mut mirror) = standby.mirror.take() else { continue };
            if expect_death(mirror.end(&ends)).is_some()
                && let Some(recovered) = expect_death(mirror.into_recovering())
            {
                break recovered;
            }
            standby.crash(&world, &mut random);
        };
        let checked = world.check_files(&standby.disk, standby.node, &standby.reported);
        drop(recovered);
        std::mem::swap(&mut primary, &mut standby);
        log = promote(&mut world, &primary, &mut random);
        standby.catch_up(&world, &mut random);
        same += checked.min(standby.crash(&world, &mut random));
    }
    same
}

/// Begins the next incarnation on the files of a member that has the end of the last one.
fn promote(world: &mut World, member: &Standby, random: &mut Random) -> Log {
    let streams = 1 + random.below(3) as usize;
    let device = member.disk.process(random.next_u64());
    let mut mirror = Mirror::open(options(device, 1, random), member.node, world.database).unwrap();
    mirror.end(&world.newest().ends()).unwrap();
    begin(world, member.node, mirror.into_recovering().unwrap(), streams).unwrap()
}

#[test]
fn a_standby_has_what_the_lanes_have_wherever_it_crashes() {
    let survived: usize = (0..60).map(standby_history).sum();
    assert!(survived > 1000, "only {survived} frames survived: the test tests too little");
}

#[test]
fn members_have_the_same_frames_after_takeovers() {
    let same: usize = (0..60).map(takeover_history).sum();
    assert!(same > 1000, "only {same} frames are the same: the test tests too little");
}

/// Threads prepare the segments of two directories, and readers read while frames are appended.
#[test]
fn a_mirror_with_threads_reads_from_memory_and_from_files() {
    let mut random = Random::seeded(3);
    let (mut world, disk) = (World::default(), SimulatedDisk::new());
    let log = first(&mut world, &disk, 3, &mut random);
    let own = tempfile::tempdir().unwrap();
    let dirs = ["a", "b"].map(|name| own.path().join(name)).to_vec();
    let mut options = hyades_wal::LogOptions::new(dirs, 1);
    (options.segment_bytes, options.block_bytes) = (1 << 16, 1024);
    let mut mirror = Mirror::open(options.clone(), "b", world.database).unwrap();
    mirror.keep_in_memory(30_000);
    for _ in 0..300 {
        write(&log, &mut random, 10);
        while world.follow(&mut mirror, &mut random).unwrap() {}
        world.check_chunks(&mirror, &mut random).unwrap();
    }
    let proven = mirror.sync().unwrap();
    let received = mirror.received();
    assert_eq!((mirror.synced(), received.clone()), (received.clone(), world.newest().ends()));
    assert!(received.iter().all(|lsn| *lsn > 200_000), "{received:?}");
    for (lane, &to) in received.iter().enumerate() {
        let found = mirror.chunks(lane, 0, to).unwrap();
        assert_eq!(found.iter().flat_map(world::seen).collect::<Vec<_>>(), {
            world.newest().frames(lane)
        });
    }
    drop(mirror);
    let mirror = Mirror::open(options, "b", world.database).unwrap();
    assert!(mirror.received().iter().zip(&proven).all(|(at, proven)| at >= proven));
    assert_eq!(mirror.found(), received);
}

/// More histories: `HYADES_SEEDS=first..last cargo test -p hyades-wal --test mirror -- --ignored`.
#[test]
#[ignore = "takes as long as seeds are given"]
fn many_histories() {
    let seeds = std::env::var("HYADES_SEEDS").unwrap_or_else(|_| "1000..3000".into());
    let (first, last) = seeds.split_once("..").unwrap();
    for seed in first.parse().unwrap()..last.parse().unwrap() {
        let found = std::panic::catch_unwind(|| (standby_history(seed), takeover_history(seed)));
        assert!(found.is_ok(), "seed {seed}");
    }
}

/// Mutation test: each rule broken is noticed.
#[test]
fn a_broken_rule_is_noticed() {
    use hyades_platform::mutation::{self, Mutation};
    // The broken rule is global to the process: the other tests run in processes of their own.
    let rules = [
        Mutation::ForeignStatements,
        Mutation::KeepGhostTail,
        Mutation::StartAtOwnEnd,
        Mutation::ReportUnsynced,
        Mutation::TrustFoundSegment,
        Mutation::RaiseAtLocalSync,
    ];
    let name = "HYADES_BROKEN_MIRROR";
    if let Ok(broken) = std::env::var(name) {
        let rule = rules.into_iter().find(|rule| rule.name() == broken).unwrap();
        mutation::set(Some(rule));
        let segment = |_| {
            refusals::a_segment_that_was_found_is_not_relied_on();
            0
        };
        let histories: [fn(u64) -> usize; 3] = [segment, standby_history, takeover_history];
        let is_found = (0..60).any(|seed| {
            let mut histories = histories.iter();
            histories.any(|history| std::panic::catch_unwind(|| history(seed)).is_err())
        });
        assert!(is_found, "{broken} goes unnoticed");
        return;
    }
    for rule in rules {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_broken_rule_is_noticed"])
            .env(name, rule.name())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
