//! `hyades serve` as a process: errors of wrong settings, and effects of settings on the process.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;
#[path = "common/process.rs"]
mod process;

use common::{code, hyades, stderr, stdout};
use process::Process;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// Stops the server, and checks for an end in good order.
fn stop(mut server: Process) {
    let pid = Pid::from_raw(server.child.id() as i32).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(server: &Process) -> Client {
        let stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(BufReader::new(stream))
    }

    /// A line, or the content of a string.
    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end().to_string();
        let Some(length) = line.strip_prefix('$') else { return line };
        let mut bytes = vec![0; length.parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut bytes).unwrap();
        bytes.truncate(bytes.len() - 2);
        String::from_utf8(bytes).unwrap()
    }

    fn ask(&mut self, text: &str) -> String {
        self.0.get_mut().write_all(format!("{text}\r\n").as_bytes()).unwrap();
        self.reply()
    }

    fn set(&mut self, words: &str) -> String {
        self.ask(&format!("CONFIG SET {words}"))
    }

    /// The value of a setting.
    fn shown(&mut self, name: &str) -> String {
        assert_eq!(self.ask(&format!("CONFIG GET {name}")), "*2");
        assert_eq!(self.reply(), name);
        self.reply()
    }
}

/// In the lines of Redis's output.
#[test]
fn a_wrong_line_is_shown_as_redis_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.conf");
    std::fs::write(&file, "# comment\nport 1 2\n").unwrap();
    let file = file.to_str().unwrap();
    let (command_line, at_line) = ("the command line", "the configuration file, at line 2 of ");
    let cases: &[(&[&str], &str, &str, &str)] = &[
        (
            &["--port", "6379", "6380"],
            command_line,
            r#"port "6379" "6380""#,
            "wrong number of arguments",
        ),
        (&["--port"], command_line, "port", "wrong number of arguments"),
        (
            &["--port", "--bla", "--loglevel", "verbose"],
            command_line,
            r#"port "--bla""#,
            "argument couldn't be parsed into an integer",
        ),
        (
            &["--shutdown-on-sigint", "now force", "--shutdown-on-sigterm"],
            command_line,
            "shutdown-on-sigterm",
            "argument(s) must be one of the following: ",
        ),
        (
            &["--replicaof", "127.0.0.1", "abc"],
            command_line,
            r#"replicaof "127.0.0.1" "abc""#,
            "Invalid master port",
        ),
        (&[file], at_line, "port 1 2", "wrong number of arguments"),
    ];
    for (arguments, place, line, said) in cases {
        let output = hyades("serve", arguments);
        assert_eq!((code(&output), &stdout(&output)[..]), (2, ""), "{arguments:?}");
        let text = stderr(&output);
        let head = format!("hyades: *** FATAL CONFIG FILE ERROR ***\nReading {place}");
        let shown = format!("\n>>> '{line}'\n{said}");
        assert!(text.starts_with(&head) && text.contains(&shown), "{arguments:?}: {text}");
    }
}

/// How soon the system kills the process: by the settings, added to the earlier score.
#[test]
fn the_score_of_the_process_follows_its_settings() {
    let score = |server: &Process| {
        let file = format!("/proc/{}/oom_score_adj", server.child.id());
        std::fs::read_to_string(file).unwrap().trim().parse::<i32>().unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    let own = score(&server);
    let plus = |added: i32| (own + added).min(1_000);
    let mut client = Client::connect(&server);
    assert_eq!(client.set("oom-score-adj-values \"10 20 30\""), "+OK");
    assert_eq!(score(&server), own, "it is off");
    assert_eq!(client.set("oom-score-adj yes"), "+OK");
    assert_eq!(score(&server), plus(10));
    // All settings of a call, or none.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = client.set(&format!("oom-score-adj-values \"200 0 0\" maxclients 77 port {port}"));
    let failed = "-ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen";
    assert!(said.starts_with(failed), "{said}");
    assert_eq!(score(&server), plus(10));
    let said = client.set("oom-score-adj-values \"200 0 -2001\"");
    assert!(said.contains("must be between -2000 and 2000"), "{said}");
    assert_eq!(
        client.set(&format!("oom-score-adj absolute oom-score-adj-values \"{} 0 0\"", plus(40))),
        "+OK"
    );
    assert_eq!(score(&server), plus(40));
    assert_eq!(client.set("oom-score-adj no maxclients 99"), "+OK");
    assert_eq!(score(&server), own);
    // If another setting of the call fails, no change of the score is seen from outside.
    assert!(client.set(&format!("oom-score-adj relative port {port}")).starts_with(failed));
    assert_eq!(score(&server), own);
    assert_eq!(client.shown("oom-score-adj"), "no");
    assert_eq!(client.shown("maxclients"), "99");
    stop(server);
    let flags = ["--oom-score-adj", "relative", "--oom-score-adj-values", "7", "0", "0"];
    let server = Process::start_with(dir.path(), &flags);
    assert_eq!(score(&server), plus(7));
    stop(server);
}

/// Received bytes count, though the process was stopped for longer than `timeout` before it could
/// read the bytes.
#[test]
fn a_client_that_spoke_while_the_process_was_held_up_is_not_idle() {
    for _ in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let server = Process::start(dir.path());
        let pid = Pid::from_raw(server.child.id() as i32).unwrap();
        let mut client = Client::connect(&server);
        let began = Instant::now();
        assert_eq!(client.set("timeout 2"), "+OK");
        // The server's threads sleep then, and then each is stopped.
        std::thread::sleep(Duration::from_millis(50));
        kill_process(pid, Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let spoke = client.0.get_mut().write_all(b"PING\r\n");
        let was_in_time = began.elapsed() < Duration::from_secs(1);
        std::thread::sleep(Duration::from_millis(2_500));
        kill_process(pid, Signal::CONT).unwrap();
        if !was_in_time {
            // This thread was delayed itself, so the client may have been idle.
            continue;
        }
        spoke.unwrap();
        assert_eq!(client.reply(), "+PONG");
        return stop(server);
    }
    panic!("this thread was held up each time");
}

/// As under `hyades serve 2>&1 | head -1`.
#[test]
fn a_server_goes_on_though_its_messages_are_not_read() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("socket");
    let unread = || std::io::pipe().unwrap().1;
    let mut child = Command::new(env!("CARGO_BIN_EXE_hyades"))
        .args(["serve", "--streams", "2", "--port", "0", "--dir"])
        .arg(root.path().join("db"))
        .arg("--unixsocket")
        .arg(&file)
        .stdout(unread())
        .stderr(unread())
        .spawn()
        .unwrap();
    let ask = |command: &str| {
        let mut stream = UnixStream::connect(&file)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(command.as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok::<_, std::io::Error>(line)
    };
    // At first the server does not listen, and then its database is not open.
    while ask("EXISTS a\r\n").ok().as_deref() != Some(":0\r\n") {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The server hangs up.
    let _ = ask("SHUTDOWN\r\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
