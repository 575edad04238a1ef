//! Limits of connections and of kept operations.
#![allow(missing_docs)]

mod common;

use common::{Far, point};
use hyades_deuteronomy::{DataComponent, MemoryData, Operation};
use hyades_deuteronomy_remote::{DataServer, RemoteData, RemoteOptions, ServerOptions};
use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn connections_have_a_limit_and_strangers_go() {
    let options = ServerOptions::default().connections(2).greeting(Duration::from_millis(500));
    let data = Arc::new(MemoryData::new());
    let server = DataServer::start_with("127.0.0.1:0", data, options).unwrap();
    let address = server.address().to_string();
    let mut strangers = [(); 2].map(|()| TcpStream::connect(&address).unwrap());
    let short = RemoteOptions::default().patience(Duration::from_millis(100));
    let error = RemoteData::connect(&address, short).unwrap_err().to_string();
    assert!(error.contains("as many connections as its limit allows"), "{error}");
    // The strangers are dropped, and a client that waits gets in.
    let began = Instant::now();
    let patient = RemoteOptions::default().patience(Duration::from_secs(20));
    let client = RemoteData::connect(&address, patient).unwrap();
    assert!(began.elapsed() < Duration::from_secs(10));
    strangers.iter_mut().for_each(|stranger| assert_eq!(stranger.read(&mut [0]).unwrap(), 0));
    // A silent client stays.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(client.get(b"a").unwrap().ts, 0);
}

#[test]
fn kept_operations_have_a_limit_and_the_resume_point_stays() {
    const MOST: usize = 64 << 10;
    let far = Far::start();
    let options = RemoteOptions::default().kept_bytes(MOST);
    let client = RemoteData::connect(&far.address.to_string(), options).unwrap();
    client.checkpoint(&point(1)).unwrap();
    client.checkpoint(&point(2)).unwrap();
    let value = [7; 1000];
    for ts in 1..=500u64 {
        let key = ts.to_be_bytes();
        client.apply(&[Operation { key: &key, ts, value: Some(&value) }]).unwrap();
        assert!(client.kept_bytes() <= MOST, "{} bytes", client.kept_bytes());
    }
    assert!(client.checkpoints_for_room() > 5, "{}", client.checkpoints_for_room());
    far.kill();
    far.revive();
    assert_eq!(client.resume_point().unwrap(), Some(point(2)));
    for ts in 1..=500u64 {
        assert_eq!(client.get(&ts.to_be_bytes()).unwrap().ts, ts);
    }
}
