//! WATCH of collections in blocks, whose changes need not write the rows of their keys.

use super::large::{PACKS_NOTHING, collect, reopened};
use super::*;
use crate::data::head::Head;
use hyades::Column;
use std::collections::HashMap;

const PACKS_ALL: &str = "CONFIG SET hash-max-listpack-entries 999 set-max-intset-entries 999 \
                         zset-max-listpack-entries 999 list-max-listpack-size 999\r\n";

const DONE: &str = "*1 :0 ";
const LOST: &str = "*-1 ";

/// Ends a WATCH, and returns the outcome.
fn exec(house: &mut House, client: &mut Conversation) -> String {
    house.say(client, b"MULTI\r\nPERSIST none\r\n");
    house.say(client, b"EXEC\r\n")
}

/// Fills one key of each type.
const FILL: &str =
    "HSET h a 1 b 2 c 3\r\nSADD t a b c\r\nZADD z 1 a 2 b 3 c\r\nRPUSH l a b c d\r\n";

/// Version and head of a key's row.
fn row(house: &House, key: &str) -> (u64, Head) {
    let opened = house.shared.store.opened.cloned();
    let (tables, place) = (opened.tables, (0u64, key.as_bytes()));
    let read = opened.database.transact(|tx| {
        let word = tx.get(tables.keys, place)?.unwrap().get(Column::<u64>::at(2));
        Ok((tx.version(tables.keys, place)?.unwrap(), Head::from_word(word).unwrap()))
    });
    read.unwrap()
}

#[test]
fn a_change_of_a_block_is_noticed() {
    for (watch, between, expected) in [
        ("h", "", DONE),
        ("h t z l", "HGET h a\r\nSMEMBERS t\r\nZRANGE z 0 -1\r\nLRANGE l 0 -1\r\n", DONE),
        ("h", "SADD t d\r\nZADD z 9 d\r\nRPUSH l e\r\n", DONE),
        ("h", "HSET h a 1\r\n", LOST),
        ("h", "HSET h d 1\r\nHDEL h d\r\n", LOST),
        ("h", "HINCRBY h a 1\r\n", LOST),
        ("h", "HSETNX h a 1\r\nHDEL h d\r\n", DONE),
        ("h", "HDEL h a b c\r\n", LOST),
        ("h", "HDEL h a b c\r\nHSET h a 1 b 2 c 3\r\n", LOST),
        ("t", "SADD t a b\r\nSREM t d\r\n", DONE),
        ("t", "SADD t d\r\n", LOST),
        ("t", "SPOP t\r\n", LOST),
        ("t", "SMOVE t u a\r\n", LOST),
        ("u", "SMOVE t u a\r\n", LOST),
        ("z", "ZADD z NX 5 a\r\nZREM z d\r\n", DONE),
        ("z", "ZADD z 5 a\r\n", LOST),
        ("z", "ZPOPMIN z\r\n", LOST),
        ("z", "ZREMRANGEBYSCORE z 3 3\r\n", LOST),
        ("l", "LREM l 0 x\r\nLPUSHX none 1\r\n", DONE),
        ("l", "LPUSH l e\r\n", LOST),
        ("l", "LSET l 1 b\r\n", LOST),
        ("l", "LINSERT l AFTER b e\r\n", LOST),
        ("h", "EXPIRE h 100\r\n", LOST),
        ("h", "PEXPIREAT h 1\r\n", LOST),
        ("h", "DEL h\r\nHSET h a 1 b 2 c 3\r\n", LOST),
        ("h", "RENAME h g\r\nRENAME g h\r\n", LOST),
        ("z", "RENAME h z\r\n", LOST),
        ("h", "COPY h g\r\n", DONE),
        ("h", "COPY z h REPLACE\r\n", LOST),
        ("h", "MULTI\r\nHSET h a 5\r\nHSET h a 1\r\nEXEC\r\n", LOST),
        ("h", "FLUSHALL\r\n", LOST),
        ("h", "SWAPDB 0 1\r\n", LOST),
        ("z", "ZINCRBY z 0 a\r\n", DONE),
        ("h h z", "ZINCRBY z 1 a\r\n", LOST),
    ] {
        let mut house = House::new(false);
        let (mut own, mut other) = (house.client(), house.client());
        house.say(&mut other, PACKS_NOTHING.as_bytes());
        house.say(&mut other, FILL.as_bytes());
        assert_eq!(house.say(&mut own, format!("WATCH {watch}\r\n").as_bytes()), "+OK ");
        house.say(&mut other, between.as_bytes());
        assert_eq!(exec(&mut house, &mut own), expected, "{watch} {between:?}");
    }
}

