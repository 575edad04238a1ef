//! Cluster mode of a server alone: a node that has all slots.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::Served;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const CROSS: &str = "-CROSSSLOT Keys in request don't hash to the same slot";
const DISABLED: &str = "-ERR This instance has cluster support disabled";

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(served: &Served) -> Client {
        Client(BufReader::new(served.connect(Duration::from_secs(60))))
    }

    /// The reply to a line, flat.
    fn ask(&mut self, line: &str) -> String {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
        self.reply()
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the connection is open");
        let line = line.trim_end().to_string();
        let (kind, rest) = line.split_at(1);
        match (kind, rest.parse::<i64>()) {
            ("$" | "*", Ok(-1)) => "nil".to_string(),
            ("$", Ok(length)) => {
                let mut bytes = vec![0; length as usize + 2];
                self.0.read_exact(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes[..length as usize]).into_owned()
            }
            ("*", Ok(length)) => {
                let parts: Vec<String> = (0..length).map(|_| self.reply()).collect();
                format!("[{}]", parts.join(" "))
            }
            ("+", _) => rest.to_string(),
            _ => line,
        }
    }

    fn port(&self) -> u16 {
        self.0.get_ref().peer_addr().unwrap().port()
    }
}

fn start(more: &str) -> (tempfile::TempDir, Served) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let served = Served::start(dir.path(), more);
    (dir, served)
}

#[test]
fn without_cluster_mode_its_commands_are_refused() {
    let (_dir, served) = start("");
    let mut client = Client::connect(&served);
    for line in ["CLUSTER SLOTS", "CLUSTER KEYSLOT a", "READONLY", "READWRITE", "ASKING"] {
        assert_eq!(client.ask(line), DISABLED, "{line}");
    }
    assert_eq!(client.ask("MSET a 1 b 2"), "OK");
    assert!(client.ask("HELLO").contains("mode standalone"));
    assert!(client.ask("INFO cluster").contains("cluster_enabled:0"));
    assert!(client.ask("CONFIG SET cluster-enabled yes").starts_with("-ERR"));
}

#[test]
fn a_node_alone_has_all_slots() {
    let (dir, served) = start("--cluster-enabled yes");
    let mut client = Client::connect(&served);
    let (port, id) = (client.port(), client.ask("CLUSTER MYID"));
    assert!(id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    // Of redis-server: the host is empty, and clients take that of their connection.
    assert_eq!(client.ask("CLUSTER SLOTS"), format!("[[:0 :16383 [ :{port} {id} []]]]"));
    let node = format!("id {id} port :{port} ip  endpoint  role master");
    let shards =
        format!("[[slots [:0 :16383] nodes [[{node} replication-offset :0 health online]]]]");
    assert_eq!(client.ask("CLUSTER SHARDS"), shards);
    let nodes = format!("{id} :{port}@0 myself,master - 0 0 0 connected 0-16383\n");
    assert_eq!(client.ask("CLUSTER NODES"), nodes);
    let info = client.ask("CLUSTER INFO");
    for part in ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:1"] {
        assert!(info.contains(part), "{info}");
    }
    assert_eq!(client.ask("CLUSTER LINKS"), "[]");
    assert_eq!(client.ask(&format!("CLUSTER REPLICAS {id}")), "[]");
    assert_eq!(client.ask("CLUSTER SLAVES x"), "-ERR Unknown node x");
    assert_eq!(client.ask("CLUSTER KEYSLOT a{b}c"), ":3300");
    let said = client.ask("CLUSTER KEYSLOT");
    assert_eq!(said, "-ERR wrong number of arguments for 'cluster|keyslot' command");
    assert_eq!(client.ask("CLUSTER NONE"), "-ERR unknown subcommand 'NONE'. Try CLUSTER HELP.");
    for line in ["READONLY", "READWRITE", "ASKING"] {
        assert_eq!(client.ask(line), "OK");
    }
    assert!(client.ask("HELLO").contains("mode cluster"));
    let info = client.ask("INFO");
    assert!(info.contains("redis_mode:cluster") && info.contains("cluster_enabled:1"), "{info}");
    for line in ["CONFIG SET cluster-announce-ip 10.1.2.3", "CONFIG SET cluster-announce-port 77"] {
        assert_eq!(client.ask(line), "OK");
    }
    assert_eq!(client.ask("CLUSTER SLOTS"), format!("[[:0 :16383 [10.1.2.3 :77 {id} []]]]"));
    drop(served);
    let served = Served::start(dir.path(), "--cluster-enabled yes");
    assert_eq!(Client::connect(&served).ask("CLUSTER MYID"), id, "after a restart");
}

