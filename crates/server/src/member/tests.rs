//! Members over sockets, with a source that does what a test says. Standbys follow lanes of a
//! simulated log service, by the code that a real member runs.

mod answers;
mod changes;
mod cluster;
mod standbys;

use super::{MakeBuilder, MemberView, PrimaryView, RoleChange, RoleSource, View};
use crate::config::Settings;
use crate::server::Server;
use hyades::Database;
use hyades_replication::simulated::{Faults, SimulatedLog};
use hyades_replication::{FirstAppender, LogService, MarkSender, Standby, StandbySettings};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const STREAMS: usize = 2;
const LONG: Duration = Duration::from_secs(60);

/// What a source does next.
enum Step {
    Joining,
    Candidate,
    Standby,
    /// A database of its own in this directory.
    Primary(PathBuf),
    /// A database in this directory, whose log is in the lanes.
    OnLanes(PathBuf),
    StopLog,
    Stopped,
}

/// What a test and the source of a member have in common.
#[derive(Default)]
struct Script {
    steps: Mutex<VecDeque<Step>>,
    /// Steps that the server has put in force: the next call has come.
    done: AtomicUsize,
    given: AtomicUsize,
    view: Mutex<View>,
    orders: Mutex<Vec<Option<String>>>,
    refusal: Mutex<Option<String>>,
    /// A hand-over stops the log before it is answered.
    hands_over_at_once: AtomicBool,
    faults: Mutex<Vec<String>>,
    has_ended: AtomicBool,
}

struct ScriptedSource {
    script: Arc<Script>,
    service: Arc<dyn LogService>,
    make: MakeBuilder,
    node: String,
    standby_dir: PathBuf,
    standby: Option<Standby>,
    marks: Option<MarkSender>,
    database: Option<Database>,
    /// The directory of the last primary, to be opened once the server has let go.
    check: Option<PathBuf>,
}

impl ScriptedSource {
    fn begin(&mut self, step: Step) -> Option<RoleChange> {
        if !matches!(step, Step::StopLog) {
            (self.marks, self.database) = (None, None);
        }
        Some(match step {
            Step::Joining => RoleChange::Joining("the files are read".to_string()),
            Step::Candidate => RoleChange::Candidate,
            Step::Stopped => RoleChange::Stopped("procedure x is missing".to_string()),
            Step::StopLog => {
                let database = self.database.as_ref().expect("it is the primary");
                database.log().unwrap().stop("it was fenced");
                return None;
            }
            Step::Standby => {
                self.standby = None;
                let settings = StandbySettings {
                    node: self.node.clone(),
                    dirs: vec![self.standby_dir.clone()],
                    patience: LONG,
                };
                let joined = Standby::join(self.service.clone(), &settings, (self.make)());
                let mut standby = joined.unwrap();
                while standby.served().is_none() {
                    standby.step(Duration::from_millis(5)).unwrap();
                }
                let database = standby.database().clone();
                self.standby = Some(standby);
                RoleChange::Standby(database)
            }
            Step::Primary(dir) => {
                self.standby = None;
                let database = (self.make)().open(&dir).unwrap();
                self.database = Some(database.clone());
                self.check = Some(dir);
                RoleChange::Primary(database)
            }
            Step::OnLanes(dir) => {
                let appender = FirstAppender::new(self.service.clone(), &self.node);
                let database = (self.make)().remote(Arc::new(appender)).open(dir).unwrap();
                let every = Duration::from_millis(2);
                let marks = MarkSender::start(&database, self.service.clone(), every);
                self.marks = Some(marks.unwrap());
                self.database = Some(database.clone());
                RoleChange::Primary(database)
            }
        })
    }
}

impl RoleSource for ScriptedSource {
    fn next(&mut self, wait: Duration) -> Option<RoleChange> {
        if self.database.is_none()
            && let Some(dir) = self.check.take()
        {
            match (self.make)().open(&dir) {
                Ok(database) => database.close().unwrap(),
                Err(error) => self.script.faults.lock().unwrap().push(error.to_string()),
            }
        }
        self.script.done.store(self.script.given.load(SeqCst), SeqCst);
        let step = self.script.steps.lock().unwrap().pop_front();
        if let Some(step) = step {
            self.script.given.fetch_add(1, SeqCst);
            return self.begin(step);
        }
        match &mut self.standby {
            Some(standby) => drop(standby.step(wait.min(Duration::from_millis(5))).unwrap()),
            None => std::thread::sleep(wait.min(Duration::from_millis(5))),
        }
        None
    }

    fn view(&self) -> View {
        self.script.view.lock().unwrap().clone()
    }

    fn hand_over(&self, to: Option<&str>) -> Result<(), String> {
        self.script.orders.lock().unwrap().push(to.map(str::to_string));
        if self.script.hands_over_at_once.load(SeqCst)
            && let Some(database) = &self.database
        {
            // Before the reply: the event loops have parted from all clients by then.
            database.log().unwrap().stop("it was handed over");
            std::thread::sleep(Duration::from_millis(100));
        }
        self.script.refusal.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn end(&mut self) {
        self.script.has_ended.store(true, SeqCst);
    }
}

fn caught_up() -> View {
    View { has_caught_up: true, ..View::default() }
}

/// A member.
struct Member {
    server: Option<Server>,
    script: Arc<Script>,
    dir: TempDir,
    steps: usize,
}

fn service() -> Arc<dyn LogService> {
    Arc::new(SimulatedLog::new(STREAMS, 1, Faults::default()))
}

impl Member {
    fn start(node: &str, service: &Arc<dyn LogService>) -> Member {
        Member::start_with(node, service, "")
    }

