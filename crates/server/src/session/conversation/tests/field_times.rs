//! Hash fields with an expiry: the replies, the events, and that no reader sees an expired field.

mod at_random;

use super::large::{PACKS_NOTHING, collect, reopened};
use super::*;
use crate::upkeep::reaper::reap;
use hyades::Columns;
use std::sync::atomic::Ordering::Relaxed;

/// So far ahead of the wall clock that the clock stands still except for [`Lapse::pass`].
const AHEAD_MS: i64 = 10_000_000;

/// A server with a clock that a test advances.
struct Lapse {
    house: House,
    client: Conversation,
    now: i64,
}

impl Lapse {
    fn new(settings: &str) -> Lapse {
        let mut house = House::new(false);
        let mut client = house.client();
        house.say(&mut client, settings.as_bytes());
        let now = house.shared.clock.now_ms() + AHEAD_MS;
        let lapse = Lapse { house, client, now };
        lapse.house.shared.clock.advance(lapse.now);
        lapse
    }

    fn pass(&mut self, ms: i64) {
        self.now += ms;
        self.house.shared.clock.advance(self.now);
    }

    fn say(&mut self, line: &str) -> String {
        let said = self.house.say(&mut self.client, format!("{line}\r\n").as_bytes());
        said.trim_end().to_string()
    }

    /// Removes expired keys and fields.
    fn reap(&self) {
        reap(&self.house.shared, &self.house.shared.store.opened.cloned()).unwrap();
    }

    /// The rows of keys and of blocks.
    fn rows(&mut self) -> (usize, usize) {
        collect(&mut self.house);
        let opened = self.house.shared.store.opened.cloned();
        let (snapshot, mut rows) = (opened.database.open_snapshot(), (0, 0));
        snapshot.for_each(opened.tables.keys, Columns::of(&[0]), |_| rows.0 += 1).unwrap();
        snapshot.for_each(opened.tables.blocks, Columns::of(&[0]), |_| rows.1 += 1).unwrap();
        rows
    }
}

/// Packed hashes, and hashes in blocks.
const BOTH: [&str; 2] = ["CONFIG SET hash-max-listpack-entries 128\r\n", PACKS_NOTHING];

