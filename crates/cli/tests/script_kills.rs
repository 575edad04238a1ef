//! Scripts after a kill: connections run scripts that write several keys, on their own keys and on
//! keys written by all connections, and journal the acknowledgements, until `hyades serve` is ended
//! by SIGKILL. After the restart no acknowledged script is lost, and each script has written all of
//! its keys or none.
#![allow(missing_docs, reason = "tests are named by what they promise")]

#[path = "common/process.rs"]
mod process;

use fastrand::Rng;
use process::Process;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How a connection runs its scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Eval,
    EvalSha,
    Function,
    /// EVAL, several at once.
    Pipelined,
    /// EVAL between MULTI and EXEC, with a SET.
    Exec,
}

const KINDS: [Kind; 6] =
    [Kind::Eval, Kind::EvalSha, Kind::Function, Kind::Pipelined, Kind::Pipelined, Kind::Exec];

/// The script with a number: KEYS are the connection's own keys and two keys written by all
/// connections, ARGV the number, the filler of the values, and the number of busy rounds.
const SCRIPT: &str = "local number = ARGV[1] \
    for _ = 1, tonumber(ARGV[3]) do number = tostring(number) end \
    for at = 1, 3 do redis.call('SET', KEYS[at], number .. ARGV[2]) end \
    redis.call('RPUSH', KEYS[4], number) \
    redis.call('HSET', KEYS[5], 'number', number) \
    redis.call('INCRBY', KEYS[6], number) \
    redis.call('DECRBY', KEYS[7], number) \
    return number";

/// Writes the same keys, and is undone.
const UNDONE: &str = "#!lua flags=rollback\n\
    for at = 1, 5 do redis.call('SET', KEYS[at], 'undone') end \
    redis.call('SET', KEYS[6], 'undone') error('at the end')";

/// The keys written by all connections.
const SHARED: [&str; 2] = ["plus", "minus"];

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Client(BufReader::new(stream)))
    }

    /// A line, the content of a string, or the elements of an array. An error once the server is
    /// gone.
    fn reply(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let length = || line[1..].parse::<i64>().unwrap();
        if line.starts_with('$') && length() >= 0 {
            let mut bytes = vec![0; length() as usize + 2];
            self.0.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            return Ok(String::from_utf8(bytes).unwrap());
        }
        if line.starts_with('*') && length() >= 0 {
            let all = (0..length()).map(|_| self.reply()).collect::<std::io::Result<Vec<_>>>();
            return all.map(|all| all.join(" "));
        }
        Ok(line.to_string())
    }

    fn ask(&mut self, words: &[&str]) -> std::io::Result<String> {
        self.0.get_mut().write_all(&request(words))?;
        self.reply()
    }
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// The keys of a connection.
fn keys(connection: usize) -> [String; 7] {
    let own = |name: &str| format!("c{connection}:{name}");
    let [plus, minus] = SHARED.map(str::to_string);
    [own("a"), own("b"), own("c"), own("list"), own("hash"), plus, minus]
}

/// Bytes of the script with this number, and the number of replies before its own.
fn script(kind: Kind, connection: usize, number: u64, sha: &str, rng: &mut Rng) -> (Vec<u8>, u32) {
    let (fill, rounds) = match rng.u32(0..40) {
        // A longer, or slower, script is run by an executor.
        0 => (300_000, 0),
        1..4 => (5_000, 0),
        4 => (0, 300_000),
        _ => (0, 0),
    };
    let keys = keys(connection);
    let (number, fill, rounds) = (number.to_string(), "x".repeat(fill), rounds.to_string());
    let head = match kind {
        Kind::EvalSha => ["EVALSHA", sha, "7"],
        Kind::Function => ["FCALL", "write", "7"],
        _ => ["EVAL", SCRIPT, "7"],
    };
    let mut words = head.to_vec();
    words.extend(keys.iter().map(String::as_str));
    words.extend([&number[..], &fill[..], &rounds[..]]);
    let own = request(&words);
    match kind {
        Kind::Exec => {
            let extra = format!("c{connection}:extra");
            let before = [request(&["MULTI"]), request(&["SET", &extra, &number]), own];
            ([before.concat(), request(&["EXEC"])].concat(), 3)
        }
        _ => (own, 0),
    }
}

