//! SAVE, BGSAVE and BGREWRITEAOF.

use super::*;

/// The value of a line of INFO.
fn told(house: &mut House, client: &mut Conversation, name: &str) -> String {
    let said = String::from_utf8(house.replies(client, b"INFO persistence\r\n")).unwrap();
    let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("INFO has it").to_string()
}

/// No thread takes checkpoints here, so a begun checkpoint stays under way.
#[test]
fn the_background_is_begun_at_once_and_one_at_a_time() {
    let mut house = House::new(false);
    let mut client = house.client();
    for (name, before) in [
        ("rdb_bgsave_in_progress", "0"),
        ("rdb_current_bgsave_time_sec", "-1"),
        ("rdb_last_bgsave_time_sec", "-1"),
        ("aof_rewrite_in_progress", "0"),
    ] {
        assert_eq!(told(&mut house, &mut client, name), before, "{name}");
    }
    let say = |house: &mut House, client: &mut Conversation, text: &str| {
        house.say(client, format!("{text}\r\n").as_bytes())
    };
    let under_way = "-ERR Background save already in progress ";
    for (command, reply) in [
        ("BGSAVE now", "-ERR syntax error "),
        ("BGSAVE", "+Background saving started "),
        ("BGSAVE", under_way),
        ("BGSAVE schedule", under_way),
        ("SAVE", under_way),
        ("BGREWRITEAOF", "+Background append only file rewriting scheduled "),
        // Other commands go on meanwhile.
        ("SET a 1", "+OK "),
    ] {
        assert_eq!(say(&mut house, &mut client, command), reply, "{command}");
    }
    for (name, now) in [
        ("rdb_bgsave_in_progress", "1"),
        ("aof_rewrite_in_progress", "0"),
        ("aof_rewrite_scheduled", "1"),
        ("rdb_last_bgsave_status", "ok"),
    ] {
        assert_eq!(told(&mut house, &mut client, name), now, "{name}");
    }
    let seconds = told(&mut house, &mut client, "rdb_current_bgsave_time_sec").parse::<u64>();
    assert!(seconds.as_ref().is_ok_and(|seconds| *seconds < 60), "{seconds:?}");
}

#[test]
fn a_rewrite_is_not_a_save() {
    let mut house = House::new(false);
    let mut client = house.client();
    let said =
        house.say(&mut client, b"BGREWRITEAOF\r\nBGREWRITEAOF\r\nBGSAVE\r\nBGSAVE SCHEDULE\r\n");
    let expected = "+Background append only file rewriting started -ERR Background append only \
                    file rewriting already in progress -ERR Another child process is active \
                    (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to schedule a \
                    BGSAVE whenever possible. +Background saving scheduled ";
    assert_eq!(said, expected);
    assert_eq!(told(&mut house, &mut client, "rdb_bgsave_in_progress"), "0");
    assert_eq!(told(&mut house, &mut client, "aof_rewrite_in_progress"), "1");
}

/// The save begins when the transaction has committed, so it is not said to have started.
#[test]
fn in_a_transaction_it_is_said_to_follow() {
    let mut house = House::new(false);
    let (mut client, mut other) = (house.client(), house.client());
    // A command that EXEC does not run begins nothing.
    house.say(&mut client, b"WATCH w\r\nMULTI\r\nBGREWRITEAOF\r\n");
    house.say(&mut other, b"SET w 1\r\n");
    assert_eq!(house.say(&mut client, b"EXEC\r\n"), "*-1 ");
    house.say(&mut client, b"MULTI\r\nSET a 1\r\nBGREWRITEAOF\r\nBGREWRITEAOF\r\n");
    house.say(&mut client, b"BGSAVE\r\nGET a\r\n");
    assert_eq!(told(&mut house, &mut other, "aof_rewrite_in_progress"), "0");
    let expected = "*5 +OK +Background append only file rewriting scheduled -ERR Background append \
                    only file rewriting already in progress +Background saving scheduled $1 1 ";
    assert_eq!(house.say(&mut client, b"EXEC\r\n"), expected);
    assert_eq!(told(&mut house, &mut other, "aof_rewrite_in_progress"), "1");
}

/// With times of saving set, Redis saves at FLUSHALL; here FLUSHALL leaves nothing to save.
#[test]
fn flushall_leaves_no_changes_to_save() {
    let mut house = House::new(false);
    let mut client = house.client();
    let changes = |house: &mut House, client: &mut Conversation, lines: &str| {
        house.say(client, lines.replace(';', "\r\n").as_bytes());
        told(house, client, "rdb_changes_since_last_save")
    };
    assert_eq!(changes(&mut house, &mut client, "MSET a 1 b 1;FLUSHDB;"), "2");
    assert_eq!(changes(&mut house, &mut client, "FLUSHALL;"), "0");
    assert_eq!(changes(&mut house, &mut client, "MULTI;SET a 1;FLUSHALL;SET b 1;EXEC;"), "1");
    assert_eq!(changes(&mut house, &mut client, "MULTI;SET a 1;FLUSHALL x;EXEC;"), "2");
    assert_eq!(changes(&mut house, &mut client, "CONFIG SET save \"\";SET a 2;FLUSHALL;"), "3");
}

#[test]
fn save_replies_once_it_is_done() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"SET a 1\r\nSET b 1\r\n");
    assert_eq!(told(&mut house, &mut client, "rdb_changes_since_last_save"), "2");
    house.say(&mut client, b"CONFIG RESETSTAT\r\n");
    assert_eq!(told(&mut house, &mut client, "rdb_changes_since_last_save"), "2");
    assert_eq!(house.say(&mut client, b"SAVE\r\n"), "+OK ");
    assert_eq!(told(&mut house, &mut client, "rdb_changes_since_last_save"), "0");
    assert_eq!(told(&mut house, &mut client, "rdb_saves"), "1");
    let seconds = told(&mut house, &mut client, "rdb_last_bgsave_time_sec").parse::<u64>();
    assert!(seconds.as_ref().is_ok_and(|seconds| *seconds < 60), "{seconds:?}");
    let said = house.say(&mut client, b"LASTSAVE\r\n");
    let at: u64 = said.trim().strip_prefix(':').unwrap().parse().unwrap();
    assert!(at.abs_diff(crate::base::clock::wall_us() / 1_000_000) < 60);
}
