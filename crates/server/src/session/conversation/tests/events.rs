//! Keyspace events, in Redis's words.

use super::*;

/// The events of some commands, as a subscriber of all events hears them, as `EVENT KEY`.
fn heard(classes: &str, commands: &[&str]) -> Vec<String> {
    let mut house = House::new(false);
    let (mut listens, mut says) = (house.client(), house.client());
    house.say(&mut says, format!("CONFIG SET notify-keyspace-events {classes}\r\n").as_bytes());
    house.say(&mut listens, b"PSUBSCRIBE __keyevent@*\r\n");
    for command in commands {
        house.say(&mut says, format!("{command}\r\n").as_bytes());
    }
    let said = house.say(&mut listens, b"");
    let words: Vec<&str> = said.split(' ').collect();
    // *4 $8 pmessage $N pattern $N channel $N key
    let event =
        |message: &[&str]| format!("{} {}", message[6].split("__:").nth(1).unwrap(), message[8]);
    words.chunks_exact(9).map(event).collect()
}

/// The commands, and the events of the last command.
const EVENTS: &[(&[&str], &[&str])] = &[
    (&["SET a 1"], &["set a"]),
    (&["SET a 1 EX 10"], &["set a", "expire a"]),
    (&["SETEX a 10 1"], &["set a", "expire a"]),
    (&["MSET a 1 b 2"], &["set a", "set b"]),
    (&["SET a 1 EX 10", "SET a 2 KEEPTTL"], &["set a"]),
    (&["SETEX a 10 KEEPTTL"], &["set a", "expire a"]),
    (&["SET a KEEPTTL", "SET a 1 IFEQ KEEPTTL EX 9"], &["set a", "expire a"]),
    (&["SET a 1", "SET a 2 IFEQ 3"], &[]),
    (&["SET a KEEPTTL", "SET a 1 IFNE KEEPTTL EX 9"], &[]),
    (&["SET a 1", "DELEX a IFNE 2"], &["del a"]),
    (&["MSETEX 2 a 1 b KEEPTTL EX 9"], &["set a", "expire a", "set b", "expire b"]),
    (&["MSETEX 1 a 1"], &["set a"]),
    (&["SET a 1", "DELIFEQ a 1"], &["del a"]),
    (&["INCR a"], &["incrby a"]),
    (&["DECR a"], &["incrby a"]),
    (&["DECRBY a 2"], &["incrby a"]),
    (&["APPEND a x"], &["append a"]),
    (&["GET a"], &[]),
    (&["SET a 1", "SET a 2 NX"], &[]),
    (&["SET a 1", "GETDEL a"], &["del a"]),
    (&["SET a 1", "GETEX a EX 10"], &["expire a"]),
    (&["SET a 1 EX 10", "GETEX a PERSIST"], &["persist a"]),
    (&["SET a 1", "GETEX a PERSIST"], &[]),
    (&["SET a 1", "DEL a b"], &["del a"]),
    (&["SET a 1", "EXPIRE a 10"], &["expire a"]),
    (&["SET a 1", "EXPIRE a -1"], &["del a"]),
    (&["SET a 1 EX 10", "PERSIST a"], &["persist a"]),
    (&["SET a 1", "RENAME a b"], &["rename_from a", "rename_to b"]),
    (&["SET a 1", "MOVE a 1"], &["move_from a", "move_to a"]),
    (&["SET a 1", "COPY a b"], &["copy_to b"]),
    (&["RPUSH a 1 2"], &["rpush a"]),
    (&["RPUSH a 1 2", "LPOP a"], &["lpop a"]),
    (&["RPUSH a 1", "LPOP a"], &["lpop a", "del a"]),
    (&["RPUSH a 1", "LMPOP 1 a RIGHT"], &["rpop a", "del a"]),
    (&["RPUSH left 1", "LMPOP 1 left RIGHT"], &["rpop left", "del left"]),
    (&["RPUSH right 1", "BLMPOP 0 2 left right LEFT COUNT 2"], &["lpop right", "del right"]),
    (&["RPUSH a 1", "LMOVE a b LEFT RIGHT"], &["rpush b", "lpop a", "del a"]),
    (&["RPUSH a 1 2", "RPOPLPUSH a a"], &["lpush a", "rpop a"]),
    (&["RPUSH a 1", "LTRIM a 5 6"], &["ltrim a", "del a"]),
    (&["RPUSH a 2 1", "SORT a STORE b"], &["sortstore b"]),
    (&["SADD a 1", "SREM a 1"], &["srem a", "del a"]),
    (&["SADD a 1", "SADD a 1"], &[]),
    (&["SADD a 1 2", "SMOVE a b 1"], &["srem a", "sadd b"]),
    (&["SADD a 1", "SADD b 2", "SINTERSTORE b a b"], &["del b"]),
    (&["SADD a 1", "SUNIONSTORE b a"], &["sunionstore b"]),
    (&["HSET a f 1"], &["hset a"]),
    (&["HSET a f 1", "HDEL a f"], &["hdel a", "del a"]),
    (&["HINCRBY a f 1"], &["hincrby a"]),
    (&["HSET a f 1", "HEXPIRE a 9 FIELDS 1 f"], &["hexpire a"]),
    (&["HSET a f 1", "HEXPIRE a 9 XX FIELDS 1 f"], &[]),
    (&["HSET a f 1 g 2", "HEXPIRE a 0 FIELDS 1 f"], &["hdel a"]),
    (&["HSET a f 1", "HEXPIRE a 0 FIELDS 1 f"], &["hdel a", "del a"]),
    (&["HSETEX a EX 9 FIELDS 1 f 1", "HPERSIST a FIELDS 1 f"], &["hpersist a"]),
    (&["HSET a f 1", "HPERSIST a FIELDS 1 f"], &[]),
    (&["HSETEX a EX 9 FIELDS 1 f 1"], &["hset a", "hexpire a"]),
    (&["HSETEX a FIELDS 1 f 1"], &["hset a"]),
    (&["HSETEX a FXX FIELDS 1 f 1"], &[]),
    (&["HSET a f 1", "HGETEX a EX 9 FIELDS 1 f"], &["hexpire a"]),
    (&["HSETEX a EX 9 FIELDS 1 f 1", "HGETEX a PERSIST FIELDS 1 f"], &["hpersist a"]),
    (&["HSET a f 1", "HGETEX a FIELDS 1 f"], &[]),
    (&["HSET a f 1", "HGETDEL a FIELDS 1 f"], &["hdel a", "del a"]),
    (&["HSET a f 1", "HGETDEL a FIELDS 1 g"], &[]),
    (&["ZADD a 1 x"], &["zadd a"]),
    (&["ZADD a INCR 1 x"], &["zincr a"]),
    (&["ZADD a NX INCR 1 x"], &["zincr a"]),
    (&["ZADD a CH 1 incr"], &["zadd a"]),
    (&["ZADD min 1 x", "ZMPOP 1 min MAX"], &["zpopmax min", "del min"]),
    (&["ZADD min 1 x", "BZMPOP 0 2 a min MIN"], &["zpopmin min", "del min"]),
    (&["ZINCRBY a 1 x"], &["zincr a"]),
    (&["ZADD a 1 x", "ZPOPMIN a"], &["zpopmin a", "del a"]),
    (&["ZADD a 1 x 2 y", "ZREMRANGEBYRANK a 0 0"], &["zremrangebyrank a"]),
    (&["GEOADD a 1 2 x"], &["zadd a"]),
    (&["GEOADD a 1 2 x", "GEOSEARCHSTORE b a FROMMEMBER x BYRADIUS 1 m"], &["geosearchstore b"]),
    (&["GEOADD a 1 2 x", "GEORADIUS a 1 2 3 m STORE b"], &["georadiusstore b"]),
    (&["PFADD a x", "PFADD a x", "PFCOUNT a"], &[]),
    (&["PFADD a x"], &["pfadd a"]),
    (&["PFMERGE a b"], &["pfadd a"]),
    (&["MULTI", "SET a 1", "LPUSH b 1", "INCR b", "EXEC"], &["set a", "lpush b"]),
    (&["MULTI", "SET a 1", "DISCARD"], &[]),
    (&["FLUSHALL"], &[]),
];