#[test]
fn commands_on_times_reply_as_redis_does() {
    for settings in BOTH {
        let mut lapse = Lapse::new(settings);
        let at = lapse.now;
        let lines: &[(&str, &str)] = &[
            ("HEXPIRE h 10 FIELDS 2 a b", "*2 :-2 :-2"),
            ("HTTL h FIELDS 1 a", "*1 :-2"),
            ("HPERSIST h FIELDS 1 a", "*1 :-2"),
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HTTL h FIELDS 2 a x", "*2 :-1 :-2"),
            ("HEXPIRE h 10 FIELDS 2 a x", "*2 :1 :-2"),
            ("HTTL h FIELDS 1 a", "*1 :10"),
            ("HPTTL h FIELDS 1 a", "*1 :10000"),
            ("HEXPIRE h 5 NX FIELDS 2 a b", "*2 :0 :1"),
            ("HEXPIRE h 20 XX FIELDS 2 a c", "*2 :1 :0"),
            ("HEXPIRE h 10 GT FIELDS 3 a b c", "*3 :0 :1 :0"),
            ("HPEXPIRE h 11000 LT FIELDS 3 a b c", "*3 :1 :0 :1"),
            ("HPTTL h FIELDS 3 a b c", "*3 :11000 :10000 :11000"),
            ("HEXPIRE h 30 NX FIELDS 2 x x", "*2 :-2 :-2"),
            ("HPERSIST h FIELDS 4 a a c x", "*4 :1 :-1 :1 :-2"),
            ("HGETALL h", "*6 $1 a $1 1 $1 b $1 2 $1 c $1 3"),
            // A field set anew does not expire; an increment keeps the time of expiry.
            ("HINCRBY h b 5", ":7"),
            ("HINCRBYFLOAT h b 0.5", "$3 7.5"),
            ("HTTL h FIELDS 1 b", "*1 :10"),
            ("HSET h b 2", ":0"),
            ("HTTL h FIELDS 1 b", "*1 :-1"),
            ("HGETEX h FIELDS 2 a x", "*2 $1 1 $-1"),
            ("HGETEX h EX 100 FIELDS 2 a x", "*2 $1 1 $-1"),
            ("HTTL h FIELDS 2 a b", "*2 :100 :-1"),
            ("HGETEX h PERSIST FIELDS 2 a b", "*2 $1 1 $1 2"),
            ("HTTL h FIELDS 2 a b", "*2 :-1 :-1"),
            ("HGETEX h PXAT 1 FIELDS 2 a a", "*2 $1 1 $-1"),
            ("HGETDEL h FIELDS 3 b b x", "*3 $1 2 $-1 $-1"),
            ("HGETALL h", "*2 $1 c $1 3"),
            ("HSETEX h FNX EX 10 FIELDS 2 c 4 d 5", ":0"),
            ("HSETEX h FXX EX 10 FIELDS 2 c 4 d 5", ":0"),
            ("HSETEX h FXX PX 10 FIELDS 1 c 4", ":1"),
            ("HSETEX h FNX FIELDS 1 d 5", ":1"),
            ("HPTTL h FIELDS 2 c d", "*2 :10 :-1"),
            ("HSETEX h KEEPTTL FIELDS 2 c 5 d 6", ":1"),
            ("HPTTL h FIELDS 2 c d", "*2 :10 :-1"),
            ("HSETEX h FIELDS 1 c 6", ":1"),
            ("HPTTL h FIELDS 1 c", "*1 :-1"),
            ("HEXPIRE h 0 FIELDS 1 c", "*1 :2"),
            ("HEXPIREAT h 1 FIELDS 2 c d", "*2 :-2 :2"),
            ("EXISTS h", ":0"),
            ("HSETEX h EXAT 1 FIELDS 1 a 1", ":1"),
            ("EXISTS h", ":0"),
            ("HSETEX h FXX FIELDS 1 a 1", ":0"),
            ("HGETDEL h FIELDS 1 a", "*1 $-1"),
            ("HGETEX h EX 1 FIELDS 1 a", "*1 $-1"),
            ("SET s 1", "+OK"),
        ];
        for (line, expected) in lines {
            let said = lapse.say(line);
            assert_eq!(sorted_pairs(line, &said), *expected, "{line}");
        }
        lapse.say("HSET h a 1");
        for (line, time) in [
            (format!("HEXPIREAT h {} FIELDS 1 a", at / 1_000 + 9), (at / 1_000 + 9) * 1_000),
            (format!("HPEXPIREAT h {} FIELDS 1 a", at + 5_001), at + 5_001),
        ] {
            assert_eq!(lapse.say(&line), "*1 :1");
            assert_eq!(lapse.say("HPEXPIRETIME h FIELDS 1 a"), format!("*1 :{time}"));
            let seconds = (time + 999) / 1_000;
            assert_eq!(lapse.say("HEXPIRETIME h FIELDS 1 a"), format!("*1 :{seconds}"));
        }
    }
}

/// Fields in blocks have no order: the fields of a reply with all fields are sorted.
fn sorted_pairs(line: &str, said: &str) -> String {
    if !line.starts_with("HGETALL") {
        return said.to_string();
    }
    let words: Vec<&str> = said.split(' ').collect();
    let mut pairs: Vec<String> = words[1..].chunks(4).map(|pair| pair.join(" ")).collect();
    pairs.sort();
    [&[words[0].to_string()], &pairs[..]].concat().join(" ")
}

