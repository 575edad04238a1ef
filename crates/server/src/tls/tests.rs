//! A client and the server's side without sockets: whatever is cut, changed or lost on the way.

use super::*;
use crate::config::Settings;
use certificates::{Authority, Pair};
use proptest::prelude::*;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, SupportedProtocolVersion};
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;
use tempfile::TempDir;

#[path = "../../tests/certificates/mod.rs"]
mod certificates;

/// Made once for all cases.
struct Made {
    dir: TempDir,
    authority: Authority,
    encryption: Encryption,
}

fn settings(pair: &Pair, more: &[(&str, &Path)]) -> TlsSettings {
    let file = |path: &Path| path.to_str().unwrap().to_string();
    let mut all = vec!["--tls-port".to_string(), "1".to_string()];
    let own = [("tls-cert-file", &*pair.certificate), ("tls-key-file", &*pair.key)];
    for (name, path) in own.iter().chain(more) {
        all.extend([format!("--{name}"), file(path)]);
    }
    Settings::from_arguments(&all).unwrap().tls().unwrap()
}

fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new(dir.path(), "authority");
        let pair = authority.sign("server");
        let settings = settings(&pair, &[("tls-auth-clients", Path::new("no"))]);
        let encryption = Encryption::new(&settings).unwrap();
        Made { dir, authority, encryption }
    })
}

/// The client's bytes for the server.
fn client_output(client: &mut ClientConnection) -> Vec<u8> {
    let mut out = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut out).unwrap();
    }
    out
}

/// Gives the client the server's bytes, in steps of this size.
fn to_client(client: &mut ClientConnection, server: &mut TlsStream, step: usize) -> Vec<u8> {
    let mut heard = Vec::new();
    while !server.output().is_empty() {
        let mut part = &server.output()[..step.min(server.output().len())];
        let taken = client.read_tls(&mut part).unwrap();
        server.sent(taken);
        client.process_new_packets().unwrap();
        let _ = client.reader().read_to_end(&mut heard);
    }
    heard
}

/// A client and a server after a handshake in steps of this size.
fn shaken(
    version: &'static SupportedProtocolVersion,
    step: usize,
) -> (ClientConnection, TlsStream) {
    let mut client = made().authority.client(None, &[version]);
    let mut server = made().encryption.stream().unwrap();
    assert!(server.deadline().is_some() && server.seal(b"too early") == 0);
    while client.is_handshaking() || server.is_handshaking() {
        for part in client_output(&mut client).chunks(step) {
            server.receive(part, |said| panic!("{said:?} was said")).unwrap();
        }
        to_client(&mut client, &mut server, step);
    }
    assert_eq!(server.deadline(), None);
    (client, server)
}

#[test]
fn bytes_arrive_one_by_one_in_both_versions() {
    for version in [&TLS12, &TLS13] {
        let (mut client, mut server) = shaken(version, 1);
        client.writer().write_all(b"PING\r\n").unwrap();
        let mut heard = Vec::new();
        for byte in client_output(&mut client).chunks(1) {
            server.receive(byte, |said| heard.extend_from_slice(said)).unwrap();
        }
        assert_eq!(heard, b"PING\r\n");
        assert_eq!(server.seal(b"+PONG\r\n"), 7);
        assert_eq!(to_client(&mut client, &mut server, 1), b"+PONG\r\n");
        // Both announce their ends.
        client.send_close_notify();
        server.receive(&client_output(&mut client), |_| panic!("nothing was said")).unwrap();
        assert!(server.has_ended() && !server.is_closed());
        assert_eq!(server.seal(b"last"), 4);
        server.close();
        assert_eq!(server.seal(b"later"), 0, "more is not said");
        assert_eq!(to_client(&mut client, &mut server, 1), b"last");
        assert_eq!(client.reader().read(&mut [0]).unwrap(), 0, "the end was told");
        // Bytes behind the end are not passed on.
        server.receive(b"anything", |_| panic!("nothing was said")).unwrap();
    }
}

