//! WATCH, as in Redis 7, and its reply, which waits for the log.

use super::*;

/// A client watches and queues; between its WATCH and its EXEC another client says `between`.
fn exec_after(before: &str, watch: &str, between: &str) -> String {
    let mut house = House::new(false);
    let (mut own, mut other) = (house.client(), house.client());
    house.say(&mut other, before.as_bytes());
    assert_eq!(house.say(&mut own, format!("{watch}\r\n").as_bytes()), "+OK ");
    house.say(&mut other, between.as_bytes());
    house.say(&mut own, b"MULTI\r\nPERSIST none\r\n");
    house.say(&mut own, b"EXEC\r\n")
}

const DONE: &str = "*1 :0 ";
const LOST: &str = "*-1 ";

#[test]
fn exec_runs_only_if_nothing_that_is_watched_was_written() {
    let a = "SET a 1\r\n";
    for (before, watch, between, expected) in [
        (a, "WATCH a", "", DONE),
        (a, "WATCH a", "GET a\r\nSET b 1\r\n", DONE),
        (a, "WATCH a", "SET a 2\r\n", LOST),
        // The same value again is a change.
        (a, "WATCH a", "SET a 1\r\n", LOST),
        (a, "WATCH b a", "SET a 1\r\n", LOST),
        (a, "WATCH a", "DEL a\r\n", LOST),
        (a, "WATCH a", "DEL a\r\nSET a 1\r\n", LOST),
        (a, "WATCH a", "EXPIRE a 100\r\n", LOST),
        (a, "WATCH a", "FLUSHALL\r\n", LOST),
        (a, "WATCH b", "FLUSHALL\r\n", DONE),
        (a, "WATCH a", "FLUSHDB\r\nSET a 1\r\n", LOST),
        (a, "WATCH a", "SELECT 1\r\nFLUSHDB\r\nSET a 2\r\n", DONE),
        (a, "WATCH b", "SET b 1\r\n", LOST),
        (a, "WATCH a", "RENAME a b\r\n", LOST),
        (a, "WATCH b", "RENAME a b\r\n", LOST),
        (a, "WATCH a", "SWAPDB 0 1\r\n", LOST),
        (a, "WATCH a", "SWAPDB 1 2\r\n", DONE),
        ("SELECT 1\r\nSET a 1\r\n", "WATCH a", "SWAPDB 0 1\r\n", LOST),
        ("RPUSH l 1\r\n", "WATCH l", "RPUSH l 2\r\n", LOST),
        ("HSET h f 1\r\n", "WATCH h", "HSET h f 1\r\n", LOST),
        // A key created and removed again was absent, and is absent.
        (a, "WATCH b", "SET b 1\r\nDEL b\r\n", DONE),
    ] {
        assert_eq!(exec_after(before, watch, between), expected, "{before:?} {watch} {between:?}");
    }
}

#[test]
fn a_watched_key_that_expires_has_changed_and_an_expired_one_has_not() {
    // Long enough for WATCH before the expiry on a busy machine.
    for (wait_before, life_ms, expected) in [(false, 1_500, LOST), (true, 30, DONE)] {
        let mut house = House::new(false);
        let mut own = house.client();
        house.say(&mut own, format!("SET a 1 PX {life_ms}\r\n").as_bytes());
        let pause = || std::thread::sleep(std::time::Duration::from_millis(life_ms + 10));
        if wait_before {
            pause();
        }
        house.say(&mut own, b"WATCH a\r\n");
        pause();
        house.say(&mut own, b"MULTI\r\nPERSIST none\r\n");
        assert_eq!(house.say(&mut own, b"EXEC\r\n"), expected);
    }
}

