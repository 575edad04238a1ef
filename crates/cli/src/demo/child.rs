//! The child process: runs both workloads until killed, and reports the acknowledgements.

use super::journal::{Entry, What};
use super::work::Work;
use super::{Medium, RoundSettings};
use fastrand::Rng;
use hyades::{CommitQueue, Database, RecordKind, Session};
use hyades_cli::failure::Failure;
use hyades_cli::machine::cores;
use hyades_platform::clock::monotonic_ns;
use hyades_platform::device::{Device, PowerCutDevice, PowerCutOptions};
use hyades_platform::sync::Unpoisoned;
use hyades_workloads::tpcc::NewOrderResult;
use hyades_workloads::{Workload, bank, populate, tpcc};
use std::io::Write;
use std::sync::{Arc, Mutex};

/// Transactions per worker that await acknowledgement.
const IN_FLIGHT: usize = 1024;
/// Transactions of a worker between two checks for acknowledgements.
const DRAIN_EVERY: usize = 64;
/// Probability that an unsynced sector reaches the medium before its sync.
const EARLY_SECTORS: f64 = 0.2;

/// Runs until the process is killed.
///
/// # Errors
/// Errors of the database; or the parent has exited.
pub fn run(settings: &RoundSettings) -> Result<(), Failure> {
    load(settings)?;
    let device: Arc<dyn Device> = match settings.medium {
        Medium::Files => Work::files(),
        Medium::PowerCut { lying } => Arc::new(PowerCutDevice::new(PowerCutOptions {
            seed: settings.seed,
            // With torn sectors, recovery detects a lying sync and refuses to open. Without torn
            // sectors the lie loses transactions, which the check has to find.
            early_sectors: if lying { 0.0 } else { EARLY_SECTORS },
            lying_sync: lying,
        })),
    };
    let mut work = Work::new(settings.size);
    let mut builder = Work::builder(settings, RecordKind::Adaptive, device);
    work.declare(&mut builder);
    let database = builder.open(&settings.dir)?;
    // The lock keeps the entries of different workers apart.
    let pipe = Mutex::new(std::io::stdout());
    std::thread::scope(|scope| {
        let (work, database, pipe) = (&work, &database, &pipe);
        let spawn = |number| scope.spawn(move || worker(settings, work, database, number, pipe));
        let threads: Vec<_> = (0..cores().max(2)).map(spawn).collect();
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    })
}

/// Populates the database on synced files and closes it, so that the crash affects only the run.
fn load(settings: &RoundSettings) -> Result<(), Failure> {
    let mut work = Work::new(settings.size);
    let mut builder = Work::builder(settings, RecordKind::Command, Work::files());
    work.declare(&mut builder);
    let database = builder.open(&settings.dir)?;
    populate(&work.bank, &database, cores(), |_| ())?;
    populate(&work.tpcc, &database, cores(), |_| ())?;
    Ok(database.close()?)
}

/// A transaction that awaits its acknowledgement.
struct StartedStep {
    at_ns: u64,
    what: What,
}

fn worker(
    settings: &RoundSettings,
    work: &Work,
    database: &Database,
    number: usize,
    pipe: &Mutex<std::io::Stdout>,
) -> Result<(), Failure> {
    let mut session = database.session()?;
    let mut queue: CommitQueue<StartedStep> = database.commit_queue();
    let mut rng = Rng::with_seed(settings.seed.wrapping_add(number as u64));
    let mut order = tpcc::TpccInput::default();
    let mut transfer = bank::BankInput::default();
    let mut said = Vec::new();
    loop {
        for _ in 0..DRAIN_EVERY {
            let at_ns = monotonic_ns();
            // Every worker runs both workloads, about half of its transactions each.
            let (outcome, ticket, what) = if rng.bool() {
                work.bank.draw(&mut rng, number, &mut transfer);
                let (outcome, ticket) = work.bank.run(&mut session, &transfer)?;
                (outcome, ticket, transfer_of(&transfer))
            } else {
                work.tpcc.draw(&mut rng, number, &mut order);
                let (outcome, ticket) = work.tpcc.run(&mut session, &order)?;
                let what = if outcome.is_ok() { order_of(&order, &session)? } else { What::Other };
                (outcome, ticket, what)
            };
            let what = match outcome {
                Ok(()) => what,
                Err(abort) if work.bank.expects(abort) || work.tpcc.expects(abort) => What::Other,
                Err(abort) => {
                    return Err(Failure::Failed(format!(
                        "a transaction aborted unexpectedly: {abort}"
                    )));
                }
            };
            queue.push(ticket, StartedStep { at_ns, what });
        }
        while queue.len() >= IN_FLIGHT {
            queue.wait_for_one()?;
            say(&mut queue, &mut said, pipe)?;
        }
        say(&mut queue, &mut said, pipe)?;
    }
}

fn transfer_of(input: &bank::BankInput) -> What {
    match input {
        bank::BankInput::Transfer(bank::Transfer { id: Some(id), .. }) => What::Transfer(*id),
        _ => What::Other,
    }
}

fn order_of(input: &tpcc::TpccInput, session: &Session) -> Result<What, Failure> {
    Ok(match input {
        tpcc::TpccInput::NewOrder(call) => {
            let result: NewOrderResult = session.result()?;
            What::Order { w: call.w as u16, d: call.d as u8, o: result.order as u32 }
        }
        tpcc::TpccInput::Payment(_) => What::Payment,
        _ => What::Other,
    })
}

/// Reports to the parent the acknowledgements so far, and nothing else.
fn say(
    queue: &mut CommitQueue<StartedStep>,
    said: &mut Vec<u8>,
    pipe: &Mutex<std::io::Stdout>,
) -> Result<(), Failure> {
    let now = monotonic_ns();
    said.clear();
    queue.drain(|started| {
        let latency_us = ((now - started.at_ns) / 1000).min(u64::from(u32::MAX)) as u32;
        said.extend(Entry { what: started.what, latency_us }.encode());
    })?;
    let mut pipe = pipe.lock().unpoisoned();
    let written = pipe.write_all(said).and_then(|()| pipe.flush());
    written.map_err(Failure::doing("the parent process has exited"))
}
