//! Strings above 1 MiB, stored in chunks: beside bytes in memory, at each limit and around it.

use super::large::{collect, reopened};
use super::*;
use crate::data::chunks::{CHUNK_BYTES, LONGEST_IN_ROW};
use hyades::Columns;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::Relaxed;

/// Lengths at the limit of a row and of a chunk, next to the limits, and beyond.
const LENGTHS: [usize; 8] = [
    LONGEST_IN_ROW - 1,
    LONGEST_IN_ROW,
    LONGEST_IN_ROW + 1,
    17 * CHUNK_BYTES - 1,
    17 * CHUNK_BYTES,
    17 * CHUNK_BYTES + 1,
    15 << 20,
    (20 << 20) + 12_345,
];

/// A client of a server, and its replies.
pub struct Talk {
    pub house: House,
    pub client: Conversation,
}

impl Talk {
    pub fn new() -> Talk {
        let house = House::new(false);
        Talk { client: house.client(), house }
    }

    pub fn restarted(self) -> Talk {
        let Talk { house, client } = self;
        drop(client);
        let house = reopened(house);
        Talk { client: house.client(), house }
    }

    /// Sends the words of a line, and texts behind the words.
    pub fn hear(&mut self, line: &str, texts: &[&[u8]]) -> Vec<u8> {
        let words = line.split(' ').map(str::as_bytes).chain(texts.iter().copied());
        let words: Vec<&[u8]> = words.collect();
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.house.replies(&mut self.client, &request)
    }

    /// A reply in words.
    pub fn ask(&mut self, line: &str, texts: &[&[u8]]) -> String {
        let said = String::from_utf8_lossy(&self.hear(line, texts)).replace("\r\n", " ");
        said.trim_end().to_string()
    }

    /// A string.
    pub fn text(&mut self, line: &str, texts: &[&[u8]]) -> Vec<u8> {
        let said = self.hear(line, texts);
        let end = said.windows(2).position(|two| two == b"\r\n").unwrap();
        let head = String::from_utf8_lossy(&said[..end]).into_owned();
        assert!(head.starts_with('$') && head != "$-1", "{line}: {head}");
        let length: usize = head[1..].parse().unwrap();
        assert_eq!(said.len(), end + 4 + length, "{line}");
        said[end + 2..end + 2 + length].to_vec()
    }

    /// Compares a string, and shows little of the string.
    pub fn expect(&mut self, line: &str, expected: &[u8]) {
        let text = self.text(line, &[]);
        assert_eq!(text.len(), expected.len(), "{line}");
        let other = text.iter().zip(expected).position(|(a, b)| a != b);
        assert_eq!(other, None, "{line}");
    }

    /// Counts chunks, strings and collections with numbers, and their garbage.
    pub fn rows(&self) -> (usize, usize, usize) {
        let opened = self.house.shared.store.opened.cloned();
        let (tables, snapshot) = (opened.tables, opened.database.open_snapshot());
        let (mut chunks, mut numbers, mut garbage) = (0, 0, 0);
        snapshot.for_each(tables.chunks, Columns::of(&[1]), |_| chunks += 1).unwrap();
        snapshot.for_each(tables.collections, Columns::ALL, |_| numbers += 1).unwrap();
        snapshot.for_each(tables.garbage, Columns::ALL, |_| garbage += 1).unwrap();
        (chunks, numbers, garbage)
    }

    pub fn large_runs(&self) -> u64 {
        self.house.shared.stats.counters.large.load(Relaxed)
    }
}

/// Bytes without a pattern; no word is 0.
pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut all = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut all);
    all.iter_mut().step_by(8).for_each(|byte| *byte |= 1);
    all
}

pub fn bit(value: &[u8], at: usize) -> u8 {
    value.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1)
}

pub fn set_bit(value: &mut Vec<u8>, at: usize, to: u8) {
    value.resize(value.len().max(at / 8 + 1), 0);
    value[at / 8] = value[at / 8] & !(1 << (7 - at % 8)) | to << (7 - at % 8);
}

