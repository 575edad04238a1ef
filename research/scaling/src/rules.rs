//! The protocols' stamps, and the waits of transactions: the engine's rules, restated for rows
//! without content. `tests/engine.rs` compares the results with the engine's log. The engine's own
//! rule, [`hyades_wal::admits`], decides whether a wait is over.
//!
//! Each protocol's file in `crates/hyades/src/logging` justifies the protocol's rule.

use crate::costs::ACCESSES;
use crate::order::Order;
use hyades_wal::lsn_vector::join;
use hyades_wal::{Lane, Needs, compress};

/// A position for each stream.
pub type Vector = Vec<u64>;

/// A logging protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// No log.
    None,
    /// One stream.
    Serial,
    /// A vector of positions.
    Taurus,
    /// Epochs.
    SiloR,
    /// A number above the counters of all partitions touched, a record in each written partition.
    Plover,
    /// Numbers that reads do not raise; a transaction of blind writes waits for its own record.
    Poplar,
    /// Numbers that reads raise as well.
    Gsn,
}

impl Protocol {
    /// Parses the protocol's name on the command line.
    pub fn from_word(word: &str) -> Option<Protocol> {
        Some(match word {
            "none" => Protocol::None,
            "serial" => Protocol::Serial,
            "taurus" => Protocol::Taurus,
            "silo-r" => Protocol::SiloR,
            "plover" => Protocol::Plover,
            "poplar" => Protocol::Poplar,
            "gsn" => Protocol::Gsn,
            _ => return None,
        })
    }

    /// Whether records carry a vector.
    pub fn has_vectors(self) -> bool {
        self == Protocol::Taurus
    }

    /// Whether streams state watermarks, and transactions wait for the common watermark.
    pub fn has_marks(self) -> bool {
        matches!(self, Protocol::SiloR | Protocol::Plover | Protocol::Poplar | Protocol::Gsn)
    }
}

/// An access to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The row.
    pub row: u32,
    /// Whether the row is written, else read.
    pub write: bool,
}

/// The log record of a transaction.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The stream.
    pub stream: usize,
    /// The start of the record in its stream.
    pub start: u64,
    /// The end of the record.
    pub end: u64,
    /// The number of the record, or the epoch; 0 if there is none.
    pub number: u64,
    /// The positions to follow at replay, by stream, as recovery decodes them: components covered
    /// by the anchor in effect are the anchor's. Empty unless the protocol has vectors.
    pub vector: Vector,
    /// The accesses that replay repeats: of a data record the writes, in its partition.
    pub accesses: [Option<Access>; ACCESSES],
}

/// The first accesses of a record.
fn repeated<'a>(mut accesses: impl Iterator<Item = &'a Access>) -> [Option<Access>; ACCESSES] {
    std::array::from_fn(|_| accesses.next().copied())
}

/// A transaction that commits.
#[derive(Clone, Copy, Debug)]
pub struct Committing<'a> {
    /// The transaction's accesses, to different rows.
    pub accesses: &'a [Access],
    /// The stream of the transaction's worker.
    pub stream: usize,
    /// Bytes of a record of this many rows, without the vector.
    pub bytes: fn(rows: usize, unit: f64) -> u64,
    /// The second argument of `bytes`.
    pub unit: f64,
}

/// The stamps of all rows, and the counters of all streams.
#[derive(Debug)]
pub struct Rules {
    protocol: Protocol,
    commands: bool,
    blind_writes: bool,
    /// The current epoch.
    pub(crate) epoch: u64,
    /// Whether records have their vectors, for replay.
    pub(crate) keeps_vectors: bool,
    /// The highest epoch of a record.
    written: u64,
    /// Vectors of the last writers, concatenated.
    writers: Vec<u64>,
    /// Vectors of the readers since then; only where there are commands.
    readers: Vec<u64>,
    /// Numbers of the rows (versions, under Poplar), or the partitions that have written the rows.
    numbers: Vec<u64>,
    /// The last number of each stream.
    counters: Vec<u64>,
    vector: Vector,
    encoded: Vec<u8>,
}

impl Rules {
    /// Empty stamps for this many rows.
    pub fn new(
        protocol: Protocol,
        streams: usize,
        rows: u32,
        commands: bool,
        blind: bool,
    ) -> Rules {
        let rows = rows as usize;
        let vectors = if protocol.has_vectors() { rows * streams } else { 0 };
        Rules {
            protocol,
            commands,
            blind_writes: blind,
            epoch: 1,
            keeps_vectors: true,
            written: 0,
            writers: vec![0; vectors],
            readers: vec![0; if commands { vectors } else { 0 }],
            numbers: vec![0; if protocol.has_vectors() { 0 } else { rows }],
            counters: vec![0; streams],
            vector: vec![0; streams],
            encoded: Vec::new(),
        }
    }