    fn start_with(node: &str, service: &Arc<dyn LogService>, more: &str) -> Member {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let text = "--port 0 --bind 127.0.0.1 --streams 2 --loops 2 --enable-debug-command yes";
        let text = format!("{text} {more}");
        let settings: Vec<&str> = text.split_whitespace().collect();
        let settings = Settings::from_arguments(&settings).unwrap();
        let script = Arc::new(Script::default());
        *script.view.lock().unwrap() =
            View { name: "orders".into(), node: node.into(), stores: true, ..caught_up() };
        let (own, service, node) = (script.clone(), service.clone(), node.to_string());
        let standby_dir = dir.path().join("standby");
        let server = Server::start_as_member(settings, move |make, _| {
            Ok(Box::new(ScriptedSource {
                script: own,
                service,
                make,
                node,
                standby_dir,
                standby: None,
                marks: None,
                database: None,
                check: None,
            }))
        });
        Member { server: Some(server.unwrap()), script, dir, steps: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Gives a step, and waits until the server has put it in force.
    fn step(&mut self, step: Step) {
        self.begin(step);
        let steps = self.steps;
        self.wait_until("the step is done", |member| member.script.done.load(SeqCst) >= steps);
    }

    fn begin(&mut self, step: Step) {
        self.steps += 1;
        self.script.steps.lock().unwrap().push_back(step);
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Member) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < LONG, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Changes what the member sees of the members.
    fn see(&self, change: impl FnOnce(&mut View)) {
        change(&mut self.script.view.lock().unwrap());
    }

    fn client(&self) -> Client {
        let address = self.server.as_ref().unwrap().address().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Client(BufReader::new(stream))
    }

    /// Asks on a new connection, again and again, until the reply is as wanted.
    fn ask_until(&self, text: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let said = self.client().ask(text);
            if is_wanted(&said) {
                return said;
            }
            assert!(began.elapsed() < LONG, "{text}: {said}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Stops the server. Returns its directory.
    fn stop(mut self) -> TempDir {
        let server = self.server.take().unwrap();
        server.handle().stop();
        server.wait().unwrap();
        assert!(self.script.has_ended.load(SeqCst), "the source has ended");
        assert_eq!(*self.script.faults.lock().unwrap(), Vec::<String>::new());
        self.dir
    }
}

/// A client.
struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, text: &str) {
        // The connection may be closed already; the reply tells.
        let _ = self.0.get_mut().write_all(format!("{text}\r\n").as_bytes());
    }

    /// The next reply, flat; "closed" if the connection is closed.
    fn next(&mut self) -> String {
        let mut line = String::new();
        if !matches!(self.0.read_line(&mut line), Ok(length) if length > 0) {
            return "closed".to_string();
        }
        let line = line.trim_end().to_string();
        let (kind, rest) = line.split_at(1);
        match (kind, rest.parse::<i64>()) {
            ("$" | "*", Ok(-1)) => "nil".to_string(),
            ("$", Ok(length)) => {
                let mut bytes = vec![0; length as usize + 2];
                self.0.read_exact(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes[..length as usize]).into_owned()
            }
            ("*", Ok(length)) => {
                let parts: Vec<String> = (0..length).map(|_| self.next()).collect();
                format!("[{}]", parts.join(" "))
            }
            ("+", _) => rest.to_string(),
            _ => line,
        }
    }

    fn ask(&mut self, text: &str) -> String {
        self.send(text);
        self.next()
    }

    /// Whether the server has closed the connection; replies before are skipped.
    fn is_closed(&mut self) -> bool {
        loop {
            match &self.next()[..] {
                "closed" => return true,
                said if said.starts_with("[message") || said.starts_with('-') => {}
                _ => return false,
            }
        }
    }
}

/// The value of a line of INFO.
fn info(client: &mut Client, name: &str) -> Option<String> {
    let all = client.ask("INFO replication");
    let mut lines = all.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(field, _)| *field == name).map(|(_, value)| value.trim_end().to_string())
}

/// Data that a server alone would find in a directory.
fn found_alone(dir: &Path, ask: &str) -> String {
    let dir = dir.display().to_string();
    let text = format!("--port 0 --bind 127.0.0.1 --streams 2 --dir {dir}");
    let settings: Vec<&str> = text.split_whitespace().collect();
    let server = Server::start(Settings::from_arguments(&settings).unwrap()).unwrap();
    server.wait_until_open().unwrap();
    let stream = TcpStream::connect(server.address().unwrap()).unwrap();
    let said = Client(BufReader::new(stream)).ask(ask);
    server.handle().stop();
    server.wait().unwrap();
    said
}
