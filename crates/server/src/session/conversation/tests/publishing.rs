//! Publish and subscribe.

use super::*;
use crate::net::connection::Connection;
use crate::sockets::client_socket::ClientSocket;
use mio::net::UnixStream;
use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::Ordering::Relaxed;

/// Runs clients until none has anything to run.
fn settle(house: &mut House, all: &mut [Conversation]) -> Vec<String> {
    let mut said = vec![String::new(); all.len()];
    loop {
        for (at, client) in all.iter_mut().enumerate() {
            said[at] +=
                &String::from_utf8(house.replies(client, b"")).unwrap().replace("\r\n", " ");
        }
        if !all.iter().any(Conversation::has_work) {
            return said;
        }
    }
}

fn say(house: &mut House, all: &mut [Conversation], at: usize, text: &str) -> Vec<String> {
    all[at].feed(format!("{text}\r\n").as_bytes());
    settle(house, all)
}

#[test]
fn messages_reach_those_that_have_subscribed() {
    let mut house = House::new(false);
    let mut all: Vec<_> = (0..4).map(|_| house.client()).collect();
    let said = say(&mut house, &mut all, 0, "SUBSCRIBE a b a");
    let subscribed = "*3 $9 subscribe $1 a :1 *3 $9 subscribe $1 b :2 *3 $9 subscribe $1 a :2 ";
    assert_eq!(said[0], subscribed);
    let said = say(&mut house, &mut all, 1, "PSUBSCRIBE a* [ab]");
    assert_eq!(said[1], "*3 $10 psubscribe $2 a* :1 *3 $10 psubscribe $4 [ab] :2 ");
    say(&mut house, &mut all, 2, "SSUBSCRIBE a");
    let said = say(&mut house, &mut all, 3, "PUBLISH a x");
    let message = "*3 $7 message $1 a $1 x ";
    let by_patterns = "*4 $8 pmessage $4 [ab] $1 a $1 x *4 $8 pmessage $2 a* $1 a $1 x ";
    assert_eq!(said, [message, by_patterns, "", ":3 "]);
    assert_eq!(say(&mut house, &mut all, 3, "SPUBLISH a x")[2], "*3 $8 smessage $1 a $1 x ");
    let asked = "PUBSUB CHANNELS\r\nPUBSUB CHANNELS b*\r\nPUBSUB NUMSUB a c\r\nPUBSUB NUMPAT";
    let said = say(&mut house, &mut all, 3, asked);
    assert_eq!(said[3], "*2 $1 a $1 b *1 $1 b *4 $1 a :1 $1 c :0 :2 ");
    let said = say(&mut house, &mut all, 3, "PUBSUB SHARDCHANNELS\r\nPUBSUB SHARDNUMSUB a");
    assert_eq!(said[3], "*1 $1 a *2 $1 a :1 ");
    let said = say(&mut house, &mut all, 0, "UNSUBSCRIBE a\r\nUNSUBSCRIBE\r\nUNSUBSCRIBE\r\nGET a");
    let ended = "*3 $11 unsubscribe $1 a :1 *3 $11 unsubscribe $1 b :0 *3 $11 unsubscribe $-1 :0 ";
    assert_eq!(said[0], format!("{ended}$-1 "));
    // A closed connection has no subscriptions.
    drop(all.remove(1));
    assert_eq!(say(&mut house, &mut all, 2, "PUBLISH a x\r\nPUBSUB NUMPAT")[2], ":0 :0 ");
}

#[test]
fn a_client_that_wants_no_replies_gets_messages() {
    let mut house = House::new(false);
    let mut all: Vec<_> = (0..2).map(|_| house.client()).collect();
    let said = say(&mut house, &mut all, 0, "CLIENT REPLY OFF\r\nSUBSCRIBE a\r\nSUBSCRIBE");
    assert_eq!(said[0], "*3 $9 subscribe $1 a :1 ");
    assert_eq!(say(&mut house, &mut all, 1, "PUBLISH a x")[0], "*3 $7 message $1 a $1 x ");
    assert_eq!(say(&mut house, &mut all, 0, "UNSUBSCRIBE a")[0], "*3 $11 unsubscribe $1 a :0 ");
    let queued = "MULTI\r\nSUBSCRIBE a\r\nDISCARD\r\nPING";
    assert_eq!(say(&mut house, &mut all, 0, queued)[0], "");
    // SUBSCRIBE has no reply to be skipped.
    let skipped = "CLIENT REPLY ON\r\nCLIENT REPLY SKIP\r\nSUBSCRIBE b\r\nPING";
    let said = say(&mut house, &mut all, 0, skipped);
    assert_eq!(said[0], "+OK *3 $9 subscribe $1 b :1 *2 $4 pong $0  ");
}

