//! MONITOR.

use super::scripts::request;
use super::*;
use std::sync::atomic::Ordering::Relaxed;

/// The lines since told to a client that monitors, without times and addresses.
fn told(house: &mut House, monitor: &mut Conversation) -> Vec<String> {
    let output = String::from_utf8(house.replies(monitor, b"")).unwrap();
    let line = |line: &str| {
        let (head, command) = line.split_once("] ").unwrap_or((line, ""));
        let database = head.split_once('[').map_or("", |(_, rest)| rest.split(' ').next().unwrap());
        format!("{database} {}", command.replace('"', ""))
    };
    output.lines().map(line).collect()
}

#[test]
fn a_monitor_is_told_what_has_run() {
    let mut house = House::new(false);
    let (mut monitor, mut client) = (house.client(), house.client());
    assert_eq!(house.say(&mut monitor, b"MONITOR\r\n"), "+OK ");
    house.say(&mut client, b"SET a \"b\\n\\x01\"\r\nget a\r\n");
    let said = String::from_utf8(house.replies(&mut monitor, b"")).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    let (time, rest) = lines[0].split_once(' ').unwrap();
    assert_eq!(rest, r#"[0 127.0.0.1:1] "SET" "a" "b\n\x01""#);
    let (seconds, micros) = time.strip_prefix('+').unwrap().split_once('.').unwrap();
    let now = crate::base::clock::wall_us() / 1_000_000;
    assert!(seconds.parse::<u64>().unwrap().abs_diff(now) < 60 && micros.len() == 6, "{time}");
    // A failed command is told, since it ran; refused commands are not, nor are commands for
    // administrators.
    let lines =
        b"SET a x\r\nINCR a\r\nGET\r\nNONE\r\nCONFIG GET dir\r\nCLIENT LIST\r\nSELECT 3\r\n\
                  CLIENT ID\r\nOBJECT NONE a\r\nLASTSAVE\r\nSCAN 0\r\nDEBUG SLEEP 0\r\nGET a\r\n";
    house.say(&mut client, lines);
    let expected =
        ["0 SET a x", "0 INCR a", "3 SELECT 3", "3 CLIENT ID", "3 LASTSAVE", "3 SCAN 0", "3 GET a"];
    assert_eq!(told(&mut house, &mut monitor), expected);
    house.say(&mut client, b"multi\r\nset a 1\r\nping\r\nget a\r\nexec\r\n");
    let expected = ["3 multi", "3 set a 1", "3 get a", "3 ping", "3 exec"];
    assert_eq!(told(&mut house, &mut monitor), expected);
    house.say(&mut client, b"multi\r\nnone\r\nexec\r\nmulti\r\nselect 4\r\nset a 1\r\nexec\r\n");
    let expected = ["3 multi", "3 exec", "3 multi", "4 set a 1", "4 select 4", "4 exec"];
    assert_eq!(told(&mut house, &mut monitor), expected);
}

#[test]
fn a_monitor_is_told_of_the_commands_of_scripts() {
    let mut house = House::new(false);
    let (mut monitor, mut client) = (house.client(), house.client());
    house.say(&mut monitor, b"MONITOR\r\n");
    let eval = |script: &str| request(&["EVAL", script, "0"]);
    house.say(&mut client, &eval("redis.call('set','a','1') redis.call('select','2')"));
    house.say(
        &mut client,
        &eval("redis.pcall('incr') redis.call('select','1') redis.call('dbsize')"),
    );
    let expected = [
        "0 EVAL redis.call('set','a','1') redis.call('select','2') 0",
        "0 set a 1",
        "2 select 2",
        "0 EVAL redis.pcall('incr') redis.call('select','1') redis.call('dbsize') 0",
        "1 select 1",
        "1 dbsize",
    ];
    assert_eq!(told(&mut house, &mut monitor), expected);
    // Commands taken back are not told, and the commands told of a script are bounded.
    house.say(&mut client, &eval("#!lua flags=rollback\nredis.call('get','a') error('x')"));
    assert_eq!(told(&mut house, &mut monitor).len(), 1);
    let long = eval("for i = 1, 20000 do redis.call('get','a') end");
    house.say(&mut client, &long);
    assert_eq!(told(&mut house, &mut monitor).len(), 10_001);
}

#[test]
fn a_monitor_is_shown_no_passwords() {
    let mut house = House::new(false);
    let (mut monitor, mut client) = (house.client(), house.client());
    house.say(&mut monitor, b"MONITOR\r\n");
    let lines = b"ACL SETUSER me on >secret +@all ~*\r\nAUTH me secret\r\nAUTH secret1\r\n\
                  HELLO 2 AUTH me secret SETNAME n\r\nACL SETUSR me >secret\r\n\
                  CONFIG SET requirepass secret\r\nAUTH secret\r\n";
    house.say(&mut client, lines);
    let expected = [
        "0 AUTH (redacted) (redacted)",
        "0 AUTH (redacted)",
        "0 HELLO 2 AUTH (redacted) (redacted) SETNAME n",
        "0 AUTH (redacted)",
    ];
    assert_eq!(told(&mut house, &mut monitor), expected);
}

/// No client is told of anything that a crash takes back.
#[test]
fn a_monitor_is_told_of_a_command_when_it_is_on_disk() {
    let cases = [
        ("SET a 1\r\nGET a\r\nPING\r\n", 3),
        ("MULTI\r\nSET a 1\r\nPING\r\nEXEC\r\n", 4),
        ("CLIENT REPLY OFF\r\nSET a 1\r\n", 2),
    ];
    for (text, count) in cases {
        let mut house = House::new(true);
        let (mut monitor, mut client) = (house.client(), house.client());
        monitor.feed(b"MONITOR\r\n");
        house.run(&mut monitor, 0);
        take(&mut monitor);
        client.feed(text.as_bytes());
        house.run(&mut client, 1);
        house.run(&mut monitor, 0);
        // Lines before the first write may have left.
        let early = take(&mut monitor);
        assert!(!early.contains("SET") && !early.contains("EXEC"), "{early}");
        assert!(!client.has_delivered());
        house.write_log();
        while !house.queue.is_empty() {
            house.queue.wait_for_one().unwrap();
            let mut done = Vec::new();
            house.queue.drain(|item| done.push(item)).unwrap();
            done.into_iter().for_each(|(_, mark)| client.acknowledged(mark));
        }
        house.run(&mut monitor, 0);
        let all = early + &take(&mut monitor);
        assert!(all.contains("SET") && client.has_delivered(), "{text}: {all}");
        assert_eq!(all.matches("] \"").count(), count, "{text}: {all}");
    }
}

/// The lines are lost with the log: they tell of writes that may be missing after the restart.
#[test]
fn nothing_is_told_of_what_the_log_has_lost() {
    let mut house = House::new(true);
    let (mut monitor, mut client) = (house.client(), house.client());
    monitor.feed(b"MONITOR\r\n");
    house.run(&mut monitor, 0);
    take(&mut monitor);
    client.feed(b"SET a 1\r\n");
    house.run(&mut client, 1);
    client.fail(&house.shared);
    house.run(&mut monitor, 0);
    assert_eq!((take(&mut monitor).as_str(), client.has_delivered()), ("", true));
}

#[test]
fn reset_and_quit_end_monitoring() {
    let mut house = House::new(false);
    let (mut monitor, mut client) = (house.client(), house.client());
    assert!(!house.shared.wiring.monitors.is_on());
    assert_eq!(house.say(&mut monitor, b"MONITOR\r\nMONITOR\r\n"), "+OK +OK ");
    assert!(house.shared.wiring.monitors.is_on());
    assert!(house.say(&mut client, b"CLIENT LIST\r\n").contains(" flags=O "));
    // Replies would not be told from lines; nothing is done.
    for line in ["GET a", "SET a 1", "KEYS *", "MULTI\r\nSET a 1"] {
        let said = house.say(&mut monitor, format!("{line}\r\n").as_bytes());
        assert!(said.contains("-ERR a client that monitors"), "{said}");
    }
    house.say(&mut monitor, b"DISCARD\r\n");
    assert!(house.say(&mut monitor, b"PING\r\n").starts_with("+PONG +"));
    assert_eq!(house.say(&mut monitor, b"RESET\r\n"), "+RESET ");
    assert!(!house.shared.wiring.monitors.is_on());
    house.say(&mut client, b"SET a 1\r\n");
    assert_eq!(house.say(&mut monitor, b"GET a\r\n"), "$1 1 ");
    assert!(!house.say(&mut client, b"CLIENT LIST\r\n").contains(" flags=O "));
    house.say(&mut monitor, b"MONITOR\r\n");
    client.feed(b"GET a\r\n");
    house.run(&mut client, 1);
    assert!(house.say(&mut monitor, b"QUIT\r\n").ends_with("\"a\" +OK "));
    assert!(!house.shared.wiring.monitors.is_on() && monitor.is_closing());
    let mut other = house.client();
    house.say(&mut other, b"MONITOR\r\n");
    drop(other);
    assert!(!house.shared.wiring.monitors.is_on());
    let refused = house.say(&mut client, b"MULTI\r\nMONITOR\r\nEXEC\r\n");
    assert!(refused.contains("-ERR Command not allowed inside a transaction"), "{refused}");
    assert!(refused.contains("-EXECABORT") && !house.shared.wiring.monitors.is_on());
}

#[test]
fn monitoring_needs_the_right_to_the_command() {
    let mut house = House::new(false);
    let (mut admin, mut client) = (house.client(), house.client());
    house.say(&mut admin, b"ACL SETUSER me on nopass ~* +@all -@admin\r\n");
    house.say(&mut client, b"AUTH me x\r\n");
    let refused = "-NOPERM this user has no permissions to run the 'monitor' command ";
    assert_eq!(house.say(&mut client, b"MONITOR\r\n"), refused);
    assert!(!house.shared.wiring.monitors.is_on());
    house.say(&mut admin, b"ACL SETUSER me +monitor\r\n");
    assert_eq!(house.say(&mut client, b"MONITOR\r\n"), "+OK ");
}

/// The monitor holds up no other client.
#[test]
fn a_monitor_that_does_not_read_is_disconnected() {
    let mut house = House::new(false);
    let (mut monitor, mut client) = (house.client(), house.client());
    let limit = b"CONFIG SET client-output-buffer-limit \"normal 1mb 0 0\"\r\n";
    assert_eq!(house.say(&mut client, limit), "+OK ");
    house.say(&mut monitor, b"MONITOR\r\n");
    let entry = house.shared.clients.find(1).unwrap();
    let text = format!("SET a {}\r\n", "x".repeat(30_000));
    let mut written = 0;
    while !entry.is_killed.load(Relaxed) {
        house.say(&mut client, text.as_bytes());
        house.run(&mut monitor, 0);
        written += text.len();
        assert!(written < 4 << 20, "it is not bounded");
    }
    assert!(written > 1 << 20);
    assert!(entry.inbox.is_empty() && monitor.output_bytes() <= MOST_UNSENT + 2 * text.len());
    assert_eq!(house.say(&mut client, b"PING\r\n"), "+PONG ");
}

/// A command run by another thread is told as well, once.
#[test]
fn commands_that_other_threads_run_are_told_once() {
    let mut house = House::new(false);
    let (mut monitor, mut client) = (house.client(), house.client());
    house.say(&mut monitor, b"MONITOR\r\n");
    // More than a loop writes at once.
    let large = "x".repeat(700_000);
    house.say(
        &mut client,
        format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$700000\r\n{large}\r\n").as_bytes(),
    );
    let lines = told(&mut house, &mut monitor);
    assert!(lines.len() == 1 && lines[0].starts_with("0 SET a xxx"), "{}", lines.len());
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$700000\r\n{large}\r\n");
    house.say(&mut client, format!("MULTI\r\n{set}PING\r\nEXEC\r\n").as_bytes());
    let lines = told(&mut house, &mut monitor);
    let starts: Vec<&str> = lines.iter().map(|line| &line[..line.len().min(7)]).collect();
    assert_eq!(starts, ["0 MULTI", "0 SET a", "0 PING", "0 EXEC"]);
    assert!(house.shared.stats.counters.large.load(Relaxed) >= 2);
}
