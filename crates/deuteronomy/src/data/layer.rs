//! A layer over a data component: for counting, failing in tests, or encoding values, say.

use crate::data_component::{
    DataComponent, DataSnapshot, Found, KeyRange, Limits, Operation, ResumePoint, ScanOrder,
};
use crate::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A data component over another data component: each method is the method of [`DataComponent`],
/// and by default calls the component below.
pub trait DataLayer: Send + Sync {
    /// The data component below.
    fn below(&self) -> &dyn DataComponent;

    /// [`DataComponent::get`].
    ///
    /// # Errors
    /// The errors of the data component below.
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        self.below().get(key)
    }

    /// [`DataComponent::scan`].
    ///
    /// # Errors
    /// The errors of the data component below.
    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.below().scan(range, order, each)
    }

    /// [`DataComponent::apply`].
    ///
    /// # Errors
    /// The errors of the data component below.
    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        self.below().apply(batch)
    }

    /// [`DataComponent::may_cut`].
    fn may_cut(&self, last: &[u8], next: &[u8]) -> bool {
        self.below().may_cut(last, next)
    }

    /// [`DataComponent::checkpoint`].
    ///
    /// # Errors
    /// The errors of the data component below.
    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        self.below().checkpoint(point)
    }

    /// [`DataComponent::resume_point`].
    ///
    /// # Errors
    /// The errors of the data component below.
    fn resume_point(&self) -> Result<Option<ResumePoint>, Error> {
        self.below().resume_point()
    }

    /// [`DataComponent::highest_ts`].
    ///
    /// # Errors
    /// The errors of the data component below.
    fn highest_ts(&self) -> Result<u64, Error> {
        self.below().highest_ts()
    }

    /// [`DataComponent::forget_below`].
    ///
    /// # Errors
    /// The errors of the data component below.
    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        self.below().forget_below(ts)
    }

    /// [`DataComponent::snapshot`]: a layer that changes operations on their way changes the
    /// operations of a snapshot, too.
    ///
    /// # Errors
    /// The errors of the data component below.
    fn snapshot(&self) -> Result<Option<Arc<dyn DataSnapshot>>, Error> {
        self.below().snapshot()
    }

    /// [`DataComponent::limits`]; lower limits if values grow on the way down.
    fn limits(&self) -> Limits {
        self.below().limits()
    }
}

impl<L: DataLayer> DataComponent for L {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        DataLayer::get(self, key)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        DataLayer::scan(self, range, order, each)
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        DataLayer::apply(self, batch)
    }

    fn may_cut(&self, last: &[u8], next: &[u8]) -> bool {
        DataLayer::may_cut(self, last, next)
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        DataLayer::checkpoint(self, point)
    }

    fn resume_point(&self) -> Result<Option<ResumePoint>, Error> {
        DataLayer::resume_point(self)
    }

    fn highest_ts(&self) -> Result<u64, Error> {
        DataLayer::highest_ts(self)
    }

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        DataLayer::forget_below(self, ts)
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn DataSnapshot>>, Error> {
        DataLayer::snapshot(self)
    }

    fn limits(&self) -> Limits {
        DataLayer::limits(self)
    }
}
