//! Commands that wait for an element.

use super::*;
use crate::catalogue;
use crate::net::connection::Connection;
use crate::sockets::client_socket::ClientSocket;
use mio::net::UnixStream;
use std::collections::VecDeque;
use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

/// Feeds a client's text and runs the clients called by the text.
pub(super) fn say_all(
    house: &mut House,
    all: &mut [Conversation],
    at: usize,
    text: &str,
) -> Vec<String> {
    all[at].feed(text.as_bytes());
    let mut said = vec![String::new(); all.len()];
    loop {
        let mut heard = false;
        for (at, client) in all.iter_mut().enumerate() {
            let now = String::from_utf8(house.replies(client, b"")).unwrap().replace("\r\n", " ");
            heard |= !now.is_empty();
            said[at] += &now;
        }
        if !heard && !all.iter().any(Conversation::has_work) {
            return said;
        }
    }
}

/// Clients that wait for other keys are not called, however many keys a transaction fills.
#[test]
fn a_client_is_called_for_its_own_key_alone() {
    let mut house = House::new(false);
    let (mut waiting, mut other) = (house.client(), house.client());
    assert_eq!(house.say(&mut waiting, b"BLPOP w 0\r\n"), "");
    assert!(waiting.is_blocked() && !waiting.has_work());
    let pushes: String = (0..1_000).map(|n| format!("RPUSH k{n} x\r\n")).collect();
    house.say(&mut other, format!("MULTI\r\n{pushes}EXEC\r\n").as_bytes());
    assert_eq!(house.say(&mut other, b"EXISTS k0 k999\r\n"), ":2 ");
    assert!(!waiting.has_work());
    house.say(&mut other, b"RPUSH w x\r\n");
    assert_eq!(house.say(&mut waiting, b""), "*2 $1 w $1 x ");
}

