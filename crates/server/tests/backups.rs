//! HYADES.BACKUP and HYADES.LAST over sockets: the replies, and databases opened from copies.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::Served;
use hyades::TransactionId;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

struct Client(BufReader<TcpStream>);

/// A server with one event loop.
fn start(dir: &Path, more: &str) -> Served {
    Served::start(dir, &format!("--loops 1 {more}"))
}

impl Client {
    fn of(served: &Served) -> Client {
        Client(BufReader::new(served.connect(Duration::from_secs(60))))
    }

    fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(format!("{text}\r\n").as_bytes()).unwrap();
    }

    /// A line, the content of a string, or the elements of an array.
    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end().to_string();
        match line.split_at(1) {
            ("$", "-1") => line,
            ("$", length) => {
                let mut bytes = vec![0; length.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut bytes).unwrap();
                String::from_utf8(bytes).unwrap().trim_end().to_string()
            }
            ("*", count) => {
                let count = count.parse::<usize>().unwrap();
                (0..count).map(|_| self.reply()).collect::<Vec<_>>().join(" ")
            }
            _ => line,
        }
    }

    fn ask(&mut self, text: &str) -> String {
        self.say(text);
        self.reply()
    }
}

#[test]
fn a_copy_is_a_database_and_the_original_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let backups = dir.path().join("some/backups");
    let served = start(&dir.path().join("data"), &format!("--backup-dir {}", backups.display()));
    let mut client = Client::of(&served);
    assert_eq!(client.ask("SET a 1"), "+OK");
    let said = client.ask("HYADES.BACKUP one");
    let directory = backups.join("one");
    let begin = format!("directory {} files :", directory.display());
    assert!(said.starts_with(&begin) && said.contains(" bytes :"), "{said}");
    // Writes during the backup and afterwards are not in the copy.
    assert_eq!(client.ask("SET a 2"), "+OK");
    let again = client.ask("HYADES.BACKUP one");
    assert!(again.starts_with("-ERR") && again.contains("is not empty"), "{again}");
    assert!(client.ask("HYADES.BACKUP two").starts_with("directory "));
    for (name, value) in [("one", "1"), ("two", "2")] {
        let copy = start(&backups.join(name), "");
        assert_eq!(Client::of(&copy).ask("GET a"), value);
        // The copy is independent.
        assert_eq!(Client::of(&copy).ask("SET a 3"), "+OK");
    }
    assert_eq!(client.ask("GET a"), "2");
}

#[test]
fn the_name_of_a_backup_is_one_component_below_backup_dir() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let served = start(&data, "");
    let mut client = Client::of(&served);
    let said = client.ask("HYADES.BACKUP one");
    assert!(said.starts_with("-ERR there is no backup-dir: start the server with"), "{said}");
    drop(served);
    let backups = dir.path().join("backups");
    let served = start(&data, &format!("--backup-dir {}", backups.display()));
    let mut client = Client::of(&served);
    let long = "x".repeat(256);
    for name in ["..", ".", "../up", "/tmp/x", "a/b", ".hidden", "-rf", "\"\"", "a\\x00b", &long] {
        let said = client.ask(&format!("HYADES.BACKUP {}", quoted(name)));
        assert!(said.starts_with("-ERR the name of a backup has letters"), "{name}: {said}");
    }
    assert!(!backups.exists(), "nothing was made");
    assert!(client.ask("HYADES.BACKUP 2026-11-27_05:00").starts_with("directory "));
    assert!(client.ask("CONFIG SET backup-dir /tmp").contains("immutable"));
    assert!(client.ask("HYADES.BACKUP").contains("wrong number of arguments"));
    // Another process has left something there.
    std::fs::create_dir(backups.join("taken")).unwrap();
    std::fs::write(backups.join("taken/file"), "mine").unwrap();
    assert!(client.ask("HYADES.BACKUP taken").contains("is not empty"));
    assert_eq!(std::fs::read(backups.join("taken/file")).unwrap(), b"mine");
}

/// As an argument of an inline command.
fn quoted(name: &str) -> String {
    if name.contains('"') { name.to_string() } else { format!("\"{name}\"") }
}

#[test]
fn the_id_of_the_last_write_rises_and_is_the_connections_own() {
    let dir = tempfile::tempdir().unwrap();
    let served = start(dir.path(), "");
    let (mut client, mut other) = (Client::of(&served), Client::of(&served));
    assert_eq!(client.ask("HYADES.LAST"), "$-1");
    assert_eq!(client.ask("GET a"), "$-1");
    assert_eq!(client.ask("HYADES.LAST"), "$-1", "it has written nothing");
    assert_eq!(client.ask("SET a 1"), "+OK");
    let id = |text: String| text.parse::<TransactionId>().expect("it is an id");
    let first = id(client.ask("HYADES.LAST"));
    // Neither reads nor other clients change the id.
    assert_eq!(client.ask("GET a"), "1");
    assert_eq!(other.ask("SET a 2"), "+OK");
    assert_eq!(id(client.ask("HYADES.LAST")), first);
    assert!(id(other.ask("HYADES.LAST")).epoch >= first.epoch);
    // HYADES.LAST behind a write names the write, and is answered once the write is on disk,
    // however early the write is acknowledged.
    assert_eq!(client.ask("HYADES.DURABILITY none"), "+OK");
    client.say("SET a 3\r\nHYADES.LAST");
    assert_eq!(client.reply(), "+OK");
    let second = id(client.reply());
    assert!(second != first && second.epoch >= first.epoch, "{first} {second}");
    client.say("MULTI\r\nSET a 4\r\nHYADES.LAST\r\nEXEC");
    assert_eq!([client.reply(), client.reply()], ["+OK", "+QUEUED"]);
    assert!(client.reply().contains("send HYADES.LAST outside of MULTI"));
    assert!(client.reply().starts_with("-EXECABORT"));
    client.say("MULTI\r\nSET a 4\r\nEXEC\r\nHYADES.LAST");
    assert_eq!([client.reply(), client.reply(), client.reply()], ["+OK", "+QUEUED", "+OK"]);
    assert_ne!(id(client.reply()), second);
    assert_eq!(client.ask("RESET"), "+RESET");
    assert_eq!(client.ask("HYADES.LAST"), "$-1");
}
