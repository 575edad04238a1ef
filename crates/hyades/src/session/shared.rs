//! State that the sessions of a database share, beside its engine.

use super::removed::RemovedRows;
use crate::engine::Engine;
use crate::garbage::OrphanedGarbage;
use crate::logging::LoggingProtocol;
use crate::retry::{Gate, RetrySettings};
use crate::tally::Tallies;

pub(crate) struct Sessions<P: LoggingProtocol> {
    pub engine: Engine<P>,
    pub tallies: Tallies,
    pub orphaned: OrphanedGarbage,
    /// Closed while a starving transaction runs alone.
    pub gate: Gate,
    pub retries: RetrySettings,
    pub removed: RemovedRows,
    /// One thread runs transactions of several sessions inside each other, in simulations.
    pub nests: bool,
    /// Each session keeps to one stream.
    pub keeps_streams: bool,
}

impl<P: LoggingProtocol> Sessions<P> {
    pub fn new(engine: Engine<P>, retries: RetrySettings, removed_limit: u64) -> Self {
        Sessions {
            engine,
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
