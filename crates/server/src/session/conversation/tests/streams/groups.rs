//! Groups of consumers: transcripts of the commands and of their errors.

use super::*;

#[test]
fn groups_are_created_and_destroyed() {
    transcript_of(
        "XGROUP CREATE s g $ -> -ERR The XGROUP subcommand requires the key to exist. Note that \
            for CREATE you may want to use the MKSTREAM option to create an empty stream \
            automatically.
        XGROUP CREATE s g $ MKSTREAM -> +OK
        XLEN s -> :0
        XGROUP CREATE s g 0 -> -BUSYGROUP Consumer Group name already exists
        XGROUP CREATE s h x -> -ERR Invalid stream ID specified as stream command argument
        XGROUP CREATE s h 0 WHAT -> -ERR unknown subcommand or wrong number of arguments for \
            'CREATE'. Try XGROUP HELP.
        XGROUP CREATE s h 0 ENTRIESREAD -2 -> -ERR value for ENTRIESREAD must be positive or -1
        XGROUP CREATE s h 0 ENTRIESREAD 3 -> +OK
        XGROUP SETID s none 0 -> -NOGROUP No such consumer group 'none' for key name 's'
        XGROUP SETID s h 5-1 ENTRIESREAD 4 -> +OK
        XGROUP CREATECONSUMER s h c -> :1
        XGROUP CREATECONSUMER s h c -> :0
        XGROUP CREATECONSUMER s none c -> -NOGROUP No such consumer group 'none' for key name 's'
        XGROUP DELCONSUMER s h none -> :0
        XGROUP DELCONSUMER s h c -> :0
        XINFO GROUPS s -> *2 *12 $4 name $1 g $9 consumers :0 $7 pending :0 $17 last-delivered-id \
            $3 0-0 $12 entries-read $-1 $3 lag :0 *12 $4 name $1 h $9 consumers :0 $7 pending :0 \
            $17 last-delivered-id $3 5-1 $12 entries-read :4 $3 lag :0
        XGROUP DESTROY s none -> :0
        XGROUP DESTROY s g -> :1
        XINFO CONSUMERS s g -> -NOGROUP No such consumer group 'g' for key name 's'
        XINFO CONSUMERS s h -> *0
        XGROUP WHAT s g -> -ERR unknown subcommand 'WHAT'. Try XGROUP HELP.
        XGROUP CREATE s g -> -ERR wrong number of arguments for 'xgroup|create' command
        XGROUP DESTROY s -> -ERR wrong number of arguments for 'xgroup|destroy' command
        SET string 1 -> +OK
        XGROUP CREATE string g 0 -> -WRONGTYPE Operation against a key holding the wrong kind of \
            value
        XGROUP DESTROY none g -> -ERR The XGROUP subcommand requires the key to exist. Note that \
            for CREATE you may want to use the MKSTREAM option to create an empty stream \
            automatically.",
    );
}

