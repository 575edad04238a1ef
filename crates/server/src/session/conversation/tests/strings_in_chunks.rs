//! Strings in chunks: absent chunks, removal, WATCH, restarts.

use super::large::collect;
use super::large_strings::{Talk, bit, bytes, chunks_of, overwrite, set_bit};
use super::*;
use crate::data::chunks::{CHUNK_BYTES, LONGEST_IN_ROW};
use crate::data::keyspace::MOST_COPIED;
use hyades::{Schema, Type};
use std::collections::BTreeMap;

/// Absent bytes count as zeros, and take no memory: a string of the greatest length in a few
/// chunks.
#[test]
fn absent_chunks_are_zeros() {
    let mut talk = Talk::new();
    let last = (512 << 20) - 1;
    assert_eq!(talk.ask("SETBIT b 4294967295 1", &[]), ":0");
    assert_eq!(talk.rows(), (1, 1, 0));
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    let out_of_range = "-ERR bit offset is not an integer or out of range";
    for (line, expected) in [
        ("STRLEN b", ":536870912"),
        ("GETBIT b 4294967295", ":1"),
        ("GETBIT b 4294967294", ":0"),
        ("GETBIT b 99", ":0"),
        ("GETBIT b 4294967296", out_of_range),
        ("SETBIT b 4294967296 1", out_of_range),
        ("SETBIT none 4294967296 1", out_of_range),
        ("BITCOUNT b", ":1"),
        ("BITPOS b 1", ":4294967295"),
        ("BITPOS b 0", ":0"),
        ("GETRANGE b -2 -1", "$2 \0\u{1}"),
        ("GETRANGE b 500000000 500000003", "$4 \0\0\0\0"),
        ("APPEND b x", too_long),
        ("APPEND b ", ":536870912"),
        ("SETRANGE b 536870912 x", too_long),
        ("SETRANGE none 536870910 xyz", too_long),
        ("SETRANGE none 9223372036854775807 x", too_long),
        ("BITFIELD b SET u8 4294967289 1", too_long),
        ("BITFIELD b SET u8 4294967288 77 GET u8 4294967288", "*2 :1 :77"),
        ("BITFIELD b SET u8 4294967296 1", out_of_range),
        ("BITFIELD_RO b GET u8 #536870911", "*1 :77"),
        ("BITFIELD_RO b GET u16 4294967288", "*1 :19712"),
        ("SETRANGE b 70000 ab", ":536870912"),
        ("BITFIELD b GET u16 560000 INCRBY u8 900000000 7", "*2 :24930 :7"),
        ("SETBIT b 4000000000 0", ":0"),
        ("COPY b c", ":1"),
        ("RENAME c d", "+OK"),
        ("SETRANGE d 536870911 z", ":536870912"),
        ("GETRANGE b 536870911 -1", "$1 M"),
        ("GETRANGE d 69999 70002", "$4 \0ab\0"),
        ("SETRANGE none 1048575 x", ":1048576"),
        ("SETBIT none 8388608 0", ":0"),
        ("STRLEN none", ":1048577"),
        ("BITCOUNT none", ":4"),
    ] {
        let said = talk.ask(line, &[]);
        assert_eq!(said.trim_end(), expected, "{line}");
    }
    assert_eq!(talk.ask(&format!("SETRANGE b {last} x"), &[]), ":536870912");
    // Three of each copy, and one of the string of 1 MiB after its growth.
    assert_eq!(talk.rows().0, 3 + 3 + 1);
    let usage: usize = talk.ask("MEMORY USAGE b", &[])[1..].parse().unwrap();
    assert!(usage < 4 * CHUNK_BYTES, "{usage}");
    talk = talk.restarted();
    assert_eq!(talk.ask("BITPOS b 1", &[]), ":560001");
    assert_eq!(talk.ask("GETRANGE d 536870910 -1", &[]), "$2 \0z");
    talk.ask("DEL b d none", &[]);
    collect(&mut talk.house);
    assert_eq!(talk.rows(), (0, 0, 0));
}

