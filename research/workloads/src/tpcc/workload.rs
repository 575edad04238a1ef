//! TPC-C as a [`Workload`].

use super::*;
use crate::Violation;
use crate::workload::{Calls, Outcome, Workload};
use fastrand::Rng;
use hyades::{Builder, Database, Error, Partitions, ProcedureId, Session, Table};

/// Settings of the workload.
#[derive(Clone, Copy, Debug)]
pub struct TpccConfig {
    /// The number of rows.
    pub scale: Scale,
    /// The mix of transactions.
    pub mix: Mix,
    /// The choice of warehouses.
    pub home: Home,
    /// The share of New-Orders and Payments that use a second warehouse, 0 to 1; `None` as
    /// specified.
    pub remote: Option<f64>,
    /// The source of dates in inputs.
    pub clock: Clock,
    /// The seed of the population and of the constants of NURand.
    pub seed: u64,
}

impl TpccConfig {
    /// A full-sized TPC-C with this many warehouses, full mix.
    pub fn new(warehouses: i32) -> TpccConfig {
        TpccConfig {
            scale: Scale::full(warehouses),
            mix: Mix::Full,
            home: Home::Any,
            remote: None,
            clock: Clock::Wall,
            seed: 1,
        }
    }
}

/// The date of the population: 1 January 2020.
const POPULATION_DATE_US: i64 = 1_577_836_800_000_000;

/// The TPC-C workload.
#[derive(Debug)]
pub struct Tpcc {
    config: TpccConfig,
    inputs: TpccInputs,
    parts: Vec<PopulationPart>,
    handles: Option<(TpccTables, TpccProcedures)>,
}

#[derive(Clone, Copy, Debug)]
struct TpccProcedures {
    populate: ProcedureId,
    new_order: ProcedureId,
    payment: ProcedureId,
    order_status: ProcedureId,
    delivery: ProcedureId,
    stock_level: ProcedureId,
}

impl Tpcc {
    /// # Panics
    /// If there are no warehouses, items or customers.
    pub fn new(config: TpccConfig) -> Tpcc {
        let TpccConfig { scale, mix, home, remote, clock, seed } = config;
        assert!(
            scale.warehouses > 0 && scale.items > 0 && scale.customers > 0,
            "TPC-C needs at least one warehouse, item and customer"
        );
        let inputs =
            TpccInputs { scale, mix, home, remote, clock, constants: Constants::new(seed) };
        Tpcc { config, inputs, parts: parts(&scale), handles: None }
    }

    /// The tables, once declared.
    pub fn tables(&self) -> &TpccTables {
        &self.handles.as_ref().expect("declare() comes first").0
    }

    fn procedures(&self) -> &TpccProcedures {
        &self.handles.as_ref().expect("declare() comes first").1
    }
}

impl Workload for Tpcc {
    type Input = TpccInput;

    fn name(&self) -> &'static str {
        "tpcc"
    }

    fn declare(&mut self, builder: &mut Builder) {
        let t = TpccTables::declare(|schema| builder.table(schema));
        let procedures = TpccProcedures {
            populate: builder.procedure("tpcc_populate", 1, move |tx, c| populate(tx, &t, &c)),
            new_order: builder.procedure("tpcc_new_order", 1, move |tx, c| new_order(tx, &t, &c)),
            payment: builder.procedure("tpcc_payment", 1, move |tx, c| payment(tx, &t, &c)),
            order_status: builder
                .procedure("tpcc_order_status", 1, move |tx, c| order_status(tx, &t, &c)),
            delivery: builder.procedure("tpcc_delivery", 1, move |tx, c| delivery(tx, &t, &c)),
            stock_level: builder
                .procedure("tpcc_stock_level", 1, move |tx, c| stock_level(tx, &t, &c)),
        };
        builder.on(procedures.new_order, |order: NewOrder| {
            let supplying = order.lines.iter().map(|line| line.supply_w);
            supplying.fold(Partitions::of(order.w), |held, warehouse| held.with(warehouse))
        });
        builder.on(procedures.payment, |(w, _, c_w): (i32, i32, i32)| Partitions::of(w).with(c_w));
        let of_warehouse = |(w,): (i32,)| Partitions::of(w);
        for procedure in [procedures.order_status, procedures.delivery, procedures.stock_level] {
            builder.on(procedure, of_warehouse);
        }
        self.handles = Some((t, procedures));
    }

    fn largest_table(&self) -> Table {
        self.tables().stock.untyped()
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn load(&self, session: &mut Session, part: usize) -> Outcome {
        let TpccConfig { scale, seed, .. } = self.config;
        let call =
            TpccPopulate { seed, scale, date_us: POPULATION_DATE_US, part: self.parts[part] };
        session.call(self.procedures().populate, &call)
    }

    fn draw(&self, rng: &mut Rng, worker: usize, into: &mut TpccInput) {
        self.inputs.draw(rng, worker, into);
    }

    fn run<C: Calls>(&self, calls: &mut C, input: &TpccInput) -> Result<C::Called, Error> {
        let procedures = self.procedures();
        match input {
            TpccInput::NewOrder(call) => calls.call(procedures.new_order, call),
            TpccInput::Payment(call) => calls.call(procedures.payment, call),
            TpccInput::OrderStatus(call) => calls.call(procedures.order_status, call),
            TpccInput::Delivery(call) => calls.call(procedures.delivery, call),
            TpccInput::StockLevel(call) => calls.call(procedures.stock_level, call),
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["new-order", "payment", "order-status", "delivery", "stock-level"]
    }

    fn kind(&self, input: &TpccInput) -> usize {
        input.kind()
    }

    fn expects(&self, abort: Abort) -> bool {
        abort == Abort::User(UNUSED_ITEM)
    }

    fn check(&self, database: &Database) -> Result<Option<Vec<Violation>>, Error> {
        let snapshot = Snapshot::read(database, self.tables(), &self.config.scale)?;
        Ok(Some(consistency::check(&snapshot)))
    }
}
