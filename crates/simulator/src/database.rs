//! Settings and tables with which the databases of a history are opened.

use crate::plan::{Combination, Plan};
use crate::program::{self, Program};
use crate::{checkpoints, schema};
use fastrand::Rng;
use hyades::{Builder, Database, ProcedureId, Transaction};
use hyades_platform::device::SimulatedDevice;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The builder of a database on a simulated disk.
pub(crate) fn builder(
    plan: &Plan,
    combination: Combination,
    device: &SimulatedDevice,
    dirs: usize,
    settings: u64,
) -> (Builder, ProcedureId) {
    let mut rng = Rng::with_seed(settings);
    let mut builder = Database::builder()
        .protocol(combination.protocol)
        .concurrency(combination.concurrency)
        .record(combination.record)
        .streams(combination.streams)
        .log_settings(|log| {
            log.device = Some(Arc::new(device.clone()));
            log.buffer_bytes = 1 << rng.u32(13..17);
            log.segment_bytes = 1 << rng.u32(16..19);
            log.research.anchor_interval_bytes = [300, 1000, 10_000][rng.usize(0..3)];
            log.research.delta_bytes = [0, 0, 2000][rng.usize(0..3)];
            let interval = rng.u64(200..2000);
            log.flush_interval =
                (rng.u32(0..4) == 0 && !plan.stepped).then(|| Duration::from_micros(interval));
            log.research.stepped = plan.stepped;
            plan.shape.log_settings(&mut rng, &plan.tables, log);
            log.dirs = (1..dirs).map(|n| PathBuf::from(format!("/db{n}"))).collect();
        })
        .checkpoint_settings(|checkpoints| {
            let mut rng = Rng::with_seed(settings ^ 0xC4EC);
            checkpoints::settings(plan, &mut rng, checkpoints);
            plan.shape.checkpoint_settings(&mut rng, checkpoints);
        })
        .retries(|retries| {
            plan.shape.retry_settings(&mut Rng::with_seed(settings ^ 0x4E74), retries);
        });
    let tables = plan.tables;
    schema::declare(&mut builder, tables);
    let run = move |tx: &Transaction<'_>, program: Program| program::run(tx, tables, &program);
    let procedure = builder.procedure("program", 1, run);
    (builder, procedure)
}