#[test]
fn keys_of_a_slot_are_counted_and_listed() {
    let (_dir, served) = start("--cluster-enabled yes");
    let mut client = Client::connect(&served);
    for line in ["SET {b}1 1", "SET {b}2 1", "SET b 1", "SET a 1", "SET {b}3 1 PX 1"] {
        assert_eq!(client.ask(line), "OK");
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(client.ask("CLUSTER COUNTKEYSINSLOT 3300"), ":3");
    assert_eq!(client.ask("CLUSTER COUNTKEYSINSLOT 0"), ":0");
    let all = client.ask("CLUSTER GETKEYSINSLOT 3300 10");
    for key in ["{b}1", "{b}2", "b"] {
        assert!(all.contains(key), "{all}");
    }
    assert_eq!(client.ask("CLUSTER GETKEYSINSLOT 3300 2").split(' ').count(), 2);
    assert_eq!(client.ask("CLUSTER GETKEYSINSLOT 3300 0"), "[]");
    assert_eq!(client.ask("CLUSTER COUNTKEYSINSLOT 16384"), "-ERR Invalid slot");
    assert!(client.ask("CLUSTER COUNTKEYSINSLOT x").contains("not an integer"));
    let said = client.ask("CLUSTER GETKEYSINSLOT 0 -1");
    assert_eq!(said, "-ERR Invalid slot or number of keys");
    for line in ["MULTI", "CLUSTER COUNTKEYSINSLOT 0"] {
        assert!(["OK", "QUEUED"].contains(&&client.ask(line)[..]));
    }
    assert!(client.ask("EXEC").contains("takes a while"));
}

/// As in Redis, so that what works here works in a cluster of several shards.
#[test]
fn keys_of_several_slots_are_refused() {
    let (_dir, served) = start("--cluster-enabled yes");
    let mut client = Client::connect(&served);
    assert_eq!(client.ask("MSET a 1 b 2"), CROSS);
    assert_eq!(client.ask("MSET {a}x 1 {a}y 2"), "OK");
    assert_eq!(client.ask("MGET {a}x {a}y"), "[1 2]");
    assert_eq!(client.ask("WATCH a b"), CROSS);
    assert_eq!(client.ask("SSUBSCRIBE a b"), CROSS);
    assert_eq!(client.ask("PUBLISH a b"), ":0");
    assert_eq!(client.ask("EVAL return(1) 2 a b"), CROSS);
    for line in ["SET a 1", "GET a", "SET b 1"] {
        assert!(!client.ask(line).starts_with('-'), "a run of requests, each of one slot");
    }
    // A request that is refused, and requests of one slot each that are not of the same.
    assert_eq!(client.ask("MULTI"), "OK");
    assert_eq!(client.ask("MGET a b"), CROSS);
    assert!(client.ask("EXEC").starts_with("-EXECABORT"));
    assert_eq!(client.ask("MULTI"), "OK");
    for line in ["SET a 2", "PING", "SET b 2"] {
        assert_eq!(client.ask(line), "QUEUED");
    }
    assert_eq!(client.ask("EXEC"), CROSS);
    assert_eq!(client.ask("EXEC"), "-ERR EXEC without MULTI");
    assert_eq!(client.ask("GET a"), "1", "nothing of it was done");
    assert_eq!(client.ask("MULTI"), "OK");
    for line in ["SET a 2", "INCR a"] {
        assert_eq!(client.ask(line), "QUEUED");
    }
    assert_eq!(client.ask("EXEC"), "[OK :3]");
}

#[test]
fn there_is_database_0_alone() {
    let (_dir, served) = start("--cluster-enabled yes");
    let mut client = Client::connect(&served);
    assert_eq!(client.ask("SET a 1"), "OK");
    assert_eq!(client.ask("SELECT 0"), "OK");
    for (line, error) in [
        ("SELECT 1", "-ERR SELECT is not allowed in cluster mode"),
        ("MOVE a 1", "-ERR MOVE is not allowed in cluster mode"),
        ("SWAPDB 0 1", "-ERR SWAPDB is not allowed in cluster mode"),
        ("COPY a {a} DB 1", "-ERR Copying to another database is not allowed in cluster mode"),
        ("SORT a BY x*", "-ERR BY option of SORT denied in Cluster mode."),
        ("SORT a GET x*", "-ERR GET option of SORT denied in Cluster mode."),
    ] {
        assert_eq!(client.ask(line), error, "{line}");
    }
    let said = client.ask("EVAL \"return redis.call('select', 1)\" 0");
    assert!(said.contains("SELECT is not allowed"), "{said}");
    let said = client.ask("EVAL \"#!lua flags=no-cluster\\nreturn 1\" 0");
    assert!(said.contains("Can not run script on cluster"), "{said}");
    assert_eq!(client.ask("MULTI"), "OK");
    assert!(client.ask("SELECT 1").starts_with("-ERR SELECT"));
    assert!(client.ask("EXEC").starts_with("-EXECABORT"));
}
