//! MIGRATE, to scripted targets.

use super::*;
use crate::rdb;
use crate::resp::request::{Limits, Parsed, Parser};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

/// The words of a command.
pub type Words = Vec<Vec<u8>>;

/// The reaction of a target to a command.
pub enum Does {
    Reply(&'static str),
    /// Closes the connection behind the reply, which may be empty.
    Close(&'static str),
    /// Replies, closes the connection, and reports the close.
    HangUp(&'static str, Sender<()>),
    /// Replies, and sends another text once the test is at the barrier; both meet there again
    /// afterwards.
    Add(&'static str, &'static str, Arc<Barrier>),
    /// Replies in pieces of a byte.
    Spell(&'static str),
    /// Sends nothing more.
    Hang,
}
pub use Does::{Add, Close, Hang, HangUp, Reply as Say, Spell};

/// A target that asks `react` for its reaction to each command, with the number of the connection.
/// Returns the target's port, and the commands read.
pub fn target(
    react: impl FnMut(usize, &[Vec<u8>]) -> Does + Send + 'static,
) -> (u16, Receiver<(usize, Words)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let ((sender, read), react) = (channel(), Arc::new(Mutex::new(react)));
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (stream, sender, react) = (stream.unwrap(), sender.clone(), react.clone());
            std::thread::spawn(move || {
                serve(stream, |words| {
                    let does = (*react.lock().unwrap())(number, &words);
                    // The test may have ended.
                    let _ = sender.send((number, words));
                    does
                });
            });
        }
    });
    (port, read)
}

/// A connection of a target.
fn serve(mut stream: TcpStream, mut react: impl FnMut(Words) -> Does) {
    let (mut parser, mut input) = (Parser::default(), Vec::new());
    let limits = Limits { arguments: 9, argument_bytes: 1 << 30 };
    loop {
        let Parsed::Request(length) = parser.next(&input, &limits).unwrap() else {
            let mut buffer = [0; 4096];
            match stream.read(&mut buffer).unwrap_or(0) {
                0 => return,
                read => input.extend_from_slice(&buffer[..read]),
            }
            continue;
        };
        let words = parser.arguments(&input).iter().map(<[u8]>::to_vec).collect();
        input.drain(..length);
        match react(words) {
            Say(text) => stream.write_all(text.as_bytes()).unwrap(),
            Close(text) => {
                // The other side may have closed the connection already.
                let _ = stream.write_all(text.as_bytes());
                return;
            }
            HangUp(text, tells) => {
                stream.write_all(text.as_bytes()).unwrap();
                drop(stream);
                return tells.send(()).unwrap();
            }
            Add(text, more, meets) => {
                stream.write_all(text.as_bytes()).unwrap();
                meets.wait();
                stream.write_all(more.as_bytes()).unwrap();
                meets.wait();
            }
            Spell(text) => {
                stream.set_nodelay(true).unwrap();
                for byte in text.as_bytes() {
                    stream.write_all(&[*byte]).unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            Hang => drop(stream.read_to_end(&mut Vec::new())),
        }
    }
}

/// A target that says OK to all.
pub fn agrees() -> (u16, Receiver<(usize, Words)>) {
    target(|_, _| Say("+OK\r\n"))
}

/// Whether a command has the given name.
pub fn is(words: &[Vec<u8>], name: &str) -> bool {
    words[0].eq_ignore_ascii_case(name.as_bytes())
}

/// The commands read by a target, without payloads.
pub fn all_read(read: &Receiver<(usize, Words)>) -> Vec<String> {
    let mut all = Vec::new();
    while let Ok((number, words)) = read.try_recv() {
        let shown = words.iter().enumerate().filter(|(at, _)| *at != 3 || !is(&words, "RESTORE"));
        let shown = shown.map(|(_, word)| String::from_utf8_lossy(word).into_owned());
        all.push(format!("{number}: {}", shown.collect::<Vec<_>>().join(" ")));
    }
    all
}

pub fn migrate(house: &mut House, client: &mut Conversation, rest: &str) -> String {
    house.say(client, format!("MIGRATE 127.0.0.1 {rest}\r\n").as_bytes())
}

#[test]
fn keys_are_sent_and_removed_and_the_connection_is_kept() {
    let mut house = House::new(false);
    let mut client = house.client();
    let (port, read) = agrees();
    house.say(&mut client, b"SELECT 1\r\nSET a 1\r\nSET b 2\r\nSET c 3\r\nSET d 4 PX 100000\r\n");
    assert_eq!(migrate(&mut house, &mut client, &format!("{port} a 7 1000")), "+OK ");
    assert_eq!(migrate(&mut house, &mut client, &format!("{port} b 7 0 COPY")), "+OK ");
    let several = format!("{port} \"\" 8 1000 REPLACE KEYS none b c none c");
    assert_eq!(migrate(&mut house, &mut client, &several), "+OK ");
    assert_eq!(house.say(&mut client, b"EXISTS a b c d\r\nDBSIZE\r\n"), ":1 :1 ");
    assert_eq!(
        all_read(&read),
        [
            "0: SELECT 7",
            "0: RESTORE a 0",
            "0: RESTORE b 0",
            "0: SELECT 8",
            "0: RESTORE b 0 REPLACE",
            "0: RESTORE c 0 REPLACE",
        ]
    );
    assert_eq!(migrate(&mut house, &mut client, &format!("{port} d 8 1000")), "+OK ");
    let (_, words) = read.recv().unwrap();
    let ttl: u64 = String::from_utf8(words[2].clone()).unwrap().parse().unwrap();
    assert!((90_000..=100_000).contains(&ttl), "{ttl}");
    assert_eq!(words[3], rdb::string(b"4"), "as DUMP replies it");
    let info = house.say(&mut client, b"INFO stats\r\n");
    assert!(info.contains("migrate_cached_sockets:1 "), "{info}");
}

#[test]
fn the_request_is_checked_before_a_connection_is_made() {
    let wrong_port = "-ERR the port is not from 1 to 65535";
    let integer = "-ERR value is not an integer or out of range";
    let empty = "-ERR When using MIGRATE KEYS option, the key argument must be set to the empty \
                 string";
    transcript(&[
        ("MIGRATE h 1 a 0", "-ERR wrong number of arguments for 'migrate' command"),
        ("MIGRATE h 1 a 0 1", "+NOKEY"),
        ("MIGRATE h 1 \"\" 0 1 KEYS", "+NOKEY"),
        ("MIGRATE h 1 \"\" 0 1 KEYS a b", "+NOKEY"),
        ("SET a 1", "+OK"),
        ("MIGRATE h 0 a 0 1", wrong_port),
        ("MIGRATE h 65536 a 0 1", wrong_port),
        ("MIGRATE h -1 a 0 1", wrong_port),
        ("MIGRATE h x a 0 1", wrong_port),
        ("MIGRATE \"\\xff\" 1 a 0 1", "-ERR the host is not UTF-8"),
        ("MIGRATE h 1 a x 1", integer),
        ("MIGRATE h 1 a 0 x", integer),
        ("MIGRATE h 1 a 0 1 MOVE", "-ERR syntax error"),
        ("MIGRATE h 1 a 0 1 AUTH", "-ERR syntax error"),
        ("MIGRATE h 1 a 0 1 AUTH2 user", "-ERR syntax error"),
        ("MIGRATE h 1 a 0 1 COPY KEYS b", empty),
        // No host has such a name.
        ("MIGRATE \"\\x00\" 1 a 0 1", CONNECTING),
        // Nothing listens there.
        ("MIGRATE 127.0.0.1 1 a 0 5000", WRITING),
        ("GET a", "$1 1"),
        ("MULTI", "+OK"),
        (
            "MIGRATE h 1 a 0 1",
            "-ERR Command not allowed inside a transaction: send MIGRATE outside of MULTI",
        ),
        ("DISCARD", "+OK"),
        ("COMMAND GETKEYS MIGRATE h 1 \"\" 0 1 COPY KEYS a b", "*2 $1 a $1 b"),
    ]);
}

const CONNECTING: &str = "-IOERR error or timeout connecting to the client";
const WRITING: &str = "-IOERR error or timeout writing to target instance";
const READING: &str = "-IOERR error or timeout reading from target instance";
pub const FOREIGN: &str = "-IOERR the target instance replies neither OK nor an error, or more \
                           than it was asked: it may be no server of this protocol";

/// Any reply of a target other than OK leaves the key here.
#[test]
fn a_key_stays_unless_the_target_says_ok() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"SET a 1\r\n");
    let busy = "-BUSYKEY Target key name already exists.\r\n";
    let told = "-ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    for (first, second, expected) in [
        (Say("+OK\r\n"), Say(busy), told),
        (Say("-ERR no\r\n"), Hang, "-ERR Target instance replied with error: ERR no"),
        (Say("+OK\r\n"), Say("+PONG\r\n"), FOREIGN),
        (Say("+OK\r\n"), Say(":1\r\n"), FOREIGN),
        (Say("+OK\r\n"), Say("+OK\n"), FOREIGN),
        (Say("HTTP/1.1 400 Bad Request\r\n\r\n"), Hang, FOREIGN),
        (Say("+OK\r\n"), Close(""), READING),
        (Close("+OK\r\n"), Hang, READING),
        (Say("+OK\r\n"), Close("+O"), READING),
        (Close(""), Hang, READING),
    ] {
        let mut replies = [Some(first), Some(second)];
        let mut number = 0;
        let (port, _read) = target(move |_, _| {
            number += 1;
            replies.get_mut(number - 1).and_then(Option::take).unwrap_or(Hang)
        });
        let said = migrate(&mut house, &mut client, &format!("{port} a 0 10000"));
        // Whether the second command was sent before the end is seen, is a matter of moments.
        let said = said.replace("writing to", "reading from");
        assert_eq!(said.trim_end(), expected);
        assert_eq!(house.say(&mut client, b"GET a\r\n"), "$1 1 ", "{expected}");
    }
}

