//! Torture of the server: random clients on a simulated disk that fails.
//!
//! The clients talk to the conversations that serve port 6379 as well, without sockets and threads
//! ([`hyades_server::torture`]): all is run by one thread, in an order and in a time that follow
//! from the seed. Each reply is compared with a model when its command has run. After a crash the
//! database is opened again, and its contents must be a state that a crash may leave: see `judge`.

mod client;
mod commands;
mod judge;
mod life;
mod lua;
mod model;
mod recovered;
mod reply;
mod script;
mod streams;

use crate::case::Outcome;
use crate::ending::Ending;
use crate::guard;
use crate::report::Report;
use crate::stepped;
use crate::torture::{Options, Torture};
use fastrand::Rng;
use hyades::Database;
use hyades_platform::device::{SimulatedDevice, SimulatedDisk, SimulatedFault};
use hyades_platform::resident::MemoryWatch;
use hyades_server::torture::SteppedServer;
use judge::Wrong;
use life::{ClientLife, Goes, now_ms};
use model::{Model, RecoveredState};
use script::{DATABASES, Script, Subjects};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

struct ServerCase {
    rng: Rng,
    disk: SimulatedDisk,
    streams: usize,
    loops: usize,
    packed: String,
    subjects: Subjects,
    lying_sync: bool,
    outcome: Outcome,
    model: Model,
    /// Values made so far.
    values: u64,
    lost: HashSet<String>,
}

/// Runs histories of clients until the time is over or a history fails. A failing history is kept.
///
/// # Errors
/// A failing history could not be kept.
pub fn torture_clients(options: &Options, mut say: impl FnMut(&str)) -> io::Result<Torture> {
    let began = Instant::now();
    let mut report = Report { seed: options.seed, ..Report::default() };
    let mut faults: BTreeMap<String, u64> = BTreeMap::new();
    let (mut kept, mut said, mut memory) = (None, 0, MemoryWatch::default());
    for n in 0.. {
        let seconds = began.elapsed().as_secs_f64();
        if seconds >= options.seconds && n > 0 {
            break;
        }
        if seconds as u64 / 5 > said {
            said = seconds as u64 / 5;
            say(&format!(
                "{seconds:.0} s: {} histories, {} crashes, {} told, nothing wrong",
                report.histories, report.crashes, report.acknowledged
            ));
        }
        let (seed, lying) = (options.seed.wrapping_add(n), options.lying_sync);
        let mut outcome = guard::run_guarded(options.hangs_after, move || run(seed, lying));
        outcome.grown = memory.after_history();
        report.add(&outcome);
        for (fault, times) in &outcome.faults {
            *faults.entry((*fault).to_string()).or_default() += times;
        }
        if !outcome.is_sound() {
            say(&format!("seed {seed} fails: {}", outcome.sentences().join("; ")));
            let place = options.keep.join(format!("hyades-torture-clients-{seed}"));
            keep(&place, seed, &outcome)?;
            say(&format!("the failing history is kept in {}", place.display()));
            kept = Some(place);
            break;
        }
    }
    report.seconds = began.elapsed().as_secs_f64();
    Ok(Torture { report, faults, kept })
}

fn keep(place: &Path, seed: u64, outcome: &Outcome) -> io::Result<()> {
    std::fs::create_dir_all(place)?;
    let again = format!("hyades-lab torture --clients resp --seconds 0.001 --seed {seed}\n\n");
    std::fs::write(place.join("wrong.txt"), again + &outcome.sentences().join("\n"))?;
    std::fs::write(place.join("history.txt"), &outcome.story)?;
    match &outcome.image {
        Some(image) => image.save(&place.join("disk")),
        None => Ok(()),
    }
}