/// Whatever removes a string, none of its chunks stays, and no chunk of another string goes.
#[test]
fn what_is_taken_away_leaves_no_chunks() {
    let mut talk = Talk::new();
    let value = bytes(LONGEST_IN_ROW + 5_000, 1);
    for way in [
        "DEL a b",
        "UNLINK a b",
        "MSET a 1 b 2",
        "RENAME a b|GETDEL b",
        "COPY a b REPLACE|DEL a b",
        "MOVE a 1|SELECT 1|DEL a|SELECT 0|SET b 1",
        "SETEX a 100 x|GETSET b y",
        "SUNIONSTORE a none|SUNIONSTORE b s",
        "BITOP NOT a none|BITOP OR b short none",
        "PEXPIREAT a 1|SET b 1 PXAT 1",
        "SORT s BY nosort STORE a|SORT none STORE b",
        "MULTI|APPEND a x|DEL a|SETRANGE a 2000000 x|SETBIT b 99999999 1|DEL a b|EXEC",
        "MULTI|GETDEL a|INCR a|INCR a|DEL b|SET b 5|EXEC",
    ] {
        talk.ask("SADD s 1 2", &[]);
        talk.ask("SET short x", &[]);
        talk.ask("MSET a", &[&value, b"b", &value, b"kept", &value]);
        assert_eq!(talk.rows(), (3 * 17, 3, 0));
        for line in way.split('|') {
            let said = talk.ask(line, &[]);
            let is_error = said.starts_with('-') || said.contains(" -ERR");
            assert!(!is_error, "{line}: {:?}", said.get(..100).unwrap_or(&said));
        }
        assert!(talk.rows().2 > 0, "{way}");
        collect(&mut talk.house);
        assert_eq!(talk.rows(), (17, 1, 0), "{way}");
        talk.expect("GET kept", &value);
        talk.ask("DEL a b kept", &[]);
        collect(&mut talk.house);
        assert_eq!(talk.rows(), (0, 0, 0), "{way}");
    }
    talk.ask("SET a", &[&value]);
    talk.ask("FLUSHALL", &[]);
    crate::upkeep::reaper::reap(&talk.house.shared, &talk.house.shared.store.opened.cloned())
        .unwrap();
    collect(&mut talk.house);
    assert_eq!(talk.rows(), (0, 0, 0));
}

/// A failing command, or a command taken back, changes nothing and leaves nothing.
#[test]
fn a_command_that_fails_leaves_nothing() {
    let mut talk = Talk::new();
    let (value, key) = (bytes(LONGEST_IN_ROW + 1, 3), vec![b'k'; (1 << 20) + 1]);
    talk.ask("SET a", &[&value]);
    let before = talk.rows();
    let said = talk.ask("MSET a", &[&value[1..], &key, &value]);
    assert_eq!(said, "-ERR the key is longer than 1 MiB");
    assert_eq!(talk.ask("SET", &[&key, &value]), "-ERR the key is longer than 1 MiB");
    assert_eq!(talk.ask("SET a x NX", &[]), "$-1");
    assert_eq!(talk.ask("SET a x EX 0", &[]), "-ERR invalid expire time in 'set' command");
    assert_eq!(talk.rows(), before);
    talk.expect("GET a", &value);
    // Beyond the bytes that a transaction may copy: 64 MiB here.
    let error = "-ERR the transaction reads and writes more than 64 MiB";
    let (long, too_long) = (bytes(MOST_COPIED - (64 << 10), 4), bytes(MOST_COPIED, 5));
    assert_eq!(talk.ask("SET a", &[&long]), "+OK");
    assert_eq!(talk.ask("SET b", &[&too_long]), error);
    assert_eq!(talk.ask("APPEND a", &[&too_long]), error);
    assert_eq!(talk.ask("COPY a b", &[]), error);
    assert_eq!(talk.ask("BITOP NOT b a", &[]), error);
    assert_eq!(talk.ask("EXISTS b", &[]), ":0");
    talk.expect("GET a", &long);
    collect(&mut talk.house);
    assert_eq!(talk.rows(), (long.len().div_ceil(CHUNK_BYTES), 1, 0));
}

