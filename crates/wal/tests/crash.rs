//! Random histories: append, flush, cut the power anywhere (also during recovery), open again.

mod common;
use common::{Read, append, read_all, reopen, small};
use hyades_platform::device::{
    FileDevice, PowerCutDevice, PowerCutOptions, SimulatedDisk, SimulatedFault,
};
use hyades_platform::random::Random;
use hyades_wal::{FrameKind, IncarnationSettings, LogOptions, Lsn, Unfinished, open};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The required result of recovery: by (incarnation, lane), the records appended and the
/// acknowledged LSN.
#[derive(Default)]
struct Model {
    lanes: BTreeMap<(u32, usize), Lane>,
}

#[derive(Default)]
struct Lane {
    appended: Vec<(Lsn, Vec<u8>)>,
    acknowledged: Lsn,
    /// The incarnation's end is recorded, so the content must not change any more.
    fixed: bool,
}

impl Model {
    fn check(&self, frames: &[Read]) {
        for (&(incarnation, number), lane) in &self.lanes {
            let read: Vec<_> = frames
                .iter()
                .filter(|f| f.incarnation == incarnation && f.lane == number)
                .filter(|f| f.kind == FrameKind::Record)
                .map(|f| (f.end, f.payload.clone()))
                .collect();
            assert!(read.len() <= lane.appended.len());
            assert_eq!(read, lane.appended[..read.len()], "only what was appended");
            let end = read.last().map_or(0, |(end, _)| *end);
            let acknowledged =
                lane.appended.iter().filter(|(e, _)| *e <= lane.acknowledged).count();
            assert!(read.len() >= acknowledged, "lane {number}: ends at {end}");
            assert!(!lane.fixed || read.len() == lane.appended.len(), "the past has changed");
        }
    }

    /// The newest incarnation's end was recorded: the incarnation holds exactly the frames read.
    fn fix(&mut self, frames: &[Read]) {
        for (&(incarnation, number), lane) in &mut self.lanes {
            let of_lane = |f: &&Read| f.incarnation == incarnation && f.lane == number;
            let records = frames.iter().filter(of_lane).filter(|f| f.kind == FrameKind::Record);
            lane.appended.truncate(records.count());
            lane.fixed = true;
        }
    }
}

fn options(dir: &std::path::Path, random: &mut Random, device: PowerCutDevice) -> LogOptions {
    let mut options = small(dir, 1 + random.below(3) as usize, Arc::new(device));
    options.segment_bytes = 1024 * (16 + random.below(32));
    options.buffer_bytes = 4096 << random.below(3);
    options.anchor_interval_bytes = 512 << random.below(4);
    options
}

/// Runs a history of several openings. Returns the number of surviving frames, for a check against
/// an empty test.
fn history(seed: u64, lying_sync: bool) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::seeded(seed);
    let mut model = Model::default();
    for round in 0..8 {
        let early_sectors = [0.0, 0.5, 0.9][random.below(3) as usize];
        let cut = PowerCutOptions { seed: random.next_u64(), early_sectors, lying_sync };
        let device = PowerCutDevice::new(cut);
        if round < 7 {
            device.cut_after(random.below(150));
        }
        let options = options(dir.path(), &mut random, device.clone());
        // The cut explains I/O errors and a stopped log; any further error, for example damage,
        // fails the test.
        let result = one_opening(options, &mut model, &mut random);
        match result {
            Err(
                hyades_wal::Error::Io { .. }
                | hyades_wal::Error::NotReplaced { .. }
                | hyades_wal::Error::Poisoned(_),
            ) => {}
            Err(error) => panic!("seed {seed}, round {round}: {error}"),
            Ok(()) => {}
        }
        device.cut();
    }
    let recovering = open(small(dir.path(), 1, FileDevice::shared())).unwrap();
    let (frames, _) = read_all(&recovering).unwrap();
    model.check(&frames);
    frames.len()
}

fn one_opening(
    options: LogOptions,
    model: &mut Model,
    random: &mut Random,
) -> Result<(), hyades_wal::Error> {
    let streams = options.streams;
    let recovering = open(options)?;
    let (frames, verdict) = read_all(&recovering)?;
    model.check(&frames);
    let log = recovering.start(IncarnationSettings::default(), &verdict, 1)?;
    model.fix(&frames);
    let incarnation = log.incarnation();
    for number in 0..streams {
        model.lanes.insert((incarnation, number), Lane::default());
    }
    let mut writer = log.writer()?;
    for _ in 0..random.below(200) {
        let number = random.below(streams as u64) as usize;
        let mut payload = vec![0; random.below(1000) as usize];
        random.fill(&mut payload);
        // A stopped log still hands out positions, without a meaning.
        let end = append(&mut writer, number, &payload);
        if let Some(lane) = model.lanes.get_mut(&(incarnation, number)) {
            lane.appended.push((end, payload));
            if random.chance(0.2)
                && log.frontier().wait(hyades_wal::Lane::position(number), end).is_ok()
            {
                lane.acknowledged = end;
            }
        }
    }
    if random.chance(0.3) { log.close() } else { Ok(()) }
}