#[test]
fn what_is_wrong_is_refused() {
    let mut lapse = Lapse::new("HSET h a 1\r\nSET s 1\r\n");
    let no_fields = "-ERR Mandatory argument FIELDS is missing or not at the right position";
    let no_match = "-ERR The `numfields` parameter must match the number of arguments";
    let not_positive = "-ERR Number of fields must be a positive integer";
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let no_integer = "-ERR value is not an integer or out of range";
    let negative = "-ERR invalid expire time, must be >= 0";
    let times = "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";
    let conditions = "-ERR Only one of FXX or FNX arguments can be specified";
    let arity = "-ERR wrong number of arguments for 'hsetex' command";
    for (line, expected) in [
        ("HEXPIRE s 1 FIELDS 1 a", wrong),
        ("HTTL s FIELDS 1 a", wrong),
        ("HPERSIST s FIELDS 1 a", wrong),
        ("HGETEX s FIELDS 1 a", wrong),
        ("HSETEX s FIELDS 1 a 1", wrong),
        ("HGETDEL s FIELDS 1 a", wrong),
        ("HEXPIRE h 1 FIELDS 1", "-ERR wrong number of arguments for 'hexpire' command"),
        ("HEXPIRE h x FIELDS 1 a", no_integer),
        ("HEXPIRE h -1 FIELDS 1 a", negative),
        ("HEXPIRE h 70368744177664 FIELDS 1 a", "-ERR invalid expire time in 'hexpire' command"),
        (
            "HPEXPIREAT h 70368744177664 FIELDS 1 a",
            "-ERR invalid expire time in 'hpexpireat' command",
        ),
        ("HEXPIRE h 1 FIELD 1 a", no_fields),
        ("HEXPIRE h 1 NX GT FIELDS 1 a", no_fields),
        ("HEXPIRE h 1 FIELDS 0 a", "-ERR Parameter `numFields` should be greater than 0"),
        ("HEXPIRE h 1 FIELDS 2 a", no_match),
        ("HEXPIRE h 1 NX FIELDS 1", no_match),
        ("HTTL h FIELDS 2 a", no_match),
        ("HTTL h a 1 FIELDS", no_fields),
        ("HTTL h FIELDS x a", not_positive),
        ("HPERSIST h FIELDS -1 a", not_positive),
        ("HGETEX h PXAT 1 1", no_fields),
        ("HGETEX h PERSIST 1 FIELDS 1 a", no_fields),
        ("HGETEX h PX -1 FIELDS 1 a", negative),
        ("HGETEX h FIELDS 9223372036854775808 a", not_positive),
        ("HGETDEL h FIELDS 0 a", not_positive),
        ("HSETEX h FIELDS 2 a b", arity),
        ("HSETEX h FIELDS 1 a b c", arity),
        ("HSETEX h FIELDS x a b", "-ERR invalid number of fields"),
        ("HSETEX h nx FIELDS 1 a b", "-ERR unknown argument: nx"),
        ("HSETEX h FXX FNX FIELDS 1 a b", conditions),
        ("HSETEX h FNX FNX FIELDS 1 a b", conditions),
        ("HSETEX h EX 100 PX 1 FIELDS 1 a b", times),
        ("HSETEX h KEEPTTL EX 100 FIELDS 1 a b", times),
        ("HSETEX h KEEPTTL KEEPTTL FIELDS 1 a b", times),
        ("HSETEX h EX FIELDS 1 a b", no_integer),
        ("HSETEX h FXX KEEPTTL FXX PX", conditions),
        ("HGET h a", "$1 1"),
        ("HTTL h FIELDS 1 a", "*1 :-1"),
    ] {
        assert_eq!(lapse.say(line), expected, "{line}");
    }
}

