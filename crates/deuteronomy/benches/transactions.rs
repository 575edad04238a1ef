//! Processor time of a transaction, of all threads: `cargo bench -p hyades-deuteronomy --bench
//! transactions -- [workers] [share of writes] [transactions of each worker]`.
//!
//! The paper's transactions: 4 accesses, 80/20, keys of 16 bytes and values of 100, over the data
//! component in memory and a log without durable storage; all versions are in memory. Prints a
//! single line. Processor time tells the cost of a transaction beside other running programs, too:
//! to compare two versions, run them in turn and take medians.
#![allow(missing_docs)]

use hyades_deuteronomy::{
    CommitQueue, Database, Error, LogOptions, MemoryData, Options, Session, Transaction,
};
use hyades_platform::clock::{monotonic_ns, process_cpu_ns};
use hyades_platform::device::MemoryDevice;
use std::sync::{Arc, Barrier};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: u64 = 200_000;
const ACCESSES: usize = 4;
/// Skew of the Zipf distribution: about 80/20.
const THETA: f64 = 0.9;
const VALUE_BYTES: usize = 100;
const IN_FLIGHT: usize = 8192;
/// A worker goes through as many drawn accesses again and again.
const DRAWN: usize = 1 << 20;
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A row, and whether the row is written.
type Access = (u64, bool);

fn key(row: u64) -> [u8; 16] {
    let (mut key, mut rest) = (*b"key0000000000000", row);
    for digit in key[3..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn load(database: &Database) -> Result<(), Error> {
    let mut session = database.session()?;
    let mut rows: Vec<u64> = (0..ROWS).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut rows);
    rows.chunks(256).try_for_each(|some| {
        session.execute(|tx| some.iter().try_for_each(|row| tx.put(&key(*row), &[7; VALUE_BYTES])))
    })
}

/// Draws accesses, by the inverse of the cumulative distribution.
fn draw(seed: u64, write_share: f64) -> Vec<Access> {
    let mut sum = 0.0;
    let mut up_to = |rank: u64| {
        sum += (rank as f64).powf(-THETA);
        sum
    };
    let cumulative: Vec<f64> = (1..=ROWS).map(&mut up_to).collect();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut one = |_| {
        let drawn = rng.f64() * sum;
        let rank = cumulative.partition_point(|up_to| *up_to < drawn) as u64;
        (rank.wrapping_mul(SPREAD) % ROWS, rng.f64() < write_share)
    };
    (0..DRAWN).map(&mut one).collect()
}

fn run(tx: &mut Transaction<'_>, accesses: &[Access], number: u64) -> Result<(), Error> {
    let mut keys = [[0; 16]; ACCESSES];
    keys.iter_mut().zip(accesses).for_each(|(into, (row, _))| *into = key(*row));
    tx.prefetch(&keys);
    let mut value = [7; VALUE_BYTES];
    value[..8].copy_from_slice(&number.to_le_bytes());
    for (key, (_, writes)) in keys.iter().zip(accesses) {
        match writes {
            true => tx.put(key, &value)?,
            false => assert!(tx.get(key)?.is_some(), "all rows are loaded"),
        }
    }
    Ok(())
}

/// The state of a worker.
struct Worker {
    session: Session,
    waiting: CommitQueue<()>,
    accesses: Vec<Access>,
    next: usize,
}

impl Worker {
    /// Runs transactions, until all are acknowledged.
    fn work(&mut self, transactions: u64) -> Result<(), Error> {
        for number in 0..transactions {
            let accesses = &self.accesses[self.next..][..ACCESSES];
            self.next = (self.next + ACCESSES) % (DRAWN - ACCESSES);
            let (_, ticket) = self.session.submit(|tx| run(tx, accesses, number))?;
            self.waiting.push(ticket, ());
            if number % 16 == 0 {
                self.waiting.drain(drop)?;
            }
            self.wait_for_all_but(IN_FLIGHT - 1)?;
        }
        self.wait_for_all_but(0)
    }

    fn wait_for_all_but(&mut self, some: usize) -> Result<(), Error> {
        while self.waiting.len() > some {
            self.waiting.wait_for_one()?;
            self.waiting.drain(drop)?;
        }
        Ok(())
    }
}

fn main() -> Result<(), Error> {
    // Cargo adds its own words.
    let numbers: Vec<f64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let number = |nth: usize, otherwise: f64| numbers.get(nth).copied().unwrap_or(otherwise);
    let (workers, write_share) = (number(0, 2.0) as usize, number(1, 0.16));
    let transactions = number(2, 500_000.0) as u64;
    let dir = tempfile::tempdir().expect("a directory");
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 4);
    log.device = MemoryDevice::shared();
    let mut options = Options::new(log);
    options.memory_bytes = 256 << 20;
    let database = Database::open(options, Arc::new(MemoryData::new()))?;
    load(&database)?;
    let barrier = Barrier::new(workers + 1);
    std::thread::scope(|scope| -> Result<(), Error> {
        for number in 0..workers {
            let (session, waiting) = (database.session()?, database.commit_queue());
            let accesses = draw(number as u64, write_share);
            let mut worker = Worker { session, waiting, accesses, next: 0 };
            let barrier = &barrier;
            scope.spawn(move || {
                for some in [transactions / 4, transactions] {
                    barrier.wait();
                    worker.work(some).expect("the log runs");
                    barrier.wait();
                }
            });
        }
        barrier.wait();
        barrier.wait();
        let (cpu_ns, at_ns) = (process_cpu_ns(), monotonic_ns());
        barrier.wait();
        barrier.wait();
        let (cpu_ns, took_ns) = (process_cpu_ns() - cpu_ns, monotonic_ns() - at_ns);
        let all = (transactions * workers as u64) as f64;
        println!(
            "{workers} workers, {write_share} writes: {:.1} ns of processors a transaction, \
             {:.0} transactions/s",
            cpu_ns as f64 / all,
            all * 1e9 / took_ns as f64
        );
        Ok(())
    })?;
    database.close()
}
