//! `hyades log`: prints the contents of a closed log. These commands change nothing on disk.

pub mod component;
mod depth;
mod dump;
mod engine;
pub mod records;
mod stat;
mod tally;

use crate::failure::Failure;
use crate::{existing, verify};
use clap::{Args, Subcommand};
use component::ComponentRecords;
use engine::EngineRecords;
use hyades::inspect::Inspector;
use hyades_wal::{ReaderEnd, Recovering};
use records::LogRecords;
use std::io::{self, Write};
use std::path::PathBuf;

/// `hyades log`.
#[derive(Subcommand, Clone, Debug)]
pub enum Log {
    /// Print every frame and record as text
    Dump(dump::DumpOptions),
    /// The same as hyades verify
    Verify(verify::DatabaseOptions),
    /// Print sizes by stream, kind of frame, procedure and table, incarnations, what a crash has
    /// lost, and how parallel replay can be
    Stat(stat::StatOptions),
}

/// The directories of one log.
#[derive(Args, Clone, Debug)]
pub struct Dirs {
    /// All directories of the database, in any order
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

impl Dirs {
    /// All directories.
    pub fn all(&self) -> &[PathBuf] {
        &self.dirs
    }
}

/// Runs `hyades log`. True if all checks hold.
///
/// # Errors
/// The log is in use, damaged, or absent.
pub fn log(command: Log) -> Result<bool, Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = match command {
        Log::Dump(options) => dump::dump(&options, &mut out),
        Log::Verify(options) => verify::verify(&options, &mut Unread(&mut out)),
        Log::Stat(options) => stat::stat(&options, &mut out),
    };
    let flushed = out.flush().map_err(Trouble::from);
    match result.and_then(|holds| flushed.map(|()| holds)) {
        Ok(holds) => Ok(holds),
        Err(Trouble::Failure(failure)) => Err(failure),
        // The reader of the pipe has ended, as in `hyades log dump | head`.
        Err(Trouble::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        Err(Trouble::Output(error)) => Err(Failure::Failed(format!("cannot print: {error}"))),
    }
}

/// Output whose reader may have ended, as in `hyades verify DIR | head`: what is checked decides
/// the exit code all the same.
struct Unread<W>(W);

impl<W: Write> Write for Unread<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_unread(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_unread(self.0.flush(), ())
    }
}

fn unless_unread<T>(done: io::Result<T>, otherwise: T) -> io::Result<T> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(otherwise),
        done => done,
    }
}

/// Why a log command failed.
pub enum Trouble {
    /// An error of the log.
    Failure(Failure),
    /// An error of the command's output.
    Output(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Output(error)
    }
}

impl From<hyades_wal::Error> for Trouble {
    fn from(error: hyades_wal::Error) -> Self {
        Trouble::Failure(error.into())
    }
}

impl From<hyades::Error> for Trouble {
    fn from(error: hyades::Error) -> Self {
        Trouble::Failure(error.into())
    }
}

/// Finds and locks a log.
fn open(dirs: &Dirs) -> Result<Recovering, Trouble> {
    existing::find(&dirs.dirs, hyades_wal::open_read).map_err(Trouble::Failure)
}

/// As `open`, but damage is recorded instead of returned as an error.
pub fn open_damaged(dirs: &Dirs) -> Result<Recovering, Trouble> {
    existing::find(&dirs.dirs, hyades_wal::open_damaged).map_err(Trouble::Failure)
}

/// The records of a log whose streams end here.
pub fn records_of(
    recovering: &Recovering,
    ends: &[ReaderEnd],
) -> Result<Box<dyn LogRecords>, Trouble> {
    if component::is_of_component(recovering.manifest()) {
        return Ok(Box::new(ComponentRecords { ends: Some(ends.to_vec()) }));
    }
    let inspector = Inspector::new(recovering.manifest())?;
    let liveness = Some(inspector.liveness(recovering, ends)?);
    Ok(Box::new(EngineRecords { inspector, liveness }))
}

/// The records of a log whose ends are not known yet.
pub fn records_before_ends(recovering: &Recovering) -> Result<Box<dyn LogRecords>, Trouble> {
    if component::is_of_component(recovering.manifest()) {
        return Ok(Box::new(ComponentRecords::default()));
    }
    let inspector = Inspector::new(recovering.manifest())?;
    Ok(Box::new(EngineRecords { inspector, liveness: None }))
}

/// Reads all streams once, in parallel, to find where each ends.
fn survey(recovering: &Recovering) -> Result<Vec<ReaderEnd>, Trouble> {
    let ends: Vec<Result<ReaderEnd, hyades_wal::Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> = recovering
            .readers()
            .into_iter()
            .map(|mut reader| {
                scope.spawn(move || {
                    while reader.next_chunk()?.is_some() {}
                    Ok(reader.end())
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    Ok(ends.into_iter().collect::<Result<_, _>>()?)
}

/// The valid ends of the streams of an incarnation, by lane.
fn end_vector(ends: &[ReaderEnd], incarnation: u32) -> Vec<u64> {
    let own = ends.iter().filter(|end| end.incarnation == incarnation);
    own.map(|end| end.valid_to).collect()
}
