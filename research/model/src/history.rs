//! A serial history of transactions over two rows, and its log: the first part of several models.
//! Serial, because sound concurrency control gives a serial order; `occ` models the interleaving.

use crate::vector::{BOTTOM, LANES, Vector, join, show};

/// Number of rows.
pub const ROWS: usize = 2;

const ROW_NAMES: [&str; ROWS] = ["a", "b"];

/// The operations of a transaction, reads before writes; a row written without being read is a
/// blind write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Op {
    /// The row read.
    pub reads: Option<u8>,
    /// The row written.
    pub writes: Option<u8>,
    /// The stream for the transaction's record, if the transaction writes.
    pub stream: u8,
}

impl Op {
    /// Describes the operations in words.
    pub fn tell(&self) -> String {
        let name = |row: u8| ROW_NAMES[row as usize];
        match (self.reads, self.writes) {
            (Some(read), Some(written)) => {
                format!("reads {}, writes {}", name(read), name(written))
            }
            (Some(read), None) => format!("reads {}, writes nothing", name(read)),
            (None, Some(written)) => format!("writes {}", name(written)),
            (None, None) => "does nothing".into(),
        }
    }

    /// Whether either of two transactions writes a row touched by both.
    pub fn conflicts(&self, other: &Op) -> bool {
        let writes = |a: &Op, b: &Op| a.writes.is_some_and(|row| b.touches(row));
        writes(self, other) || writes(other, self)
    }

    fn touches(&self, row: u8) -> bool {
        self.reads == Some(row) || self.writes == Some(row)
    }
}

/// A transaction that has pre-committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Txn {
    /// The operations of the transaction.
    pub op: Op,
    /// The transaction whose value was read.
    pub read_from: Option<u8>,
    /// The vector without the own position: as stored in the record, or as needed by a reader.
    pub logged: Vector,
    /// The vector with the own position.
    pub vector: Vector,
    /// The incarnation of the log in which the transaction ran.
    pub incarnation: u8,
}

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Frame {
    /// The record of this transaction.
    Record(u8),
    /// A vector that later records are compressed against.
    Anchor,
}

/// Transactions, rows and streams.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct History {
    /// Transactions in pre-commit order, which is a serial order.
    pub txns: Vec<Txn>,
    /// Frames by stream; frame k covers the positions k to k + 1.
    pub streams: [Vec<Frame>; LANES],
    /// The last writer of each row.
    pub writer: [Option<u8>; ROWS],
    /// Write stamps of the rows.
    pub write_lv: [Vector; ROWS],
    /// Read stamps of the rows.
    pub read_lv: [Vector; ROWS],
    /// The anchor in effect, by stream.
    pub anchors: [Vector; LANES],
    /// The current incarnation.
    pub incarnation: u8,
}

impl Default for History {
    fn default() -> Self {
        History {
            txns: Vec::new(),
            streams: Default::default(),
            writer: [None; ROWS],
            write_lv: [BOTTOM; ROWS],
            read_lv: [BOTTOM; ROWS],
            anchors: [BOTTOM; LANES],
            incarnation: 0,
        }
    }
}

/// When rows get the stamp of their writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stamping {
    /// Before the rows are released.
    BeforeRelease,
    /// Later: see [`History::stamp`].
    AfterRelease,
}

impl History {
    /// The possible operations of the next transaction. Unused rows are interchangeable, and so are
    /// unused streams: only the lowest is offered.
    pub fn ops(&self, streams: usize, readers: bool) -> Vec<Op> {
        let used = |stream: usize| !self.streams[stream].is_empty() || self.incarnation > 0;
        let fresh_stream = (0..streams).find(|&s| !used(s)).unwrap_or(streams);
        let touched = |row: u8| self.txns.iter().any(|txn| txn.op.touches(row));
        let fresh_row = (0..ROWS as u8).find(|&row| !touched(row)).unwrap_or(ROWS as u8);
        let rows = || std::iter::once(None).chain((0..ROWS as u8).map(Some));
        let mut ops = Vec::new();
        for reads in rows() {
            for writes in rows() {
                let above = |row: Option<u8>, limit: u8| row.is_some_and(|row| row > limit);
                let next = if reads == Some(fresh_row) { fresh_row + 1 } else { fresh_row };
                if above(reads, fresh_row) || above(writes, next) {
                    continue;
                }
                match (reads, writes) {
                    (None, None) => {}
                    (Some(_), None) if readers => ops.push(Op { reads, writes, stream: 0 }),
                    (_, Some(_)) => {
                        ops.extend((0..streams.min(fresh_stream + 1)).map(|stream| Op {
                            reads,
                            writes,
                            stream: stream as u8,
                        }))
                    }
                    _ => {}
                }
            }
        }
        ops
    }

    /// Runs a transaction: folds stamps, appends the record, stamps the rows. Returns the
    /// transaction's number.
    pub fn commit(&mut self, op: Op, stamping: Stamping) -> u8 {
        let number = self.txns.len() as u8;
        let mut logged = BOTTOM;
        if let Some(row) = op.reads {
            logged = join(logged, self.write_lv[row as usize]);
        }
        if let Some(row) = op.writes {
            logged = join(logged, self.write_lv[row as usize]);
            logged = join(logged, self.read_lv[row as usize]);
        }
        let mut vector = logged;
        if op.writes.is_some() {
            let stream = op.stream as usize;
            // A component covered by the anchor is left out, and is read back from the anchor.
            let anchor = self.anchors[stream];
            logged = std::array::from_fn(|lane| logged[lane].max(anchor[lane]));
            self.streams[stream].push(Frame::Record(number));
            vector[stream] = self.streams[stream].len() as u8;
        }
        let read_from = op.reads.and_then(|row| self.writer[row as usize]);
        if let Some(row) = op.writes {
            self.writer[row as usize] = Some(number);
        }
        let incarnation = self.incarnation;
        self.txns.push(Txn { op, read_from, logged, vector, incarnation });
        if stamping == Stamping::BeforeRelease {
            self.stamp(number);
        }
        number
    }

    /// Stamps the rows that a transaction touched.
    pub fn stamp(&mut self, number: u8) {
        let Txn { op, vector, .. } = self.txns[number as usize];
        if let Some(row) = op.reads {
            let stamp = &mut self.read_lv[row as usize];
            *stamp = join(*stamp, vector);
        }
        if let Some(row) = op.writes {
            let stamp = &mut self.write_lv[row as usize];
            *stamp = join(*stamp, vector);
        }
    }

    /// Appends an anchor to a stream.
    pub fn anchor(&mut self, stream: usize, vector: Vector) {
        self.streams[stream].push(Frame::Anchor);
        self.anchors[stream] = vector;
    }

    /// The ends of the streams.
    pub fn appended(&self) -> Vector {
        std::array::from_fn(|lane| self.streams[lane].len() as u8)
    }

    /// Describes the last transaction in words.
    pub fn tell_last(&self, streams: usize) -> String {
        let number = self.txns.len() - 1;
        let txn = &self.txns[number];
        let mut text = format!("T{} {}", number + 1, txn.op.tell());
        if let Some(from) = txn.read_from {
            text += &format!(" (reads T{}'s value)", from + 1);
        }
        if txn.op.writes.is_some() {
            let end = txn.vector[txn.op.stream as usize];
            text += &format!(
                ": stream {} [{},{end}), needs {}",
                txn.op.stream + 1,
                end - 1,
                show(txn.logged, streams)
            );
        } else {
            text += &format!(": no record, needs {}", show(txn.logged, streams));
        }
        text
    }
}