#[test]
fn a_client_that_listens_says_little_in_version_2() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"SUBSCRIBE a\r\n");
    for (text, expected) in [
        ("PING", "*2 $4 pong $0  "),
        ("PING x", "*2 $4 pong $1 x "),
        ("PUNSUBSCRIBE", "*3 $12 punsubscribe $-1 :1 "),
    ] {
        assert_eq!(house.say(&mut client, format!("{text}\r\n").as_bytes()), expected);
    }
    for text in ["GET a", "SET a 1", "MULTI", "PUBLISH a x", "CLIENT ID", "PUBSUB NUMPAT"] {
        let said = house.say(&mut client, format!("{text}\r\n").as_bytes());
        assert!(said.starts_with("-ERR Can't execute '"), "{said}");
    }
    assert_eq!(house.say(&mut client, b"RESET\r\nEXISTS a\r\n"), "+RESET :0 ");
    // In version 3, anything.
    let said = house.say(&mut client, b"HELLO 3\r\n");
    assert!(said.starts_with('%'), "{said}");
    let said = house.say(&mut client, b"SUBSCRIBE a\r\nSET a 1\r\nPUBLISH a x\r\n");
    assert_eq!(said, ">3 $9 subscribe $1 a :1 +OK :1 >3 $7 message $1 a $1 x ");
}

/// No subscriber hears of anything that a crash takes back.
#[test]
fn a_message_leaves_when_what_its_publisher_wrote_is_on_disk() {
    for publish in ["SET a 1\r\nPUBLISH c x\r\n", "MULTI\r\nSET a 1\r\nPUBLISH c x\r\nEXEC\r\n"] {
        for silent in ["", "CLIENT REPLY OFF\r\n"] {
            let mut house = House::new(true);
            let (mut listens, mut publishes) = (house.client(), house.client());
            listens.feed(b"SUBSCRIBE c\r\n");
            house.run(&mut listens, 0);
            take(&mut listens);
            publishes.feed([silent, publish].concat().as_bytes());
            house.run(&mut publishes, 1);
            house.run(&mut listens, 0);
            assert_eq!((take(&mut listens).as_str(), publishes.has_delivered()), ("", false));
            house.write_log();
            while !house.queue.is_empty() {
                house.queue.wait_for_one().unwrap();
                let mut done = Vec::new();
                house.queue.drain(|item| done.push(item)).unwrap();
                done.into_iter().for_each(|(_, mark)| publishes.acknowledged(mark));
            }
            assert!(publishes.has_delivered());
            house.run(&mut listens, 0);
            assert_eq!(take(&mut listens), "*3 $7 message $1 c $1 x ", "{silent}{publish}");
        }
    }
}

