//! Instructions of a whole transaction by protocol and number of log streams, and the share of the
//! LSN vectors: `cargo bench -p hyades --bench vectors [rows]`.
//!
//! The transactions are YCSB transactions: two rows of ten columns of 100 bytes, each read or, with
//! probability one half, changed in one column. One session per stream takes its turn on a single
//! thread. Only the instructions of this thread are counted, not the instructions of the flushers.
//! Needs valgrind, which does not support AVX-512 and hides it, so that the program uses AVX2.
#![allow(missing_docs)]

#[path = "../../wal/benches/callgrind/mod.rs"]
mod callgrind;

use callgrind::{counted_by_callgrind, instructions};
use hyades::{
    Abort, Column, Database, Protocol, RecordKind, Schema, Table, Transaction, Type, Value,
};
use hyades_platform::device::MemoryDevice;
use hyades_wal::lsn_vector;
use std::time::Duration;

const STREAMS: [usize; 5] = [1, 4, 8, 16, 32];
const COLUMNS: u64 = 10;
const WIDTH: usize = 100;
const WARM_UP: u64 = 10_000;
const COUNTED: u64 = 20_000;

const ROWS: Table = Table::nth(0);

/// Two row numbers, each doubled, plus one if the row is written; and the seed of the written
/// value.
type Call = ([u64; 2], u32);

fn access(tx: &Transaction<'_>, (rows, seed): Call) -> Result<(), Abort> {
    let value = [seed as u8; WIDTH];
    for row in rows {
        let column = Column::<[u8]>::at(1 + (u64::from(seed) % COLUMNS) as u16);
        if row & 1 == 1 {
            tx.update(ROWS, row >> 1, &[column.set(&value)])?;
        } else {
            let found = tx.get_columns(ROWS, row >> 1, column.only())?;
            assert!(found.is_some(), "row {} is missing", row >> 1);
        }
    }
    Ok(())
}

fn populate(db: &Database, rows: u64) {
    let mut session = db.session().expect("a session");
    let mut row = [Value::Bytes(&[7; WIDTH]); COLUMNS as usize + 1];
    for from in (0..rows).step_by(100) {
        let inserted = session.try_submit(|tx| {
            for id in from..rows.min(from + 100) {
                row[0] = id.into();
                tx.insert(ROWS, &row)?;
            }
            Ok::<_, Abort>(())
        });
        let (result, ticket) = inserted.expect("a log that runs");
        result.expect("new rows");
        ticket.wait().expect("a log that runs");
    }
}

/// The program run under callgrind.
fn child(arguments: &[String]) {
    let [_, protocol, record, streams, how, rows] = arguments else { panic!("six arguments") };
    lsn_vector::set_portable(how == "portable");
    let streams: usize = streams.parse().expect("a number of streams");
    let rows: u64 = rows.parse().expect("a number of rows");
    let protocol = match protocol.as_str() {
        "none" => Protocol::None,
        "serial" => Protocol::Serial,
        _ => Protocol::Taurus,
    };
    let directory = tempfile::tempdir_in(MemoryDevice::ROOT).expect("a temporary directory");
    let mut builder = Database::builder()
        .protocol(protocol)
        .record(if record == "command" { RecordKind::Command } else { RecordKind::Data })
        .streams(streams)
        .log_settings(|log| {
            log.device = Some(MemoryDevice::shared());
            // Under valgrind transactions take about fifty times as long, devices do not. With this
            // interval as many transactions wait for a flush as with the usual 500 us.
            log.flush_interval = Some(Duration::from_millis(25));
        });
    let schema = (0..COLUMNS).fold(Schema::new("rows").column("key", Type::U64), |schema, n| {
        schema.column(&format!("field{n}"), Type::Fixed(WIDTH as u16))
    });
    builder.table(schema.primary_key(&["key"]).hash());
    let call = builder.procedure("access", 1, access);
    let db = builder.open(directory.path()).expect("a new database");
    populate(&db, rows);
    let mut random = fastrand::Rng::with_seed(1);
    let mut next = move || {
        let rows = [random.u64(0..rows), random.u64(0..rows)];
        (rows.map(|row| row << 1 | random.u64(0..2)), random.u32(0..100))
    };
    let mut sessions = Vec::new();
    for _ in 0..streams {
        let mut session = db.session().expect("a session");
        // A session begins on the stream with the smallest backlog. The call adds to the backlog,
        // so that the next session begins on another stream.
        drop(session.call(call, &next()).expect("a log that runs"));
        sessions.push(session);
    }
    let mut run = |transactions: u64| {
        for at in 0..transactions as usize {
            let session = &mut sessions[at % streams];
            let (result, _ticket) = session.call(call, &next()).expect("a log that runs");
            result.expect("alone, there are no conflicts");
        }
    };
    run(WARM_UP);
    counted_by_callgrind(&mut || run(COUNTED));
}

fn count(protocol: &str, record: &str, streams: usize, how: &str, rows: &str) -> f64 {
    let streams = streams.to_string();
    let arguments = ["counted", protocol, record, &streams, how, rows].map(String::from);
    instructions(&arguments) as f64 / COUNTED as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "counted") {
        return child(&arguments);
    }
    let given = arguments.iter().find(|argument| argument.parse::<u64>().is_ok());
    let rows = given.map_or("1000", String::as_str);
    let none = count("none", "data", 1, "vector", rows);
    println!("Instructions for each transaction over {rows} rows, counted by callgrind.");
    println!("Without a log it takes {none:.0}.\n");
    println!("| record | protocol | streams | all | vectors | share | vectors, portable code |");
    println!("|---|---|---|---|---|---|---|");
    for record in ["data", "command"] {
        let serial = count("serial", record, 1, "vector", rows);
        println!("| {record} | serial | 1 | {serial:.0} | | | |");
        for streams in STREAMS {
            let all = count("taurus", record, streams, "vector", rows);
            let vectors = all - serial;
            let share = 100.0 * vectors / all;
            let portable = if streams > lsn_vector::INLINE_LANES {
                let plain = count("taurus", record, streams, "portable", rows) - serial;
                format!("{plain:.0}")
            } else {
                "the same".to_string()
            };
            println!(
                "| {record} | taurus | {streams} | {all:.0} | {vectors:.0} | {share:.1} % \
                 | {portable} |"
            );
        }
    }
}
