//! Instructions of operations on LSN vectors, by number of streams, with the processor's vector
//! instructions and without: `cargo bench -p hyades-wal --bench vectors`.
//!
//! Needs valgrind. Versions without AVX-512 hide AVX-512 from the program, and the program uses
//! AVX2; the table names the counted code.
#![allow(missing_docs)]

mod callgrind;

use callgrind::{counted_by_callgrind, instructions};
use hyades_wal::compress;
use hyades_wal::lsn_vector::{self, covers, join};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

const STREAMS: [usize; 5] = [1, 4, 8, 16, 32];
const ROUNDS: u64 = 1000;

/// The name of an operation, the description, and the code.
struct Operation(&'static str, &'static str, fn(&mut Case));

/// The first operation is the empty loop, subtracted from the rest.
const OPERATIONS: [Operation; 8] = [
    Operation("nothing", "", |_| {}),
    Operation("join", "fold one vector into another", |case| {
        join(black_box(&mut case.validity), black_box(&case.rows[0]));
    }),
    Operation("covers", "compare two vectors", |case| {
        black_box(covers(black_box(&case.frontier), black_box(&case.rows[0])));
    }),
    Operation("encode-2", "compress, two lanes above the anchor", |case| {
        case.out.clear();
        case.encode(true);
    }),
    Operation("encode-all", "compress, all lanes above the anchor", |case| {
        case.out.clear();
        case.encode(false);
    }),
    Operation("decode-2", "decompress, two lanes present", |case| {
        let (bytes, out) = (black_box(&case.encoded), black_box(&mut case.order));
        black_box(compress::decode(bytes, &case.anchored, out)).expect("it was encoded");
    }),
    Operation("data", "one row read, one written, logged as data", |case| {
        case.transaction(false);
    }),
    Operation("command", "one row read, one written, logged as a command", |case| {
        case.transaction(true);
    }),
];

/// The vectors of a transaction and of the two accessed rows.
struct Case {
    anchor: Vec<AtomicU64>,
    anchored: Vec<u64>,
    frontier: Vec<u64>,
    /// Write and read vectors of a read row and of a written row.
    rows: [Vec<u64>; 4],
    validity: Vec<u64>,
    order: Vec<u64>,
    out: Vec<u8>,
    encoded: Vec<u8>,
}

impl Case {
    /// Components as in a busy log: positions of 40 bits, close to each other, and two of a row's
    /// components (or as many as there are) above the anchor.
    fn new(lanes: usize) -> Case {
        let base = 1u64 << 40;
        let anchored = vec![base; lanes];
        let row = |n: usize| {
            let mut row = vec![base - 1000; lanes];
            row[n % lanes] = base + 100 + n as u64;
            row
        };
        let mut encoded = Vec::new();
        let mut two = row(0);
        join(&mut two, &row(1));
        compress::encode(&mut encoded, &two, &anchored, |lsn| *lsn);
        Case {
            anchor: anchored.iter().map(|lsn| AtomicU64::new(*lsn)).collect(),
            frontier: vec![base + 50; lanes],
            anchored,
            rows: [row(0), row(0), row(1), row(1)],
            validity: vec![0; lanes],
            order: vec![0; lanes],
            out: Vec::with_capacity(4096),
            encoded,
        }
    }

    fn encode(&mut self, which: bool) {
        let vector = if which { &self.validity } else { &self.order };
        compress::encode(&mut self.out, vector, &self.anchor, |lsn| lsn.load(Ordering::Acquire));
    }

    /// The vector work of a transaction with a read of a row and an overwrite of a second row, in
    /// the order of Taurus (VLDB 2020), algorithm 1. A command also joins the read vector of the
    /// overwritten row, and raises the read vector of the read row.
    fn transaction(&mut self, command: bool) {
        self.validity.fill(0);
        self.order.fill(0);
        self.out.clear();
        join(&mut self.validity, &self.rows[0]);
        join(&mut self.validity, &self.rows[2]);
        if command {
            join(&mut self.order, &self.rows[2]);
            join(&mut self.order, &self.rows[3]);
            join(&mut self.validity, &self.order);
        }
        self.encode(true);
        black_box(&self.out);
        self.validity[0] += 1;
        if command {
            join(&mut self.rows[1], &self.validity);
        }
        join(&mut self.rows[2], &self.validity);
        black_box(covers(&self.frontier, &self.validity));
        black_box(&mut self.rows);
    }
}

/// A run under callgrind.
fn child(arguments: &[String]) {
    let [_, operation, streams, portable] = arguments else { panic!("four arguments") };
    lsn_vector::set_portable(portable == "portable");
    let mut case = Case::new(streams.parse().expect("a number of streams"));
    join(&mut case.validity, &case.rows[0]);
    join(&mut case.validity, &case.rows[2]);
    let high: Vec<u64> = case.anchored.iter().map(|lsn| lsn + 1000).collect();
    join(&mut case.order, &high);
    let Operation(.., run) = OPERATIONS
        .into_iter()
        .find(|Operation(name, ..)| name == operation)
        .expect("an operation of the list");
    // A warm-up: afterwards memory is allocated and the implementation is chosen.
    run(&mut case);
    counted_by_callgrind(&mut || {
        for _ in 0..ROUNDS {
            black_box(run)(black_box(&mut case));
        }
    });
}

fn count(operation: &str, streams: usize, how: &str) -> u64 {
    let arguments = ["counted", operation, &streams.to_string(), how].map(String::from);
    instructions(&arguments)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "counted") {
        return child(&arguments);
    }
    println!("Instructions for each operation, counted by callgrind.\n");
    println!("| operation | how | {} |", STREAMS.map(|n| n.to_string()).join(" | "));
    println!("|---|---|{}", "---|".repeat(STREAMS.len()));
    for Operation(operation, what, _) in &OPERATIONS[1..] {
        for how in ["vector", "portable"] {
            let cells = STREAMS.map(|streams| {
                let loops = count("nothing", streams, how);
                let each = (count(operation, streams, how) - loops) as f64 / ROUNDS as f64;
                format!("{each:.0}")
            });
            println!("| {what} | {how} | {} |", cells.join(" | "));
        }
    }
    println!("\nUp to {} streams both run the same code.", lsn_vector::INLINE_LANES);
}