#[test]
fn each_command_has_its_events() {
    for (commands, events) in EVENTS {
        let all = heard("KEA", commands);
        let before = match commands[0] {
            "MULTI" => 0,
            _ => heard("KEA", &commands[..commands.len() - 1]).len(),
        };
        assert_eq!(all[before..], **events, "{commands:?}");
    }
}

#[test]
fn only_what_is_wanted_is_told() {
    let commands = ["SET a 1", "LPUSH b 1", "SADD c 1", "DEL a", "GET a"];
    for (classes, events) in [
        ("KE$", &["set a"][..]),
        ("Eg", &["del a"]),
        ("El", &["lpush b"]),
        ("EA", &["set a", "lpush b", "sadd c", "del a"]),
        ("Esm", &["sadd c", "keymiss a"]),
        ("En", &["new a", "new b", "new c"]),
        ("KA", &[]),
        ("A", &[]),
    ] {
        assert_eq!(heard(classes, &commands), events, "{classes}");
    }
}

#[test]
fn both_kinds_of_channels_and_their_payloads() {
    let mut house = House::new(false);
    let (mut listens, mut says) = (house.client(), house.client());
    house.say(&mut says, b"CONFIG SET notify-keyspace-events KEg\r\nSELECT 3\r\nSET a 1\r\n");
    house.say(&mut listens, b"SUBSCRIBE __keyspace@3__:a __keyevent@3__:del\r\n");
    house.say(&mut says, b"DEL a\r\n");
    let expected = "*3 $7 message $16 __keyspace@3__:a $3 del *3 $7 message $18 __keyevent@3__:del \
                    $1 a ";
    assert_eq!(house.say(&mut listens, b""), expected);
    let said = house.say(&mut says, b"CONFIG GET notify-keyspace-events\r\n");
    assert!(said.ends_with("gKE "), "{said}");
    let said = house.say(&mut says, b"CONFIG SET notify-keyspace-events Q\r\n");
    assert!(said.starts_with("-ERR"), "{said}");
}

