//! A load of transfers, for any server of Redis's protocol: each client sends a transaction, and
//! the next transaction after the answer. A transaction is MULTI, DECRBY, INCRBY and EXEC, or,
//! with `script`, an EVAL of five calls. redis-benchmark has no such load.
//! `scripts/beside-redis.py` runs the program.
//!
//! `redis_transfers PORT CLIENTS SECONDS ACCOUNTS [script]` prints transactions per second, and the
//! median and the 99th percentile of their times in milliseconds. The sum of the keys `account:0`
//! and so on stays unchanged.
//!
//! One thread serves all clients, as in redis-benchmark. A transaction takes the thread a write and
//! a read.

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// A transfer between two accounts with five calls.
const SCRIPT: &str = "local amount = tonumber(ARGV[1]) \
    local from = tonumber(redis.call('GET', KEYS[1]) or 0) \
    redis.call('GET', KEYS[2]) \
    redis.call('DECRBY', KEYS[1], amount) \
    redis.call('INCRBY', KEYS[2], amount) \
    redis.call('SET', KEYS[3], amount) \
    return from - amount";

/// How a transfer is sent.
#[derive(Clone, Copy)]
enum Form {
    Commands,
    Script,
}

impl Form {
    fn request(self, [from, to]: [u64; 2], amount: u64) -> String {
        match self {
            Form::Commands => format!(
                "MULTI\r\nDECRBY account:{from} {amount}\r\n\
                 INCRBY account:{to} {amount}\r\nEXEC\r\n"
            ),
            Form::Script => {
                let keys =
                    [format!("account:{from}"), format!("account:{to}"), format!("last:{from}")];
                let [from, to, last] = keys;
                let words = ["EVAL", SCRIPT, "3", &from, &to, &last, &amount.to_string()];
                let bulk = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
                format!("*{}\r\n{}", words.len(), words.iter().map(bulk).collect::<String>())
            }
        }
    }

    /// Lines of the replies. Of commands: OK, QUEUED twice, and an array of two numbers.
    fn lines(self) -> usize {
        match self {
            Form::Commands => 6,
            Form::Script => 1,
        }
    }
}

struct Client {
    socket: TcpStream,
    form: Form,
    /// The time at which the transaction was sent; `None` until the first transaction.
    sent: Option<Instant>,
    lines: usize,
    /// The next byte begins a line.
    at_line: bool,
}

impl Client {
    fn send(&mut self, accounts: u64, random: &mut fastrand::Rng) -> io::Result<()> {
        let [from, to] = [(); 2].map(|()| random.u64(0..accounts));
        let amount = random.u64(1..100);
        let command = self.form.request([from, to], amount);
        (self.sent, self.lines, self.at_line) = (Some(Instant::now()), 0, true);
        // The command fits into the buffer of the socket, which is empty.
        self.socket.write_all(command.as_bytes())
    }

    /// Reads the available bytes. Returns whether the transaction has been answered.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        loop {
            let read = match self.socket.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => &buffer[..read],
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            for byte in read {
                if self.at_line && *byte == b'-' {
                    return Err(io::Error::other(String::from_utf8_lossy(read).into_owned()));
                }
                self.at_line = *byte == b'\n';
                self.lines += usize::from(self.at_line);
            }
            if self.lines >= self.form.lines() {
                return Ok(true);
            }
        }
    }
}

fn run(
    port: u16,
    clients: usize,
    time: Duration,
    (accounts, form): (u64, Form),
) -> io::Result<Vec<Duration>> {
    let mut poll = Poll::new()?;
    let mut random = fastrand::Rng::new();
    let mut all = Vec::new();
    for number in 0..clients {
        let socket = std::net::TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket);
        poll.registry().register(&mut socket, Token(number), Interest::READABLE)?;
        all.push(Client { socket, form, sent: None, lines: 0, at_line: true });
    }
    let mut events = Events::with_capacity(clients.max(1));
    let (mut buffer, mut times) = (vec![0; 4 << 10], Vec::new());
    let end = Instant::now() + time;
    for client in &mut all {
        client.send(accounts, &mut random)?;
    }
    let mut left = clients;
    while left > 0 {
        poll.poll(&mut events, None)?;
        for event in &events {
            let client = &mut all[event.token().0];
            if !client.read(&mut buffer)? {
                continue;
            }
            let now = Instant::now();
            times.extend(client.sent.map(|sent| now - sent));
            match now < end {
                true => client.send(accounts, &mut random)?,
                false => left -= 1,
            }
        }
    }
    Ok(times)
}

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let script = words.pop_if(|word| word == "script");
    let form = if script.is_some() { Form::Script } else { Form::Commands };
    let numbers: Vec<f64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let &[port, clients, seconds, accounts] = &numbers[..] else {
        eprintln!("redis_transfers PORT CLIENTS SECONDS ACCOUNTS [script]");
        std::process::exit(2);
    };
    let began = Instant::now();
    let time = Duration::from_secs_f64(seconds);
    match run(port as u16, clients as usize, time, (accounts as u64, form)) {
        Ok(mut times) if !times.is_empty() => {
            let rate = times.len() as f64 / began.elapsed().as_secs_f64();
            times.sort_unstable();
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
            let [half, most] = [0.5, 0.99].map(|share| at(share).as_secs_f64() * 1e3);
            println!("{rate:.1},{half:.3},{most:.3}");
        }
        Ok(_) => println!("0,0,0"),
        Err(error) => {
            eprintln!("redis_transfers: {error}");
            std::process::exit(1);
        }
    }
}