/// One mark serves all watching clients, and the first change takes the mark away; then changes
/// write blocks alone, until a client watches again.
#[test]
fn a_mark_serves_all_who_watch_until_the_first_change() {
    let mut house = House::new(false);
    let mut clients: Vec<Conversation> = (0..3).map(|_| house.client()).collect();
    let mut other = house.client();
    house.say(&mut other, PACKS_NOTHING.as_bytes());
    house.say(&mut other, FILL.as_bytes());
    for (key, change) in [("h", "HSET h a 9"), ("t", "SADD t x"), ("z", "ZADD z 9 a")] {
        let change = format!("{change}\r\n");
        let (unmarked, head) = row(&house, key);
        assert!(!head.is_watched());
        for client in &mut clients[..2] {
            house.say(client, format!("WATCH {key}\r\n").as_bytes());
        }
        let (marked, head) = row(&house, key);
        assert!(head.is_watched() && marked != unmarked);
        house.say(&mut clients[2], format!("WATCH {key}\r\n").as_bytes());
        assert_eq!(row(&house, key), (marked, head), "the mark was there");
        house.say(&mut clients[0], b"UNWATCH\r\n");
        assert_eq!(exec(&mut house, &mut clients[1]), DONE);
        assert_eq!(row(&house, key), (marked, head), "others may still watch");
        house.say(&mut other, change.as_bytes());
        let (changed, head) = row(&house, key);
        assert!(!head.is_watched() && changed != marked);
        house.say(&mut other, change.replace('x', "y").as_bytes());
        assert_eq!(row(&house, key), (changed, head), "only blocks were written");
        assert_eq!(exec(&mut house, &mut clients[0]), DONE);
        assert_eq!(exec(&mut house, &mut clients[2]), LOST);
    }
    let (before, head) = row(&house, "l");
    house.say(&mut clients[0], b"WATCH l\r\n");
    assert_eq!(row(&house, "l"), (before, head), "each change of a list writes its row");
}

/// The mark is a write like any other: WATCH is answered once the mark is on disk, and a recovered
/// mark serves clients that watch then.
#[test]
fn a_mark_is_logged_and_recovered() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, PACKS_NOTHING.as_bytes());
    house.say(&mut client, FILL.as_bytes());
    house.say(&mut client, b"WATCH h t z l\r\n");
    drop(client);
    let mut house = reopened(house);
    let (mut own, mut other) = (house.client(), house.client());
    let (marked, head) = row(&house, "h");
    assert!(head.is_watched());
    house.say(&mut own, b"WATCH h\r\n");
    assert_eq!(row(&house, "h"), (marked, head));
    house.say(&mut other, b"HDEL h a\r\n");
    assert_eq!(exec(&mut house, &mut own), LOST);
    assert!(!row(&house, "h").1.is_watched());
    assert_eq!(
        house.say(&mut other, b"HGETALL h\r\nSCARD t\r\nZCARD z\r\n").matches('$').count(),
        4
    );
}

#[test]
fn a_mark_is_on_disk_before_watch_is_answered() {
    let mut house = House::new(true);
    let mut client = house.client();
    client.feed(PACKS_NOTHING.as_bytes());
    client.feed(FILL.as_bytes());
    client.feed(b"WATCH l h\r\n");
    let drain = |house: &mut House, client: &mut Conversation| {
        house.queue.drain(|(_, mark)| client.acknowledged(mark)).unwrap();
        take(client)
    };
    house.run(&mut client, 0);
    assert_eq!(drain(&mut house, &mut client), "+OK ");
    house.write_log();
    assert_eq!(drain(&mut house, &mut client), ":3 :3 :3 :4 +OK ");
    client.feed(b"WATCH t\r\n");
    house.run(&mut client, 0);
    assert_eq!(drain(&mut house, &mut client), "");
    house.write_log();
    assert_eq!(drain(&mut house, &mut client), "+OK ");
    client.feed(b"WATCH t\r\n");
    house.run(&mut client, 0);
    assert_eq!(drain(&mut house, &mut client), "+OK ", "it is marked, and that is on disk");
}

#[test]
fn a_large_collection_that_expires_has_changed() {
    let mut house = House::new(false);
    let mut clients: Vec<Conversation> = (0..4).map(|_| house.client()).collect();
    house.say(&mut clients[0], PACKS_NOTHING.as_bytes());
    house.say(&mut clients[0], FILL.as_bytes());
    // Long enough for WATCH before the expiry on a busy machine.
    for (client, key) in clients.iter_mut().zip(["h", "t", "z", "l"]) {
        // Long enough for WATCH before the expiry on a busy machine.
        house.say(client, format!("PEXPIRE {key} 1500\r\nWATCH {key}\r\n").as_bytes());
    }
    std::thread::sleep(std::time::Duration::from_millis(1_510));
    clients.iter_mut().for_each(|client| assert_eq!(exec(&mut house, client), LOST));
}

