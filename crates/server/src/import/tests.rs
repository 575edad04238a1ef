//! Imported data is present, whatever interrupts the import.

use super::runner::execute;
use super::*;
use crate::clients::{Calls, ClientEntry};
use crate::commands::Caller;
use crate::export::export;
use crate::rdb::{self, FileWriter, FormatVersion};
use crate::resp::reply::Reply;
use crate::transact::patiently;
use hyades::SessionOrder;
use std::path::PathBuf;
use std::task::Waker;
use tempfile::TempDir;

fn settings(dir: &Path) -> Settings {
    let dir = dir.to_str().unwrap();
    Settings::from_arguments(&["--dir", dir, "--streams", "2"]).unwrap()
}

/// A directory for files and one for a database.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { dir: tempfile::tempdir_in("/dev/shm").unwrap() }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn database(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    fn import(&self, source: &Path) -> Result<ImportReport, String> {
        import(source, settings(&self.database()), &mut |_, _| ())
    }

    /// The replies to commands, each on one line, in the imported database.
    fn replies(&self, commands: &[&str]) -> Vec<String> {
        let shared = Shared::new(settings(&self.database()));
        opening::open(&shared).unwrap();
        let addresses = ("test".to_string(), "test".to_string());
        let entry = ClientEntry::new(1, addresses, 0, Calls::new(Waker::noop().clone()));
        let entry = Arc::new(entry);
        let login = crate::client::Client::new(&shared.access, entry.clone()).login;
        let ask = |line: &&str| {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let done = patiently(&shared, &mut SessionOrder::default(), |tx, context| {
                let (database, args) = match args[0] {
                    b"1" => (1, &args[1..]),
                    _ => (0, &args[..]),
                };
                let space = Keyspace::open(*tx, context, database)?;
                let caller = Caller::new(&shared, &entry, &login, false);
                let mut out = Vec::new();
                execute((&space, &caller), args, &mut Reply::new(&mut out, false))?;
                Ok(out)
            });
            let out = done.map_or_else(|text| format!("-{text}").into_bytes(), |(out, ..)| out);
            String::from_utf8_lossy(&out).replace("\r\n", " ").trim_end().to_string()
        };
        let all = commands.iter().map(ask).collect();
        let opened = shared.store.opened.cloned();
        opened.database.clone().close().unwrap();
        all
    }
}

/// A request as in append-only files.
fn request(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(word).collect::<String>())
}

fn requests(lines: &[&str]) -> Vec<u8> {
    lines.iter().map(|line| request(line)).collect::<String>().into_bytes()
}

/// A file with a value of each type, `many` strings, and a library.
fn rdb_file(many: usize) -> Vec<u8> {
    let mut writer = FileWriter::new(Vec::new(), FormatVersion::Redis70).unwrap();
    writer
        .library(b"#!lua name=lib\nredis.register_function('f', function() return 7 end)")
        .unwrap();
    let mut key = |database, key: &str, expires, payload: Vec<u8>| {
        writer.key(database, key.as_bytes(), expires, &payload).unwrap();
    };
    key(0, "string", None, rdb::string(b"text"));
    key(0, "list", Some(9_999_999_999_999), rdb::list(&[b"a", b"b"]));
    key(0, "gone", Some(1_000), rdb::string(b"text"));
    key(1, "set", None, rdb::set(&[b"1", b"2"]));
    key(1, "hash", None, rdb::hash(&[b"field", b"value"]));
    key(1, "zset", None, rdb::sorted_set(&[(1.5, b"a"), (2.0, b"b")]));
    for number in 0..many {
        let text = format!("value {number}");
        key(2, &format!("key {number}"), None, rdb::string(text.as_bytes()));
    }
    writer.finish().unwrap()
}

const ASKED: &[&str] = &[
    "GET string",
    "LRANGE list 0 -1",
    "PEXPIRETIME list",
    "EXISTS gone",
    "1 SMEMBERS set",
    "1 HGETALL hash",
    "1 ZRANGE zset 0 -1 WITHSCORES",
    "FCALL f 0",
    "1 EXISTS string",
];

const REPLIED: &[&str] = &[
    "$4 text",
    "*2 $1 a $1 b",
    ":9999999999999",
    ":0",
    "*2 $1 1 $1 2",
    "*2 $5 field $5 value",
    "*4 $1 a $3 1.5 $1 b $1 2",
    ":7",
    ":0",
];

#[test]
fn a_file_of_each_type_is_imported_and_exported() {
    let place = Place::new();
    let report = place.import(&place.file("dump.rdb", &rdb_file(5_000))).unwrap();
    assert!(report.is_whole() && !report.was_resumed, "{report:?}");
    assert_eq!((report.expired, report.libraries, report.keys["string"]), (1, 1, 5_001));
    assert_eq!((report.keys["zset"], report.keys.len()), (1, 5));
    assert_eq!(place.replies(ASKED), REPLIED);
    // The same import again is refused, and so are other files.
    let again = place.import(&place.dir.path().join("dump.rdb")).unwrap_err();
    assert!(again.contains("imported") && again.contains("before, whole"), "{again}");
    let other = place.import(&place.file("other.rdb", &rdb_file(1))).unwrap_err();
    assert!(other.contains("other files were imported"), "{other}");
    // And out again, and in again.
    let out = place.dir.path().join("out.rdb");
    let report = export(settings(&place.database()), &out, &mut |_, _| ()).unwrap();
    assert_eq!((report.keys, report.libraries), (5_005, 1));
    let taken = export(settings(&place.database()), &out, &mut |_, _| ()).unwrap_err();
    assert!(taken.contains("exists"), "{taken}");
    let second = Place::new();
    let report = second.import(&out).unwrap();
    assert_eq!(report.keys.values().sum::<u64>(), 5_005);
    assert_eq!(second.replies(ASKED), REPLIED);
}

