//! Real processes on real files: killed, terminated, two at once, on a full disk, without write
//! permission.
#![allow(missing_docs)]

use hyades::{
    Abort, Builder, Column, Database, Error, ProcedureId, Schema, Table, Transaction, Type,
};
use hyades_simulator::plan::Combination;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const LEFT: Table = Table::nth(0);
const RIGHT: Table = Table::nth(1);
const COUNTS: Table = Table::nth(2);
const COUNT: Column<u64> = Column::at(1);
const DIR: &str = "HYADES_PROCESS_DIR";
const HOW: &str = "HYADES_PROCESS_HOW";

/// Writes three rows that must agree: the id in both tables, and the worker's count.
fn step(tx: &Transaction<'_>, worker: u64) -> Result<u64, Abort> {
    let count = tx.get(COUNTS, worker)?.map_or(0, |row| row.get(COUNT)) + 1;
    let id = worker << 32 | count;
    let text = "x".repeat((count % 300) as usize);
    tx.upsert(COUNTS, &[worker.into(), count.into()])?;
    tx.insert(LEFT, &[id.into(), text[..].into()])?;
    tx.insert(RIGHT, &[id.into(), text[..].into()])?;
    Ok(id)
}

/// The builder for combination number `how`, below [`ways`].
fn builder(how: usize) -> (Builder, ProcedureId) {
    let combination = Combination::all()[how];
    let mut builder = Database::builder()
        .protocol(combination.protocol)
        .concurrency(combination.concurrency)
        .record(combination.record)
        .streams(combination.streams)
        .recovery_threads(2)
        .log_settings(|log| log.segment_bytes = 1 << 18);
    for name in ["left", "right"] {
        let schema = Schema::new(name).column("id", Type::U64).column("text", Type::Text);
        builder.table(schema.primary_key(&["id"]));
    }
    let counts = Schema::new("counts").column("worker", Type::U64).column("count", Type::U64);
    builder.table(counts.primary_key(&["worker"]).hash());
    let procedure = builder.procedure("step", 1, step);
    (builder, procedure)
}

fn ways() -> usize {
    Combination::all().len()
}

/// The first combination of each protocol, and the last of all.
fn some_ways() -> Vec<usize> {
    let all = Combination::all();
    let is_first = |at: &usize| *at == 0 || all[*at].protocol != all[*at - 1].protocol;
    (0..all.len()).filter(|at| is_first(at) || *at + 1 == all.len()).collect()
}

/// The ids in the database. Panics if a transaction is there in part.
fn ids(db: &Database) -> BTreeSet<u64> {
    let read = |tx: &Transaction<'_>| {
        let id = |row: &hyades::Row<'_>| row.get(Column::<u64>::at(0));
        let left: BTreeSet<u64> = tx.scan(LEFT).rows()?.iter().map(id).collect();
        let right: BTreeSet<u64> = tx.scan(RIGHT).rows()?.iter().map(id).collect();
        assert_eq!(left, right, "a transaction is there in part");
        let mut counted = 0;
        for worker in 0..2u64 {
            let count = tx.get(COUNTS, worker)?.map_or(0, |row| row.get(COUNT));
            counted += count;
            assert!(
                (1..=count).all(|n| left.contains(&(worker << 32 | n))),
                "a gap before {count}"
            );
        }
        assert_eq!(counted, left.len() as u64);
        Ok::<_, Abort>(left)
    };
    db.try_transact(read).unwrap().unwrap()
}

/// The process that the other tests start. Does nothing when it is run alone.
#[test]
#[ignore = "started by the other tests"]
fn a_process() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let how = std::env::var(HOW).unwrap().parse().unwrap();
    let asked_to_end = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, asked_to_end.clone()).unwrap();
    let (builder, procedure) = builder(how);
    let db = match builder.open(dir) {
        Ok(db) => db,
        Err(error) => {
            say(&format!("\n= refused {error}\n"));
            return;
        }
    };
    say("\n= open\n");
    let failed = std::thread::scope(|scope| {
        let work = |worker| work(&db, procedure, worker, &asked_to_end).err();
        let threads: Vec<_> = (0..2u64).map(|w| scope.spawn(move || work(w))).collect();
        threads.into_iter().filter_map(|t| t.join().unwrap()).last()
    });
    match failed {
        Some(error) => say(&format!("\n= failed {error}\n")),
        None => {
            db.close().unwrap();
            say("\n= closed\n");
        }
    }
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).unwrap();
}