/// Many or large names are watched on the loop or refused, and never watched elsewhere in vain.
#[test]
fn watch_of_large_names_is_kept() {
    let mut house = House::new(false);
    let (mut own, mut other) = (house.client(), house.client());
    let names: Vec<String> = ["a", "b", "c"].iter().map(|name| name.repeat(600 << 10)).collect();
    let watch =
        format!("*4\r\n$5\r\nWATCH\r\n{}", names.iter().map(|n| bulk(n)).collect::<String>());
    assert_eq!(house.say(&mut own, watch.as_bytes()), "+OK ");
    let set = format!("*3\r\n$3\r\nSET\r\n{}$1\r\n1\r\n", bulk(&names[2]));
    assert_eq!(house.say(&mut other, set.as_bytes()), "+OK ");
    assert_eq!(exec(&mut house, &mut own), LOST);
    let long = bulk(&"d".repeat(1 << 20));
    let said =
        house.say(&mut own, format!("*4\r\n$5\r\nWATCH\r\n{long}{long}$1\r\na\r\n").as_bytes());
    assert_eq!(said, "-ERR the keys that WATCH names have more than 2 MiB ");
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The last write of each existing key, by a number.
#[derive(Default)]
struct Model {
    writes: HashMap<String, u64>,
    last: u64,
}

impl Model {
    fn write(&mut self, key: &str) {
        self.last += 1;
        self.writes.insert(key.to_string(), self.last);
    }

    fn of(&self, key: &str) -> Option<u64> {
        self.writes.get(key).copied()
    }
}

const KEYS: [&str; 8] = ["h1", "h2", "t1", "t2", "z1", "z2", "l1", "l2"];

fn key(first: &str) -> &'static str {
    let keys: Vec<&'static str> = KEYS.into_iter().filter(|key| key.starts_with(first)).collect();
    keys[fastrand::usize(..keys.len())]
}

/// A command, the key written if it is there afterwards, and the reply for no write; an error
/// writes nothing anyway.
fn change(number: u64) -> (String, &'static str, &'static str) {
    let member = ["a", "b", "c", "d", "e"][fastrand::usize(..5)];
    let (any, other) = (key(""), key(""));
    let (h, t, z, l) = (key("h"), key("t"), key("z"), key("l"));
    match fastrand::u8(..24) {
        0..=2 => (format!("HSET {h} {member} 1"), h, ""),
        3 => (format!("HDEL {h} {member} a"), h, ":0"),
        4 => (format!("HINCRBY {h} {member} 1"), h, ""),
        5 | 6 => (format!("SADD {t} {member}"), t, ":0"),
        7 => (format!("SREM {t} {member} a"), t, ":0"),
        8 | 9 => (format!("ZADD {z} CH {} {member}", fastrand::u8(..4)), z, ":0"),
        10 => (format!("ZREM {z} {member} a"), z, ":0"),
        11 => (format!("ZPOPMIN {z}"), z, "*0"),
        12 | 13 => (format!("RPUSH {l} {member} {member}"), l, ""),
        14 => (format!("LPOP {l}"), l, "$-1"),
        15 => (format!("LSET {l} 0 {member}"), l, ""),
        16 => (format!("LREM {l} 1 {member}"), l, ":0"),
        // A renamed key is there no more.
        17 | 18 if any != other => (format!("RENAME {any} {other}"), other, ""),
        17 | 18 => (format!("DEL {any}"), any, ":0"),
        19 => (format!("EXPIRE {any} {}", 1_000 + number), any, ":0"),
        20 => (format!("PEXPIREAT {any} 1"), any, ":0"),
        21 => (format!("PERSIST {any}"), any, ":0"),
        22 if any != other => (format!("COPY {any} {other} REPLACE"), other, ":0"),
        22 => (format!("SPOP {t}"), t, "$-1"),
        _ => (format!("LINSERT {l} BEFORE {member} b"), l, ":-1"),
    }
}

/// Bytes of the first of some replies.
fn length(replies: &[u8]) -> usize {
    let line = replies.windows(2).position(|two| two == b"\r\n").unwrap() + 2;
    let number = || std::str::from_utf8(&replies[1..line - 2]).unwrap().parse::<i64>().unwrap();
    match replies[0] {
        b'$' if number() >= 0 => line + number() as usize + 2,
        b'*' => (0..number()).fold(line, |at, _| at + length(&replies[at..])),
        _ => line,
    }
}