/// Runs the history of a seed.
pub fn run(seed: u64, lying_sync: bool) -> Outcome {
    stepped::begin(seed);
    let mut rng = Rng::with_seed(seed ^ 0x5E2E);
    let mut case = ServerCase {
        streams: rng.usize(1..4),
        loops: rng.usize(1..4),
        packed: [1, 3, 8, 128][rng.usize(0..4)].to_string(),
        disk: SimulatedDisk::new(),
        subjects: Subjects {
            points: Rng::with_seed(seed ^ 0xDA7B).bool(),
            streams: Rng::with_seed(seed ^ 0x57E4).bool(),
        },
        lying_sync,
        outcome: Outcome::default(),
        model: Model::new(&vec![BTreeMap::new(); DATABASES as usize]),
        values: 0,
        lost: HashSet::new(),
        rng,
    };
    for _ in 0..case.rng.usize(2..6) {
        let Some((server, device)) = case.open() else { break };
        case.live(server, &device);
        if !case.outcome.is_sound() {
            break;
        }
    }
    if case.outcome.is_sound() {
        drop(case.open());
    }
    stepped::end();
    case.outcome
}

impl ServerCase {
    fn note(&mut self, fault: &'static str) {
        *self.outcome.faults.entry(fault).or_default() += 1;
    }

    /// A stepped database, with drawn settings.
    fn server(&mut self, device: &SimulatedDevice) -> Result<SteppedServer, hyades::Error> {
        let device = Arc::new(device.clone());
        let rng = &mut self.rng;
        let builder = Database::builder()
            .streams(self.streams)
            .log_settings(|log| {
                log.device = Some(device);
                log.buffer_bytes = 1 << rng.u32(14..18);
                log.segment_bytes = 1 << rng.u32(16..19);
                log.research.anchor_interval_bytes = [300, 1000, 10_000][rng.usize(0..3)];
                log.research.delta_bytes = [0, 0, 2000][rng.usize(0..3)];
                log.research.stepped = true;
            })
            .recovery_threads(1);
        let packed = self.packed.as_str();
        let mut settings = Vec::new();
        for kind in ["hash-max-listpack-entries", "set-max-intset-entries"]
            .into_iter()
            .chain(["zset-max-listpack-entries", "list-max-listpack-size"])
        {
            settings.extend([format!("--{kind}"), packed.to_string()]);
        }
        settings.extend(["--stream-node-max-entries".to_string(), self.packed.clone()]);
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        SteppedServer::open(builder, Path::new("/db"), self.loops, &settings)
    }

    /// Opens the database, again after crashes and faults during an opening, and checks the
    /// contents.
    fn open(&mut self) -> Option<(SteppedServer, SimulatedDevice)> {
        for attempt in 0.. {
            let image = self.disk.fork();
            let device = self.disk.process(self.rng.u64(..));
            if self.lying_sync {
                device.arm(SimulatedFault::LyingSync);
            }
            let faulty = attempt < 3 && self.rng.u32(0..4) == 0;
            if faulty {
                self.note("a fault while opening");
                device.arm(match self.rng.u32(0..4) {
                    0 => SimulatedFault::Read(self.rng.u64(0..30)),
                    1 => SimulatedFault::Sync { after: self.rng.u64(0..12), for_ever: true },
                    _ => SimulatedFault::Stop(self.rng.u64(0..50)),
                });
            }
            match self.server(&device) {
                Ok(server) => {
                    device.disarm();
                    if self.lying_sync {
                        device.arm(SimulatedFault::LyingSync);
                    }
                    if faulty {
                        // A started thread may have met the fault.
                        drop(server);
                        self.crash();
                        continue;
                    }
                    return self.examine(server, image).map(|server| (server, device));
                }
                Err(error) if !faulty => {
                    self.outcome.refused_wrongly.push(format!("opening: {error}"));
                    self.outcome.image = Some(image);
                    return None;
                }
                Err(_) => self.crash(),
            }
        }
        None
    }

    fn crash(&mut self) {
        self.outcome.crashes += 1;
        if self.rng.bool() {
            self.disk.power_cut(self.rng.u64(..));
        } else {
            self.disk.kill();
        }
    }

