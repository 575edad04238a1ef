//! Writes a checkpoint: each part, a file, has a writer, which scans its own rows ([`super::scan`])
//! and writes these. Then all parts are read back.

use super::format::{BLOCK_HEAD, PartId};
use super::pace::Pace;
use super::read::{Block, Extent, PartReader};
use super::scan::{Next, RowChoice, RowSource};
use crate::engine::cut::{BLOCK_BYTES, Cut, RowBlock};
use crate::error::Error;
use crate::logging::record::{Change, TableShape, take_change, take_tid};
use crate::storage::Stamp;
use crate::storage::table::TableData;
use hyades_platform::device::{Device, DeviceFile};
use hyades_platform::epoch::EpochNumber;
use std::collections::HashMap;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes after which a part is synced, so that the log's own syncs are not delayed for long.
const SYNC_BYTES: u64 = 4 << 20;

/// The time until a writer without rows looks again whether the other writers are done.
const WAIT: Duration = Duration::from_micros(200);

/// After this number of consecutive incompressible blocks, compression is tried only once in the
/// same number of blocks.
const RETRY_EVERY: u32 = 16;

/// A part being written.
struct PartFile<'p> {
    id: PartId,
    path: &'p Path,
    file: Arc<dyn DeviceFile>,
    extent: Extent,
    /// CRC of the content of all blocks, before compression.
    checksum: u32,
    synced: u64,
    /// Number of consecutive incompressible blocks.
    incompressible_run: u32,
    block: Vec<u8>,
}

/// A written part.
struct Written {
    file: Arc<dyn DeviceFile>,
    extent: Extent,
    checksum: u32,
}

/// All written parts, and the number of rows changed since the previous checkpoint.
pub(super) struct WrittenParts {
    parts: Vec<Written>,
    pub changed_rows: u64,
}

impl WrittenParts {
    /// The size of each part.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        self.parts.iter().map(|part| part.extent)
    }
}

fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Log(hyades_wal::Error::Io { path: path.to_owned(), action, source })
}

fn refused(path: &Path, offset: u64, message: &str) -> Error {
    Error::CheckpointRefused { path: path.to_owned(), offset, message: message.to_string() }
}

impl<'p> PartFile<'p> {
    fn create(device: &dyn Device, path: &'p Path, id: PartId) -> Result<Self, Error> {
        let file = device.create(path, 0).map_err(io(path, "create"))?;
        let header = id.header();
        file.write_at(&[IoSlice::new(&header)], 0).map_err(io(path, "write to"))?;
        let extent = Extent { bytes: header.len() as u64, rows: 0 };
        let block = Vec::new();
        Ok(PartFile {
            id,
            path,
            file,
            extent,
            checksum: 0,
            synced: 0,
            incompressible_run: 0,
            block,
        })
    }

    fn write(&mut self, rows: &RowBlock) -> Result<(), Error> {
        debug_assert!(rows.rows > 0 && !rows.bytes.is_empty(), "no block is without rows");
        let compress = self.incompressible_run < RETRY_EVERY
            || self.incompressible_run.is_multiple_of(RETRY_EVERY);
        let at = self.extent.bytes;
        let paid = self
            .id
            .block(at, &rows.bytes, rows.rows, compress, &mut self.block)
            .map_err(|what| refused(self.path, at, &what))?;
        self.incompressible_run = if paid { 0 } else { self.incompressible_run + 1 };
        self.checksum = crc32c::crc32c_append(self.checksum, &rows.bytes);
        self.file.write_at(&[IoSlice::new(&self.block)], at).map_err(io(self.path, "write to"))?;
        debug_assert!(self.block.len() > BLOCK_HEAD, "a block has a content");
        self.extent.bytes += self.block.len() as u64;
        self.extent.rows += u64::from(rows.rows);
        if self.extent.bytes - self.synced >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.file.sync_data().map_err(io(self.path, "sync"))?;
        self.synced = self.extent.bytes;
        Ok(())
    }

    fn finish(mut self) -> Result<Written, Error> {
        self.sync()?;
        Ok(Written { file: self.file, extent: self.extent, checksum: self.checksum })
    }
}

/// Tells the threads of the other parts to stop, when dropped: after an error or a panic. A part
/// without a thread is never walked to its end, and the other threads would wait for that.
struct StopsOthers<'f>(&'f AtomicBool);

impl Drop for StopsOthers<'_> {
    fn drop(&mut self) {
        // Relaxed: nothing is read from the failed part.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Parameters of one checkpoint.
pub(super) struct Writing<'w, S: Stamp> {
    pub tables: &'w [TableData<S>],
    pub cut: &'w Cut,
    pub epoch: EpochNumber,
    /// The cut of the previous checkpoint, or 0.
    pub before: EpochNumber,
    pub fuzzy: bool,
    pub device: &'w dyn Device,
    pub uuid: [u8; 16],
    pub number: u64,
    pub parts: &'w [(usize, PathBuf)],
    pub pace: &'w Pace<'w>,
    pub block_bytes: usize,
}

