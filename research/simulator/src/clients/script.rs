//! The requests of clients: random requests over a few keys, so that requests meet.

mod streams;

use super::lua::{self, ScriptEnding};
use fastrand::Rng;
use std::collections::VecDeque;

/// A request, its words.
pub(crate) type Words = Vec<String>;

/// The channel of published messages.
pub(crate) const CHANNEL: &str = "news";

/// The place for the number of the request that sends a message.
pub(crate) const OWN_NUMBER: &str = "?";

/// Bytes of a chunk of a long string, as in the server. Only the tried positions depend on the
/// size.
const CHUNK_BYTES: usize = (64 << 10) - 16;

/// A time of expiry that no history reaches, in milliseconds since 1970.
const LATE_MS: i64 = 40_000_000_000_000;

/// The number of databases in use.
pub(crate) const DATABASES: u32 = 2;

/// The subjects of a history beside the common commands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subjects {
    /// Values of many lengths are written, with later pointers to the values.
    pub points: bool,
    /// There are streams.
    pub streams: bool,
}

/// Makes requests.
pub(crate) struct Script {
    rng: Rng,
    /// Values made: each is written once.
    values: u64,
    /// Ids of the newest entries of streams.
    entries: VecDeque<String>,
    subjects: Subjects,
}

fn words(text: &str) -> Words {
    text.split(' ').map(str::to_string).collect()
}

impl Script {
    /// Of a life.
    pub fn new(seed: u64, values: u64, subjects: Subjects) -> Script {
        Script { rng: Rng::with_seed(seed), values, entries: VecDeque::new(), subjects }
    }

    /// The number of values made so far.
    pub fn values(&self) -> u64 {
        self.values
    }

    /// The first letter of keys of a type.
    fn kind(&mut self) -> char {
        let count = if self.subjects.streams { 7 } else { 6 };
        ['s', 'n', 'l', 'h', 'e', 'z', 'x'][self.rng.usize(0..count)]
    }

    fn key(&mut self, kind: char) -> String {
        format!("{kind}{}", self.rng.u32(0..3))
    }

    fn value(&mut self) -> String {
        self.values += 1;
        let padding = [0, 0, 0, 30, 300][self.rng.usize(0..5)];
        format!("v{}{}", self.values, "x".repeat(padding))
    }

    fn member(&mut self) -> String {
        format!("m{}", self.rng.u32(0..24))
    }

    fn some(&mut self, mut make: impl FnMut(&mut Self) -> String) -> String {
        let count = [1, 1, 2, 5][self.rng.usize(0..4)];
        (0..count).map(|_| make(self)).collect::<Vec<_>>().join(" ")
    }

    /// A command on data that does not wait.
    pub fn command(&mut self, now_ms: i64) -> Words {
        if self.rng.u32(0..48) == 0 {
            return words(&self.large_string());
        }
        if self.subjects.streams && self.rng.u32(0..6) == 0 {
            return words(&self.stream(now_ms));
        }
        let text = match self.rng.u32(0..16) {
            0..3 => self.string(now_ms),
            3..5 => self.number(),
            5..8 => self.list(),
            8..10 => self.hash(),
            10..12 => self.set(),
            12..14 => self.sorted_set(),
            _ => self.any_key(now_ms),
        };
        words(&text)
    }

    fn string(&mut self, now_ms: i64) -> String {
        let (key, value) = (self.key('s'), self.value());
        let soon = now_ms + self.rng.i64(-5..2_000);
        match self.rng.u32(0..9) {
            0..2 => format!("SET {key} {value}"),
            2 => format!("SET {key} {value} {}", ["NX", "GET"][self.rng.usize(0..2)]),
            3 => format!("SET {key} {value} PXAT {soon}"),
            4 => format!("APPEND {key} {value}"),
            5 => format!("MSET s0 {value} s1 {} s2 {value}", self.value()),
            6 => "MGET s0 s1 s2".to_string(),
            _ => format!("GET {key}"),
        }
    }

    /// On strings in chunks, most of them absent: a write begins a chunk, or is near to the start
    /// of a chunk, so that little is logged.
    fn large_string(&mut self) -> String {
        let (key, other, value) = (self.key('b'), self.key('b'), self.value());
        let at = CHUNK_BYTES * self.rng.usize(17..20) + self.rng.usize(0..50);
        match self.rng.u32(0..12) {
            0..4 => format!("SETRANGE {key} {at} {value}"),
            4..6 => format!("APPEND {key} {value}"),
            6..8 => format!("GETRANGE {key} {at} {}", at + 400),
            8 => format!("STRLEN {key}"),
            9 => format!("RENAME {key} {other}"),
            10 => format!("SET {key} {value} GET"),
            _ => format!("DEL {key} {other}"),
        }
    }

