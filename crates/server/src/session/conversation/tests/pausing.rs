//! CLIENT PAUSE.

use super::scripts::request;
use super::*;
use std::time::Duration;

/// Lines and replies of two clients; `!` marks lines of the pausing client.
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
    for line in ["PUBLISH c m", "MSET a 1 b 2", "EXPIRE a 0", "FLUSHALL"] {
        clients(&[("!CLIENT PAUSE 100000 WRITE", "+OK"), (line, ""), ("!DBSIZE", ":0")]);
    }
    clients(&[
        ("MULTI", "+OK"),
        ("INCR a", "+QUEUED"),
        ("!MULTI", "+OK"),
        ("!GET a", "+QUEUED"),
        ("!CLIENT PAUSE 100000 WRITE", "+QUEUED"),
        ("!INCR b", "+QUEUED"),
        // The pause begins at the end of its transaction.
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
fn messages_of_a_transaction_wait() {
    clients(&[
        ("MULTI", "+OK"),
        ("PUBLISH c m", "+QUEUED"),
        ("!CLIENT PAUSE 100000 WRITE", "+OK"),
        ("EXEC", ""),
        ("!CLIENT UNPAUSE", "+OK"),
        ("", "*1 :0"),
    ]);
}

/// The time of a command that waits for an element begins when the command runs.
#[test]
fn a_blocking_command_begins_to_wait_after_it() {
    let mut house = House::new(false);
    let (mut other, mut admin) = (house.client(), house.client());
    let id = house.say(&mut other, b"CLIENT ID\r\n").trim_end().replace(':', "");
    assert_eq!(house.say(&mut admin, b"CLIENT PAUSE 100000 WRITE\r\n"), "+OK ");
    assert_eq!(house.say(&mut other, b"BLPOP l 1\r\n"), "");
    assert_eq!(other.deadline(), None);
    // UNBLOCK does not end the wait for a pause.
    let unblock = format!("CLIENT UNBLOCK {id}\r\n");
    assert_eq!(house.say(&mut admin, unblock.as_bytes()), ":0 ");
    assert_eq!(house.say(&mut admin, b"CLIENT UNPAUSE\r\n"), "+OK ");
    let ended = Instant::now();
    assert_eq!(house.say(&mut other, b""), "");
    let deadline = other.deadline().expect("it waits now");
    assert!(deadline >= ended + Duration::from_secs(1));
    std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
    assert_eq!(house.say(&mut other, b""), "*-1 ");
}

#[test]
fn what_is_refused_does_not_wait() {
    let mut house = House::new(false);
    let mut admin = house.client();
    let said = house.say(&mut admin, b"CONFIG SET requirepass x\r\nCLIENT PAUSE 100000\r\n");
    assert_eq!(said, "+OK +OK ");
    let mut other = house.client();
    assert_eq!(house.say(&mut other, b"GET a\r\n"), "-NOAUTH Authentication required. ");
}

/// The connection is closed, the command dropped.
#[test]
fn a_client_that_hangs_up_leaves_nothing_to_run() {
    let mut house = House::new(false);
    let (mut other, mut admin) = (house.client(), house.client());
    assert_eq!(house.say(&mut admin, b"CLIENT PAUSE 100000\r\n"), "+OK ");
    assert_eq!(house.say(&mut other, b"INCR n\r\n"), "");
    assert!(other.has_work() && other.is_idle() && other.is_set_aside());
}

#[test]
fn all_commands_wait_until_it_ends() {
    let mut house = House::new(false);
    let (mut other, mut admin) = (house.client(), house.client());
    assert_eq!(house.say(&mut admin, b"CLIENT PAUSE 1500\r\nCLIENT UNPAUSE\r\n"), "+OK ");
    assert_eq!(house.say(&mut other, b"PING\r\n"), "");
    assert_eq!(house.shared.limits.pause.clients(), 2);
    while house.shared.limits.pause.running().is_some() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(house.say(&mut other, b""), "+PONG ");
    assert_eq!(house.say(&mut other, b"PING\r\n"), "+PONG ");
    assert_eq!(house.shared.limits.pause.clients(), 1);
    // A client that leaves waits no longer.
    drop(admin);
    assert_eq!(house.shared.limits.pause.clients(), 0);
}

#[test]
fn its_arguments_are_checked() {
    transcript(&[
        ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "-ERR timeout is negative"),
        ("CLIENT PAUSE 1 READ", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
        ("CLIENT PAUSE 9223372036854775807", "-ERR timeout is out of range"),
        ("CLIENT PAUSE 1000000000000000000 write", "+OK"),
        ("GET a", "$-1"),
        ("CLIENT UNPAUSE", "+OK"),
        ("SET a 1", "+OK"),
        ("CLIENT PAUSE 0", "+OK"),
        ("SET a 2", "+OK"),
    ]);
}

#[test]
fn scripts_that_only_read_do_not_wait() {
    let mut house = House::new(false);
    let (mut client, mut admin) = (house.client(), house.client());
    let reads = "#!lua flags=no-writes\nreturn 1";
    let library = "#!lua name=l\nredis.register_function{function_name='f', flags={'no-writes'}, \
                   callback=function() return 2 end}\n\
                   redis.register_function('w', function() return 3 end)";
    house.say(&mut admin, &request(&["FUNCTION", "LOAD", library]));
    let sha = house.say(&mut admin, &request(&["SCRIPT", "LOAD", reads]));
    let sha = sha.split(' ').nth(1).unwrap().to_owned();
    house.say(&mut admin, b"CLIENT PAUSE 100000 WRITE\r\n");
    let mut says = |args: &[&str], expected: &str| {
        assert_eq!(house.say(&mut client, &request(args)).trim_end(), expected, "{args:?}");
    };
    says(&["EVAL", reads, "0"], ":1");
    says(&["EVAL_RO", "return 1", "0"], ":1");
    says(&["EVALSHA", &sha, "0"], ":1");
    says(&["FCALL", "F", "0"], ":2");
    says(&["SCRIPT", "LOAD", "return 4"], "$40 ff408129b095e878eae274cc5f315244f0b5360f");
    says(&["MULTI"], "+OK");
    says(&["EVAL", reads, "0"], "+QUEUED");
    says(&["EXEC"], "*1 :1");
    says(&["FCALL", "w", "0"], "");
    let mut other = house.client();
    let said = house.say(&mut other, &request(&["EVAL", "return 1", "0"]));
    assert_eq!(said, "", "it may write");
    let mut third = house.client();
    house.say(&mut third, &request(&["MULTI"]));
    house.say(&mut third, &request(&["EVAL", "return 1", "0"]));
    assert_eq!(house.say(&mut third, b"EXEC\r\n"), "");
    house.say(&mut admin, b"CLIENT UNPAUSE\r\n");
    assert_eq!(house.say(&mut other, b"").trim_end(), ":1");
    assert_eq!(house.say(&mut client, b"").trim_end(), ":3");
}