#[test]
fn entries_are_delivered_and_acknowledged() {
    transcript_of(
        "XADD s 1 a 1 -> $3 1-0
        XADD s 2 a 2 -> $3 2-0
        XADD s 3 a 3 -> $3 3-0
        XREADGROUP GROUP g c STREAMS s > -> -NOGROUP No such key 's' or consumer group 'g' in \
            XREADGROUP with GROUP option
        XREADGROUP GROUP g c STREAMS none > -> -NOGROUP No such key 'none' or consumer group 'g' \
            in XREADGROUP with GROUP option
        XGROUP CREATE s g 0 -> +OK
        XREADGROUP GROUP g c COUNT 1 STREAMS s > -> *1 *2 $1 s *1 *2 $3 1-0 *2 $1 a $1 1
        XREADGROUP GROUP g d STREAMS s > -> *1 *2 $1 s *2 *2 $3 2-0 *2 $1 a $1 2 *2 $3 3-0 *2 $1 \
            a $1 3
        XREADGROUP GROUP g c STREAMS s > -> *-1
        XREADGROUP GROUP g c STREAMS s 0 -> *1 *2 $1 s *1 *2 $3 1-0 *2 $1 a $1 1
        XREADGROUP GROUP g c STREAMS s 1 -> *1 *2 $1 s *0
        XREADGROUP GROUP g d COUNT 1 STREAMS s 2 -> *1 *2 $1 s *1 *2 $3 3-0 *2 $1 a $1 3
        XPENDING s g -> *4 :3 $3 1-0 $3 3-0 *2 *2 $1 c $1 1 *2 $1 d $1 2
        XACK s g 1 1 7 -> :1
        XACK s none 1 -> :0
        XACK none g 1 -> :0
        XACK s g 2 x -> -ERR Invalid stream ID specified as stream command argument
        XPENDING s g -> *4 :2 $3 2-0 $3 3-0 *1 *2 $1 d $1 2
        XDEL s 2 -> :1
        XREADGROUP GROUP g d STREAMS s 0 -> *1 *2 $1 s *2 *2 $3 2-0 *-1 *2 $3 3-0 *2 $1 a $1 3
        XGROUP DELCONSUMER s g d -> :2
        XPENDING s g -> *4 :0 $-1 $-1 *-1
        XADD s 4 a 4 -> $3 4-0
        XREADGROUP GROUP g c NOACK STREAMS s > -> *1 *2 $1 s *1 *2 $3 4-0 *2 $1 a $1 4
        XPENDING s g -> *4 :0 $-1 $-1 *-1
        XGROUP SETID s g 0 -> +OK
        XREADGROUP GROUP g c STREAMS s > -> *1 *2 $1 s *3 *2 $3 1-0 *2 $1 a $1 1 *2 $3 3-0 *2 $1 \
            a $1 3 *2 $3 4-0 *2 $1 a $1 4
        XGROUP SETID s g 0 -> +OK
        XREADGROUP GROUP g e COUNT 2 STREAMS s s > > -> *2 *2 $1 s *2 *2 $3 1-0 *2 $1 a $1 1 *2 \
            $3 3-0 *2 $1 a $1 3 *2 $1 s *1 *2 $3 4-0 *2 $1 a $1 4
        XPENDING s g -> *4 :3 $3 1-0 $3 4-0 *1 *2 $1 e $1 3
        XREADGROUP GROUP g c STREAMS s $ -> -ERR The $ ID is meaningless in the context of \
            XREADGROUP: you want to read the history of this consumer by specifying a proper ID, \
            or use the > ID to get new messages. The $ ID would just return an empty result set.
        XREADGROUP COUNT 1 BLOCK 1 STREAMS s > -> -ERR Missing GROUP option for XREADGROUP
        XREADGROUP GROUP g c STREAMS s t > -> -ERR Unbalanced 'xreadgroup' list of streams: for \
            each stream key an ID or '>' must be specified.",
    );
}

/// The columns of a list of pending entries beside the times.
fn pending(house: &mut House, client: &mut Conversation, line: &str) -> String {
    let said = house.say(client, format!("{line}\r\n").as_bytes());
    let words: Vec<&str> = said.split_whitespace().collect();
    let rows = words[1..].chunks(7).map(|row| format!("{} {} {}", row[2], row[4], row[6]));
    rows.collect::<Vec<_>>().join(", ")
}

