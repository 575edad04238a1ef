//! Commands in MULTI outside of its transaction.

use super::*;
use std::sync::atomic::Ordering::Relaxed;

/// However many commands there are: the replies are held in memory until all commands have run.
#[test]
fn the_reply_of_exec_is_bounded_as_a_whole() {
    for hello in ["", "HELLO 3\r\n"] {
        let mut house = House::new(false);
        let mut client = house.client();
        house.say(&mut client, hello.as_bytes());
        for command in ["COMMAND DOCS\r\n", "INFO everything\r\n"] {
            let limit = b"CONFIG SET client-output-buffer-limit \"normal 1mb 0 0\"\r\n";
            assert_eq!(house.say(&mut client, limit), "+OK ");
            let length = house.replies(&mut client, command.as_bytes()).len();
            let queued = command.repeat((4 << 20) / length + 1);
            house.say(&mut client, format!("MULTI\r\n{queued}").as_bytes());
            let said = house.replies(&mut client, b"EXEC\r\n").len();
            assert!(said < 2 << 20, "{said} bytes of {command}");
            assert!(client.client.entry.is_over_limit.swap(false, Relaxed));
        }
    }
}

#[test]
fn replies_stand_in_the_order_of_the_commands() {
    transcript(&[
        ("MULTI", "+OK"),
        ("PING", "+QUEUED"),
        ("SET a 1", "+QUEUED"),
        ("ECHO x", "+QUEUED"),
        ("PING y", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("LPUSH a 1", "+QUEUED"),
        ("GET a", "+QUEUED"),
        ("PING", "+QUEUED"),
        (
            "EXEC",
            "*8 +PONG +OK $1 x $1 y :2 -WRONGTYPE Operation against a key holding the wrong kind \
             of value $1 2 +PONG",
        ),
        ("MULTI", "+OK"),
        ("PING", "+QUEUED"),
        ("EXEC", "*1 +PONG"),
        ("MULTI", "+OK"),
        ("EXEC", "*0"),
        ("MULTI", "+OK"),
        ("CLIENT SETNAME me", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("CLIENT GETNAME", "$-1"),
        ("MULTI", "+OK"),
        ("SET a 3", "+QUEUED"),
        (
            "EXEC now",
            "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' \
             command",
        ),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("GET a", "$1 2"),
    ]);
}

#[test]
fn select_holds_for_what_follows_and_if_the_transaction_commits() {
    transcript(&[
        ("SET a 0", "+OK"),
        ("MULTI", "+OK"),
        ("SELECT 1", "+QUEUED"),
        ("SET a 1", "+QUEUED"),
        ("SELECT 99", "+QUEUED"),
        ("GET a", "+QUEUED"),
        ("SELECT 0", "+QUEUED"),
        ("GET a", "+QUEUED"),
        ("SELECT 1", "+QUEUED"),
        ("EXEC", "*7 +OK +OK -ERR DB index is out of range $1 1 +OK $1 0 +OK"),
        ("GET a", "$1 1"),
        ("WATCH a", "+OK"),
        ("SET a 2", "+OK"),
        ("MULTI", "+OK"),
        ("SELECT 0", "+QUEUED"),
        ("PING", "+QUEUED"),
        ("EXEC", "*-1"),
        ("GET a", "$1 2"),
        ("MULTI", "+OK"),
        ("SELECT 0", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("GET a", "$1 2"),
    ]);
}

#[test]
fn what_cannot_be_in_multi_is_refused_when_it_is_queued() {
    for refused in ["KEYS *", "SAVE", "SHUTDOWN", "CLIENT REPLY OFF", "CLIENT reply on"] {
        let mut house = House::new(false);
        let mut client = house.client();
        house.say(&mut client, b"MULTI\r\nSET a 1\r\n");
        let said = house.say(&mut client, format!("{refused}\r\n").as_bytes());
        assert!(said.contains("Command not allowed inside a transaction: send "), "{said}");
        let said = house.say(&mut client, b"EXEC\r\nEXISTS a\r\n");
        let expected = "-EXECABORT Transaction discarded because of previous errors. :0 ";
        assert_eq!(said, expected, "{refused}");
    }
}

#[test]
fn a_transaction_finds_its_own_keys() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"SET a 1\r\nMULTI\r\nSET b 1\r\nDEL a\r\nSCAN 0\r\nRANDOMKEY\r\n");
    let said = house.say(&mut client, b"EXEC\r\n");
    assert_eq!(said, "*4 +OK :1 *2 $1 0 *1 $1 b $1 b ");
}

#[test]
fn what_takes_a_while_is_refused_in_its_place() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"MULTI\r\nSET a 1\r\nDEBUG POPULATE 5\r\nGET a\r\n");
    let said = house.say(&mut client, b"EXEC\r\n");
    let refused = "-ERR DEBUG with these arguments takes a while: send it outside of MULTI";
    assert_eq!(said, format!("*3 +OK {refused} $1 1 "));
    assert_eq!(house.say(&mut client, b"DBSIZE\r\n"), ":1 ");
}

