//! A job queue: jobs are pushed, taken in order and finished, each exactly once.
//!
//! `cargo run -p hyades --example job_queue`

use hyades::{Database, Error, Table, TypedTable};
use std::path::Path;

const WAITING: u32 = 0;
const TAKEN: u32 = 1;
const DONE: u32 = 2;

#[derive(Table)]
#[table(index(by_state(state, id)))]
struct Job {
    #[key]
    id: u64,
    state: u32,
    result: Option<String>,
}

type Queue = (Database, TypedTable<Job>);

fn open(dir: &Path) -> Result<Queue, Error> {
    let mut builder = Database::builder();
    let jobs = builder.table_of();
    Ok((builder.open(dir)?, jobs))
}

fn push((db, jobs): &Queue) -> Result<u64, Error> {
    db.transact(|tx| {
        let id = jobs.scan(tx).descending().limit(1).rows()?.next().map_or(0, |last| last.id + 1);
        jobs.insert(tx, &Job { id, state: WAITING, result: None })?;
        Ok(id)
    })
}

/// The first job in a state, which changes.
fn take((db, jobs): &Queue, from: u32, to: u32) -> Result<Option<Job>, Error> {
    db.transact(|tx| {
        let first = jobs.index(tx, Job::BY_STATE).prefix(from).limit(1).rows()?.next();
        let set = |job: &Job| jobs.update(tx, job.id, &[Job::STATE.set(to)]).map(drop);
        first.iter().try_for_each(set)?;
        Ok(first)
    })
}

/// Works until `go_on` says no; `go_on` gets the number of finished jobs.
pub fn run(dir: &Path, go_on: &mut dyn FnMut(u64) -> bool) -> Result<(), Error> {
    let queue = open(dir)?;
    // A job taken by a dead worker waits again.
    while take(&queue, TAKEN, WAITING)?.is_some() {}
    let done = [Job::STATE.set(DONE), Job::RESULT.set(Some("sent"))];
    while go_on(push(&queue)?) {
        while let Some(job) = take(&queue, WAITING, TAKEN)? {
            queue.0.transact(|tx| Ok(queue.1.update(tx, job.id, &done)?))?;
        }
    }
    Ok(())
}

/// The number of finished jobs; fails if a job has a wrong result.
pub fn check(dir: &Path) -> Result<u64, Error> {
    let (db, jobs) = open(dir)?;
    db.transact(|tx| {
        let jobs: Vec<Job> = jobs.scan(tx).rows()?.collect();
        assert!(jobs.iter().all(|job| (job.state == DONE) == job.result.is_some()));
        Ok(jobs.iter().filter(|job| job.state == DONE).count() as u64)
    })
}

fn main() -> Result<(), Error> {
    let temporary = tempfile::tempdir().map_err(Error::user)?;
    run(temporary.path(), &mut |finished| finished < 100)?;
    println!("{} jobs finished, each once", check(temporary.path())?);
    Ok(())
}
