//! Promise: logging adds few bytes to a transaction's own: checksum, length, identity, vectors.
#![allow(missing_docs)]

mod common;
use common::directory;
use hyades::inspect::{Content, Inspector};
use hyades::{Abort, Column, Database, RecordKind, Schema, Table, Transaction, Type};
use hyades_wal::{LogOptions, open};
use std::path::Path;

const ROWS: Table = Table::nth(0);
const COUNT: Column<i64> = Column::at(1);
const STREAMS: usize = 4;
const INDEPENDENT: i64 = 400;
/// Maximum number of bytes of a frame besides its body.
const LIMIT: usize = 20;
/// Maximum length of epoch and sequence number together (docs/format.md, section 9).
const LONGEST_TID: usize = 5 + 4;

fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

fn set(tx: &Transaction<'_>, (id, count): (i64, i64)) -> Result<bool, Abort> {
    tx.update(ROWS, id, &[COUNT.set(count)])
}

/// Writes a log that ends with transactions that each change a row not changed recently. Whatever
/// they depend on is durable, and an anchor states that.
fn write(dir: &Path, record: RecordKind, by_procedure: bool) {
    let mut builder = Database::builder().streams(STREAMS).record(record);
    builder = builder.log_settings(|log| {
        log.research.anchor_interval_bytes = 1000;
        // In a stream that a session moves to, because its own is slow, the anchor is old.
        log.research.fixed_streams = true;
    });
    let schema = Schema::new("rows").column("id", Type::I64).column("count", Type::I64);
    builder.table(schema.primary_key(&["id"]).hash());
    let procedure = builder.procedure("set", 1, set);
    let db = builder.open(dir).unwrap();
    let mut session = db.session().unwrap();
    let insert = |tx: &Transaction<'_>| {
        (0..INDEPENDENT).try_for_each(|id| tx.insert(ROWS, &[id.into(), 0i64.into()]).map(drop))
    };
    // The same session, because each session states once when an epoch began.
    let (inserted, ticket) = session.try_submit(insert).unwrap();
    inserted.unwrap();
    ticket.wait().unwrap();
    // Twice over all rows, so that anchors are written as the log grows.
    for count in 1..=2 {
        for id in 0..INDEPENDENT {
            let (changed, ticket) = if by_procedure {
                let (done, ticket) = session.call(procedure, &(id, count)).unwrap();
                (done.map(|()| session.result().unwrap()), ticket)
            } else {
                session.try_submit(|tx| set(tx, (id, count))).unwrap()
            };
            assert_eq!(changed, Ok(true));
            ticket.wait().unwrap();
        }
    }
    drop(session);
    db.close().unwrap();
}

/// Bytes of each of the last transactions' frames besides the body, computed with a TID of maximum
/// length.
fn overheads(dir: &Path, command: bool) -> Vec<usize> {
    let recovering = open(LogOptions::new(vec![dir.to_owned()], STREAMS)).unwrap();
    let manifest = recovering.manifest();
    let inspector = Inspector::new(manifest).unwrap();
    let (mut records, mut said) = (Vec::new(), Vec::new());
    for mut reader in recovering.readers() {
        let mut stream = inspector.stream(manifest.newest().unwrap(), reader.stream.0);
        while let Some(chunk) = reader.next_chunk().unwrap() {
            stream.enter(&chunk);
            for frame in chunk.frames() {
                let Some(record) = stream.read(&frame).unwrap() else { continue };
                match record.content().unwrap() {
                    Content::Command { .. } => assert!(command),
                    Content::Rows(rows) => assert!(!command || rows.len() > 1),
                    other => panic!("{other:?}"),
                }
                let (epoch, sequence) = record.tid();
                let tid = varint_len(epoch) + varint_len(sequence);
                let frame_bytes = (frame.end - frame.start) as usize;
                // The first record of an epoch states when the epoch began, and the outcome of its
                // command.
                let first_of_epoch = if command { 8 + 4 } else { 8 };
                let epoch_began = record.epoch_us().map_or(0, |_| first_of_epoch);
                said.extend(record.epoch_us().map(|_| epoch));
                let beside = frame_bytes - record.body_bytes() - epoch_began;
                records.push((record.tid(), beside - tid + LONGEST_TID));
            }
        }
    }
    // One session states the time of each epoch once.
    said.sort_unstable();
    assert!(!said.is_empty() && said.windows(2).all(|pair| pair[0] < pair[1]), "{said:?}");
    records.sort();
    records.split_off(records.len() - INDEPENDENT as usize).into_iter().map(|r| r.1).collect()
}

#[test]
fn an_independent_transaction_has_at_most_twenty_bytes_beside_its_own() {
    let cases = [
        ("command", RecordKind::Command, true),
        ("data alone", RecordKind::Data, false),
        ("data among commands", RecordKind::Adaptive, false),
    ];
    for (what, record, by_procedure) in cases {
        let dir = directory();
        write(dir.path(), record, by_procedure);
        let overheads = overheads(dir.path(), record == RecordKind::Command);
        let most = overheads.iter().max().unwrap();
        assert!(*most <= LIMIT, "{what}: {most} bytes, at most {LIMIT}: {overheads:?}");
        // A frame needs at least checksum, length, kind, flags, TID and a vector.
        assert!(overheads.iter().all(|bytes| *bytes > 4 + 1 + 1 + 1 + LONGEST_TID), "{what}");
    }
}