/// A transaction run by another thread, because it copies more than a loop should.
#[test]
fn a_large_transaction_has_its_other_replies_in_their_places() {
    let mut house = House::new(false);
    let mut client = house.client();
    let large = vec![b'x'; 600_000];
    let set = [format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${}\r\n", large.len()).into_bytes(), large];
    house.say(&mut client, b"MULTI\r\nPING 1\r\nSELECT 1\r\n");
    house.say(&mut client, &[set.concat(), b"\r\n".to_vec()].concat());
    house.say(&mut client, b"PING 2\r\nSTRLEN a\r\nPING 3\r\n");
    let expected = "*6 $1 1 +OK +OK $1 2 :600000 $1 3 ";
    assert_eq!(house.say(&mut client, b"EXEC\r\n"), expected);
    assert_eq!(house.say(&mut client, b"EXISTS a\r\n"), ":1 ");
    assert!(house.shared.stats.counters.large.load(Relaxed) > 0);
}

/// The array leaves as a whole, once its transaction is on disk.
#[test]
fn other_replies_wait_for_the_transaction() {
    let mut house = House::new(true);
    let mut client = house.client();
    client.feed(b"MULTI\r\nPING\r\nSET a 1\r\nEXEC\r\nPING\r\n");
    house.run(&mut client, 0);
    assert_eq!(take(&mut client), "");
    house.write_log();
    while !house.queue.is_empty() {
        house.queue.wait_for_one().unwrap();
        house.queue.drain(|(_, mark)| client.acknowledged(mark)).unwrap();
    }
    assert_eq!(take(&mut client), "+OK +QUEUED +QUEUED *2 +PONG +OK +PONG ");
}

#[test]
fn a_client_watches_so_many_keys_and_no_more() {
    let mut house = House::new(false);
    let mut client = house.client();
    let names = |from: usize| (from..from + 4_096).map(|n| format!(" k{n}")).collect::<String>();
    for at in 0..MOST_WATCHED / 4_096 {
        let watch = format!("WATCH{}\r\n", names(at * 4_096));
        assert_eq!(house.say(&mut client, watch.as_bytes()), "+OK ");
    }
    let said = house.say(&mut client, b"WATCH one\r\n");
    assert!(said.starts_with("-ERR this client watches"), "{said}");
    assert_eq!(house.say(&mut client, b"GET a\r\nUNWATCH\r\nWATCH a\r\n"), "$-1 +OK +OK ");
}

#[test]
fn a_silent_client_runs_all_and_hears_nothing() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"MULTI\r\nSET a 1\r\nSELECT 2\r\nPING\r\nSET b 2\r\n");
    // Inside MULTI, CLIENT REPLY would be refused: so it stands first.
    let said = house.say(&mut client, b"DISCARD\r\nCLIENT REPLY OFF\r\nMULTI\r\nSET a 1\r\n");
    assert_eq!(said, "+OK ");
    let said = house.say(&mut client, b"SELECT 2\r\nPING\r\nSET b 2\r\nEXEC\r\n");
    assert_eq!(said, "");
    let said = house.say(&mut client, b"CLIENT REPLY ON\r\nGET b\r\nSELECT 0\r\nGET a\r\n");
    assert_eq!(said, "+OK $1 2 +OK $1 1 ");
}

/// More commands than a loop runs at once, and more messages than a loop hands on at once.
#[test]
fn a_long_transaction_is_run_as_a_short_one_is() {
    const COMMANDS: usize = 3_000;
    let mut house = House::new(false);
    let (mut client, mut other, mut listener) = (house.client(), house.client(), house.client());
    house.say(&mut other, b"CONFIG SET notify-keyspace-events E$\r\n");
    house.say(&mut listener, b"SUBSCRIBE __keyevent@0__:incrby\r\n");
    let (begin, more) = ("MULTI\r\nINCR n\r\nPING\r\n", "INCR n\r\n".repeat(COMMANDS - 1));
    let queue = format!("{begin}{more}");
    house.say(&mut client, b"WATCH w\r\n");
    let said = house.say(&mut client, queue.as_bytes());
    assert_eq!(said, format!("+OK {}", "+QUEUED ".repeat(COMMANDS + 1)));
    let said = house.say(&mut client, b"EXEC\r\nGET n\r\n");
    let counted: String = (2..=COMMANDS).map(|n| format!(":{n} ")).collect();
    assert_eq!(said, format!("*{} :1 +PONG {counted}$4 3000 ", COMMANDS + 1));
    assert_eq!(house.shared.stats.counters.large.load(Relaxed), 1);
    assert!(client.has_delivered());
    let heard = house.say(&mut listener, b"");
    assert_eq!(heard.matches("$7 message $21 __keyevent@0__:incrby $1 n ").count(), COMMANDS);
    // A watched key has changed.
    house.say(&mut client, b"WATCH w\r\n");
    house.say(&mut other, b"SET w 1\r\n");
    house.say(&mut client, queue.as_bytes());
    assert_eq!(house.say(&mut client, b"EXEC\r\nGET n\r\n"), "*-1 $4 3000 ");
    // The user may not run some commands any more.
    house.say(&mut other, b"ACL SETUSER few on nopass ~* +@all\r\n");
    house.say(&mut client, b"AUTH few x\r\nMULTI\r\nGET n\r\n");
    house.say(&mut client, queue.split_once("\r\n").unwrap().1.as_bytes());
    house.say(&mut other, b"ACL SETUSER few -incr\r\n");
    let said = house.say(&mut client, b"EXEC\r\nGET n\r\n");
    assert!(said.starts_with(&format!("*{} $4 3000 -NOPERM ", COMMANDS + 2)));
    assert!(said.ends_with(" $4 3000 "));
    assert_eq!(said.matches("-NOPERM ").count(), COMMANDS);
}
