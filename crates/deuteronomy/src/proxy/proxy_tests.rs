//! Tests of the proxy.

use super::*;
use crate::data::MemoryData;
use crate::recovery::restart;
use hyades_platform::device::MemoryDevice;
use hyades_wal::LogOptions;
use std::sync::mpsc::channel;

fn handed(start: Lsn) -> Handed {
    let (needs, operations) = (Needs::default(), SmallVec::new());
    let place = (start, start + 8);
    Handed { ts: 1, stream: 0, place, first: start, needs, operations, bytes: 8, handed_ns: 0 }
}

/// A stepped log, without activity of its own, and its proxy.
fn stepped() -> (tempfile::TempDir, Log, Proxy) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = LogOptions::new(vec![dir.path().to_owned()], 1);
    options.device = MemoryDevice::shared();
    options.stepped = true;
    let (log, ..) = restart(options.clone(), &MemoryData::new(), 1 << 20).unwrap();
    let proxy = Proxy::new(&log, &Options::new(options), HeldBytes::default(), 1);
    (dir, log, proxy)
}

#[test]
fn a_record_wakes_a_proxy_that_sleeps_and_one_for_which_others_wait_looks_by_itself() {
    let (_dir, log, proxy) = stepped();
    let (done, is_done) = channel();
    let limit = Duration::from_secs(10);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            done.send(proxy.wait(&log)).unwrap();
            proxy.receive(&mut locked(&proxy.scans), &log, &Timestamps::new(1, 1, 0));
            // The proxy does not sleep: the record waits.
            done.send(proxy.wait(&log)).unwrap();
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(is_done.try_recv().is_err(), "there is nothing to do");
        proxy.hand_over(handed(log.frontier().durable(0)));
        assert_eq!(is_done.recv_timeout(limit), Ok(true));
        assert_eq!(is_done.recv_timeout(limit), Ok(true));
        assert!(!proxy.inbox.is_asleep(), "none is woken that does not sleep");
    });
}

#[test]
fn a_proxy_does_not_sleep_while_another_has_taken_its_record_in() {
    let (_dir, log, proxy) = stepped();
    let (done, is_done) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let is_open = proxy.wait(&log);
            done.send(is_open).unwrap();
        });
        // The proxy sleeps, or has not begun to: both are right.
        std::thread::sleep(Duration::from_millis(50));
        // A session's record has woken the proxy, and a session making room, or a checkpoint, has
        // taken the record in before the proxy is awake.
        let mut scans = locked(&proxy.scans);
        let requests = locked(&proxy.inbox.requests);
        proxy.inbox.arrived.notify_one();
        scans.waiting[0].insert(handed(0));
        drop((scans, requests));
        let woken = is_done.recv_timeout(Duration::from_secs(10));
        proxy.close();
        assert_eq!(woken, Ok(true), "it sleeps, and a record waits");
    });
}
