//! Brings the files of Redis into a new database: an RDB file, one append-only file, or a directory
//! of append-only files. An import that was ended goes on where it was.

mod commands;
pub mod groups;
pub mod loading;
mod position;
mod report;
pub mod runner;
mod source;
#[cfg(test)]
mod tests;

pub use report::ImportReport;

use crate::config::Settings;
use crate::data::head::Head;
use crate::data::keyspace::Keyspace;
use crate::rdb::file::FileReader;
use crate::resp::request::Limits;
use crate::state::{Opened, Shared};
use crate::transact::durably;
use crate::upkeep::opening;
use commands::FileCommands;
use hyades::Column;
use hyades_platform::sync::Unpoisoned;
use loading::Loading;
use position::{OVER, Position, values_of};
use runner::Runner;
use source::{ImportSource, SourceFile};
use std::io::{Read, Seek};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Most threads that write.
const MOST_THREADS: usize = 64;

/// Groups of commands of a transaction, at most.
pub const MOST_COMMANDS: usize = 500;

/// Bytes of commands from which none are added to a transaction.
pub const BATCH_BYTES: usize = 1 << 20;

/// What a command of another server may be.
pub const LIMITS: Limits = Limits { arguments: 1 << 24, argument_bytes: 1 << 30 };

/// The number of threads that load the values of a file.
pub fn loading_threads() -> u8 {
    std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS) as u8
}

const HEAD: Column<u64> = Column::at(2);

/// An import that is under way.
struct Import<'a> {
    shared: &'a Arc<Shared>,
    source: &'a ImportSource,
    /// The threads that write.
    threads: u8,
    /// How far each was when the import began.
    positions: Vec<Position>,
    /// Commands follow the files of values: they may still prolong what has expired.
    keeps_expired: bool,
    libraries: Mutex<Runner>,
}

impl Import<'_> {
    fn name_of(&self, file: u32) -> String {
        self.source.files[file as usize].path.display().to_string()
    }

    fn position(&self, part: u32, batches: u64) -> Position {
        Position { identity: self.source.identity, threads: self.threads, part, batches }
    }

    /// Whether a batch was imported by the thread before.
    fn is_behind(&self, thread: u8, part: u32, batch: u64) -> bool {
        self.positions[usize::from(thread)].is_behind(part, batch)
    }

    /// The groups of commands of a part that were run before.
    fn done(&self, part: u32) -> u64 {
        match self.positions[0] {
            Position { part: own, batches, .. } if own == part => batches,
            Position { part: own, .. } if own > part => u64::MAX,
            _ => 0,
        }
    }

    fn load_library(&self, code: &[u8]) -> Result<(), String> {
        let mut runner = self.libraries.lock().unpoisoned();
        runner.run_one(self.shared, &[b"FUNCTION", b"LOAD", b"REPLACE", code])
    }

    /// Reads a file. Returns what was done, and the bytes at its end that are no whole command.
    fn file(&self, number: u32, mut tell: impl FnMut(u64)) -> Result<(ImportReport, u64), String> {
        let SourceFile { length, .. } = self.source.files[number as usize];
        let mut file = self.source.files[number as usize].open()?;
        let failed = |error| format!("{} cannot be read: {error}", self.name_of(number));
        let mut head = Vec::new();
        file.by_ref().take(5).read_to_end(&mut head).map_err(failed)?;
        file.rewind().map_err(failed)?;
        let (mut report, mut read, mut begin) = (ImportReport::default(), Vec::new(), 0);
        if head == b"REDIS" {
            let reader = FileReader::new(file, length);
            let reader = reader.map_err(|bad| format!("{} {bad}", self.name_of(number)))?;
            let part = values_of(number);
            let loading = Loading {
                shared: self.shared,
                name: self.name_of(number),
                threads: self.threads,
                keeps_expired: self.keeps_expired,
                is_behind: &|thread, batch| self.is_behind(thread, part, batch),
                keep: &|space, thread, batches| self.position(part, batches).keep(space, thread),
                load_library: &|code| self.load_library(code),
            };
            let loaded = loading::load(&loading, reader, &mut tell)?;
            (report, read, file) = (loaded.report, loaded.behind, loaded.source);
            let behind = file.stream_position().map_err(failed)? - read.len() as u64;
            if behind == length {
                return Ok((report, 0));
            }
            begin = behind;
        }
        let rest = file.take(length - begin - read.len() as u64);
        let commands = FileCommands { file: number, begin, read: std::mem::take(&mut read), rest };
        let cut = commands::run(self, commands, &mut report, tell)?;
        Ok((report, cut))
    }

    fn run(&self, tell: &mut dyn FnMut(u64, u64)) -> Result<ImportReport, String> {
        let (mut report, mut before) = (ImportReport::default(), 0);
        let bytes = self.source.bytes();
        let count = self.source.files.len();
        for (number, SourceFile { length, .. }) in self.source.files.iter().enumerate() {
            let (own, cut) = self.file(number as u32, |done| tell(before + done, bytes))?;
            report.add(own);
            if cut > 0 && number + 1 < count {
                let name = self.name_of(number as u32);
                return Err(format!(
                    "{name} ends within a command, {cut} bytes before its end, and another file \
                     follows"
                ));
            }
            report.cut_bytes = cut;
            before += length;
        }
        report.bytes = bytes;
        Ok(report)
    }
}

