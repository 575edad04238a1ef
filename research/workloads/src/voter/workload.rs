//! Voter as a [`Workload`].

use super::*;
use crate::Violation;
use crate::workload::{Calls, Outcome, Workload};
use fastrand::Rng;
use hyades::{Builder, Database, Error, Partitions, ProcedureId, Session};

/// The Voter workload.
#[derive(Debug)]
pub struct Voter {
    config: VoterConfig,
    handles: Option<(VoterTables, VoterProcedures)>,
}

#[derive(Clone, Copy, Debug)]
struct VoterProcedures {
    populate: ProcedureId,
    vote: ProcedureId,
}

impl Voter {
    /// # Panics
    /// If there is no contestant, or the limit is not above 0.
    pub fn new(config: VoterConfig) -> Voter {
        assert!(config.contestants > 0, "Voter needs a contestant");
        assert!(config.limit.is_none_or(|limit| limit > 0), "a caller may vote at least once");
        Voter { config, handles: None }
    }

    /// The tables, once declared.
    pub fn tables(&self) -> &VoterTables {
        &self.handles.as_ref().expect("declare() comes first").0
    }

    fn procedures(&self) -> &VoterProcedures {
        &self.handles.as_ref().expect("declare() comes first").1
    }
}

impl Workload for Voter {
    type Input = Ballot;

    fn name(&self) -> &'static str {
        "voter"
    }

    fn declare(&mut self, builder: &mut Builder) {
        let t = VoterTables::declare(|schema| builder.table(schema));
        let procedures = VoterProcedures {
            populate: builder.procedure("voter_populate", 1, move |tx, c| populate(tx, &t, &c)),
            vote: builder.procedure("voter_vote", 1, move |tx, c| vote(tx, &t, &c)),
        };
        builder.on(procedures.vote, |(phone,): (i64,)| Partitions::of(phone));
        self.handles = Some((t, procedures));
    }

    fn largest_table(&self) -> Table {
        self.tables().votes.untyped()
    }

    fn parts(&self) -> usize {
        1
    }

    fn load(&self, session: &mut Session, _: usize) -> Outcome {
        let call = VoterPopulate { contestants: self.config.contestants };
        session.call(self.procedures().populate, &call)
    }

    /// Any number of any area code. One in 100 names a contestant that does not exist.
    fn draw(&self, rng: &mut Rng, _: usize, into: &mut Ballot) {
        let phone = i64::from(rng.i32(AREA_CODES)) * NUMBERS + rng.i64(0..NUMBERS);
        let contestant = match rng.u32(..100) {
            0 => self.config.contestants + 1,
            _ => rng.i32(1..=self.config.contestants),
        };
        *into = Ballot { phone, contestant, limit: self.config.limit.unwrap_or(0) };
    }

    fn run<C: Calls>(&self, calls: &mut C, input: &Ballot) -> Result<C::Called, Error> {
        calls.call(self.procedures().vote, input)
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["vote"]
    }

    fn kind(&self, _: &Ballot) -> usize {
        0
    }

    fn expects(&self, _: Abort) -> bool {
        false
    }

    fn check(&self, database: &Database) -> Result<Option<Vec<Violation>>, Error> {
        check(database, self.tables(), &self.config).map(Some)
    }
}