    fn number(&mut self) -> String {
        let (key, by) = (self.key('n'), self.rng.i32(1..100));
        match self.rng.u32(0..4) {
            0 => format!("GET {key}"),
            _ => format!("INCRBY {key} {by}"),
        }
    }

    fn list(&mut self) -> String {
        let (key, other) = (self.key('l'), self.key('l'));
        let ends = ["LEFT", "RIGHT"];
        match self.rng.u32(0..10) {
            0..2 => format!("RPUSH {key} {}", self.some(Self::value)),
            2 => format!("LPUSH {key} {}", self.some(Self::value)),
            3..6 => format!("LPOP {key}"),
            6 => format!("RPOP {key}"),
            7 => format!("LLEN {key}"),
            8 => format!("LRANGE {key} 0 -1"),
            _ => {
                let (one, two) = (ends[self.rng.usize(0..2)], ends[self.rng.usize(0..2)]);
                format!("LMOVE {key} {other} {one} {two}")
            }
        }
    }

    fn hash(&mut self) -> String {
        let key = self.key('h');
        match self.rng.u32(0..11) {
            0..3 => {
                let pairs = self.some(|script| format!("{} {}", script.member(), script.value()));
                format!("HSET {key} {pairs}")
            }
            3..5 => format!("HDEL {key} {}", self.some(Self::member)),
            5 => format!("HGET {key} {}", self.member()),
            6 => format!("HLEN {key}"),
            // Times that no history reaches: these times change only how the hash is stored.
            7 => {
                let (member, value) = (self.member(), self.value());
                format!("HSETEX {key} PXAT {LATE_MS} FIELDS 1 {member} {value}")
            }
            8 => format!("HPEXPIREAT {key} {LATE_MS} FIELDS 1 {}", self.member()),
            9 => format!("HGETDEL {key} FIELDS 1 {}", self.member()),
            _ => format!("HGETALL {key}"),
        }
    }

    fn set(&mut self) -> String {
        let (key, other) = (self.key('e'), self.key('e'));
        match self.rng.u32(0..9) {
            0..3 => format!("SADD {key} {}", self.some(Self::member)),
            3..5 => format!("SREM {key} {}", self.some(Self::member)),
            5 => format!("SISMEMBER {key} {}", self.member()),
            6 => format!("SCARD {key}"),
            7 => format!("SMEMBERS {key}"),
            _ => format!("SMOVE {key} {other} {}", self.member()),
        }
    }

    fn sorted_set(&mut self) -> String {
        let (key, score) = (self.key('z'), self.rng.i32(-50..50));
        match self.rng.u32(0..9) {
            0..3 => {
                let pairs =
                    self.some(|script| format!("{} {}", script.rng.i32(-50..50), script.member()));
                format!("ZADD {key} {pairs}")
            }
            3 => format!("ZINCRBY {key} {score} {}", self.member()),
            4 => format!("ZREM {key} {}", self.some(Self::member)),
            5 => format!("ZSCORE {key} {}", self.member()),
            6 => format!("ZCARD {key}"),
            7 => format!("ZRANGE {key} 0 -1 WITHSCORES"),
            _ => format!("ZPOPMIN {key}"),
        }
    }

    fn any_key(&mut self, now_ms: i64) -> String {
        let kind = self.kind();
        let (key, other) = (self.key(kind), self.key(kind));
        let soon = now_ms + self.rng.i64(-5..2_000);
        match self.rng.u32(0..24) {
            0..5 => format!("DEL {key} {other}"),
            5..8 => format!("EXISTS {key} {other}"),
            8 => format!("TYPE {key}"),
            9..12 => format!("PEXPIREAT {key} {soon}"),
            12..15 => format!("PERSIST {key}"),
            15..18 => format!("PEXPIRETIME {key}"),
            18..22 => format!("RENAME {key} {other}"),
            22 => "FLUSHDB".to_string(),
            // A value of another type, where no client waits for elements.
            _ => {
                let kind = if self.subjects.streams { &['h', 'e', 'x'][..] } else { &['h', 'e'] };
                let kind = kind[self.rng.usize(0..kind.len())];
                let key = self.key(kind);
                format!("SET {key} {}", self.value())
            }
        }
    }

    fn waiting(&mut self) -> Words {
        let (key, other) = (self.key('l'), self.key('l'));
        words(&match self.rng.u32(0..6) {
            0..3 => format!("BLPOP {key} 0"),
            3 if key != other => format!("BRPOP {key} {other} 0"),
            4 => format!("BLMOVE {key} {other} LEFT RIGHT 0"),
            _ => format!("BZPOPMIN {} 0", self.key('z')),
        })
    }

