//! The same random commands here and on `redis-server`: the replies are equal, except for orders
//! left open by Redis, the choice between two errors in two commands, and a score of -0, which is 0
//! here.
//! Ignored, since the test needs `redis-server`:
//!
//! `HYADES_COMMANDS=1000000 HYADES_SEED=1 cargo test -p hyades-server --test differential --
//! --ignored`
//!
//! With `HYADES_MEMBERS=400` collections have up to 400 members, and lie in several blocks. In the
//! second half of the commands no collection is packed.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod beside;
mod stream_commands;

use beside::{Client, Pair, Said, number};

/// Commands. In braces: s l t h z a key that mostly holds the type of the letter; y a sorted set
/// with equal scores (only there a range of members is defined); g a sorted set of places, q a
/// sorted set of distances; v a value, m a member or a field, n a small number, i any integer, c a
/// score, b a bound of scores, x a bound of members, o a bit's offset, d e a longitude and a
/// latitude, r u a distance and its unit.
const TEMPLATES: &str = "\
    SET {s} {v}|SET {s} {v} NX|SET {s} {v} XX GET|GET {s}|GETSET {s} {v}|GETDEL {s}|\
    APPEND {s} {v}|STRLEN {s}|GETRANGE {s} {n} {n}|SETRANGE {s} {n} {v}|INCR {s}|INCRBY {s} {i}|\
    DECRBY {s} {i}|INCRBYFLOAT float {c}|MGET {s} {s} {l}|MSET {s} {v} {s} {v}|\
    MSETNX {s} {v} {s} {v}|SETEX {s} -1 {v}|SET {s} {v} EXAT 9999999999|SET {s} {v} KEEPTTL|\
    SETBIT {s} {o} 1|SETBIT {s} {o} 0|GETBIT {s} {o}|BITCOUNT {s}|BITCOUNT {s} {n} {n}|\
    BITCOUNT {s} {n} {n} BIT|BITPOS {s} 1|BITPOS {s} 0 {n}|BITPOS {s} 1 {n} {n} BIT|\
    BITOP AND {s} {s} {s}|BITOP OR {s} {s} {s}|BITOP XOR {s} {s} {s} {s}|BITOP NOT {s} {s}|\
    BITFIELD {s} SET u8 {o} {i} GET i5 {o}|BITFIELD {s} OVERFLOW SAT INCRBY i7 {o} {n}|\
    BITFIELD {s} OVERFLOW FAIL INCRBY u4 #{o} {n} INCRBY u3 {o} {i}|BITFIELD_RO {s} GET u9 {o}|\
    LCS {s} {s}|LCS {s} {s} LEN|LPUSH {l} {v} {m}|RPUSH {l} {m} {v} {m}|LPUSHX {l} {m}|\
    RPUSHX {l} {m}|LPOP {l}|RPOP {l}|LPOP {l} {n}|RPOP {l} {n}|LLEN {l}|LRANGE {l} {n} {n}|\
    LINDEX {l} {n}|LSET {l} {n} {m}|LINSERT {l} BEFORE {m} {v}|LINSERT {l} AFTER {m} {v}|\
    LREM {l} {n} {m}|LTRIM {l} {n} {n}|LPOS {l} {m}|LPOS {l} {m} RANK {n} COUNT {n}|\
    LPOS {l} {m} COUNT 0 MAXLEN {n}|RPOPLPUSH {l} {l}|LMOVE {l} {l} LEFT RIGHT|\
    LMOVE {l} {l} RIGHT RIGHT|LMPOP 2 {l} {l} LEFT COUNT {n}|LMPOP 1 {l} RIGHT|\
    SADD {t} {m} {m} {v}|SREM {t} {m} {m}|SCARD {t}|SISMEMBER {t} {m}|SMISMEMBER {t} {m} {m}|\
    SMEMBERS {t}|SMOVE {t} {t} {m}|SUNION {t} {t}|SINTER {t} {t} {t}|SDIFF {t} {t}|\
    SUNIONSTORE {t} {t} {t}|SINTERSTORE {t} {t} {t}|SDIFFSTORE {t} {t} {t}|\
    SINTERCARD 2 {t} {t} LIMIT {n}|HSET {h} {m} {v}|HSET {h} {m} {v} {m} {m}|HSETNX {h} {m} {v}|\
    HMSET {h} {m} {v} {m} {i}|HGET {h} {m}|HMGET {h} {m} {m}|HDEL {h} {m} {m}|HLEN {h}|\
    HSTRLEN {h} {m}|HEXISTS {h} {m}|HKEYS {h}|HVALS {h}|HGETALL {h}|HINCRBY {h} {m} {i}|\
    HINCRBYFLOAT {h} float {c}|ZADD {z} {c} {m}|ZADD {z} {c} {m} {c} {m}|ZADD {z} NX {c} {m}|\
    ZADD {z} XX CH {c} {m} {c} {m}|ZADD {z} GT CH {c} {m}|ZADD {z} LT INCR {c} {m}|\
    ZADD {z} NX INCR {c} {m}|ZINCRBY {z} {c} {m}|ZREM {z} {m} {m}|ZCARD {z}|ZSCORE {z} {m}|\
    ZMSCORE {z} {m} {m}|ZRANK {z} {m}|ZREVRANK {z} {m}|ZCOUNT {z} {b} {b}|ZLEXCOUNT {y} {x} {x}|\
    ZRANGE {z} {n} {n}|ZRANGE {z} {n} {n} WITHSCORES|ZRANGE {z} {n} {n} REV WITHSCORES|\
    ZREVRANGE {z} {n} {n}|ZRANGE {z} {b} {b} BYSCORE|\
    ZRANGE {z} {b} {b} BYSCORE REV LIMIT {n} {n}|\
    ZRANGEBYSCORE {z} {b} {b} WITHSCORES LIMIT {n} {n}|ZREVRANGEBYSCORE {z} {b} {b}|\
    ZRANGEBYLEX {y} {x} {x}|ZREVRANGEBYLEX {y} {x} {x} LIMIT {n} {n}|ZADD {y} 0 {m} 0 {m}|\
    ZRANGE {y} {x} {x} BYLEX|ZREM {y} {m}|ZRANGESTORE {z} {z} {n} {n}|\
    ZRANGESTORE {z} {z} {b} {b} BYSCORE|ZREMRANGEBYRANK {z} {n} {n}|\
    ZREMRANGEBYSCORE {z} {b} {b}|ZREMRANGEBYLEX {y} {x} {x}|ZPOPMIN {z}|ZPOPMAX {z}|\
    ZPOPMIN {z} {n}|ZPOPMAX {z} {n}|ZMPOP 2 {z} {z} MIN COUNT {n}|ZMPOP 1 {z} MAX|\
    ZUNION 2 {z} {z} WITHSCORES|ZINTER 2 {z} {t} WITHSCORES|ZDIFF 2 {z} {z}|\
    ZUNION 2 {z} {z} WEIGHTS {c} {c} AGGREGATE MAX WITHSCORES|ZUNIONSTORE {z} 2 {z} {t}|\
    ZINTERSTORE {z} 2 {z} {z} AGGREGATE MIN|ZDIFFSTORE {z} 2 {z} {z}|\
    ZINTERCARD 2 {z} {z} LIMIT {n}|SORT {l} ALPHA|SORT {l} ALPHA DESC LIMIT {n} {n}|\
    SORT {t} ALPHA|SORT {z} BY nosort DESC|SORT {l} BY nosort GET # GET s*|\
    SORT {l} ALPHA GET h*->m1 GET #|SORT {l} ALPHA STORE {l}|DEL {s} {l}|DEL {t}|DEL {h} {z}|\
    EXISTS {s} {l} {z}|TYPE {t}|RENAME {l} {l}|RENAMENX {t} {t}|COPY {h} {h} REPLACE|\
    COPY {z} {z}|EXPIREAT {z} 9999999999|EXPIRETIME {z}|PERSIST {z}|PEXPIREAT {h} 1|\
    TOUCH {s} {t}|DBSIZE|PING|EXISTS {h}|UNLINK {s}|HSET {h} {m}|ZADD {z} x {m}|LPUSH {l}|\
    SETBIT {s} -1 1|LSET {l} x {m}|GEOADD {g} {d} {e} {m}|GEOADD {g} {d} {e} {m} {d} {e} {m}|\
    GEOADD {g} NX CH {d} {e} {m}|GEOADD {g} XX CH {d} {e} {m}|GEODIST {g} {m} {m} {u}|\
    GEOHASH {g} {m} {m}|GEOPOS {g} {m} {m}|GEORADIUS {g} {d} {e} {r} {u} WITHDIST WITHHASH|\
    GEORADIUS {g} {d} {e} {r} {u} WITHCOORD COUNT {n}|GEORADIUS_RO {g} {d} {e} {r} {u} DESC|\
    GEORADIUS {g} {d} {e} {r} {u} STORE {g}|GEORADIUSBYMEMBER {g} {m} {r} {u} STOREDIST {q}|\
    GEORADIUSBYMEMBER_RO {g} {m} {r} {u} COUNT {n} ANY|\
    GEOSEARCH {g} FROMMEMBER {m} BYRADIUS {r} {u} WITHDIST|\
    GEOSEARCH {g} FROMLONLAT {d} {e} BYBOX {r} {r} {u} WITHCOORD|\
    GEOSEARCH {g} FROMLONLAT {d} {e} BYBOX {r} {r} {u} ASC WITHDIST|\
    GEOSEARCH {g} FROMLONLAT {d} {e} BYRADIUS {r} {u} COUNT {n} WITHHASH|\
    GEOSEARCH {g} FROMMEMBER {m} BYBOX {r} {r} {u} ASC ANY|ZREM {g} {m}|ZADD {g} {i} {m}|\
    GEOSEARCHSTORE {g} {g} FROMLONLAT {d} {e} BYRADIUS {r} {u} COUNT {n}|\
    GEOSEARCHSTORE {q} {g} FROMMEMBER {m} BYBOX {r} {r} {u} STOREDIST|\
    ZRANGE {q} 0 -1|SET {s} {v} XX KEEPTTL";

