//! Writing a checkpoint: rows are gathered from the tables and from the side buffer, and written to all
//! parts at the same time.

use super::cut::{BLOCK_BYTES, Cut, Rows};
use super::format::PartId;
use super::pace::Pace;
use crate::error::Error;
use crate::logging::record::Tid;
use crate::storage::record::{Record, word};
use crate::storage::table::{Table, Walk};
use hyades_platform::device::{Device, DeviceFile};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex};

/// A part is synced after so many bytes, so that the log's own syncs never wait for much.
const SYNC_BYTES: u64 = 4 << 20;

/// After so many blocks that did not compress, only one in as many is tried.
const GIVE_UP: u32 = 16;

/// Where the rows come from.
struct Source<'s, S: Default + Send + Sync + 'static> {
    tables: &'s [Table<S>],
    cut: &'s Cut,
    pace: &'s Pace<'s>,
    epoch: u64,
    /// Rows of later epochs are taken as well.
    fuzzy: bool,
    table: usize,
    at: Walk,
    block_bytes: usize,
    row: Vec<u8>,
    saved: VecDeque<Rows>,
    /// The cut of the checkpoint before, or 0.
    before: u64,
    /// Rows of later versions than that, and what was saved: it is being overwritten.
    changed: u64,
    /// Everything has been scanned, and what was saved meanwhile has been taken.
    over: bool,
}

impl<S: Default + Send + Sync + 'static> Source<'_, S> {
    /// Puts the next rows into `out`; false if there are none left.
    fn next(&mut self, out: &mut Rows) -> bool {
        out.bytes.clear();
        out.rows = 0;
        loop {
            if let Some(saved) = self.saved.pop_front() {
                self.changed += u64::from(saved.rows);
                *out = saved;
                return true;
            }
            // First what takes room that sessions may wait for.
            if self.cut.held() as usize >= 4 * BLOCK_BYTES {
                self.saved.extend(self.cut.take(self.epoch));
                continue;
            }
            while out.bytes.len() < self.block_bytes && self.table < self.tables.len() {
                self.scan(out);
            }
            if out.rows > 0 {
                return true;
            }
            if self.over {
                return false;
            }
            self.over = true;
            // A row that the scan passed over for its later version was saved before it got that.
            self.saved.extend(self.cut.take(self.epoch));
        }
    }

    fn scan(&mut self, out: &mut Rows) {
        let (table, pace) = (&self.tables[self.table], self.pace);
        let guard = crossbeam_epoch::pin();
        let row = &mut self.row;
        let last = if self.fuzzy { u64::MAX } else { self.epoch };
        let (before, changed) = (self.before, &mut self.changed);
        table.walk(&mut self.at, &guard, |record| {
            let taken = take_row(table, record, last, pace, row, out);
            *changed += u64::from(taken.is_some_and(|tid| tid.epoch() > before));
        });
        if matches!(self.at, Walk::End) {
            self.table += 1;
            self.at = Walk::Start;
        }
    }
}

/// Adds a row, if its version is of no later epoch than `last`. Returns the version if so.
fn take_row<S: Default + Send + Sync + 'static>(
    table: &Table<S>,
    record: &Record<S>,
    last: u64,
    pace: &Pace<'_>,
    row: &mut Vec<u8>,
    out: &mut Rows,
) -> Option<Tid> {
    let mut looks = 0u32;
    loop {
        let seen = record.word.load(Ordering::Acquire);
        let tid = word::tid(seen);
        // All transactions of the cut are installed: whoever is at work here comes after it.
        if Tid(tid).epoch() > last || seen & (word::ABSENT | word::DEAD) != 0 {
            return None;
        }
        if seen & word::LOCKED == 0 {
            row.clear();
            record.read_row(row);
            // The copy comes before the second look.
            fence(Ordering::Acquire);
            if record.word.load(Ordering::Relaxed) == seen {
                out.push(table, record.key(), tid, row);
                return Some(Tid(tid));
            }
        }
        looks += 1;
        match looks {
            0..64 => std::hint::spin_loop(),
            64..128 => std::thread::yield_now(),
            // Then the row may stay locked for ever, and the checkpoint will not count.
            _ if pace.is_over() => return None,
            _ => std::thread::sleep(std::time::Duration::from_micros(50)),
        }
    }
}

/// A part that is being written.
struct PartFile<'p> {
    id: PartId,
    path: &'p Path,
    file: Arc<dyn DeviceFile>,
    bytes: u64,
    rows: u64,
    synced: u64,
    /// Blocks that did not compress, one after the other.
    stubborn: u32,
    block: Vec<u8>,
}

fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Log(hyades_wal::Error::Io { path: path.to_owned(), action, source })
}

impl<'p> PartFile<'p> {
    fn create(device: &dyn Device, path: &'p Path, id: PartId) -> Result<Self, Error> {
        let file = device.create(path, 0).map_err(io(path, "create"))?;
        let header = id.header();
        file.write_at(&[IoSlice::new(&header)], 0).map_err(io(path, "write to"))?;
        let bytes = header.len() as u64;
        Ok(PartFile { id, path, file, bytes, rows: 0, synced: 0, stubborn: 0, block: Vec::new() })
    }

    fn write(&mut self, rows: &Rows) -> Result<(), Error> {
        let compress = self.stubborn < GIVE_UP || self.stubborn.is_multiple_of(GIVE_UP);
        let paid = self.id.block(self.bytes, &rows.bytes, rows.rows, compress, &mut self.block);
        self.stubborn = if paid { 0 } else { self.stubborn + 1 };
        self.file
            .write_at(&[IoSlice::new(&self.block)], self.bytes)
            .map_err(io(self.path, "write to"))?;
        self.bytes += self.block.len() as u64;
        self.rows += u64::from(rows.rows);
        if self.bytes - self.synced >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.file.sync_data().map_err(io(self.path, "sync"))?;
        self.synced = self.bytes;
        Ok(())
    }
}

/// What is to be written.
pub(super) struct Writing<'w, S: Default + Send + Sync + 'static> {
    pub tables: &'w [Table<S>],
    pub cut: &'w Cut,
    pub epoch: u64,
    /// The cut of the checkpoint before, or 0.
    pub before: u64,
    pub fuzzy: bool,
    pub device: &'w dyn Device,
    pub uuid: [u8; 16],
    pub number: u64,
    pub parts: &'w [(usize, PathBuf)],
    pub pace: &'w Pace<'w>,
    pub block_bytes: usize,
}

impl<S: Default + Send + Sync + 'static> Writing<'_, S> {
    /// Writes all parts and makes them durable, names included. Returns the bytes and rows of each, and how many
    /// rows had changed since the checkpoint before.
    pub fn run(&self) -> Result<(Vec<(u64, u64)>, u64), Error> {
        let source = Mutex::new(Source {
            tables: self.tables,
            cut: self.cut,
            pace: self.pace,
            epoch: self.epoch,
            fuzzy: self.fuzzy,
            table: 0,
            at: Walk::Start,
            block_bytes: self.block_bytes.clamp(1, BLOCK_BYTES),
            row: Vec::new(),
            saved: VecDeque::new(),
            before: self.before,
            changed: 0,
            over: false,
        });
        let failed = AtomicBool::new(false);
        let write = |part: usize| {
            let result = self.part(part, &source, &failed);
            // The others need not go on; Relaxed: it only says that early.
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        };
        let write = &write;
        let written: Vec<Result<(u64, u64), Error>> = std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..self.parts.len()).map(|part| scope.spawn(move || write(part))).collect();
            let first = write(0);
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            std::iter::once(first).chain(others.into_iter().map(join)).collect()
        });
        let written = written.into_iter().collect::<Result<Vec<_>, _>>()?;
        for (_, path) in self.parts {
            let dir = path.parent().unwrap_or(Path::new("."));
            self.device.sync_dir(dir).map_err(io(dir, "sync the directory"))?;
        }
        Ok((written, source.into_inner().expect("no holder panics").changed))
    }

    fn part(
        &self,
        part: usize,
        source: &Mutex<Source<'_, S>>,
        failed: &AtomicBool,
    ) -> Result<(u64, u64), Error> {
        let id =
            PartId { uuid: self.uuid, number: self.number, part: part as u32, cut: self.epoch };
        let mut file = PartFile::create(self.device, &self.parts[part].1, id)?;
        let mut rows = Rows::default();
        while !failed.load(Ordering::Relaxed) {
            let began = self.pace.begin()?;
            let more = source.lock().expect("no holder panics").next(&mut rows);
            if !more {
                break;
            }
            file.write(&rows)?;
            // Sessions that wait for room must not wait for this pace.
            self.pace.rest(began, || self.cut.held() as usize >= 8 * BLOCK_BYTES);
        }
        file.sync()?;
        Ok((file.bytes, file.rows))
    }
}
