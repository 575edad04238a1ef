//! Transactions, act by act.

use super::*;
use crate::config::Options;
use crate::data::MemoryData;
use crate::data_component::ScanOrder::Ascending;
use crate::recovery::restart;
use crate::transaction_component::collecting::ASKED_AT_ONCE;
use crate::transaction_component::version_table::Sweep;
use hyades_platform::device::MemoryDevice;
use hyades_wal::{LogOptions, Writer};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SESSIONS: usize = 4;
const ENTRIES: usize = 16;

/// A transaction component over a stepped log of two streams, in a separate directory.
fn component(change: impl FnOnce(&mut Options)) -> (tempfile::TempDir, TransactionComponent) {
    let dir = tempfile::tempdir().unwrap();
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 2);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 16;
    log.segment_bytes = 1 << 18;
    log.stepped = true;
    log.max_writers = SESSIONS;
    let mut options = Options::new(log);
    options.transactions = ENTRIES;
    change(&mut options);
    options.check().unwrap();
    let data = Arc::new(MemoryData::new());
    let (log, first_ts, _) = restart(options.log.clone(), &*data, 1 << 20).unwrap();
    (dir, TransactionComponent::new(log, first_ts, data, options))
}

fn work(component: &TransactionComponent) -> Work {
    Work::new(component.timestamps.enter().unwrap(), component.log.streams())
}

/// Drops all versions not needed by active transactions.
fn sweep_all(component: &TransactionComponent) {
    let oldest_active = component.timestamps.oldest_active();
    component.versions.sweep(component.versions.buckets(), 0, oldest_active, Sweep::Unneeded);
}

/// The vector of the transaction's last record.
fn stated(component: &TransactionComponent, work: &Work, stream: usize) -> Vec<u64> {
    let anchor = component.log.anchors(stream).iter();
    let anchor: Vec<u64> = anchor.map(|lane| lane.load(Ordering::Acquire)).collect();
    let mut vector = vec![0; anchor.len()];
    record::read(&work.record, &anchor, &mut vector).unwrap();
    vector
}

#[test]
fn a_record_states_what_it_depends_on_though_that_is_durable() {
    for found in [
        "in the table",
        "by an entry used again",
        "in the data component",
        "fetched",
        "scanned",
        "scanned without result",
    ] {
        let (_dir, component) = component(|_| {});
        let mut writer = component.log.writer().unwrap();
        let (mut one, mut two) = (work(&component), work(&component));
        component.begin(&mut one).unwrap();
        component.put(&mut one, b"u", Some(b"1")).unwrap();
        drop(component.commit(&mut one, &mut writer, 0).unwrap());
        assert!(component.log.step(0));
        let end = component.log.next_lsn(0);
        assert_eq!(component.log.frontier().durable(0), end);
        if found == "by an entry used again" {
            for _ in 0..ENTRIES {
                component.begin(&mut one).unwrap();
                drop(component.abort(&mut one));
            }
        } else if found != "in the table" {
            assert!(component.run_proxy().unwrap());
            sweep_all(&component);
            assert_eq!(component.versions.bytes(), 0, "it has left the table");
        }
        if found == "fetched" {
            component.begin(&mut one).unwrap();
            drop(component.get(&mut one, b"u").unwrap());
            drop(component.abort(&mut one));
        }
        component.begin(&mut two).unwrap();
        let mut scanned = |to: &[u8]| {
            let range = (Unbounded, Excluded(to));
            component.scan_rows(&mut two, range, Ascending, 9).unwrap().len()
        };
        match found {
            "scanned" => assert_eq!(scanned(b"v"), 1),
            "scanned without result" => assert_eq!(scanned(b"u"), 0),
            _ => {
                let read = component.get(&mut two, b"u").unwrap();
                assert_eq!(read.as_deref(), Some(&b"1"[..]));
            }
        }
        component.put(&mut two, b"t", Some(b"2")).unwrap();
        let needs = component.commit(&mut two, &mut writer, 1).unwrap();
        let lanes: Vec<_> = needs.iter().map(|(lane, _)| lane.index()).collect();
        assert_eq!(lanes, [1], "it waits for its own record only");
        let stated = stated(&component, &two, 1);
        assert!(stated[0] >= end, "{found}: {stated:?} leaves out {end} of stream 0");
    }
}

