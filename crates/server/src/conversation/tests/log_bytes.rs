//! What commands take of the log.

use super::*;

/// What a command has logged, when it was answered. It is run once before.
fn logged(house: &mut House, client: &mut Conversation, before: &str, command: &str) -> u64 {
    house.say(client, before.as_bytes());
    let bytes = |house: &House| {
        let database = &house.shared.opened.get().unwrap().database;
        database.log().unwrap().flush().unwrap();
        database.stats().log_bytes
    };
    let begin = bytes(house);
    house.say(client, command.as_bytes());
    bytes(house) - begin
}

/// Commands on values of 2 KiB, packed and in blocks: the most bytes that they may log.
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
    for (command, most) in [
        ("HSET large field:1000 another\r\n", 110),
        ("HSET large one-more another\r\n", 110),
        ("HDEL large field:1001\r\n", 100),
        ("HINCRBY large counter 1\r\n", 110),
        ("HSET small field:30 another\r\n", 90),
        ("SADD members one-more\r\n", 100),
        ("SREM members member:77\r\n", 90),
        ("ZADD scores 1000 another\r\n", 190),
        ("ZINCRBY scores 700 member:1500\r\n", 260),
        ("RPUSH list one-more\r\n", 110),
        ("LPUSH list one-more\r\n", 110),
        ("LPOP list\r\n", 110),
        ("LSET list 1500 another\r\n", 110),
        ("APPEND text more\r\n", 90),
        ("SETRANGE text 1000 more\r\n", 90),
        ("SETBIT text 9000 1\r\n", 90),
    ] {
        let bytes = logged(&mut house, &mut client, "PING\r\n", command);
        eprintln!("{bytes:5} {}", command.trim_end());
        assert!(bytes > 0 && bytes <= most, "{command:?} logs {bytes} bytes, {most} at most");
    }
}
