//! Clients that find the primary, move money for as long as they are let, and note what was
//! acknowledged.

use super::members::Addresses;
use crate::demo::server::client::{Client, Reply};
use fastrand::Rng;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Accounts; all begin with nothing, so the sum of all money is zero.
pub const ACCOUNTS: usize = 50;

/// How long a client rests before it looks for the primary again.
const AGAIN: Duration = Duration::from_millis(20);

/// The acknowledgements of a client: the transfer's number, and when it was acknowledged.
pub type Acknowledged = Vec<(u64, Instant)>;

/// Clients, each on a thread of its own.
pub struct Clients {
    ends: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Acknowledged>>,
}

impl Clients {
    /// Starts clients.
    pub fn start(number: usize, addresses: Addresses, seed: u64) -> Clients {
        let (ends, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let spawn = |number: usize| {
            let (ends, count) = (ends.clone(), count.clone());
            let random = Rng::with_seed(seed.wrapping_add(number as u64));
            std::thread::spawn(move || run(addresses, number, random, (&ends, &count)))
        };
        let threads = (0..number).map(spawn).collect();
        Clients { ends, count, threads }
    }

    /// How many transfers were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Ends the clients, and returns what each noted.
    pub fn end(self) -> Vec<Acknowledged> {
        self.ends.store(true, Relaxed);
        let join = |thread: JoinHandle<Acknowledged>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        self.threads.into_iter().map(join).collect()
    }
}

fn run(
    addresses: Addresses,
    number: usize,
    mut random: Rng,
    (ends, count): (&AtomicBool, &AtomicU64),
) -> Acknowledged {
    let (mut noted, mut sequence, mut client) = (Vec::new(), 0, None);
    while !ends.load(Relaxed) {
        let connect = || Client::try_connect(addresses.0[addresses.primary()?]).ok();
        let Some(mut connected) = client.take().or_else(connect) else {
            std::thread::sleep(AGAIN);
            continue;
        };
        sequence += 1;
        match transfer(&mut connected, &mut random, (number, sequence)) {
            Ok(true) => {
                noted.push((sequence, Instant::now()));
                count.fetch_add(1, Relaxed);
                client = Some(connected);
            }
            // Refused, or the outcome is not known: the primary may be another one.
            Ok(false) | Err(_) => std::thread::sleep(AGAIN),
        }
    }
    noted
}

/// Moves money, and notes the transfer's number in the database. Whether it was acknowledged.
fn transfer(
    client: &mut Client,
    random: &mut Rng,
    (number, sequence): (usize, u64),
) -> io::Result<bool> {
    let from = random.usize(..ACCOUNTS);
    let to = (from + random.usize(1..ACCOUNTS)) % ACCOUNTS;
    let amount = random.u32(1..10).to_string();
    client.add(&["MULTI"]);
    client.add(&["DECRBY", &format!("account:{from}"), &amount]);
    client.add(&["INCRBY", &format!("account:{to}"), &amount]);
    client.add(&["RPUSH", &journal(number), &sequence.to_string()]);
    client.add(&["EXEC"]);
    client.flush()?;
    let replies = (0..5).map(|_| client.reply()).collect::<io::Result<Vec<_>>>()?;
    let is_error = |reply: &Reply| matches!(reply, Reply::Error(_));
    Ok(matches!(&replies[4], Reply::Array(results) if !results.iter().any(is_error)))
}

fn journal(number: usize) -> String {
    format!("journal:{number}")
}

/// What a member has.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundAtMember {
    balances: Vec<i64>,
    journals: Vec<Vec<u64>>,
}

impl FoundAtMember {
    /// Reads what a member has of the accounts and the journals of as many clients.
    ///
    /// # Errors
    /// The member does not answer, or refuses.
    pub fn read(addresses: Addresses, at: usize, clients: usize) -> io::Result<FoundAtMember> {
        let mut client = Client::try_connect(addresses.0[at])?;
        (0..ACCOUNTS).for_each(|account| client.add(&["GET", &format!("account:{account}")]));
        (0..clients).for_each(|number| client.add(&["LRANGE", &journal(number), "0", "-1"]));
        client.flush()?;
        let number = |reply: Reply| -> io::Result<i64> {
            match reply {
                Reply::Text(text) => text.parse().map_err(|_| io::ErrorKind::InvalidData.into()),
                Reply::Nil => Ok(0),
                _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
            }
        };
        let balances = (0..ACCOUNTS).map(|_| number(client.reply()?)).collect::<io::Result<_>>()?;
        let journal = |reply: Reply| match reply {
            Reply::Array(all) => {
                all.into_iter().map(|reply| Ok(number(reply)?.unsigned_abs())).collect()
            }
            _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
        };
        let journals = (0..clients).map(|_| journal(client.reply()?)).collect::<io::Result<_>>()?;
        Ok(FoundAtMember { balances, journals })
    }

    /// The sum of all money.
    pub fn money(&self) -> i64 {
        self.balances.iter().sum()
    }

    /// Acknowledged transfers that are not there.
    pub fn missing(&self, noted: &[Acknowledged]) -> u64 {
        let missing = |(journal, noted): (&Vec<u64>, &Acknowledged)| {
            let there: HashSet<u64> = journal.iter().copied().collect();
            noted.iter().filter(|(sequence, _)| !there.contains(sequence)).count() as u64
        };
        self.journals.iter().zip(noted).map(missing).sum()
    }

    /// Transfers that are there twice.
    pub fn repeated(&self) -> u64 {
        let repeated = |journal: &Vec<u64>| {
            journal.len() as u64 - journal.iter().collect::<HashSet<_>>().len() as u64
        };
        self.journals.iter().map(repeated).sum()
    }
}