/// Writes keys, each in a separate transaction, until the keys are in the data component alone.
fn write_many(component: &TransactionComponent, work: &mut Work, keys: u32, value: &[u8]) {
    let mut writer = component.log.writer().unwrap();
    for key in 0..keys {
        component.begin(work).unwrap();
        component.put(work, &key.to_be_bytes(), Some(value)).unwrap();
        drop(component.commit(work, &mut writer, 0).unwrap());
        while component.log.step(0) {}
        component.run_proxy().unwrap();
    }
}

#[test]
fn one_transaction_does_not_exceed_the_budget_by_what_it_reads() {
    let budget = 8 << 10;
    let (_dir, component) = component(|options| options.memory_bytes = budget);
    let mut work = work(&component);
    let (keys, value) = (100, [7; 500]);
    write_many(&component, &mut work, keys, &value);
    component.begin(&mut work).unwrap();
    for key in 0..keys {
        assert_eq!(
            component.get(&mut work, &key.to_be_bytes()).unwrap().as_deref(),
            Some(&value[..])
        );
        let bytes = component.versions.bytes();
        assert!(bytes <= budget + 1000, "{bytes} bytes after {key} keys");
    }
    drop(component.abort(&mut work));
}

#[test]
fn what_transactions_will_write_counts() {
    let budget = 16 << 10;
    let (_dir, component) = component(|options| options.memory_bytes = budget);
    let (mut one, mut two) = (work(&component), work(&component));
    let value = [7; 1000];
    component.begin(&mut one).unwrap();
    for key in 0..10u8 {
        component.put(&mut one, &[key], Some(&value)).unwrap();
        component.put(&mut one, &[key], Some(&value[..900])).unwrap();
    }
    let bytes = component.versions.bytes();
    assert!((9000..budget).contains(&bytes), "{bytes} bytes");
    component.begin(&mut two).unwrap();
    let put = |key: u8| component.put(&mut two, &[key], Some(&value));
    let shed = (10..30).map(put).find_map(Result::err);
    assert!(matches!(shed, Some(Error::Aborted(Abort::Shed))), "{shed:?}");
    assert!(component.versions.bytes() <= budget + 2000);
    drop(component.abort(&mut two));
    drop(component.abort(&mut one));
    sweep_all(&component);
    assert_eq!(component.versions.bytes(), 0);
    component.begin(&mut one).unwrap();
    let mut put = |key: u8| component.put(&mut one, &[key], Some(&value));
    let large = (0..30).map(&mut put).find_map(Result::err);
    assert!(matches!(large, Some(Error::TransactionTooLarge(..) | Error::Aborted(Abort::Shed))));
    drop(component.abort(&mut one));
}

#[test]
fn what_scans_need_counts_and_keeps_within_its_share() {
    let budget = 32 << 10;
    let (_dir, component) = component(|options| options.memory_bytes = budget);
    let (mut oldest, mut scanner) = (work(&component), work(&component));
    component.begin(&mut oldest).unwrap();
    // Each note matters to the oldest transaction, and none may be dropped without a trace.
    let key = [b'm'; 200];
    let mut most = 0;
    for _ in 0..500 {
        component.begin(&mut scanner).unwrap();
        let range = (Included(&key[..]), Unbounded);
        assert!(component.scan_rows(&mut scanner, range, Ascending, 1).unwrap().is_empty());
        drop(component.abort(&mut scanner));
        most = most.max(component.versions.bytes());
    }
    assert!((budget / 16..=budget / 8).contains(&most), "{most} bytes");
    let written = component.put(&mut oldest, b"z", Some(b""));
    assert!(matches!(written, Err(Error::Aborted(Abort::ReadByYounger))), "{written:?}");
    drop(component.abort(&mut oldest));
    sweep_all(&component);
    assert_eq!(component.versions.bytes(), 0, "notes leave with those that they matter to");
    let long = vec![b'm'; budget];
    component.begin(&mut scanner).unwrap();
    component.scan_rows(&mut scanner, (Included(&long[..]), Unbounded), Ascending, 1).unwrap();
    assert_eq!(component.versions.bytes(), 0, "a note that does not fit");
    drop(component.abort(&mut scanner));
}