#[test]
fn a_reply_without_an_end_is_none() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"SET a 1\r\n");
    let long: &'static str = "x".repeat(1 << 20).leak();
    let (port, _read) = target(move |_, _| Close(long));
    let said = migrate(&mut house, &mut client, &format!("{port} a 0 10000"));
    assert_eq!((said.trim_end(), house.say(&mut client, b"EXISTS a\r\n")), (FOREIGN, ":1 ".into()));
}

/// The other keys are removed, and the first error is told.
#[test]
fn of_several_keys_those_stay_that_the_target_refuses() {
    let mut house = House::new(false);
    let mut client = house.client();
    let (port, read) = target(|_, words| match &words[1][..] {
        b"b" => Say("-BUSYKEY first\r\n"),
        b"d" => Say("-BUSYKEY second\r\n"),
        _ => Say("+OK\r\n"),
    });
    house.say(&mut client, b"MSET a 1 b 2 c 3 d 4 e 5\r\n");
    let said = migrate(&mut house, &mut client, &format!("{port} \"\" 0 5000 KEYS a b c d e"));
    assert_eq!(said, "-ERR Target instance replied with error: BUSYKEY first ");
    assert_eq!(house.say(&mut client, b"MGET a b c d e\r\n"), "*5 $-1 $1 2 $-1 $1 4 $-1 ");
    assert_eq!(all_read(&read).len(), 6);
    let stats = house.say(&mut client, b"INFO errorstats\r\nINFO commandstats\r\n");
    assert!(stats.contains("errorstat_ERR:count=1 "), "{stats}");
    assert!(stats.contains("cmdstat_migrate:calls=1,") && stats.contains("failed_calls=1 "));
}

