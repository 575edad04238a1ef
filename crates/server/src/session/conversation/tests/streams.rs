//! Streams without groups: transcripts of the commands and of their errors.

use super::*;

mod groups;
mod restarting;
mod waiting;

/// Runs lines of a transcript: the command, then ` -> `, then all replies.
fn transcript_of(text: &str) {
    let mut house = House::new(false);
    let mut client = house.client();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (said, expected) = line.split_once(" -> ").expect("a reply");
        let heard = house.say(&mut client, format!("{said}\r\n").as_bytes());
        assert_eq!(heard.trim_end(), expected, "{said}");
    }
}

#[test]
fn entries_are_added_with_ids_of_all_forms() {
    transcript_of(
        "XADD s 1-1 a 1 b 2 -> $3 1-1
        XADD s 1-* a 1 -> $3 1-2
        XADD s 2-* a 1 -> $3 2-0
        XADD s 2 a 1 -> -ERR The ID specified in XADD is equal or smaller than the target stream \
            top item
        XADD s 1-* a 1 -> -ERR The ID specified in XADD is equal or smaller than the target \
            stream top item
        XADD s 0-0 a 1 -> -ERR The ID specified in XADD must be greater than 0-0
        XADD t 0-* a 1 -> $3 0-1
        XADD s x a 1 -> -ERR Invalid stream ID specified as stream command argument
        XADD s - a 1 -> -ERR Invalid stream ID specified as stream command argument
        XADD s 3-1 a -> -ERR wrong number of arguments for 'xadd' command
        XADD s 3-1 a 1 b -> -ERR wrong number of arguments for 'xadd' command
        XADD s NOMKSTREAM 3-1 a 1 -> $3 3-1
        XADD none NOMKSTREAM 3-1 a 1 -> $-1
        EXISTS none -> :0
        XLEN s -> :4
        XLEN none -> :0
        XRANGE s - + -> *4 *2 $3 1-1 *4 $1 a $1 1 $1 b $1 2 *2 $3 1-2 *2 $1 a $1 1 *2 $3 2-0 *2 \
            $1 a $1 1 *2 $3 3-1 *2 $1 a $1 1
        TYPE s -> +stream
        OBJECT ENCODING s -> $6 stream
        XADD s 18446744073709551615-18446744073709551615 a 1 -> $41 \
            18446744073709551615-18446744073709551615
        XADD s * a 1 -> -ERR The stream has exhausted the last possible ID, unable to add more items
        XADD s NOMKSTREAM * a 1 -> -ERR The stream has exhausted the last possible ID, unable to \
            add more items
        SET string 1 -> +OK
        XADD string * a 1 -> -WRONGTYPE Operation against a key holding the wrong kind of value
        XLEN string -> -WRONGTYPE Operation against a key holding the wrong kind of value
        GET s -> -WRONGTYPE Operation against a key holding the wrong kind of value",
    );
}

/// The time of the transaction, or the next id if the time is not above the last id.
#[test]
fn an_id_by_the_time_is_above_the_last() {
    let mut house = House::new(false);
    let mut client = house.client();
    let now = house.shared.clock.now_ms();
    let said = house.say(&mut client, b"XADD s * a 1\r\n");
    let ms: i64 = said.split([' ', '-']).nth(1).unwrap().parse().unwrap();
    assert!((now..now + 60_000).contains(&ms), "{said}");
    house.say(&mut client, b"XADD t 9999999999999-18446744073709551615 a 1\r\n");
    assert_eq!(house.say(&mut client, b"XADD t * a 1\r\n"), "$16 10000000000000-0 ");
    assert_eq!(house.say(&mut client, b"XADD t * a 1\r\n"), "$16 10000000000000-1 ");
}

