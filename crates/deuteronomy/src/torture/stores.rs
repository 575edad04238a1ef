//! Data components that die with the process and leave the same state as a disk.

use crate::{DataComponent, DataLayer, Error, MemoryData};
use std::sync::Arc;

/// The data component in memory, with pieces of a batch taken one by one: a crash may come between
/// two pieces.
struct InPieces(Arc<MemoryData>);

impl DataLayer for InPieces {
    fn below(&self) -> &dyn DataComponent {
        &*self.0
    }

    fn may_cut(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

/// The storage of a data component, outliving the data component.
pub trait LivingStore {
    /// Opens the data component on the storage left by the last data component.
    ///
    /// # Errors
    /// The data component does not open.
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error>;
    /// Whether the data component of the next life may fail.
    fn arm(&mut self, _: &mut fastrand::Rng) -> bool {
        false
    }
    /// The process dies; with `power`, so does everything not synced.
    fn crash(&mut self, rng: &mut fastrand::Rng, power: bool);
    /// All keys and values, where the data component can tell.
    fn content(&self) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        None
    }
}

/// The data component in memory, with an arbitrary part of the applied operations kept at a crash.
#[derive(Debug)]
pub struct MemoryStore(Arc<MemoryData>);

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore(Arc::new(MemoryData::outliving()))
    }
}

impl LivingStore for MemoryStore {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        Ok(Arc::new(InPieces(self.0.clone())))
    }

    fn crash(&mut self, rng: &mut fastrand::Rng, _: bool) {
        let kept = [0.0, 0.3, 1.0][rng.usize(0..3)];
        self.0 = Arc::new(self.0.after_crash(|| rng.f64() < kept));
    }

    fn content(&self) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        Some(self.0.content().into_iter().map(|(key, _, value)| (key, value)).collect())
    }
}