/// Makes this server pack no collection of more than one element.
const IN_BLOCKS: &str = "CONFIG SET hash-max-listpack-entries 0 set-max-intset-entries 0 \
    zset-max-listpack-entries 0 list-max-listpack-size 1 stream-node-max-entries 1";

/// Commands with an order left open by Redis.
const UNORDERED: &[&str] = &["SMEMBERS", "SUNION", "SINTER", "SDIFF", "HKEYS", "HVALS", "HGETALL"];

fn pick<'a, T: ?Sized>(rng: &mut fastrand::Rng, choices: &[&'a T]) -> &'a T {
    choices[rng.usize(..choices.len())]
}

fn filled(rng: &mut fastrand::Rng, what: &str, members: u32) -> String {
    match what {
        "y" => format!("y{}", rng.u8(..2)),
        "g" | "q" => format!("{what}{}", rng.u8(..3)),
        "d" | "e" => {
            let (middle, most) = if what == "d" { (13.0, 181.0) } else { (38.0, 85.1) };
            let at = match rng.u8(..12) {
                0 => [-180.0, 180.0, -85.05112878, 85.05112878, 0.0][rng.usize(..5)],
                1..4 => (rng.f64() - 0.5) * 2.0 * most,
                _ => middle + (rng.f64() - 0.5) * 4.0,
            };
            format!("{at:.9}")
        }
        "r" => match rng.u8(..15) {
            0 => "0".to_string(),
            1 => "-1".to_string(),
            power => format!("{:.3}", 10f64.powf(f64::from(power) / 2.0) * rng.f64()),
        },
        "u" => pick(rng, &["m", "km", "FT", "mi", "m", "x"]).to_string(),
        "s" | "l" | "t" | "h" | "z" => {
            let what = if rng.u8(..20) == 0 { pick(rng, &["s", "l", "t", "h", "z"]) } else { what };
            format!("{what}{}", rng.u8(..3))
        }
        "v" => match rng.u8(..8) {
            0 => "x".repeat(rng.usize(..200)),
            1 | 2 => rng.i32(-1000..1000).to_string(),
            _ => format!("value{}", rng.u8(..20)),
        },
        "m" => match rng.u8(..4) {
            0 => rng.u32(..members).to_string(),
            _ => format!("m{}", rng.u32(..members)),
        },
        "n" if members > 12 && rng.bool() => {
            (i64::from(rng.u32(..members * 2)) - i64::from(members)).to_string()
        }
        "n" => rng.i32(-8..12).to_string(),
        "i" => match rng.u8(..30) {
            0 => i64::MAX.to_string(),
            1 => i64::MIN.to_string(),
            2 => "9223372036854775808".to_string(),
            _ => rng.i32(-100..100).to_string(),
        },
        "c" => match rng.u8(..30) {
            0 => "inf".to_string(),
            1 => "-inf".to_string(),
            2 => "nan".to_string(),
            _ => format!("{}", f64::from(rng.i32(-40..40)) / 4.0),
        },
        "b" => match rng.u8(..10) {
            0 => "-inf".to_string(),
            1 => "+inf".to_string(),
            2 => format!("({}", rng.i32(-8..8)),
            _ => rng.i32(-8..8).to_string(),
        },
        "x" => match rng.u8(..8) {
            0 => "-".to_string(),
            1 => "+".to_string(),
            n => format!("{}m{}", if n % 2 == 0 { '[' } else { '(' }, rng.u32(..members)),
        },
        "o" => rng.u32(..200).to_string(),
        _ => stream_commands::filled(rng, what, members)
            .unwrap_or_else(|| panic!("nothing is called {what}")),
    }
}