/// Runs steps until `end` is set. Prints the ids of begun steps and of acknowledged steps.
fn work(db: &Database, id: ProcedureId, worker: u64, end: &AtomicBool) -> Result<(), Error> {
    let mut session = db.session()?;
    let mut queue = db.commit_queue();
    while !end.load(Ordering::Relaxed) {
        let mut lines = String::new();
        let (result, ticket) = session.call(id, &worker)?;
        result.unwrap();
        let id = session.result::<u64>()?;
        lines.push_str(&format!("began {id}\n"));
        queue.push(ticket, id);
        let drained = queue.drain(|id| lines.push_str(&format!("ack {id}\n")));
        say(&lines);
        drained?;
        if queue.len() > 64 {
            queue.wait_for_one()?;
        }
    }
    while !queue.is_empty() {
        queue.wait_for_one()?;
        let mut lines = String::new();
        let drained = queue.drain(|id| lines.push_str(&format!("ack {id}\n")));
        say(&lines);
        drained?;
    }
    Ok(())
}

fn command(dir: &Path, how: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_process", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(DIR, dir).env(HOW, how.to_string()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// The output of a process.
#[derive(Default)]
struct Said {
    opened: bool,
    began: BTreeSet<u64>,
    acknowledged: BTreeSet<u64>,
    /// "closed", "refused ..", "failed ..", or nothing.
    last: String,
}

fn listen(child: &mut Child, opened: impl FnOnce()) -> Said {
    let mut said = Said::default();
    let mut opened = Some(opened);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Ok(line) = line else { break };
        if let Some(id) = line.strip_prefix("ack ").and_then(|id| id.parse().ok()) {
            said.acknowledged.insert(id);
        } else if let Some(id) = line.strip_prefix("began ").and_then(|id| id.parse().ok()) {
            said.began.insert(id);
        } else if line == "= open" {
            said.opened = true;
            opened.take().into_iter().for_each(|opened| opened());
        } else if let Some(last) = line.strip_prefix("= ") {
            said.last = last.to_string();
        }
    }
    said
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn open_here(dir: &Path, how: usize) -> Database {
    builder(how).0.open(dir).unwrap()
}

/// Promise: a kill at any time, during opening, recovery or work, loses nothing acknowledged. The
/// page cache survives a kill, so this must hold on a slow device too.
#[test]
fn killed_again_and_again_nothing_acknowledged_is_missing() {
    let rounds = std::env::var("HYADES_KILLS").map_or(12, |n| n.parse().unwrap());
    let mut rng = fastrand::Rng::with_seed(rounds as u64);
    let mut dir = directory();
    let mut acknowledged = BTreeSet::new();
    let (mut kills, mut working) = (0, 0);
    for round in 0..rounds {
        if round % 24 == 0 {
            // Recovery takes longer with every life, so a new database is begun now and then.
            (dir, acknowledged) = (directory(), BTreeSet::new());
        }
        let how = rng.usize(0..ways());
        let mut child = command(dir.path(), how).spawn().unwrap();
        let id = child.id().cast_signed();
        // The kill comes some time after the start, or after the database is open.
        let (sender, open) = mpsc::channel::<()>();
        let started = rng.u32(0..3) == 0;
        let delay = Duration::from_micros(rng.u64(0..if started { 80_000 } else { 30_000 }));
        let killer = std::thread::spawn(move || {
            if !started {
                // The sender is dropped without a message, also if the child cannot open the
                // database.
                let _ = open.recv();
            }
            std::thread::sleep(delay);
            let pid = rustix::process::Pid::from_raw(id).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        let said = listen(&mut child, move || drop(sender));
        killer.join().unwrap();
        assert!(!child.wait().unwrap().success());
        kills += 1;
        working += u32::from(!said.acknowledged.is_empty());
        acknowledged.extend(said.acknowledged);
        // In half of the rounds this process recovers the directory; otherwise the next child is
        // the first.
        if rng.bool() {
            let db = open_here(dir.path(), rng.usize(0..ways()));
            let ids = ids(&db);
            let missing: Vec<_> = acknowledged.difference(&ids).collect();
            assert!(missing.is_empty(), "round {round}, way {how}: {missing:?} are missing");
        }
    }
    let ids = ids(&open_here(dir.path(), 1));
    assert!(acknowledged.is_subset(&ids));
    eprintln!("{kills} kills, {working} of them at work");
}

#[test]
fn a_process_that_is_asked_to_end_drains_and_closes() {
    for how in some_ways() {
        let dir = directory();
        let mut child = command(dir.path(), how).spawn().unwrap();
        let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
        let said = listen(&mut child, || {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(60));
                rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            });
        });
        assert!(child.wait().unwrap().success());
        assert_eq!(said.last, "closed");
        assert_eq!(said.began, said.acknowledged, "all that began is answered");
        assert_eq!(ids(&open_here(dir.path(), how)), said.acknowledged);
    }
}