    fn durability(&mut self) -> Words {
        words(&format!("HYADES.DURABILITY {}", ["ack", "1s", "none"][self.rng.usize(0..3)]))
    }

    fn select(&mut self) -> Words {
        words(&format!("SELECT {}", self.rng.u32(0..DATABASES)))
    }

    fn publish(&mut self) -> Words {
        words(&format!("PUBLISH {CHANNEL} {OWN_NUMBER}"))
    }

    /// Commands of a script.
    fn commands(&mut self, now_ms: i64) -> Vec<Words> {
        let count = self.rng.usize(0..7);
        let mut commands = |_| match self.rng.u32(0..12) {
            0 => self.select(),
            _ => self.command(now_ms),
        };
        (0..count).map(&mut commands).collect()
    }

    /// A script of commands.
    fn eval(&mut self, now_ms: i64) -> Words {
        let mut commands = self.commands(now_ms);
        let ending = match self.rng.u32(0..6) {
            0 => ScriptEnding::Fails,
            1 => ScriptEnding::RollsBack,
            _ => ScriptEnding::Returns,
        };
        if ending == ScriptEnding::Returns && self.rng.u32(0..4) == 0 {
            commands.push(self.publish());
        }
        lua::eval(commands, ending)
    }

    /// Some requests of a client that belong together.
    pub fn scene(&mut self, now_ms: i64) -> Vec<Words> {
        if self.subjects.points && self.rng.u32(0..6) == 0 {
            return self.pointer();
        }
        if self.subjects.streams && self.rng.u32(0..8) == 0 {
            return self.group_scene(now_ms);
        }
        match self.rng.u32(0..40) {
            0 => vec![self.durability()],
            1 => vec![self.select()],
            2 => vec![words("WAITAOF 1 0 0")],
            3..6 => vec![self.command(now_ms), self.publish()],
            6..10 => vec![self.waiting()],
            10..16 => self.transfer(),
            16..22 => self.block(now_ms),
            22..25 => vec![self.eval(now_ms)],
            25 => lua::function(self.commands(now_ms)),
            _ => (0..self.rng.usize(1..4)).map(|_| self.command(now_ms)).collect(),
        }
    }

    /// Data of some length, and then a pointer to the data: two transactions, unless run at once.
    fn pointer(&mut self) -> Vec<Words> {
        let (data, pointer) = (self.key('s'), self.key('n'));
        let length = [10, 1_000, 9_000, 40_000][self.rng.usize(0..4)];
        let mut all = Vec::new();
        for _ in 0..self.rng.usize(1..4) {
            all.push(format!("SET {data} {}{}", self.value(), "y".repeat(length)));
            if self.rng.bool() {
                // The read ends the run.
                all.push(format!("GET {data}"));
            }
            all.push(format!("INCRBY {pointer} {}", self.rng.u32(1..100)));
        }
        all.iter().map(|text| words(text)).collect()
    }

    /// Two numbers, and a key of the moved amount, change together.
    fn transfer(&mut self) -> Vec<Words> {
        let (from, to, by) = (self.key('n'), self.key('n'), self.rng.i32(1..50));
        let mut all = Vec::new();
        if self.rng.bool() {
            all.extend([format!("WATCH {from} {to}"), format!("GET {from}")]);
        }
        all.extend(["MULTI".to_string(), format!("INCRBY {from} -{by}")]);
        all.extend([format!("INCRBY {to} {by}"), format!("SET s0 {}", self.value())]);
        let mut all: Vec<Words> = all.iter().map(|text| words(text)).collect();
        if self.rng.u32(0..4) == 0 {
            all.push(self.durability());
        }
        if self.rng.u32(0..4) == 0 {
            all.push(self.publish());
        }
        all.push(words(if self.rng.u32(0..12) == 0 { "DISCARD" } else { "EXEC" }));
        all
    }

    /// Any commands between MULTI and EXEC.
    fn block(&mut self, now_ms: i64) -> Vec<Words> {
        let mut all = Vec::new();
        if self.rng.u32(0..3) == 0 {
            let kind = self.kind();
            all.push(words(&format!("WATCH {}", self.key(kind))));
        }
        all.push(words("MULTI"));
        for _ in 0..self.rng.usize(1..6) {
            all.push(match self.rng.u32(0..16) {
                0 => self.select(),
                1 => self.durability(),
                2 => self.waiting(),
                3 => self.publish(),
                4 => self.eval(now_ms),
                _ => self.command(now_ms),
            });
        }
        all.push(words("EXEC"));
        all
    }
}
