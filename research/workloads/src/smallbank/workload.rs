//! SmallBank as a [`Workload`].

use super::*;
use crate::Violation;
use crate::workload::{Calls, Outcome, Workload};
use fastrand::Rng;
use hyades::{Builder, Database, Error, ProcedureId, Session};

/// The SmallBank workload.
#[derive(Debug)]
pub struct SmallBank {
    inputs: SmallBankInputs,
    parts: Vec<SmallBankPopulate>,
    handles: Option<(SmallBankTables, SmallBankProcedures)>,
}

#[derive(Clone, Copy, Debug)]
struct SmallBankProcedures {
    populate: ProcedureId,
    balance: ProcedureId,
    deposit_checking: ProcedureId,
    transact_savings: ProcedureId,
    amalgamate: ProcedureId,
    write_check: ProcedureId,
    send_payment: ProcedureId,
}

impl SmallBank {
    /// # Panics
    /// As [`SmallBankInputs::new`].
    pub fn new(config: SmallBankConfig) -> SmallBank {
        SmallBank { parts: parts(&config), inputs: SmallBankInputs::new(config), handles: None }
    }

    /// The tables, once declared.
    pub fn tables(&self) -> &SmallBankTables {
        &self.handles.as_ref().expect("declare() comes first").0
    }

    fn procedures(&self) -> &SmallBankProcedures {
        &self.handles.as_ref().expect("declare() comes first").1
    }
}

impl Workload for SmallBank {
    type Input = SmallBankInput;

    fn name(&self) -> &'static str {
        "smallbank"
    }

    fn declare(&mut self, builder: &mut Builder) {
        let t = SmallBankTables::declare(|schema| builder.table(schema));
        let procedures = SmallBankProcedures {
            populate: builder.procedure("smallbank_populate", 1, move |tx, c| populate(tx, &t, &c)),
            balance: builder.procedure("smallbank_balance", 1, move |tx, c| balance(tx, &t, &c)),
            deposit_checking: builder.procedure("smallbank_deposit_checking", 1, move |tx, c| {
                deposit_checking(tx, &t, &c)
            }),
            transact_savings: builder.procedure("smallbank_transact_savings", 1, move |tx, c| {
                transact_savings(tx, &t, &c)
            }),
            amalgamate: builder
                .procedure("smallbank_amalgamate", 1, move |tx, c| amalgamate(tx, &t, &c)),
            write_check: builder
                .procedure("smallbank_write_check", 1, move |tx, c| write_check(tx, &t, &c)),
            send_payment: builder
                .procedure("smallbank_send_payment", 1, move |tx, c| send_payment(tx, &t, &c)),
        };
        self.handles = Some((t, procedures));
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

    fn draw(&self, rng: &mut Rng, _: usize, into: &mut SmallBankInput) {
        self.inputs.draw(rng, into);
    }

    fn run<C: Calls>(&self, calls: &mut C, input: &SmallBankInput) -> Result<C::Called, Error> {
        let procedures = self.procedures();
        match input {
            SmallBankInput::Balance(call) => calls.call(procedures.balance, call),
            SmallBankInput::DepositChecking(call) => calls.call(procedures.deposit_checking, call),
            SmallBankInput::TransactSavings(call) => calls.call(procedures.transact_savings, call),
            SmallBankInput::Amalgamate(call) => calls.call(procedures.amalgamate, call),
            SmallBankInput::WriteCheck(call) => calls.call(procedures.write_check, call),
            SmallBankInput::SendPayment(call) => calls.call(procedures.send_payment, call),
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        &SmallBankInput::KINDS
    }

    fn kind(&self, input: &SmallBankInput) -> usize {
        input.kind()
    }

    fn expects(&self, abort: Abort) -> bool {
        abort == Abort::User(INSUFFICIENT_FUNDS)
    }

    fn check(&self, database: &Database) -> Result<Option<Vec<Violation>>, Error> {
        check(database, self.tables(), self.inputs.config()).map(Some)
    }
}
