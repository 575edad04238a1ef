//! The handshake, the values, and imports that end at these stages.

use super::*;

const READ_ONLY: &str = "-READONLY You can't write against a read only replica.";

#[test]
fn values_are_loaded_and_clients_read_them_but_write_nothing() {
    let (primary, mut here) = (Primary::new(), Here::start(&[]));
    here.follow(&primary);
    let again = format!("SLAVEOF 127.0.0.1 {}", primary.port());
    assert_eq!(here.ask(&again), "+OK Already connected to specified master");
    assert!(here.ask("GET a").starts_with("-LOADING the database is imported from 127.0.0.1:"));
    assert!(here.ask("KEYS *").starts_with("-LOADING"));
    assert_eq!(here.ask("SET a 1"), READ_ONLY);
    let peer = primary.shake("PSYNC ? -1");
    // Empty lines keep the connection alive.
    peer.send("\n\n");
    peer.send(format!("+FULLRESYNC {ID} 100\r\n\n\n"));
    here.wait_until("sync", |here| here.info("master_sync_in_progress") == "1");
    let values = values(&[("a", "1", None), ("gone", "2", Some(5))]);
    peer.send(format!("\n${}\r\n", values.len()));
    let (first, second) = values.split_at(values.len() / 2);
    peer.send(first);
    here.wait_until("bytes are read", |here| here.info("master_sync_read_bytes") != "0");
    assert_eq!(here.info("master_sync_total_bytes"), values.len().to_string());
    assert_eq!(here.info("loading"), "1");
    peer.send(second);
    here.wait_for("GET a", "1");
    here.wait_until("a link", |here| here.info("master_link_status") == "up");
    // Expired keys are not served, and exist until the primary removes them.
    assert_eq!(here.ask("EXISTS gone"), ":0");
    assert_eq!(here.ask("DBSIZE"), ":2");
    for line in
        ["SET a 1", "DEL a", "FLUSHALL", "FUNCTION FLUSH", "DEBUG POPULATE 1", "SORT a STORE b"]
    {
        assert_eq!(here.ask(line), READ_ONLY, "{line}");
    }
    assert_eq!(here.ask("MIGRATE 127.0.0.1 1 a 0 10"), READ_ONLY);
    assert_eq!(here.ask("MULTI"), "+OK");
    assert_eq!(here.ask("SET a 2"), READ_ONLY);
    assert!(here.ask("EXEC").starts_with("-EXECABORT"));
    assert_eq!(here.ask("ROLE"), format!("slave 127.0.0.1 :{} connected :100", primary.port()));
    let told = format!("replicaof 127.0.0.1 {}", primary.port());
    assert_eq!(here.ask("CONFIG GET replicaof"), told);
    #[cfg(feature = "lua")]
    {
        here.client.send("EVAL \"return redis.call('set','a','2')\" 0\r\n");
        assert!(here.client.read().starts_with("-READONLY"));
        here.client.send("EVAL \"return redis.call('get','a')\" 0\r\n");
        assert_eq!(here.client.read(), "1");
    }
    drop(peer);
}

/// Without a length the values end with a mark, even if the mark is cut on the way.
#[test]
fn values_of_unknown_length_end_with_their_mark() {
    let mark = "m".repeat(40);
    for cut in [0, 1, 39, 40, 60] {
        let (primary, mut here) = (Primary::new(), Here::start(&[]));
        here.follow(&primary);
        let mut peer = primary.shake("PSYNC ? -1");
        let mut bytes = values(&[("a", &"m".repeat(100), None)]);
        bytes.extend(mark.as_bytes());
        peer.send(format!("+FULLRESYNC {ID} 100\r\n$EOF:{mark}\r\n"));
        let (first, second) = bytes.split_at(bytes.len() - cut);
        peer.send(first);
        std::thread::sleep(Duration::from_millis(20));
        peer.send(second);
        // The stream begins after the first acknowledgement of this server.
        assert_eq!(peer.read(), "REPLCONF ACK 100");
        peer.send(requests(&["SELECT 0", "APPEND a n"]));
        here.wait_for("STRLEN a", ":101");
    }
}

