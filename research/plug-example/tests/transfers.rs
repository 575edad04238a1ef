//! Pairs from outside of the engine keep the engine's promises: acknowledged transfers are there
//! after a crash, and no transfer is there by half.
#![allow(missing_docs)]

use hyades::{Concurrency, Protocol};
use hyades_plug_example::transfers::{self, CLIENT_COUNT};
use hyades_plug_example::{ALL_STREAMS, EXCLUSIVE_LOCKS};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// Runs the program in `dir`, and kills the program after this many lines. Returns the number of
/// the last acknowledged transfer of each client.
fn run_and_kill(dir: &Path, lines: usize) -> Vec<i64> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plug-example"))
        .args([dir.as_os_str(), "1000000".as_ref()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut told = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut last = vec![0; CLIENT_COUNT as usize];
    for at in 0.. {
        if at == lines {
            child.kill().expect("it runs");
        }
        // Lines printed before the kill count, too.
        let Some(Ok(line)) = told.next() else { break };
        let Some((client, number)) = line.split_once(' ') else { break };
        if let (Ok(client), Ok(number)) = (client.parse::<usize>(), number.parse()) {
            last[client] = number;
        }
    }
    child.wait().expect("it was killed");
    assert!(last.iter().sum::<i64>() as usize >= lines / 2, "it told of transfers: {last:?}");
    last
}

#[test]
fn what_is_acknowledged_is_there_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    for round in 1..=3 {
        let told = run_and_kill(dir.path(), 300 * round);
        let db = transfers::open(dir.path(), ALL_STREAMS, EXCLUSIVE_LOCKS).unwrap();
        let there = transfers::check(&db).unwrap();
        let is_there = there.iter().zip(&told).all(|(there, told)| there >= told);
        assert!(is_there, "acknowledged {told:?}, there {there:?}");
        // Without a crash nothing is lost at all.
        transfers::run(&db, 0, 10, |_| ()).unwrap();
        db.close().unwrap();
        let db = transfers::open(dir.path(), ALL_STREAMS, EXCLUSIVE_LOCKS).unwrap();
        assert_eq!(transfers::check(&db).unwrap()[0], there[0] + 10);
    }
}

/// Clients at once, then again on the recovered database.
fn run_twice(protocol: Protocol, concurrency: Concurrency) {
    const COUNT: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    for round in 1..=2 {
        let db = transfers::open(dir.path(), protocol, concurrency).unwrap();
        thread::scope(|scope| {
            for client in 0..CLIENT_COUNT {
                let db = &db;
                scope.spawn(move || transfers::run(db, client, COUNT, |_| ()).unwrap());
            }
        });
        let there = transfers::check(&db).unwrap();
        assert!(there.iter().all(|number| *number == (round * COUNT) as i64), "{there:?}");
        db.close().unwrap();
    }
}

#[test]
fn a_protocol_runs_under_a_control_of_the_engine() {
    run_twice(ALL_STREAMS, Concurrency::NoWait);
}

#[test]
fn a_control_runs_under_a_protocol_of_the_engine() {
    run_twice(Protocol::Taurus, EXCLUSIVE_LOCKS);
}