impl<S: Stamp> Writing<'_, S> {
    /// Writes all parts and makes them durable, including their directory entries.
    pub fn run(&self) -> Result<WrittenParts, Error> {
        let Writing { tables, cut, pace, epoch, fuzzy, before, block_bytes, .. } = *self;
        let choice = RowChoice { epoch, fuzzy, before };
        let source = RowSource::new(tables, (cut, pace), choice, block_bytes, self.parts.len());
        let parts = self.on_all_parts(|part, failed| self.write_part(part, &source, failed))?;
        for (_, path) in self.parts {
            let dir = path.parent().unwrap_or(Path::new("."));
            self.device.sync_dir(dir).map_err(io(dir, "sync the directory"))?;
        }
        Ok(WrittenParts { parts, changed_rows: source.changed() })
    }

    /// Reads all parts back from the device and checks that every row was stored as written. Only
    /// then may the replaced files be removed.
    pub fn read_back(&self, written: &WrittenParts) -> Result<(), Error> {
        let places = self.tables.iter().enumerate().map(|(at, table)| (table.log_id, at)).collect();
        let read = |part: usize, failed: &AtomicBool| {
            self.read_part(part, &written.parts[part], &places, failed).map_err(|error| match error
            {
                // The error for opening a database does not fit: nothing depends on the new file
                // yet.
                Error::Checkpoint { path, offset, message } => {
                    Error::CheckpointRefused { path, offset, message }
                }
                error => error,
            })
        };
        self.on_all_parts(read).map(|_| ())
    }

    /// Runs `work` on every part in parallel, one thread per part. `work` also gets a flag, set
    /// once `work` has failed on another part.
    fn on_all_parts<T: Send>(
        &self,
        work: impl Fn(usize, &AtomicBool) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let failed = AtomicBool::new(false);
        let work = |part: usize| {
            let stop = StopsOthers(&failed);
            let result = work(part, &failed)?;
            std::mem::forget(stop);
            Ok(result)
        };
        let work = &work;
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..self.parts.len()).map(|part| scope.spawn(move || work(part))).collect();
            let first = work(0);
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            std::iter::once(first).chain(others.into_iter().map(join)).collect()
        })
    }

    fn id(&self, part: usize) -> PartId {
        PartId { uuid: self.uuid, number: self.number, part: part as u32, cut: self.epoch }
    }

    fn write_part(
        &self,
        part: usize,
        source: &RowSource<'_, S>,
        failed: &AtomicBool,
    ) -> Result<Written, Error> {
        let mut file = PartFile::create(self.device, &self.parts[part].1, self.id(part))?;
        let (mut scan, mut rows) = (source.scan(), RowBlock::default());
        while !failed.load(Ordering::Relaxed) {
            let began = self.pace.begin()?;
            match scan.next(&mut rows) {
                Next::Block => file.write(&rows)?,
                Next::Wait => {
                    std::thread::sleep(WAIT);
                    continue;
                }
                Next::End => break,
            }
            // Sessions waiting for room in the side buffer must not be delayed by the pace.
            let urgent = || self.cut.held() as usize >= 8 * BLOCK_BYTES || !self.cut.has_room();
            self.pace.rest(began, urgent);
        }
        file.finish()
    }

    fn read_part(
        &self,
        part: usize,
        written: &Written,
        places: &HashMap<u32, usize>,
        failed: &AtomicBool,
    ) -> Result<(), Error> {
        let path = &self.parts[part].1;
        // Drop the page cache, so the data is read from the device.
        written.file.drop_cached();
        let (id, extent) = (self.id(part), written.extent);
        let mut reader = PartReader::new(written.file.clone(), path, id, extent)?;
        let (mut block, mut content) = (Block::default(), Vec::new());
        let (mut checksum, mut since) = (0, 0);
        let mut began = self.pace.begin()?;
        while !failed.load(Ordering::Relaxed) {
            if !reader.next(&mut block)? {
                if checksum != written.checksum {
                    let what = "its rows are not the ones that were written";
                    return Err(refused(path, extent.bytes, what));
                }
                break;
            }
            let (rows, count) = block.content(id, path, &mut content)?;
            checksum = crc32c::crc32c_append(checksum, rows);
            self.read_rows(rows, count, places).ok_or_else(|| {
                refused(path, block.offset, "a row that was written cannot be read")
            })?;
            since += rows.len();
            if since >= BLOCK_BYTES {
                self.pace.rest(began, || false);
                (began, since) = (self.pace.begin()?, 0);
            }
        }
        Ok(())
    }

    /// Decodes the rows of a block; `None` unless the block holds exactly `rows` valid rows of the
    /// tables.
    fn read_rows(&self, mut rest: &[u8], rows: u32, places: &HashMap<u32, usize>) -> Option<()> {
        let shape = |id: u64| {
            let table = &self.tables[*places.get(&u32::try_from(id).ok()?)?];
            let (layout, keyless) = (&table.layout, table.keyless);
            Some(TableShape { layout, keyless, key_bytes: table.key_bytes })
        };
        for _ in 0..rows {
            take_tid(&mut rest)?;
            let (_, _, Change::Put(_)) = take_change(&mut rest, shape)? else { return None };
        }
        rest.is_empty().then_some(())
    }
}
