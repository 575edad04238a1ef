//! The partitions touched by an operation. Under a concurrency control by partitions each operation
//! enters them before looking for rows; under other concurrency controls the call compiles to
//! nothing.

use super::running::{Running, Tables};
use crate::concurrency::ConcurrencyControl;
use crate::concurrency::state::TxnState;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::storage::partition::TouchedPartitions;
use crate::storage::range::Range;
use crate::storage::value::Value;

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> Running<'s, C, P> {
    #[inline(always)]
    fn enter(
        &self,
        state: &mut TxnState<'s, C, P>,
        touched: impl FnOnce() -> TouchedPartitions,
    ) -> Result<(), Abort> {
        self.control.enter(state, touched)
    }

    /// For an access by primary key or row id, of the right types.
    #[inline(always)]
    pub(super) fn enter_key(
        &self,
        state: &mut TxnState<'s, C, P>,
        data: &Tables<C, P>,
        key: &[Value<'_>],
        writes: bool,
    ) -> Result<(), Abort> {
        self.enter(state, || data.partitions.of_key(key, writes))
    }

    /// For writing a row, of the right types.
    #[inline(always)]
    pub(super) fn enter_row(
        &self,
        state: &mut TxnState<'s, C, P>,
        data: &Tables<C, P>,
        row: &[Value<'_>],
    ) -> Result<(), Abort> {
        self.enter(state, || data.partitions.of_row(row))
    }

    /// For a check whether the key of a row is free in a unique index.
    #[inline(always)]
    pub(super) fn enter_unique(
        &self,
        state: &mut TxnState<'s, C, P>,
        data: &Tables<C, P>,
        index: usize,
    ) -> Result<(), Abort> {
        self.enter(state, || data.partitions.of_unique(&data.secondaries[index].columns))
    }

    /// For a scan with bounds of the right types.
    #[inline(always)]
    pub(super) fn enter_range(
        &self,
        state: &mut TxnState<'s, C, P>,
        data: &Tables<C, P>,
        index: Option<usize>,
        range: &Range<'_>,
    ) -> Result<(), Abort> {
        self.enter(state, || {
            let columns = index.map_or(&data.layout.key, |at| &data.secondaries[at].columns);
            data.partitions.of_range(columns, range)
        })
    }
}
