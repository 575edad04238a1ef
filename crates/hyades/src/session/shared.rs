//! State shared by the sessions of a database: the engine, the concurrency control, and further
//! parts.

use super::removed::RemovedRows;
use crate::concurrency::partitions::PartitionStamps;
use crate::concurrency::{Commits, ConcurrencyControl};
use crate::engine::Engine;
use crate::garbage::OrphanedGarbage;
use crate::logging::LoggingProtocol;
use crate::retry::{Gate, RetrySettings};
use crate::tally::Tallies;

pub(crate) struct Sessions<C: ConcurrencyControl<P>, P: LoggingProtocol> {
    pub engine: Engine<P, C::Row>,
    pub control: C,
    pub tallies: Tallies,
    pub orphaned: OrphanedGarbage,
    /// Closed while a starving transaction runs alone.
    pub gate: Gate,
    pub retries: RetrySettings,
    pub removed: RemovedRows,
    /// A single thread runs transactions of several sessions inside each other, in simulations.
    pub nests: bool,
    /// Each session keeps to a single stream.
    pub keeps_streams: bool,
}

impl<C: ConcurrencyControl<P>, P: LoggingProtocol> Sessions<C, P> {
    pub fn new(
        engine: Engine<P, C::Row>,
        control: C,
        retries: RetrySettings,
        removed_limit: u64,
    ) -> Self {
        Sessions {
            engine,
            control,
            tallies: Tallies::default(),
            orphaned: OrphanedGarbage::default(),
            gate: Gate::default(),
            retries,
            removed: RemovedRows { limit: removed_limit },
            nests: false,
            keeps_streams: false,
        }
    }
}

impl<C: Commits<P>, P: LoggingProtocol> Sessions<C, P> {
    /// Returns the partitions whose transactions take turns.
    ///
    /// # Panics
    /// If no transactions take turns. Called only where calls are logged before execution.
    #[inline(always)]
    pub fn partitions(&self) -> &PartitionStamps<P::RowStamp> {
        self.control.partitions().expect("calls are logged first where transactions take turns")
    }
}
