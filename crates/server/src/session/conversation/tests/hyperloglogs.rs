//! Transcripts of commands on HyperLogLogs.

use super::*;

const NONE: &str = "-WRONGTYPE Key is not a valid HyperLogLog string value.";
const CORRUPT: &str = "-INVALIDOBJ Corrupted HLL object detected";

#[test]
fn elements_are_counted() {
    transcript(&[
        ("PFADD h a b c", ":1"),
        ("PFADD h a", ":0"),
        ("PFCOUNT h", ":3"),
        ("PFADD other c d", ":1"),
        ("PFCOUNT h other none", ":4"),
        ("PFMERGE both h other", "+OK"),
        ("PFCOUNT both", ":4"),
        ("PFMERGE both", "+OK"),
        ("TYPE h", "+string"),
        ("OBJECT ENCODING h", "$3 raw"),
        ("STRLEN h", ":27"),
        ("PFCOUNT none", ":0"),
        ("PFADD empty", ":1"),
        ("PFADD empty", ":0"),
        ("PFCOUNT empty", ":0"),
        ("PFSELFTEST", "+OK"),
        ("LPUSH l a", ":1"),
        ("PFADD l a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("PFCOUNT h l", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]);
}

#[test]
fn registers_are_shown() {
    transcript(&[
        ("PFDEBUG ENCODING none", "-ERR The specified key does not exist"),
        ("PFADD h a", ":1"),
        ("PFDEBUG DECODE h", "$20 Z:12711 v:2,1 Z:3672"),
        ("PFDEBUG encoding h", "+sparse"),
        ("PFDEBUG NONE h", "-ERR Unknown PFDEBUG subcommand 'NONE'"),
        ("PFDEBUG TODENSE h", ":1"),
        ("PFDEBUG TODENSE h", ":0"),
        ("PFDEBUG ENCODING h", "+dense"),
        ("PFDEBUG DECODE h", "-ERR HLL encoding is not sparse"),
        ("PFCOUNT h", ":1"),
        ("STRLEN h", ":12304"),
    ]);
}

#[test]
fn strings_that_are_no_hyperloglogs_are_refused() {
    transcript(&[
        ("SET a HYLL", "+OK"),
        ("PFADD a x", NONE),
        ("PFCOUNT a", NONE),
        ("PFMERGE b a", NONE),
        ("PFADD h a", ":1"),
        ("SETRANGE h 4 x", ":21"),
        ("PFADD h a", NONE),
        ("PFADD g a", ":1"),
        ("APPEND g hello", ":26"),
        ("PFCOUNT g", CORRUPT),
        ("PFCOUNT g b", CORRUPT),
        ("PFMERGE b g", CORRUPT),
        ("PFDEBUG GETREG g", CORRUPT),
    ]);
}

/// `hll-sparse-max-bytes` holds for elements added from then on.
#[test]
fn how_long_they_are_sparse_is_a_setting() {
    transcript(&[
        ("CONFIG SET hll-sparse-max-bytes 20", "+OK"),
        ("PFADD h a", ":1"),
        ("PFDEBUG ENCODING h", "+dense"),
        ("CONFIG SET hll-sparse-max-bytes 21", "+OK"),
        ("PFADD g a", ":1"),
        ("PFDEBUG ENCODING g", "+sparse"),
        ("PFADD g b", ":1"),
        ("PFDEBUG ENCODING g", "+dense"),
        ("PFMERGE g h", "+OK"),
        ("PFCOUNT g", ":2"),
    ]);
}

/// PFCOUNT keeps the estimate with its key, which is a write: read-only scripts may not.
#[test]
fn an_estimate_is_written() {
    let refused = "-ERR Write commands are not allowed from read-only scripts.";
    let mut house = House::new(false);
    let mut c = house.client();
    let mut say = |line: &[u8]| house.say(&mut c, line);
    assert_eq!(say(b"PFADD h a\r\nWATCH h\r\nMULTI\r\nPFCOUNT h\r\n"), ":1 +OK +OK +QUEUED ");
    assert_eq!(say(b"EXEC\r\nWATCH h\r\nPFCOUNT h\r\nMULTI\r\nEXEC\r\n"), "*1 :1 +OK :1 +OK *0 ");
    let script = b"EVAL_RO \"return redis.call('PFCOUNT', KEYS[1])\" 1 h\r\n";
    assert!(say(script).starts_with(refused), "{}", say(script));
}