/// The words of a random command.
fn command(rng: &mut fastrand::Rng, templates: &[&str], members: u32) -> Vec<String> {
    let word = |rng: &mut fastrand::Rng, word: &str| match word.split_once('{') {
        None => word.to_string(),
        Some((before, rest)) => {
            let (what, behind) = rest.split_once('}').expect("braces match");
            format!("{before}{}{behind}", filled(rng, what, members))
        }
    };
    pick(rng, templates).split_whitespace().map(|text| word(rng, text)).collect()
}

/// Runs the command in its arguments.
const SCRIPT: [&str; 3] = ["EVAL", "return redis.call(unpack(ARGV))", "0"];

/// A command, in a script in a tenth of all cases.
fn perhaps_in_script(rng: &mut fastrand::Rng, words: Vec<String>) -> Vec<String> {
    match rng.u8(..10) {
        0 => SCRIPT.map(str::to_string).into_iter().chain(words).collect(),
        _ => words,
    }
}

/// The command itself, or the command that the script runs.
fn without_script(words: &[String]) -> &[String] {
    if words[0] == SCRIPT[0] { &words[SCRIPT.len()..] } else { words }
}

/// A command, behind a TYPE of its key if the order of the reply depends on the type.
fn asked(words: Vec<String>) -> Vec<Vec<String>> {
    match is_unsorted(&words) {
        true => vec![vec!["TYPE".to_string(), without_script(&words)[1].clone()], words],
        false => vec![words],
    }
}

