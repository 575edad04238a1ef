//! What becomes of clients, and of the database, when the role changes.

use super::*;

#[test]
fn a_member_joins_serves_and_lets_its_database_go() {
    let mut member = Member::start("one", &service());
    let mut early = member.client();
    assert!(early.ask("GET a").starts_with("-LOADING the member joins"));
    assert_eq!(early.ask("PING"), "PONG");
    let dir = member.path("data");
    for round in 0..4 {
        member.step(Step::Primary(dir.clone()));
        let mut client = member.client();
        // Connections from before the first database go on.
        let said = early.ask("GET n");
        assert_eq!(said, if round == 0 { "nil".to_string() } else { round.to_string() });
        assert_eq!(client.ask("INCR n"), format!(":{}", round + 1));
        assert_eq!(client.ask("SET ttl x PX 1"), "OK");
        let mut blocked = member.client();
        blocked.send("BLPOP list 0");
        let waits = |member: &Member| {
            member.ask_until("INFO clients", |_| true).contains("blocked_clients:1")
        };
        member.wait_until("it waits", waits);
        let mut multi = member.client();
        assert_eq!(multi.ask("MULTI"), "OK");
        assert_eq!(multi.ask("SET b 1"), "QUEUED");
        member.step(Step::Joining);
        assert!(blocked.next().starts_with("-UNBLOCKED force unblock"), "as in Redis");
        for mut gone in [client, blocked, multi, early] {
            assert!(gone.is_closed());
        }
        early = member.client();
        assert!(early.ask("GET n").starts_with("-LOADING the files are read"));
        assert!(early.ask("DBSIZE").starts_with("-LOADING"));
        assert_eq!(info(&mut early, "role").unwrap(), "slave");
    }
    drop(early);
    member.stop();
}

/// What a primary has acknowledged is there in its next life; a client of a stopped log is not told
/// of an outcome that is not known.
#[test]
fn a_log_that_stops_ends_the_role_and_not_the_server() {
    let mut member = Member::start("one", &service());
    let dir = member.path("data");
    let mut told = 0;
    for _ in 0..3 {
        member.step(Step::Primary(dir.clone()));
        let mut client = member.client();
        let found = client.ask("GET n").parse().unwrap_or(0);
        assert!(found >= told, "{found} of {told}");
        let mut waits = member.client();
        assert_eq!(waits.ask("SUBSCRIBE news"), "[subscribe news :1]");
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|_| {
                    let mut client = member.client();
                    scope.spawn(move || {
                        let mut told = 0;
                        loop {
                            match client.ask("INCR n") {
                                said if said.starts_with(':') => told = said[1..].parse().unwrap(),
                                said if said == "closed" => return told,
                                // Not begun: the log has stopped already.
                                said => assert!(said.starts_with("-LOADING"), "{said}"),
                            }
                        }
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(50));
            member.step(Step::StopLog);
            for writer in writers {
                told = told.max(writer.join().unwrap());
            }
        });
        assert!(told > 0 && waits.is_closed());
        let said = member.ask_until("GET n", |said| said.starts_with("-LOADING"));
        assert!(said.contains("it was fenced"), "{said}");
        // The clients of before the next role stay.
        let mut client = member.client();
        assert_eq!(client.ask("PING"), "PONG");
        member.step(Step::Joining);
        assert_eq!(client.ask("PING"), "PONG");
    }
    let _kept = member.stop();
    assert!(found_alone(&dir, "GET n").parse::<i64>().unwrap() >= told);
}

#[test]
fn a_standby_becomes_the_primary_and_its_clients_ask_again() {
    let lanes = service();
    let (mut one, mut two) = (Member::start("one", &lanes), Member::start("two", &lanes));
    let dir = one.path("data");
    one.step(Step::OnLanes(dir));
    assert_eq!(one.client().ask("SET a 1"), "OK");
    two.step(Step::Standby);
    two.ask_until("GET a", |said| said == "1");
    let view = |node: &str| PrimaryView { node: node.into(), address: format!("h-{node}:1") };
    for member in [&one, &two] {
        member.see(|seen| seen.primary = Some(view("one")));
    }
    let (mut reader, mut hears) = (two.client(), two.client());
    assert_eq!(hears.ask("SUBSCRIBE +switch-master"), "[subscribe +switch-master :1]");
    assert_eq!(reader.ask("GET a"), "1");
    two.step(Step::Candidate);
    assert!(reader.ask("GET a").starts_with("-LOADING the member takes"), "not closed yet");
    two.see(|seen| seen.primary = Some(view("two")));
    let own = two.path("own");
    two.step(Step::Primary(own.clone()));
    let said = hears.next();
    assert_eq!(said, "[message +switch-master orders h-one 1 h-two 1]");
    assert!(hears.is_closed() && reader.is_closed());
    let mut client = two.client();
    assert_eq!(client.ask("GET a"), "nil", "another database");
    assert_eq!(client.ask("SET b 2"), "OK");
    assert_eq!(client.ask("DBSIZE"), ":1");
    // The old primary learns of the new one.
    let mut old = one.client();
    assert_eq!(old.ask("GET a"), "1");
    one.begin(Step::Joining);
    one.see(|seen| seen.primary = Some(view("two")));
    assert!(old.is_closed());
    // Connections of the new role stay, and its database as well.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(client.ask("GET b"), "2");
    one.stop();
    let _kept = two.stop();
    assert_eq!(found_alone(&own, "GET b"), "2");
}

