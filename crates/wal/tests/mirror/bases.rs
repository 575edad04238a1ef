//! Promise: a base that is read in pieces is as whole as a copy, while its source goes on and
//! truncates its log, and wherever the member dies that takes the base: afterwards the files are
//! those of before, or the base's.

use super::world::{World, options};
use super::{Standby, checkpoint, expect_death, first, write};
use hyades_platform::device::{SimulatedDisk, SimulatedFault};
use hyades_platform::random::Random;
use hyades_wal::{BaseFiles, BaseWriter, Error, Log, LogOptions, Mirror};

/// Reads a list of files in pieces of any size, and goes on with the source between.
fn arrive(
    files: &BaseFiles,
    options: LogOptions,
    random: &mut Random,
    mut between: impl FnMut(&mut Random),
) -> Result<(), Error> {
    let mut writer = BaseWriter::begin(options, files.list())?;
    while let Some((file, from)) = writer.awaits()? {
        let most = 1 + random.below(9000) as usize;
        writer.write(&files.read(file, from, most)?)?;
        if random.chance(0.2) {
            between(random);
        }
    }
    writer.finish()
}

/// Goes on with a mirror. `None` if its device has died.
fn go_on(source: &mut Standby, world: &World, random: &mut Random) -> Option<()> {
    let mirror = source.mirror.as_mut()?;
    expect_death(world.follow(mirror, random))?;
    if random.chance(0.3) {
        expect_death(mirror.sync())?;
        expect_death(checkpoint(mirror, world, random))?;
    }
    Some(())
}

/// Has a member begin on a disk with a base of the primary or of a standby. The member dies at any
/// step, and begins again.
pub fn fetch(
    log: &Log,
    (source, disk): (&mut Standby, &SimulatedDisk),
    world: &World,
    random: &mut Random,
) {
    loop {
        let device = disk.process(random.next_u64());
        if random.chance(0.7) {
            device.arm(SimulatedFault::Stop(random.below(60)));
        }
        let to = options(device, 1, random);
        let arrived = if random.chance(0.5) {
            let files = log.base_files(Vec::new()).unwrap();
            arrive(&files, to, random, |random| write(log, random, 3))
        } else {
            source.catch_up(world, random);
            let Some(mirror) = &source.mirror else { continue };
            let Some(files) = expect_death(mirror.base_files(Vec::new())) else {
                source.crash(world, random);
                continue;
            };
            let files = files.expect("a mirror that has caught up has an incarnation");
            let mut dies = false;
            let arrived = arrive(&files, to, random, |random| {
                dies |= go_on(source, world, random).is_none();
            });
            if dies {
                source.crash(world, random);
            }
            arrived
        };
        if expect_death(arrived).is_some() {
            return;
        }
        match random.chance(0.5) {
            true => disk.power_cut(random.next_u64()),
            false => disk.kill(),
        }
        let again = options(disk.process(random.next_u64()), 1, random);
        let opened = expect_death(Mirror::open(again, "c", world.database));
        if opened.is_some_and(|mirror| mirror.incarnation().is_some()) {
            return;
        }
    }
}

/// A member with files of its own, which a base replaces: at each step at which the member may die,
/// the files are whole, and the base's in the end.
#[test]
fn a_base_replaces_files_at_any_step() {
    for stop in 0.. {
        let mut random = Random::seeded(stop);
        let (mut world, disk) = (World::default(), SimulatedDisk::new());
        let log = first(&mut world, &disk, 2, &mut random);
        write(&log, &mut random, 30);
        let mut member = Standby::new(SimulatedDisk::new(), "c");
        while member.mirror.is_none() {
            member.catch_up(&world, &mut random);
        }
        let former = member.mirror.take().unwrap().synced();
        write(&log, &mut random, 60);
        super::drain(&log);
        let ends = world.newest().ends();
        assert!(former.iter().zip(&ends).all(|(former, end)| former < end));
        let device = member.disk.process(stop);
        device.arm(SimulatedFault::Stop(stop));
        let files = log.base_files(Vec::new()).unwrap();
        let to = options(device.clone(), 1, &mut random);
        let arrived = expect_death(arrive(&files, to, &mut random, |_| {}));
        match stop % 2 {
            0 => member.disk.power_cut(stop),
            _ => member.disk.kill(),
        }
        let again = options(member.disk.process(stop), 1, &mut random);
        let mirror = Mirror::open(again, "c", world.database).unwrap();
        let received = mirror.received();
        assert!(received == ends || arrived.is_none(), "step {stop}: {received:?} of {ends:?}");
        let is_former = received.iter().zip(&former).all(|(received, former)| received <= former);
        assert!(received == ends || is_former, "step {stop}: {received:?}, {former:?}, {ends:?}");
        drop(mirror);
        world.check_files(&member.disk, "c", &member.reported);
        if arrived.is_some() {
            assert!(stop > 20, "the test tests too little");
            return;
        }
    }
}

/// While a list is there its files stay, and a later list has the files of a later truncation.
#[test]
fn files_of_a_list_outlive_their_truncation() {
    let mut random = Random::seeded(5);
    let (mut world, disk) = (World::default(), SimulatedDisk::new());
    let log = first(&mut world, &disk, 1, &mut random);
    let mut source = Standby::new(SimulatedDisk::new(), "b");
    let device = source.disk.process(1);
    let opened = Mirror::open(options(device, 1, &mut random), "b", world.database);
    source.mirror = Some(opened.unwrap());
    let mut lists = Vec::new();
    for _ in 0..30 {
        write(&log, &mut random, 200);
        super::drain(&log);
        let mirror = source.mirror.as_mut().unwrap();
        while world.follow(mirror, &mut random).unwrap() {}
        mirror.sync().unwrap();
        lists.push(mirror.base_files(Vec::new()).unwrap().unwrap());
        checkpoint(mirror, &world, &mut random).unwrap();
    }
    let first = lists[0].list();
    assert!(
        first.iter().all(|(name, _)| lists[29].list().iter().all(|(other, _)| name != other)
            || name == "MANIFEST"
            || name == "HYADES"),
        "the log was never truncated: {first:?}"
    );
    for files in &lists {
        for (file, (name, length)) in files.list().iter().enumerate() {
            let read = files.read(file, 0, *length as usize).unwrap();
            assert_eq!(read.len() as u64, *length, "{name}");
        }
    }
    let there = |disk: &SimulatedDisk| disk.content().len();
    let before = there(&source.disk);
    drop(lists);
    assert!(there(&source.disk) < before, "the files of a list go with the list");
}
