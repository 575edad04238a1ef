use super::*;
use crate::device::MemoryDevice;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// A throttled device over the memory device.
fn device(throttle: Throttle) -> (tempfile::TempDir, ThrottledDevice) {
    let dir = tempfile::tempdir().unwrap();
    (dir, ThrottledDevice::new(MemoryDevice::shared(), throttle))
}

fn slow() -> Throttle {
    Throttle { bytes_per_s: Some(8e6), latency_ns: MS / 10, depth: 1 }
}

/// Runs in simulated time; returns the nanoseconds taken.
fn simulated(run: impl FnOnce()) -> u64 {
    clock::simulate(Some(SECOND));
    run();
    let took = clock::monotonic_ns() - SECOND;
    clock::simulate(None);
    took
}

#[test]
fn a_write_is_durable_after_its_latency_and_its_bytes() {
    let (dir, device) = device(slow());
    let file = device.create(&dir.path().join("f"), 1 << 20).unwrap();
    let took = simulated(|| {
        file.write_at(&[IoSlice::new(&[1; 4000]), IoSlice::new(&[2; 4000])], 0).unwrap();
        file.sync_data().unwrap();
        // Nothing new was written.
        file.sync_data().unwrap();
    });
    assert_eq!(took, MS + MS / 10);
}

#[test]
fn a_long_write_does_not_wait_for_its_sync() {
    let (dir, device) = device(slow());
    let file = device.create(&dir.path().join("f"), 0).unwrap();
    let bytes = vec![7; 8 << 20];
    let mut written = 0;
    let took = simulated(|| {
        file.write_at(&[IoSlice::new(&bytes)], 0).unwrap();
        written = clock::monotonic_ns() - SECOND;
        file.sync_data().unwrap();
    });
    assert_eq!(written, (7 << 20) * 125);
    assert_eq!(took, (8 << 20) * 125 + MS / 10);
}

#[test]
fn files_of_a_device_share_its_bandwidth_and_devices_do_not() {
    let (dir, first) = device(slow());
    let (_, second) = device(slow());
    let open = |device: &ThrottledDevice, name: &str| {
        device.create(&dir.path().join(name), 1 << 20).unwrap()
    };
    let (a, b, c) = (open(&first, "a"), open(&first, "b"), open(&second, "c"));
    let write = |file: &Arc<dyn DeviceFile>| {
        // All requests arrive at the same time.
        clock::simulate(Some(SECOND));
        file.write_at(&[IoSlice::new(&[1; 8000])], 0).unwrap();
        file.sync_data().unwrap();
        clock::monotonic_ns() - SECOND
    };
    assert_eq!([write(&a), write(&b), write(&c)], [11 * MS / 10, 22 * MS / 10, 11 * MS / 10]);
    clock::simulate(None);
}

#[test]
fn reads_pass_at_the_same_rate_and_wait_only_where_they_jump() {
    let (dir, device) = device(slow());
    let file = device.create(&dir.path().join("f"), 1 << 20).unwrap();
    let took = simulated(|| {
        let mut buffer = vec![0; 80_000];
        for at in 0..10 {
            assert_eq!(file.read_at(&mut buffer, at * 80_000).unwrap(), 80_000);
        }
        file.read_at(&mut buffer, 7).unwrap();
    });
    assert_eq!(took, 11 * 10 * MS + 2 * (MS / 10));
}

#[test]
fn a_small_file_passes_through_the_device_too() {
    let (dir, device) = device(slow());
    let path = dir.path().join("small");
    let took = simulated(|| device.write_small(&path, &[3; 800]).unwrap());
    assert_eq!((took, device.read_small(&path).unwrap()), (2 * MS / 10, vec![3; 800]));
}

/// Counts the syncs in progress, and blocks the syncs until the gate is open.
#[derive(Debug, Default)]
struct Gate {
    open: AtomicBool,
    inside: AtomicUsize,
    most: AtomicUsize,
    order: Mutex<Vec<u64>>,
}

#[derive(Debug)]
struct GatedFile(Arc<Gate>, u64);

impl DeviceFile for GatedFile {
    fn write_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn sync_data(&self) -> io::Result<()> {
        let inside = self.0.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(inside, Ordering::SeqCst);
        self.0.order.lock().unwrap().push(self.1);
        while !self.0.open.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::yield_now();
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }
}

#[test]
fn streams_of_a_device_take_turns_and_no_more_than_its_depth_are_in_service() {
    for depth in [1, 3] {
        let (_dir, device) = device(Throttle { depth, ..Throttle::default() });
        let gate = Arc::new(Gate::default());
        std::thread::scope(|scope| {
            for stream in 0..8 {
                let file = device.wrap(Arc::new(GatedFile(Arc::clone(&gate), stream)));
                file.write_at(&[IoSlice::new(b"x")], 0).unwrap();
                let queue = &device.queue;
                let asked = queue.state().next_ticket;
                scope.spawn(move || file.sync_data().unwrap());
                // In sequence, so the order of arrival is known.
                while queue.state().next_ticket == asked {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
            while gate.inside.load(Ordering::SeqCst) < depth {
                std::thread::sleep(Duration::from_micros(100));
            }
            assert_eq!(device.queue.state().waiting.len(), 8 - depth);
            gate.open.store(true, Ordering::SeqCst);
        });
        assert_eq!(gate.most.load(Ordering::SeqCst), depth);
        if depth == 1 {
            assert_eq!(*gate.order.lock().unwrap(), (0..8).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_failed_sync_gives_its_turn_back() {
    #[derive(Debug)]
    struct Failing;
    impl DeviceFile for Failing {
        fn write_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<()> {
            Ok(())
        }
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Err(io::ErrorKind::Other.into())
        }
        fn sync_data(&self) -> io::Result<()> {
            Err(io::ErrorKind::Other.into())
        }
        fn len(&self) -> io::Result<u64> {
            Ok(0)
        }
    }
    let (_dir, device) = device(slow());
    let file = device.wrap(Arc::new(Failing));
    for _ in 0..3 {
        file.write_at(&[IoSlice::new(b"x")], 0).unwrap();
        assert!(file.sync_data().is_err());
        assert!(file.read_at(&mut [0], 0).is_err());
    }
    assert_eq!(device.queue.state().in_service, 0);
}
