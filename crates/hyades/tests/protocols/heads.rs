//! Command records whose head does not fit a machine word: high procedure numbers, many versions in
//! an epoch, long arguments. Promise: the records are replayed correctly.

use crate::common::directory;
use hyades::{
    Abort, Builder, Column, Concurrency, Database, Protocol, RecordKind, Replay, Schema, Table,
    Transaction, Type,
};
use std::path::Path;
use std::time::Duration;

const SUMS: Table = Table::nth(0);
const SUM: Column<i64> = Column::at(1);
const PROCEDURES: i64 = 150;
const ROWS: i64 = 5;
/// Enough for long sequence numbers, even if an epoch ends a few times: each end restarts the
/// numbers.
const CALLS: usize = 6000;

/// Procedures of which no two commute on any row.
fn builder(streams: usize) -> Builder {
    let mut builder = Database::builder()
        .protocol(Protocol::Taurus)
        .concurrency(Concurrency::Silo)
        .record(RecordKind::Command)
        .streams(streams)
        .log_settings(|log| {
            log.research.anchor_interval_bytes = 700;
            log.epoch = Some(Duration::from_secs(100));
        });
    let schema = Schema::new("sums").column("id", Type::I64).column("sum", Type::I64);
    builder.table(schema.primary_key(&["id"]).hash());
    for n in 0..PROCEDURES {
        let step = move |tx: &Transaction<'_>, (id, text): (i64, String)| -> Result<(), Abort> {
            let before = tx.get(SUMS, id)?.map_or(0, |row| row.get(SUM));
            let sum = before.wrapping_mul(31).wrapping_add(n + text.len() as i64);
            tx.upsert(SUMS, &[id.into(), sum.into()]).map(drop)
        };
        builder.procedure(&format!("step {n}"), 1, step);
    }
    builder
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let length = 1 + bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
    let (number, rest) = bytes.split_at(length);
    *bytes = rest;
    number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
}

/// Counts all records, records with a sequence number of two bytes, and records with a procedure
/// number of two bytes.
fn long_heads(dir: &Path, streams: usize) -> [usize; 3] {
    let mut found = [0; 3];
    let options = hyades_wal::LogOptions::new(vec![dir.to_owned()], streams);
    for mut reader in hyades_wal::open(options).unwrap().readers() {
        while let Some(chunk) = reader.next_chunk().unwrap() {
            for frame in chunk.frames().filter(|f| f.kind == hyades_wal::FrameKind::Record) {
                // docs/format.md, "Transaction records". A record that states the time of its epoch
                // has a longer head.
                let (flags, mut rest) = frame.payload.split_first().unwrap();
                found[0] += 1;
                if *flags == 1 {
                    let (_epoch, sequence) = (varint(&mut rest), varint(&mut rest));
                    let mut behind_vector = hyades_wal::compress::skip(rest).unwrap();
                    found[1] += usize::from(sequence >= 128);
                    found[2] += usize::from(varint(&mut behind_vector) >= 128);
                }
            }
        }
    }
    found
}

#[test]
fn commands_with_long_heads_are_replayed() {
    for streams in [1, 4] {
        let dir = directory();
        let db = builder(streams).open(dir.path()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let db = &db;
                scope.spawn(move || {
                    let mut session = db.session().unwrap();
                    let mut rng = fastrand::Rng::with_seed(thread);
                    let mut last = None;
                    for _ in 0..CALLS / 2 {
                        let step = db.prepare(&format!("step {}", rng.i64(0..PROCEDURES))).unwrap();
                        // Lengths around the longest copied directly into the buffer.
                        let length =
                            if rng.bool() { rng.usize(0..20) } else { rng.usize(110..130) };
                        let arguments = (rng.i64(0..ROWS), "x".repeat(length));
                        let (result, ticket) = session.call(step, &arguments).unwrap();
                        result.unwrap();
                        last = Some(ticket);
                    }
                    last.map(|ticket| ticket.wait()).unwrap().unwrap();
                });
            }
        });
        let digest = db.digest();
        db.close().unwrap();
        let [all, sequences, procedures] = long_heads(dir.path(), streams);
        assert_eq!(all, CALLS);
        assert!(sequences > 500 && procedures > 100, "{sequences} and {procedures} of {all}");
        for (threads, replay) in [(1, Replay::Serial), (2, Replay::Wavefront), (3, Replay::Pools)] {
            let builder = builder(streams).recovery_threads(threads).replay(replay);
            assert_eq!(builder.open(dir.path()).unwrap().digest(), digest, "{streams} {replay:?}");
        }
    }
}
