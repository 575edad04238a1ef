//! DEBUG, as in tests of clients; and the replies while the database is being opened.

use super::*;
use crate::state::Stopping;
use std::time::Duration;

/// At the limits, and beyond.
#[test]
fn a_sleep_has_bounds() {
    const OK: &str = "+OK ";
    const RANGE: &str = "-ERR DEBUG SLEEP takes 0 to 3600 seconds ";
    const NO_NUMBER: &str = "-ERR value is not a valid float ";
    let mut house = House::new(false);
    let mut client = house.client();
    for (seconds, expected) in [
        ("0", OK),
        ("-0", OK),
        ("1e-3", OK),
        ("0.02", OK),
        ("-0.001", RANGE),
        ("-1", RANGE),
        ("3600.001", RANGE),
        ("1e400", RANGE),
        ("inf", RANGE),
        ("-inf", RANGE),
        ("nan", RANGE),
        ("x", NO_NUMBER),
        ("\"\"", NO_NUMBER),
        ("\"\\xff\"", NO_NUMBER),
        ("1s", NO_NUMBER),
    ] {
        let began = Instant::now();
        let said = house.say(&mut client, format!("DEBUG SLEEP {seconds}\r\n").as_bytes());
        assert_eq!(said, expected, "{seconds}");
        let least = if seconds == "0.02" { 20 } else { 0 };
        assert!(began.elapsed() >= Duration::from_millis(least), "{seconds}");
    }
    // In EXEC as well, as in Redis.
    let said = house.say(&mut client, b"MULTI\r\nSET a 1\r\nDEBUG SLEEP 0.001\r\nEXEC\r\n");
    assert_eq!(said, "+OK +QUEUED +QUEUED *2 +OK +OK ");
    // A stopping server does not sleep.
    house.shared.stop(Stopping::Asked);
    let began = Instant::now();
    assert_eq!(house.say(&mut client, b"DEBUG SLEEP 3600\r\n"), OK);
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn populate_adds_the_keys_that_do_not_exist() {
    const ARITY: &str = "-ERR unknown subcommand or wrong number of arguments for";
    const RANGE: &str = "-ERR value is out of range, must be positive";
    const NO_NUMBER: &str = "-ERR value is not an integer or out of range";
    const TOO_LONG: &str = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    transcript(&[
        ("SET key:1 own", "+OK"),
        ("LPUSH key:3 a", ":1"),
        ("DEBUG POPULATE 5", "+OK"),
        ("DBSIZE", ":5"),
        ("MGET key:0 key:1 key:4 key:5", "*4 $7 value:0 $3 own $7 value:4 $-1"),
        ("LRANGE key:3 0 -1", "*1 $1 a"),
        ("debug populate 2 p 10", "+OK"),
        ("MGET p:0 p:1 p:2", "*3 $10 value:0\0\0\0 $10 value:1\0\0\0 $-1"),
        ("DEBUG POPULATE 1 q 3", "+OK"),
        ("GET q:0", "$3 val"),
        ("DEBUG POPULATE 1 r 7", "+OK"),
        ("GET r:0", "$7 value:0"),
        ("DEBUG POPULATE 0", "+OK"),
        ("DBSIZE", ":9"),
        ("SELECT 1", "+OK"),
        ("DEBUG POPULATE 2 \"\"", "+OK"),
        ("EXISTS :0 :1 :2", ":2"),
        ("DEBUG POPULATE x", NO_NUMBER),
        ("DEBUG POPULATE 9223372036854775808", NO_NUMBER),
        ("DEBUG POPULATE -1", RANGE),
        ("DEBUG POPULATE 1 p x", NO_NUMBER),
        ("DEBUG POPULATE 1 p -1", RANGE),
        ("DEBUG POPULATE", &format!("{ARITY} 'POPULATE'. Try DEBUG HELP.")),
        ("DEBUG POPULATE 1 p 1 1", &format!("{ARITY} 'POPULATE'. Try DEBUG HELP.")),
        ("DEBUG SLEEP", &format!("{ARITY} 'SLEEP'. Try DEBUG HELP.")),
        ("DEBUG RELOAD", "-ERR DEBUG reload is not built"),
        ("CONFIG SET proto-max-bulk-len 1mb", "+OK"),
        ("DEBUG POPULATE 1 long 1048577", TOO_LONG),
        ("DBSIZE", ":2"),
        ("DEBUG POPULATE 2 long 1048576", "+OK"),
        ("STRLEN long:1", ":1048576"),
        ("GETRANGE long:1 0 8", "$9 value:1\0\0"),
    ]);
    let mut house = House::new(false);
    let mut client = house.client();
    let said = house.say(&mut client, b"DEBUG HELP\r\n");
    assert!(said.starts_with('*') && said.contains("+POPULATE <count> [<prefix>] [<size>] "));
    let long = "p".repeat(1 << 20);
    let words =
        ["DEBUG", "POPULATE", "1", &long].map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let said = house.say(&mut client, format!("*4\r\n{}", words.concat()).as_bytes());
    assert_eq!(said, "-ERR the key is longer than 1 MiB ");
}

/// The command runs several transactions, and the keys of all are there.
#[test]
fn populate_adds_more_than_a_transaction_has() {
    let mut house = House::new(false);
    let mut client = house.client();
    let said = house.say(&mut client, b"DEBUG POPULATE 2500\r\nDBSIZE\r\n");
    assert_eq!(said, "+OK :2500 ");
    let said = house.say(&mut client, b"DEBUG POPULATE 3001\r\nDBSIZE\r\n");
    assert_eq!(said, "+OK :3001 ");
    let said = house.say(&mut client, b"MGET key:0 key:999 key:1000 key:2499 key:3000\r\n");
    assert_eq!(said, "*5 $7 value:0 $9 value:999 $10 value:1000 $10 value:2499 $10 value:3000 ");
    // A watched key has changed.
    let mut other = house.client();
    house.say(&mut other, b"WATCH more:1\r\nMULTI\r\nGET more:1\r\n");
    assert_eq!(house.say(&mut client, b"DEBUG POPULATE 2 more\r\n"), "+OK ");
    assert_eq!(house.say(&mut other, b"EXEC\r\n"), "*-1 ");
}

/// Long keys count like long values: a transaction has one long key, and not a thousand.
#[test]
fn populate_adds_long_keys_one_by_one() {
    let mut house = House::new(false);
    let mut client = house.client();
    let prefix = "p".repeat(crate::data::keyspace::LONGEST_KEY - 2);
    let words =
        ["DEBUG", "POPULATE", "3", &prefix].map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let said = format!("*4\r\n{}", words.concat());
    let commits = |house: &House| house.shared.store.opened.cloned().database.stats().commits;
    for keys in ["new", "old"] {
        let before = commits(&house);
        assert_eq!(house.say(&mut client, said.as_bytes()), "+OK ");
        assert_eq!(commits(&house) - before, 3, "{keys} keys");
    }
    assert_eq!(house.say(&mut client, b"DBSIZE\r\n"), ":3 ");
}

#[test]
fn populate_ends_with_its_client_and_with_the_server() {
    let ended = "-ERR DEBUG POPULATE has ended before key 0 ";
    let mut house = House::new(false);
    let (mut killed, mut client) = (house.client(), house.client());
    killed.client.entry.is_killed.store(true, Relaxed);
    assert_eq!(house.say(&mut killed, b"DEBUG POPULATE 5\r\n"), ended);
    house.shared.stop(Stopping::Asked);
    assert_eq!(house.say(&mut client, b"DEBUG POPULATE 5\r\n"), ended);
    assert_eq!(house.say(&mut client, b"DBSIZE\r\n"), ":0 ");
}

#[test]
fn some_settings_wait_for_the_database() {
    let flags = ["--enable-debug-command", "yes"];
    let shared = Shared::new(Settings::from_arguments(&flags).unwrap());
    let addresses = ("127.0.0.1:1".to_string(), "127.0.0.1:2".to_string());
    let entry = ClientEntry::new(1, addresses, 0, Calls::new(Waker::noop().clone()));
    let mut client = Conversation::new(&shared.access, Arc::new(entry));
    let mut parked = Vec::new();
    for (line, expected) in [
        ("CONFIG SET dir asdf", "-LOADING "),
        ("CONFIG SET maxclients 9 DIR asdf", "-LOADING "),
        ("CONFIG SET appendonly yes", "-LOADING "),
        ("CONFIG SET repl-diskless-load disabled", "-LOADING "),
        ("CONFIG SET none x dir asdf", "-ERR Unknown option"),
        ("CONFIG SET loglevel debug", "+OK "),
        ("CONFIG GET loglevel", "*2 $8 loglevel $5 debug "),
        ("CONFIG GET maxclients", "*2 $10 maxclients $5 10000 "),
        ("DEBUG POPULATE 1", "-LOADING "),
        ("DEBUG OBJECT a", "-LOADING "),
        ("DEBUG SLEEP 0.001", "+OK "),
    ] {
        client.feed(format!("{line}\r\n").as_bytes());
        client.run(&mut Turn {
            shared: &shared,
            session: None,
            parked: &mut parked,
            snapshot: None,
        });
        let said = take(&mut client);
        assert!(said.starts_with(expected), "{line}: {said}");
    }
}
