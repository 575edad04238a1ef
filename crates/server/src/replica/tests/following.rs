//! The stream of commands, and the place where it continues.

use super::*;

/// A server that has loaded these keys, with the connection of the primary.
fn followed(primary: &Primary, keys: &[(&str, &str, Option<i64>)]) -> (Here, Peer) {
    let mut here = Here::start(&[]);
    here.follow(primary);
    let peer = primary.sync("PSYNC ? -1", keys);
    here.wait_until("a link", |here| here.info("master_link_status") == "up");
    (here, peer)
}

#[test]
fn commands_are_run_in_their_order_and_acknowledged_when_they_are_on_disk() {
    let primary = Primary::new();
    let (mut here, mut peer) = followed(&primary, &[("n", "5", None)]);
    let mut stream = requests(&["SELECT 0", "INCR n", "PING"]);
    stream.extend(requests(&["MULTI", "INCR n", "SELECT 1", "SET n 1", "EXEC", "INCR n"]));
    stream.extend(requests(&["SELECT 0", "EXPIRE n 0", "PERSIST n", "REPLCONF GETACK *"]));
    let (first, second) = stream.split_at(stream.len() - 3);
    peer.send(first);
    peer.send(second);
    peer.expect(&format!("REPLCONF ACK {}", 100 + stream.len()));
    assert_eq!(here.ask("GET n"), "7");
    assert_eq!(here.ask("SELECT 1"), "+OK");
    assert_eq!(here.ask("GET n"), "2");
    let offset = (100 + stream.len()).to_string();
    assert_eq!(here.info("slave_repl_offset"), offset);
    assert_eq!(here.info("slave_read_repl_offset"), offset);
    assert_eq!(here.info("master_replid"), ID);
    // Acknowledgements come unasked as well.
    peer.expect(&format!("REPLCONF ACK {offset}"));
}

/// Expired keys are not served, and are removed on command of the primary.
#[test]
fn the_primary_decides_what_has_expired() {
    let primary = Primary::new();
    let (mut here, peer) = followed(&primary, &[("kept", "1", Some(1_000)), ("b", "1", None)]);
    assert_eq!(here.ask("EXISTS kept"), ":0");
    peer.send(requests(&["SELECT 0", "SET a 1 PXAT 2000", "PEXPIREAT b 3000", "APPEND b 2"]));
    here.wait_for("DBSIZE", ":3");
    peer.send(requests(&["PERSIST kept", "PERSIST a", "INCR b", "PEXPIREAT b 9999999999999"]));
    here.wait_for("MGET kept a b", "1 1 13");
    peer.send(requests(&["PEXPIREAT a 5", "DEL kept", "DEL kept", "SET last 1"]));
    here.wait_for("GET last", "1");
    assert_eq!(here.ask("DBSIZE"), ":3");
    assert_eq!(here.info("expired_keys"), "0");
    assert_eq!(here.info("import_left_out"), "0");
    // After the end of the import, expired keys are removed here.
    assert_eq!(here.ask("REPLICAOF NO ONE"), "+OK");
    here.wait_for("DBSIZE", ":2");
    assert_eq!(here.info("expired_keys"), "1");
}

#[test]
fn what_is_left_out_is_counted_and_named() {
    let primary = Primary::new();
    let (mut here, peer) = followed(&primary, &[("text", "x", None)]);
    let first = requests(&["SELECT 0"]).len();
    let lines = ["SELECT 0", "NOTHING a b", "INCR text", "CONFIG SET port 1", "SET good 1"];
    peer.send(requests(&lines));
    here.wait_for("GET good", "1");
    assert_eq!(here.info("import_left_out"), "3");
    let place = format!("127.0.0.1:{} at byte", primary.port());
    assert_eq!(
        here.info("import_left_out_0"),
        format!("{place} {}: NOTHING a: ERR unknown command", 100 + first)
    );
    assert!(here.info("import_left_out_1").contains("INCR text: ERR value is not an integer"));
    assert!(here.info("import_left_out_2").ends_with("CONFIG SET: ERR it changes no data"));
    // In a transaction the remaining commands are run.
    peer.send(requests(&["MULTI", "SET c 1", "INCR text", "SET d 1", "EXEC"]));
    here.wait_for("MGET c d", "1 1");
    assert_eq!(here.info("import_left_out"), "4");
}