/// A waiting command, another client's text, the first client's reply, and the state afterwards.
const SERVED: &[(&str, &str, &str, &str)] = &[
    ("BLPOP a 0", "RPUSH a 1 2", "*2 $1 a $1 1 ", "LRANGE a 0 -1 -> *1 $1 2 "),
    ("BRPOP a 0", "RPUSH a 1 2", "*2 $1 a $1 2 ", "LRANGE a 0 -1 -> *1 $1 1 "),
    ("BLPOP b a 0", "LPUSH a 1", "*2 $1 a $1 1 ", "EXISTS a -> :0 "),
    ("BLPOP a a 0", "LPUSH a 1", "*2 $1 a $1 1 ", "EXISTS a -> :0 "),
    ("BLPOP a 0", "RPUSH b 1\r\nRENAME b a", "*2 $1 a $1 1 ", "EXISTS a -> :0 "),
    ("BLPOP a 0", "RPUSH b 1\r\nCOPY b a", "*2 $1 a $1 1 ", "EXISTS b -> :1 "),
    ("BLPOP a 0", "RPUSH b 1\r\nSORT b STORE a", "*2 $1 a $1 1 ", "EXISTS a -> :0 "),
    ("BLPOP a 0", "RPUSH b 1\r\nLMOVE b a LEFT LEFT", "*2 $1 a $1 1 ", "EXISTS a -> :0 "),
    ("BLPOP a 0", "SELECT 1\r\nRPUSH a 1\r\nSWAPDB 0 1", "*2 $1 a $1 1 ", "DBSIZE -> :0 "),
    ("BLPOP a 0", "SELECT 1\r\nRPUSH a 1\r\nMOVE a 0", "*2 $1 a $1 1 ", "DBSIZE -> :0 "),
    ("BLPOP a 0", "MULTI\r\nLPUSH a 1\r\nLPUSH a 2\r\nEXEC", "*2 $1 a $1 2 ", "LLEN a -> :1 "),
    ("BLMOVE a b LEFT LEFT 0", "RPUSH a 1", "$1 1 ", "LRANGE b 0 -1 -> *1 $1 1 "),
    ("BRPOPLPUSH a a 0", "RPUSH a 1 2", "$1 2 ", "LRANGE a 0 -1 -> *2 $1 2 $1 1 "),
    ("BLMPOP 0 1 a LEFT COUNT 2", "RPUSH a 1 2 3", "*2 $1 a *2 $1 1 $1 2 ", "LLEN a -> :1 "),
    ("BZPOPMIN a 0", "ZADD a 1 x 2 y", "*3 $1 a $1 x $1 1 ", "ZCARD a -> :1 "),
    ("BZPOPMAX b a 0", "ZADD a 1 x 2 y", "*3 $1 a $1 y $1 2 ", "ZCARD a -> :1 "),
    ("BZMPOP 0 1 a MAX", "ZADD a 1 x", "*2 $1 a *1 *2 $1 x $1 1 ", "EXISTS a -> :0 "),
    ("BZPOPMIN a 0", "ZADD b 1 x\r\nZUNIONSTORE a 1 b", "*3 $1 a $1 x $1 1 ", "EXISTS a -> :0 "),
    // Elements for other commands, then elements for the waiting command.
    (
        "BLPOP a 0",
        "SET a 1\r\nDEL a\r\nZADD a 1 x\r\nDEL a\r\nRPUSH a 1",
        "*2 $1 a $1 1 ",
        "EXISTS a -> :0 ",
    ),
    (
        "BLMPOP 0 1 a LEFT",
        "MULTI\r\nRPUSH a 1\r\nDEL a\r\nSET a x\r\nEXEC\r\nDEL a\r\nRPUSH a 2",
        "*2 $1 a *1 $1 2 ",
        "EXISTS a -> :0 ",
    ),
    (
        "BLMPOP 0 2 a b LEFT",
        "MULTI\r\nRPUSH a 1\r\nDEL a\r\nSET a x\r\nRPUSH b 2\r\nEXEC",
        "*2 $1 b *1 $1 2 ",
        "EXISTS b -> :0 ",
    ),
    (
        "BZPOPMIN a b 0",
        "MULTI\r\nZADD a 1 x\r\nDEL a\r\nSET a x\r\nZADD b 1 x\r\nEXEC",
        "*3 $1 b $1 x $1 1 ",
        "EXISTS b -> :0 ",
    ),
    (
        "BLMOVE a b LEFT LEFT 0",
        "MULTI\r\nRPUSH a 1\r\nDEL a\r\nSET a x\r\nEXEC\r\nDEL a\r\nRPUSH a 2",
        "$1 2 ",
        "LLEN b -> :1 ",
    ),
    ("BLPOP a 0", "RPUSH a 1\r\nDEL a\r\nRPUSH a 2", "*2 $1 a $1 2 ", "EXISTS a -> :0 "),
];

#[test]
fn a_command_waits_and_is_served_by_what_fills_its_key() {
    for (wait, fill, served, left) in SERVED {
        let mut house = House::new(false);
        let mut all = [house.client(), house.client()];
        let said = say_all(&mut house, &mut all, 0, &format!("{wait}\r\nPING\r\n"));
        assert_eq!(said[0], "", "{wait}: nothing behind it runs");
        assert!(all[0].is_blocked() && all[0].is_idle(), "{wait}");
        assert_eq!(house.shared.wiring.waiting.clients(), 1);
        // The whole text at once: the waiting command is served behind the text.
        let said = say_all(&mut house, &mut all, 1, &format!("{fill}\r\n"));
        assert_eq!(said[0], format!("{served}+PONG "), "{wait} {fill}");
        let (look, expected) = left.split_once(" -> ").unwrap();
        let said = say_all(&mut house, &mut all, 0, &format!("{look}\r\n"));
        assert_eq!(said[0], expected, "{wait} {fill}");
        assert_eq!((all[0].is_blocked(), house.shared.wiring.waiting.clients()), (false, 0));
    }
}