/// The keys are counted beside clients that write.
#[test]
fn keys_are_counted_after_the_change_of_role() {
    let mut member = Member::start("one", &service());
    let dir = member.path("data");
    member.step(Step::Primary(dir.clone()));
    let mut client = member.client();
    assert_eq!(client.ask("DEBUG POPULATE 200000"), "OK");
    for key in 0..100 {
        assert_eq!(client.ask(&format!("SET t:{key} x PX 1")), "OK");
    }
    assert_eq!(client.ask("SELECT 3"), "OK");
    assert_eq!(client.ask("SET other 1"), "OK");
    for round in 0..2 {
        member.step(Step::Joining);
        member.begin(Step::Primary(dir.clone()));
        let said = member.ask_until("SET first 1", |said| !said.starts_with("-LOADING"));
        assert_eq!(said, "OK");
        let mut client = member.client();
        assert_eq!(client.ask(&format!("SET more:{round} 1")), "OK");
        assert_eq!(client.ask("DEL key:0"), if round == 0 { ":1" } else { ":0" });
        // Expired keys are removed once they are counted.
        let wanted = format!(":{}", 200_000 - 1 + 1 + (round + 1));
        member.ask_until("DBSIZE", |said| said == wanted);
        assert_eq!(client.ask("EVAL \"return {redis.call('dbsize')}\" 0"), format!("[{wanted}]"));
        let keyspace = client.ask("INFO keyspace");
        assert!(keyspace.contains(&format!("db0:keys={}", &wanted[1..])), "{keyspace}");
        assert!(keyspace.contains("db3:keys=1,"), "{keyspace}");
        member.wait_until("the steps are done", |member| {
            member.script.done.load(SeqCst) >= member.steps
        });
    }
    member.stop();
}

/// A long script, a checkpoint and a large transaction do not hold up the next role.
#[test]
fn what_is_under_way_ends_with_the_role() {
    let mut member = Member::start("one", &service());
    let dir = member.path("data");
    for _ in 0..3 {
        member.step(Step::Primary(dir.clone()));
        let mut client = member.client();
        assert_eq!(client.ask("DEBUG POPULATE 20000 key 100"), "OK");
        let mut busy: Vec<Client> = (0..6).map(|_| member.client()).collect();
        busy[0].send("EVAL 'while true do end' 0");
        busy[1].send("BGSAVE");
        busy[2].send("KEYS *");
        busy[3].send("DEBUG POPULATE 100000000 more 10");
        busy[4].send("SUBSCRIBE x");
        busy[5].send("BLMOVE a b LEFT RIGHT 0");
        std::thread::sleep(Duration::from_millis(50));
        let began = Instant::now();
        member.step(Step::Joining);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        for client in &mut busy {
            while client.next() != "closed" {}
        }
    }
    member.stop();
}

#[test]
fn a_member_that_has_stopped_says_why() {
    let mut member = Member::start("one", &service());
    let dir = member.path("data");
    member.step(Step::Primary(dir));
    let mut client = member.client();
    assert_eq!(client.ask("SET a 1"), "OK");
    member.step(Step::Stopped);
    assert!(client.is_closed());
    let mut client = member.client();
    let why = "-MASTERDOWN this member has stopped: procedure x is missing";
    assert_eq!(client.ask("GET a"), why);
    assert_eq!(client.ask("SET a 2"), why);
    assert_eq!(info(&mut client, "member_role").unwrap(), "stopped");
    assert_eq!(info(&mut client, "member_waits_for").unwrap(), "procedure x is missing");
    drop(client);
    member.stop();
}

#[test]
fn a_factory_that_fails_stops_the_server() {
    let settings = ["--port", "0", "--bind", "127.0.0.1"];
    let settings = || Settings::from_arguments(&settings).unwrap();
    let server = Server::start_as_member(settings(), |_, _| Err("no such log".into())).unwrap();
    assert_eq!(server.wait_until_open().unwrap_err().to_string(), "no such log");
    assert_eq!(server.wait().unwrap_err().to_string(), "no such log");
}
