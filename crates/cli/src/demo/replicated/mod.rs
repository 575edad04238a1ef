//! `hyades demo --replicated`: three NATS servers and three members on this machine. Clients move
//! money while the primary is killed, then a NATS server, then all members and servers at once.
//! At the end nothing acknowledged may be missing, and all members have the same.

mod clients;
mod members;
mod nats;
mod ports;

use super::DemoOptions;
use super::screen::Summary;
use clients::{Acknowledged, Clients, FoundAtMember};
use hyades_cli::failure::Failure;
use hyades_cli::place::Place;
use hyades_cli::progress::Bar;
use hyades_cli::units::{exact, time};
use members::Members;
use nats::NatsCluster;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Connections that move money.
const CLIENTS: usize = 4;
/// Whatever is waited for comes within this time, or there is a fault.
const LONG: Duration = Duration::from_secs(90);
/// The time between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(20);
/// A NATS server stays killed for as long: the others elect leaders within 9 seconds.
const ELECTION: Duration = Duration::from_secs(9);

/// Something that was killed.
struct Incident {
    what: &'static str,
    at: Instant,
}

/// The servers, the members, and their files. The processes end before the files are removed.
struct ReplicatedDemo {
    clients: Option<Clients>,
    members: Members,
    nats: NatsCluster,
    _place: Place,
    interrupted: Arc<AtomicBool>,
    /// How long to let clients run between two incidents.
    calm: Duration,
    incidents: Vec<Incident>,
}

/// What is found at the end.
struct DemoEnding {
    noted: Vec<Acknowledged>,
    found: FoundAtMember,
    are_equal: bool,
}

/// Runs `hyades demo --replicated`. True if all holds.
///
/// # Errors
/// There is no `nats-server`; a process could not be started, or does not serve; the demo was
/// interrupted.
pub fn demo(options: &DemoOptions) -> Result<bool, Failure> {
    let program = nats::find(options.nats_server.as_deref())?;
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let interrupted = Arc::<AtomicBool>::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let registered = signal_hook::flag::register(signal, interrupted.clone());
        registered.map_err(Failure::doing("cannot wait for signals"))?;
    }
    let place = Place::temporary(&std::env::temp_dir())?;
    let dir = place.dirs[0].clone();
    std::fs::create_dir_all(&dir).map_err(Failure::doing("cannot create a directory"))?;
    let ports: [u16; 15] = ports::free_ports()?;
    let nats = NatsCluster::new(program, &dir, &ports[..9])?;
    let members = Members::new(&dir, nats.servers(), options.streams, &ports[9..]);
    // Before, between and after three incidents.
    let calm = Duration::from_secs_f64((options.seconds / 4.0).max(1.0));
    let (clients, incidents) = (None, Vec::new());
    let mut demo =
        ReplicatedDemo { clients, members, nats, _place: place, interrupted, calm, incidents };
    demo.run(seed)?;
    let ending = demo.end()?;
    print!("{}", screen(&demo.incidents, &ending, seed));
    // Scripts read the last line.
    println!("acknowledged but missing  {}", exact(ending.found.missing(&ending.noted)));
    Ok(ending.holds())
}

impl DemoEnding {
    fn acknowledged(&self) -> usize {
        self.noted.iter().map(Vec::len).sum()
    }

    fn holds(&self) -> bool {
        self.acknowledged() > 0
            && self.found.missing(&self.noted) == 0
            && self.found.repeated() == 0
            && self.found.money() == 0
            && self.are_equal
    }

    /// The longest time between two acknowledgements, of those from `at` to `end`: of all clients
    /// together, and of any one of them.
    fn waits(&self, at: Instant, end: Option<Instant>) -> (Duration, Duration) {
        let longest = |times: &mut dyn Iterator<Item = Instant>| {
            let mut longest = Duration::ZERO;
            let mut before = at;
            for time in times.filter(|time| *time >= at && end.is_none_or(|end| *time < end)) {
                longest = longest.max(time - before);
                before = time;
            }
            longest
        };
        let mut all: Vec<Instant> = self.noted.iter().flatten().map(|(_, at)| *at).collect();
        all.sort_unstable();
        let each = self.noted.iter().map(|noted| longest(&mut noted.iter().map(|(_, at)| *at)));
        (longest(&mut all.into_iter()), each.max().unwrap_or_default())
    }
}

impl ReplicatedDemo {
    fn run(&mut self, seed: u64) -> Result<(), Failure> {
        let bar = Bar::new("starting", 1);
        self.start_all()?;
        let started = Instant::now();
        let primary = self.wait_for_primary()?;
        bar.finish(&format!(
            "three NATS servers and three members run; primary n{} after {}",
            primary + 1,
            time(started.elapsed().as_secs_f64())
        ));
        bar.note(&format!("status page: {}", self.members.page((primary + 1) % 3)));
        self.clients = Some(Clients::start(CLIENTS, self.members.addresses, seed));
        self.wait_for_transfers("running")?;
        let mut random = fastrand::Rng::with_seed(seed);

        let primary = self.wait_for_primary()?;
        self.members.kill(primary);
        self.happens("primary killed");
        self.wait_for_transfers("primary killed")?;
        self.members.start(primary)?;

        let server = random.usize(..3);
        self.nats.kill(server);
        self.happens("NATS server killed");
        self.rest(ELECTION)?;
        self.wait_for_transfers("NATS server killed")?;
        self.nats.start(server)?;
        self.wait_until("the NATS server is back", |demo| demo.nats.is_ready())?;

        (0..3).for_each(|at| self.members.kill(at));
        (0..3).for_each(|at| self.nats.kill(at));
        self.happens("all killed");
        self.start_all()?;
        self.wait_for_transfers("all killed")
    }