/// The replies about a hash with the fields a and b, once a has expired.
const WITHOUT_A_FIELD: &[(&str, &str)] = &[
    ("HGET h a", "$-1"),
    ("HMGET h a b", "*2 $-1 $1 2"),
    ("HLEN h", ":1"),
    ("HGETALL h", "*2 $1 b $1 2"),
    ("HKEYS h", "*1 $1 b"),
    ("HVALS h", "*1 $1 2"),
    ("HEXISTS h a", ":0"),
    ("HSTRLEN h a", ":0"),
    ("HSCAN h 0", "*2 $1 0 *2 $1 b $1 2"),
    ("HSCAN h 0 NOVALUES COUNT 5", "*2 $1 0 *1 $1 b"),
    ("HRANDFIELD h 5", "*1 $1 b"),
    ("HRANDFIELD h -2", "*2 $1 b $1 b"),
    ("HRANDFIELD h", "$1 b"),
    ("HTTL h FIELDS 2 a b", "*2 :-2 :-1"),
    ("HPERSIST h FIELDS 1 a", "*1 :-2"),
    ("HEXPIRE h 1 FIELDS 1 a", "*1 :-2"),
    ("SORT l BY nosort GET h->a", "*2 $-1 $-1"),
    ("HGETDEL h FIELDS 1 a", "*1 $-1"),
    ("HDEL h a", ":0"),
    ("HSETEX h FXX FIELDS 1 a 1", ":0"),
    ("COPY h copy", ":1"),
    ("HGETALL copy", "*2 $1 b $1 2"),
    ("DEL copy", ":1"),
    ("HINCRBY h a 7", ":7"),
    ("HTTL h FIELDS 1 a", "*1 :-1"),
    ("HDEL h a", ":1"),
    ("HPEXPIRE h 5 FIELDS 1 b", "*1 :1"),
    ("EXISTS h", ":1"),
];

/// The replies once all fields have expired.
const WITHOUT_THE_HASH: &[(&str, &str)] = &[
    ("EXISTS h", ":0"),
    ("TYPE h", "+none"),
    ("TTL h", ":-2"),
    ("SCAN 0", "*2 $1 0 *1 $1 l"),
    ("KEYS *", "*1 $1 l"),
    ("RANDOMKEY", "$1 l"),
    ("OBJECT ENCODING h", "$-1"),
    ("HLEN h", ":0"),
    ("HGETALL h", "*0"),
    ("DUMP h", "$-1"),
    ("RENAME h g", "-ERR no such key"),
    ("COPY h g", ":0"),
    ("MOVE h 1", ":0"),
    ("DEL h", ":0"),
    ("SETNX h text", ":1"),
    ("GET h", "$4 text"),
    ("DEL h", ":1"),
    ("HSET h a 1", ":1"),
];

/// Each command that reads, once a field has expired, and once all have: with the field stored
/// still, and without.
#[test]
fn no_reader_sees_a_field_whose_time_has_come() {
    for (settings, is_reaped) in BOTH.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let mut lapse = Lapse::new(settings);
        lapse.say("HSET h a 1 b 2");
        lapse.say("RPUSH l b a");
        lapse.say("HPEXPIRE h 100 FIELDS 1 a");
        lapse.pass(99);
        assert_eq!((lapse.say("HGET h a"), lapse.say("HLEN h")), ("$1 1".into(), ":2".into()));
        lapse.pass(1);
        if is_reaped {
            lapse.reap();
        }
        for (line, expected) in WITHOUT_A_FIELD {
            assert_eq!(lapse.say(line), *expected, "{line}, {is_reaped}");
        }
        lapse.pass(5);
        if is_reaped {
            lapse.reap();
        }
        for (line, expected) in WITHOUT_THE_HASH {
            assert_eq!(lapse.say(line), *expected, "{line}, {is_reaped}");
        }
    }
}

