//! A file of a simulated disk as memory: stores wait in the caches, by lines, for their flush.
//!
//! At a power cut each line that was not flushed, or whose flush no fence has followed, is on the
//! medium or not, by itself; a few are torn. What a fence has followed is there. The process may
//! die within a store, or before or after a fence. Memory has no errors of its own: it is the
//! process that ends.

use super::SimulatedFile;
use crate::device::FileMemory;
use crate::sync::locked;
use std::io;
use std::ops::Range;

#[derive(Debug)]
pub(super) struct SimulatedMemory {
    file: SimulatedFile,
    length: u64,
    /// When the first store since the last fence began: one write, as the medium counts.
    began: Option<u64>,
}

impl SimulatedMemory {
    pub fn new(file: SimulatedFile, length: u64) -> Self {
        Self { file, length, began: None }
    }

    fn check(&self, bytes: &Range<u64>) {
        assert!(
            bytes.start <= bytes.end && bytes.end <= self.length,
            "{bytes:?} is beyond a mapping of {} bytes",
            self.length
        );
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut medium = self.file.state.medium()?;
        let began = *self.began.get_or_insert(medium.now);
        medium.body_mut(self.file.file)?.store(began, offset as usize, bytes);
        Ok(())
    }
}

impl FileMemory for SimulatedMemory {
    fn length(&self) -> u64 {
        self.length
    }

    fn persists(&self) -> bool {
        true
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(&(offset..offset + bytes.len() as u64));
        if self.file.state.survives() {
            return self.put(offset, bytes);
        }
        let some = locked(&self.file.state.plan).random.below(bytes.len() as u64 + 1) as usize;
        self.put(offset, &bytes[..some])?;
        Err(self.file.state.die())
    }

    fn flush(&mut self, bytes: Range<u64>) -> io::Result<()> {
        self.check(&bytes);
        let mut medium = self.file.state.medium()?;
        medium.body_mut(self.file.file)?.flush(bytes.start as usize..bytes.end as usize);
        Ok(())
    }

    fn fence(&mut self) -> io::Result<()> {
        let state = &self.file.state;
        state.pace(&self.file.path);
        let survives = state.survives();
        let lies = locked(&state.plan).lying;
        if !lies && (survives || locked(&state.plan).random.chance(0.5)) {
            state.medium()?.body_mut(self.file.file)?.fence();
        }
        self.began = None;
        if survives { Ok(()) } else { Err(state.die()) }
    }
}
