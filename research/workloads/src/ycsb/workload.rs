//! YCSB as a [`Workload`].

use super::*;
use crate::workload::{Calls, Outcome, Workload};
use crate::{MISSING_ROW, Violation};
use hyades::{Abort, Builder, Database, Error, Partitions, ProcedureId, Session, Table};

/// The YCSB workload.
#[derive(Debug)]
pub struct Ycsb {
    inputs: YcsbInputs,
    parts: Vec<YcsbPopulate>,
    procedures: Option<YcsbProcedures>,
}

#[derive(Clone, Copy, Debug)]
struct YcsbProcedures {
    /// The table of all procedures.
    table: Table,
    populate: ProcedureId,
    access: ProcedureId,
    access_all: ProcedureId,
    access_given: ProcedureId,
    store: ProcedureId,
    store_given: ProcedureId,
    insert: ProcedureId,
    scan: ProcedureId,
    modify: ProcedureId,
    write_and_scan: ProcedureId,
}

impl Ycsb {
    /// # Panics
    /// As [`YcsbInputs::new`].
    pub fn new(config: YcsbConfig) -> Ycsb {
        Ycsb { parts: parts(&config), inputs: YcsbInputs::new(config), procedures: None }
    }

    fn procedures(&self) -> &YcsbProcedures {
        self.procedures.as_ref().expect("declare() comes first")
    }
}

impl Workload for Ycsb {
    type Input = YcsbInput;

    fn name(&self) -> &'static str {
        "ycsb"
    }

    fn declare(&mut self, builder: &mut Builder) {
        let config = self.inputs.config();
        let schema = schema(config.is_ordered());
        let is_partitioned = config.remote.is_some();
        let schema = if is_partitioned { schema.partition_by("key") } else { schema };
        let table = Users::of(builder.table(schema));
        // Reads leave no trace in the database, so reads may be a setting.
        let reads = config.reads;
        let procedures = YcsbProcedures {
            table: table.untyped(),
            populate: builder
                .procedure("ycsb_populate", 1, move |tx, call| populate(tx, table, &call)),
            access: builder
                .procedure("ycsb_access", 1, move |tx, call| access(tx, table, &call, reads)),
            access_all: builder
                .procedure("ycsb_access_all", 1, move |tx, c| access_all(tx, table, &c, reads)),
            access_given: builder
                .procedure("ycsb_access_given", 1, move |tx, c| access_given(tx, table, &c, reads)),
            store: builder.procedure("ycsb_store", 1, move |tx, call| store(tx, table, &call)),
            store_given: builder
                .procedure("ycsb_store_given", 1, move |tx, call| store_given(tx, table, &call)),
            insert: builder.procedure("ycsb_insert", 1, move |tx, call| insert(tx, table, &call)),
            scan: builder.procedure("ycsb_scan", 1, move |tx, call| scan(tx, table, &call)),
            modify: builder.procedure("ycsb_modify", 1, move |tx, call| modify(tx, table, &call)),
            write_and_scan: builder
                .procedure("ycsb_write_and_scan", 1, move |tx, c| write_and_scan(tx, table, &c)),
        };
        if is_partitioned {
            for procedure in [procedures.access, procedures.access_all, procedures.store] {
                builder.on(procedure, |call: Accesses| partitions(&call));
            }
            for procedure in [procedures.access_given, procedures.store_given] {
                builder.on(procedure, |call: Given| partitions(&call.accesses));
            }
            builder.on(procedures.populate, |_: YcsbPopulate| Partitions::ALL);
        }
        self.procedures = Some(procedures);
    }

    fn largest_table(&self) -> Table {
        self.procedures().table
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn load(&self, session: &mut Session, part: usize) -> Outcome {
        session.call(self.procedures().populate, &self.parts[part])
    }

    fn draw(&self, rng: &mut Rng, _: usize, into: &mut YcsbInput) {
        self.inputs.draw(rng, into);
    }

    fn run<C: Calls>(&self, calls: &mut C, input: &YcsbInput) -> Result<C::Called, Error> {
        let procedures = self.procedures();
        match input.operation {
            Operation::Access => calls.call(procedures.access, &input.given.accesses),
            Operation::AccessAll => calls.call(procedures.access_all, &input.given.accesses),
            Operation::AccessGiven => calls.call(procedures.access_given, &input.given),
            Operation::Store => calls.call(procedures.store, &input.given.accesses),
            Operation::StoreGiven => calls.call(procedures.store_given, &input.given),
            Operation::Insert => calls.call(procedures.insert, &input.insert),
            Operation::Scan => calls.call(procedures.scan, &input.scan),
            Operation::Modify => calls.call(procedures.modify, &input.modify),
            Operation::WriteAndScan => calls.call(procedures.write_and_scan, &input.write_and_scan),
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["read", "write", "insert", "scan", "modify", "write and scan"]
    }

    fn kind(&self, input: &YcsbInput) -> usize {
        match input.operation {
            Operation::Access | Operation::AccessAll | Operation::AccessGiven => {
                input.given.accesses.rows.iter().any(|row| row.is_write()) as usize
            }
            Operation::Store | Operation::StoreGiven => 1,
            Operation::Insert => 2,
            Operation::Scan => 3,
            Operation::Modify => 4,
            Operation::WriteAndScan => 5,
        }
    }

    /// Mix D reads rows whose insert may still be in progress.
    fn expects(&self, abort: Abort) -> bool {
        abort == Abort::User(MISSING_ROW) && self.inputs.config().standard == Some(Standard::D)
    }

    fn check(&self, _: &Database) -> Result<Option<Vec<Violation>>, Error> {
        Ok(None)
    }
}
