//! Encrypted connections over sockets.
#![cfg(feature = "tls")]
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod certificates;

use certificates::{Authority, Pair};
use hyades_server::{PingTls, Server, Settings, ping};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, StreamOwned, SupportedProtocolVersion};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use tempfile::TempDir;

type Secure = StreamOwned<ClientConnection, TcpStream>;

const BOTH: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];

/// A server in its own directory, with ports for both kinds of connections.
struct Served {
    server: Option<Server>,
    authority: Authority,
    dir: TempDir,
}

impl Served {
    /// Starts a server with these settings beside the settings of the test.
    fn new(more: &str) -> Served {
        Served::with_authority(more, false)
    }

    fn with_authority(more: &str, names_authority: bool) -> Served {
        Served::in_dir(tempfile::tempdir().unwrap(), more, names_authority)
    }

    fn in_dir(dir: TempDir, more: &str, names_authority: bool) -> Served {
        let authority = Authority::new(dir.path(), "authority");
        let pair = authority.sign("server");
        // A free port may be taken by another test meanwhile.
        for _ in 0..20 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let plain = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let text = format!(
                "--port {plain} --tls-port {free} --dir {} --bind 127.0.0.1 --loops 2 \
                 --tls-cert-file {} --tls-key-file {} {} {more}",
                dir.path().join("data").display(),
                pair.certificate.display(),
                pair.key.display(),
                match names_authority {
                    true => format!("--tls-ca-cert-file {}", authority.file.display()),
                    false => "--tls-auth-clients no".to_string(),
                }
            );
            let settings: Vec<&str> = text.split_whitespace().collect();
            let Ok(server) = Server::start(Settings::from_arguments(&settings).unwrap()) else {
                continue;
            };
            server.wait_until_open().unwrap();
            return Served { server: Some(server), authority, dir };
        }
        panic!("no port is free");
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    fn socket(&self, address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// A socket of the port for encrypted connections.
    fn raw(&self) -> TcpStream {
        self.socket(self.server().tls_address().unwrap())
    }

    fn plain(&self) -> BufReader<TcpStream> {
        BufReader::new(self.socket(self.server().address().unwrap()))
    }

    fn secure_as(
        &self,
        shows: Option<&Pair>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> BufReader<Secure> {
        BufReader::new(StreamOwned::new(self.authority.client(shows, versions), self.raw()))
    }

    fn secure(&self) -> BufReader<Secure> {
        self.secure_as(None, BOTH)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let server = self.server.take().unwrap();
        server.handle().stop();
        server.wait().unwrap();
    }
}

fn try_ask<S: Read + Write>(reader: &mut BufReader<S>, line: &str) -> std::io::Result<String> {
    reader.get_mut().write_all(format!("{line}\r\n").as_bytes())?;
    let mut reply = String::new();
    reader.read_line(&mut reply)?;
    Ok(reply.trim_end().to_string())
}

/// Sends a line, and reads a line of the reply.
fn ask<S: Read + Write>(reader: &mut BufReader<S>, line: &str) -> String {
    try_ask(reader, line).unwrap()
}

/// Reads a bulk string.
fn ask_bulk<S: Read + Write>(reader: &mut BufReader<S>, line: &str) -> String {
    let length: usize = ask(reader, line).trim_start_matches('$').parse().unwrap();
    let mut text = vec![0; length + 2];
    reader.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Number of a counter of INFO.
fn counter(reader: &mut BufReader<TcpStream>, name: &str) -> u64 {
    let info = ask_bulk(reader, "INFO everything");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("it is counted").parse().unwrap()
}

/// Waits until something holds.
fn wait_until(mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not become true");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Both ends announce their ends.
#[test]
fn both_versions_and_a_good_end() {
    let served = Served::new("");
    for version in BOTH {
        let mut client = served.secure_as(None, &[version]);
        assert_eq!(ask(&mut client, "SET a 1"), "+OK");
        assert_eq!(client.get_ref().conn.protocol_version(), Some(version.version));
        assert_eq!(ask(&mut client, "QUIT"), "+OK");
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "it ends by close_notify");
    }
    assert_eq!(ask(&mut served.plain(), "GET a"), "$1", "the other port is not encrypted");
    let mut plain = served.plain();
    assert_eq!(
        ask(&mut plain, "CONFIG SET tls-port 1"),
        "-ERR CONFIG SET failed (possibly related to argument 'tls-port') - can't set immutable \
         config"
    );
    assert_eq!(ask(&mut plain, "CONFIG GET tls-auth-clients"), "*2");
    assert_eq!(counter(&mut served.plain(), "tls_failures"), 0);
}

#[test]
fn a_version_that_is_not_spoken_is_refused() {
    for (spoken, client, other) in [("TLSv1.3", &TLS13, &TLS12), ("TLSv1.2", &TLS12, &TLS13)] {
        let served = Served::new(&format!("--tls-protocols {spoken}"));
        assert_eq!(ask(&mut served.secure_as(None, &[client]), "PING"), "+PONG");
        let error = try_ask(&mut served.secure_as(None, &[other]), "PING").unwrap_err();
        assert!(error.to_string().contains("ProtocolVersion"), "{error}");
    }
}

/// A client is told the fault of its certificate, and none of its commands is run.
#[test]
fn certificates_of_clients() {
    let (required, optional) = (
        Served::with_authority("", true),
        Served::with_authority("--tls-auth-clients optional", true),
    );
    for (served, needs_one) in [(&required, true), (&optional, false)] {
        let stranger = Authority::new(served.dir.path(), "stranger").sign("stranger-client");
        let expired = served.authority.sign_until("expired", 2021);
        let valid = served.authority.sign("client");
        for version in BOTH {
            let said = |pair| try_ask(&mut served.secure_as(pair, &[version]), "INCR n");
            assert!(said(Some(&valid)).unwrap().starts_with(':'));
            match (said(None), needs_one) {
                (Ok(reply), false) => assert!(reply.starts_with(':')),
                (Err(error), true) => {
                    let text = error.to_string();
                    // Version 1.2 has no alert for the case.
                    let told = ["CertificateRequired", "HandshakeFailure", "reset", "pipe"];
                    assert!(told.iter().any(|word| text.contains(word)), "{text}");
                }
                (said, _) => panic!("{said:?}"),
            }
            for (pair, why) in [(&stranger, "UnknownCA"), (&expired, "Expired")] {
                let text = said(Some(pair)).unwrap_err().to_string();
                let told = [why, "DecryptError", "BadCertificate", "reset", "pipe"];
                assert!(told.iter().any(|word| text.contains(word)), "{why}: {text}");
            }
        }
        let own = if needs_one { 2 } else { 4 };
        assert_eq!(ask_bulk(&mut served.plain(), "GET n").trim(), own.to_string());
        assert!(counter(&mut served.plain(), "tls_failures") >= 4);
    }
}

/// A reply far larger than the bytes encrypted at once, and a slow client.
#[test]
fn a_large_reply_to_a_slow_reader() {
    let served = Served::new("");
    let mut client = served.secure();
    let value: Vec<u8> = (0..10_000_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let head = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${}\r\n", value.len());
    client.get_mut().write_all(head.as_bytes()).unwrap();
    client.get_mut().write_all(&value).unwrap();
    assert_eq!(ask(&mut client, ""), "+OK");
    client.get_mut().write_all(b"GET a\r\nPING\r\n").unwrap();
    let mut other = served.secure();
    let lists = ask_bulk(&mut other, "CLIENT LIST");
    assert_eq!(lists.trim().lines().count(), 2);
    let mut heard = Vec::new();
    let mut part = vec![0; 1 << 20];
    let length = 11 + value.len() + 2 + 7;
    while heard.len() < length {
        std::thread::sleep(Duration::from_millis(5));
        let read = client.read(&mut part).unwrap();
        assert!(read > 0);
        heard.extend_from_slice(&part[..read]);
        assert_eq!(ask(&mut other, "PING"), "+PONG", "others are served meanwhile");
    }
    assert!(heard.starts_with(b"$10000000\r\n") && heard.ends_with(b"\r\n+PONG\r\n"));
    assert!(heard[11..11 + value.len()] == value);
}

/// Bytes that wait for a client count encrypted or not, and a client with too many is disconnected.
#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let served = Served::new("--client-output-buffer-limit normal 8mb 0 0");
    let mut admin = served.secure();
    assert_eq!(ask(&mut admin, "SETRANGE a 14000000 x"), ":14000001");
    let mut idle = served.secure();
    assert_eq!(ask(&mut idle, "PING"), "+PONG");
    idle.get_mut().write_all(b"MGET a a a a\r\n").unwrap();
    wait_until(|| ask_bulk(&mut admin, "CLIENT LIST").trim().lines().count() == 1);
}

/// Pipelined commands, then the end of the client's bytes: each command is answered before the end.
#[test]
fn all_that_was_said_before_the_end_is_answered() {
    const PAIRS: usize = 3_000;
    let served = Served::new("");
    let mut client = served.secure();
    let text: String =
        (0..PAIRS).map(|n| format!("GET k{}\r\nPING\r\nSET k{} {n}\r\n", n % 7, n % 5)).collect();
    let secure = client.get_mut();
    secure.conn.set_buffer_limit(None);
    while secure.conn.is_handshaking() {
        secure.conn.complete_io(&mut secure.sock).unwrap();
    }
    secure.conn.writer().write_all(text.as_bytes()).unwrap();
    secure.conn.send_close_notify();
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    let text = String::from_utf8(all).unwrap();
    let count = |what: &str| text.lines().filter(|line| *line == what).count();
    assert_eq!((count("+OK"), count("+PONG")), (PAIRS, PAIRS));
}

/// A socket that ends without an announcement: the last bytes may have been cut off.
#[test]
fn a_stream_that_is_cut_off_is_closed() {
    let served = Served::new("");
    let mut client = served.secure();
    assert_eq!(ask(&mut client, "PING"), "+PONG");
    client.get_ref().sock.shutdown(Shutdown::Write).unwrap();
    let error = client.read(&mut [0]);
    assert!(error.as_ref().map_or(true, |read| *read == 0), "{error:?}");
    let mut admin = served.secure();
    wait_until(|| ask_bulk(&mut admin, "CLIENT LIST").trim().lines().count() == 1);
}

/// Any other bytes at the port: the connection is closed, counted, and disturbs no other client.
#[test]
fn what_is_not_tls_is_closed() {
    let served = Served::new("");
    let mut good = served.secure();
    assert_eq!(ask(&mut good, "PING"), "+PONG");
    let garbage = [&b"PING\r\n"[..], b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", &[22; 4_096]];
    for bytes in garbage {
        let mut raw = served.raw();
        raw.write_all(bytes).unwrap();
        let mut heard = Vec::new();
        match raw.read_to_end(&mut heard) {
            Ok(_) => assert!(heard.len() < 64, "an alert at most"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    // Encrypted bytes at the plain port are no request.
    let socket = served.socket(served.server().address().unwrap());
    let mut secure = BufReader::new(StreamOwned::new(served.authority.client(None, BOTH), socket));
    assert!(try_ask(&mut secure, "PING").is_err());
    assert_eq!(ask(&mut good, "PING"), "+PONG");
    assert_eq!(counter(&mut served.plain(), "tls_failures"), 3);
}

/// Clients with an unfinished handshake count as clients, for ten seconds.
#[test]
fn a_handshake_that_stalls_is_ended() {
    let served = Served::new("--maxclients 4");
    let began = Instant::now();
    let mut stalled = [served.raw(), served.raw()];
    let mut hello = Vec::new();
    served.authority.client(None, BOTH).write_tls(&mut hello).unwrap();
    stalled[1].write_all(&hello[..hello.len() / 2]).unwrap();
    // A single byte now and then does not help.
    let mut slow = served.raw();
    let mut slow_writer = slow.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        for byte in hello.chunks(1) {
            if slow_writer.write_all(byte).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    });
    let mut admin = served.plain();
    wait_until(|| ask_bulk(&mut admin, "CLIENT LIST").trim().lines().count() == 4);
    assert_eq!(ask(&mut served.plain(), "PING"), "-ERR max number of clients reached");
    assert!(try_ask(&mut served.secure(), "PING").is_err());
    stalled.iter_mut().chain([&mut slow]).for_each(|socket| {
        let _ = socket.read_to_end(&mut Vec::new());
        let time = began.elapsed();
        assert!(time >= Duration::from_secs(9) && time < Duration::from_secs(25), "{time:?}");
    });
    writer.join().unwrap();
    wait_until(|| ask_bulk(&mut admin, "CLIENT LIST").trim().lines().count() == 1);
    assert_eq!(counter(&mut admin, "tls_failures"), 3);
    assert_eq!(ask(&mut served.secure(), "PING"), "+PONG");
}

#[test]
fn two_hundred_clients_at_once() {
    let served = Served::new("");
    std::thread::scope(|scope| {
        for at in 0..4 {
            let served = &served;
            scope.spawn(move || {
                let mut clients: Vec<_> = (0..50).map(|_| served.secure()).collect();
                // All are connected before the first has shaken hands.
                for (n, client) in clients.iter_mut().enumerate() {
                    assert_eq!(ask(client, &format!("SET {at}:{n} {n}")), "+OK");
                }
                for (n, client) in clients.iter_mut().enumerate() {
                    assert_eq!(ask_bulk(client, &format!("GET {at}:{n}")).trim(), n.to_string());
                }
            });
        }
    });
    assert_eq!(ask(&mut served.plain(), "DBSIZE"), ":200");
}

/// A stop waits for no handshake, and announces the end to other clients. Nor does a stop wait for
/// a disk.
#[test]
fn a_stop_while_clients_shake_hands() {
    let served = Served::in_dir(tempfile::tempdir_in("/dev/shm").unwrap(), "", false);
    let mut client = served.secure();
    assert_eq!(ask(&mut client, "SET a 1"), "+OK");
    let mut silent = served.raw();
    let mut half = served.raw();
    let mut hello = Vec::new();
    served.authority.client(None, BOTH).write_tls(&mut hello).unwrap();
    half.write_all(&hello).unwrap();
    half.read_exact(&mut [0; 64]).unwrap();
    let began = Instant::now();
    drop(served);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "it ends by close_notify");
    for socket in [&mut silent, &mut half] {
        let _ = socket.read_to_end(&mut Vec::new());
    }
}

/// The rest of a reply longer than the buffers of sockets is sent to a client that reads.
#[test]
fn a_stop_sends_the_rest_of_a_long_reply() {
    let served = Served::new("");
    let mut client = served.secure();
    assert_eq!(ask(&mut client, "SETRANGE a 15000000 x"), ":15000001");
    assert_eq!(ask(&mut client, "GET a"), "$15000001");
    let handle = served.server().handle();
    handle.stop();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 15_000_001 + 2);
    drop(served);
    assert_eq!(handle.cut_off(), 0);
}

/// With a port for TLS, port 0 means no plain port.
#[test]
fn encrypted_connections_alone() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "authority");
    let pair = authority.sign("server");
    let start = |port: u16, tls_port: u16| {
        let text = format!(
            "--port {port} --tls-port {tls_port} --dir {0}/data --bind 127.0.0.1 --loops 1 \
             --tls-auth-clients no --tls-cert-file {0}/server.crt --tls-key-file {0}/server.key",
            dir.path().display(),
        );
        let settings: Vec<&str> = text.split_whitespace().collect();
        Server::start(Settings::from_arguments(&settings).unwrap())
    };
    let error = start(7_777, 7_777).err().unwrap().to_string();
    assert!(error.contains("port and tls-port are both 7777"), "{error}");
    let server = (0..20).find_map(|_| {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        start(0, free).ok()
    });
    let served = Served { server, authority, dir };
    served.server().wait_until_open().unwrap();
    assert_eq!(served.server().address(), served.server().tls_address());
    let mut client = served.secure();
    let port = served.server().address().unwrap().port();
    let info = ask_bulk(&mut client, "INFO server");
    assert!(info.contains(&format!("\r\ntcp_port:{port}\r\n")), "{info}");
    std::fs::remove_file(pair.key).unwrap();
    assert_eq!(ask(&mut served.secure(), "PING"), "+PONG", "files are read at the start alone");
}

/// As `hyades ping --tls` does.
#[test]
fn a_server_is_asked_for_a_sign_of_life() {
    let served = Served::with_authority("--requirepass secret", true);
    let port = served.server().tls_address().unwrap().port();
    let pair = served.authority.sign("asks");
    let shown = Some((pair.certificate.clone(), pair.key.clone()));
    let known = PingTls {
        authorities: Some(served.authority.file.clone()),
        certificate: shown.clone(),
        takes_any: false,
    };
    // The server wants a password, and is alive all the same.
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(ping(host, port, Some(&known)), Ok(()), "{host}");
    }
    let any = PingTls { authorities: None, takes_any: true, ..known.clone() };
    assert_eq!(ping("127.0.0.1", port, Some(&any)), Ok(()));
    let refused = |how: PingTls, words: &str| {
        let error = ping("127.0.0.1", port, Some(&how)).expect_err(words);
        assert!(error.contains(words), "{words}: {error}");
    };
    refused(PingTls { certificate: None, ..known.clone() }, "alert");
    refused(PingTls { authorities: None, ..known.clone() }, "--cacert");
    let other = Authority::new(served.dir.path(), "other-authority");
    refused(PingTls { authorities: Some(other.file), ..known.clone() }, "UnknownIssuer");
    let missing = served.dir.path().join("missing");
    let named = PingTls { authorities: Some(missing.clone()), ..known.clone() };
    refused(named, "cannot read --cacert");
    let key = PingTls { certificate: Some((pair.certificate.clone(), missing)), ..known.clone() };
    refused(key, "cannot read --key");
    let swapped = PingTls { certificate: Some((pair.key, pair.certificate)), ..known.clone() };
    refused(swapped, "--cert");
    // The plain port does not speak TLS, and the encrypted port nothing else.
    let plain = served.server().address().unwrap().port();
    assert_eq!(ping("127.0.0.1", plain, None), Ok(()));
    assert!(ping("127.0.0.1", plain, Some(&known)).is_err());
    assert!(ping("127.0.0.1", port, None).is_err());
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert!(ping("127.0.0.1", closed, None).unwrap_err().contains("no server answers at"));
}