/// The time counts while no bytes arrive.
#[test]
fn a_target_is_not_waited_for_longer_than_is_asked() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"SET a 1\r\n");
    let (port, _read) = target(|_, words| if is(words, "SELECT") { Say("+OK\r\n") } else { Hang });
    let began = Instant::now();
    let said = migrate(&mut house, &mut client, &format!("{port} a 0 120"));
    assert_eq!(said.trim_end(), READING);
    let time = began.elapsed();
    assert!(time >= Duration::from_millis(120) && time < Duration::from_secs(20), "{time:?}");
    assert_eq!(house.say(&mut client, b"EXISTS a\r\n"), ":1 ");
    let info = house.say(&mut client, b"INFO stats\r\n");
    assert!(info.contains("migrate_cached_sockets:0 "), "a reply may still come there");
}

/// The time is for each step, and not for all steps together.
#[test]
fn a_slow_target_is_waited_for_as_long_as_it_goes_on() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"MSET a 1 b 2 c 3 d 4\r\n");
    let (port, _read) = target(|_, _| {
        std::thread::sleep(Duration::from_millis(900));
        Say("+OK\r\n")
    });
    let began = Instant::now();
    let said = migrate(&mut house, &mut client, &format!("{port} \"\" 0 4000 KEYS a b c d"));
    assert_eq!(said, "+OK ");
    assert!(began.elapsed() > Duration::from_millis(4_000));
}

