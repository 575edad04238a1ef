//! The table of experiments, with a file for each paper.

mod breakdown;
mod command_logging;
mod concurrency;
mod curve;
mod deuteronomy;
mod deuteronomy_more;
mod poplar;
mod setup;
mod shapes;
pub mod simulated;
mod taurus_2016;
mod taurus_2016_loggers;
mod taurus_2016_threads;
mod taurus_2020;
mod taurus_2020_memory;
mod taurus_2020_more;
mod taurus_2020_orders;
mod taurus_2020_vectors;
mod vectors_alone;

use crate::experiment::{Experiment, Run};
use crate::metric::Metric;
use crate::scale::{Rates, Setup, Size};
use serde_json::Value;
pub use setup::RUN_DIR;
use setup::Table;

/// All experiments, in the order of the report.
pub fn all(setup: &Setup) -> Vec<Experiment> {
    let table = Table::of(setup);
    let slow = Size { seconds: setup.size.device_seconds, ..setup.size };
    let slow = Table { size: slow, ..Table::of(setup) };
    let mut out = taurus_2020::experiments(&table, &slow);
    out.push(taurus_2020_orders::experiment(&slow));
    out.extend(taurus_2020_memory::experiments(&table));
    out.extend(taurus_2020_more::experiments(&table));
    out.extend(taurus_2020_vectors::experiments(&table));
    out.extend(taurus_2016::experiments(&table, &slow));
    out.extend(poplar::experiments(&table, &slow));
    out.extend(command_logging::experiments(&table));
    out.extend(concurrency::experiments(&table));
    out.extend(deuteronomy::experiments(&table));
    out.extend(deuteronomy_more::experiments(&table));
    out.extend(shapes::experiments(&table));
    out.extend(simulated::experiments(&table));
    out
}

/// The number of runs that fix offered loads.
pub const CALIBRATIONS: usize = 5;

/// The runs that fix offered loads: YCSB, Payment, New-Order, and the workloads of command logging,
/// as loads are offered to them.
pub fn calibration(setup: &Setup) -> [Run; CALIBRATIONS] {
    let table = Table::of(setup);
    let to_memory = "--protocol taurus --record command --device memory";
    let [ycsb, payment, new_order] =
        [("YCSB", table.ycsb()), ("Payment", table.payment()), ("New-Order", table.new_order())]
            .map(|(name, command)| command.with(to_memory).run(name, "Taurus command", 0.0));
    let [tpcc, voter] = command_logging::load::highest(&table);
    [ycsb, payment, new_order, tpcc, voter]
}

/// The rates of the runs of [`calibration`]; none if a run failed.
pub fn rates(results: [Option<&Value>; CALIBRATIONS]) -> Option<Rates> {
    let [ycsb, payment, new_order, tpcc, voter] = results.map(|run| Metric::Throughput.of(run?));
    let measured = |rate: Option<f64>| rate.filter(|rate| *rate > 0.0);
    Some(Rates {
        ycsb: measured(ycsb)?,
        payment: measured(payment)?,
        new_order: measured(new_order)?,
        tpcc_commands: measured(tpcc)?,
        voter_commands: measured(voter)?,
    })
}
