//! A process with a database over SlateDB in a directory is killed, again and again: what it has
//! reported as acknowledged is there.
#![allow(missing_docs)]

mod common;

use common::small_tables;
use hyades_deuteronomy::{Database, LogOptions, Options};
use hyades_deuteronomy_slatedb::{SlateData, object_store};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The variable with the directory of the process to be killed.
const DIR: &str = "HYADES_KILLED_DIR";
const KEYS: u64 = 400;
const ROUNDS: usize = 6;

fn open(dir: &Path) -> Database {
    std::fs::create_dir_all(dir.join("objects")).unwrap();
    let objects = object_store::local::LocalFileSystem::new_with_prefix(dir.join("objects"));
    let data = SlateData::open(Arc::new(objects.unwrap()), "data", small_tables()).unwrap();
    let mut options = Options::new(LogOptions::new(vec![dir.join("log")], 2));
    (options.memory_bytes, options.redo_bytes) = (256 << 10, 64 << 10);
    Database::open(options, Arc::new(data)).unwrap()
}

/// A write of the process: the key, and the numbers of two neighbours.
fn value(number: u64) -> Vec<u8> {
    let mut value = vec![number as u8; 150];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

/// Run by the parent, in a process of its own: writes until it is killed, and reports.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let database = open(&dir);
    let (mut session, mut out) = (database.session().unwrap(), std::io::stderr());
    let mut rng = fastrand::Rng::new();
    loop {
        let (key, is_deleted) = (2 * rng.u64(0..KEYS / 2), rng.u8(0..4) == 0);
        // Both keys of a pair hold the same number, or both are deleted.
        let done = session.execute(|tx| {
            let before = tx.get(&u64::MAX.to_be_bytes())?.map_or(0, |last| number(&last));
            let number = before + 1;
            for key in [key, key + 1] {
                match is_deleted {
                    true => drop(tx.delete(&key.to_be_bytes())),
                    false => tx.put(&key.to_be_bytes(), &value(number))?,
                }
            }
            tx.put(&u64::MAX.to_be_bytes(), &value(number))?;
            Ok::<_, hyades_deuteronomy::Error>(number)
        });
        let number = done.unwrap();
        // A single write: a killed process reports a whole line, or none.
        let line = format!("acknowledged {number} {key} {}\n", u8::from(is_deleted));
        out.write_all(line.as_bytes()).unwrap();
    }
}

/// The last acknowledged write of each pair, and the last of all.
#[derive(Default)]
struct Acknowledged {
    pairs: std::collections::BTreeMap<u64, (u64, bool)>,
    last: u64,
}

impl Acknowledged {
    fn note(&mut self, line: &str) {
        let mut words = line.split(' ').skip(1).map(|word| word.parse::<u64>().unwrap());
        let mut next = || words.next().unwrap();
        let (number, key, is_deleted) = (next(), next(), next() == 1);
        self.last = number;
        self.pairs.insert(key, (number, is_deleted));
    }

    /// At most a single write was under way: it may be there.
    fn check(&mut self, database: &Database) {
        let mut session = database.session().unwrap();
        let mut get = |key: u64| session.execute(|tx| tx.get(&key.to_be_bytes())).unwrap();
        let last = get(u64::MAX).map_or(0, |last| number(&last));
        assert!(last == self.last || last == self.last + 1, "{last}, not {}", self.last);
        let mut ahead = 0;
        for key in (0..KEYS).step_by(2) {
            let found = [get(key), get(key + 1)].map(|value| value.map(|value| number(&value)));
            assert_eq!(found[0], found[1], "half of a transaction");
            let expected = self
                .pairs
                .get(&key)
                .and_then(|(number, is_deleted)| (!is_deleted).then_some(*number));
            if found[0] != expected {
                let unknown = found[0].is_none() || found[0] == Some(self.last + 1);
                assert!(unknown && last == self.last + 1, "pair {key}: {found:?}, {expected:?}");
                ahead += 1;
                self.pairs.insert(key, (last, found[0].is_none()));
            }
        }
        assert!(ahead <= 1, "{ahead} writes were not reported");
        self.last = last;
    }
}

#[test]
fn what_was_acknowledged_is_there_after_the_process_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut rng, mut acknowledged) = (fastrand::Rng::new(), Acknowledged::default());
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let id = child.id();
        let lives = Duration::from_millis(rng.u64(200..1500));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(lives);
            Command::new("kill").args(["-9", &id.to_string()]).status().unwrap();
        });
        let mut others = Vec::new();
        for line in lines.by_ref() {
            let line = line.unwrap();
            match line.starts_with("acknowledged ") && line.split(' ').count() == 4 {
                true => acknowledged.note(&line),
                false => others.push(line),
            }
        }
        killer.join().unwrap();
        let status = child.wait().unwrap();
        assert!(status.code().is_none(), "round {round}, it ended by itself: {others:#?}");
        acknowledged.check(&open(dir.path()));
    }
    println!("{} writes, {} pairs", acknowledged.last, acknowledged.pairs.len());
    assert!(acknowledged.last > 500, "{}", acknowledged.last);
}
