//! Settings and tables with which the databases of a history are opened.

use crate::plan::{Combination, Plan};
use crate::program::{self, Program};
use crate::{checkpoints, schema};
use fastrand::Rng;
use hyades::{Builder, Database, Partitions, ProcedureId, Transaction};
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
            plan.shape.writing(&mut Rng::with_seed(settings ^ 0xF1A5), log);
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
    // Each opening spreads the rows in another way, over another number of partitions.
    let mut rng = Rng::with_seed(settings ^ 0x9A27);
    builder = builder.partitions(1 << rng.u32(0..7));
    schema::declare(&mut builder, tables, &mut rng);
    let run = move |tx: &Transaction<'_>, program: Program| program::run(tx, tables, &program);
    let procedure = builder.procedure("program", 1, run);
    if rng.bool() {
        builder.on(procedure, |(id,): (u64,)| stated(id));
    }
    (builder, procedure)
}

/// Partitions that a program is said to access, with the first of its arguments: all, none, or some
/// that it may not need.
fn stated(id: u64) -> Partitions {
    match id % 5 {
        0 => Partitions::ALL,
        1 => Partitions::default(),
        2 | 3 => Partitions::of(id),
        _ => Partitions::of(id).with(id / 7),
    }
}