pub fn overwrite(value: &mut Vec<u8>, at: usize, with: &[u8]) {
    value.resize(value.len().max(at + with.len()), 0);
    value[at..at + with.len()].copy_from_slice(with);
}

pub fn chunks_of(length: usize) -> usize {
    if length > LONGEST_IN_ROW { length.div_ceil(CHUNK_BYTES) } else { 0 }
}

#[test]
fn reads_at_each_limit() {
    let mut talk = Talk::new();
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        let value = bytes(length, seed as u64);
        assert_eq!(talk.ask("SET a", &[&value]), "+OK");
        collect(&mut talk.house);
        assert_eq!(talk.rows().0, chunks_of(length), "{length}");
        assert_eq!(talk.ask("STRLEN a", &[]), format!(":{length}"));
        assert_eq!(talk.ask("OBJECT ENCODING a", &[]), "$3 raw");
        assert_eq!(talk.ask("TYPE a", &[]), "+string");
        talk.expect("GET a", &value);
        let (chunk, end) = (CHUNK_BYTES, length - 1);
        for (from, to) in [
            (0, 0),
            (chunk - 1, chunk),
            (chunk, chunk),
            (chunk - 2, 3 * chunk + 1),
            (5 * chunk, 6 * chunk - 1),
            (end - chunk, end),
            (end, end),
            (end, end + 9),
            (end - 70_000, end - 1),
        ] {
            talk.expect(&format!("GETRANGE a {from} {to}"), &value[from..=to.min(end)]);
        }
        talk.expect("SUBSTR a -5 -2", &value[length - 5..length - 1]);
        talk.expect(&format!("GETRANGE a {length} -1"), b"");
        for at in [0, 8 * chunk - 1, 8 * chunk, 8 * length - 1, 8 * length, 9 * length] {
            assert_eq!(talk.ask(&format!("GETBIT a {at}"), &[]), format!(":{}", bit(&value, at)));
        }
        bits_are_counted(&mut talk, &value);
        let number = |at: usize| (at..at + 9).fold(0, |n, at| n << 1 | u32::from(bit(&value, at)));
        for at in [0, 8 * chunk - 4, 8 * chunk, 8 * length - 9, 8 * length - 3, 8 * length] {
            let said = talk.ask(&format!("BITFIELD_RO a GET u9 {at}"), &[]);
            assert_eq!(said, format!("*1 :{}", number(at)), "{at} of {length}");
        }
    }
}

fn bits_are_counted(talk: &mut Talk, value: &[u8]) {
    let (chunk, end) = (CHUNK_BYTES, value.len() - 1);
    let ones = |bits: RangeInclusive<usize>| bits.filter(move |at| bit(value, *at) == 1);
    let all: u32 = value.iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(talk.ask("BITCOUNT a", &[]), format!(":{all}"));
    for (from, to) in [
        (0, 0),
        (8 * chunk - 3, 8 * chunk + 2),
        (8 * chunk, 8 * chunk + 13),
        (8 * chunk - 1, 16 * chunk),
        (8 * end - 77, 8 * end + 6),
        (8 * end + 3, 8 * end + 3),
    ] {
        let expected = format!(":{}", ones(from..=to).count());
        assert_eq!(talk.ask(&format!("BITCOUNT a {from} {to} BIT"), &[]), expected, "{from} {to}");
        for wanted in [0, 1] {
            let found = (from..=to).find(|at| bit(value, *at) == wanted);
            let expected = found.map_or(":-1".to_string(), |at| format!(":{at}"));
            let line = format!("BITPOS a {wanted} {from} {to} BIT");
            assert_eq!(talk.ask(&line, &[]), expected, "{line}");
        }
    }
    let some: u32 = value[chunk - 1..=chunk].iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(talk.ask(&format!("BITCOUNT a {} {chunk}", chunk - 1), &[]), format!(":{some}"));
}