    fn start_all(&mut self) -> Result<(), Failure> {
        (0..3).try_for_each(|at| self.nats.start(at))?;
        self.wait_until("the NATS servers are a cluster", |demo| demo.nats.is_ready())?;
        (0..3).try_for_each(|at| self.members.start(at))
    }

    fn happens(&mut self, what: &'static str) {
        self.incidents.push(Incident { what, at: Instant::now() });
    }

    /// Whether the demo goes on.
    fn check(&mut self) -> Result<(), Failure> {
        if self.interrupted.load(Relaxed) {
            return Err(Failure::Failed("interrupted; all processes are ended".to_owned()));
        }
        if self.nats.has_ended() {
            return Err(Failure::Failed("a NATS server has ended by itself".to_owned()));
        }
        self.members.ended().map_or(Ok(()), |why| Err(Failure::Failed(why)))
    }

    fn rest(&mut self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.check()?;
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn wait_until(
        &mut self,
        what: &str,
        mut is_there: impl FnMut(&mut ReplicatedDemo) -> bool,
    ) -> Result<(), Failure> {
        let until = Instant::now() + LONG;
        while !is_there(self) {
            self.check()?;
            if Instant::now() > until {
                let after = time(LONG.as_secs_f64());
                return Err(Failure::Failed(format!("not within {after}: {what}")));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn wait_for_primary(&mut self) -> Result<usize, Failure> {
        let mut primary = None;
        self.wait_until("a member is the primary", |demo| {
            primary = demo.members.addresses.primary();
            primary.is_some()
        })?;
        Ok(primary.expect("it was waited for"))
    }

    /// Lets clients run, from their next acknowledgement on.
    fn wait_for_transfers(&mut self, what: &'static str) -> Result<(), Failure> {
        let count = |demo: &ReplicatedDemo| demo.clients.as_ref().map_or(0, Clients::acknowledged);
        let (bar, began, before) = (Bar::new(what, 1), Instant::now(), count(self));
        self.wait_until("transfers are acknowledged", |demo| count(demo) > before)?;
        let after = time(began.elapsed().as_secs_f64());
        bar.say(format!("transfers go on after {after}"));
        self.rest(self.calm)?;
        let count = exact(count(self));
        bar.finish(&format!("{what}: transfers go on; {count} are acknowledged so far"));
        Ok(())
    }

    /// Ends the clients, and reads what all members have.
    fn end(&mut self) -> Result<DemoEnding, Failure> {
        let noted = self.clients.take().expect("clients were started").end();
        let (addresses, bar) = (self.members.addresses, Bar::new("comparing", 1));
        let read = move || -> Option<[FoundAtMember; 3]> {
            let all: Result<Vec<_>, _> =
                (0..3).map(|at| FoundAtMember::read(addresses, at, CLIENTS)).collect();
            all.ok()?.try_into().ok()
        };
        let mut last = None;
        // Standbys come later, by a mark or two.
        let until = Instant::now() + Duration::from_secs(15);
        self.wait_until("all members are read", |_| {
            last = read().or_else(|| last.take());
            let are_equal = |[a, b, c]: &[FoundAtMember; 3]| a == b && b == c;
            last.as_ref().is_some_and(|all| are_equal(all) || Instant::now() > until)
        })?;
        let [a, b, c] = last.expect("it was waited for");
        let are_equal = a == b && b == c;
        // The primary has the most.
        let found = [a, b, c].into_iter().min_by_key(|found| found.missing(&noted));
        bar.clear();
        Ok(DemoEnding { noted, found: found.expect("there are three"), are_equal })
    }
}

fn screen(incidents: &[Incident], ending: &DemoEnding, seed: u64) -> String {
    let mut summary = Summary::new(&format!(
        "{CLIENTS} clients move money in a replicated database, each transfer with MULTI and EXEC \
         (seed {seed})"
    ));
    let ends = incidents.iter().skip(1).map(|next| Some(next.at)).chain([None]);
    let waits: Vec<_> =
        incidents.iter().zip(ends).map(|(one, end)| ending.waits(one.at, end)).collect();
    let shown = |wait: Duration| time(wait.as_secs_f64());
    summary.line("", incidents.iter().map(|incident| incident.what.to_uppercase()));
    summary.line("no transfer for", waits.iter().map(|(all, _)| shown(*all)));
    summary.line("a client waited at most", waits.iter().map(|(_, one)| shown(*one)));
    let mut total = |label: &str, value: String| summary.line(label, std::iter::once(value));
    total("acknowledged", exact(ending.acknowledged() as u64));
    total("sum of all money", ending.found.money().to_string());
    total("transfers that happened twice", exact(ending.found.repeated()));
    total("members have the same", if ending.are_equal { "yes" } else { "NO" }.to_owned());
    summary.verdict(if ending.holds() {
        "Every acknowledged transfer is there, once, at all members."
    } else {
        "NOT every acknowledged transfer is there, once, at all members."
    })
}
