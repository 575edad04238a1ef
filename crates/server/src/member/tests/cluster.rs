//! What clients of a cluster meet at a member: its nodes, and the way to the primary.

use super::*;
use crate::state::cluster::node_id;

const SLOT_OF_A: &str = "15495";

fn standby(node: &str, address: &str, is_online: bool) -> MemberView {
    MemberView {
        node: node.into(),
        address: address.into(),
        positions: vec![4, 5],
        is_online,
        ..MemberView::default()
    }
}

fn start(node: &str, service: &Arc<dyn LogService>) -> Member {
    Member::start_with(node, service, "--cluster-enabled yes")
}

/// This member is `10.0.0.1:1`, the primary is n2.
fn see_primary(member: &Member) {
    member.see(|view| {
        view.primary = Some(PrimaryView { node: "n2".into(), address: "10.0.0.2:6379".into() });
        view.address = "10.0.0.1:6379".into();
        view.incarnation = 3;
        view.members = vec![standby("n3", "10.0.0.3:6379", true)];
    });
    member.ask_until("CLUSTER NODES", |said| said.contains("10.0.0.2"));
}

#[test]
fn the_nodes_are_the_members() {
    let member = start("n1", &service());
    see_primary(&member);
    member.see(|view| view.members.push(standby("n4", "10.0.0.4:6379", false)));
    member.ask_until("CLUSTER NODES", |said| said.contains("10.0.0.4"));
    let mut client = member.client();
    let id = |node: &str| node_id(node);
    assert_eq!(client.ask("CLUSTER MYID"), id("n1"));
    let said = client.ask("CLUSTER NODES");
    let mut lines: Vec<&str> = said.lines().collect();
    let (n1, n2, n3, n4) = (id("n1"), id("n2"), id("n3"), id("n4"));
    let first = format!("{n2} 10.0.0.2:6379@0 master - 0 0 3 connected 0-16383");
    assert_eq!(lines[0], first);
    let expected = [
        format!("{n1} 10.0.0.1:6379@0 myself,slave {n2} 0 0 3 connected"),
        format!("{n3} 10.0.0.3:6379@0 slave {n2} 0 0 3 connected"),
        format!("{n4} 10.0.0.4:6379@0 slave,fail {n2} 0 0 3 disconnected"),
    ];
    lines.remove(0);
    lines.sort_unstable();
    let mut sorted = expected.clone();
    sorted.sort_unstable();
    assert_eq!(lines, sorted);
    let slots = client.ask("CLUSTER SLOTS");
    assert!(slots.starts_with(&format!("[[:0 :16383 [10.0.0.2 :6379 {n2} []]")), "{slots}");
    assert!(slots.contains(&n1) && slots.contains(&n3), "{slots}");
    assert!(!slots.contains(&n4), "it was not heard of: {slots}");
    let shards = client.ask("CLUSTER SHARDS");
    let third = format!(
        "id {n3} port :6379 ip 10.0.0.3 endpoint 10.0.0.3 role replica replication-offset :9 \
         health online"
    );
    assert!(shards.contains(&third), "{shards}");
    assert!(shards.contains("health fail") && shards.contains("health loading"), "{shards}");
    let replicas = client.ask(&format!("CLUSTER REPLICAS {n2}"));
    assert!(expected.iter().all(|line| replicas.contains(line)), "{replicas}");
    let said = client.ask(&format!("CLUSTER REPLICAS {n1}"));
    assert_eq!(said, "-ERR The specified node is not a master");
    let info = client.ask("CLUSTER INFO");
    assert!(info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:4"), "{info}");
    assert!(info.contains("cluster_current_epoch:3"), "{info}");
    member.see(|view| view.primary = None);
    member.ask_until("CLUSTER INFO", |said| said.contains("cluster_state:fail"));
    // Clients go on asking: the slots are where they were.
    assert!(client.ask("CLUSTER SLOTS").starts_with(&format!("[[:0 :16383 [10.0.0.2 :6379 {n2}")));
    let said = client.ask("CLUSTER NODES");
    assert!(said.contains("master,fail - 0 0 3 disconnected 0-16383"), "{said}");
    drop(client);
    member.stop();
}

#[test]
fn a_standby_sends_clients_to_the_primary_unless_they_read_standbys() {
    let service = service();
    let mut other = Member::start("n2", &service);
    let dir = other.path("data");
    other.see(|view| view.primary = Some(PrimaryView { node: "n2".into(), address: "h:1".into() }));
    other.step(Step::OnLanes(dir));
    assert_eq!(other.client().ask("SET a 1"), "OK");
    let mut member = start("n1", &service);
    see_primary(&member);
    let moved = format!("-MOVED {SLOT_OF_A} 10.0.0.2:6379");
    assert_eq!(member.client().ask("SET a 1"), moved, "a member that joins");
    assert!(member.client().ask("DBSIZE").starts_with("-LOADING"));
    member.step(Step::Standby);
    let mut client = member.client();
    let mut told = |line: &str| client.ask(line);
    for line in ["GET a", "SET a 2", "EVAL return(1) 1 a", "WATCH a", "SPUBLISH a b"] {
        assert_eq!(told(line), moved, "{line}");
    }
    assert!(told("MGET a b").starts_with("-CROSSSLOT"));
    assert!(told("FLUSHALL").starts_with("-READONLY"), "it is about no slot");
    assert_eq!(told("EVAL return(1) 0"), ":1", "nor is that");
    assert_eq!(told("READONLY"), "OK");
    let began = Instant::now();
    while told("GET a") != "1" {
        assert!(began.elapsed() < LONG, "the standby has the key");
    }
    for line in ["SET a 2", "WATCH a", "XREAD BLOCK 10 STREAMS a 0"] {
        assert_eq!(told(line), moved, "{line}");
    }
    assert_eq!(told("MULTI"), "OK");
    assert_eq!(told("GET a"), "QUEUED");
    assert_eq!(told("EXEC"), "[1]");
    assert_eq!(told("MULTI"), "OK");
    assert_eq!(told("SET a 2"), moved);
    assert!(told("EXEC").starts_with("-EXECABORT"));
    assert_eq!(told("READWRITE"), "OK");
    assert_eq!(told("GET a"), moved);
    assert_eq!(told("READONLY"), "OK");
    assert_eq!(told("RESET"), "RESET");
    assert_eq!(told("GET a"), moved, "RESET ends READONLY");
    member.see(|view| view.primary = None);
    member.ask_until("GET a", |said| said == "-CLUSTERDOWN Hash slot not served");
    drop(client);
    member.stop();
    other.stop();
}

#[test]
fn a_transaction_that_was_queued_at_a_primary_is_sent_elsewhere_whole() {
    let service = service();
    let mut member = start("n1", &service);
    let dir = member.path("data");
    member.see(|view| {
        view.primary = Some(PrimaryView { node: "n1".into(), address: "10.0.0.1:1".into() });
    });
    member.step(Step::Primary(dir));
    let mut client = member.client();
    assert_eq!(client.ask("SET a 1"), "OK");
    assert_eq!(client.ask("MULTI"), "OK");
    assert_eq!(client.ask("SET a 2"), "QUEUED");
    // The lease has run out, and the log does not store.
    member.see(|view| (view.suspended, view.stores) = (true, false));
    member.ask_until("GET a", |said| said.starts_with("-CLUSTERDOWN"));
    assert_eq!(client.ask("EXEC"), "-CLUSTERDOWN Hash slot not served");
    assert_eq!(client.ask("EXEC"), "-ERR EXEC without MULTI");
    member.see(|view| (view.suspended, view.stores) = (false, true));
    assert_eq!(member.ask_until("GET a", |said| !said.starts_with('-')), "1");
    drop(client);
    member.stop();
}
