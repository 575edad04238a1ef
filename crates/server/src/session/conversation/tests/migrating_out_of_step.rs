//! MIGRATE, to targets with wrong replies to their commands; and clients that end.

use super::migrating::{Add, FOREIGN, Hang, Say, Spell, all_read, is, migrate, target};
use super::*;
use crate::state::Stopping;
use std::sync::Barrier;
use std::time::Duration;

/// A reply in pieces is one reply.
#[test]
fn replies_may_come_in_pieces() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"MSET a 1 b 2 c 3\r\n");
    let (port, _read) = target(|_, words| match &words[1][..] {
        b"b" => Spell("-BUSYKEY there is one\r\n"),
        _ => Spell("+OK\r\n"),
    });
    let said = migrate(&mut house, &mut client, &format!("{port} \"\" 0 5000 KEYS a b c"));
    assert_eq!(said, "-ERR Target instance replied with error: BUSYKEY there is one ");
    assert_eq!(house.say(&mut client, b"MGET a b c\r\n"), "*3 $-1 $1 2 $-1 ");
}

/// Whatever the target has replied before.
#[test]
fn nothing_is_removed_if_a_reply_is_none_or_too_many() {
    for (key, reply) in [
        ("b", "+PONG\r\n"),
        ("c", ":1\r\n"),
        ("c", "+OK\r\n+OK\r\n"),
        ("c", "+OK\r\n-ERR more\r\n"),
        ("c", "+OK\r\n+"),
        ("c", "\r\n+OK\r\n"),
    ] {
        for first in ["+OK\r\n", "-BUSYKEY there is one\r\n"] {
            let mut house = House::new(false);
            let mut client = house.client();
            house.say(&mut client, b"MSET a 1 b 2 c 3\r\n");
            let (port, _read) = target(move |_, words| match &words[1][..] {
                b"a" => Say(first),
                name if name == key.as_bytes() => Say(reply),
                _ => Say("+OK\r\n"),
            });
            let keys = format!("{port} \"\" 0 5000 KEYS a b c");
            let said = migrate(&mut house, &mut client, &keys);
            assert_eq!(said.trim_end(), FOREIGN, "{key} {reply:?}");
            assert_eq!(house.say(&mut client, b"MGET a b c\r\n"), "*3 $1 1 $1 2 $1 3 ");
            let info = house.say(&mut client, b"INFO stats\r\n");
            assert!(info.contains("migrate_cached_sockets:0 "), "{info}");
        }
    }
}

/// The text would be taken for the reply to the next key.
#[test]
fn what_a_kept_connection_has_said_is_no_reply() {
    for more in ["+OK\r\n", "+", "-ERR more\r\n"] {
        let mut house = House::new(false);
        let mut client = house.client();
        house.say(&mut client, b"MSET a 1 b 2\r\n");
        let meets = Arc::new(Barrier::new(2));
        let met = meets.clone();
        let (port, read) = target(move |number, words| match number {
            0 if is(words, "RESTORE") && words[1] == b"a" => Add("+OK\r\n", more, met.clone()),
            1 if is(words, "RESTORE") => Say("-OOM there is no room\r\n"),
            _ => Say("+OK\r\n"),
        });
        assert_eq!(migrate(&mut house, &mut client, &format!("{port} a 0 5000")), "+OK ");
        for _ in 0..2 {
            meets.wait();
        }
        // The sent bytes arrive.
        std::thread::sleep(Duration::from_millis(100));
        let said = migrate(&mut house, &mut client, &format!("{port} b 0 5000"));
        assert_eq!(said, "-ERR Target instance replied with error: OOM there is no room ");
        assert_eq!(house.say(&mut client, b"MGET a b\r\n"), "*2 $-1 $1 2 ", "{more:?}");
        let expected = ["0: SELECT 0", "0: RESTORE a 0", "1: SELECT 0", "1: RESTORE b 0"];
        assert_eq!(all_read(&read), expected);
    }
}

/// The same between two batches of a command.
#[test]
fn what_is_said_between_batches_is_no_reply() {
    let mut house = House::new(false);
    let mut client = house.client();
    let sets: String = (0..65).map(|n| format!("SET k{n} {n}\r\n")).collect();
    house.say(&mut client, sets.as_bytes());
    let (port, read) = target(|_, words| match &words[1][..] {
        b"k63" => Say("+OK\r\n+OK\r\n"),
        b"k64" => Say("-OOM there is no room\r\n"),
        _ => Say("+OK\r\n"),
    });
    let names: String = (0..65).map(|n| format!(" k{n}")).collect();
    let said = migrate(&mut house, &mut client, &format!("{port} \"\" 0 20000 KEYS{names}"));
    assert_eq!(said.trim_end(), FOREIGN);
    assert_eq!(house.say(&mut client, b"DBSIZE\r\n"), ":65 ");
    assert_eq!(all_read(&read).len(), 1 + 64, "the last one is not sent");
}

/// An administrator ends a command by the end of its client, whatever time the client has given.
#[test]
fn a_target_is_not_waited_for_once_the_client_or_the_server_ends() {
    for stops in [false, true] {
        let mut house = House::new(false);
        let mut client = house.client();
        house.say(&mut client, b"SET a 1\r\n");
        let (entry, shared) = (client.client.entry.clone(), house.shared.clone());
        let (port, _read) = target(move |_, words| {
            if !is(words, "RESTORE") {
                return Say("+OK\r\n");
            }
            match stops {
                true => shared.stop(Stopping::Asked),
                false => entry.kill(),
            }
            Hang
        });
        let began = Instant::now();
        let said = migrate(&mut house, &mut client, &format!("{port} a 0 30000"));
        assert_eq!(said, "-IOERR error or timeout reading from target instance ");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!(house.say(&mut client, b"EXISTS a\r\n"), ":1 ");
    }
}