#[test]
fn ranges_and_their_errors() {
    transcript_of(
        "XADD s 1-0 a 1 -> $3 1-0
        XADD s 1-1 b 2 -> $3 1-1
        XADD s 2-0 a 3 -> $3 2-0
        XRANGE s 1 1 -> *2 *2 $3 1-0 *2 $1 a $1 1 *2 $3 1-1 *2 $1 b $1 2
        XRANGE s (1-0 (2-0 -> *1 *2 $3 1-1 *2 $1 b $1 2
        XRANGE s - + COUNT 1 -> *1 *2 $3 1-0 *2 $1 a $1 1
        XRANGE s - + COUNT 0 -> *-1
        XRANGE s - + COUNT -5 -> *-1
        XRANGE none - + COUNT 0 -> *0
        XRANGE s + - -> *0
        XREVRANGE s + - COUNT 2 -> *2 *2 $3 2-0 *2 $1 a $1 3 *2 $3 1-1 *2 $1 b $1 2
        XREVRANGE s (2-0 1-1 -> *1 *2 $3 1-1 *2 $1 b $1 2
        XREVRANGE s - + -> *0
        XREVRANGE none + - -> *0
        XRANGE s (18446744073709551615-18446744073709551615 + -> -ERR invalid start ID for the \
            interval
        XRANGE s - (0-0 -> -ERR invalid end ID for the interval
        XRANGE s (- + -> -ERR Invalid stream ID specified as stream command argument
        XRANGE s - + COUNT -> -ERR syntax error
        XRANGE s - + COUNT x -> -ERR value is not an integer or out of range
        XRANGE s - + WHAT 1 -> -ERR syntax error
        XRANGE s a + -> -ERR Invalid stream ID specified as stream command argument",
    );
}

#[test]
fn entries_are_deleted_and_trimmed() {
    transcript_of(
        "XADD s 1-0 a 1 -> $3 1-0
        XADD s 2-0 a 2 -> $3 2-0
        XADD s 3-0 a 3 -> $3 3-0
        XADD s 4-0 a 4 -> $3 4-0
        XDEL s 2-0 2-0 9-0 -> :1
        XDEL none 1-0 -> :0
        XDEL s 1-0 x -> -ERR Invalid stream ID specified as stream command argument
        XLEN s -> :3
        XTRIM s MAXLEN 2 -> :1
        XRANGE s - + -> *2 *2 $3 3-0 *2 $1 a $1 3 *2 $3 4-0 *2 $1 a $1 4
        XTRIM s MINID 4 -> :1
        XTRIM s MINID = 4 -> :0
        XTRIM none MAXLEN 0 -> :0
        XADD s MAXLEN 1 5-0 a 5 -> $3 5-0
        XADD s MINID 6 6-0 a 6 -> $3 6-0
        XRANGE s - + -> *1 *2 $3 6-0 *2 $1 a $1 6
        XTRIM s MAXLEN ~ 0 LIMIT 1 -> :1
        EXISTS s -> :1
        XLEN s -> :0
        XADD s 6-0 a 1 -> -ERR The ID specified in XADD is equal or smaller than the target \
            stream top item
        XTRIM s MAXLEN -1 -> -ERR The MAXLEN argument must be >= 0.
        XTRIM s MAXLEN x -> -ERR value is not an integer or out of range
        XTRIM s MAXLEN 1 LIMIT 1 -> -ERR syntax error, LIMIT cannot be used without the special ~ \
            option
        XTRIM s LIMIT 1 -> -ERR syntax error, LIMIT cannot be used without specifying a trimming \
            strategy
        XTRIM s 1 -> -ERR wrong number of arguments for 'xtrim' command
        XTRIM s LIMIT 0 -> -ERR syntax error, XTRIM must be called with a trimming strategy
        XADD s LIMIT 1 7-0 a 1 -> -ERR syntax error, LIMIT cannot be used without specifying a \
            trimming strategy
        XTRIM s MAXLEN 1 MINID 1 -> -ERR syntax error, MAXLEN and MINID options at the same time \
            are not compatible
        XTRIM s MAXLEN ~ 1 LIMIT -1 -> -ERR The LIMIT argument must be >= 0.
        XTRIM s MAXLEN -> -ERR wrong number of arguments for 'xtrim' command
        XTRIM s WHAT 1 -> -ERR syntax error",
    );
}

/// Whole nodes are removed, of as many entries as the setting says.
#[test]
fn an_approximate_trim_leaves_nodes_whole() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"CONFIG SET stream-node-max-entries 10\r\n");
    for at in 1..=100 {
        house.say(&mut client, format!("XADD s {at}-0 f v\r\n").as_bytes());
    }
    let mut say = |line: &str| house.say(&mut client, format!("{line}\r\n").as_bytes());
    assert_eq!(say("XTRIM s MAXLEN ~ 85"), ":10 ");
    assert_eq!(say("XTRIM s MAXLEN ~ 0 LIMIT 30"), ":30 ");
    assert_eq!(say("XTRIM s MINID ~ 56-0"), ":10 ");
    assert_eq!(say("XTRIM s MINID = 56-0"), ":5 ");
    assert_eq!(say("XTRIM s MAXLEN ~ 45"), ":0 ");
    assert_eq!(say("XRANGE s - + COUNT 1"), "*1 *2 $4 56-0 *2 $1 f $1 v ");
    assert_eq!(say("XTRIM s MAXLEN ~ 40"), ":5 ");
    assert_eq!(say("XADD s MAXLEN ~ 1 101 f v"), "$5 101-0 ");
    assert_eq!(say("XLEN s"), ":1 ");
}

#[test]
fn ids_are_set_and_told() {
    transcript_of(
        "XSETID s 1-1 -> -ERR no such key
        XADD s 1-1 a 1 -> $3 1-1
        XADD s 1-2 a 1 -> $3 1-2
        XSETID s 1-1 -> -ERR The ID specified in XSETID is smaller than the target stream top item
        XSETID s 200-0 -> +OK
        XSETID s 200-0 ENTRIESADDED -1 MAXDELETEDID 0-0 -> -ERR entries_added must be positive
        XSETID s 200-0 ENTRIESADDED 1 MAXDELETEDID 0-0 -> -ERR The entries_added specified in \
            XSETID is smaller than the target stream length
        XSETID s 200-0 MAXDELETEDID 201-0 -> -ERR The ID specified in XSETID is smaller than the \
            provided max_deleted_entry_id
        XSETID s 200-0 WHAT 1 -> -ERR syntax error
        XSETID s x -> -ERR Invalid stream ID specified as stream command argument
        XSETID s 200-0 ENTRIESADDED 7 MAXDELETEDID 1-0 -> +OK
        XINFO STREAM s -> *20 $6 length :2 $15 radix-tree-keys :1 $16 radix-tree-nodes :2 $17 \
            last-generated-id $5 200-0 $20 max-deleted-entry-id $3 1-0 $13 entries-added :7 $23 \
            recorded-first-entry-id $3 1-1 $6 groups :0 $11 first-entry *2 $3 1-1 *2 $1 a $1 1 \
            $10 last-entry *2 $3 1-2 *2 $1 a $1 1
        XDEL s 1-1 1-2 -> :2
        XINFO STREAM s -> *20 $6 length :0 $15 radix-tree-keys :0 $16 radix-tree-nodes :1 $17 \
            last-generated-id $5 200-0 $20 max-deleted-entry-id $3 1-2 $13 entries-added :7 $23 \
            recorded-first-entry-id $3 0-0 $6 groups :0 $11 first-entry $-1 $10 last-entry $-1
        XSETID s 1-1 -> -ERR The ID specified in XSETID is smaller than current max_deleted_entry_id
        XINFO STREAM none -> -ERR no such key
        XINFO STREAM s WHAT -> -ERR unknown subcommand or wrong number of arguments for 'STREAM'. \
            Try XINFO HELP.
        XINFO WHAT s -> -ERR unknown subcommand 'WHAT'. Try XINFO HELP.
        XINFO STREAM -> -ERR wrong number of arguments for 'xinfo|stream' command",
    );
}

#[test]
fn streams_are_read_from_ids_on() {
    transcript_of(
        "XADD a 1-0 f 1 -> $3 1-0
        XADD a 2-0 f 2 -> $3 2-0
        XADD b 1-0 f 3 -> $3 1-0
        XREAD STREAMS a b 0 0 -> *2 *2 $1 a *2 *2 $3 1-0 *2 $1 f $1 1 *2 $3 2-0 *2 $1 f $1 2 *2 \
            $1 b *1 *2 $3 1-0 *2 $1 f $1 3
        XREAD COUNT 1 STREAMS a b 1-0 1-0 -> *1 *2 $1 a *1 *2 $3 2-0 *2 $1 f $1 2
        XREAD STREAMS a none $ 0 -> *-1
        XREAD STREAMS a 18446744073709551615-18446744073709551615 -> *-1
        XREAD STREAMS a -> -ERR wrong number of arguments for 'xread' command
        XREAD STREAMS a b 0 -> -ERR Unbalanced 'xread' list of streams: for each stream key an ID \
            or '$' must be specified.
        XREAD COUNT x STREAMS a 0 -> -ERR value is not an integer or out of range
        XREAD BLOCK x STREAMS a 0 -> -ERR timeout is not an integer or out of range
        XREAD BLOCK -1 STREAMS a 0 -> -ERR timeout is negative
        XREAD NOACK STREAMS a 0 -> -ERR The NOACK option is only supported by XREADGROUP. You \
            called XREAD instead.
        XREAD GROUP g c STREAMS a 0 -> -ERR The GROUP option is only supported by XREADGROUP. You \
            called XREAD instead.
        XREAD STREAMS a > -> -ERR The > ID can be specified only when calling XREADGROUP using \
            the GROUP <group> <consumer> option.
        XREAD COUNT 1 a 0 -> -ERR syntax error
        SET string 1 -> +OK
        XREAD STREAMS string 0 -> -WRONGTYPE Operation against a key holding the wrong kind of value
        HELLO 3 SETNAME x -> %7 $6 server $5 redis $7 version $5 7.2.0 $5 proto :3 $2 id :1 $4 \
            mode $10 standalone $4 role $6 master $7 modules *0
        XREAD STREAMS a b 1 0 -> %2 $1 a *1 *2 $3 2-0 *2 $1 f $1 2 $1 b *1 *2 $3 1-0 *2 $1 f $1 3
        XREAD STREAMS a $ -> _
        XRANGE b - + -> *1 *2 $3 1-0 *2 $1 f $1 3",
    );
}

#[test]
fn streams_are_copied_renamed_and_dumped() {
    let mut house = House::new(false);
    let mut client = house.client();
    for (key, count) in [("small", 5), ("large", 500)] {
        for at in 1..=count {
            let line = format!("XADD {key} {at}-{at} field value:{at} other {at}\r\n");
            house.say(&mut client, line.as_bytes());
        }
        let mut say = |line: &str| house.say(&mut client, format!("{line}\r\n").as_bytes());
        say(&format!("XDEL {key} 2-2"));
        say(&format!("XTRIM {key} MINID 2-0"));
        for (group, last) in [("g", 0), ("h", 3)] {
            assert_eq!(say(&format!("XGROUP CREATE {key} {group} {last}")), "+OK ");
        }
        say(&format!("XREADGROUP GROUP g alice COUNT {} STREAMS {key} >", count / 4));
        say(&format!("XREADGROUP GROUP g bob STREAMS {key} >"));
        say(&format!("XACK {key} g 3-3"));
        let full = |key: &str| format!("XINFO STREAM {key} FULL COUNT 0");
        let before = say(&full(key));
        assert_eq!(say(&format!("COPY {key} copy REPLACE")), ":1 ");
        assert_eq!(say(&full("copy")), before);
        assert_eq!(say(&format!("DEL {key}")), ":1 ");
        assert_eq!(say("RENAME copy moved"), "+OK ");
        assert_eq!(say(&full("moved")), before);
        let payload = super::dumping::dumped(&mut house, &mut client, "moved");
        let length = payload.len();
        let head = format!("*4\r\n$7\r\nRESTORE\r\n$4\r\nback\r\n$1\r\n0\r\n${length}\r\n");
        let said = house.say(&mut client, &[head.as_bytes(), &payload, b"\r\n"].concat());
        assert_eq!(said, "+OK ");
        // Version 19 has no time of activity: the time of being seen stands instead.
        let nodes = |text: &str| {
            let words: Vec<&str> = text.split(' ').collect();
            let at = words.iter().position(|word| *word == "radix-tree-keys").unwrap();
            [&words[..at], &words[at + 5..]].concat().join(" ")
        };
        let said = house.say(&mut client, format!("{}\r\n", full("back")).as_bytes());
        assert_eq!(nodes(&said), nodes(&before));
        assert_eq!(house.say(&mut client, b"DEL moved back\r\n"), ":2 ");
    }
}

/// The blocks of a large stream with groups are free again once its key is removed, and the blocks
/// of a group once the group is destroyed.
#[test]
fn nothing_is_left_of_what_was_removed() {
    let mut house = House::new(false);
    let mut client = house.client();
    let blocks = |house: &House| {
        let opened = house.shared.store.opened.cloned();
        let mut session = opened.database.session().unwrap();
        while crate::data::collections::remove_garbage(&mut session, opened.tables).unwrap() {}
        let mut rows = [0, 0, 0];
        let snapshot = opened.database.open_snapshot();
        let tables = opened.tables;
        for (at, table) in [tables.blocks, tables.collections, tables.garbage].iter().enumerate() {
            let columns = hyades::Columns::ALL;
            snapshot.for_each(*table, columns, |_| rows[at] += 1).unwrap();
        }
        rows
    };
    for round in 0..3 {
        for at in 1..=2_000 {
            house.say(&mut client, format!("XADD s {at}-0 field value:{at}\r\n").as_bytes());
        }
        let plain = blocks(&house);
        for group in ["g", "h"] {
            let text = format!(
                "XGROUP CREATE s {group} 0\r\nXREADGROUP GROUP {group} c STREAMS s >\r\n\
                 XGROUP CREATECONSUMER s {group} d\r\n"
            );
            house.say(&mut client, text.as_bytes());
        }
        assert!(blocks(&house)[0] > plain[0] + 40);
        house.say(&mut client, b"XGROUP DESTROY s g\r\nXGROUP DESTROY s h\r\n");
        assert_eq!(blocks(&house), plain);
        house.say(&mut client, b"XGROUP CREATE s g 0\r\nXREADGROUP GROUP g c STREAMS s >\r\n");
        let end = ["DEL s\r\n", "SET s 1\r\nDEL s\r\n", "XTRIM s MAXLEN 0\r\nUNLINK s\r\n"][round];
        house.say(&mut client, end.as_bytes());
        assert_eq!(blocks(&house), [0, 0, 0], "{end}");
    }
}

#[test]
fn events_tell_what_has_happened() {
    let mut house = House::new(false);
    let (mut listener, mut client) = (house.client(), house.client());
    house.say(&mut client, b"CONFIG SET notify-keyspace-events KEAn\r\n");
    house.say(&mut listener, b"PSUBSCRIBE __keyspace*\r\n");
    for (line, expected) in [
        ("XADD s 1 a 1", "new xadd"),
        ("XADD s MAXLEN 1 2 a 1", "xadd xtrim"),
        ("XADD s MAXLEN 5 3 a 1", "xadd"),
        ("XDEL s 3", "xdel"),
        ("XDEL s 3", ""),
        ("XTRIM s MAXLEN 0", "xtrim"),
        ("XTRIM s MAXLEN 0", ""),
        ("XSETID s 9", "xsetid"),
        ("XGROUP CREATE s g 0", "xgroup-create"),
        ("XGROUP SETID s g 1", "xgroup-setid"),
        ("XGROUP CREATECONSUMER s g c", "xgroup-createconsumer"),
        ("XGROUP CREATECONSUMER s g c", ""),
        ("XADD s 10 a 1", "xadd"),
        ("XREADGROUP GROUP g d STREAMS s >", "xgroup-createconsumer"),
        ("XREADGROUP GROUP g d STREAMS s 0", ""),
        ("XCLAIM s g e 0 10", "xgroup-createconsumer"),
        ("XAUTOCLAIM s g f 0 0", "xgroup-createconsumer"),
        ("XACK s g 10", ""),
        ("XGROUP DELCONSUMER s g c", "xgroup-delconsumer"),
        ("XGROUP DELCONSUMER s g c", ""),
        ("XGROUP DESTROY s g", "xgroup-destroy"),
        ("XGROUP CREATE t g $ MKSTREAM", "new xgroup-create"),
        ("DEL s t", "del del"),
    ] {
        house.say(&mut client, format!("{line}\r\n").as_bytes());
        let told = house.say(&mut listener, b"");
        let mut words: Vec<&str> = told.split("*4 ").filter_map(|m| m.split(' ').nth(7)).collect();
        words.retain(|word| !word.is_empty());
        assert_eq!(words.join(" "), expected, "{line}");
    }
}

/// An EXEC fails if the stream has changed, packed or in blocks; of groups only creation and end
/// count.
#[test]
fn a_watched_stream() {
    for count in [1, 300] {
        let mut house = House::new(false);
        let (mut one, mut other) = (house.client(), house.client());
        for at in 1..=count {
            house.say(&mut one, format!("XADD s {at} a 1\r\n").as_bytes());
        }
        house.say(&mut one, b"XGROUP CREATE s h 0\r\nXGROUP CREATECONSUMER s h c\r\n");
        for (line, is_seen) in [
            ("XLEN s", false),
            ("XREADGROUP GROUP h c COUNT 1 STREAMS s >", false),
            ("XACK s h 1-0", false),
            ("XADD s 1000 a 1", true),
            ("XADD s 1001 a 1", true),
            ("XDEL s 1000", true),
            ("XTRIM s MAXLEN 1", true),
            ("XGROUP CREATE s g 0", true),
            ("XGROUP DESTROY s g", true),
        ] {
            house.say(&mut one, b"WATCH s\r\nMULTI\r\nPING\r\n");
            house.say(&mut other, format!("{line}\r\n").as_bytes());
            let said = house.say(&mut one, b"EXEC\r\n");
            assert_eq!(said, if is_seen { "*-1 " } else { "*1 +PONG " }, "{line} {count}");
        }
    }
}
