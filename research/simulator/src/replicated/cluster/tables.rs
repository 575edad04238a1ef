//! The tables of a replicated database under torture, its settings, and the shape of a history.

use super::super::judge::ShownRows;
use super::super::service::{Lie, MS, NetFaults};
use fastrand::Rng;
use hyades::{Abort, Builder, Column, Database, RecordKind, Row, Schema, Table, Transaction, Type};
use hyades_platform::device::SimulatedDevice;
use std::sync::Arc;
use std::time::Duration;

const ACCOUNT: Table = Table::nth(0);
const JOURNAL: Table = Table::nth(1);
const ID: Column<i64> = Column::at(0);
const AMOUNT: Column<i64> = Column::at(1);

/// What a history is like.
#[derive(Clone, Debug)]
pub(in super::super) struct ClusterShape {
    pub seed: u64,
    pub record: RecordKind,
    pub streams: usize,
    pub term_ns: u64,
    pub length_ns: u64,
    /// The longest step of time between two actions.
    pub pace_ns: u64,
    pub faults: NetFaults,
    /// The longest time between two great faults.
    pub fault_every_ns: u64,
    pub checkpoints: bool,
    /// How often members state what they have.
    pub hold_interval_ns: u64,
    /// When silent members are forgotten.
    pub forget_after_ns: u64,
    pub lie: Option<Lie>,
}

impl ClusterShape {
    pub fn of(seed: u64) -> ClusterShape {
        let mut rng = Rng::with_seed(seed ^ 0x5EA1);
        let kinds = [RecordKind::Data, RecordKind::Command, RecordKind::Adaptive];
        let share = |rng: &mut Rng, most: f64| if rng.bool() { rng.f64() * most } else { 0.0 };
        let term_ns = 1_000 * MS;
        ClusterShape {
            seed,
            record: kinds[rng.usize(..3)],
            streams: rng.usize(1..4),
            term_ns,
            length_ns: term_ns * rng.u64(8..30),
            pace_ns: [MS, 4 * MS, 15 * MS][rng.usize(..3)],
            faults: NetFaults {
                lost: share(&mut rng, 0.06),
                copies: share(&mut rng, 0.2),
                old_looks: share(&mut rng, 0.3),
                slow: [0.0, 0.005, 0.08][rng.usize(..3)],
                rests: share(&mut rng, 0.003),
            },
            fault_every_ns: term_ns * [1, 3, 6][rng.usize(..3)],
            checkpoints: rng.bool(),
            hold_interval_ns: [40 * MS, 200 * MS, term_ns][rng.usize(..3)],
            forget_after_ns: term_ns * [3, 12, 1000][rng.usize(..3)],
            lie: match seed % 4 {
                1 => Some(Lie::Tail),
                3 => Some(Lie::Hole),
                _ => None,
            },
        }
    }
}

fn transfer(tx: &Transaction<'_>, input: (i64, i64, i64, i64)) -> Result<(), Abort> {
    let (number, from, to, amount) = input;
    for (id, change) in [(from, -amount), (to, amount)] {
        let balance = tx.get(ACCOUNT, id)?.map_or(0, |row| row.get(AMOUNT));
        tx.upsert(ACCOUNT, &[id.into(), (balance + change).into()])?;
    }
    tx.insert(JOURNAL, &[number.into(), amount.into()])?;
    // Rolled back, after all.
    if amount == 0 { Err(Abort::User(number)) } else { Ok(()) }
}

pub(super) fn declared(shape: &ClusterShape, device: &SimulatedDevice) -> Builder {
    let (device, checkpoints, term) = (device.clone(), shape.checkpoints, shape.term_ns);
    let mut builder = Database::builder()
        .streams(shape.streams)
        .record(shape.record)
        .recovery_threads(1)
        .log_settings(|log| {
            log.device = Some(Arc::new(device));
            log.research.stepped = true;
            log.research.anchor_interval_bytes = 600;
            log.buffer_bytes = 1 << 16;
            log.segment_bytes = 1 << 16;
        })
        .checkpoint_settings(|settings| {
            settings.share = 1.0;
            settings.files_per_dir = 1;
            settings.interval = checkpoints.then(|| Duration::from_nanos(term));
        });
    let table = |name: &str| {
        Schema::new(name).column("id", Type::I64).column("n", Type::I64).primary_key(&["id"])
    };
    builder.table(table("account"));
    builder.table(table("journal"));
    builder.procedure("transfer", 1, transfer);
    builder
}

pub(super) fn content(tx: &Transaction<'_>) -> Result<ShownRows, Abort> {
    let pair = |row: &Row<'_>| (row.get(ID), row.get(AMOUNT));
    Ok(ShownRows {
        balances: tx.scan(ACCOUNT).rows()?.iter().map(pair).collect(),
        journal: tx.scan(JOURNAL).rows()?.iter().map(|row| row.get(ID)).collect(),
    })
}