/// A target may close a silent connection: this is no error.
#[test]
fn a_kept_connection_that_was_closed_is_made_anew() {
    let mut house = House::new(false);
    let mut client = house.client();
    let (tells, is_closed) = channel();
    let (port, read) = target(move |number, words| match number {
        0 if is(words, "RESTORE") => HangUp("+OK\r\n", tells.clone()),
        _ => Say("+OK\r\n"),
    });
    house.say(&mut client, b"MSET a 1 b 2\r\n");
    assert_eq!(migrate(&mut house, &mut client, &format!("{port} a 3 5000")), "+OK ");
    is_closed.recv_timeout(Duration::from_secs(60)).unwrap();
    // The close arrives.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(migrate(&mut house, &mut client, &format!("{port} b 3 5000")), "+OK ");
    let all = all_read(&read);
    assert_eq!(all, ["0: SELECT 3", "0: RESTORE a 0", "1: SELECT 3", "1: RESTORE b 0"]);
}

/// A client gets no connection with the login of another client.
#[test]
fn credentials_are_sent_first_and_belong_to_their_connection() {
    let mut house = House::new(false);
    let mut client = house.client();
    let (port, read) = target(|_, words| match is(words, "AUTH") && words[1] == b"wrong" {
        true => Say("-WRONGPASS invalid\r\n"),
        false => Say("+OK\r\n"),
    });
    house.say(&mut client, b"MSET a 1 b 2 c 3 d 4\r\n");
    for (rest, expected) in [
        ("a 0 5000 AUTH secret", "+OK "),
        ("b 0 5000 COPY", "+OK "),
        ("b 0 5000 AUTH secret", "+OK "),
        ("c 0 5000 AUTH2 user secret", "+OK "),
        ("d 0 5000 AUTH wrong", "-ERR Target instance replied with error: WRONGPASS invalid "),
        ("d 0 5000 AUTH wrong", "-ERR Target instance replied with error: WRONGPASS invalid "),
    ] {
        let said = migrate(&mut house, &mut client, &format!("{port} {rest}"));
        assert_eq!(said, expected, "{rest}");
    }
    assert_eq!(house.say(&mut client, b"EXISTS a b c d\r\n"), ":1 ");
    let expected = [
        "0: AUTH secret",
        "0: SELECT 0",
        "0: RESTORE a 0",
        "1: SELECT 0",
        "1: RESTORE b 0",
        "0: AUTH secret",
        "0: RESTORE b 0",
        "2: AUTH user secret",
        "2: SELECT 0",
        "2: RESTORE c 0",
        // The connection is not kept.
        "3: AUTH wrong",
        "4: AUTH wrong",
    ];
    assert_eq!(all_read(&read), expected);
    let info = house.say(&mut client, b"INFO stats\r\n");
    assert!(info.contains("migrate_cached_sockets:3 "), "{info}");
}

#[test]
fn many_keys_are_sent_in_batches() {
    const KEYS: usize = 1_000;
    let mut house = House::new(false);
    let mut client = house.client();
    let (port, read) = agrees();
    let sets: String = (0..KEYS).map(|n| format!("SET k{n} x{}\r\n", "y".repeat(n))).collect();
    house.say(&mut client, sets.as_bytes());
    let names: String = (0..KEYS).map(|n| format!(" k{n}")).collect();
    let said = migrate(&mut house, &mut client, &format!("{port} \"\" 0 20000 KEYS{names}"));
    assert_eq!((said.as_str(), house.say(&mut client, b"DBSIZE\r\n")), ("+OK ", ":0 ".into()));
    assert_eq!(all_read(&read).len(), 1 + KEYS);
}