/// A publisher that hangs up, after all replies or without replies, takes no message along.
#[test]
fn a_message_is_delivered_although_its_publisher_has_hung_up() {
    for first in ["CLIENT REPLY OFF", "HYADES.DURABILITY none"] {
        let mut house = House::new(true);
        let mut listens = house.client();
        listens.feed(b"SUBSCRIBE c\r\n");
        house.run(&mut listens, 0);
        take(&mut listens);
        let (mut client, socket) = UnixStream::pair().unwrap();
        let calls = Calls::new(Waker::noop().clone());
        let entry = ClientEntry::new(9, (String::new(), String::new()), 0, calls);
        let mut publishes = Connection::new(&house.shared, ClientSocket::Unix(socket), None, entry);
        let text = format!("{first}\r\nSET a 1\r\nPUBLISH c x\r\n");
        client.write_all(text.as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        // After a read that fills the buffer, another read finds the end.
        let mut buffer = vec![0; text.len()];
        publishes.read(&house.shared, &mut buffer, 0);
        house.run(&mut publishes.conversation, 1);
        publishes.write(&house.shared);
        publishes.read(&house.shared, &mut buffer, 0);
        assert_eq!(publishes.output_bytes(), 0, "{first}");
        assert!(!publishes.is_done(), "{first}: its message waits for the disk");
        house.write_log();
        while !house.queue.is_empty() {
            house.queue.wait_for_one().unwrap();
            house.queue.drain(|(_, mark)| publishes.conversation.acknowledged(mark)).unwrap();
        }
        assert!(publishes.is_done(), "{first}");
        house.run(&mut listens, 0);
        assert_eq!(take(&mut listens), "*3 $7 message $1 c $1 x ", "{first}");
    }
}

#[test]
fn nothing_is_published_by_a_transaction_that_did_not_run() {
    let mut house = House::new(false);
    let mut all: Vec<_> = (0..2).map(|_| house.client()).collect();
    say(&mut house, &mut all, 0, "SUBSCRIBE c");
    say(&mut house, &mut all, 1, "WATCH a\r\nSET a 1\r\nMULTI\r\nPUBLISH c x\r\nSET a 2");
    assert_eq!(say(&mut house, &mut all, 1, "EXEC"), ["", "*-1 "]);
    say(&mut house, &mut all, 1, "MULTI\r\nPUBLISH c x");
    assert_eq!(say(&mut house, &mut all, 1, "DISCARD"), ["", "+OK "]);
    assert_eq!(say(&mut house, &mut all, 1, "PUBLISH c y")[0], "*3 $7 message $1 c $1 y ");
}

/// A subscriber that does not read is disconnected, and holds up no other client.
#[test]
fn a_subscriber_that_does_not_read_is_disconnected() {
    let mut house = House::new(false);
    let (mut listens, mut publishes) = (house.client(), house.client());
    let limit = b"CONFIG SET client-output-buffer-limit \"pubsub 1mb 0 0\"\r\n";
    assert_eq!(house.say(&mut publishes, limit), "+OK ");
    house.say(&mut listens, b"CLIENT SETNAME slow\r\nSUBSCRIBE c\r\n");
    let entry = house.shared.clients.find(1).unwrap();
    let text = format!("PUBLISH c {}\r\n", "x".repeat(30_000));
    let mut published = 0;
    while !entry.is_killed.load(Relaxed) {
        house.say(&mut publishes, text.as_bytes());
        house.run(&mut listens, 0);
        published += text.len();
        assert!(published < 4 << 20, "it is not bounded");
    }
    assert!(published > 1 << 20);
    assert!(entry.inbox.is_empty() && listens.output_bytes() <= MOST_UNSENT + text.len());
    assert_eq!(house.say(&mut publishes, b"PING\r\n"), "+PONG ");
}

/// Waiting bytes are counted exactly: a message that fills the limit stays, one more byte is too
/// much.
#[test]
fn a_subscriber_may_leave_as_much_unread_as_the_limit_says() {
    for (limit, is_killed) in [(1_000 + 97, false), (1_000 + 96, true)] {
        let mut house = House::new(false);
        let (mut listens, mut publishes) = (house.client(), house.client());
        let limit = format!("CONFIG SET client-output-buffer-limit \"pubsub {limit} 0 0\"\r\n");
        assert_eq!(house.say(&mut publishes, limit.as_bytes()), "+OK ");
        house.say(&mut listens, b"SUBSCRIBE c\r\n");
        house.say(&mut publishes, format!("PUBLISH c {}\r\n", "x".repeat(1_000)).as_bytes());
        let entry = house.shared.clients.find(1).unwrap();
        assert_eq!(entry.is_killed.load(Relaxed), is_killed);
    }
}

#[test]
fn a_client_that_waits_for_an_element_hears_messages() {
    let mut house = House::new(false);
    let mut all: Vec<_> = (0..2).map(|_| house.client()).collect();
    say(&mut house, &mut all, 0, "HELLO 3\r\nSUBSCRIBE c\r\nBLPOP a 0");
    assert_eq!(say(&mut house, &mut all, 1, "PUBLISH c x")[0], ">3 $7 message $1 c $1 x ");
    assert_eq!(say(&mut house, &mut all, 1, "RPUSH a 1")[0], "*2 $1 a $1 1 ");
}
