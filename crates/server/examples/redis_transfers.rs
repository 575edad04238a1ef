//! A load of transfers, for any server of Redis's protocol: each client sends a transaction of
//! MULTI, DECRBY, INCRBY and EXEC, and the next transaction after the answer. redis-benchmark has
//! no such load. `scripts/beside-redis.py` runs the program.
//!
//! `redis_transfers PORT CLIENTS SECONDS ACCOUNTS` prints transactions per second, and the median
//! and the 99th percentile of their times in milliseconds. The sum of the keys `account:0` and so
//! on stays unchanged.
//!
//! One thread serves all clients, as in redis-benchmark. A transaction takes the thread a write and
//! a read.

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// Lines of the replies to a transaction: OK, QUEUED twice, and an array of two numbers.
const LINES: usize = 6;

struct Client {
    socket: TcpStream,
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
        let command = format!(
            "MULTI\r\nDECRBY account:{from} {amount}\r\nINCRBY account:{to} {amount}\r\nEXEC\r\n"
        );
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
            if self.lines >= LINES {
                return Ok(true);
            }
        }
    }
}

fn run(port: u16, clients: usize, time: Duration, accounts: u64) -> io::Result<Vec<Duration>> {
    let mut poll = Poll::new()?;
    let mut random = fastrand::Rng::new();
    let mut all = Vec::new();
    for number in 0..clients {
        let socket = std::net::TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket);
        poll.registry().register(&mut socket, Token(number), Interest::READABLE)?;
        all.push(Client { socket, sent: None, lines: 0, at_line: true });
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
    let numbers: Vec<f64> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let &[port, clients, seconds, accounts] = &numbers[..] else {
        eprintln!("redis_transfers PORT CLIENTS SECONDS ACCOUNTS");
        std::process::exit(2);
    };
    let began = Instant::now();
    let time = Duration::from_secs_f64(seconds);
    match run(port as u16, clients as usize, time, accounts as u64) {
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
