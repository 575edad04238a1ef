//! Reads, scans and snapshots over a connection, and peers that are no server.
#![allow(missing_docs)]

mod common;

use common::Far;
use hyades_deuteronomy::{
    DataComponent, Database, Error, LogOptions, MemoryData, Operation, Options, ScanOrder,
};
use hyades_deuteronomy_remote::{DataServer, RemoteData, RemoteOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

type Rows = Vec<(Vec<u8>, u64, Option<Vec<u8>>)>;

fn scanned(
    range: (Bound<&[u8]>, Bound<&[u8]>),
    order: ScanOrder,
    most: usize,
    scan: impl FnOnce(
        (Bound<&[u8]>, Bound<&[u8]>),
        ScanOrder,
        &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error>,
) -> Rows {
    let mut rows = Vec::new();
    scan(range, order, &mut |Operation { key, ts, value }| {
        rows.push((key.to_vec(), ts, value.map(<[u8]>::to_vec)));
        match rows.len() < most {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })
    .unwrap();
    rows
}

/// 3,000 keys with 300 bytes each: several answers.
fn filled() -> (Arc<MemoryData>, DataServer, RemoteData) {
    let data = Arc::new(MemoryData::new());
    for nth in 0..3000u64 {
        let value = (nth % 7 > 0).then(|| vec![nth as u8; 300]);
        let operation = Operation { key: &nth.to_be_bytes(), ts: nth + 1, value: value.as_deref() };
        data.apply(&[operation]).unwrap();
    }
    let server = DataServer::start("127.0.0.1:0", data.clone()).unwrap();
    let address = server.address().to_string();
    let remote = RemoteData::connect(&address, RemoteOptions::default()).unwrap();
    (data, server, remote)
}

#[test]
fn scans_and_reads_are_those_of_the_data_component() {
    let (data, _server, remote) = filled();
    assert_eq!(remote.limits(), data.limits());
    assert_eq!(remote.highest_ts().unwrap(), 3000);
    assert_eq!(remote.resume_point().unwrap(), None);
    for nth in [0u64, 7, 8, 2999, 5000] {
        assert_eq!(remote.get(&nth.to_be_bytes()).unwrap(), data.get(&nth.to_be_bytes()).unwrap());
    }
    let keys = [0u64, 10, 1500, 2999].map(u64::to_be_bytes);
    let snapshot = remote.snapshot().unwrap().expect("memory keeps snapshots");
    for order in [ScanOrder::Ascending, ScanOrder::Descending] {
        for from in [Unbounded, Included(&keys[1][..]), Excluded(&keys[1][..])] {
            for to in [Unbounded, Included(&keys[2][..]), Excluded(&keys[3][..])] {
                for most in [1, 900, usize::MAX] {
                    let range = (from, to);
                    let expected = scanned(range, order, most, |range, order, each| {
                        data.scan(range, order, each)
                    });
                    let found = scanned(range, order, most, |range, order, each| {
                        remote.scan(range, order, each)
                    });
                    assert_eq!(found, expected, "{range:?} {order:?} {most}");
                    let found = scanned(range, order, most, |range, order, each| {
                        snapshot.scan(range, order, each)
                    });
                    assert_eq!(found, expected, "{range:?} {order:?} {most}");
                }
            }
        }
    }
}

#[test]
fn a_batch_larger_than_a_frame_is_applied() {
    let (data, _server, remote) = filled();
    let value = vec![7; 1 << 20];
    let keys: Vec<[u8; 8]> = (10_000..10_070u64).map(u64::to_be_bytes).collect();
    let operation = |key| Operation { key, ts: 9_000, value: Some(&value[..]) };
    let batch: Vec<_> = keys.iter().map(|key| operation(&key[..])).collect();
    remote.apply(&batch).unwrap();
    for key in &keys {
        assert_eq!(data.get(key).unwrap().value.as_deref(), Some(&value[..]));
    }
    assert_eq!(remote.get(&keys[69]).unwrap().ts, 9_000);
    assert!(remote.kept_bytes() > 70 << 20);
    remote.apply(&[]).unwrap();
}

#[test]
fn a_snapshot_stays_as_it_was_and_ends_with_its_server() {
    let (data, server, remote) = filled();
    let snapshot = remote.snapshot().unwrap().unwrap();
    let key = 1u64.to_be_bytes();
    let before = data.get(&key).unwrap();
    remote.apply(&[Operation { key: &key, ts: 9000, value: None }]).unwrap();
    assert_eq!(snapshot.get(&key).unwrap(), before);
    assert_eq!(remote.get(&key).unwrap().ts, 9000);
    drop(server);
    let ended = snapshot.get(&key).unwrap_err().to_string();
    assert!(ended.contains("the snapshot ended with its connection"), "{ended}");
}

#[test]
fn a_long_snapshot_and_a_backup_are_read_over_the_connection() {
    let (dir, far) = (tempfile::tempdir().unwrap(), Far::start());
    let options = Options::new(LogOptions::new(vec![dir.path().join("log")], 2));
    let database = Database::open(options, Arc::new(far.connect())).unwrap();
    let mut session = database.session().unwrap();
    session.execute(|tx| tx.put(b"a", b"1")).unwrap();
    let snapshot = database.long_snapshot().unwrap();
    session.execute(|tx| tx.put(b"a", b"2")).unwrap();
    database.checkpoint().unwrap();
    assert_eq!(snapshot.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    let other = Far::start();
    let copy = other.connect();
    let backup = database.backup(dir.path().join("copy"), &copy).unwrap();
    assert_eq!(backup.keys, 1);
    drop(copy);
    let options = Options::new(LogOptions::new(vec![dir.path().join("copy")], 2));
    let restored = Database::open(options, Arc::new(other.connect())).unwrap();
    let value = restored.session().unwrap().execute(|tx| tx.get(b"a")).unwrap();
    assert_eq!(value.as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_server_that_is_none_or_away_is_an_error_in_time() {
    let options = RemoteOptions::default().patience(Duration::from_millis(200));
    let failed = |address: &str, why: &str| {
        let error = RemoteData::connect(address, options).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    failed("127.0.0.1:1", "was not reached within 200ms");
    // A peer that answers something else, and closes.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream: TcpStream = stream;
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    failed(&address, "was not reached within 200ms");
    // A client that speaks something else gets no further than an error.
    let (_data, server, remote) = filled();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(remote.get(&[0; 8]).unwrap().ts, 1);
}
