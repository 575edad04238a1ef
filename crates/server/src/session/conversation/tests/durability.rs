//! HYADES.DURABILITY: replies before the write is on disk, and replies never sent so early.

use super::*;

/// Runs a client's text; nothing is written to the log.
fn say_at_once(house: &mut House, client: &mut Conversation, number: usize, text: &str) -> String {
    client.feed(format!("{text}\r\n").as_bytes());
    house.run(client, number);
    take(client)
}

/// Writes the log, and tells the clients.
fn write(house: &mut House, clients: &mut [&mut Conversation]) {
    house.write_log();
    house.queue.drain(|(number, mark)| clients[number].acknowledged(mark)).unwrap();
}

#[test]
fn it_is_chosen_by_connection() {
    transcript(&[
        ("HYADES.DURABILITY", "$3 ack"),
        ("HYADES.DURABILITY none", "+OK"),
        ("hyades.durability", "$4 none"),
        ("SET a 1", "+OK"),
        ("HYADES.DURABILITY 1S", "+OK"),
        ("HYADES.DURABILITY", "$2 1s"),
        (
            "HYADES.DURABILITY 2s",
            "-ERR choose ack (replies are sent when they are on disk), 1s or none",
        ),
        ("HYADES.DURABILITY none 1s", "-ERR syntax error"),
        ("HYADES.DURABILITY", "$2 1s"),
        ("RESET", "+RESET"),
        ("HYADES.DURABILITY", "$3 ack"),
    ]);
}

#[test]
fn early_replies_leave_at_once_and_others_wait() {
    let mut house = House::new(true);
    let (mut early, mut other) = (house.client(), house.client());
    for mode in ["none", "1s"] {
        assert_eq!(
            say_at_once(&mut house, &mut early, 0, &format!("HYADES.DURABILITY {mode}")),
            "+OK "
        );
        assert_eq!(say_at_once(&mut house, &mut early, 0, &format!("SET {mode} 1")), "+OK ");
        assert_eq!(say_at_once(&mut house, &mut early, 0, &format!("GET {mode}")), "$1 1 ");
        // A write told without certainty is not told to a client that asked for certainty.
        assert_eq!(say_at_once(&mut house, &mut other, 1, &format!("GET {mode}")), "");
        write(&mut house, &mut [&mut early, &mut other]);
        assert_eq!((take(&mut early), take(&mut other)), (String::new(), "$1 1 ".to_string()));
    }
}

#[test]
fn an_ok_of_ack_and_waitaof_tell_that_all_before_is_on_disk() {
    for asked in ["HYADES.DURABILITY ack", "WAITAOF 1 0 0"] {
        let mut house = House::new(true);
        let mut client = house.client();
        assert_eq!(say_at_once(&mut house, &mut client, 0, "HYADES.DURABILITY none"), "+OK ");
        assert_eq!(say_at_once(&mut house, &mut client, 0, "SET a 1"), "+OK ");
        assert_eq!(say_at_once(&mut house, &mut client, 0, asked), "", "{asked}");
        write(&mut house, &mut [&mut client]);
        let said = take(&mut client);
        assert!(["+OK ", "*2 :1 :0 "].contains(&&said[..]), "{asked}: {said}");
        // Nothing waits, so there is nothing to wait for.
        assert_eq!(say_at_once(&mut house, &mut client, 0, "WAITAOF 1 0 0"), "*2 :1 :0 ");
        assert_eq!(say_at_once(&mut house, &mut client, 0, "WAITAOF 0 0 0"), "*2 :1 :0 ");
    }
}

#[test]
fn a_transaction_may_choose_for_itself() {
    let mut house = House::new(true);
    let mut client = house.client();
    let queued = "+OK +QUEUED +QUEUED ";
    let text = "MULTI\r\nHYADES.DURABILITY none\r\nSET a 1\r\nEXEC";
    assert_eq!(say_at_once(&mut house, &mut client, 0, text), format!("{queued}*2 +OK +OK "));
    // The setting was for the transaction alone.
    assert_eq!(say_at_once(&mut house, &mut client, 0, "HYADES.DURABILITY"), "$3 ack ");
    assert_eq!(say_at_once(&mut house, &mut client, 0, "SET a 2"), "");
    write(&mut house, &mut [&mut client]);
    assert_eq!(take(&mut client), "+OK ");

    // The other way round; the last setting counts.
    assert_eq!(say_at_once(&mut house, &mut client, 0, "HYADES.DURABILITY none"), "+OK ");
    let text = "MULTI\r\nHYADES.DURABILITY 1s\r\nHYADES.DURABILITY ack\r\nSET a 3\r\nEXEC";
    assert_eq!(say_at_once(&mut house, &mut client, 0, text), "");
    write(&mut house, &mut [&mut client]);
    assert_eq!(take(&mut client), format!("{queued}+QUEUED *3 +OK +OK +OK "));
    assert_eq!(say_at_once(&mut house, &mut client, 0, "HYADES.DURABILITY"), "$4 none ");
    // Within a transaction nothing waits: WAITAOF counts only certain writes.
    let text = "MULTI\r\nWAITAOF 1 0 0\r\nEXEC";
    assert_eq!(say_at_once(&mut house, &mut client, 0, text), "+OK +QUEUED *1 *2 :0 :0 ");
    // A transaction without commands on data leaves nothing behind for the next.
    let text = "MULTI\r\nHYADES.DURABILITY ack\r\nEXEC\r\nSET a 4";
    assert_eq!(say_at_once(&mut house, &mut client, 0, text), "+OK +QUEUED *1 +OK +OK ");
}

