//! DUMP and RESTORE, and commands for operators.

use super::*;
use crate::rdb;
use std::sync::atomic::Ordering::Relaxed;

/// A payload for an inline command.
fn quoted(payload: &[u8]) -> String {
    payload.iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

/// The payload in the reply to DUMP.
pub(super) fn dumped(house: &mut House, client: &mut Conversation, key: &str) -> Vec<u8> {
    let said = house.replies(client, format!("DUMP {key}\r\n").as_bytes());
    let begin = said.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    said[begin..said.len() - 2].to_vec()
}

#[test]
fn restore_looks_at_its_options_the_key_and_the_payload() {
    let (mut house, seven) = (House::new(false), quoted(&rdb::string(b"7")));
    let mut client = house.client();
    let broken = seven.replacen("07", "08", 1);
    for (line, expected) in [
        (format!("RESTORE a 0 \"{seven}\""), "+OK"),
        ("GET a".into(), "$1 7"),
        ("TTL a".into(), ":-1"),
        (format!("RESTORE a 0 \"{seven}\""), "-BUSYKEY Target key name already exists."),
        (format!("RESTORE a 100000 \"{seven}\" REPLACE IDLETIME 3"), "+OK"),
        ("TTL a".into(), ":100"),
        (format!("RESTORE a 9999999999000 \"{seven}\" REPLACE ABSTTL FREQ 255"), "+OK"),
        ("EXPIRETIME a".into(), ":9999999999"),
        (format!("RESTORE a 5 \"{seven}\" ABSTTL REPLACE"), "+OK"),
        ("EXISTS a".into(), ":0"),
        (format!("RESTORE a -1 \"{seven}\""), "-ERR Invalid TTL value, must be >= 0"),
        (format!("RESTORE a x \"{seven}\""), "-ERR value is not an integer or out of range"),
        (format!("RESTORE a 0 \"{seven}\" NEVER"), "-ERR syntax error"),
        (format!("RESTORE a 0 \"{seven}\" FREQ 1 IDLETIME 1"), "-ERR syntax error"),
        (
            format!("RESTORE a 0 \"{seven}\" FREQ 256"),
            "-ERR Invalid FREQ value, must be >= 0 and <= 255",
        ),
        (format!("RESTORE a 0 \"{broken}\""), "-ERR DUMP payload version or checksum are wrong"),
        ("RESTORE a 0 \"\"".into(), "-ERR DUMP payload version or checksum are wrong"),
        ("DUMP a".into(), "$-1"),
    ] {
        let said = house.say(&mut client, format!("{line}\r\n").as_bytes());
        assert_eq!(said.trim_end(), expected, "{line}");
    }
}

/// Each type, packed and in blocks, over an older value in either form.
#[test]
fn values_of_both_forms_are_restored() {
    let mut house = House::new(false);
    let mut client = house.client();
    for count in [3, 700] {
        let members = |line: &dyn Fn(usize) -> String| -> String { (0..count).map(line).collect() };
        house.say(&mut client, b"FLUSHALL\r\n");
        let lines = [
            members(&|at| format!("RPUSH list {at}:element\r\n")),
            members(&|at| format!("SADD set member{at}\r\n")),
            members(&|at| format!("SADD integers {}\r\n", at * at)),
            members(&|at| format!("HSET hash field{at} value{at}\r\n")),
            members(&|at| format!("ZADD zset {}.5 member{at}\r\n", at % 50)),
            format!("SET string {}\r\n", "a".repeat(count)),
        ];
        house.say(&mut client, lines.concat().as_bytes());
        for (key, read) in [
            ("list", "LRANGE % 0 -1"),
            ("set", "SORT % ALPHA"),
            ("integers", "SORT %"),
            ("hash", "HGETALL %"),
            ("zset", "ZRANGE % 0 -1 WITHSCORES"),
            ("string", "GET %"),
        ] {
            let payload = dumped(&mut house, &mut client, key);
            let head =
                format!("*5\r\n$7\r\nRESTORE\r\n$4\r\ncopy\r\n$1\r\n0\r\n${}\r\n", payload.len());
            let restore = [head.as_bytes(), &payload, b"\r\n$7\r\nREPLACE\r\n"].concat();
            assert_eq!(house.say(&mut client, &restore), "+OK ", "{key}");
            let mut ask = |key: &str| {
                let line = read.replace('%', key) + "\r\n";
                let said = house.say(&mut client, line.as_bytes());
                let mut words: Vec<_> = said.split(' ').map(str::to_string).collect();
                // The order of a hash follows its secret.
                if read.starts_with("HGETALL") {
                    words.sort();
                }
                words
            };
            assert_eq!(ask("copy"), ask(key), "{key} {count}");
        }
    }
}

/// A short payload may hold much: no event loop reads such a payload.
#[test]
fn what_holds_much_is_restored_by_a_job() {
    let mut house = House::new(false);
    let mut client = house.client();
    for (count, jobs) in [(10_000, 0), (300_000, 1)] {
        let payload = rdb::list(&vec![&b"0"[..]; count]);
        assert!(payload.len() < 64 << 10, "{}", payload.len());
        // The value expires at once, so that nothing is written.
        let head = format!("*5\r\n$7\r\nRESTORE\r\n$1\r\nl\r\n$1\r\n1\r\n${}\r\n", payload.len());
        let restore = [head.as_bytes(), &payload, b"\r\n$6\r\nABSTTL\r\n"].concat();
        assert_eq!(house.say(&mut client, &restore), "+OK ");
        assert_eq!(house.shared.stats.counters.large.load(Relaxed), jobs, "{count} elements");
    }
}

/// The longest string that a transaction can read and write once: here 64 MiB.
#[test]
fn a_long_string_is_restored() {
    let mut house = House::new(false);
    let mut client = house.client();
    let mut random = fastrand::Rng::with_seed(1);
    let text: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(48 << 20).collect();
    let payload = rdb::string(&text);
    let length = payload.len();
    let head = format!("*4\r\n$7\r\nRESTORE\r\n$1\r\ns\r\n$1\r\n0\r\n${length}\r\n");
    let said = house.say(&mut client, &[head.as_bytes(), &payload, b"\r\n"].concat());
    assert_eq!(said, "+OK ");
    let said = house.replies(&mut client, b"GET s\r\n");
    assert!(said[b"$50331648\r\n".len()..][..text.len()] == text);
}

#[test]
fn what_operators_ask() {
    transcript(&[
        ("LATENCY LATEST", "*0"),
        ("LATENCY HISTORY command", "*0"),
        ("LATENCY RESET", ":0"),
        ("LATENCY GRAPH x", "-ERR No samples available for event 'x'"),
        ("LATENCY HISTOGRAM set none", "*0"),
        ("BGREWRITEAOF", "+Background append only file rewriting started"),
        ("MEMORY PURGE", "-ERR MEMORY PURGE is not built: see MEMORY STATS"),
        ("WAITAOF 1 0 0", "*2 :1 :0"),
        ("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1"),
        ("WAITAOF 0 -1 0", "-ERR value is out of range, must be positive"),
        ("WAITAOF 0 0 -1", "-ERR timeout is negative"),
    ]);
}

/// WAITAOF tells of earlier writes, so the reply is held back with them.
#[test]
fn waitaof_waits_for_what_was_written() {
    let mut house = House::new(true);
    let mut client = house.client();
    client.feed(b"SET a 1\r\nWAITAOF 1 0 0\r\n");
    house.run(&mut client, 0);
    assert_eq!(client.output(), b"");
    house.write_log();
    house.queue.drain(|(_, mark)| client.acknowledged(mark)).unwrap();
    assert_eq!(client.output(), b"+OK\r\n*2\r\n:1\r\n:0\r\n");
}

/// A stream in the format of Redis 7.2: behind the time at which a consumer was seen stands the
/// time of the consumer's last delivery, -1 without deliveries.
#[test]
fn a_stream_of_redis_7_2_keeps_when_its_consumers_were_active() {
    let mut house = House::new(false);
    let mut client = house.client();
    let id = |seq| crate::base::stream_id::StreamId { ms: 5, seq };
    let pending = rdb::PendingImage { consumer: 0, time: 1_700_000_000_000, count: 3 };
    let consumer = |name: &str, seen| rdb::ConsumerImage { name: name.into(), seen, active: None };
    let group = rdb::GroupImage {
        name: b"group".to_vec(),
        last: id(1),
        read: Some(1),
        consumers: vec![consumer("busy", 1_700_000_000_123), consumer("lazy", 1_700_000_000_456)],
        pending: [(id(1), pending)].into(),
    };
    let strings = |value: &str| vec![b"field".to_vec(), value.into()];
    let image = rdb::StreamImage {
        entries: vec![(id(1), strings("one")), (id(2), strings("two"))],
        last: id(2),
        added: 2,
        groups: vec![group],
        ..rdb::StreamImage::default()
    };
    let mut payload = rdb::stream(&image);
    payload.truncate(payload.len() - 10);
    assert_eq!(std::mem::replace(&mut payload[0], 21), 19);
    let times: [(&str, i64, i64); 2] =
        [("busy", 1_700_000_000_123, 1_700_000_000_100), ("lazy", 1_700_000_000_456, -1)];
    for (name, seen, active) in times {
        let known = [name.as_bytes(), &seen.to_le_bytes()].concat();
        let at = payload.windows(known.len()).position(|part| part == known).unwrap();
        let behind = at + known.len();
        payload.splice(behind..behind, active.to_le_bytes());
    }
    payload.extend(11u16.to_le_bytes());
    payload.extend(rdb::crc64(&payload).to_le_bytes());
    let line = format!("RESTORE s 0 \"{}\"\r\n", quoted(&payload));
    assert_eq!(house.say(&mut client, line.as_bytes()), "+OK ");
    for (line, expected) in [
        ("XRANGE s - +", "*2 *2 $3 5-1 *2 $5 field $3 one *2 $3 5-2 *2 $5 field $3 two "),
        ("XPENDING s group", "*4 :1 $3 5-1 $3 5-1 *1 *2 $4 busy $1 1 "),
        ("XREADGROUP GROUP group busy STREAMS s 0", "*1 *2 $1 s *1 *2 $3 5-1 *2 $5 field $3 one "),
    ] {
        assert_eq!(house.say(&mut client, format!("{line}\r\n").as_bytes()), expected, "{line}");
    }
    let line = format!("RESTORE t 0 \"{}\"\r\n", quoted(&payload));
    assert_eq!(house.say(&mut client, line.as_bytes()), "+OK ");
    let now = house.shared.clock.now_ms();
    let said = house.say(&mut client, b"XINFO CONSUMERS t group\r\n");
    let number = |name: &str, word: &str| {
        let of_consumer = said.split(name).nth(1).unwrap();
        let text = of_consumer.split(word).nth(1).unwrap().split(':').nth(1).unwrap();
        text.split(' ').next().unwrap().parse::<i64>().unwrap()
    };
    for (name, seen, active) in times {
        let idle = number(name, "$4 idle") - (now - seen);
        assert!((0..1_000).contains(&idle), "{name}: {said}");
        let inactive = number(name, "inactive");
        let is_right = match active {
            -1 => inactive == -1,
            active => (0..1_000).contains(&(inactive - (now - active))),
        };
        assert!(is_right, "{name}: {said}");
    }
}