/// `kind`: the reply to TYPE for the command's key just before, if sent.
fn is_unordered(words: &[String], kind: &Said) -> bool {
    let is_of_set = is_unsorted(words) && *kind == Said::Line("+set".to_string());
    UNORDERED.contains(&words[0].as_str()) || is_of_set
}

/// Whether the order of the reply is the order of the value; a set has no order.
fn is_unsorted(words: &[String]) -> bool {
    words.iter().any(|word| word == "nosort")
}

/// The comparable form of the reply to a command.
fn comparable(words: &[String], kind: &Said, said: Said) -> Said {
    match said {
        Said::Array(Some(mut all)) if is_unordered(words, kind) => {
            if words[0] == "HGETALL" {
                let pairs = all.chunks(2).map(|pair| Said::Array(Some(pair.to_vec())));
                all = pairs.collect();
            }
            all.sort();
            Said::Array(Some(all))
        }
        Said::Array(Some(all)) if stream_commands::tells_consumers(words, all.len()) => {
            let at = all.iter().position(|said| *said == Said::Bulk(Some(b"consumers".to_vec())));
            let stays = |place: &usize| Some(*place) != at.map(|at| at + 1);
            let kept = all.into_iter().enumerate().filter(|(place, _)| stays(place));
            Said::Array(Some(kept.map(|(_, said)| said).collect()))
        }
        Said::Array(Some(all)) => Said::Array(Some(
            all.into_iter().map(|element| comparable(words, kind, element)).collect(),
        )),
        // From Redis 7.2 on a consumer exists once named, as here.
        Said::Line(line) if stream_commands::is_new_consumer(words) && line.starts_with(':') => {
            Said::Line(":".to_string())
        }
        // A score of -0 is 0 here.
        Said::Bulk(Some(text)) if words[0].starts_with('Z') && text == b"-0" => {
            Said::Bulk(Some(b"0".to_vec()))
        }
        said => said,
    }
}