    /// The partition of a row under Plover: a stream.
    pub fn partition(&self, row: u32) -> usize {
        let hash = (u64::from(row) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(hash) * self.counters.len() as u128) >> 64) as usize
    }

    /// The partitions that a transaction draws a number above: the partitions that have written an
    /// accessed row, and the partitions that the transaction writes to. A set.
    pub fn touched(&self, accesses: &[Access]) -> u64 {
        let touched = |access: &Access| {
            let own = if access.write { 1 << self.partition(access.row) } else { 0 };
            self.numbers[access.row as usize] | own
        };
        accesses.iter().map(touched).fold(0, |set, own| set | own)
    }

    /// Logs a transaction and stamps its rows. Adds the transaction's needs to `needs`, its own
    /// record last, and its records to `records`.
    pub fn commit(
        &mut self,
        txn: &Committing<'_>,
        order: &mut Order,
        needs: &mut Needs,
        records: &mut Vec<Logged>,
    ) {
        match self.protocol {
            Protocol::None => {}
            Protocol::Serial => self.serial(txn, order, needs, records),
            Protocol::Taurus => self.taurus(txn, order, needs, records),
            Protocol::SiloR => self.silo_r(txn, order, needs, records),
            Protocol::Plover => self.plover(txn, order, needs, records),
            Protocol::Poplar => self.poplar(txn, order, needs, records),
            Protocol::Gsn => self.gsn(txn, order, needs, records),
        }
    }

    /// Whether a transaction that fails to validate leaves a void frame: commands, and the records
    /// of protocols that stamp readers, are reserved before.
    pub fn reserves_first(&self) -> bool {
        self.commands || self.protocol == Protocol::Gsn
    }

    /// The record of a transaction in its own stream, without a vector; `None` if nothing was
    /// written.
    fn append(
        txn: &Committing<'_>,
        order: &mut Order,
        number: u64,
        records: &mut Vec<Logged>,
    ) -> Option<u64> {
        let written = txn.written();
        if written == 0 {
            return None;
        }
        let (start, end) = order.reserve(txn.stream, (txn.bytes)(written, txn.unit));
        let accesses = repeated(txn.accesses.iter().filter(|access| access.write));
        let vector = Vec::new();
        records.push(Logged { stream: txn.stream, start, end, number, vector, accesses });
        Some(end)
    }

    /// As `append`, with a number above the numbers of all accessed rows, and above the last number
    /// of the stream. Returns the highest number of the rows, then the new number and the record's
    /// end.
    fn append_numbered(
        &mut self,
        txn: &Committing<'_>,
        order: &mut Order,
        records: &mut Vec<Logged>,
    ) -> (u64, Option<(u64, u64)>) {
        let seen = txn.accesses.iter().map(|a| self.numbers[a.row as usize]).max().unwrap_or(0);
        let number = seen.max(self.counters[txn.stream]) + 1;
        let Some(end) = Rules::append(txn, order, number, records) else { return (seen, None) };
        self.counters[txn.stream] = number;
        (seen, Some((number, end)))
    }

    /// A reader waits for all that was reserved before its end.
    fn serial(
        &mut self,
        txn: &Committing<'_>,
        order: &mut Order,
        needs: &mut Needs,
        records: &mut Vec<Logged>,
    ) {
        let txn = Committing { stream: 0, ..*txn };
        let end = Rules::append(&txn, order, 0, records).unwrap_or_else(|| order.end(0));
        needs.push((Lane::position(0), end));
    }

    /// Algorithm 1 of the paper, with algorithms 5 and 6. The anchor in effect covers the engine's
    /// eviction vector, which thus changes neither records nor waits.
    fn taurus(
        &mut self,
        txn: &Committing<'_>,
        order: &mut Order,
        needs: &mut Needs,
        records: &mut Vec<Logged>,
    ) {
        let streams = order.streams();
        let span = |row: u32| row as usize * streams..(row as usize + 1) * streams;
        let mut vector = std::mem::take(&mut self.vector);
        vector.fill(0);
        for access in txn.accesses {
            join(&mut vector, &self.writers[span(access.row)]);
            if access.write && self.commands {
                join(&mut vector, &self.readers[span(access.row)]);
            }
        }
        let written = txn.written();
        let own = (written > 0).then(|| {
            order.enter_stream(txn.stream);
            let anchor = order.anchor(txn.stream);
            self.encoded.clear();
            compress::encode(&mut self.encoded, &vector, anchor, |lsn| *lsn);
            let decoded = vector.iter().zip(anchor).map(|(own, anchor)| *own.max(anchor));
            let logged = if self.keeps_vectors { decoded.collect() } else { Vec::new() };
            // A vector covered by the anchor is one byte, which is part of the measured length.
            let bytes = (txn.bytes)(written, txn.unit) + self.encoded.len() as u64 - 1;
            let (start, end) = order.reserve(txn.stream, bytes);
            debug_assert!(vector[txn.stream] < end, "nothing depends on what is not yet reserved");
            vector[txn.stream] = end;
            let repeats = |access: &&Access| access.write || self.commands;
            let accesses = repeated(txn.accesses.iter().filter(repeats));
            let stream = txn.stream;
            records.push(Logged { stream, start, end, number: 0, vector: logged, accesses });
            end
        });
        for access in txn.accesses.iter().filter(|_| own.is_some()) {
            match access.write {
                true => {
                    self.writers[span(access.row)].copy_from_slice(&vector);
                    if self.commands {
                        self.readers[span(access.row)].fill(0);
                    }
                }
                false if self.commands => join(&mut self.readers[span(access.row)], &vector),
                false => {}
            }
        }
        let others = Lane::each(&vector)
            .filter(|(lane, _)| own.is_none() || *lane != Lane::position(txn.stream));
        others.for_each(|need| needs.push(need));
        needs.push((Lane::position(txn.stream), own.unwrap_or(0)));
        self.vector = vector;
    }

    /// A reader waits for the last epoch with a write.
    fn silo_r(
        &mut self,
        txn: &Committing<'_>,
        order: &mut Order,
        needs: &mut Needs,
        records: &mut Vec<Logged>,
    ) {
        if Rules::append(txn, order, self.epoch, records).is_some() {
            self.written = self.epoch;
        }
        needs.push((Lane::common(order.streams()), self.written));
    }

    /// One number above the counters of all partitions touched; a record for each written
    /// partition. All streams have to state the number, not only the touched streams:
    /// docs/protocols/plover.md.
    fn plover(
        &mut self,
        txn: &Committing<'_>,
        order: &mut Order,
        needs: &mut Needs,
        records: &mut Vec<Logged>,
    ) {
        let touched = self.touched(txn.accesses);
        let members = (0..order.streams()).filter(|stream| touched & 1 << stream != 0);
        let highest = members.clone().map(|stream| self.counters[stream]).max().unwrap_or(0);
        let mut number = highest;
        if txn.written() > 0 {
            number += 1;
            for stream in members {
                self.counters[stream] = number;
                let here = |a: &&Access| a.write && self.partition(a.row) == stream;
                let accesses = repeated(txn.accesses.iter().filter(here));
                let rows = accesses.iter().flatten().count();
                if rows > 0 {
                    let (start, end) = order.reserve(stream, (txn.bytes)(rows, txn.unit));
                    let vector = Vec::new();
                    records.push(Logged { stream, start, end, number, vector, accesses });
                }
            }
            for access in txn.accesses.iter().filter(|access| access.write) {
                self.numbers[access.row as usize] |= 1 << self.partition(access.row);
            }
        }
        needs.push((Lane::common(order.streams()), number));
    }

    /// Algorithm 1 of the paper: above the versions of all rows read or overwritten, and above the
    /// stream's last number. A transaction of blind writes waits for its own record.
    fn poplar(
        &mut self,
        txn: &Committing<'_>,
        order: &mut Order,
        needs: &mut Needs,
        records: &mut Vec<Logged>,
    ) {
        let (seen, record) = self.append_numbered(txn, order, records);
        let Some((number, end)) = record else {
            return needs.push((Lane::common(order.streams()), seen));
        };
        let has_read = !self.blind_writes || txn.accesses.iter().any(|access| !access.write);
        for access in txn.accesses.iter().filter(|access| access.write) {
            self.numbers[access.row as usize] = number;
        }
        needs.push(match has_read {
            true => (Lane::common(order.streams()), number),
            false => (Lane::position(txn.stream), end),
        });
    }

    /// As Poplar, but a reader that writes something raises the rows read as well, and all wait for
    /// the common watermark.
    fn gsn(
        &mut self,
        txn: &Committing<'_>,
        order: &mut Order,
        needs: &mut Needs,
        records: &mut Vec<Logged>,
    ) {
        let (seen, record) = self.append_numbered(txn, order, records);
        if let Some((number, _)) = record {
            for access in txn.accesses {
                self.numbers[access.row as usize] = number;
            }
        }
        needs.push((Lane::common(order.streams()), record.map_or(seen, |(number, _)| number)));
    }

    /// The watermark that a stream can state: all later records of the stream have higher numbers.
    /// A stream whose last number is below a `wanted` number skips the numbers used by the
    /// remaining streams.
    pub fn mark(&mut self, stream: usize, wanted: u64) -> u64 {
        if self.protocol == Protocol::SiloR {
            return self.epoch - 1;
        }
        if wanted > self.counters[stream] {
            let highest = self.counters.iter().copied().max().unwrap_or(0);
            self.counters[stream] = wanted.max(highest);
        }
        self.counters[stream]
    }
}

impl Committing<'_> {
    fn written(&self) -> usize {
        self.accesses.iter().filter(|access| access.write).count()
    }
}

#[cfg(test)]
mod tests;