#[test]
fn pending_entries_are_listed_and_claimed() {
    let mut house = House::new(false);
    let mut client = house.client();
    for at in 1..=5 {
        house.say(&mut client, format!("XADD s {at} a {at}\r\n").as_bytes());
    }
    house.say(&mut client, b"XGROUP CREATE s g 0\r\nXREADGROUP GROUP g c COUNT 4 STREAMS s >\r\n");
    let list = "XPENDING s g - + 10";
    let mut see = |line: &str| pending(&mut house, &mut client, line);
    assert_eq!(see(list), "1-0 c :1, 2-0 c :1, 3-0 c :1, 4-0 c :1");
    assert_eq!(see("XPENDING s g (1-0 (4-0 10"), "2-0 c :1, 3-0 c :1");
    assert_eq!(see("XPENDING s g - + 2 c"), "1-0 c :1, 2-0 c :1");
    assert_eq!(see("XPENDING s g - + 10 none"), "");
    assert_eq!(see("XPENDING s g IDLE 100000 - + 10"), "");
    let mut say = |line: &str| house.say(&mut client, format!("{line}\r\n").as_bytes());
    for (line, expected) in [
        ("XCLAIM s g d 100000 1", "*0 "),
        ("XCLAIM s g d 0 1 9", "*1 *2 $3 1-0 *2 $1 a $1 1 "),
        ("XCLAIM s g d 0 2 JUSTID", "*1 $3 2-0 "),
        ("XCLAIM s g d 0 3 RETRYCOUNT 7 IDLE 100000", "*1 *2 $3 3-0 *2 $1 a $1 3 "),
        ("XCLAIM s g d 0 5", "*0 "),
        ("XCLAIM s g d 0 5 FORCE JUSTID", "*1 $3 5-0 "),
        ("XCLAIM s g d 0 9 FORCE JUSTID", "*0 "),
    ] {
        assert_eq!(say(line), expected, "{line}");
    }
    let listed = "1-0 d :2, 2-0 d :1, 3-0 d :7, 4-0 c :1, 5-0 d :1";
    assert_eq!(pending(&mut house, &mut client, list), listed);
    let idle = pending(&mut house, &mut client, "XPENDING s g IDLE 99999 - + 10 d");
    assert_eq!(idle, "3-0 d :7");
    let mut say = |line: &str| house.say(&mut client, format!("{line}\r\n").as_bytes());
    for (line, expected) in [
        ("XDEL s 2 4", ":2 "),
        ("XCLAIM s g e 0 2", "*0 "),
        ("XAUTOCLAIM s g e 0 - COUNT 1", "*3 $3 3-0 *1 *2 $3 1-0 *2 $1 a $1 1 *0 "),
        ("XAUTOCLAIM s g e 0 3 COUNT 2 JUSTID", "*3 $3 5-0 *1 $3 3-0 *1 $3 4-0 "),
        ("XAUTOCLAIM s g e 100000 0", "*3 $3 0-0 *0 *0 "),
        ("XAUTOCLAIM s g e 0 (3", "*3 $3 0-0 *1 *2 $3 5-0 *2 $1 a $1 5 *0 "),
    ] {
        assert_eq!(say(line), expected, "{line}");
    }
    assert_eq!(pending(&mut house, &mut client, list), "1-0 e :3, 3-0 e :7, 5-0 e :2");
}