/// An event loop changes a long string by itself; a read or write of the whole string is a job.
#[test]
fn small_changes_are_no_jobs() {
    let mut talk = Talk::new();
    let value = bytes(10 << 20, 6);
    assert_eq!(talk.ask("SET a", &[&value]), "+OK");
    assert_eq!(talk.large_runs(), 1);
    for line in [
        "APPEND a x",
        "SETRANGE a 5000000 x",
        "SETBIT a 777777 1",
        "GETRANGE a 4000000 4100000",
        "STRLEN a",
        "BITFIELD a INCRBY u8 100 1",
        "BITCOUNT a 100000 200000",
        "RENAME a b",
        "RENAME b a",
        "EXPIRE a 1000",
        "GETBIT a 9",
        "INCR a",
    ] {
        talk.ask(line, &[]);
        assert_eq!(talk.large_runs(), 1, "{line}");
    }
    talk.ask("GET a", &[]);
    talk.ask("BITCOUNT a", &[]);
    talk.ask("COPY a b", &[]);
    assert_eq!(talk.large_runs(), 4);
    talk.ask("DEL a b", &[]);
    assert_eq!(talk.large_runs(), 4);
}

#[test]
fn watch_notices_a_change_of_a_chunk() {
    const DONE: &str = "*1 :0";
    const LOST: &str = "*-1";
    let mut talk = Talk::new();
    let value = bytes(2 << 20, 8);
    let old = bit(&value, 9_000_000);
    let line = |to: u8| format!("SETBIT a 9000000 {to}");
    let (same, other) = (line(old), line(1 - old));
    for (line, expected) in [
        ("GETRANGE a 0 9", DONE),
        (&same[..], DONE),
        (&other[..], LOST),
        ("APPEND a x", LOST),
        ("SETRANGE a 9 x", LOST),
        ("SETRANGE a 9 x", LOST),
        ("COPY a b", DONE),
        ("RENAME a b", LOST),
        ("SETBIT b 5 1", DONE),
        ("BITFIELD a GET u8 0", DONE),
        ("BITFIELD a INCRBY u8 0 1", LOST),
        ("SETBIT a 20000000 0", LOST),
        ("EXPIRE a 100", LOST),
        ("SET a x", LOST),
    ] {
        talk.ask("MSET a", &[&value, b"b", &value]);
        let mut watcher = talk.house.client();
        assert_eq!(talk.house.say(&mut watcher, b"WATCH a\r\n"), "+OK ");
        talk.ask(line, &[]);
        talk.house.say(&mut watcher, b"MULTI\r\nPERSIST none\r\n");
        assert_eq!(talk.house.say(&mut watcher, b"EXEC\r\n").trim_end(), expected, "{line}");
    }
}