#[test]
fn rules_hold_for_each_key() {
    let mut house = House::new(false);
    let (mut admin, mut client) = (house.client(), house.client());
    let (port, read) = agrees();
    house.say(&mut admin, b"ACL SETUSER u on >p +@all ~k* %R~r* %W~w*\r\nMSET k1 1 r1 1 w1 1\r\n");
    house.say(&mut client, b"AUTH u p\r\n");
    let refused = "-NOPERM this user has no permissions to access one of the keys used as \
                   arguments ";
    for keys in ["r1 0 1", "w1 0 1", "\"\" 0 1", "\"\" 0 1 KEYS k1 r1", "r1 0 1 KEYS k1"] {
        assert_eq!(migrate(&mut house, &mut client, &format!("{port} {keys}")), refused, "{keys}");
    }
    for (rule, may) in [("-@dangerous", false), ("+migrate", true), ("-@keyspace", false)] {
        house.say(&mut admin, format!("SET k1 1\r\nACL SETUSER u {rule}\r\n").as_bytes());
        let said = migrate(&mut house, &mut client, &format!("{port} k1 0 5000"));
        assert_eq!(said == "+OK ", may, "{rule}: {said}");
        assert_eq!(said.contains("no permissions to run the 'migrate'"), !may, "{rule}: {said}");
    }
    assert_eq!(all_read(&read), ["0: SELECT 0", "0: RESTORE k1 0"]);
}

#[test]
fn a_removal_is_an_event_and_a_silent_client_hears_nothing() {
    let mut house = House::new(false);
    let (mut listens, mut client) = (house.client(), house.client());
    let (port, _read) = agrees();
    house.say(&mut client, b"CONFIG SET notify-keyspace-events AEm\r\nMSET a 1 b 2 c 3\r\n");
    house.say(&mut listens, b"SUBSCRIBE __keyevent@0__:del __keyevent@0__:keymiss\r\n");
    let said = house.say(&mut client, format!(
        "CLIENT REPLY OFF\r\nMIGRATE 127.0.0.1 {port} a 0 5000\r\nMIGRATE 127.0.0.1 {port} none \
         0 1\r\nMIGRATE 127.0.0.1 1 b 0 1\r\nCLIENT REPLY ON\r\nCLIENT REPLY SKIP\r\nMIGRATE \
         127.0.0.1 {port} b 0 5000\r\nMIGRATE 127.0.0.1 {port} c 0 5000 COPY\r\nDBSIZE\r\n"
    ).as_bytes());
    assert_eq!(said, "+OK +OK :1 ");
    let said = house.say(&mut listens, b"");
    let message = |event: &str, key: &str| {
        let channel = format!("__keyevent@0__:{event}");
        format!("*3 $7 message ${} {channel} ${} {key} ", channel.len(), key.len())
    };
    let expected = [message("del", "a"), message("keymiss", "none"), message("del", "b")];
    assert_eq!(said, expected.concat());
}

/// Nor does MONITOR show the credentials for the target.
#[test]
fn passwords_of_targets_are_not_shown() {
    let mut house = House::new(false);
    let (mut client, mut monitor) = (house.client(), house.client());
    house.say(&mut client, b"CONFIG SET slowlog-log-slower-than 0\r\n");
    house.say(&mut monitor, b"MONITOR\r\n");
    migrate(&mut house, &mut client, "1 a 0 1 AUTH secret COPY");
    migrate(&mut house, &mut client, "1 a 0 1 AUTH2 name secret");
    let said = house.say(&mut monitor, b"") + &house.say(&mut client, b"SLOWLOG GET\r\n");
    assert!(!said.contains("secret") && !said.contains("name"), "{said}");
    assert_eq!(said.matches("(redacted)").count(), 6, "{said}");
}