#[test]
fn a_connection_that_ends_while_values_are_sent_is_made_again() {
    let (primary, mut here) = (Primary::new(), Here::start(&[]));
    here.follow(&primary);
    drop(primary.accept());
    drop(primary.shake("PSYNC ? -1"));
    let peer = primary.shake("PSYNC ? -1");
    peer.send(format!("+FULLRESYNC {ID} 100\r\n"));
    drop(peer);
    let whole = values(&[("a", "1", None), ("b", "1", None)]);
    let peer = primary.shake("PSYNC ? -1");
    peer.send(format!("+FULLRESYNC {ID} 100\r\n${}\r\n", whole.len()));
    peer.send(&whole[..whole.len() - 5]);
    drop(peer);
    here.wait_until("an error", |here| !here.info("import_last_error").is_empty());
    assert!(here.ask("GET a").starts_with("-LOADING"));
    // A restart there begins anew as well.
    here.restart();
    assert!(here.ask("GET a").starts_with("-LOADING"));
    assert_eq!(here.ask("SET a 1"), READ_ONLY);
    let _peer = primary.sync("PSYNC ? -1", &[("a", "2", None)]);
    here.wait_for("GET a", "2");
    assert_eq!(here.ask("DBSIZE"), ":1");
    assert_eq!(here.info("import_last_error"), "");
}

#[test]
fn replies_that_are_none_are_told_and_tried_again() {
    let (primary, mut here) = (Primary::new(), Here::start(&[]));
    here.follow(&primary);
    let mut wrong = |reply: &str, expected: &str| {
        let mut peer = primary.shake("PSYNC ? -1");
        peer.send(reply);
        peer.expect_end();
        here.wait_until(expected, |here| here.info("import_last_error").contains(expected));
        assert!(here.ask("GET a").starts_with("-LOADING"));
    };
    wrong("-NOMASTERLINK no\r\n", "NOMASTERLINK");
    wrong("+FULLRESYNC x y\r\n", "to PSYNC");
    wrong("+CONTINUE\r\n", "nothing is here");
    wrong(&format!("+FULLRESYNC {ID} 1\r\n-ERR no\r\n"), "in place of values");
    wrong(&format!("+FULLRESYNC {ID} 1\r\n$20\r\nREDISxyz0 is no file"), "no RDB file");
    wrong(&format!("+FULLRESYNC {ID} 1\r\n$12\r\nREDIS0010\u{7f}\u{7f}\u{7f}"), "expected");
    // The number of databases is too low.
    let mut peer = primary.sync("PSYNC ? -1", &[]);
    peer.send(requests(&["SELECT 99", "SET a 1"]));
    peer.expect_end();
    let expected = "--databases makes room";
    here.wait_until(expected, |here| here.info("import_last_error").contains(expected));
    assert_eq!(here.ask("DBSIZE"), ":0");
}

#[test]
fn a_password_is_sent_first() {
    let primary = Primary::new();
    let mut here = Here::start(&["--masterauth", "secret", "--masteruser", "me"]);
    here.follow(&primary);
    let mut peer = primary.accept();
    assert_eq!(peer.read(), "PING");
    peer.send("-NOAUTH Authentication required.\r\n");
    assert_eq!(peer.read(), "AUTH me secret");
    peer.send("-WRONGPASS no\r\n");
    peer.expect_end();
    here.wait_until("a refusal", |here| here.info("import_last_error").contains("masterauth"));
    assert_eq!(here.ask("CONFIG SET masteruser  masterauth other"), "+OK");
    let began = Instant::now();
    loop {
        let mut peer = primary.accept();
        peer.read();
        peer.send("-NOAUTH Authentication required.\r\n");
        match peer.read().as_str() {
            "AUTH other" => break,
            "AUTH me secret" if began.elapsed() < PATIENCE => {}
            said => panic!("{said}"),
        }
    }
}

