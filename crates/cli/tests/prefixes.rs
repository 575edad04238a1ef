//! After a kill, the commands of a connection are a prefix of its sent commands: clients send
//! numbered SETs of many lengths, several at once, to `hyades serve`, which is ended by SIGKILL.
//! After the restart no number is missing below a present number.
#![allow(missing_docs, reason = "tests are named by what they promise")]

#[path = "common/process.rs"]
mod process;
#[allow(dead_code, reason = "each test file uses its part")]
#[path = "histories/wire.rs"]
mod wire;

use fastrand::Rng;
use process::Process;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use wire::{Caller, Reply};

/// How a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The client sends more without waiting for replies.
    Pipelines,
    /// The same, and the replies leave at once.
    PipelinesEarly,
    /// The replies leave at once, and the client awaits each.
    AwaitsEarly,
}

const KINDS: [Kind; 5] =
    [Kind::Pipelines, Kind::Pipelines, Kind::PipelinesEarly, Kind::AwaitsEarly, Kind::AwaitsEarly];

/// Keys in an EXISTS.
const ASKED: usize = 200;

fn key(client: usize, number: usize) -> String {
    format!("c{client}:{number}")
}

/// The next SET of a client.
fn set(client: usize, number: usize, rng: &mut Rng, out: &mut Vec<u8>) {
    // A command longer than 512 KiB is run by an executor.
    let length = match rng.u32(0..40) {
        0 => 1_200_000,
        1..4 => 70_000,
        4..12 => 5_000,
        _ => 20,
    };
    let key = key(client, number);
    let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${length}\r\n", key.len());
    out.extend_from_slice(head.as_bytes());
    out.resize(out.len() + length, b'v');
    out.extend_from_slice(b"\r\n");
}

/// Sends until the server is gone. Returns how many SETs may have arrived.
fn client(address: &str, number: usize, kind: Kind, mut rng: Rng) -> usize {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut replies = stream.try_clone().unwrap();
    let awaits = kind == Kind::AwaitsEarly;
    let reader = (!awaits).then(|| {
        std::thread::spawn(move || {
            let mut buffer = [0; 1 << 12];
            while replies.read(&mut buffer).is_ok_and(|read| read > 0) {}
        })
    });
    let ok = b"+OK\r\n";
    let (mut out, mut sent) = (Vec::new(), 0);
    if kind != Kind::Pipelines {
        out.extend_from_slice(b"HYADES.DURABILITY none\r\n");
        if awaits {
            let told = stream.write_all(&out).and_then(|()| stream.read_exact(&mut [0; 5]));
            out.clear();
            if told.is_err() {
                return 0;
            }
        }
    }
    loop {
        for _ in 0..if awaits { 1 } else { rng.usize(1..12) } {
            set(number, sent, &mut rng, &mut out);
            sent += 1;
        }
        let mut reply = [0; 5];
        let goes_on = stream.write_all(&out).is_ok()
            && (!awaits || stream.read_exact(&mut reply).is_ok() && reply == *ok);
        out.clear();
        if !goes_on {
            break;
        }
    }
    reader.into_iter().for_each(|reader| reader.join().unwrap());
    sent
}

/// How many of the first keys of a client are there.
fn count(caller: &mut Caller, client: usize, first: usize) -> usize {
    let all: Vec<String> = (0..first).map(|number| key(client, number)).collect();
    let each = all.chunks(ASKED).map(|keys| {
        match caller.ask(&[format!("EXISTS {}", keys.join(" "))]).unwrap() {
            Reply::Integer(count) => count as usize,
            other => panic!("EXISTS replied {other:?}"),
        }
    });
    each.sum()
}

/// One life. Returns the numbers of sent and of surviving commands.
fn round(seed: u64) -> (usize, usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::with_seed(seed);
    let mut server = Process::start(dir.path());
    let address = server.address.clone();
    let sent: Vec<usize> = std::thread::scope(|scope| {
        let start = |(number, kind): (usize, Kind)| {
            let (address, rng) = (&address, rng.fork());
            scope.spawn(move || client(address, number, kind, rng))
        };
        let clients: Vec<_> = KINDS.into_iter().enumerate().map(start).collect();
        std::thread::sleep(Duration::from_millis(20 + seed * 37 % 130));
        server.child.kill().unwrap();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    server.child.wait().unwrap();
    let server = Process::start(dir.path());
    let mut caller = Caller::connect(&server.address).unwrap();
    let mut survived = 0;
    for (number, sent) in sent.iter().enumerate() {
        let found = count(&mut caller, number, *sent);
        let first = count(&mut caller, number, found);
        assert_eq!(
            first,
            found,
            "seed {seed}: {found} of {sent} commands of client {number}, {:?}, are there, and {} \
             of the first {found} are missing",
            KINDS[number],
            found - first
        );
        survived += found;
    }
    (sent.iter().sum(), survived)
}

/// `HYADES_KILLS` sets how many times the server is killed, `HYADES_SEED` the first seed.
#[test]
fn a_kill_leaves_a_prefix_of_each_connection() {
    let set = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("it is a number"))
    };
    let (kills, first) = (set("HYADES_KILLS", 12), set("HYADES_SEED", 1));
    let (mut sent, mut survived) = (0, 0);
    for seed in first..first + kills {
        let (own, found) = round(seed);
        (sent, survived) = (sent + own, survived + found);
    }
    println!("{kills} kills, {sent} commands sent, {survived} survived");
    assert!(survived > 0, "nothing survived");
}