#[test]
fn acknowledged_is_recovered_wherever_the_power_goes() {
    let survived: usize = (0..120).map(|seed| history(seed, false)).sum();
    assert!(survived > 1000, "only {survived} records survived: the test tests too little");
}

#[test]
fn a_device_that_lies_is_found_out() {
    // On a device with a broken promise, the same check must fail for some seed.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let caught = (0..20).any(|seed| std::panic::catch_unwind(|| history(seed, true)).is_err());
    std::panic::set_hook(hook);
    assert!(caught);
}

/// The content of a backup of the log, if the log can be opened.
fn backed_up(disk: &SimulatedDisk) -> Option<Vec<Read>> {
    let disk = disk.fork();
    let device = Arc::new(disk.process(1));
    let from = open(small("/db".as_ref(), 1, device.clone())).ok()?;
    let (_, verdict) = read_all(&from).ok()?;
    let to = Unfinished::begin(device, "/copy".as_ref()).unwrap();
    from.backup(&verdict, &to).unwrap();
    to.finish().unwrap();
    drop(from);
    let copy = open(small("/copy".as_ref(), 1, Arc::new(disk.process(2)))).unwrap();
    Some(read_all(&copy).unwrap().0)
}

/// Opening a log copies the tail without a statement, and may be interrupted before the copy is
/// renamed. A whole copy then replaces the original, through power cuts and rot.
#[test]
fn the_copy_of_a_tail_serves_before_it_has_its_name() {
    let disk = SimulatedDisk::new();
    let on = |disk: &SimulatedDisk| small("/db".as_ref(), 1, Arc::new(disk.process(1)));
    let (log, _) = reopen(on(&disk)).unwrap();
    let mut writer = log.writer().unwrap();
    let ends: Vec<Lsn> = (0..40u8).map(|n| append(&mut writer, 0, &[n; 300])).collect();
    log.frontier().wait(hyades_wal::Lane::position(0), *ends.last().unwrap()).unwrap();
    disk.kill();
    drop((writer, log));
    let records = |frames: Vec<Read>| {
        let record_frames = frames.into_iter().filter(|f| f.kind == FrameKind::Record);
        record_frames.map(|f| f.payload).collect::<Vec<_>>()
    };
    let whole = records(read_all(&open(on(&disk)).unwrap()).unwrap().0);
    assert_eq!(whole.len(), ends.len());

    let (mut with_copy, mut saved) = (0, 0);
    for step in 0.. {
        let disk = disk.fork();
        let device = disk.process(step);
        device.arm(SimulatedFault::Stop(step));
        let died = reopen(small("/db".as_ref(), 1, Arc::new(device))).is_err();
        if !died {
            break;
        }
        let is_copy = |(path, _): &(PathBuf, Vec<u8>)| path.extension().is_some_and(|e| e == "tmp");
        with_copy += u64::from(disk.content().iter().any(is_copy));
        for seed in 0..150 {
            let disk = disk.fork();
            let rot = disk.rot(seed).unwrap();
            let backed_up = (seed < 40).then(|| backed_up(&disk)).flatten();
            // The log is refused; or a tail without a proof of acknowledgement is missing.
            let Ok((log, frames)) = reopen(on(&disk)) else { continue };
            let found = records(frames);
            assert!(whole.starts_with(&found), "step {step}, {rot:?}");
            if seed < 40 {
                let copied = backed_up.map(records);
                assert_eq!(copied.as_ref(), Some(&found), "step {step}, {rot:?}: the backup");
            }
            assert!(rot.in_last_write || found.len() == whole.len(), "step {step}, {rot:?}");
            saved += u64::from(found.len() == whole.len());
            // Recovered records survive a power cut.
            drop(log);
            disk.power_cut(seed);
            let again = records(read_all(&open(on(&disk)).unwrap()).unwrap().0);
            assert_eq!(again, found, "step {step}, {rot:?}");
        }
    }
    assert!(with_copy > 1 && saved > 100, "{with_copy} {saved}");
}