#[test]
fn messages_are_passed_on() {
    let primary = Primary::new();
    let (here, peer) = followed(&primary, &[]);
    let address = here.server.as_ref().unwrap().address().unwrap();
    let mut listener = Peer::new(TcpStream::connect(address).unwrap());
    assert_eq!(listener.ask("SUBSCRIBE news"), "subscribe news :1");
    peer.send(requests(&["SELECT 0", "PUBLISH news hello", "SET a 1"]));
    assert_eq!(listener.read(), "message news hello");
}

/// A restart continues behind the stored offset, also in a history with another id by now; nothing
/// is lost or done twice.
#[test]
fn a_restart_goes_on_behind_what_is_there() {
    let primary = Primary::new();
    let (mut here, mut peer) = followed(&primary, &[("n", "0", None)]);
    let mut offset = 100;
    let first = requests(&["SELECT 3", "INCR n", "INCR n", "REPLCONF GETACK *"]);
    peer.send(&first);
    let whole = requests(&["SELECT 3", "INCR n", "INCR n"]).len();
    peer.expect(&format!("REPLCONF ACK {}", 100 + first.len()));
    // A transaction without an end is not run.
    peer.send(requests(&["MULTI", "INCR n", "INCR n"]));
    offset += whole;
    here.restart();
    assert_eq!(here.ask("SELECT 3"), "+OK");
    assert_eq!(here.ask("GET n"), "2", "clients read while there is no connection");
    assert_eq!(here.info("slave_repl_offset"), offset.to_string());
    let peer = primary.shake(&format!("PSYNC {ID} {}", offset + 1));
    peer.send(format!("+CONTINUE {OTHER_ID}\r\n"));
    // The database is the last selected database.
    let second = requests(&["REPLCONF GETACK *", "MULTI", "INCR n", "INCR n", "EXEC", "INCR n"]);
    peer.send(&second);
    here.wait_for("GET n", "5");
    drop(peer);
    offset += second.len();
    let peer = primary.shake(&format!("PSYNC {OTHER_ID} {}", offset + 1));
    peer.send("+CONTINUE\r\n");
    peer.send(requests(&["INCR n"]));
    here.wait_for("GET n", "6");
    assert_eq!(here.info("import_partial_syncs"), "2");
    assert_eq!(here.info("import_full_syncs"), "0");
}

#[test]
fn a_primary_that_has_lost_what_follows_sends_all_again() {
    let primary = Primary::new();
    let (mut here, peer) = followed(&primary, &[("old", "1", None)]);
    peer.send(requests(&["SELECT 0", "SET other 1"]));
    here.wait_for("GET other", "1");
    drop(peer);
    let mut peer = primary.accept();
    for _ in 0..3 {
        peer.read();
        peer.send("+OK\r\n");
    }
    assert!(peer.read().starts_with(&format!("PSYNC {ID} ")));
    let bytes = values(&[("new", "1", None)]);
    peer.send(format!("+FULLRESYNC {OTHER_ID} 7000\r\n${}\r\n", bytes.len()));
    here.wait_until("loading", |here| here.ask("GET old").starts_with("-LOADING"));
    peer.send(bytes);
    here.wait_for("GET new", "1");
    assert_eq!(here.ask("MGET old other"), "nil nil");
    assert_eq!(here.ask("DBSIZE"), ":1");
    assert_eq!(here.info("slave_repl_offset"), "7000");
    assert_eq!(here.info("import_full_syncs"), "2");
}

