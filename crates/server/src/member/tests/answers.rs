//! What a member tells of the members: ROLE, INFO, SENTINEL, WAIT, FAILOVER.

use super::*;

fn standby(node: &str, positions: &[u64]) -> MemberView {
    MemberView {
        node: node.into(),
        address: format!("10.0.0.{}:63{}", node.len(), node.len()),
        lag_ms: Some(2_500),
        positions: positions.to_vec(),
        is_online: true,
    }
}

fn primary(node: &str) -> Option<PrimaryView> {
    Some(PrimaryView { node: node.into(), address: "10.0.0.9:6379".into() })
}

#[test]
fn a_primary_tells_of_its_standbys() {
    let mut member = Member::start("one", &service());
    let dir = member.path("data");
    member.see(|view| {
        view.primary = primary("one");
        view.address = "10.0.0.9:6379".into();
        (view.incarnation, view.database) = (258, [0xab; 16]);
        view.positions = vec![100, 23];
        view.members = vec![standby("two", &[90, 20]), standby("three", &[100, 23])];
    });
    member.step(Step::Primary(dir));
    let mut client = member.client();
    let seen = |member: &Member| member.client().ask("ROLE").starts_with("[master :123");
    member.wait_until("it is seen", seen);
    let role = "[master :123 [[10.0.0.3 633 110] [10.0.0.5 635 123]]]";
    assert_eq!(client.ask("ROLE"), role);
    let mut line = |name: &str| info(&mut client, name).unwrap();
    assert_eq!(line("role"), "master");
    assert_eq!(line("connected_slaves"), "2");
    assert_eq!(line("slave0"), "ip=10.0.0.3,port=633,state=online,offset=110,lag=2");
    assert_eq!(line("master_replid"), format!("{}00000102", "ab".repeat(16)));
    assert_eq!(line("master_replid2"), format!("{}00000101", "ab".repeat(16)));
    assert_eq!(line("master_repl_offset"), "123");
    assert_eq!(client.ask("REPLICAOF NO ONE"), "OK", "it is the primary already");
    let said = client.ask("REPLICAOF 10.0.0.1 6379");
    assert!(said.starts_with("-ERR") && said.contains("the log decides"), "{said}");
    assert!(client.ask("HELLO").contains("role master"));
    drop(client);
    member.stop();
}

#[test]
fn clients_of_sentinel_find_the_primary() {
    let member = Member::start("two", &service());
    member.ask_until("INFO replication", |said| said.contains("member_node:two"));
    let mut client = member.client();
    assert_eq!(client.ask("SENTINEL GET-MASTER-ADDR-BY-NAME orders"), "nil");
    assert_eq!(client.ask("SENTINEL MASTERS"), "[]");
    assert!(client.ask("SENTINEL CKQUORUM orders").starts_with("-NOQUORUM"));
    assert_eq!(client.ask("SENTINEL MASTER orders"), "-ERR No such master with that name");
    member.see(|view| {
        view.primary = primary("one");
        view.address = "10.0.0.2:6379".into();
        view.incarnation = 7;
        view.positions = vec![5, 6];
        view.members = vec![standby("three", &[1, 2])];
    });
    let address = "[10.0.0.9 6379]";
    member.ask_until("SENTINEL GET-MASTER-ADDR-BY-NAME orders", |said| said == address);
    let mut client = member.client();
    assert_eq!(client.ask("SENTINEL get-master-addr-by-name other"), "nil");
    let masters = client.ask("SENTINEL MASTERS");
    for part in [
        "[[name orders ip 10.0.0.9 port 6379 runid ",
        " flags master ",
        " config-epoch 7 num-slaves 2 num-other-sentinels 2 quorum 1 ",
    ] {
        assert!(masters.contains(part), "{masters}");
    }
    assert_eq!(format!("[{}]", client.ask("SENTINEL MASTER orders")), masters);
    let replicas = client.ask("SENTINEL REPLICAS orders");
    assert_eq!(client.ask("SENTINEL SLAVES orders"), replicas);
    assert!(replicas.contains("name 10.0.0.2:6379") && replicas.contains("name 10.0.0.5:635"));
    assert!(replicas.contains("flags slave ") && replicas.contains("master-host 10.0.0.9"));
    let sentinels = client.ask("SENTINEL SENTINELS orders");
    assert!(sentinels.contains("ip 10.0.0.9") && sentinels.contains("ip 10.0.0.5"), "{sentinels}");
    assert!(!sentinels.contains("10.0.0.2"), "the others");
    assert_eq!(client.ask("SENTINEL SENTINELS other"), "-ERR No such master with that name");
    assert!(client.ask("SENTINEL CKQUORUM orders").starts_with("OK 3 usable Sentinels"));
    let own = client.ask("SENTINEL MYID");
    assert!(own.len() == 40 && !sentinels.contains(&own));
    assert!(client.ask("SENTINEL NONE").contains("unknown subcommand"));
    // A member without a database is a replica that waits.
    assert_eq!(client.ask("ROLE"), "[slave 10.0.0.9 :6379 sync :11]");
    assert_eq!(info(&mut client, "master_host").unwrap(), "10.0.0.9");
    assert_eq!(info(&mut client, "master_link_status").unwrap(), "down");
    assert!(client.ask("HELLO").contains("role replica"));
    member.see(|view| view.primary = None);
    member.ask_until("SENTINEL GET-MASTER-ADDR-BY-NAME orders", |said| said == "nil");
    drop(client);
    member.stop();
}

