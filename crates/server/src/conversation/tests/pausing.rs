//! CLIENT PAUSE.

use super::*;
use std::time::Duration;

/// What two clients say and hear; `!` is said by the one that pauses.
fn clients(lines: &[(&str, &str)]) {
    let mut house = House::new(false);
    let (mut other, mut admin) = (house.client(), house.client());
    for (line, expected) in lines {
        let said = match line.strip_prefix('!') {
            Some(line) => house.say(&mut admin, format!("{line}\r\n").as_bytes()),
            None => {
                let line = if line.is_empty() { String::new() } else { format!("{line}\r\n") };
                house.say(&mut other, line.as_bytes())
            }
        };
        assert_eq!(said.trim_end(), *expected, "{line}");
    }
}

#[test]
fn writes_wait_and_reads_do_not() {
    clients(&[
        ("SET a 1", "+OK"),
        ("!CLIENT PAUSE 100000 WRITE", "+OK"),
        ("GET a", "$1 1"),
        ("SET a", "-ERR wrong number of arguments for 'set' command"),
        ("SET a 2", ""),
        ("GET a", ""),
        ("!GET a", "$1 1"),
        ("!CLIENT UNPAUSE", "+OK"),
        ("", "+OK $1 2"),
        ("!GET a", "$1 2"),
    ]);
}

#[test]
fn what_others_would_notice_waits() {
    for line in ["PUBLISH c m", "BLPOP l 0.001", "MSET a 1 b 2", "EXPIRE a 0", "FLUSHALL"] {
        clients(&[("!CLIENT PAUSE 100000 WRITE", "+OK"), (line, ""), ("!DBSIZE", ":0")]);
    }
    clients(&[
        ("MULTI", "+OK"),
        ("INCR a", "+QUEUED"),
        ("!MULTI", "+OK"),
        ("!GET a", "+QUEUED"),
        ("!CLIENT PAUSE 100000 WRITE", "+QUEUED"),
        ("!INCR b", "+QUEUED"),
        // It begins at the end of its transaction.
        ("!EXEC", "*3 $-1 +OK :1"),
        ("EXEC", ""),
        ("!MULTI", "+OK"),
        ("!GET a", "+QUEUED"),
        ("!EXEC", "*1 $-1"),
        ("!CLIENT UNPAUSE", "+OK"),
        ("", "*1 :1"),
    ]);
}

#[test]
fn all_commands_wait_until_it_ends() {
    let mut house = House::new(false);
    let (mut other, mut admin) = (house.client(), house.client());
    assert_eq!(house.say(&mut admin, b"CLIENT PAUSE 60\r\nCLIENT UNPAUSE\r\n"), "+OK ");
    assert_eq!(house.say(&mut other, b"PING\r\n"), "");
    assert_eq!(house.shared.pause.clients(), 2);
    std::thread::sleep(Duration::from_millis(70));
    assert_eq!(house.say(&mut other, b""), "+PONG ");
    assert_eq!(house.say(&mut other, b"PING\r\n"), "+PONG ");
    assert_eq!(house.shared.pause.clients(), 1);
    // A client that leaves waits no longer.
    drop(admin);
    assert_eq!(house.shared.pause.clients(), 0);
}

#[test]
fn its_arguments_are_checked() {
    transcript(&[
        ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "-ERR timeout is negative"),
        ("CLIENT PAUSE 1 READ", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
        ("CLIENT PAUSE 9223372036854775807 write", "+OK"),
        ("GET a", "$-1"),
        ("CLIENT UNPAUSE", "+OK"),
        ("SET a 1", "+OK"),
        ("CLIENT PAUSE 0", "+OK"),
        ("SET a 2", "+OK"),
    ]);
}