/// An earlier version had no chunks, and strings of up to 15 MiB in the rows of their keys: the
/// strings are read unchanged, and move into chunks with the first change.
#[test]
fn a_database_without_chunks_is_opened() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut builder = Database::builder().streams(2);
    let [databases, keys] = large::first_tables();
    let collections = Schema::new("collections").column("kind", Type::U32);
    let blocks = Schema::new("blocks")
        .column("run", Type::U64)
        .column("low", Type::Bytes)
        .column("count", Type::U32)
        .column("body", Type::Bytes)
        .primary_key(&["run", "low"]);
    let garbage = Schema::new("garbage").column("collection", Type::U64);
    builder.table(databases);
    let keys = builder.table(keys);
    builder.table(collections);
    builder.table(blocks);
    builder.table(garbage.primary_key(&["collection"]));
    let database = builder.open(dir.path()).unwrap();
    let mut value = bytes((15 << 20) - 64, 9);
    for key in ["a", "b", "c", "d", "e"] {
        let row = [0u64.into(), key.as_bytes().into(), 0u64.into(), value[..].into()];
        database.transact(|tx| Ok(tx.overwrite(keys, &row)?)).unwrap();
    }
    database.close().unwrap();
    let house = super::large::opened(dir);
    let mut talk = Talk { client: house.client(), house };
    talk.expect("GET a", &value);
    assert_eq!(talk.ask("STRLEN a", &[]), format!(":{}", value.len()));
    assert_eq!(talk.ask("PEXPIREAT a 99999999999999", &[]), ":1");
    let old = bit(&value, 77);
    assert_eq!(talk.ask("GETBIT a 77", &[]), format!(":{old}"));
    assert_eq!(talk.ask("BITFIELD_RO a GET u1 77", &[]), format!("*1 :{old}"));
    assert_eq!(talk.rows().0, 0);
    assert_eq!(talk.ask("COPY b f", &[]), ":1");
    talk.expect("GET f", &value);
    assert_eq!(talk.ask("RENAME c g", &[]), "+OK");
    talk.expect("GET g", &value);
    assert_eq!(talk.ask("APPEND d x", &[]), format!(":{}", value.len() + 1));
    assert_eq!(talk.ask("SETRANGE e 5 x", &[]), format!(":{}", value.len()));
    assert_eq!(talk.ask("BITFIELD b INCRBY u8 0 0", &[]), format!("*1 :{}", value[0]));
    assert_eq!(talk.ask(&format!("SETBIT a 77 {}", 1 - old), &[]), format!(":{old}"));
    assert_eq!(talk.ask("PEXPIRETIME a", &[]), ":99999999999999");
    assert_eq!(talk.rows().0, 6 * chunks_of(value.len()));
    talk = talk.restarted();
    talk.expect("GET b", &value);
    set_bit(&mut value, 77, 1 - old);
    talk.expect("GET a", &value);
}

/// Several threads append to a string and set bits of another string: nothing is lost or torn.
#[test]
fn threads_change_strings_together() {
    const EACH: usize = 150;
    let mut talk = Talk::new();
    talk.ask("SET a", &[&bytes(LONGEST_IN_ROW + 4, 10)]);
    talk.ask("SETBIT b 80000000 0", &[]);
    let all: Vec<House> = (0..3).map(|_| talk.house.beside()).collect();
    std::thread::scope(|scope| {
        for (number, mut house) in all.into_iter().enumerate() {
            scope.spawn(move || {
                let mut client = house.client();
                for n in 0..EACH {
                    let at = 3 * n * 170_001 + number;
                    let lines = format!("APPEND a <{number}:{n:04}>\r\nSETBIT b {at} 1\r\n");
                    house.say(&mut client, lines.as_bytes());
                    let end = house.say(&mut client, b"GETRANGE a -8 -1\r\n");
                    assert!(end.ends_with("> ") && end.contains('<'), "{end}");
                }
            });
        }
    });
    assert_eq!(talk.ask("BITCOUNT b", &[]), format!(":{}", 3 * EACH));
    let value = talk.text("GET a", &[]);
    let tokens = String::from_utf8(value[LONGEST_IN_ROW + 4..].to_vec()).unwrap();
    assert_eq!(tokens.len(), 3 * EACH * 8);
    for number in 0..3 {
        let begin = format!("<{number}:");
        let own = tokens.split_inclusive('>').filter(|token| token.starts_with(&begin));
        let own: Vec<String> = own.map(str::to_string).collect();
        let expected: Vec<String> = (0..EACH).map(|n| format!("<{number}:{n:04}>")).collect();
        assert_eq!(own, expected);
    }
}

type Strings = BTreeMap<String, Vec<u8>>;

/// A length: about the length of a row or of chunks, or any.
fn some_length(rng: &mut fastrand::Rng) -> usize {
    let around = [0, 1, CHUNK_BYTES, LONGEST_IN_ROW, 17 * CHUNK_BYTES, 20 * CHUNK_BYTES];
    match rng.u8(0..3) {
        0 => rng.usize(0..2 * LONGEST_IN_ROW),
        _ => (around[rng.usize(0..around.len())] + rng.usize(0..3)).saturating_sub(1),
    }
}

