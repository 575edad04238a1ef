//! A durable queue of work: jobs are claimed for a time, and done exactly once, though a worker
//! dies with a job in its hands and the whole program crashes in the middle.
//!
//! `cargo run --release -p hyades-tables --features redb --example queue [directory]`

use hyades::Table;
use hyades_deuteronomy::{Database, LogOptions, Options, RedbData, Session};
use hyades_tables::{Error, Tables, TypedTable};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const JOBS: u64 = 600;
const WORKERS: u64 = 3;
/// After this time without completion a job is claimed by another worker, in milliseconds.
const LEASE_MS: u64 = 300;

/// A job that is not done.
#[derive(Table)]
struct Job {
    #[key]
    id: u64,
    /// When the job may be claimed, in milliseconds since 1970: the queue's order.
    #[index]
    due_ms: u64,
    /// How often the job was claimed: the number of the claim that may complete the job.
    claims: u32,
    task: String,
}

/// The result of a job: written in the transaction that removes the job.
#[derive(Table)]
struct Outcome {
    #[key]
    job: u64,
    worker: u64,
    claim: u32,
    text: String,
}

#[derive(Clone)]
struct Queue {
    jobs: TypedTable<Job>,
    outcomes: TypedTable<Outcome>,
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    since.as_millis() as u64
}

impl Queue {
    fn enqueue(&self, session: &mut Session, ids: std::ops::Range<u64>) -> Result<(), Error> {
        session.execute(|tx| {
            ids.clone().try_for_each(|id| {
                let task = format!("count the letters of job {id}");
                self.jobs.insert(tx, &Job { id, due_ms: now_ms(), claims: 0, task })
            })
        })
    }

    /// Claims a job that is due; None if there is none. One of the first few, so that workers
    /// seldom meet.
    fn claim(&self, session: &mut Session) -> Result<Option<Job>, Error> {
        session.execute(|tx| {
            let due = self.jobs.index(tx, Job::BY_DUE_MS).range(..=now_ms()).limit(8).rows()?;
            let mut due = due.collect::<Result<Vec<_>, _>>()?;
            if due.is_empty() {
                return Ok(None);
            }
            let mut job = due.swap_remove(fastrand::usize(..due.len()));
            (job.due_ms, job.claims) = (now_ms() + LEASE_MS, job.claims + 1);
            self.jobs.upsert(tx, &job)?;
            Ok(Some(job))
        })
    }

    /// Removes a job and writes its outcome; false if another worker has claimed the job since.
    fn complete(&self, session: &mut Session, job: &Job, worker: u64) -> Result<bool, Error> {
        session.execute(|tx| {
            match self.jobs.get(tx, job.id)? {
                Some(found) if found.claims == job.claims => {}
                _ => return Ok(false),
            }
            self.jobs.delete(tx, job.id)?;
            let text = format!("{} letters", job.task.len());
            // An insertion: a second outcome would be an error.
            let outcome = Outcome { job: job.id, worker, claim: job.claims, text };
            self.outcomes.insert(tx, &outcome)?;
            Ok(true)
        })
    }
}

fn open(dir: &Path) -> Result<(Database, Tables, Queue), Box<dyn std::error::Error>> {
    let data = RedbData::open(&dir.join("data.redb"), 8 << 20)?;
    let options = Options::new(LogOptions::new(vec![dir.to_owned()], 2));
    let database = Database::open(options, Arc::new(data))?;
    let tables = Tables::builder().table_of::<Job>().table_of::<Outcome>().open(&database)?;
    let queue = Queue { jobs: tables.table_of()?, outcomes: tables.table_of()? };
    Ok((database, tables, queue))
}

/// Works until the queue is empty, or until `most` jobs are done by all workers. Each worker dies
/// once, with a claimed job, if `dies`.
fn work(database: &Database, queue: &Queue, most: u64, dies: bool) -> Result<u64, Error> {
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let run = |worker: u64| {
            let mut session = database.session()?;
            let mut dies = dies;
            while done.load(Ordering::Relaxed) < most {
                let Some(job) = queue.claim(&mut session)? else {
                    let left =
                        session.execute(|tx| Ok(queue.jobs.scan(tx).rows()?.next().is_some()));
                    match left {
                        Ok(true) => std::thread::sleep(Duration::from_millis(20)),
                        Ok(false) => break,
                        Err(error) => return Err(error),
                    }
                    continue;
                };
                if std::mem::take(&mut dies) {
                    println!("worker {worker} dies with job {}", job.id);
                    continue;
                }
                if queue.complete(&mut session, &job, worker)? {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok::<_, Error>(())
        };
        let workers: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(move || run(worker))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    Ok(done.into_inner())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let dir = std::env::args_os().nth(1).map_or(temporary.path().to_owned(), Into::into);
    let (database, tables, queue) = open(&dir)?;
    let mut session = database.session()?;
    for start in (0..JOBS).step_by(100) {
        queue.enqueue(&mut session, start..start + 100)?;
    }
    drop(session);
    println!("{JOBS} jobs wait");
    let done = work(&database, &queue, JOBS / 2, false)?;
    println!("{done} jobs are done, and the program crashes");
    // Without `close`, as if the process had been killed.
    drop((tables, queue, database));

    let (database, tables, queue) = open(&dir)?;
    let again = work(&database, &queue, JOBS, true)?;
    println!("{again} more jobs are done");

    let mut snapshot = database.long_snapshot()?;
    let outcomes = queue.outcomes.scan(&mut snapshot).rows()?.collect::<Result<Vec<_>, _>>()?;
    assert!(outcomes.iter().map(|outcome| outcome.job).eq(0..JOBS), "each job once");
    assert_eq!(done + again, JOBS);
    assert!(outcomes.iter().all(|outcome| outcome.text.ends_with("letters")));
    let later: Vec<_> = outcomes.iter().filter(|outcome| outcome.claim > 1).collect();
    assert!(later.len() >= WORKERS as usize, "jobs of dead workers were claimed again");
    for outcome in &later {
        println!(
            "job {} was done by worker {}, at claim {}",
            outcome.job, outcome.worker, outcome.claim
        );
    }
    for worker in 0..WORKERS {
        let done = outcomes.iter().filter(|outcome| outcome.worker == worker).count();
        println!("worker {worker} has done {done} jobs");
    }
    assert_eq!(queue.jobs.scan(&mut snapshot).rows()?.count(), 0);
    tables.check(&mut snapshot)?;
    database.close()?;
    Ok(())
}