#[test]
fn what_is_wrong_with_claims_and_lists() {
    transcript_of(
        "XGROUP CREATE s g $ MKSTREAM -> +OK
        XPENDING s none -> -NOGROUP No such key 's' or consumer group 'none'
        XPENDING none g -> -NOGROUP No such key 'none' or consumer group 'g'
        XPENDING s g - + -> -ERR syntax error
        XPENDING s g - + x -> -ERR value is not an integer or out of range
        XPENDING s g IDLE 1 - + -> -ERR syntax error
        XPENDING s g IDLE x - + 1 -> -ERR value is not an integer or out of range
        XPENDING s g x + 1 -> -ERR Invalid stream ID specified as stream command argument
        XPENDING s g - + -5 -> *0
        XCLAIM s none c 0 1 -> -NOGROUP No such key 's' or consumer group 'none'
        XCLAIM s g c x 1 -> -ERR Invalid min-idle-time argument for XCLAIM
        XCLAIM s g c 0 1 WHAT -> -ERR Unrecognized XCLAIM option 'WHAT'
        XCLAIM s g c 0 1 IDLE x -> -ERR Invalid IDLE option argument for XCLAIM
        XCLAIM s g c 0 1 TIME x -> -ERR Invalid TIME option argument for XCLAIM
        XCLAIM s g c 0 1 RETRYCOUNT x -> -ERR Invalid RETRYCOUNT option argument for XCLAIM
        XCLAIM s g c 0 1 LASTID x -> -ERR Invalid stream ID specified as stream command argument
        XCLAIM s g c 0 1 LASTID 7-1 -> *0
        XINFO GROUPS s -> *1 *12 $4 name $1 g $9 consumers :1 $7 pending :0 $17 last-delivered-id \
            $3 7-1 $12 entries-read $-1 $3 lag :0
        XAUTOCLAIM s g c x 0 -> -ERR Invalid min-idle-time argument for XAUTOCLAIM
        XAUTOCLAIM s g c 0 x -> -ERR Invalid stream ID specified as stream command argument
        XAUTOCLAIM s g c 0 0 COUNT 0 -> -ERR COUNT must be > 0
        XAUTOCLAIM s g c 0 0 COUNT -> -ERR syntax error
        XAUTOCLAIM s g c 0 0 WHAT -> -ERR syntax error
        XAUTOCLAIM s none c 0 0 -> -NOGROUP No such key 's' or consumer group 'none'
        XAUTOCLAIM s g c 0 (18446744073709551615-18446744073709551615 -> -ERR invalid start ID \
            for the interval",
    );
}

/// The group's `entries-read` and `lag`.
fn lag(house: &mut House, client: &mut Conversation) -> (String, String) {
    let said = house.say(client, b"XINFO GROUPS s\r\n");
    let words: Vec<&str> = said.split_whitespace().collect();
    let behind = |name| {
        let at = words.iter().position(|word| *word == name).unwrap();
        words[at + 1].to_string()
    };
    (behind("entries-read"), behind("lag"))
}

#[test]
fn how_far_a_group_is_behind() {
    let mut house = House::new(false);
    let mut client = house.client();
    for at in 1..=5 {
        house.say(&mut client, format!("XADD s {at} a {at}\r\n").as_bytes());
    }
    for (line, read, lag_now) in [
        ("XGROUP CREATE s g 0", "$-1", ":5"),
        ("XREADGROUP GROUP g c COUNT 1 STREAMS s >", ":1", ":4"),
        ("XDEL s 4", ":1", "$-1"),
        ("XREADGROUP GROUP g c COUNT 1 STREAMS s >", "$-1", "$-1"),
        ("XREADGROUP GROUP g c STREAMS s >", ":5", ":0"),
        ("XADD s 6 a 6", ":5", ":1"),
        ("XTRIM s MINID 6", ":5", ":1"),
        ("XGROUP SETID s g 0", "$-1", ":1"),
        ("XGROUP SETID s g $", "$-1", ":0"),
        ("XGROUP SETID s g 3 ENTRIESREAD 3", ":3", ":3"),
    ] {
        house.say(&mut client, format!("{line}\r\n").as_bytes());
        let found = lag(&mut house, &mut client);
        assert_eq!((found.0.as_str(), found.1.as_str()), (read, lag_now), "{line}");
    }
}

#[test]
fn consumers_are_told_with_their_times() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(
        &mut client,
        b"XADD s 1 a 1\r\nXGROUP CREATE s g 0\r\nXGROUP CREATECONSUMER s g c\r\n",
    );
    let mut say = |line: &str| house.say(&mut client, format!("{line}\r\n").as_bytes());
    let said = say("XINFO CONSUMERS s g");
    assert!(said.starts_with("*1 *8 $4 name $1 c $7 pending :0 $4 idle :"), "{said}");
    assert!(said.ends_with(" $8 inactive :-1 "), "{said}");
    say("XREADGROUP GROUP g c STREAMS s >");
    let said = say("XINFO CONSUMERS s g");
    assert!(!said.ends_with(" $8 inactive :-1 ") && said.contains("$7 pending :1 "), "{said}");
    let full = say("XINFO STREAM s FULL");
    for part in [
        "$9 seen-time :",
        "$11 active-time :",
        "$9 pel-count :1 ",
        "$7 entries *1 *2 $3 1-0 *2 $1 a $1 1 ",
        "$6 groups *1 *14 $4 name $1 g $17 last-delivered-id $3 1-0 $12 entries-read :1 $3 lag :0 ",
        "$9 consumers *1 *10 $4 name $1 c ",
    ] {
        assert!(full.contains(part), "{part}: {full}");
    }
}

#[test]
fn streams_in_scripts_and_in_exec() {
    transcript_of(
        "MULTI -> +OK
        XADD s 1 a 1 -> +QUEUED
        XGROUP CREATE s g 0 -> +QUEUED
        XREADGROUP GROUP g c BLOCK 0 STREAMS s > -> +QUEUED
        XREADGROUP GROUP g c BLOCK 0 STREAMS s > -> +QUEUED
        XREAD BLOCK 0 STREAMS s $ -> +QUEUED
        EXEC -> *5 $3 1-0 +OK *1 *2 $1 s *1 *2 $3 1-0 *2 $1 a $1 1 *-1 *-1
        EVAL \"return redis.call('xadd', KEYS[1], '2-*', 'a', '2')\" 1 s -> $3 2-0
        EVAL \"return redis.call('xrange', KEYS[1], '2', '+')\" 1 s -> *1 *2 $3 2-0 *2 $1 a $1 2
        EVAL \"return redis.call('xread', 'STREAMS', KEYS[1], '1')\" 1 s -> *1 *2 $1 s *1 *2 $3 \
            2-0 *2 $1 a $1 2",
    );
    let mut house = House::new(false);
    let mut client = house.client();
    let line = b"EVAL \"return redis.call('xread', 'BLOCK', '0', 'STREAMS', 's', '$')\" 1 s\r\n";
    let said = house.say(&mut client, line);
    assert!(said.contains("xread command is not allowed with BLOCK option from scripts"), "{said}");
}
