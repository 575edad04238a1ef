//! Waits of XREAD and XREADGROUP.

use super::super::blocking::say_all;
use super::*;
use std::time::Duration;

/// Clients, the last for adding entries.
fn clients(house: &House, count: usize) -> Vec<Conversation> {
    (0..count).map(|_| house.client()).collect()
}

#[test]
fn all_that_read_a_stream_are_called() {
    let mut house = House::new(false);
    let mut all = clients(&house, 4);
    say_all(&mut house, &mut all, 3, "XADD s 1 a 1\r\n");
    for at in 0..2 {
        assert_eq!(say_all(&mut house, &mut all, at, "XREAD BLOCK 0 STREAMS s $\r\n")[at], "");
    }
    // The third client waits for a later id of the existing stream.
    say_all(&mut house, &mut all, 2, "XREAD BLOCK 0 STREAMS t s 0 5\r\n");
    assert!(all[..3].iter().all(Conversation::is_blocked));
    let said = say_all(&mut house, &mut all, 3, "XADD s 2 a 2\r\n");
    let got = "*1 *2 $1 s *1 *2 $3 2-0 *2 $1 a $1 2 ";
    assert_eq!(said, [got, got, "", "$3 2-0 "]);
    let said = say_all(&mut house, &mut all, 3, "XADD s 6 a 6\r\n");
    assert_eq!(said[2], "*1 *2 $1 s *1 *2 $3 6-0 *2 $1 a $1 6 ");
}

/// The id of `$` at the first run, whatever happens to the stream meanwhile.
#[test]
fn the_last_id_is_that_of_the_first_run() {
    let mut house = House::new(false);
    let mut all = clients(&house, 2);
    say_all(&mut house, &mut all, 1, "XADD s 5 a 1\r\n");
    say_all(&mut house, &mut all, 0, "XREAD BLOCK 0 STREAMS s $\r\n");
    let text = "DEL s\r\nXADD s 1 a 1\r\nSET t 1\r\nDEL s\r\nSET s x\r\nDEL s\r\nXADD s 4 a 4\r\n";
    assert_eq!(say_all(&mut house, &mut all, 1, text)[0], "");
    let said =
        say_all(&mut house, &mut all, 1, "MULTI\r\nXADD s 6 a 6\r\nXADD s 7 a 7\r\nEXEC\r\n");
    assert_eq!(said[0], "*1 *2 $1 s *2 *2 $3 6-0 *2 $1 a $1 6 *2 $3 7-0 *2 $1 a $1 7 ");
}

/// Consumers of a group in the order of their arrival; groups by themselves.
#[test]
fn consumers_are_served_in_their_order() {
    let mut house = House::new(false);
    let mut all = clients(&house, 5);
    let groups = "XGROUP CREATE s g $ MKSTREAM\r\nXGROUP CREATE s h $\r\n";
    say_all(&mut house, &mut all, 4, groups);
    for (at, group) in [(1, "g"), (0, "g"), (2, "h")] {
        let line = format!("XREADGROUP GROUP {group} c{at} COUNT 1 BLOCK 0 STREAMS s >\r\n");
        say_all(&mut house, &mut all, at, &line);
    }
    let one = "*1 *2 $1 s *1 *2 $3 1-0 *2 $1 a $1 1 ";
    let said = say_all(&mut house, &mut all, 4, "XADD s 1 a 1\r\n");
    assert_eq!(said, ["", one, one, "", "$3 1-0 "]);
    let said = say_all(&mut house, &mut all, 4, "XADD s 2 a 2\r\nXPENDING s g\r\n");
    assert_eq!(said[0], "*1 *2 $1 s *1 *2 $3 2-0 *2 $1 a $1 2 ");
    let said = say_all(&mut house, &mut all, 4, "XPENDING s g\r\n");
    assert_eq!(said[4], "*4 :2 $3 1-0 $3 2-0 *2 *2 $2 c0 $1 1 *2 $2 c1 $1 1 ");
}

#[test]
fn a_consumer_is_told_of_the_end_of_its_group() {
    let no_group =
        "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option ";
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value ";
    for (end, expected) in [
        ("XGROUP DESTROY s g", no_group),
        ("DEL s", no_group),
        ("UNLINK s", no_group),
        ("RENAME s t", no_group),
        ("SET s 1", wrong),
        ("MULTI\r\nDEL s\r\nRPUSH s 1\r\nEXEC", wrong),
        ("FLUSHALL", no_group),
        ("FLUSHDB", no_group),
        ("SWAPDB 0 1", no_group),
        ("PEXPIREAT s 1", no_group),
        ("MOVE s 1", no_group),
        ("XADD t 1 a 1\r\nCOPY t s REPLACE", no_group),
    ] {
        let mut house = House::new(false);
        let mut all = clients(&house, 3);
        say_all(&mut house, &mut all, 2, "XGROUP CREATE s g $ MKSTREAM\r\n");
        for at in 0..2 {
            let line = format!("XREADGROUP GROUP g c{at} BLOCK 0 STREAMS s >\r\n");
            assert_eq!(say_all(&mut house, &mut all, at, &line)[at], "");
        }
        let said = say_all(&mut house, &mut all, 2, &format!("{end}\r\n"));
        assert_eq!(said[..2], [expected, expected], "{end}");
        assert_eq!(house.shared.wiring.waiting.clients(), 0);
    }
}

/// A time of expiry ends the wait as well: a thread removes the key.
#[test]
fn a_consumer_is_told_when_its_stream_expires() {
    let mut house = House::new(false);
    let mut all = clients(&house, 2);
    say_all(&mut house, &mut all, 1, "XGROUP CREATE s g $ MKSTREAM\r\nPEXPIRE s 20\r\n");
    let before = say_all(&mut house, &mut all, 0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\n");
    std::thread::sleep(Duration::from_millis(40));
    let opened = house.shared.store.opened.cloned();
    crate::upkeep::reaper::reap(&house.shared, &opened).unwrap();
    let said = say_all(&mut house, &mut all, 1, "");
    // On a busy machine the stream may have expired before.
    assert!((before[0].clone() + &said[0]).starts_with("-NOGROUP "), "{said:?}");
}

#[test]
fn it_waits_for_no_more_than_its_time() {
    for command in ["XREAD BLOCK 300 STREAMS s t $ $", "XREADGROUP GROUP g c BLOCK 300 STREAMS s >"]
    {
        let mut house = House::new(false);
        let mut client = house.client();
        house.say(&mut client, b"XGROUP CREATE s g $ MKSTREAM\r\n");
        let begin = std::time::Instant::now();
        assert_eq!(house.say(&mut client, format!("{command}\r\n").as_bytes()), "");
        let deadline = client.deadline().unwrap();
        assert!(deadline > begin + Duration::from_millis(299), "{command}");
        std::thread::sleep(deadline.saturating_duration_since(std::time::Instant::now()));
        assert_eq!(house.say(&mut client, b""), "*-1 ");
        assert_eq!((client.deadline(), house.shared.wiring.waiting.clients()), (None, 0));
        // The consumer was noted meanwhile.
        let said = house.say(&mut client, b"XINFO CONSUMERS s g\r\n");
        assert_eq!(said.starts_with("*1 "), command.contains("GROUP"), "{said}");
    }
}