#[test]
fn commands_follow_the_values() {
    let place = Place::new();
    let text = "file a.1.base.rdb seq 1 type b\nfile a.1.incr.aof seq 1 type i\n\
                file a.2.incr.aof seq 2 type i\n";
    let manifest = place.file("a.manifest", text.as_bytes());
    place.file("a.1.base.rdb", &rdb_file(10));
    let first =
        ["SELECT 0", "INCR n", "PERSIST gone", "SELECT 1", "MULTI", "SADD set 3", "INCR n", "EXEC"];
    place.file("a.1.incr.aof", &[b"#TS:1700000000\r\n".to_vec(), requests(&first)].concat());
    let mut second =
        requests(&["SELECT 0", "INCR n", "SET x 1 PXAT 5", "PERSIST x", "MULTI", "INCR n"]);
    let cut = requests(&["MULTI", "INCR n"]).len() as u64;
    second.extend(b"*2\r\n$4\r\nINC");
    place.file("a.2.incr.aof", &second);
    let report = place.import(&manifest).unwrap();
    // The incomplete transaction is left out.
    assert_eq!((report.commands, report.cut_bytes), (7, cut + 11), "{report:?}");
    assert!(report.is_whole(), "{report:?}");
    let asked = ["GET n", "1 GET n", "1 SCARD set", "GET gone", "GET x", "GET string"];
    let replied = ["$1 2", "$1 1", ":3", "$4 text", "$1 1", "$4 text"];
    assert_eq!(place.replies(&asked), replied);
}

/// An import ended by an error continues after the reason is removed, and nothing is done twice.
#[test]
fn an_import_that_was_ended_goes_on() {
    let place = Place::new();
    let lines: Vec<String> = (0..3_000).map(|n| format!("INCRBY n{} 1", n % 7)).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut bytes = requests(&lines);
    // A database that does not exist, far behind; the length of the file stays.
    let broken = bytes.len();
    bytes.extend(requests(&["SELECT 77", "INCRBY n0 5"]));
    let path = place.file("all.aof", &bytes);
    let error = place.import(&path).unwrap_err();
    let expected = format!("all.aof at byte {broken}: database 77 is selected, and there are 16");
    assert!(error.contains(&expected), "{error}");
    let dir = place.database();
    let settings = ["--databases", "100", "--dir", dir.to_str().unwrap()];
    let settings = Settings::from_arguments(&settings).unwrap();
    let report = import(&path, settings, &mut |_, _| ()).unwrap();
    assert!(report.was_resumed && report.commands < 3_000, "{report:?}");
    let sums = place.replies(&["GET n0", "GET n1", "GET n6"]);
    assert_eq!(sums, ["$3 429", "$3 429", "$3 428"]);
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_place() {
    let whole = rdb_file(3_000);
    let end = whole.len();
    let mut changed = whole.clone();
    let text = memchr::memmem::find(&changed, b"value 2345").unwrap();
    changed[text] ^= 0x20;
    for (bytes, expected) in [
        (b"REDISxyz1".to_vec(), "dump.rdb at byte 0: REDIS and a version are expected"),
        (b"REDIS0099".to_vec(), "dump.rdb at byte 5: version 99 of the format"),
        (whole[..end - 4].to_vec(), "8 bytes are expected, and the file has fewer"),
        (whole[..end / 2].to_vec(), "and the file has fewer"),
        (changed, "the checksum is"),
        (b"REDIS0010\xfe\x90".to_vec(), "a length is expected, and no 0x90"),
        (b"REDIS0010\x63\x01a\x00".to_vec(), "a value of the unknown type 99"),
        (b"no commands\r\n".to_vec(), "an array of strings is expected"),
        (b"*1\r\n$x\r\n".to_vec(), "dump.rdb at byte 0: Protocol error"),
    ] {
        let place = Place::new();
        let error = place.import(&place.file("dump.rdb", &bytes)).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let place = Place::new();
    let error = place.import(&place.dir.path().join("none")).unwrap_err();
    assert!(error.contains("none cannot be read"), "{error}");
}

/// An unsound value is left out, and reported; the others are present.
#[test]
fn parts_that_cannot_be_read_are_left_out() {
    let mut bytes = b"REDIS0012".to_vec();
    // A hash with an odd number of elements in the listpack, a hash with a field that expired in
    // 1970, a hash with a field that expires in the year 4083, a string.
    bytes.extend(b"\x10\x03bad\x0a\x0a\x00\x00\x00\x01\x00\x81a\x02\xff");
    bytes.extend(b"\x18\x04gone\x05\x00\x00\x00\x00\x00\x00\x00\x01\x01\x01f\x01v");
    bytes.extend(b"\x18\x03own\x00\x00\x00\x00\xa8\x3c\x00\x00\x01\x05\x01f\x01v");
    bytes.extend(b"\x00\x04good\xc0\x07");
    bytes.extend(b"\xff\x00\x00\x00\x00\x00\x00\x00\x00");
    let place = Place::new();
    let report = place.import(&place.file("dump.rdb", &bytes)).unwrap();
    assert_eq!(report.left_out, 1, "{report:?}");
    assert!(!report.is_whole());
    assert!(report.named[0].starts_with("key \"bad\" of database 0: "), "{report:?}");
    let asked =
        ["EXISTS bad", "EXISTS gone", "HGET own f", "HPEXPIRETIME own FIELDS 1 f", "GET good"];
    let time = 0x3ca8_0000_0000_i64 + 4;
    let time = format!("*1 :{time}");
    assert_eq!(place.replies(&asked), [":0", ":0", "$1 v", &time, "$1 7"]);
}
