//! Bytes of the log for commands.

use super::large_strings::bytes;
use super::*;
use crate::data::chunks::CHUNK_BYTES;

/// The bytes logged by a command, after its reply.
fn logged(house: &mut House, client: &mut Conversation, command: &str) -> u64 {
    let bytes = |house: &House| {
        let database = &house.shared.store.opened.cloned().database;
        database.log().unwrap().flush().unwrap();
        database.stats().log_bytes
    };
    let begin = bytes(house);
    house.say(client, command.as_bytes());
    bytes(house) - begin
}

/// A string of 10 MiB: whatever its length, a change logs only the changed bytes.
#[test]
fn a_change_of_a_string_in_chunks_takes_few_bytes_of_the_log() {
    let mut house = House::new(false);
    let mut client = house.client();
    let value = bytes(10 << 20, 1);
    let head = format!("*3\r\n$3\r\nSET\r\n$4\r\ntext\r\n${}\r\n", value.len());
    house.say(&mut client, &[head.as_bytes(), &value, b"\r\n"].concat());
    // The text begins the last chunk, which has little room left.
    house.say(&mut client, format!("APPEND text {}\r\n", "x".repeat(50_000)).as_bytes());
    let boundary = 100 * CHUNK_BYTES - 5;
    for (command, most) in [
        ("APPEND text 0123456789\r\n", 130),
        ("SETRANGE text 5000000 0123456789\r\n", 90),
        (&format!("SETRANGE text {boundary} 0123456789\r\n")[..], 150),
        ("SETBIT text 41943041 1\r\nSETBIT text 41943041 0\r\n", 150),
        ("BITFIELD text SET u32 31000000 7\r\n", 90),
        ("EXPIRE text 1000\r\n", 90),
        ("COPY none text\r\n", 60),
        ("RENAME text other\r\n", 130),
        ("DEL other\r\n", 90),
    ] {
        let bytes = logged(&mut house, &mut client, command);
        eprintln!("{bytes:5} {}", command.trim_end());
        assert!(bytes <= most, "{command:?} logs {bytes} bytes, {most} at most");
    }
}

/// Commands on values of 2 KiB, packed and in blocks: the most bytes logged.
#[test]
fn a_change_of_a_long_value_takes_few_bytes_of_the_log() {
    let mut house = House::new(false);
    let mut client = house.client();
    let long: String = (0..2_000).map(|n| char::from(b'a' + (n * n / 7 % 26) as u8)).collect();
    for n in 0..3_000 {
        let all = format!(
            "HSET large field:{n} value:{n}\r\nSADD members member:{n}\r\n\
             ZADD scores {n} member:{n}\r\nRPUSH list element:{n}\r\n"
        );
        house.say(&mut client, all.as_bytes());
    }
    for n in 0..60 {
        house.say(&mut client, format!("HSET small field:{n} value:{n}\r\n").as_bytes());
    }
    house.say(&mut client, format!("SET text {long}\r\n").as_bytes());
    // Members in the order of their scores have left full blocks: the new members cut the blocks.
    house.say(&mut client, b"ZADD scores 1000 before 2200 before-too\r\n");
    for (command, most) in [
        ("HSET large field:1000 another\r\n", 90),
        ("HSET large one-more another\r\n", 90),
        ("HDEL large field:1001\r\n", 90),
        ("HINCRBY large count-one-more 1\r\n", 90),
        ("HSET small field:30 another\r\n", 90),
        ("SADD members one-more\r\n", 90),
        ("SREM members member:77\r\n", 90),
        ("ZADD scores 1000 one-more\r\n", 130),
        ("ZINCRBY scores 700 member:1500\r\n", 150),
        ("RPUSH list one-more\r\n", 90),
        ("LPUSH list one-more\r\n", 90),
        ("LPOP list\r\n", 90),
        ("LSET list 1500 another\r\n", 90),
        ("APPEND text more\r\n", 90),
        ("SETRANGE text 1000 more\r\n", 90),
        ("SETBIT text 9000 1\r\n", 90),
    ] {
        // A new element may find a full block, which is cut in two, and the vector of a record has
        // the streams in which other threads have written meanwhile: most of several records do
        // not. A command without a change the second time logs nothing.
        let each = (0..3).map(|n| {
            let command = command.replace("one-more", &format!("one-more-{n}"));
            logged(&mut house, &mut client, &command)
        });
        let bytes = each.filter(|bytes| *bytes > 0).min().unwrap_or(0);
        eprintln!("{bytes:5} {}", command.trim_end());
        assert!(bytes > 0 && bytes <= most, "{command:?} logs {bytes} bytes, {most} at most");
    }
}
