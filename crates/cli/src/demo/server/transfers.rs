//! Transfers between accounts, as transactions of the server, and the check after a restart.

use super::client::{Client, Reply};
use hdrhistogram::Histogram;
use hyades_cli::failure::Failure;
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub struct TransferPlan {
    /// Seed of the transfers.
    pub seed: u64,
    /// Accounts.
    pub accounts: u64,
    /// Connections.
    pub clients: usize,
    /// Transactions of a connection sent and not yet answered.
    pub in_flight: usize,
}

impl TransferPlan {
    /// The default.
    pub const USUAL: TransferPlan =
        TransferPlan { seed: 0, accounts: 10_000, clients: 16, in_flight: 16 };
    /// For tests.
    pub const SMALL: TransferPlan =
        TransferPlan { seed: 0, accounts: 100, clients: 3, in_flight: 4 };
}

/// The first balance of each account.
const BALANCE: i64 = 1_000;

/// Keys written or read by a command.
const AT_ONCE: u64 = 500;

/// A client's knowledge at the end of the server.
pub struct ClientJournal {
    /// Transactions sent: numbers from 0 up to this number.
    pub sent: u64,
    /// Answered transactions, from the first on.
    pub answered: u64,
    /// Latencies of answered transactions, in microseconds.
    pub latency: Histogram<u64>,
}

/// An empty histogram of latencies in microseconds.
pub fn latencies() -> Histogram<u64> {
    let mut latency = Histogram::new(3).expect("three significant digits are supported");
    latency.auto(true);
    latency
}

/// The data of a server after its restart.
#[derive(Clone, Copy, Debug, Default)]
pub struct AfterRestart {
    /// Answered transactions missing in the server.
    pub missing: u64,
    /// Accounts with a balance different from the sum of the transfers present: a transaction is
    /// present in part.
    pub wrong_accounts: u64,
}

impl AfterRestart {
    /// Whether nothing is missing.
    pub fn holds(&self) -> bool {
        self.missing == 0 && self.wrong_accounts == 0
    }
}

/// Fills the accounts.
///
/// # Errors
/// The server is gone, or replies an error.
pub fn fill(client: &mut Client, plan: &TransferPlan) -> Result<(), Failure> {
    let balance = BALANCE.to_string();
    for names in names(plan.accounts, |at| format!("account:{at}")) {
        let pairs = names.iter().flat_map(|name| [&name[..], &balance]);
        client.ask(&std::iter::once("MSET").chain(pairs).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Names of keys, in groups of the keys of a command.
fn names(count: u64, name: impl Fn(u64) -> String) -> impl Iterator<Item = Vec<String>> {
    let end = move |from: u64| (from + AT_ONCE).min(count);
    (0..count).step_by(AT_ONCE as usize).map(move |from| (from..end(from)).map(&name).collect())
}

/// Transfers money until the server is gone.
///
/// # Errors
/// The server replies an error.
pub fn run_until_gone(
    mut client: Client,
    plan: &TransferPlan,
    number: usize,
    note: &dyn Fn(),
) -> Result<ClientJournal, Failure> {
    let mut random = fastrand::Rng::with_seed(plan.seed.wrapping_add(number as u64));
    let mut journal = ClientJournal { sent: 0, answered: 0, latency: latencies() };
    let mut started = VecDeque::new();
    loop {
        while started.len() < plan.in_flight {
            add_transfer(
                &mut client,
                plan,
                &mut random,
                &format!("transfer:{number}:{}", journal.sent),
            );
            journal.sent += 1;
            started.push_back(Instant::now());
        }
        let reply = client.flush().and_then(|()| exec_reply(&mut client));
        match reply {
            Ok(Reply::Array(_)) => {}
            Ok(reply) => return Err(Failure::Failed(format!("EXEC was answered {reply:?}"))),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(Failure::Failed("the server's reply is none".to_string()));
            }
            Err(_) => return Ok(journal),
        }
        let began = started.pop_front().expect("it was sent");
        let latency = (began.elapsed().as_micros() as u64).max(1);
        journal.latency.record(latency).expect("the histogram resizes itself");
        journal.answered += 1;
        note();
    }
}

/// The reply of EXEC, behind the replies of MULTI and of the three queued commands.
fn exec_reply(client: &mut Client) -> io::Result<Reply> {
    for _ in 0..4 {
        client.reply()?;
    }
    client.reply()
}

fn add_transfer(client: &mut Client, plan: &TransferPlan, random: &mut fastrand::Rng, name: &str) {
    let (from, to) = (random.u64(..plan.accounts), random.u64(..plan.accounts));
    let amount = random.i64(1..100).to_string();
    client.add(&["MULTI"]);
    client.add(&["DECRBY", &format!("account:{from}"), &amount]);
    client.add(&["INCRBY", &format!("account:{to}"), &amount]);
    client.add(&["SET", name, &format!("{from} {to} {amount}")]);
    client.add(&["EXEC"]);
}

/// Compares the server's data with the answers.
///
/// # Errors
/// The server is gone, or has other data.
pub fn compare(
    client: &mut Client,
    plan: &TransferPlan,
    journals: &[ClientJournal],
) -> Result<AfterRestart, Failure> {
    let mut found = AfterRestart::default();
    let mut balances = vec![BALANCE; plan.accounts as usize];
    for (number, journal) in journals.iter().enumerate() {
        let name = |at: u64| format!("transfer:{number}:{at}");
        for (at, value) in (0..).zip(get(client, journal.sent, name)?) {
            let Some(text) = value else {
                found.missing += u64::from(at < journal.answered);
                continue;
            };
            let wrong = || Failure::Failed(format!("{} is {text:?}", name(at)));
            let numbers = text.split(' ').map(str::parse).collect::<Result<Vec<i64>, _>>();
            let [from, to, amount] = numbers.map_err(|_| wrong())?[..] else { return Err(wrong()) };
            for (account, change) in [(from, -amount), (to, amount)] {
                *balances.get_mut(account as usize).ok_or_else(wrong)? += change;
            }
        }
    }
    let there = get(client, plan.accounts, |at| format!("account:{at}"))?;
    let is_wrong = |(expected, there): &(i64, Option<String>)| {
        there.as_deref().and_then(|text| text.parse().ok()) != Some(*expected)
    };
    found.wrong_accounts = balances.into_iter().zip(there).filter(is_wrong).count() as u64;
    Ok(found)
}

/// The values of many keys.
fn get(
    client: &mut Client,
    count: u64,
    name: impl Fn(u64) -> String,
) -> Result<Vec<Option<String>>, Failure> {
    let mut values = Vec::new();
    for names in names(count, name) {
        let words = std::iter::once("MGET").chain(names.iter().map(String::as_str));
        let reply = client.ask(&words.collect::<Vec<_>>())?;
        let Reply::Array(some) = reply else {
            return Err(Failure::Failed(format!("MGET was answered {reply:?}")));
        };
        values.extend(some.into_iter().map(|value| match value {
            Reply::Text(text) => Some(text),
            _ => None,
        }));
    }
    Ok(values)
}