#[test]
fn writes_at_each_limit() {
    let mut talk = Talk::new();
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        let mut value = bytes(length, 100 + seed as u64);
        talk.ask("SET a", &[&value]);
        talk.ask("PEXPIREAT a 99999999999999", &[]);
        for at in [8 * CHUNK_BYTES - 1, 8 * CHUNK_BYTES, 8 * length - 1, 8 * length + 3] {
            let (old, new) = (bit(&value, at), 1 - bit(&value, at));
            for (to, before) in [(new, old), (new, new), (old, new), (new, old)] {
                assert_eq!(talk.ask(&format!("SETBIT a {at} {to}"), &[]), format!(":{before}"));
            }
            set_bit(&mut value, at, new);
        }
        let text = bytes(2 * CHUNK_BYTES + 7, 7);
        let places = [
            (0, 1),
            (CHUNK_BYTES - 3, 7),
            (CHUNK_BYTES, CHUNK_BYTES),
            (3 * CHUNK_BYTES - 1, 2 * CHUNK_BYTES + 2),
            (value.len() - 1, 1),
            (value.len() - 1, 3),
            (value.len() + 2, 70_000),
            (value.len() + 70_002 + 3 * CHUNK_BYTES, 5),
        ];
        for (at, count) in places {
            overwrite(&mut value, at, &text[..count]);
            let said = talk.ask(&format!("SETRANGE a {at}"), &[&text[..count]]);
            assert_eq!(said, format!(":{}", value.len()), "{at} {count}");
        }
        for count in [1, 0, 10, CHUNK_BYTES, 2 * CHUNK_BYTES + 7] {
            value.extend_from_slice(&text[..count]);
            assert_eq!(talk.ask("APPEND a", &[&text[..count]]), format!(":{}", value.len()));
        }
        let at = 8 * (CHUNK_BYTES - 1);
        let before = u16::from_be_bytes([value[CHUNK_BYTES - 1], value[CHUNK_BYTES]]);
        let line = format!("BITFIELD a SET u16 {at} 513 INCRBY u16 {at} 255 GET u8 {at}");
        assert_eq!(talk.ask(&line, &[]), format!("*3 :{before} :768 :3"));
        overwrite(&mut value, CHUNK_BYTES - 1, &[3, 0]);
        let end = 8 * value.len();
        let line = format!("BITFIELD a OVERFLOW FAIL INCRBY u8 {end} 300 SET i8 {end} -1");
        assert_eq!(talk.ask(&line, &[]), "*2 $-1 :0");
        value.push(255);
        talk.expect("GET a", &value);
        assert_eq!(talk.ask("PEXPIRETIME a", &[]), ":99999999999999", "it stays");
        assert_eq!(talk.ask("OBJECT ENCODING a", &[]), "$3 raw");
        talk = talk.restarted();
        talk.expect("GET a", &value);
    }
}

/// The effect of BITOP on two bytes.
type Both = fn(u8, u8) -> u8;