/// Commands with a possible fault in an argument and in the type of a key at once: Redis reports
/// the key, and this server the argument.
const TWO_ERRORS: &[&str] = &["ZINTERCARD", "ZUNION"];

fn is_one_of_two_errors(words: &[String], ours: &Said, theirs: &Said) -> bool {
    let is_error =
        |reply: &Said, begin| matches!(reply, Said::Line(line) if line.starts_with(begin));
    let is_declared = TWO_ERRORS.contains(&words[0].as_str());
    is_declared && is_error(ours, "-ERR ") && is_error(theirs, "-WRONGTYPE ")
}

#[test]
#[ignore = "needs redis-server"]
fn replies_are_those_of_redis() {
    compare_replies(TEMPLATES);
}

#[test]
#[ignore = "needs redis-server"]
fn replies_on_streams_are_those_of_redis() {
    compare_replies(stream_commands::TEMPLATES);
}

fn compare_replies(templates: &'static str) {
    let (count, seed) = (number("HYADES_COMMANDS", 100_000), number("HYADES_SEED", 1));
    let members = number("HYADES_MEMBERS", 12) as u32;
    let mut pair = Pair::start(&[]);
    let (ours, theirs) = (&mut pair.ours, &mut pair.theirs);
    let mut rng = fastrand::Rng::with_seed(seed);
    let templates: Vec<&str> = templates.split('|').collect();
    let (mut done, mut earlier, mut is_in_blocks) = (0, Vec::new(), false);
    while done < count {
        if done >= count / 2 && !is_in_blocks {
            ours.send(&[IN_BLOCKS.split(' ').map(str::to_string).collect()]);
            assert_eq!(ours.read(), Said::Line("+OK".to_string()));
            is_in_blocks = true;
        }
        let next = |_| {
            let words = command(&mut rng, &templates, members);
            asked(perhaps_in_script(&mut rng, words))
        };
        let commands: Vec<_> = (0..50).flat_map(next).collect();
        ours.send(&commands);
        theirs.send(&commands);
        let mut kind = Said::Array(None);
        for (at, words) in commands.iter().enumerate() {
            let (a, b) = (ours.read(), theirs.read());
            let words = without_script(words);
            let (a, b) = (comparable(words, &kind, a), comparable(words, &kind, b));
            kind = a.clone();
            if is_one_of_two_errors(words, &a, &b) {
                done += 1;
                continue;
            }
            if a != b {
                let before = earlier.iter().chain(&commands[..at]);
                let touches =
                    |command: &&Vec<String>| command.iter().skip(1).any(|w| words.contains(w));
                let before: Vec<_> = before.rev().filter(touches).take(30).collect();
                assert_eq!(a, b, "seed {seed}, command {done}: {words:?} after {before:#?}");
            }
            done += 1;
        }
        earlier = [&earlier[earlier.len().saturating_sub(2_000)..], &commands].concat();
    }
    pair.stop();
}

/// Fills a key with a value of a type and a size: with elements of this length.
fn fill(client: &mut Client, kind: &str, count: usize, length: usize) {
    let element = |at: usize| match length {
        0 => (at as i64 * 77 - 400).pow(1 + at as u32 % 4).to_string(),
        length => format!("{at}:{}", "ab".repeat(length)),
    };
    assert!(matches!(client.ask_text("DEL key"), Said::Line(_)));
    let command = |at: usize| {
        let (one, other) = (element(at), element(at + 1));
        let id = format!("{}-{}", at / 3, 1 + at % 3);
        let score = [at.to_string(), format!("-{at}.25"), "0.125".into(), "-inf".into()];
        let words: Vec<&str> = match kind {
            "string" => vec!["APPEND", "key", &one],
            "list" => vec!["RPUSH", "key", &one],
            "set" => vec!["SADD", "key", &one],
            "hash" => vec!["HSET", "key", &one, &other],
            "stream" => vec!["XADD", "key", &id, &other, &one, "field", &other],
            _ => vec!["ZADD", "key", &score[at % 4], &one],
        };
        words.into_iter().map(str::to_string).collect()
    };
    client.send(&(0..count).map(command).collect::<Vec<Vec<String>>>());
    for _ in 0..count {
        let is_added = |said| match said {
            Said::Line(line) => line.starts_with(':'),
            said => kind == "stream" && matches!(said, Said::Bulk(_)),
        };
        assert!(is_added(client.read()));
    }
    if kind == "stream" {
        stream_commands::FILLED_TOO.split('|').for_each(|line| drop(client.ask_text(line)));
    }
}