#[test]
fn an_import_begins_on_an_empty_database() {
    let (primary, mut here) = (Primary::new(), Here::start(&[]));
    let line = format!("REPLICAOF 127.0.0.1 {}", primary.port());
    assert_eq!(here.ask("REPLICAOF NO ONE"), "+OK");
    assert_eq!(here.ask("REPLICAOF host x"), "-ERR Invalid master port");
    assert_eq!(here.ask("REPLICAOF host 65536"), "-ERR Invalid master port");
    assert!(here.ask("REPLICAOF a").starts_with("-ERR wrong number of arguments"));
    assert_eq!(here.ask("SET a 1"), "+OK");
    let refused = here.ask(&line);
    assert!(refused.starts_with("-ERR the database has 1 keys, and an import begins"), "{refused}");
    assert!(refused.contains("FLUSHALL") && refused.contains("another dir"), "{refused}");
    assert_eq!(here.ask("SET b 1"), "+OK");
    here.ask("FLUSHALL");
    #[cfg(feature = "lua")]
    {
        here.client.send(
            "FUNCTION LOAD \"#!lua name=l\\nredis.register_function('f', function() end)\"\r\n",
        );
        assert_eq!(here.client.read(), "l");
        assert!(here.ask(&line).contains("1 libraries of functions"));
        assert_eq!(here.ask("FUNCTION FLUSH"), "+OK");
    }
    here.wait_for(&line, "+OK");
    // An end before the values are whole removes the values.
    let _peer = primary.shake("PSYNC ? -1");
    assert_eq!(here.ask("REPLICAOF NO ONE"), "+OK");
    assert_eq!(here.ask("DBSIZE"), ":0");
    assert_eq!(here.ask("SET a 1"), "+OK");
}

#[test]
fn the_setting_begins_an_import_once() {
    let primary = Primary::new();
    let place = format!("127.0.0.1 {}", primary.port());
    let mut here = Here::start(&["--replicaof", &place]);
    let peer = primary.sync("PSYNC ? -1", &[("a", "1", None)]);
    here.wait_for("GET a", "1");
    drop(peer);
    here.restart();
    assert_eq!(here.ask("GET a"), "1");
    let _peer = primary.shake(&format!("PSYNC {ID} 101"));
    assert_eq!(here.ask("REPLICAOF NO ONE"), "+OK");
    assert_eq!(here.ask("SET a 2"), "+OK");
    here.restart();
    assert_eq!(here.ask("GET a"), "2");
    assert_eq!(here.ask("SET a 3"), "+OK");
    assert_eq!(here.ask("CONFIG GET replicaof"), "replicaof ");
    // Another primary is another import, for which there is no room.
    here.stop();
    let flags = ["--replicaof".to_string(), "127.0.0.1 1".to_string()];
    let refused = Here::open(&here.dir, &flags).map(drop).unwrap_err();
    assert!(
        refused.contains("this one has 1 keys and 0 libraries of functions: choose another dir"),
        "{refused}"
    );
}

/// A restart continues the import, from the primary set by a client.
#[test]
fn a_restart_goes_on_with_the_primary_of_the_import() {
    let (first, second) = (Primary::new(), Primary::new());
    let place = format!("127.0.0.1 {}", first.port());
    let mut here = Here::start(&["--replicaof", &place]);
    let _first = first.sync("PSYNC ? -1", &[("a", "1", None)]);
    here.wait_for("GET a", "1");
    here.follow(&second);
    let peer = second.shake(&format!("PSYNC {ID} 101"));
    peer.send("+CONTINUE\r\n");
    here.wait_until("a link", |here| here.info("master_link_status") == "up");
    here.restart();
    let _peer = second.shake(&format!("PSYNC {ID} 101"));
    assert_eq!(here.ask("CONFIG GET replicaof"), format!("replicaof 127.0.0.1 {}", second.port()));
}

/// An import ended before all values were loaded does not begin again.
#[test]
fn the_end_before_all_values_are_there_outlasts_a_restart() {
    let primary = Primary::new();
    let place = format!("127.0.0.1 {}", primary.port());
    let mut here = Here::start(&["--replicaof", &place]);
    let _peer = primary.shake("PSYNC ? -1");
    assert_eq!(here.ask("REPLICAOF NO ONE"), "+OK");
    here.restart();
    assert_eq!(here.ask("SET a 1"), "+OK");
    here.restart();
    assert_eq!(here.ask("GET a"), "1");
    assert_eq!(here.ask("SET a 2"), "+OK");
}

/// The setting removes no libraries.
#[cfg(feature = "lua")]
#[test]
fn the_setting_finds_libraries() {
    let mut here = Here::start(&[]);
    here.client
        .send("FUNCTION LOAD \"#!lua name=l\\nredis.register_function('f', function() end)\"\r\n");
    assert_eq!(here.client.read(), "l");
    here.stop();
    let flags = ["--replicaof".to_string(), "127.0.0.1 1".to_string()];
    let refused = Here::open(&here.dir, &flags).map(drop).unwrap_err();
    assert!(refused.contains("0 keys and 1 libraries of functions"), "{refused}");
}