#[test]
fn a_key_that_has_expired_is_told_when_it_is_overwritten() {
    let mut house = House::new(false);
    let (mut listens, mut says) = (house.client(), house.client());
    house.say(&mut says, b"CONFIG SET notify-keyspace-events Ex$\r\nSET a 1 PX 1\r\n");
    house.say(&mut listens, b"PSUBSCRIBE *\r\n");
    std::thread::sleep(std::time::Duration::from_millis(5));
    house.say(&mut says, b"SET a 2\r\n");
    let said = house.say(&mut listens, b"");
    let at = |event: &str| said.find(event).unwrap_or_else(|| panic!("{event}: {said}"));
    assert!(at("__keyevent@0__:expired") < at("__keyevent@0__:set"));
}

/// An expired field is told when it is removed with a write, or by itself.
#[test]
fn a_field_that_has_expired_is_told() {
    let mut house = House::new(false);
    let (mut listens, mut says) = (house.client(), house.client());
    house.say(&mut says, b"CONFIG SET notify-keyspace-events Ehgx\r\n");
    house.say(&mut says, b"HSETEX a PX 1 FIELDS 1 f 1\r\nHSET a g 1\r\n");
    house.say(&mut says, b"HSETEX b PX 1 FIELDS 1 f 1\r\nHSETEX c PX 1 FIELDS 1 f 1\r\n");
    house.say(&mut listens, b"PSUBSCRIBE *\r\n");
    house.shared.clock.advance(house.shared.clock.now_ms() + 1_000);
    house.say(&mut says, b"HSET a h 1\r\nHSET b h 1\r\n");
    let said = house.say(&mut listens, b"");
    let events: Vec<&str> = said.split("@0__:").skip(1).collect();
    let events: Vec<&str> = events.iter().map(|text| text.split(" *4").next().unwrap()).collect();
    assert_eq!(
        events.iter().map(|text| text.trim_end()).collect::<Vec<_>>(),
        ["hexpired $1 a", "hset $1 a", "hexpired $1 b", "del $1 b", "hset $1 b"]
    );
    let opened = house.shared.store.opened.cloned();
    crate::upkeep::expiry::remove_and_tell(&house.shared, &opened).unwrap();
    let said = house.say(&mut listens, b"");
    assert!(said.contains("hexpired $1 c") && said.contains("del $1 c"), "{said}");
    assert!(!said.contains(":expired"), "{said}");
}

/// No subscriber hears of a write that a crash takes back.
#[test]
fn events_leave_when_the_write_is_on_disk() {
    let mut house = House::new(true);
    let (mut listens, mut says) = (house.client(), house.client());
    says.feed(b"CONFIG SET notify-keyspace-events E$\r\n");
    house.run(&mut says, 1);
    listens.feed(b"SUBSCRIBE __keyevent@0__:set\r\n");
    house.run(&mut listens, 0);
    take(&mut listens);
    says.feed(b"SET a 1\r\n");
    house.run(&mut says, 1);
    house.run(&mut listens, 0);
    assert_eq!((take(&mut listens).as_str(), says.has_delivered()), ("", false));
    house.write_log();
    while !house.queue.is_empty() {
        house.queue.wait_for_one().unwrap();
        house.queue.drain(|(_, mark)| says.acknowledged(mark)).unwrap();
    }
    house.run(&mut listens, 0);
    assert_eq!(take(&mut listens), "*3 $7 message $18 __keyevent@0__:set $1 a ");
}
