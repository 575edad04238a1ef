//! The bank as a [`Workload`].

use super::*;
use crate::Violation;
use crate::workload::{Calls, Outcome, Workload};
use hyades::{Builder, Database, Error, ProcedureId, Session, Table};

/// The bank workload.
#[derive(Debug)]
pub struct Bank {
    inputs: BankInputs,
    parts: Vec<BankPopulate>,
    handles: Option<(BankTables, BankProcedures)>,
}

#[derive(Clone, Copy, Debug)]
struct BankProcedures {
    populate: ProcedureId,
    transfer: ProcedureId,
    audit: ProcedureId,
}

impl Bank {
    /// # Panics
    /// As [`BankInputs::new`].
    pub fn new(config: BankConfig) -> Bank {
        Bank { parts: parts(&config), inputs: BankInputs::new(config), handles: None }
    }

    /// The tables, once declared.
    pub fn tables(&self) -> &BankTables {
        &self.handles.as_ref().expect("declare() comes first").0
    }

    fn procedures(&self) -> &BankProcedures {
        &self.handles.as_ref().expect("declare() comes first").1
    }
}

impl Workload for Bank {
    type Input = BankInput;

    fn name(&self) -> &'static str {
        "bank"
    }

    fn declare(&mut self, builder: &mut Builder) {
        let tables = BankTables::declare(|schema| builder.table(schema));
        let procedures = BankProcedures {
            populate: builder
                .procedure("bank_populate", 1, move |tx, call| populate(tx, &tables, &call)),
            transfer: builder
                .procedure("bank_transfer", 1, move |tx, call| transfer(tx, &tables, &call)),
            audit: builder.procedure("bank_audit", 1, move |tx, ()| audit(tx, &tables)),
        };
        self.handles = Some((tables, procedures));
    }

    fn largest_table(&self) -> Table {
        self.tables().accounts.untyped()
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn load(&self, session: &mut Session, part: usize) -> Outcome {
        session.call(self.procedures().populate, &self.parts[part])
    }

    fn draw(&self, rng: &mut Rng, _: usize, into: &mut BankInput) {
        self.inputs.draw(rng, into);
    }

    fn run<C: Calls>(&self, calls: &mut C, input: &BankInput) -> Result<C::Called, Error> {
        match input {
            BankInput::Audit => calls.call(self.procedures().audit, &()),
            BankInput::Transfer(call) => calls.call(self.procedures().transfer, call),
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["transfer", "audit"]
    }

    fn kind(&self, input: &BankInput) -> usize {
        matches!(input, BankInput::Audit) as usize
    }

    fn expects(&self, abort: Abort) -> bool {
        abort == Abort::User(SHORT_OF_MONEY)
    }

    fn check(&self, database: &Database) -> Result<Option<Vec<Violation>>, Error> {
        check(database, self.tables(), self.inputs.config()).map(Some)
    }
}