/// The reply of XINFO about the groups of a stream, and the owners of pending entries.
fn groups(client: &mut Client, key: &str) -> Said {
    let words = ["XINFO", "GROUPS", key].map(str::to_string);
    let groups = comparable(&words, &Said::Array(None), client.ask_text(&words.join(" ")));
    Said::Array(Some(vec![groups, client.ask_text(&format!("XPENDING {key} all"))]))
}

/// The value of a key, in a fixed order.
fn content(client: &mut Client, kind: &str, key: &str) -> Said {
    let command = match kind {
        "string" => "GET",
        "list" => "LRANGE",
        "set" => "SMEMBERS",
        "hash" => "HGETALL",
        "stream" => "XRANGE",
        _ => "ZRANGE",
    };
    let range = match kind {
        "list" => " 0 -1",
        "zset" => " 0 -1 WITHSCORES",
        "stream" => " - +",
        _ => "",
    };
    let said = client.ask_text(&format!("{command} {key}{range}"));
    let said = comparable(&[command.to_string()], &Said::Array(None), said);
    if kind == "stream" { Said::Array(Some(vec![said, groups(client, key)])) } else { said }
}

fn dumped(client: &mut Client, key: &str) -> Vec<u8> {
    match client.ask_text(&format!("DUMP {key}")) {
        Said::Bulk(Some(payload)) => payload,
        said => panic!("{said:?}"),
    }
}

/// A payload of DUMP here is restored there, where Redis checks the whole payload, and the other
/// way round.
#[test]
#[ignore = "needs redis-server"]
fn values_move_to_redis_and_back() {
    let mut pair = Pair::start(&["--sanitize-dump-payload", "yes"]);
    let (ours, theirs) = (&mut pair.ours, &mut pair.theirs);
    let restored = |client: &mut Client, payload: &[u8]| {
        let said = client.ask(&[b"RESTORE", b"copy", b"0", payload, b"REPLACE"]);
        assert_eq!(said, Said::Line("+OK".to_string()));
    };
    for in_blocks in [false, true] {
        if in_blocks {
            assert_eq!(ours.ask_text(IN_BLOCKS), Said::Line("+OK".to_string()));
            // Redis writes its other encodings.
            let text = "CONFIG SET hash-max-listpack-entries 0 set-max-intset-entries 0 \
                zset-max-listpack-entries 0 list-max-listpack-size 3 rdbcompression no";
            assert_eq!(theirs.ask_text(text), Said::Line("+OK".to_string()));
        }
        for kind in ["string", "list", "set", "hash", "zset", "stream"] {
            for (count, length) in [
                (1, 0),
                (2, 0),
                (7, 0),
                (128, 0),
                (129, 0),
                (512, 0),
                (700, 0),
                (1, 5),
                (5, 20),
                (128, 9),
                (129, 10),
                (40, 40),
                (300, 90),
                (3, 3_000),
                (5, 40_000),
                (2_000, 4),
            ] {
                fill(ours, kind, count, length);
                fill(theirs, kind, count, length);
                let said = content(ours, kind, "key");
                assert_eq!(content(theirs, kind, "key"), said, "{kind} {count} {length}");
                let (here, there) = (dumped(ours, "key"), dumped(theirs, "key"));
                restored(theirs, &here);
                restored(ours, &there);
                assert_eq!(content(theirs, kind, "copy"), said, "{kind} {count} {length}");
                assert_eq!(content(ours, kind, "copy"), said, "{kind} {count} {length}");
                restored(ours, &here);
                assert_eq!(content(ours, kind, "copy"), said, "{kind} {count} {length}");
            }
        }
    }
    pair.stop();
}
