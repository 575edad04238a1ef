//! Random commands for streams, for the test that compares replies with `redis-server`.

fn pick<'a>(rng: &mut fastrand::Rng, choices: &[&'a str]) -> &'a str {
    choices[rng.usize(..choices.len())]
}

/// Commands for streams. Further letters in braces: e a key that mostly holds a stream; d an id, f
/// the id of a new entry, u an id above all others, a and w the ends of a range, g a group, q a
/// consumer, k a count. (Redis 7.0 lets XSETID go below deleted ids.)
pub const TEMPLATES: &str = "\
    XADD {e} {f} {m} {v}|XADD {e} {f} f {v} g {m}|XADD {e} {f} f {v} g {v}|\
    XADD {e} NOMKSTREAM {f} f {v}|XADD {e} MAXLEN {k} {f} f {v}|XADD {e} MINID {d} {f} f {v}|\
    XADD {e} MAXLEN = {k} {f} f {v} g {m}|XLEN {e}|XRANGE {e} {a} {w}|XRANGE {e} - + COUNT {k}|\
    XREVRANGE {e} {w} {a}|XREVRANGE {e} + - COUNT {k}|XDEL {e} {d} {d}|XDEL {e} {d}|\
    XTRIM {e} MAXLEN {k}|XTRIM {e} MINID {d}|XTRIM {e} MAXLEN {i}|XSETID {e} {u}|\
    XSETID {e} {u} ENTRIESADDED {n} MAXDELETEDID {d}|XREAD COUNT {k} STREAMS {e} {e} {d} {d}|\
    XREAD STREAMS {e} $|XREAD STREAMS {e} {d}|XINFO GROUPS {e}|DEL {e}|DEL {e} {e}|\
    COPY {e} {e} REPLACE|\
    RENAME {e} {e}|TYPE {e}|OBJECT ENCODING {e}|XGROUP CREATE {e} {g} {d}|\
    XGROUP CREATE {e} {g} $ MKSTREAM|XGROUP CREATE {e} {g} 0 ENTRIESREAD {n}|\
    XGROUP SETID {e} {g} {d}|XGROUP SETID {e} {g} $ ENTRIESREAD {n}|XGROUP DESTROY {e} {g}|\
    XGROUP CREATECONSUMER {e} {g} {q}|XGROUP DELCONSUMER {e} {g} {q}|\
    XREADGROUP GROUP {g} {q} COUNT {k} STREAMS {e} >|XREADGROUP GROUP {g} {q} STREAMS {e} >|\
    XREADGROUP GROUP {g} {q} COUNT {k} NOACK STREAMS {e} >|\
    XREADGROUP GROUP {g} {q} COUNT {k} STREAMS {e} {d}|\
    XREADGROUP GROUP {g} {q} STREAMS {e} {e} > 0|XACK {e} {g} {d} {d} {d}|XPENDING {e} {g}|\
    XCLAIM {e} {g} {q} 0 {d} {d} JUSTID|XCLAIM {e} {g} {q} 0 {d} {d}|\
    XCLAIM {e} {g} {q} 0 {d} FORCE|XCLAIM {e} {g} {q} 0 {d} RETRYCOUNT {n} LASTID {d}|\
    XCLAIM {e} {g} {q} 100000 {d}|XAUTOCLAIM {e} {g} {q} 0 {a} COUNT {n}|\
    XAUTOCLAIM {e} {g} {q} 0 0 JUSTID|XAUTOCLAIM {e} {g} {q} 100000 {d}|XPENDING {e} {g} {a}|\
    XADD {e} {f} f|XRANGE {e} {v} +|EXISTS {e}|XPENDING {e} {g} - + 0|SET {e} {v}|LLEN {e}";

/// Commands for a stream beside adding entries.
pub const FILLED_TOO: &str = "XDEL key 0-2 1-1|XGROUP CREATE key all 0|XGROUP CREATE key none $|\
    XREADGROUP GROUP all alice COUNT 3 STREAMS key >|XREADGROUP GROUP all bob STREAMS key >|\
    XACK key all 0-1|XSETID key 9999-1";

/// Whether the reply tells whether the consumer existed before.
pub fn is_new_consumer(words: &[String]) -> bool {
    words[0] == "XGROUP" && words[1] == "CREATECONSUMER"
}

/// Whether an array of this length is the description of a group in XINFO GROUPS.
pub fn tells_consumers(words: &[String], length: usize) -> bool {
    words[0] == "XINFO" && words[1] == "GROUPS" && length == 12
}

/// The text for a name in braces, if the name belongs to streams.
pub fn filled(rng: &mut fastrand::Rng, what: &str, members: u32) -> Option<String> {
    Some(match what {
        "e" => match rng.u8(..40) {
            0 => pick(rng, &["s0", "l0", "none"]).to_string(),
            _ => format!("e{}", rng.u8(..3)),
        },
        "d" => match rng.u8(..) {
            0..2 => "x".to_string(),
            2 => "18446744073709551615-18446744073709551615".to_string(),
            n if n < 64 => rng.u32(..2 * members).to_string(),
            _ => format!("{}-{}", rng.u32(..2 * members), rng.u8(..3)),
        },
        "f" => match rng.u8(..20) {
            0 => filled(rng, "d", members)?,
            n => {
                // Low ids, so that there are more ids above.
                let ms = (0..4).map(|_| rng.u32(..2 * members)).min()?;
                let seq = if n < 5 { "*".to_string() } else { rng.u8(..3).to_string() };
                format!("{ms}-{seq}")
            }
        },
        "u" => format!("{}-1", 2 * members + rng.u32(..9)),
        "a" | "w" => match rng.u8(..8) {
            0 | 1 => (if what == "a" { "-" } else { "+" }).to_string(),
            2 | 3 => format!("({}", filled(rng, "d", members)?),
            _ => filled(rng, "d", members)?,
        },
        "g" => pick(rng, &["g", "h"]).to_string(),
        "q" => pick(rng, &["alice", "bob", "carol"]).to_string(),
        "k" => match rng.u8(..10) {
            0 => "-1".to_string(),
            _ => rng.u32(..members).to_string(),
        },
        _ => return None,
    })
}