/// Messages tell of writes: they are delivered when the writes are on disk, whatever was replied.
#[test]
fn messages_of_early_replies_wait_for_the_disk() {
    let mut house = House::new(true);
    let (mut publisher, mut listener) = (house.client(), house.client());
    say_at_once(&mut house, &mut listener, 1, "SUBSCRIBE a");
    let text = "HYADES.DURABILITY none\r\nSET k 1\r\nPUBLISH a x";
    assert_eq!(say_at_once(&mut house, &mut publisher, 0, text), "+OK +OK :1 ");
    assert_eq!(say_at_once(&mut house, &mut listener, 1, ""), "");
    write(&mut house, &mut [&mut publisher, &mut listener]);
    assert_eq!(say_at_once(&mut house, &mut listener, 1, ""), "*3 $7 message $1 a $1 x ");
}

/// A log without writes for a second makes `1s` wait, and `none` go on.
#[test]
fn a_second_is_the_longest_that_one_tells_early() {
    let mut house = House::new(true);
    let (mut second, mut free) = (house.client(), house.client());
    say_at_once(&mut house, &mut second, 0, "HYADES.DURABILITY 1s");
    say_at_once(&mut house, &mut free, 1, "HYADES.DURABILITY none");
    assert_eq!(say_at_once(&mut house, &mut second, 0, "SET a 1"), "+OK ");
    assert_eq!(say_at_once(&mut house, &mut free, 1, "SET b 1"), "+OK ");
    std::thread::sleep(std::time::Duration::from_millis(1_010));
    assert_eq!(say_at_once(&mut house, &mut second, 0, "SET a 2"), "");
    assert_eq!(say_at_once(&mut house, &mut free, 1, "SET b 2"), "+OK ");
    write(&mut house, &mut [&mut second, &mut free]);
    assert_eq!(take(&mut second), "+OK ");
    assert_eq!(say_at_once(&mut house, &mut second, 0, "SET a 3"), "+OK ");
}

/// Sent replies stay sent; an unsent reply is not told as if it were certain.
#[test]
fn a_log_that_fails_fails_what_waits_for_it() {
    let mut house = House::new(true);
    let mut client = house.client();
    say_at_once(&mut house, &mut client, 0, "HYADES.DURABILITY none");
    assert_eq!(say_at_once(&mut house, &mut client, 0, "SET a 1"), "+OK ");
    assert_eq!(say_at_once(&mut house, &mut client, 0, "WAITAOF 1 0 0"), "");
    client.fail(&house.shared);
    assert!(take(&mut client).starts_with("-OUTCOMEUNKNOWN"));
}

#[test]
fn what_a_transaction_has_queued_is_told_with_its_outcome() {
    let mut house = House::new(true);
    let mut client = house.client();
    let all = "MULTI\r\nSET a 1\r\nGET a\r\nEXEC\r\nPING";
    assert_eq!(say_at_once(&mut house, &mut client, 0, all), "");
    write(&mut house, &mut [&mut client]);
    assert_eq!(take(&mut client), "+OK +QUEUED +QUEUED *2 +OK $1 1 +PONG ");
    // A client that waits for the replies before it sends EXEC gets them at once.
    assert_eq!(say_at_once(&mut house, &mut client, 0, "MULTI\r\nSET a 2"), "+OK +QUEUED ");
    assert_eq!(say_at_once(&mut house, &mut client, 0, "EXEC"), "");
    write(&mut house, &mut [&mut client]);
    assert_eq!(take(&mut client), "*1 +OK ");
    let early = "HYADES.DURABILITY none\r\nMULTI\r\nSET a 3\r\nEXEC";
    assert_eq!(say_at_once(&mut house, &mut client, 0, early), "+OK +OK +QUEUED *1 +OK ");
}