#[test]
fn it_waits_for_no_more_than_its_time() {
    for (command, expected) in [
        ("BLPOP a b 0.5", "*-1 "),
        // As Redis replies, though an element is no array.
        ("BRPOPLPUSH a b 0.5", "*-1 "),
        ("BLMOVE a b LEFT RIGHT 0.5", "*-1 "),
        ("BZMPOP 0.5 1 a MIN", "*-1 "),
    ] {
        let mut house = House::new(false);
        let mut client = house.client();
        let begin = std::time::Instant::now();
        assert_eq!(house.say(&mut client, format!("{command}\r\n").as_bytes()), "");
        let deadline = client.deadline().unwrap();
        assert!(deadline > begin + Duration::from_millis(499), "{command}");
        std::thread::sleep(deadline.saturating_duration_since(std::time::Instant::now()));
        assert!(client.has_work());
        assert_eq!(house.say(&mut client, b""), expected);
        assert_eq!((client.deadline(), house.shared.wiring.waiting.clients()), (None, 0));
        assert_eq!(house.say(&mut client, b"PING\r\n"), "+PONG ");
    }
}

/// Whatever its earlier replies still wait for.
#[test]
fn a_client_that_has_hung_up_takes_nothing() {
    let mut house = House::new(true);
    let (mut client, socket) = UnixStream::pair().unwrap();
    let calls = Calls::new(Waker::noop().clone());
    let entry = ClientEntry::new(9, (String::new(), String::new()), 0, calls);
    let mut gone = Connection::new(&house.shared, ClientSocket::Unix(socket), None, entry);
    let text = "SET a 1\r\nBLPOP l 0\r\nPING\r\n";
    client.write_all(text.as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    // After a read that fills the buffer, another read finds the end.
    let mut buffer = vec![0; text.len()];
    gone.read(&house.shared, &mut buffer, 0);
    house.run(&mut gone.conversation, 0);
    assert_eq!(house.shared.wiring.waiting.clients(), 1);
    gone.read(&house.shared, &mut buffer, 0);
    assert_eq!((house.shared.wiring.waiting.clients(), gone.is_done()), (0, false));
    let mut other = house.client();
    other.feed(b"RPUSH l x\r\n");
    house.run(&mut other, 1);
    house.run(&mut gone.conversation, 0);
    house.write_log();
    while !house.queue.is_empty() {
        house.queue.wait_for_one().unwrap();
        house
            .queue
            .drain(|(number, mark)| match number {
                0 => gone.conversation.acknowledged(mark),
                _ => other.acknowledged(mark),
            })
            .unwrap();
    }
    assert_eq!(take(&mut gone.conversation), "+OK ");
    assert_eq!(take(&mut other), ":1 ");
    assert!(gone.is_done());
    other.feed(b"LLEN l\r\n");
    house.run(&mut other, 1);
    assert_eq!(take(&mut other), ":1 ");
}

/// The log fails while another thread runs the called command: the client has one reply.
#[test]
fn what_another_thread_runs_is_told_once_of_a_log_that_fails() {
    let mut house = House::new(false);
    let (mut waits, mut other) = (house.client(), house.client());
    waits.feed(b"BLMOVE a b LEFT RIGHT 0\r\n");
    house.run(&mut waits, 0);
    assert!(waits.is_blocked());
    // More than a loop writes at once.
    let large = "x".repeat(700_000);
    let push = format!("*3\r\n$5\r\nRPUSH\r\n$1\r\na\r\n$700000\r\n{large}\r\n");
    assert_eq!(house.say(&mut other, push.as_bytes()), ":1 ");
    let (session, mut parked) = (Some(&mut house.session), Vec::new());
    waits.run(&mut Turn { shared: &house.shared, session, parked: &mut parked, snapshot: None });
    let job = waits.take_job().expect("it is too much for a loop");
    let database = &house.shared.store.opened.cloned().database;
    database.log().unwrap().stop("the disk is gone");
    waits.fail(&house.shared);
    let reply = job.run(&house.shared, false);
    assert!(waits.job_done(&house.shared, reply).is_none());
    assert_eq!(take(&mut waits), "-MISCONF the disk is gone ");
    assert!(!waits.is_blocked());
}

#[test]
fn bad_times_are_refused() {
    transcript(&[
        ("BLPOP a x", "-ERR timeout is not a float or out of range"),
        ("BLPOP a -1", "-ERR timeout is negative"),
        ("BLPOP a -0.1", "-ERR timeout is negative"),
        ("BLPOP a 1e300", "-ERR timeout is out of range"),
        ("BLPOP a inf", "-ERR timeout is out of range"),
        ("BLMPOP 0 0 a LEFT", "-ERR numkeys should be greater than 0"),
        ("SET s 1", "+OK"),
        ("BLPOP a s 0", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]);
    let mut house = House::new(false);
    let mut client = house.client();
    // The longest times are as good as for ever.
    assert_eq!(house.say(&mut client, b"BLPOP a 9223372036854775\r\n"), "");
    assert!(client.is_blocked());
}

#[test]
fn clients_are_served_in_the_order_in_which_they_came() {
    let mut house = House::new(false);
    let mut all: Vec<_> = (0..5).map(|_| house.client()).collect();
    for at in [2, 0, 3, 1] {
        say_all(&mut house, &mut all, at, "BLPOP a 0\r\n");
    }
    let said = say_all(&mut house, &mut all, 4, "RPUSH a 1 2 3\r\n");
    assert_eq!(said, ["*2 $1 a $1 2 ", "", "*2 $1 a $1 1 ", "*2 $1 a $1 3 ", ":3 "]);
    let said = say_all(&mut house, &mut all, 4, "RPUSH a 4\r\n");
    assert_eq!(said[1], "*2 $1 a $1 4 ");
}

#[test]
fn one_that_goes_leaves_its_place_to_the_next() {
    let mut house = House::new(false);
    let mut all: Vec<_> = (0..3).map(|_| house.client()).collect();
    for at in 0..2 {
        say_all(&mut house, &mut all, at, "BLPOP a 0\r\n");
    }
    // The client was called, and leaves before it looks.
    all[2].feed(b"RPUSH a 1\r\n");
    house.run(&mut all[2], 2);
    while !house.queue.is_empty() {
        house.queue.wait_for_one().unwrap();
        house.queue.drain(|(number, mark)| all[number].acknowledged(mark)).unwrap();
    }
    assert!(all[0].has_work() && !all[1].has_work());
    drop(all.remove(0));
    let said = say_all(&mut house, &mut all, 1, "");
    assert_eq!(said, ["*2 $1 a $1 1 ", ":1 "]);
}

#[test]
fn client_unblock_ends_waiting() {
    let mut house = House::new(false);
    let mut all: Vec<_> = (0..2).map(|_| house.client()).collect();
    let id = say_all(&mut house, &mut all, 0, "CLIENT ID\r\n")[0].clone();
    let id = id.trim_start_matches(':').trim().to_string();
    for (how, reply) in [
        ("", "*-1 "),
        (" TIMEOUT", "*-1 "),
        (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK "),
    ] {
        let unblock = format!("CLIENT UNBLOCK {id}{how}\r\n");
        assert_eq!(say_all(&mut house, &mut all, 1, &unblock), ["", ":0 "]);
        say_all(&mut house, &mut all, 0, "BLPOP a 0\r\n");
        let list = say_all(&mut house, &mut all, 1, "CLIENT LIST\r\n")[1].clone();
        assert!(list.contains(" flags=b ") && list.contains(" flags=N "), "{list}");
        assert_eq!(say_all(&mut house, &mut all, 1, &unblock), [reply, ":1 "]);
    }
    let said = say_all(&mut house, &mut all, 1, "CLIENT UNBLOCK 77\r\nCLIENT UNBLOCK 1 X\r\n");
    assert_eq!(said[1], ":0 -ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR ");
}

#[test]
fn in_multi_and_for_silent_clients() {
    transcript(&[
        ("MULTI", "+OK"),
        ("BLPOP a 0", "+QUEUED"),
        ("BLMOVE a b LEFT LEFT 0", "+QUEUED"),
        ("RPUSH a 1", "+QUEUED"),
        ("BLPOP a 0", "+QUEUED"),
        ("EXEC", "*4 *-1 $-1 :1 *2 $1 a $1 1"),
    ]);
    let mut house = House::new(false);
    let mut all: Vec<_> = (0..2).map(|_| house.client()).collect();
    say_all(&mut house, &mut all, 0, "CLIENT REPLY SKIP\r\nBLPOP a 0\r\nPING\r\n");
    assert_eq!(say_all(&mut house, &mut all, 1, "RPUSH a 1\r\n"), ["+PONG ", ":1 "]);
}

/// The client gets an element pushed by a transaction that may not be on disk yet.
#[test]
fn what_was_waited_for_leaves_once_it_is_on_disk() {
    let mut house = House::new(true);
    let (mut waits, mut pushes) = (house.client(), house.client());
    waits.feed(b"BLPOP a 0\r\n");
    house.run(&mut waits, 0);
    pushes.feed(b"RPUSH a 1\r\n");
    house.run(&mut pushes, 1);
    house.run(&mut waits, 0);
    assert!(!waits.is_blocked());
    assert_eq!((take(&mut waits), take(&mut pushes)), (String::new(), String::new()));
    house.write_log();
    while !house.queue.is_empty() {
        house.queue.wait_for_one().unwrap();
        let mut done = Vec::new();
        house.queue.drain(|item| done.push(item)).unwrap();
        for (number, mark) in done {
            [&mut waits, &mut pushes][number].acknowledged(mark);
        }
    }
    assert_eq!((take(&mut waits).as_str(), take(&mut pushes).as_str()), ("*2 $1 a $1 1 ", ":1 "));
}

/// A waiting client is read on, up to a bound: so its end is noticed.
#[test]
fn input_behind_it_is_bounded() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"BLPOP a 0\r\n");
    client.feed(&b"PING\r\n".repeat(1_000));
    assert!(!client.is_ahead() && !client.has_work());
    client.feed(&b"PING\r\n".repeat(MOST_RUN_BYTES / 6 + 1));
    assert!(client.is_ahead() && !client.has_work());
}

/// Random pushes and pops of many clients, against queues.
#[test]
fn as_queues_of_elements_and_clients() {
    assert!(catalogue::find(b"blpop").is_some());
    let names = ["a", "b", "c"];
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut house = House::new(false);
        let mut all: Vec<_> = (0..6).map(|_| house.client()).collect();
        let mut lists: [VecDeque<u32>; 3] = Default::default();
        let mut waiting: [VecDeque<usize>; 3] = Default::default();
        for step in 0..120u32 {
            let (at, key) = (rng.usize(1..6), rng.usize(0..3));
            let name = names[key];
            let is_waiting = waiting.iter().any(|queue| queue.contains(&at));
            if rng.bool() && !is_waiting {
                let said = say_all(&mut house, &mut all, at, &format!("BLPOP {name} 0\r\n"));
                let expected = match lists[key].pop_front() {
                    Some(first) => format!("*2 $1 {name} ${} {first} ", first.to_string().len()),
                    None => {
                        waiting[key].push_back(at);
                        String::new()
                    }
                };
                assert_eq!(said[at], expected, "seed {seed} step {step}");
            } else {
                let count = rng.u32(1..4);
                let added: Vec<u32> = (0..count).map(|n| step * 10 + n).collect();
                let text: String = added.iter().map(|n| format!(" {n}")).collect();
                let said = say_all(&mut house, &mut all, 0, &format!("RPUSH {name}{text}\r\n"));
                lists[key].extend(added);
                while !lists[key].is_empty() && !waiting[key].is_empty() {
                    let served = waiting[key].pop_front().unwrap();
                    let first = lists[key].pop_front().unwrap();
                    let length = first.to_string().len();
                    let expected = format!("*2 $1 {name} ${length} {first} ");
                    assert_eq!(said[served], expected, "seed {seed} step {step}");
                }
            }
        }
        assert_eq!(
            house.shared.wiring.waiting.clients(),
            waiting.iter().map(VecDeque::len).sum::<usize>()
        );
    }
}
