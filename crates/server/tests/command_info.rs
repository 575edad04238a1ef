//! COMMAND and COMMAND DOCS here and on `redis-server` 7.0.15, for all commands of this server:
//! number of arguments, flags, categories, keys and arguments are equal, except for the commands
//! named here. Ignored, since the test needs `redis-server`:
//!
//! `cargo test -p hyades-server --test command_info -- --ignored`
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::Served;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Commands with different facts. ZRANK and ZREVRANK have WITHSCORE, as in Redis 7.2; for the rest,
/// the flags `loading` and `stale` are right for this server.
const OTHER_FACTS: &str = "asking cluster|countkeysinslot cluster|getkeysinslot cluster|info \
    cluster|keyslot cluster|links cluster|myid cluster|nodes cluster|replicas cluster|shards \
    cluster|slaves cluster|slots function|help lolwut memory|help object|help ping replicaof \
    script|help script|load slaveof unwatch wait watch xgroup|help xinfo|help zrank zrevrank";

/// Commands with different arguments: more arguments are listed, or groups of a single argument are
/// left out. SET has comparisons, as in Redis 8.4, and HSCAN NOVALUES, as in 7.4; members and
/// sources may be missing, as in Redis 7.2. For REPLICAOF the host and the port are listed.
const OTHER_ARGUMENTS: &str = "client|kill client|list command|getkeys command|getkeysandflags \
    config|get debug geohash geopos hscan migrate pfmerge psubscribe replicaof set slaveof zrank \
    zrevrank";

#[derive(Clone, Debug)]
enum Said {
    Text(String),
    Array(Vec<Said>),
}

impl Said {
    fn read(from: &mut BufReader<TcpStream>) -> Said {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        let line = line.trim_end_matches("\r\n");
        let (kind, rest) = line.split_at(1);
        match kind {
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                from.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Said::Text(String::from_utf8(bytes).unwrap())
            }
            "*" => {
                let length = rest.parse::<usize>().unwrap();
                Said::Array((0..length).map(|_| Said::read(from)).collect())
            }
            _ => Said::Text(rest.to_string()),
        }
    }

    fn text(&self) -> &str {
        match self {
            Said::Text(text) => text,
            Said::Array(_) => panic!("no text: {self:?}"),
        }
    }

    fn array(&self) -> &[Said] {
        match self {
            Said::Array(all) => all,
            Said::Text(_) => panic!("no array: {self:?}"),
        }
    }

    /// The words of a set, in order.
    fn words(&self) -> String {
        let mut words: Vec<&str> = self.array().iter().map(Said::text).collect();
        words.sort_unstable();
        words.join("+")
    }

    /// A field of a map.
    fn field(&self, name: &str) -> Option<&Said> {
        self.array().chunks(2).find(|pair| pair[0].text() == name).map(|pair| &pair[1])
    }

    /// The whole value as text.
    fn flat(&self) -> String {
        match self {
            Said::Text(text) => text.clone(),
            Said::Array(all) => all.iter().map(Said::flat).collect::<Vec<_>>().join(" "),
        }
    }
}

fn ask(stream: &TcpStream, line: &str) -> Said {
    let mut to = stream;
    to.write_all(line.as_bytes()).unwrap();
    to.write_all(b"\r\n").unwrap();
    Said::read(&mut BufReader::new(stream.try_clone().unwrap()))
}

/// The facts of COMMAND about each command and subcommand, without tips and notes.
fn facts(stream: &TcpStream) -> BTreeMap<String, String> {
    fn add(entry: &Said, all: &mut BTreeMap<String, String>) {
        let [name, arity, flags, first, last, step, categories, _, specs, subcommands] =
            entry.array()
        else {
            panic!("ten parts: {entry:?}")
        };
        let spec = |spec: &Said| {
            let part = |name| spec.field(name).expect("it has one").flat();
            let flags = spec.field("flags").expect("it has some").words();
            format!("{flags} {} {}", part("begin_search"), part("find_keys"))
        };
        let specs: Vec<String> = specs.array().iter().map(spec).collect();
        let numbers = [arity, first, last, step].map(Said::text).join(" ");
        let (flags, categories) = (flags.words(), categories.words());
        let told = format!("{numbers} | {flags} | {categories} | {}", specs.join(", "));
        all.insert(name.text().to_string(), told);
        subcommands.array().iter().for_each(|subcommand| add(subcommand, all));
    }
    let mut all = BTreeMap::new();
    ask(stream, "COMMAND").array().iter().for_each(|entry| add(entry, &mut all));
    all
}

/// The arguments in COMMAND DOCS of each command and subcommand, with the version.
fn arguments(stream: &TcpStream) -> BTreeMap<String, String> {
    fn shown(argument: &Said) -> String {
        let field = |name| argument.field(name).map(Said::flat).unwrap_or_default();
        let flags = argument.field("flags").map(Said::words).unwrap_or_default();
        let [name, kind, spec, token] = ["name", "type", "key_spec_index", "token"].map(field);
        format!("{name}:{kind}@{spec}'{token}'{flags}({})", listed(argument))
    }
    fn listed(parent: &Said) -> String {
        let list = parent.field("arguments").map(Said::array).unwrap_or_default();
        list.iter().map(shown).collect::<Vec<_>>().join(", ")
    }
    fn add(docs: &Said, all: &mut BTreeMap<String, String>) {
        for pair in docs.array().chunks(2) {
            let command = &pair[1];
            let since = command.field("since").expect("it has one").flat();
            all.insert(pair[0].text().to_string(), format!("{since} {}", listed(command)));
            command.field("subcommands").into_iter().for_each(|docs| add(docs, all));
        }
    }
    let mut all = BTreeMap::new();
    add(&ask(stream, "COMMAND DOCS"), &mut all);
    all
}

struct Original(Child);

impl Drop for Original {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A `redis-server`, and a connection to it.
fn original(dir: &std::path::Path) -> (Original, TcpStream) {
    // The port is free again when the listener is dropped.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1", "--dir"]);
    let child = command.arg(dir).stdout(Stdio::null()).spawn().expect("redis-server is installed");
    let original = Original(child);
    for _ in 0..200 {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            return (original, stream);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("redis-server does not listen");
}

/// Checks that the commands known to both servers, with different facts, are the declared commands.
fn compare(ours: &BTreeMap<String, String>, theirs: &BTreeMap<String, String>, declared: &str) {
    let both = ours.iter().filter_map(|(name, a)| Some((name.as_str(), a, theirs.get(name)?)));
    let differs: Vec<_> = both.clone().filter(|(_, a, b)| a != b).collect();
    assert!(both.count() > 240, "commands were compared");
    let declared: Vec<&str> = declared.split_whitespace().collect();
    for (name, here, there) in &differs {
        assert!(declared.contains(name), "{name}\nhere:  {here}\nthere: {there}");
    }
    let names: Vec<&str> = differs.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, declared, "those that do not differ any more are named");
}

#[test]
#[ignore = "needs redis-server"]
fn commands_are_told_as_redis_tells_them() {
    let dir = tempfile::tempdir().unwrap();
    let (there, here) = (dir.path().join("redis"), dir.path().join("hyades"));
    std::fs::create_dir(&there).unwrap();
    let (_original, theirs) = original(&there);
    let served = Served::start(&here, "");
    let ours = served.connect(Duration::from_secs(60));
    compare(&facts(&ours), &facts(&theirs), OTHER_FACTS);
    compare(&arguments(&ours), &arguments(&theirs), OTHER_ARGUMENTS);
}