#[test]
fn a_stream_that_is_none_ends_the_connection() {
    let primary = Primary::new();
    let (mut here, mut peer) = followed(&primary, &[]);
    let good = requests(&["SELECT 0", "SET a 1"]);
    peer.send(&good);
    here.wait_for("GET a", "1");
    peer.send("*1\r\n$x\r\n");
    peer.expect_end();
    here.wait_until("an error", |here| here.info("import_last_error").contains("Protocol error"));
    let mut peer = primary.shake(&format!("PSYNC {ID} {}", 101 + good.len()));
    peer.send("+CONTINUE\r\nSET a 2\r\n");
    peer.expect_end();
    here.wait_until("it", |here| here.info("import_last_error").contains("array of strings"));
    let peer = primary.shake(&format!("PSYNC {ID} {}", 101 + good.len()));
    peer.send("+CONTINUE\r\n");
    peer.send(requests(&["SET a 3"]));
    here.wait_for("GET a", "3");
}

/// The primary may have another address by now: the stored data stays.
#[test]
fn another_primary_of_the_same_history_is_followed() {
    let (first, second) = (Primary::new(), Primary::new());
    let (mut here, peer) = followed(&first, &[("a", "1", None)]);
    here.follow(&second);
    assert_eq!(here.ask("GET a"), "1");
    let other = second.shake(&format!("PSYNC {ID} 101"));
    other.send(format!("+CONTINUE {OTHER_ID}\r\n"));
    other.send(requests(&["SELECT 0", "INCR a"]));
    here.wait_for("GET a", "2");
    assert_eq!(here.info("master_port"), second.port().to_string());
    drop(peer);
}

/// Received commands are on disk when writes are accepted, and nothing is followed any more.
#[test]
fn the_end_keeps_what_was_received() {
    let primary = Primary::new();
    let (mut here, peer) = followed(&primary, &[("n", "0", None)]);
    let many: Vec<u8> = (0..20_000).flat_map(|_| request("INCR n")).collect();
    peer.send(requests(&["SELECT 0"]));
    peer.send(&many);
    here.wait_for("GET n", "20000");
    assert_eq!(here.ask("SLAVEOF no one"), "+OK");
    peer.send(requests(&["INCR n"]));
    assert_eq!(here.ask("INCR n"), ":20001");
    assert_eq!(here.ask("ROLE"), "master :0 ");
    assert_eq!(here.info("role"), "master");
    assert_eq!(here.info("master_host"), "");
    assert_eq!(here.ask("CONFIG GET replicaof"), "replicaof ");
    here.restart();
    assert_eq!(here.ask("GET n"), "20001");
    assert_eq!(here.ask("SET n 1"), "+OK");
}

/// A replica passes its stream on without SELECT: the file tells the database.
#[test]
fn the_stream_goes_on_in_the_database_that_the_file_tells() {
    let (primary, mut here) = (Primary::new(), Here::start(&[]));
    here.follow(&primary);
    let mut values = b"REDIS0010\xfa\x0erepl-stream-db\x013\xff".to_vec();
    // Without a checksum.
    values.extend([0; 8]);
    let peer = primary.shake("PSYNC ? -1");
    peer.send(format!("+FULLRESYNC {ID} 100\r\n${}\r\n", values.len()));
    peer.send(values);
    peer.send(requests(&["SET a 1"]));
    assert_eq!(here.ask("SELECT 3"), "+OK");
    here.wait_for("GET a", "1");
    here.restart();
    let peer = primary.shake(&format!("PSYNC {ID} {}", 101 + request("SET a 1").len()));
    peer.send("+CONTINUE\r\n");
    peer.send(requests(&["INCR a"]));
    assert_eq!(here.ask("SELECT 3"), "+OK");
    here.wait_for("GET a", "2");
}

/// Commands behind an open MULTI are not on disk.
#[test]
fn an_acknowledgement_leaves_an_open_transaction_out() {
    let primary = Primary::new();
    let (mut here, mut peer) = followed(&primary, &[("n", "0", None)]);
    let whole = requests(&["SELECT 0", "INCR n"]);
    peer.send(&whole);
    peer.expect(&format!("REPLCONF ACK {}", 100 + whole.len()));
    peer.send(requests(&["MULTI", "INCR n", "REPLCONF GETACK *"]));
    peer.expect(&format!("REPLCONF ACK {}", 100 + whole.len()));
    assert_eq!(here.ask("GET n"), "1");
}
