//! MIGRATE beside other clients, and crashes: a value is always at one of both places at least.

use super::large::{collect, opened};
use super::migrating::{Say, is, migrate, target};
use super::*;
use crate::rdb;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Other clients go on while keys are sent. Their writes stay, and are told.
#[test]
fn what_is_written_while_it_is_sent_stays() {
    let large: String = (0..900).map(|n| format!("HSET h f{n} {n}\r\nRPUSH l {n}\r\n")).collect();
    let stays = "-ERR keys that were written here while they were sent: 1; they stay, and the \
                 target has older values of them";
    for (key, meanwhile, read, left) in [
        ("a", "SET a 2", "GET a", "$1 2"),
        ("a", "SET a 1", "GET a", "$1 1"),
        ("a", "APPEND a 2", "GET a", "$2 12"),
        ("a", "EXPIRE a 100", "TTL a", ":100"),
        ("a", "DEL a", "EXISTS a", ":0"),
        ("a", "RENAME a b", "EXISTS a b", ":1"),
        ("a", "FLUSHALL", "DBSIZE", ":0"),
        ("a", "SWAPDB 0 1", "EXISTS a", ":0"),
        // The key's row is not written, but a block or a chunk is.
        ("h", "HSET h f7 new", "HGET h f7", "$3 new"),
        ("h", "HDEL h f7", "HLEN h", ":899"),
        ("s", "SETRANGE s 5 y", "GETRANGE s 4 6", "$3 xyx"),
        // Here the value is not changed either: the key's row is marked, so that a change is seen.
        ("h", "WATCH h", "HLEN h", ":900"),
        ("l", "LSET l 450 new", "LINDEX l 450", "$3 new"),
        ("l", "RPOP l", "LLEN l", ":899"),
    ] {
        let mut house = House::new(false);
        let mut client = house.client();
        house.say(&mut client, b"SET a 1\r\n");
        let string = vec![b'x'; 2_000_000];
        let set = b"*3\r\n$3\r\nSET\r\n$1\r\ns\r\n$2000000\r\n";
        house.say(&mut client, &[&set[..], &string, b"\r\n", large.as_bytes()].concat());
        let mut beside = house.beside();
        let (port, _read) = target(move |_, words| {
            if is(words, "RESTORE") {
                let mut other = beside.client();
                beside.say(&mut other, format!("{meanwhile}\r\n").as_bytes());
            }
            Say("+OK\r\n")
        });
        let said = migrate(&mut house, &mut client, &format!("{port} {key} 0 20000"));
        assert_eq!(said.trim_end(), stays, "{meanwhile}");
        let said = house.say(&mut client, format!("{read}\r\n").as_bytes());
        assert_eq!(said.trim_end(), left, "{meanwhile}");
    }
}

/// Whatever else is written: a sent key is removed, with its blocks or chunks.
#[test]
fn what_was_not_written_is_removed_with_its_blocks() {
    for line in ["HSET k f# #", "SADD k m#", "RPUSH k #", "ZADD k # m#", "SETRANGE k 2000000 x"] {
        let mut house = House::new(false);
        let mut client = house.client();
        let fill = (0..900).map(|n| line.replace('#', &n.to_string()) + "\r\n");
        house.say(&mut client, fill.collect::<String>().as_bytes());
        let mut beside = house.beside();
        let (port, read) = target(move |_, _| {
            let mut other = beside.client();
            beside.say(&mut other, b"INCR n\r\n");
            Say("+OK\r\n")
        });
        let said = migrate(&mut house, &mut client, &format!("{port} k 0 20000"));
        assert_eq!(said, "+OK ", "{line}");
        assert_eq!(house.say(&mut client, b"EXISTS k\r\nGET n\r\n"), ":0 $1 2 ", "{line}");
        let (_, restore) = read.iter().nth(1).unwrap();
        assert!(rdb::restore(&restore[3], rdb::MOST_BYTES).is_ok(), "{line}");
        collect(&mut house);
        let info = house.say(&mut client, b"INFO hyades\r\n");
        for table in ["table_blocks:rows=0,", "table_chunks:rows=0,"] {
            assert!(info.contains(table), "{line} {info}");
        }
    }
}

/// A key that expires during the send was not written; a new key in its place was.
#[test]
fn a_key_may_expire_while_it_is_sent() {
    for (meanwhile, expected, left) in [("PING", "+OK ", ":0 "), ("SET a new", "-ERR ", ":1 ")] {
        let mut house = House::new(false);
        let mut client = house.client();
        // Long enough for the read before the expiry on a busy machine.
        house.say(&mut client, b"SET a 1 PX 1500\r\n");
        let mut beside = house.beside();
        let (port, _read) = target(move |_, words| {
            if is(words, "RESTORE") {
                std::thread::sleep(Duration::from_millis(1_600));
                let mut other = beside.client();
                beside.say(&mut other, format!("{meanwhile}\r\n").as_bytes());
            }
            Say("+OK\r\n")
        });
        let said = migrate(&mut house, &mut client, &format!("{port} a 0 20000"));
        assert!(said.starts_with(expected), "{meanwhile}: {said}");
        assert_eq!(house.say(&mut client, b"EXISTS a\r\n"), left, "{meanwhile}");
    }
}

/// Data is on disk before it is sent, and the reply leaves when the removal is on disk.
#[test]
fn nothing_is_sent_or_replied_before_it_is_on_disk() {
    let mut house = House::new(true);
    let (mut writer, mut client) = (house.client(), house.client());
    let (sender, on_disk) = channel();
    let path = house._dir.as_ref().unwrap().path().to_path_buf();
    let of_target = path.clone();
    let (port, _read) = target(move |_, words| {
        if is(words, "RESTORE") {
            sender.send(after_crash(&of_target, "GET a")).unwrap();
        }
        Say("+OK\r\n")
    });
    writer.feed(b"SET a 1\r\n");
    house.run(&mut writer, 0);
    assert_eq!(after_crash(&path, "GET a"), "$-1 ", "nothing has written the log");
    client.feed(format!("MIGRATE 127.0.0.1 {port} a 0 20000\r\n").as_bytes());
    house.run(&mut client, 1);
    assert_eq!(on_disk.recv().unwrap(), "$1 1 ", "it is on disk when it is sent");
    assert_eq!(take(&mut client), "", "the target has it, and it may still be here after a crash");
    assert_eq!(after_crash(&path, "GET a"), "$1 1 ", "it is at both places");
    house.write_log();
    let acknowledge = |(number, mark)| match number {
        0 => writer.acknowledged(mark),
        _ => client.acknowledged(mark),
    };
    house.queue.drain(acknowledge).unwrap();
    assert_eq!(take(&mut client), "+OK ");
    assert_eq!(after_crash(&path, "GET a"), "$-1 ");
}

/// The reply of a server started on the current files.
pub(super) fn after_crash(dir: &Path, line: &str) -> String {
    let copy = tempfile::tempdir_in("/dev/shm").unwrap();
    copy_files(dir, copy.path());
    let mut started = opened(copy);
    let mut client = started.client();
    started.say(&mut client, format!("{line}\r\n").as_bytes())
}

/// Copies the files of a directory unchanged.
fn copy_files(from: &Path, to: &Path) {
    for file in std::fs::read_dir(from).unwrap().flatten() {
        let (file, to) = (file.path(), to.join(file.file_name()));
        if file.is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy_files(&file, &to);
        } else {
            std::fs::copy(&file, &to).unwrap();
        }
    }
}