#[test]
fn a_directory_serves_one_process_at_a_time() {
    let dir = directory();
    let mut child = command(dir.path(), 1).spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    let place = dir.path().to_owned();
    let said = listen(&mut child, || {
        let error = builder(1).0.open(&place).err().expect("it is in use");
        let text = error.to_string();
        assert!(text.contains("in use") && text.contains(place.to_str().unwrap()), "{text}");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    });
    child.wait().unwrap();
    assert!(said.opened);
    // The system releases the lock of a killed process.
    drop(open_here(dir.path(), 1));
}

/// An unprivileged process on a directory that it does not own.
#[test]
fn where_it_may_not_write_it_says_so() {
    let dir = directory();
    let place = dir.path().join("db");
    drop(open_here(&place, 1));
    let before = std::fs::read(place.join("MANIFEST")).unwrap();
    let mut child = command(&place, 1);
    if rustix::process::geteuid().is_root() {
        child.uid(65534).gid(65534);
        // The child must be able to read the executable.
        let copy = dir.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        let mut copied = Command::new(&copy);
        copied.args(child.get_args()).env(DIR, &place).env(HOW, "1");
        copied.stdout(Stdio::piped()).stderr(Stdio::null()).uid(65534).gid(65534);
        allow(dir.path(), 0o755);
        child = copied;
    }
    allow(&place, 0o555);
    // While another test forks, its child briefly holds the copy open for writing, and exec fails.
    let started = (0..200).find_map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        child.spawn().ok()
    });
    let said = listen(&mut started.expect("the program starts"), || ());
    allow(&place, 0o755);
    assert!(!said.opened);
    assert!(said.last.starts_with("refused") && said.last.contains("db"), "{}", said.last);
    assert_eq!(std::fs::read(place.join("MANIFEST")).unwrap(), before);
    drop(open_here(&place, 1));
}

fn allow(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The child mounts a file system of a few megabytes.
#[test]
fn a_full_disk_fails_the_database_and_loses_nothing() {
    let dir = directory();
    let script = "mount -t tmpfs -o size=3m tmpfs \"$0\" && \"$@\"; \
                  rm -f \"$0/ballast\"; cp -r \"$0\" \"$0.kept\"";
    let place = dir.path().join("disk");
    std::fs::create_dir(&place).unwrap();
    let probe = Command::new("unshare").args(["-rm", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("not tried: this system does not let users mount file systems");
        return;
    }
    for how in some_ways() {
        let kept = dir.path().join("disk.kept");
        let _ = std::fs::remove_dir_all(&kept);
        let process = command(&place, how);
        let mut child = Command::new("unshare");
        child.args(["-rm", "sh", "-c", script]).arg(&place).arg(process.get_program());
        child.args(process.get_args()).env(DIR, &place).env(HOW, how.to_string());
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let said = listen(&mut child, || ());
        child.wait().unwrap();
        assert!(said.last.starts_with("failed"), "{how}: {}", said.last);
        let ids = ids(&open_here(&kept, how));
        assert!(!said.acknowledged.is_empty() && said.acknowledged.is_subset(&ids), "{how}");
    }
}
