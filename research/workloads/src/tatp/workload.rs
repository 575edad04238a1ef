//! TATP as a [`Workload`].

use super::schema::TatpTables;
use super::*;
use crate::Violation;
use crate::workload::{Calls, Outcome, Workload};
use fastrand::Rng;
use hyades::{Abort, Builder, Database, Error, ProcedureId, Session, Table};

/// The TATP workload.
#[derive(Debug)]
pub struct Tatp {
    inputs: TatpInputs,
    parts: Vec<TatpPopulate>,
    handles: Option<(TatpTables, TatpProcedures)>,
}

#[derive(Clone, Copy, Debug)]
struct TatpProcedures {
    populate: ProcedureId,
    get_subscriber_data: ProcedureId,
    get_new_destination: ProcedureId,
    get_access_data: ProcedureId,
    update_subscriber_data: ProcedureId,
    update_location: ProcedureId,
    insert_call_forwarding: ProcedureId,
    delete_call_forwarding: ProcedureId,
}

impl Tatp {
    /// # Panics
    /// As [`TatpInputs::new`].
    pub fn new(config: TatpConfig) -> Tatp {
        Tatp { parts: parts(&config), inputs: TatpInputs::new(config), handles: None }
    }

    /// The tables, once declared.
    pub fn tables(&self) -> &TatpTables {
        &self.handles.as_ref().expect("declare() comes first").0
    }

    fn procedures(&self) -> &TatpProcedures {
        &self.handles.as_ref().expect("declare() comes first").1
    }
}

impl Workload for Tatp {
    type Input = TatpInput;

    fn name(&self) -> &'static str {
        "tatp"
    }

    fn declare(&mut self, builder: &mut Builder) {
        let t = TatpTables::declare(|schema| builder.table(schema));
        let procedures = TatpProcedures {
            populate: builder.procedure("tatp_populate", 1, move |tx, c| populate(tx, &t, &c)),
            get_subscriber_data: builder.procedure("tatp_get_subscriber_data", 1, move |tx, c| {
                get_subscriber_data(tx, &t, &c)
            }),
            get_new_destination: builder.procedure("tatp_get_new_destination", 1, move |tx, c| {
                get_new_destination(tx, &t, &c)
            }),
            get_access_data: builder
                .procedure("tatp_get_access_data", 1, move |tx, c| get_access_data(tx, &t, &c)),
            update_subscriber_data: builder.procedure(
                "tatp_update_subscriber_data",
                1,
                move |tx, c| update_subscriber_data(tx, &t, &c),
            ),
            update_location: builder
                .procedure("tatp_update_location", 1, move |tx, c| update_location(tx, &t, &c)),
            insert_call_forwarding: builder.procedure(
                "tatp_insert_call_forwarding",
                1,
                move |tx, c| insert_call_forwarding(tx, &t, &c),
            ),
            delete_call_forwarding: builder.procedure(
                "tatp_delete_call_forwarding",
                1,
                move |tx, c| delete_call_forwarding(tx, &t, &c),
            ),
        };
        self.handles = Some((t, procedures));
    }

    fn largest_table(&self) -> Table {
        self.tables().subscriber.untyped()
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn load(&self, session: &mut Session, part: usize) -> Outcome {
        session.call(self.procedures().populate, &self.parts[part])
    }

    fn draw(&self, rng: &mut Rng, _: usize, into: &mut TatpInput) {
        self.inputs.draw(rng, into);
    }

    fn run<C: Calls>(&self, calls: &mut C, input: &TatpInput) -> Result<C::Called, Error> {
        let procedures = self.procedures();
        match input {
            TatpInput::GetSubscriberData(call) => calls.call(procedures.get_subscriber_data, call),
            TatpInput::GetNewDestination(call) => calls.call(procedures.get_new_destination, call),
            TatpInput::GetAccessData(call) => calls.call(procedures.get_access_data, call),
            TatpInput::UpdateSubscriberData(call) => {
                calls.call(procedures.update_subscriber_data, call)
            }
            TatpInput::UpdateLocation(call) => calls.call(procedures.update_location, call),
            TatpInput::InsertCallForwarding(call) => {
                calls.call(procedures.insert_call_forwarding, call)
            }
            TatpInput::DeleteCallForwarding(call) => {
                calls.call(procedures.delete_call_forwarding, call)
            }
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        &TatpInput::KINDS
    }

    fn kind(&self, input: &TatpInput) -> usize {
        input.kind()
    }

    fn expects(&self, abort: Abort) -> bool {
        matches!(abort, Abort::User(NO_SUCH_ROW | ROW_EXISTS))
    }

    fn check(&self, database: &Database) -> Result<Option<Vec<Violation>>, Error> {
        check(database, self.tables(), self.inputs.config()).map(Some)
    }
}