#[test]
fn the_index_of_keys_counts() {
    let budget = 16 << 10;
    let bytes_after = |has_ranges| {
        let (_dir, component) = component(|options| {
            options.memory_bytes = budget;
            options.ranges = has_ranges;
        });
        let mut one = work(&component);
        component.begin(&mut one).unwrap();
        let mut written = 0;
        let large = loop {
            match component.put(&mut one, &[written], Some(b"1")) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(large, Error::TransactionTooLarge(..)), "{large:?}");
        let bytes = component.versions.bytes();
        assert!((budget - 400..=budget).contains(&bytes), "{bytes} bytes");
        drop(component.abort(&mut one));
        sweep_all(&component);
        assert_eq!(component.versions.bytes(), 0, "entries leave with their keys");
        written
    };
    let (with, without) = (bytes_after(true), bytes_after(false));
    assert!(with < without, "{with} keys with an index, {without} without");
}

#[test]
fn buckets_follow_what_is_in_the_table_and_not_the_budget() {
    let (_dir, component) = component(|options| options.memory_bytes = 1 << 40);
    let (mut writer, mut one) = (component.log.writer().unwrap(), work(&component));
    assert_eq!(component.versions.buckets(), 16);
    for key in 0..2000u32 {
        component.begin(&mut one).unwrap();
        component.put(&mut one, &key.to_be_bytes(), Some(&[1; 50])).unwrap();
        drop(component.commit(&mut one, &mut writer, 0).unwrap());
        while component.log.step(0) {}
        component.run_proxy().unwrap();
    }
    let (buckets, bytes) = (component.versions.buckets(), component.versions.bytes());
    assert!((500..2 * 500).contains(&buckets), "{buckets} buckets for {bytes} bytes");
    sweep_all(&component);
    assert_eq!(component.versions.bytes(), 0, "each bucket is swept");
}

/// A session with little to write does not look at all other sessions each time.
#[test]
fn a_nearly_full_table_is_swept_for_several_requests_at_once() {
    let (_dir, component) = component(|options| options.memory_bytes = 64 << 10);
    let (mut writer, mut one) = (component.log.writer().unwrap(), work(&component));
    let put = |one: &mut Work, writer: &mut Writer, key: u32| {
        component.begin(one).unwrap();
        component.put(one, &key.to_be_bytes(), Some(&[1; 100])).unwrap();
        drop(component.commit(one, writer, 0).unwrap());
        while component.log.step(0) {}
        component.run_proxy().unwrap();
    };
    let (mut key, mut asked) = (0, 0);
    while component.versions.bytes() <= component.options.memory_bytes / 4 * 3 {
        put(&mut one, &mut writer, key);
        key += 1;
    }
    for _ in 0..3 * ASKED_AT_ONCE {
        let before = one.ask_for_room();
        put(&mut one, &mut writer, key);
        key += 1;
        assert!(component.versions.bytes() <= component.options.memory_bytes / 8 * 7 + 400);
        asked += u32::from(one.ask_for_room() > before);
    }
    assert!(asked > 0, "it was swept each time");
}

/// A version left without a reader by a write goes with the write, though the table is nearly
/// empty.
#[test]
fn a_key_that_is_written_often_keeps_what_transactions_may_read() {
    let (_dir, component) = component(|_| {});
    let mut writer = component.log.writer().unwrap();
    let (mut old, mut one) = (work(&component), work(&component));
    let mut write = |value: u8, times: u32| {
        for _ in 0..times {
            component.begin(&mut one).unwrap();
            component.put(&mut one, b"k", Some(&[value; 100])).unwrap();
            drop(component.commit(&mut one, &mut writer, 0).unwrap());
            while component.log.step(0) {}
        }
        // Nothing is applied here, so all records wait, and count as well.
        component.versions.bytes() - component.held.get()
    };
    let few = write(1, 2 * WRITES_PER_LOOK);
    assert!(few <= 500 + WRITES_PER_LOOK as usize * 200, "{few} bytes");
    assert!(write(1, 20 * WRITES_PER_LOOK) <= few, "as many are left however many there were");
    component.begin(&mut old).unwrap();
    // Newer versions are of use to no transaction, but to find this out takes more than the order
    // of the versions.
    let many = write(2, 10 * WRITES_PER_LOOK);
    assert!(many > few);
    let read = component.get(&mut old, b"k").unwrap();
    assert_eq!(read.as_deref(), Some(&[1; 100][..]), "an active transaction needs it");
    drop(component.abort(&mut old));
    assert!(write(3, 2 * WRITES_PER_LOOK) <= few);
}