/// Without any access: the blocks, the key and the timers go by themselves, and the number of
/// removed fields is told.
#[test]
fn expired_fields_leave_memory_by_themselves() {
    for settings in BOTH {
        let mut lapse = Lapse::new(settings);
        for n in 0..300 {
            lapse.say(&format!("HSETEX h PX {} FIELDS 1 field:{n} {n}", 1_000 + n));
            lapse.say(&format!("HSETEX stays PX 1000 FIELDS 1 field:{n} {n}"));
        }
        lapse.say("HSET stays for 1 ever 2");
        let full = lapse.rows();
        assert!(full.0 == 2 && full.1 > 8, "{full:?}");
        lapse.pass(1_100);
        lapse.reap();
        assert_eq!(lapse.say("HLEN h"), ":199");
        assert_eq!(lapse.say("HLEN stays"), ":2");
        let expired = || lapse.house.shared.stats.counters.expired_fields.load(Relaxed);
        assert_eq!(expired(), 101 + 300);
        let half = lapse.rows();
        assert!(half.1 < full.1, "{half:?}");
        lapse.pass(1_000);
        lapse.reap();
        let (keys, blocks) = lapse.rows();
        assert!(keys == 1 && blocks <= 2, "{blocks} blocks");
        assert_eq!(lapse.say("DBSIZE"), ":1");
        let expired = || lapse.house.shared.stats.counters.expired_fields.load(Relaxed);
        assert_eq!(expired(), 600);
        lapse.say("HDEL stays for ever");
        assert_eq!(lapse.rows(), (0, 0));
    }
}

#[test]
fn a_restart_keeps_the_times() {
    for settings in BOTH {
        let mut lapse = Lapse::new(settings);
        let times = [lapse.now + 50, lapse.now + 5_000];
        lapse.say("HSET h a 1 b 2 c 3");
        for (field, at) in ["a", "b"].iter().zip(times) {
            lapse.say(&format!("HPEXPIREAT h {at} FIELDS 1 {field}"));
        }
        let Lapse { house, now, .. } = lapse;
        let house = reopened(house);
        let opened = house.shared.store.opened.cloned();
        let (database, tables) = (&opened.database, opened.tables);
        house.shared.clock.advance(now);
        let counted = crate::upkeep::opening::count_keys(&house.shared, database, tables).unwrap();
        assert_eq!((counted.expired, counted.timed_hashes), (0, 1));
        let client = house.client();
        let mut lapse = Lapse { house, client, now };
        let said = lapse.say("HPEXPIRETIME h FIELDS 3 a b c");
        assert_eq!(said, format!("*3 :{} :{} :-1", times[0], times[1]));
        // The timers are there again.
        lapse.pass(50);
        lapse.reap();
        assert_eq!(lapse.house.shared.stats.counters.expired_fields.load(Relaxed), 1);
        assert_eq!(lapse.say("HLEN h"), ":2");
    }
}

#[test]
fn a_watch_sees_a_field_expire() {
    for (settings, is_reaped) in BOTH.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        for (passes, expected) in [(99, "*1 +PONG"), (100, "*-1")] {
            let mut lapse = Lapse::new(settings);
            lapse.say("HSET h a 1 b 2 c 3");
            lapse.say("HPEXPIRE h 10 FIELDS 1 c");
            lapse.say("HPEXPIRE h 110 FIELDS 1 a");
            // A field expired before is no change.
            lapse.pass(10);
            assert_eq!(lapse.say("WATCH h"), "+OK");
            lapse.pass(passes);
            if is_reaped && passes == 100 {
                lapse.reap();
            }
            lapse.say("MULTI");
            lapse.say("PING");
            assert_eq!(lapse.say("EXEC"), expected, "{passes}, {is_reaped}");
        }
    }
}

#[test]
fn a_client_that_tracks_is_told_of_an_expired_field() {
    for settings in BOTH {
        let mut lapse = Lapse::new(settings);
        let mut tracks = lapse.house.client();
        lapse.say("HSETEX h PX 100 FIELDS 1 a 1");
        lapse.say("HSET h b 2");
        lapse.house.say(&mut tracks, b"HELLO 3\r\nCLIENT TRACKING ON\r\nHGETALL h\r\n");
        lapse.pass(100);
        let opened = lapse.house.shared.store.opened.cloned();
        crate::upkeep::expiry::remove_and_tell(&lapse.house.shared, &opened).unwrap();
        let said = lapse.house.say(&mut tracks, b"");
        assert_eq!(said, ">2 $10 invalidate *1 $1 h ");
    }
}