#[test]
fn a_client_waits_for_standbys() {
    let mut member = Member::start("one", &service());
    let dir = member.path("data");
    member.see(|view| {
        view.primary = primary("one");
        view.members = vec![standby("two", &[0, 0]), standby("three", &[0, 0])];
    });
    member.step(Step::Primary(dir));
    member.ask_until("WAIT 1 100", |said| said == ":2");
    let mut client = member.client();
    assert_eq!(client.ask("SET a 1"), "OK");
    let began = Instant::now();
    assert_eq!(client.ask("WAIT 1 60"), ":0");
    assert!(began.elapsed() >= Duration::from_millis(60));
    assert_eq!(client.ask("WAIT 0 0"), ":0");
    assert_eq!(client.ask("WAITAOF 1 0 0"), "[:1 :0]");
    client.send("WAIT 2 60000\r\nGET a");
    std::thread::sleep(Duration::from_millis(30));
    member.see(|view| view.members[0].positions = vec![u64::MAX; 2]);
    std::thread::sleep(Duration::from_millis(60));
    member.see(|view| view.members[1].positions = vec![u64::MAX; 2]);
    assert_eq!((client.next(), client.next()), (":2".into(), "1".into()));
    assert_eq!(client.ask("WAITAOF 1 2 60000"), "[:1 :2]");
    assert_eq!(client.ask("WAIT 3 20"), ":2");
    assert!(client.ask("WAIT 1 -1").contains("timeout is negative"));
    assert_eq!(client.ask("MULTI"), "OK");
    assert_eq!(client.ask("WAIT 9 0"), "QUEUED");
    assert_eq!(client.ask("EXEC"), "[:2]", "nothing waits within EXEC");
    // The end of the role ends the wait.
    client.send("WAIT 9 0");
    std::thread::sleep(Duration::from_millis(30));
    member.step(Step::Joining);
    assert!(client.is_closed());
    assert!(member.client().ask("WAIT 1 0").contains("cannot be used with replica"));
    member.stop();
}

