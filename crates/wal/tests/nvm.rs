//! A log in non-volatile memory. Promise: what a writer has flushed is there after a power cut, and
//! the flush writes to the mapped file alone.
#![allow(missing_docs)]

mod common;
use common::{append, reopen, small};
use hyades_platform::device::{
    Device, Nvm, NvmDevice, SimulatedDevice, SimulatedDisk, SimulatedFault,
};
use hyades_wal::{FrameKind, LogOptions};
use std::path::Path;
use std::sync::Arc;

const NVM: Nvm = Nvm { factor: 2.0, first_ns: 200.0, line_ns: 5.0 };

fn options(device: SimulatedDevice, maps: bool) -> LogOptions {
    let below: Arc<dyn Device> = Arc::new(device);
    let device = if maps { Arc::new(NvmDevice::new(below, NVM)) } else { below };
    let mut options = small(Path::new("/db"), 2, device);
    options.flushed_by_writers = true;
    options.block_bytes = 64;
    options
}

fn payload(n: usize) -> Vec<u8> {
    let mut payload = vec![n as u8; 1 + n * 7 % 300];
    payload[0] = 1 + (n >> 8) as u8;
    payload
}

/// Writers flush to two streams until the process dies; then the power fails. Returns how many
/// records were told to be durable and found, of both streams.
fn history(seed: u64) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let disk = SimulatedDisk::new();
    let device = disk.process(seed);
    let (log, _) = reopen(options(device.clone(), true)).unwrap();
    let stops = random.bool();
    if stops {
        device.arm(SimulatedFault::Stop(random.u64(0..4000)));
    }
    let told: Vec<usize> = std::thread::scope(|scope| {
        let writers = [0, 1].map(|stream| {
            let log = &log;
            scope.spawn(move || {
                let Ok(mut writer) = log.writer() else { return 0 };
                let flush = |n: &usize| {
                    let end = append(&mut writer, stream, &payload(*n));
                    writer.flush(stream, end)
                };
                // Several segments of each stream.
                (0..1000).take_while(flush).count()
            })
        });
        writers.map(|writer| writer.join().unwrap()).into()
    });
    assert!(stops || told == [1000; 2], "seed {seed}: {told:?}");
    disk.power_cut(random.u64(..));
    drop(log);
    // Memory is read as any other device.
    let (log, read) = reopen(options(disk.process(seed), random.bool())).unwrap();
    for (lane, told) in told.iter().enumerate() {
        let records = read.iter().filter(|f| f.lane == lane && f.kind == FrameKind::Record);
        let records: Vec<_> = records.map(|frame| &frame.payload).collect();
        assert!(records.len() >= *told, "seed {seed}: {} of {told}", records.len());
        assert!(records.iter().enumerate().all(|(n, found)| **found == payload(n)), "seed {seed}");
    }
    log.close().unwrap();
    told.iter().sum()
}

#[test]
fn what_was_flushed_is_there_after_a_power_cut() {
    let found: usize = (0..30).map(history).sum();
    assert!(found > 20_000, "{found}");
}

/// Neither a write nor a sync of the device below would succeed.
#[test]
fn a_flush_enters_the_device_below_no_more() {
    let disk = SimulatedDisk::new();
    let device = disk.process(1);
    let mut options = options(device.clone(), true);
    options.segment_bytes = 1 << 20;
    let (log, _) = reopen(options).unwrap();
    let mut writer = log.writer().unwrap();
    for n in 0..200 {
        if n == 1 {
            // The first sync of a file makes the file itself durable.
            device.arm(SimulatedFault::Full(0));
            device.arm(SimulatedFault::Sync { after: 0, for_ever: true });
        }
        let end = append(&mut writer, 0, &payload(n));
        assert!(writer.flush(0, end), "record {n}: {:?}", log.poisoned());
    }
    drop((writer, log));
    disk.power_cut(2);
    let (log, read) = reopen(self::options(disk.process(3), false)).unwrap();
    let records = read.iter().filter(|frame| frame.kind == FrameKind::Record);
    assert_eq!(records.count(), 200);
    log.close().unwrap();
}

/// Mutation test: a line that is left in the cache is missed.
#[test]
fn a_line_that_is_not_flushed_is_noticed() {
    use hyades_platform::mutation::{self, Mutation};
    // The broken rule is global to the process: the other tests run in processes of their own.
    let name = "HYADES_LEAVE_LAST_LINE";
    if std::env::var(name).is_ok() {
        mutation::set(Some(Mutation::LeaveLastLine));
        let is_found = (0..30).any(|seed| std::panic::catch_unwind(|| history(seed)).is_err());
        assert!(is_found, "it goes unnoticed");
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_line_that_is_not_flushed_is_noticed"])
        .env(name, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
