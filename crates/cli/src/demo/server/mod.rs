//! `hyades demo --server`: clients of a server move money with MULTI and note each reply; the
//! server is killed at a random moment and started again, and its data is compared with the notes.
//! The same is done to `redis-server`, if there is one, beside it.

pub mod client;
mod program;
mod transfers;

use super::DemoOptions;
use super::screen::Summary;
use client::Client;
use hdrhistogram::Histogram;
use hyades_cli::failure::Failure;
use hyades_cli::place::Place;
use hyades_cli::progress::Bar;
use hyades_cli::units::{self, exact, rate, time};
use program::Program;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use transfers::{AfterRestart, ClientJournal, TransferPlan};

/// The answers of a killed server, and its data after the restart.
struct ServerRound {
    answered: u64,
    /// From the first reply to the kill.
    seconds: f64,
    /// In microseconds.
    latency: Histogram<u64>,
    /// From the start of the process after the kill to its first answer about data.
    restart: f64,
    found: AfterRestart,
}

/// Runs `hyades demo --server`. True if all checks hold.
///
/// # Errors
/// A process could not be started, or ended by itself; a client was answered an error.
pub fn demo(options: &DemoOptions) -> Result<bool, Failure> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut random = fastrand::Rng::with_seed(seed);
    let plan = TransferPlan {
        seed,
        ..if options.small { TransferPlan::SMALL } else { TransferPlan::USUAL }
    };
    let kill_after = options.seconds * (0.6 + 0.4 * random.f64());
    let programs = [Program::Hyades { streams: options.streams }, Program::Redis];
    let mut rounds = Vec::new();
    for program in programs.into_iter().filter(|program| program.is_there()) {
        eprintln!("{}", program.what());
        rounds.push((program, round(program, &plan, kill_after)?));
    }
    print!("{}", screen(&rounds, &plan));
    let hyades = &rounds.first().expect("this program is there").1;
    Ok(hyades.answered > 0 && hyades.found.holds())
}

fn round(program: Program, plan: &TransferPlan, kill_after: f64) -> Result<ServerRound, Failure> {
    let place = Place::temporary(&std::env::temp_dir())?;
    let dir = &place.dirs[0];
    let mut server = program.start(dir)?;
    transfers::fill(&mut Client::connect(server.address)?, plan)?;
    let answered = AtomicU64::new(0);
    let address = server.address;
    let (journals, seconds) = std::thread::scope(|scope| {
        let run = |number| run_client(address, plan, number, &answered);
        let spawn = |number| scope.spawn(move || run(number));
        let clients: Vec<_> = (0..plan.clients).map(spawn).collect();
        let waited = wait(&answered, kill_after, &mut || server.has_ended());
        // Also after an error: then the clients end.
        server.kill()?;
        let join = |client: std::thread::ScopedJoinHandle<'_, Result<ClientJournal, Failure>>| {
            client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let journals = clients.into_iter().map(join).collect::<Result<Vec<_>, _>>()?;
        Ok::<_, Failure>((journals, waited?))
    })?;
    drop(server);
    let server = program.start(dir)?;
    let answered: u64 = journals.iter().map(|journal| journal.answered).sum();
    eprintln!(
        "  {} transactions were answered; it answers again after {}; comparing",
        exact(answered),
        time(server.ready_after)
    );
    let found = transfers::compare(&mut Client::connect(server.address)?, plan, &journals)?;
    let mut latency = transfers::latencies();
    for journal in &journals {
        latency.add(&journal.latency).expect("they have the same bounds");
    }
    Ok(ServerRound { answered, seconds, latency, restart: server.ready_after, found })
}

fn run_client(
    address: SocketAddr,
    plan: &TransferPlan,
    number: usize,
    answered: &AtomicU64,
) -> Result<ClientJournal, Failure> {
    transfers::run_until_gone(Client::connect(address)?, plan, number, &|| {
        answered.fetch_add(1, Relaxed);
    })
}

/// Waits until the clients have run for a time, from the first reply; returns for how long.
fn wait(
    answered: &AtomicU64,
    kill_after: f64,
    has_ended: &mut dyn FnMut() -> bool,
) -> Result<f64, Failure> {
    let bar = Bar::new("running", (kill_after * 1000.0) as u64);
    let mut began = None;
    loop {
        if has_ended() {
            return Err(Failure::Failed("the server ended by itself".to_string()));
        }
        std::thread::sleep(Duration::from_millis(20));
        let count = answered.load(Relaxed);
        if count == 0 {
            continue;
        }
        let elapsed = began.get_or_insert_with(Instant::now).elapsed().as_secs_f64();
        bar.set((elapsed * 1000.0) as u64);
        bar.say(format!("{} transactions answered", exact(count)));
        if elapsed >= kill_after {
            let after = units::time(elapsed);
            // More are answered until the process is gone.
            bar.finish(&format!("killed after {after}"));
            return Ok(elapsed);
        }
    }
}

fn screen(rounds: &[(Program, ServerRound)], plan: &TransferPlan) -> String {
    let mut summary = Summary::new(&format!(
        "{} clients of a server move money with MULTI, {} transactions in flight each; it was \
         killed\nat a random moment (seed {})",
        plan.clients, plan.in_flight, plan.seed
    ));
    let mut line = |label: &str, value: &dyn Fn(&ServerRound) -> String| {
        summary.line(label, rounds.iter().map(|(_, round)| value(round)));
    };
    let name = |round: &ServerRound| {
        let found = rounds.iter().find(|(_, candidate)| std::ptr::eq(candidate, round));
        found.map_or(String::new(), |(program, _)| program.name().to_uppercase())
    };
    line("", &name);
    line("answered", &|r| exact(r.answered));
    line("throughput", &|r| rate(r.answered as f64 / r.seconds.max(1e-9)));
    line("latency, p50 and p99", &|r| {
        let us = |q| time(r.latency.value_at_quantile(q) as f64 * 1e-6);
        format!("{}, {}", us(0.5), us(0.99))
    });
    line("restart to the first reply", &|r| time(r.restart));
    line("accounts with a wrong balance", &|r| exact(r.found.wrong_accounts));
    line("answered but missing", &|r| exact(r.found.missing));
    if rounds.len() == 1 {
        summary.note("there is no redis-server here to compare with");
    }
    let holds = rounds[0].1.found.holds();
    summary.verdict(if holds {
        "Every transaction that was answered is there completely."
    } else {
        "NOT every transaction that was answered is there completely."
    })
}