#[test]
fn watching_ends() {
    for end in ["UNWATCH", "MULTI\r\nDISCARD", "MULTI\r\nEXEC", "MULTI\r\nFOO\r\nEXEC", "RESET"] {
        let said = exec_after("", "WATCH a", "");
        assert_eq!(said, DONE);
        let mut house = House::new(false);
        let (mut own, mut other) = (house.client(), house.client());
        house.say(&mut own, b"WATCH a b\r\n");
        house.say(&mut own, format!("{end}\r\n").as_bytes());
        house.say(&mut other, b"SET a 1\r\n");
        house.say(&mut own, b"MULTI\r\nPERSIST none\r\n");
        assert_eq!(house.say(&mut own, b"EXEC\r\n"), DONE, "{end}");
    }
    transcript(&[
        ("WATCH", "-ERR wrong number of arguments for 'watch' command"),
        ("UNWATCH a", "-ERR wrong number of arguments for 'unwatch' command"),
        ("MULTI", "+OK"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
        ("UNWATCH", "+QUEUED"),
        ("EXEC", "*1 +OK"),
        ("WATCH a", "+OK"),
        ("SET a 1", "+OK"),
        ("MULTI", "+OK"),
        // An EXEC without commands compares as well.
        ("EXEC", "*-1"),
    ]);
}

/// Pipelined commands are one transaction, but WATCH has its own: WATCH sees committed values.
#[test]
fn a_pipeline_does_not_swallow_watch() {
    let mut house = House::new(false);
    let mut own = house.client();
    let said = house.say(&mut own, b"SET a 1\r\nWATCH a\r\nMULTI\r\nGET a\r\nEXEC\r\nGET a\r\n");
    assert_eq!(said, "+OK +OK +OK +QUEUED *1 $1 1 $1 1 ");
    let said = house.say(&mut own, b"WATCH a\r\nSET a 2\r\nMULTI\r\nGET a\r\nEXEC\r\nGET a\r\n");
    assert_eq!(said, "+OK +OK +OK +QUEUED *-1 $1 2 ");
}

/// A lost race is told once the winner's write is on disk.
#[test]
fn the_nil_of_exec_waits_for_what_it_has_read() {
    let mut house = House::new(true);
    let (mut own, mut other) = (house.client(), house.client());
    own.feed(b"WATCH a\r\n");
    house.run(&mut own, 0);
    assert_eq!(take(&mut own), "+OK ");
    other.feed(b"SET a 1\r\n");
    house.run(&mut other, 1);
    own.feed(b"MULTI\r\nGET a\r\nEXEC\r\n");
    house.run(&mut own, 0);
    assert_eq!(take(&mut own), "");
    house.write_log();
    let own_ref = &mut own;
    house
        .queue
        .drain(|(number, mark)| {
            if number == 0 {
                own_ref.acknowledged(mark)
            }
        })
        .unwrap();
    assert_eq!(take(&mut own), "+OK +QUEUED *-1 ");
}

/// Many clients increment a counter by WATCH, GET, MULTI, SET, EXEC: no increment is lost, in any
/// order of the steps.
#[test]
fn optimistic_counters_lose_nothing() {
    for seed in 0..20 {
        fastrand::seed(seed);
        let mut house = House::new(false);
        let mut clients: Vec<_> = (0..4).map(|_| (house.client(), 0, String::new())).collect();
        let mut added = 0;
        for _ in 0..300 {
            let (client, step, value) = &mut clients[fastrand::usize(..4)];
            match *step {
                0 => drop(house.say(client, b"WATCH n\r\n")),
                1 => {
                    let said = house.say(client, b"GET n\r\n");
                    let now = said.split(' ').nth(1).and_then(|n| n.parse::<i64>().ok());
                    *value = (now.unwrap_or(0) + 1).to_string();
                }
                2 => drop(house.say(client, b"MULTI\r\n")),
                3 => drop(house.say(client, format!("SET n {value}\r\n").as_bytes())),
                _ => added += i64::from(house.say(client, b"EXEC\r\n") == "*1 +OK "),
            }
            *step = (*step + 1) % 5;
        }
        let mut reader = house.client();
        let said = house.say(&mut reader, b"GET n\r\n");
        assert_eq!(said.split(' ').nth(1), Some(added.to_string().as_str()), "seed {seed}");
    }
}