/// Reads the positions of an import in the database, or sees that the database is empty.
fn begun(shared: &Arc<Shared>, source: &ImportSource) -> Result<Vec<Position>, String> {
    let positions =
        durably(shared, |tx, context| Ok(Position::all(&Keyspace::open(*tx, context, 0)?)?))?;
    let dir = shared.settings.dir();
    let dir = dir.display();
    if let Some(primary) = shared.live_import.primary() {
        let text = "import into an empty one, or end that with REPLICAOF NO ONE";
        return Err(format!("the database in {dir} is being imported from {primary}: {text}"));
    }
    match &positions[..] {
        [] => match shared.store.counts.all() {
            0 => Ok(positions),
            keys => Err(format!("the database in {dir} has {keys} keys: import into an empty one")),
        },
        [first, ..] if first.identity != source.identity => Err(format!(
            "other files were imported into the database in {dir}, or these have changed since: \
             import into an empty one"
        )),
        [first, ..] if first.part == OVER => {
            Err(format!("these files were imported into the database in {dir} before, whole"))
        }
        _ => Ok(positions),
    }
}

/// The keys of a database by type.
fn count_types(opened: &Opened, report: &mut ImportReport) -> Result<(), hyades::Error> {
    let snapshot = opened.database.open_snapshot();
    snapshot.for_each(opened.tables.keys, HEAD.only(), |row| {
        if let Some(head) = Head::from_word(row.get(HEAD)) {
            *report.keys.entry(head.kind().name()).or_default() += 1;
        }
    })?;
    Ok(())
}

/// Imports what a path names into the database of the settings, which is empty, or has the
/// beginning of the same import. `tell` is called with the number of bytes that were read, and of
/// all.
///
/// # Errors
/// The fault, in a sentence: the file, the byte, and the expected contents. The import can be
/// called again, and goes on.
pub fn import(
    path: &Path,
    settings: Settings,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<ImportReport, String> {
    let began = Instant::now();
    let source = ImportSource::find(path)?;
    let shared = Shared::new(settings);
    opening::open(&shared).map_err(|error| error.to_string())?;
    let opened = shared.store.opened.get().expect("it was opened");
    let positions = begun(&shared, &source)?;
    let was_resumed = !positions.is_empty();
    let threads = positions.first().map_or_else(loading_threads, |first| first.threads);
    let begin = |thread: u8| {
        let known = positions.get(usize::from(thread)).copied();
        known.unwrap_or(Position { identity: source.identity, threads, part: 0, batches: 0 })
    };
    let first = source.files[0].path.to_string_lossy();
    let import = Import {
        shared: &shared,
        source: &source,
        threads,
        positions: (0..threads).map(begin).collect(),
        keeps_expired: source.files.len() > 1 || first.ends_with(".aof"),
        libraries: Mutex::new(Runner::new(&shared)),
    };
    // From here on the database belongs to these files.
    import.keep_positions(&import.positions)?;
    let mut report = import.run(tell)?;
    import.libraries.lock().unpoisoned().wait()?;
    import.keep_positions(&[import.position(OVER, 0)])?;
    count_types(&opened, &mut report).map_err(|error| error.to_string())?;
    opened.database.clone().close().map_err(|error| error.to_string())?;
    report.was_resumed = was_resumed;
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

impl Import<'_> {
    /// Keeps the positions of the first threads, on disk.
    fn keep_positions(&self, positions: &[Position]) -> Result<(), String> {
        durably(self.shared, |tx, context| {
            let space = Keyspace::open(*tx, context, 0)?;
            for (thread, position) in positions.iter().enumerate() {
                position.keep(&space, thread as u8)?;
            }
            Ok(())
        })
    }
}