/// A client says some changes: by themselves, in a pipeline, or in MULTI.
fn say_changes(house: &mut House, client: &mut Conversation, model: &mut Model, number: u64) {
    let all: Vec<_> = (0..fastrand::u64(1..4)).map(|n| change(4 * number + n)).collect();
    let line = |line: &str| format!("{line}\r\n");
    let said = match fastrand::u8(..3) {
        0 => all
            .iter()
            .flat_map(|change| house.replies(client, line(&change.0).as_bytes()))
            .collect(),
        way => {
            let lines: String = all.iter().map(|change| line(&change.0)).collect();
            let is_exec = way == 1;
            if is_exec {
                house.say(client, b"MULTI\r\n");
            }
            let said = house.replies(client, lines.as_bytes());
            // The elements of EXEC's array.
            if is_exec { house.replies(client, b"EXEC\r\n").split_off(4) } else { said }
        }
    };
    let mut rest = &said[..];
    for (_, key, nothing) in &all {
        let (reply, behind) = rest.split_at(length(rest));
        rest = behind;
        if reply[0] != b'-' && reply != line(nothing).as_bytes() {
            model.write(key);
        }
    }
    assert!(rest.is_empty(), "{all:?}");
    let mut reader = house.client();
    for key in KEYS {
        if house.say(&mut reader, format!("EXISTS {key}\r\n").as_bytes()) == ":0 " {
            model.writes.remove(key);
        }
    }
}

/// EXEC runs iff the last write of each watched key is the write seen by WATCH, whatever form the
/// values have and take.
#[test]
fn exec_runs_iff_nothing_was_written_since_watch() {
    let (mut done, mut lost) = (0, 0);
    for seed in 0..24 {
        fastrand::seed(seed);
        let (mut house, mut model) = (House::new(false), Model::default());
        let mut clients: Vec<_> = (0..3).map(|_| (house.client(), Vec::new())).collect();
        house.say(&mut clients[0].0, PACKS_NOTHING.as_bytes());
        for number in 0..400 {
            let (client, watched) = &mut clients[fastrand::usize(..3)];
            match fastrand::u8(..20) {
                0..=8 => {
                    // A client that watches and says MULTI would compare: another client changes.
                    let mut other = house.client();
                    let client = if watched.is_empty() { client } else { &mut other };
                    say_changes(&mut house, client, &mut model, number);
                }
                9..=12 => {
                    let (a, b) = (key(""), key(""));
                    house.say(client, format!("WATCH {a} {b}\r\n").as_bytes());
                    watched.extend([a, b].map(|key| (key, model.of(key))));
                }
                13..=16 => {
                    let is_same = watched.iter().all(|(key, seen)| model.of(key) == *seen);
                    let expected = if is_same { DONE } else { LOST };
                    let said = exec(&mut house, client);
                    assert_eq!(said, expected, "seed {seed}, step {number}: {watched:?}");
                    *if is_same { &mut done } else { &mut lost } +=
                        usize::from(!watched.is_empty());
                    watched.clear();
                }
                17 => {
                    house.say(client, b"UNWATCH\r\n");
                    watched.clear();
                }
                18 => {
                    let limits = if fastrand::u8(..3) == 0 { PACKS_ALL } else { PACKS_NOTHING };
                    house.say(client, limits.as_bytes());
                }
                _ => collect(&mut house),
            }
        }
    }
    assert!(done > 100 && lost > 100, "{done} {lost}");
}

/// Threads add to a field by WATCH, HGET and EXEC, and by HINCRBY, while other clients watch the
/// same hash and another client changes it elsewhere: no addition is lost.
#[test]
fn threads_that_watch_a_large_hash_lose_nothing() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, PACKS_NOTHING.as_bytes());
    house.say(&mut client, b"HSET h n 0 x 0 y 0\r\n");
    let add = |mut house: House, each: u64| {
        let mut client = house.client();
        let mut added = 0u64;
        for n in 0..each {
            if n % 3 == 0 {
                house.say(&mut client, b"HINCRBY h n 1\r\n");
                added += 1;
                continue;
            }
            house.say(&mut client, b"WATCH h\r\n");
            let said = house.say(&mut client, b"HGET h n\r\n");
            let next = said.split(' ').nth(1).unwrap().parse::<u64>().unwrap() + 1;
            let lines = format!("MULTI\r\nHSET h n {next}\r\nEXEC\r\n");
            let said = house.say(&mut client, lines.as_bytes());
            added += u64::from(said == "+OK +QUEUED *1 :0 ");
        }
        added
    };
    let all: Vec<House> = (0..3).map(|_| house.beside()).collect();
    let added: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> =
            all.into_iter().map(|house| scope.spawn(|| add(house, 300))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let said = house.say(&mut client, b"HGET h n\r\n");
    assert_eq!(said.split(' ').nth(1), Some(added.to_string().as_str()));
    assert!(added > 350, "{added} of 900");
}