/// For any number of bytes to send, a bounded part is encrypted before the part is sent.
#[test]
fn what_is_encrypted_and_not_sent_is_bounded() {
    let (mut client, mut server) = shaken(&TLS13, 4_096);
    let all: Vec<u8> = (0..1_000_003u32).map(|n| (n.wrapping_mul(n) >> 5) as u8).collect();
    let (mut said, mut heard) = (0, Vec::new());
    while said < all.len() {
        let sealed = server.seal(&all[said..]);
        assert!(sealed > 0 && server.output().len() <= MOST_SEALED + 1_024);
        assert_eq!(server.seal(&all[said + sealed..]), 0, "what is encrypted is sent first");
        said += sealed;
        heard.extend(to_client(&mut client, &mut server, 4_096));
        assert!(server.sealed.capacity() <= KEPT, "an idle connection keeps little");
    }
    assert!(heard == all);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A byte of the network is changed: the received bytes are the start of the sent bytes. (A
    /// version in a record's header has no meaning, and a grown length waits for more.)
    #[test]
    fn what_is_changed_on_the_way_is_not_heard(
        texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..6),
        at: prop::sample::Index,
        bit in 0u32..8,
        step in 1usize..64,
        is_old: bool,
    ) {
        let (mut client, mut server) = shaken(if is_old { &TLS12 } else { &TLS13 }, 512);
        let mut wire = Vec::new();
        for text in &texts {
            client.writer().write_all(text).unwrap();
            wire.extend(client_output(&mut client));
        }
        let at = at.index(wire.len());
        wire[at] ^= 1 << bit;
        let mut heard = Vec::new();
        let mut failed = false;
        for part in wire.chunks(step) {
            failed = server.receive(part, |said| heard.extend_from_slice(said)).is_err();
            if failed {
                break;
            }
        }
        let said = texts.concat();
        prop_assert!(said.starts_with(&heard));
        prop_assert!(!failed || server.is_closed());
    }

    /// Any bytes: an error, or more bytes are needed. A client without TLS is sent nothing.
    #[test]
    fn any_bytes_are_refused_or_wait(bytes: Vec<u8>, as_tls: bool, step in 1usize..9) {
        let mut server = made().encryption.stream().unwrap();
        let begin: &[u8] = if as_tls { &[22, 3, 1, 0] } else { &[] };
        let all = [begin, &bytes].concat();
        for part in all.chunks(step) {
            if let Err(error) = server.receive(part, |said| panic!("{said:?} was said")) {
                prop_assert_eq!(error == NOT_TLS, all[0] != HANDSHAKE_RECORD);
                prop_assert!(error != NOT_TLS || server.output().is_empty());
                break;
            }
        }
        prop_assert!(server.is_handshaking());
    }
}

/// Each wrong file is named, with the expected content.
#[test]
fn wrong_files_are_named_with_what_to_do() {
    let (dir, authority) = (made().dir.path(), &made().authority);
    let pair = |certificate: &str, key: &str| Pair {
        certificate: dir.join(certificate),
        key: dir.join(key),
    };
    let (own, other) = (authority.sign("own"), authority.sign("other"));
    let no = [("tls-auth-clients", Path::new("no"))];
    let refused = |pair: &Pair, more: &[(&str, &Path)], words: &[&str]| {
        let error = Encryption::new(&settings(pair, more)).err().expect("it is refused");
        words.iter().for_each(|word| assert!(error.contains(word), "{word}: {error}"));
    };
    std::fs::write(dir.join("empty"), "nothing\n").unwrap();
    let broken = "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
    std::fs::write(dir.join("broken"), broken).unwrap();
    std::fs::write(dir.join("no-der"), broken.replace('?', "AAAA")).unwrap();
    for label in ["ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY"] {
        let header = "Proc-Type: 4,ENCRYPTED\n";
        let text = format!("-----BEGIN {label}-----\n{header}\nAAAA\n-----END {label}-----\n");
        std::fs::write(dir.join("locked"), text).unwrap();
        let words = ["tls-key-file", "locked", "passphrase", "openssl pkey -in"];
        refused(&pair("own.crt", "locked"), &no, &words);
    }
    let words = ["cannot read tls-cert-file", "missing", "No such file"];
    refused(&pair("missing", "own.key"), &no, &words);
    let words = ["tls-cert-file", "empty", "has no certificate", "BEGIN CERTIFICATE"];
    refused(&pair("empty", "own.key"), &no, &words);
    refused(&pair("broken", "own.key"), &no, &["tls-cert-file", "broken", "be understood"]);
    refused(&pair("no-der", "own.key"), &no, &["tls-cert-file", "no-der", "invalid"]);
    let words = ["tls-key-file", "own.crt", "has no private key", "BEGIN PRIVATE KEY"];
    refused(&pair("own.crt", "own.crt"), &no, &words);
    let mixed = Pair { certificate: own.certificate.clone(), key: other.key.clone() };
    refused(&mixed, &no, &["other.key", "own.crt", "is not the key of"]);
    refused(&own, &[], &["tls-ca-cert-file", "tls-auth-clients to no"]);
    let missing = dir.join("no-authority");
    refused(&own, &[("tls-ca-cert-file", &missing)], &["tls-ca-cert-file", "no-authority"]);
    let no_der = dir.join("no-der");
    refused(&own, &[("tls-ca-cert-file", &no_der)], &["tls-ca-cert-file", "cannot be used"]);
    let tls = Settings::from_arguments(&["--tls-port", "1"]).unwrap().tls().unwrap();
    let error = Encryption::new(&tls).err().unwrap();
    assert!(error.contains("tls-port needs tls-cert-file"), "{error}");
    // The authority's file is there, and all is well.
    Encryption::new(&settings(&own, &[("tls-ca-cert-file", &authority.file)])).unwrap();
}