/// Runs scripts until the server is gone. Returns the last acknowledged number, and the last number
/// sent.
fn run(address: &str, connection: usize, kind: Kind, mut rng: Rng) -> (u64, u64) {
    let (mut acknowledged, mut sent) = (0, 0);
    let mut work = || -> std::io::Result<()> {
        let mut client = Client::connect(address)?;
        let sha = client.ask(&["SCRIPT", "LOAD", SCRIPT])?;
        loop {
            let most = if kind == Kind::Pipelined { rng.usize(1..12) } else { 1 };
            let (mut bytes, mut awaited) = (Vec::new(), Vec::new());
            for _ in 0..most {
                sent += 1;
                let (own, before) = script(kind, connection, sent, &sha, &mut rng);
                bytes.extend(own);
                awaited.push((before, sent));
            }
            client.0.get_mut().write_all(&bytes)?;
            for (before, number) in awaited {
                for _ in 0..before {
                    client.reply()?;
                }
                let reply = client.reply()?;
                let own = reply.strip_prefix("+OK ").unwrap_or(&reply);
                assert_eq!(own, number.to_string(), "{kind:?}");
                acknowledged = number;
            }
            if rng.u32(0..8) == 0 {
                let keys = keys(connection);
                let mut words = vec!["EVAL", UNDONE, "7"];
                words.extend(keys.iter().map(String::as_str));
                let reply = client.ask(&words)?;
                assert!(reply.starts_with("-ERR"), "{reply}");
            }
        }
    };
    work().expect_err("the server is killed");
    (acknowledged, sent)
}

/// The number of a connection's last surviving script, by each of the connection's keys, which have
/// to agree.
fn survived(client: &mut Client, connection: usize, kind: Kind, seed: u64) -> u64 {
    let mut ask = |words: &[&str]| client.ask(words).unwrap();
    let [a, b, c, list, hash, ..] = &keys(connection);
    let number = |text: &str| match text.trim_end_matches('x') {
        "$-1" => 0,
        text => text.parse::<u64>().unwrap_or_else(|_| panic!("seed {seed}: {text} is written")),
    };
    let mut all = vec![
        number(&ask(&["GET", a])),
        number(&ask(&["GET", b])),
        number(&ask(&["GET", c])),
        number(&ask(&["HGET", hash, "number"])),
    ];
    let pushed = ask(&["LRANGE", list, "0", "-1"]);
    let pushed: Vec<u64> = pushed.split_whitespace().map(number).collect();
    all.push(pushed.len() as u64);
    assert!(pushed.iter().copied().eq(1..=pushed.len() as u64), "seed {seed}: {pushed:?}");
    if kind == Kind::Exec {
        all.push(number(&ask(&["GET", &format!("c{connection}:extra")])));
    }
    assert!(
        all.iter().all(|own| *own == all[0]),
        "seed {seed}: the keys of connection {connection}, {kind:?}, are of scripts {all:?}"
    );
    all[0]
}

/// One life. Returns the numbers of acknowledged and of surviving scripts.
fn round(seed: u64) -> (u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::with_seed(seed);
    let mut server = Process::start(dir.path());
    let address = server.address.clone();
    let library = format!(
        "#!lua name=kills\nredis.register_function('write', function(KEYS, ARGV) {SCRIPT} end)"
    );
    let mut client = Client::connect(&address).unwrap();
    assert_eq!(client.ask(&["FUNCTION", "LOAD", &library]).unwrap(), "kills");
    let journals: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let start = |(connection, kind): (usize, Kind)| {
            let (address, rng) = (&address, rng.fork());
            scope.spawn(move || run(address, connection, kind, rng))
        };
        let all: Vec<_> = KINDS.into_iter().enumerate().map(start).collect();
        std::thread::sleep(Duration::from_millis(30 + seed * 37 % 170));
        server.child.kill().unwrap();
        all.into_iter().map(|connection| connection.join().unwrap()).collect()
    });
    server.child.wait().unwrap();
    let server = Process::start(dir.path());
    let mut client = Client::connect(&server.address).unwrap();
    let (mut told, mut found, mut sum) = (0, 0, 0);
    for (connection, (acknowledged, sent)) in journals.into_iter().enumerate() {
        let kind = KINDS[connection];
        let own = survived(&mut client, connection, kind, seed);
        assert!(
            (acknowledged..=sent).contains(&own),
            "seed {seed}: connection {connection}, {kind:?}, has script {own}; {acknowledged} of \
             {sent} were acknowledged"
        );
        (told, found, sum) = (told + acknowledged, found + own, sum + own * (own + 1) / 2);
    }
    // Each script adds its number to one of the shared keys and subtracts the number from the
    // other.
    let mut shared = |key: &str| match client.ask(&["GET", key]).unwrap().as_str() {
        "$-1" => 0,
        text => text.parse::<i64>().unwrap(),
    };
    let (plus, minus) = (shared(SHARED[0]), shared(SHARED[1]));
    assert_eq!(
        (plus, minus),
        (sum as i64, -(sum as i64)),
        "seed {seed}: a script is there in part"
    );
    (told, found)
}

/// `HYADES_KILLS` sets how many times the server is killed, `HYADES_SEED` the first seed.
#[test]
fn a_kill_loses_no_acknowledged_script_and_leaves_none_in_part() {
    let set = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("it is a number"))
    };
    let (kills, first) = (set("HYADES_KILLS", 6), set("HYADES_SEED", 1));
    let (mut told, mut found) = (0, 0);
    for seed in first..first + kills {
        let (own_told, own_found) = round(seed);
        (told, found) = (told + own_told, found + own_found);
    }
    println!("{kills} kills, {told} scripts acknowledged, {found} survived");
    assert!(told > 0, "nothing was acknowledged");
}