#[test]
fn whole_values_at_each_limit() {
    let mut talk = Talk::new();
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        let (value, other) = (bytes(length, 200 + seed as u64), bytes(length, 300));
        assert_eq!(talk.ask("MSET a", &[&value, b"b", &other]), "+OK");
        assert_eq!(talk.ask("COPY a c", &[]), ":1");
        talk.ask("SETRANGE a 9 changed", &[]);
        talk.expect("GET c", &value);
        assert_eq!(talk.ask("RENAME c d", &[]), "+OK");
        assert_eq!(talk.ask("MOVE d 1", &[]), ":1");
        talk.ask("SELECT 1", &[]);
        talk.expect("GETEX d PERSIST", &value);
        assert_eq!(talk.ask("SETNX d x", &[]), ":0");
        talk.expect("GETSET d short", &value);
        talk.expect("GETDEL d", b"short");
        talk.ask("SELECT 0", &[]);
        let both = |operation: Both| -> Vec<u8> {
            let mut first = value.clone();
            first[9..16].copy_from_slice(b"changed");
            first.iter().zip(&other).map(|(a, b)| operation(*a, *b)).collect()
        };
        let ways: [(&str, Both); 3] =
            [("AND", |a, b| a & b), ("OR", |a, b| a | b), ("XOR", |a, b| a ^ b)];
        for (name, operation) in ways {
            let said = talk.ask(&format!("BITOP {name} c a b none"), &[]);
            assert_eq!(said, format!(":{length}"));
            let expected = if name == "AND" { vec![0; length] } else { both(operation) };
            talk.expect("GET c", &expected);
        }
        talk.ask("BITOP NOT c b", &[]);
        let inverted: Vec<u8> = other.iter().map(|byte| !byte).collect();
        talk.expect("SET b x GET", &other);
        talk.expect("GET c", &inverted);
        let own = talk.hear("GET a", &[]);
        let other = talk.hear("GET c", &[]);
        let all = [&b"*3\r\n"[..], &own, b"$-1\r\n", &other].concat();
        assert!(talk.hear("MGET a none c", &[]) == all, "{length}");
        for line in ["INCR a", "DECRBY a 5"] {
            assert_eq!(talk.ask(line, &[]), "-ERR value is not an integer or out of range");
        }
        assert_eq!(talk.ask("INCRBYFLOAT a 1", &[]), "-ERR value is not a valid float");
        assert!(talk.ask("LPUSH a x", &[]).starts_with("-WRONGTYPE"));
        let usage = talk.ask("MEMORY USAGE a", &[]);
        let usage: usize = usage[1..].parse().unwrap();
        assert!((length..length + length / 100 + 500).contains(&usage), "{usage} of {length}");
        assert_eq!(talk.ask("PSETEX a 100000", &[&other]), "+OK");
        talk.expect("GET a", &other);
        assert_eq!(talk.ask("DEL a b c", &[]), ":3");
        collect(&mut talk.house);
        assert_eq!(talk.rows(), (0, 0, 0));
    }
}

#[test]
fn commands_that_read_all_of_it() {
    let mut talk = Talk::new();
    for length in [LONGEST_IN_ROW, LONGEST_IN_ROW + 1, 20 * CHUNK_BYTES] {
        let value = bytes(length, 400 + length as u64);
        talk.ask("SET a", &[&value]);
        let payload = talk.text("DUMP a", &[]);
        assert_eq!(talk.ask("RESTORE b 0", &[&payload]), "+OK");
        talk.expect("GET b", &value);
        assert_eq!(talk.rows().0, 2 * chunks_of(length));
        assert_eq!(talk.ask("LCS a c LEN", &[]), ":0");
        talk.ask("SET c", &[&value[CHUNK_BYTES - 1..CHUNK_BYTES + 2]]);
        assert_eq!(talk.ask("LCS a c LEN", &[]), ":3");
        let said = talk.ask("LCS a b", &[]);
        assert_eq!(said, "-ERR Insufficient memory: the strings are too long to be compared");
        talk.ask("RPUSH l b a", &[]);
        talk.ask("MSET w_a 1 w_b 2", &[]);
        let (first, second) = (talk.hear("GET a", &[]), talk.hear("GET b", &[]));
        let all = [&b"*2\r\n"[..], &first, &second].concat();
        assert!(talk.hear("SORT l BY w_* GET *", &[]) == all);
        let said = talk.ask("SORT l BY *", &[]);
        assert_eq!(said, "-ERR One or more scores can't be converted into double");
        let object = talk.ask("DEBUG OBJECT a", &[]);
        assert!(object.contains("encoding:raw"), "{object}");
        talk.ask("DEL a b c l w_a w_b", &[]);
        collect(&mut talk.house);
    }
}