fn step(talk: &mut Talk, model: &mut Strings, rng: &mut fastrand::Rng) {
    let name = |rng: &mut fastrand::Rng| ["a", "b", "c"][rng.usize(0..3)].to_string();
    let (key, other) = (name(rng), name(rng));
    let length = model.get(&key).map_or(0, Vec::len);
    let text = bytes([0, 1, 10, CHUNK_BYTES, CHUNK_BYTES + 1][rng.usize(0..5)], rng.u64(..));
    match rng.u8(0..13) {
        0..2 => {
            let value = bytes(some_length(rng), rng.u64(..));
            assert_eq!(talk.ask(&format!("SET {key}"), &[&value]), "+OK");
            model.insert(key, value);
        }
        2..4 => {
            let value = model.entry(key.clone()).or_default();
            value.extend_from_slice(&text);
            let expected = format!(":{}", value.len());
            assert_eq!(talk.ask(&format!("APPEND {key}"), &[&text]), expected);
        }
        4..6 => {
            let at = if rng.bool() { rng.usize(0..=length) } else { some_length(rng) };
            if !text.is_empty() {
                overwrite(model.entry(key.clone()).or_default(), at, &text);
            }
            let expected = format!(":{}", model.get(&key).map_or(0, Vec::len));
            assert_eq!(talk.ask(&format!("SETRANGE {key} {at}"), &[&text]), expected);
        }
        6..8 => {
            let at = 8 * some_length(rng) + rng.usize(0..8);
            let value = model.entry(key.clone()).or_default();
            let (old, new) = (bit(value, at), rng.u8(0..2));
            set_bit(value, at, new);
            assert_eq!(talk.ask(&format!("SETBIT {key} {at} {new}"), &[]), format!(":{old}"));
        }
        8 => {
            let removed = model.remove(&key).is_some();
            assert_eq!(talk.ask(&format!("DEL {key}"), &[]), format!(":{}", u8::from(removed)));
        }
        9 if key != other => {
            let copied = model.get(&key).cloned();
            let said = talk.ask(&format!("COPY {key} {other} REPLACE"), &[]);
            assert_eq!(said, format!(":{}", u8::from(copied.is_some())));
            model.extend(copied.map(|value| (other, value)));
        }
        10 => match model.remove(&key) {
            Some(value) => {
                assert_eq!(talk.ask(&format!("RENAME {key} {other}"), &[]), "+OK");
                model.insert(other, value);
            }
            None => {
                let said = talk.ask(&format!("RENAME {key} {other}"), &[]);
                assert_eq!(said, "-ERR no such key");
            }
        },
        _ => {
            let (from, count) = (some_length(rng), rng.usize(1..2 * CHUNK_BYTES));
            let value = model.get(&key).map_or(&[][..], Vec::as_slice);
            let end = value.len().min(from + count);
            let part = value.get(from..end).unwrap_or_default();
            talk.expect(&format!("GETRANGE {key} {from} {}", from + count - 1), part);
        }
    }
}

/// Beside a map of bytes, with restarts; at the end the strings are equal, and no other chunk is
/// left.
#[test]
fn as_bytes_in_memory() {
    for seed in 0..3 {
        let (mut talk, mut model) = (Talk::new(), Strings::new());
        let mut rng = fastrand::Rng::with_seed(seed);
        for round in 0..4 {
            for _ in 0..60 {
                step(&mut talk, &mut model, &mut rng);
            }
            talk = talk.restarted();
            if round % 2 == 1 {
                collect(&mut talk.house);
            }
            for key in ["a", "b", "c"] {
                match model.get(key) {
                    Some(value) => talk.expect(&format!("GET {key}"), value),
                    None => assert_eq!(talk.ask(&format!("GET {key}"), &[]), "$-1"),
                }
            }
        }
        let most: usize = model.values().map(|value| value.len().div_ceil(CHUNK_BYTES)).sum();
        collect(&mut talk.house);
        let (chunks, numbers, garbage) = talk.rows();
        assert!(chunks <= most && numbers <= 3 && garbage == 0, "{chunks} {numbers}");
        talk.ask("DEL a b c", &[]);
        collect(&mut talk.house);
        assert_eq!(talk.rows(), (0, 0, 0), "seed {seed}");
    }
}