    /// Checks the recovered state, with which the next life begins.
    fn examine(
        &mut self,
        mut server: SteppedServer,
        image: SimulatedDisk,
    ) -> Option<SteppedServer> {
        let judged = recovered::state(&mut server)
            .map_err(|complaint| (Wrong::Diverged, complaint))
            .and_then(|state| {
                let ends = judge::judge(&self.model, &state, now_ms(), &self.lost)?;
                Ok((state, ends))
            });
        let (state, ends): (RecoveredState, Vec<usize>) = match judged {
            Ok(judged) => judged,
            Err((wrong, sentence)) => {
                let verdict = &mut self.outcome.verdict;
                match wrong {
                    Wrong::Lost => verdict.lost.push(sentence),
                    Wrong::Partial => verdict.partial.push(sentence),
                    Wrong::Resurrected => verdict.resurrected.push(sentence),
                    Wrong::Diverged => verdict.diverged.push(sentence),
                    Wrong::OutOfOrder => self.outcome.out_of_order.push(sentence),
                }
                self.outcome.image = Some(image);
                self.outcome.story = story(&self.model);
                return None;
            }
        };
        self.lost.extend(judge::lost(&self.model, &ends));
        self.model = Model::new(&state);
        Some(server)
    }

    /// Runs clients until the life ends.
    fn live(&mut self, server: SteppedServer, device: &SimulatedDevice) {
        let (ending, name) = Ending::draw_of_server(&mut self.rng);
        self.note(name);
        ending.arm(&mut self.rng, device);
        let steps = self.rng.usize(0..1_500);
        let (seed, rng) = (self.rng.u64(..), self.rng.fork());
        let mut script = Script::new(seed, self.values, self.subjects);
        let mut model = std::mem::take(&mut self.model);
        let mut life = ClientLife::new(server, &mut model, &mut script, self.loops, rng);
        let mut goes = life.run(steps);
        if goes == Goes::On && ending.is_quiet() && life.is_sound() {
            goes = life.settle();
        }
        match ending {
            Ending::PowerCut => self.die_while_writing(&mut life, device),
            // After a failure of the log, all bytes that may be sent are sent.
            _ if goes == Goes::LogFailed => {
                for event_loop in 0..self.loops {
                    let _ = life.server.drain(event_loop);
                }
                life.send_all();
            }
            _ => {}
        }
        if ending.is_quiet() && goes == Goes::LogFailed {
            self.outcome.refused_wrongly.push("the log failed on a healthy disk".to_string());
        }
        let (server, complaints, checkpoints, counts) = life.into_parts();
        *self.outcome.faults.entry("checkpoints taken between turns").or_default() +=
            checkpoints.number;
        for (what, times) in counts {
            *self.outcome.faults.entry(what).or_default() += times;
        }
        let told = model.transactions.iter().filter(|transaction| transaction.is_told).count();
        self.outcome.acknowledged += told as u64;
        self.outcome.crashes += 1;
        self.values = script.values();
        match ending {
            Ending::Close | Ending::Quiet => {
                // All transactions were told, or may be: all are on disk.
                model.transactions.iter_mut().for_each(|transaction| transaction.is_told = true);
                self.outcome.late.extend(complaints.late);
                drop(server);
                self.disk.power_cut(self.rng.u64(..));
            }
            Ending::PowerCut => {
                self.disk.power_cut(self.rng.u64(..));
                drop(server);
                self.disk.power_cut(self.rng.u64(..));
            }
            _ => {
                self.disk.kill();
                drop(server);
                if self.rng.bool() {
                    self.disk.power_cut(self.rng.u64(..));
                }
            }
        }
        self.outcome.verdict.diverged.extend(complaints.replies);
        self.outcome.out_of_order.extend(complaints.order);
        if !self.outcome.is_sound() {
            self.outcome.story = story(&model);
        }
        self.model = model;
    }

    /// Stops the process within the writes and syncs of a last round, so that the following power
    /// cut finds unsynced data.
    fn die_while_writing(&mut self, life: &mut ClientLife<'_>, device: &SimulatedDevice) {
        let streams = self.streams as u64;
        device.arm(SimulatedFault::Stop(self.rng.u64(0..2 * streams)));
        life.write_all();
    }
}

/// The transactions, in readable form.
fn story(model: &Model) -> String {
    let lines = model.transactions.iter().enumerate().map(|(number, transaction)| {
        let told = if transaction.is_told { "told" } else { "not told" };
        format!("{number}: client {} ({told}) {}\n", transaction.client, transaction.text)
    });
    lines.collect()
}
