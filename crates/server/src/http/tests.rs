//! The pages over sockets: their contents, and slow or hostile clients.

mod format;
#[cfg(feature = "replication")]
mod member;

use super::*;
use crate::config::Settings;
use crate::data::Tables;
use crate::state::Opened;
use crate::state::slow_log::SlowEntry;
use connection::LONGEST;
use hyades::{Database, Progress, StreamProgress};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// Pages of a server without event loops.
struct Pages {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
    dir: TempDir,
}

impl Pages {
    fn new(arguments: &[&str]) -> Pages {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let shared = Shared::new(Settings::from_arguments(arguments).unwrap());
        let server = HttpServer::listen(&shared, 0).unwrap();
        let address = server.address().unwrap();
        let thread = Some(std::thread::spawn(move || server.run()));
        Pages { shared, address, thread, dir }
    }

    fn open(&self) {
        let mut builder = Database::builder().streams(2);
        let tables = Tables::declare(&mut builder);
        let database = builder.open(self.dir.path()).unwrap();
        assert!(self.shared.store.opened.set(Opened { database, tables }).is_ok());
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// The answer until the connection is closed.
    fn say(&self, text: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(text.as_bytes()).unwrap();
        rest(&mut stream)
    }

    fn get(&self, path: &str) -> String {
        self.say(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    fn body(&self, path: &str) -> String {
        let answer = self.get(path);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let length = format!("\r\nContent-Length: {}\r\n", body.len());
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(&length), "{head}");
        body.to_string()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.body("/status.json")).unwrap()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.shared.stop(Stopping::Asked);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    String::from_utf8(all).unwrap()
}

/// The status of an answer.
fn code(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

#[test]
fn pages_are_found_and_all_else_is_refused() {
    let pages = Pages::new(&[]);
    pages.open();
    let page = pages.get("/");
    assert!(page.contains("\r\nContent-Type: text/html; charset=utf-8\r\n"));
    assert!(page.contains("default-src 'none'; script-src 'sha256-"));
    assert!(page.ends_with(status::PAGE));
    let head = pages.say("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(format!("{head}{}", status::PAGE), page);
    assert!(pages.get("/metrics?x").contains("\r\nContent-Type: text/plain; version=0.0.4"));
    assert_eq!(code(&pages.get("/nothing")), "404");
    assert_eq!(code(&pages.get("http://localhost/")), "404");
    for path in ["/", "/metrics", "/status.json", "/healthz"] {
        let foreign = format!("GET {path} HTTP/1.1\r\nHost: example.org\r\n\r\n");
        let answer = pages.say(&foreign);
        assert_eq!(code(&answer), "403", "{answer}");
        let origin = "Host: localhost\r\nOrigin: http://example.org\r\n\r\n";
        let answer = pages.say(&format!("GET {path} HTTP/1.1\r\n{origin}"));
        assert!(!answer.to_lowercase().contains("access-control"), "{answer}");
    }
    for refused in ["HEAD / HTTP/1.1\r\nHost: example.org", "HEAD /nothing HTTP/1.0"] {
        let answer = pages.say(&format!("{refused}\r\n\r\n"));
        assert!(code(&answer).starts_with("40") && answer.ends_with("\r\n\r\n"), "{answer}");
    }
    let flush = "POST /flush HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n";
    assert_eq!(code(&pages.say(&format!("{flush}{}", "x".repeat(60_000)))), "405");
}

/// The page loads nothing, and neither script nor style is outside of the policy.
#[test]
fn the_page_is_whole_in_itself() {
    let page = status::PAGE;
    for tag in ["script", "style"] {
        assert_eq!(page.matches(&format!("<{tag}")).count(), 1, "{tag}");
        assert_eq!(page.matches(&format!("<{tag}>")).count(), 1, "{tag}");
    }
    for outside in ["src=", "@import", "innerHTML", " style=", "onclick", "eval("] {
        assert!(!page.contains(outside), "{outside}");
    }
    let urls =
        page.match_indices("://").filter(|(at, _)| !page[at + 3..].starts_with("www.w3.org"));
    assert_eq!(urls.count(), 0);
    assert!(page.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn health_and_status_follow_the_state() {
    let pages = Pages::new(&[]);
    let health = pages.get("/healthz");
    assert_eq!((code(&health), health.ends_with("\r\n\r\nloading\n")), ("503", true), "{health}");
    let probes = || ["/livez", "/readyz"].map(|path| code(&pages.get(path)).to_string());
    assert_eq!(probes(), ["200", "503"]);
    let status = pages.status();
    assert_eq!((&status["state"], &status["recovery"]), (&"loading".into(), &Value::Null));
    assert_eq!(status["info"]["loading"], 1);
    let text = pages.body("/metrics");
    assert!(text.contains("\nhyades_loading 1\n") && !text.contains("hyades_log_streams"));
    pages.open();
    let health = pages.get("/healthz");
    assert_eq!((code(&health), health.ends_with("\r\n\r\nready\n")), ("200", true), "{health}");
    assert_eq!(probes(), ["200", "200"]);
    assert_eq!(pages.body("/livez"), "alive\n");
    let status = pages.status();
    assert_eq!((&status["state"], &status["cause"]), (&"ready".into(), &Value::Null));
    assert_eq!(status["streams"].as_array().unwrap().len(), 2);
    assert!(pages.body("/metrics").contains("\nhyades_log_streams 2\n"));
}

/// Other machines are served if the settings allow so, under addresses; plain pages by any name.
#[test]
fn where_it_listens_is_a_setting() {
    let pages = Pages::new(&["--metrics-bind", "0.0.0.0"]);
    pages.open();
    let status = |path: &str, host: &str| {
        code(&pages.say(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))).to_string()
    };
    for (path, host, expected) in [
        ("/", "10.0.0.7:7379", "200"),
        ("/status.json", "example.org", "403"),
        ("/readyz", "hyades.svc:7379", "200"),
        ("/metrics", "hyades", "200"),
    ] {
        assert_eq!(status(path, host), expected, "{path} {host}");
    }
    let refused = |places: &str| {
        let arguments = ["--metrics-bind", places];
        let shared = Shared::new(Settings::from_arguments(&arguments).unwrap());
        HttpServer::listen(&shared, 0).map(drop).unwrap_err().to_string()
    };
    assert!(refused("203.0.113.1").starts_with("cannot listen at 203.0.113.1:0 (metrics-port): "));
    assert!(refused("-203.0.113.1").contains("names no address that can be listened at"));
}

/// A watched page shows why the server ends.
#[test]
fn a_failure_is_told_to_a_page_that_watches() {
    let mut watched = Pages::new(&[]);
    watched.open();
    watched.status();
    let failed = Stopping::Failed("the log failed: \"no space\"".to_string());
    watched.shared.stop(failed.clone());
    let began = Instant::now();
    let status = watched.status();
    assert_eq!(
        (&status["state"], &status["cause"]),
        (&"failed".into(), &"the log failed: \"no space\"".into())
    );
    let health = ["/healthz", "/readyz", "/livez"].map(|path| watched.get(path));
    assert_eq!(health.each_ref().map(|answer| code(answer)), ["503", "503", "200"]);
    watched.thread.take().unwrap().join().unwrap();
    assert!(began.elapsed() < FAREWELL + Duration::from_secs(5));
    watched.thread = Some(std::thread::spawn(|| {}));
    // Without a watched page, there is no wait.
    let mut alone = Pages::new(&[]);
    alone.body("/metrics");
    let began = Instant::now();
    alone.shared.stop(failed);
    alone.thread.take().unwrap().join().unwrap();
    assert!(began.elapsed() < FAREWELL);
    alone.thread = Some(std::thread::spawn(|| {}));
}

#[test]
fn a_client_that_ends_early_or_sends_too_much_is_told() {
    let pages = Pages::new(&[]);
    let half_closed = |text: &str| {
        let mut stream = pages.connect();
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        rest(&mut stream)
    };
    assert_eq!(code(&half_closed("GET /status.json HTTP/1.0\r\n\r\n")), "200");
    assert_eq!(code(&half_closed("GET / HTTP/1.0\r\n")), "400");
    assert_eq!(half_closed(""), "");
    assert_eq!(code(&pages.say("*1\r\n$4\r\nPING\r\n")), "400");
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {}", "a".repeat(20_000));
    assert_eq!(code(&pages.say(&long)), "431");
    // A client that never stops sending is cut off, before its time.
    let mut stream = pages.connect();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let began = Instant::now();
    while stream.write_all(&[b'x'; 4_096]).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(20));
    }
    assert_eq!(code(&pages.get("/healthz")), "503");
}

/// Each slow client holds a place for its two seconds and no longer; clients behind are served
/// then.
#[test]
fn slow_clients_are_ended_and_hold_up_others_for_their_time_alone() {
    let pages = Pages::new(&[]);
    let began = Instant::now();
    let mut slow: Vec<TcpStream> = (0..MOST_CONNECTIONS).map(|_| pages.connect()).collect();
    // Half of the clients send nothing, one client does not read or close, the rest send a byte now
    // and then.
    slow[4].write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut next = pages.connect();
    next.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let drip = std::thread::spawn({
        let streams: Vec<_> = slow[5..].iter().map(|stream| stream.try_clone().unwrap()).collect();
        move || {
            for byte in b"GET /".iter().chain([b'a'; 60].iter()) {
                for mut stream in &streams {
                    let _ = stream.write_all(&[*byte]);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    });
    assert_eq!(code(&rest(&mut next)), "503");
    let waited = began.elapsed();
    assert!(waited >= LONGEST && waited < LONGEST * 4, "{waited:?}");
    for (at, stream) in slow.iter_mut().enumerate() {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let expected = if at < 4 {
            "none"
        } else if at == 4 {
            "200"
        } else {
            "408"
        };
        assert_eq!(code(&String::from_utf8(all).unwrap()), expected, "{at}");
    }
    drip.join().unwrap();
    assert_eq!(code(&pages.get("/healthz")), "503");
}

fn slow_command(shared: &Shared) {
    let args = ["set", "key", "\u{0}\"<secret>"].map(|arg| arg.as_bytes().to_vec()).to_vec();
    let address = "127.0.0.1:1".to_string();
    let entry =
        SlowEntry { id: 0, at_seconds: 7, micros: 1_500_000, args, address, name: String::new() };
    shared.stats.slow_log.add(entry, 9);
}

/// The page asks for no password: with a password, data for logged-in clients is not shown.
#[test]
fn arguments_of_slow_commands_are_hidden_where_there_is_a_password() {
    for (arguments, shown) in
        [(&[][..], "set key \u{0}\"<secret>"), (&["--requirepass", "p"][..], "set")]
    {
        let pages = Pages::new(arguments);
        slow_command(&pages.shared);
        let status = pages.status();
        let entry = &status["slow_log"][0];
        assert_eq!((&entry["command"], &entry["seconds"]), (&shown.into(), &1.5.into()));
        assert_eq!(pages.body("/status.json").contains("secret"), arguments.is_empty());
    }
}

#[test]
fn recovery_is_told_as_it_goes() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let build = |builder: &mut hyades::Builder| Tables::declare(builder);
    let mut builder = Database::builder();
    let tables = build(&mut builder);
    let row = [0u64.into(), b"a"[..].into(), 0u64.into(), b"1"[..].into()];
    let database = builder.open(dir.path()).unwrap();
    database.transact(|tx| Ok(tx.overwrite(tables.keys, &row)?)).unwrap();
    database.close().unwrap();
    let pages = Pages::new(&[]);
    let last = Arc::new(std::sync::Mutex::new(None::<Progress>));
    let told = last.clone();
    let mut builder = Database::builder()
        .on_progress(move |progress| *told.lock().unwrap() = Some(progress.clone()));
    build(&mut builder);
    builder.open(dir.path()).unwrap().close().unwrap();
    let progress = last.lock().unwrap().clone().expect("recovery has told something");
    *pages.shared.store.progress.lock().unwrap() = Some(progress.clone());
    let status = pages.status();
    let told = &status["recovery"];
    assert_eq!(told["bytes_total"], progress.bytes_total as f64);
    assert_eq!(told["transactions"], progress.records_done as f64);
    assert_eq!(told["phase"], progress.phase);
    assert_eq!(told["share"], 1.0);
    let info = info::text(&pages.shared, |name| name == "persistence", &[]);
    assert!(info.contains(&format!("loading_phase:{}\r\n", progress.phase)), "{info}");
    assert!(info.contains("loading_loaded_perc:100.00\r\n"), "{info}");
    let metrics = pages.body("/metrics");
    let streams = told["streams"].as_array().unwrap();
    assert_eq!(streams.len(), progress.by_stream.len());
    assert_eq!(progress.by_stream.iter().map(|stream| stream.records).sum::<u64>(), 1);
    for (shown, expected) in streams.iter().zip(&progress.by_stream) {
        let StreamProgress { stream, phase, bytes_read, bytes_total, records, .. } = *expected;
        assert_eq!((&shown["phase"], phase), (&"read".into(), "read"));
        assert_eq!(shown["stream"], stream.to_string());
        assert_eq!(shown["bytes_read"], bytes_read as f64);
        assert_eq!(shown["bytes_total"], bytes_total as f64);
        assert_eq!(shown["records"], records as f64);
        let line = format!("read={bytes_read},total={bytes_total},records={records}\r\n");
        assert!(info.contains(&format!("loading_stream_{stream}:phase={phase},{line}")), "{info}");
        let sample = format!("read_bytes{{stream=\"{stream}\"}} {bytes_read}\n");
        assert!(metrics.contains(&format!("\nhyades_recovery_stream_{sample}")), "{metrics}");
    }
    let text = pages.body("/metrics");
    let total = format!("\nhyades_recovery_log_bytes {}\n", progress.bytes_total.max(1));
    assert!(text.contains(&total), "{text}");
    assert!(text.contains("\nhyades_recovered_transactions "), "{text}");
    pages.open();
    assert_eq!(pages.status()["recovery"], Value::Null);
}
