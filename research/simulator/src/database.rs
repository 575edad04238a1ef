//! Settings and tables with which the databases of a history are opened.

use crate::plan::{Combination, Plan};
use crate::program::{self, Program};
use crate::stated::stated as program_partitions;
use crate::traces::ProcedureTraces;
use crate::{checkpoints, schema};
use fastrand::Rng;
use hyades::{Builder, Database, Partitions, ProcedureId, Transaction};
use hyades_platform::device::SimulatedDevice;
use hyades_schemes::PARTITIONED;
use std::path::PathBuf;
use std::time::Duration;

/// The builder of a database on a simulated disk.
pub(crate) fn builder(
    plan: &Plan,
    combination: Combination,
    device: &SimulatedDevice,
    dirs: usize,
    settings: u64,
) -> (Builder, ProcedureId) {
    builder_tracing((plan, combination), device, dirs, settings, &ProcedureTraces::default())
}

/// As above, with traces: where calls are logged before they run, and where sites run calls, the
/// procedure leaves traces there.
pub(crate) fn builder_tracing(
    (plan, combination): (&Plan, Combination),
    device: &SimulatedDevice,
    dirs: usize,
    settings: u64,
    traces: &ProcedureTraces,
) -> (Builder, ProcedureId) {
    let mut rng = Rng::with_seed(settings);
    let mut builder = Database::builder()
        .protocol(combination.protocol)
        .concurrency(combination.concurrency)
        .record(combination.record)
        .streams(combination.streams)
        .log_settings(|log| {
            log.device = Some(plan.conduct.device(device, plan.stepped));
            log.buffer_bytes = 1 << rng.u32(13..17);
            log.segment_bytes = 1 << rng.u32(16..19);
            log.research.anchor_interval_bytes = [300, 1000, 10_000][rng.usize(0..3)];
            log.research.delta_bytes = [0, 0, 2000][rng.usize(0..3)];
            let interval = rng.u64(200..2000);
            log.flush_interval =
                (rng.u32(0..4) == 0 && !plan.stepped).then(|| Duration::from_micros(interval));
            log.research.stepped = plan.stepped;
            plan.shape.log_settings(&mut rng, (&plan.tables, combination.protocol), log);
            plan.shape.writing(&mut Rng::with_seed(settings ^ 0xF1A5), log);
            log.dirs = (1..dirs).map(|n| PathBuf::from(format!("/db{n}"))).collect();
        })
        .checkpoint_settings(|checkpoints| {
            let mut rng = Rng::with_seed(settings ^ 0xC4EC);
            checkpoints::settings(plan, &mut rng, checkpoints);
            plan.shape.checkpoint_settings(&mut rng, checkpoints);
            if !plan.stepped {
                // Each file has a thread.
                let mut rng = Rng::with_seed(settings ^ 0xF11E);
                checkpoints.files_per_dir = [1, 1, 2, 7][rng.usize(0..4)];
            }
        })
        .retries(|retries| {
            plan.retry_settings(settings, retries);
        });
    builder = plan.conduct.settings(builder);
    let tables = plan.tables;
    // Each opening spreads the rows in another way, over another number of partitions. Calls logged
    // before they ran state their partitions, so the rows stay in their partitions.
    let mut rng = spreading(settings);
    builder = builder.partitions(partitions(&mut rng));
    let sites = sites(plan, combination, settings);
    builder = sites.into_iter().fold(builder, Builder::sites);
    let states = plan.combination.calls_only();
    schema::declare(&mut builder, tables, (!states).then_some(&mut rng));
    // Where the procedure may run on threads of the database.
    let (traces, keeps) = (traces.clone(), combination.calls_only() || sites.is_some());
    let run = move |tx: &Transaction<'_>, program: Program| {
        let result = program::run(tx, tables, &program);
        if keeps {
            traces.put(program.id, program::take_trace());
        }
        result
    };
    let procedure = builder.procedure("program", 1, run);
    if states {
        builder.on(procedure, move |(program,): (Program,)| program_partitions(tables, &program));
        if !plan.stepped && combination.calls_only() && sites.is_none() && rng.bool() {
            builder = builder.post_threads(1 + rng.usize(0..3));
        }
    } else if rng.bool() {
        builder.on(procedure, |(id,): (u64,)| stated(id));
    }
    (builder, procedure)
}

/// The random numbers of an opening's spread of the rows.
fn spreading(settings: u64) -> Rng {
    Rng::with_seed(settings ^ 0x9A27)
}

fn partitions(spreading: &mut Rng) -> usize {
    1 << spreading.u32(0..7)
}

/// The most sites of a database.
const SITES: usize = 4;

/// The number of sites of an opening with these settings: up to [`SITES`], which stop for each
/// other's calls; none in most openings.
pub(crate) fn sites(plan: &Plan, combination: Combination, settings: u64) -> Option<usize> {
    let mut rng = Rng::with_seed(settings ^ 0x517E);
    let most = partitions(&mut spreading(settings)).min(SITES);
    let has_some = combination.concurrency == PARTITIONED && !plan.stepped;
    (has_some && rng.u32(0..3) == 0).then(|| rng.usize(1..most + 1))
}

/// The stated partitions of a program, with the first of its arguments: all, none, or some perhaps
/// without need.
fn stated(id: u64) -> Partitions {
    match id % 5 {
        0 => Partitions::ALL,
        1 => Partitions::default(),
        2 | 3 => Partitions::of(id),
        _ => Partitions::of(id).with(id / 7),
    }
}