#[test]
fn the_database_is_handed_over_on_request() {
    let lanes = service();
    let (mut one, mut two) = (Member::start("one", &lanes), Member::start("two", &lanes));
    let dir = one.path("data");
    one.step(Step::OnLanes(dir));
    two.step(Step::Standby);
    let mut client = one.client();
    assert_eq!(client.ask("FAILOVER"), "-ERR FAILOVER requires connected replicas.");
    one.see(|view| view.members = vec![standby("two", &[0, 0])]);
    one.ask_until("INFO replication", |said| said.contains("connected_slaves:1"));
    let missing = "-ERR FAILOVER target HOST and PORT is not a replica.";
    assert_eq!(client.ask("FAILOVER TO 10.0.0.77 1"), missing);
    assert_eq!(client.ask("FAILOVER ABORT"), "-ERR No failover in progress.");
    assert!(client.ask("FAILOVER TIMEOUT 0").starts_with("-ERR"));
    assert!(client.ask("FAILOVER NOW").starts_with("-ERR syntax"));
    *one.script.refusal.lock().unwrap() = Some("the standby is far behind".into());
    assert_eq!(client.ask("FAILOVER"), "-ERR the standby is far behind");
    assert_eq!(
        info(&mut client, "member_last_handover_error").unwrap(),
        "the standby is far behind"
    );
    assert_eq!(client.ask("SET a 1"), "OK", "it goes on");
    *one.script.refusal.lock().unwrap() = None;
    assert_eq!(client.ask("FAILOVER TO 10.0.0.3 633 TIMEOUT 5000"), "OK");
    assert!(client.ask("SET a 2").starts_with("-TRYAGAIN"));
    assert!(client.ask("GET a").starts_with("-TRYAGAIN"));
    assert_eq!(client.ask("FAILOVER"), "-ERR FAILOVER already in progress.");
    assert_eq!(*one.script.orders.lock().unwrap(), [None, Some("two".to_string())]);
    one.step(Step::Joining);
    assert!(client.is_closed());
    // A standby asks for the database.
    let mut client = two.client();
    assert_eq!(client.ask("FAILOVER"), "-ERR FAILOVER is not valid when server is a replica.");
    assert_eq!(client.ask("REPLICAOF NO ONE"), "OK");
    assert_eq!(*two.script.orders.lock().unwrap(), [Some("two".to_string())]);
    drop(client);
    two.stop();
    one.stop();
}

/// Though the log stops, and with it the role, before the reply is there.
#[test]
fn a_hand_over_is_answered_before_the_connection_is_closed() {
    let mut member = Member::start("one", &service());
    let dir = member.path("data");
    member.step(Step::OnLanes(dir));
    member.see(|view| view.members = vec![standby("two", &[0, 0])]);
    let mut client = member.client();
    member.ask_until("INFO replication", |said| said.contains("connected_slaves:1"));
    member.script.hands_over_at_once.store(true, SeqCst);
    assert_eq!(client.ask("FAILOVER"), "OK");
    assert!(client.is_closed());
    member.step(Step::Joining);
    member.stop();
}

/// Without a lease a primary holds readers for a second, which the engine does, and refuses them
/// then. Writes go on while the log stores them.
#[test]
fn a_primary_without_a_lease_refuses_readers() {
    let mut member = Member::start("one", &service());
    let dir = member.path("data");
    member.step(Step::Primary(dir));
    let mut client = member.client();
    assert_eq!(client.ask("SET a 1"), "OK");
    member.see(|view| view.suspended = true);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.ask("GET a"), "1", "not longer than a second");
    member.ask_until("GET a", |said| said.starts_with("-MASTERDOWN"));
    assert_eq!(client.ask("SET a 2"), "OK");
    assert_eq!(client.ask("INCR a"), ":3");
    assert_eq!(client.ask("MULTI"), "OK");
    assert!(client.ask("GET a").starts_with("-MASTERDOWN"));
    assert!(client.ask("EXEC").starts_with("-EXECABORT"));
    assert_eq!(info(&mut client, "member_role").unwrap(), "suspended");
    assert_eq!(info(&mut client, "role").unwrap(), "master");
    member.see(|view| view.stores = false);
    member.ask_until("SET a 4", |said| said.starts_with("-MASTERDOWN"));
    member.see(|view| view.suspended = false);
    member.ask_until("GET a", |said| said == "3" || said == "4");
    assert_eq!(client.ask("SET a 5"), "OK", "the connection has stayed");
    drop(client);
    member.stop();
}
