//! Cut marks on their way from the primary to the members: broadcast, and lost without harm.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | magic, whose last two digits are the format |
//! | 16 | the database's uuid |
//! | 4, 8, 8 | incarnation; epoch; wall clock in microseconds since 1970 |
//! | 8 | [verification](crate::verify) that compares the state of the mark; 0 for none |
//! | 4, 8 n, 8 n | number of streams n; `from`, and `to`, by stream |
//! | 4 | CRC-32C of all before |

use crate::message::{Fields, Malformed};
use crate::service::LogService;
use hyades::{CutMark, CutMarks, Database, Error};
use hyades_platform::clock;
use hyades_wal::{Log, Lsn, MAX_LANES};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const MAGIC: [u8; 8] = *b"HYMARK02";
/// The time between two marks while nothing is logged.
const IDLE_NS: u64 = 1_000_000_000;
/// How soon a mark is asked for again whose epoch has not ended.
const AGAIN_NS: u64 = 500_000;

/// A mark of a database, as members are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldMark {
    /// The database's uuid.
    pub database: [u8; 16],
    /// The mark.
    pub mark: CutMark,
    /// The verification that compares the state of the mark; 0 for none.
    pub verification: u64,
}

/// Encodes a mark.
pub fn encode(told: &ToldMark) -> Vec<u8> {
    let ToldMark { database, mark, verification } = told;
    let mut out = Vec::with_capacity(60 + 16 * mark.to.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(database);
    out.extend_from_slice(&mark.incarnation.to_le_bytes());
    out.extend_from_slice(&mark.epoch.to_le_bytes());
    out.extend_from_slice(&mark.wall_us.to_le_bytes());
    out.extend_from_slice(&verification.to_le_bytes());
    out.extend_from_slice(&(mark.to.len() as u32).to_le_bytes());
    for lsn in mark.from.iter().chain(&mark.to) {
        out.extend_from_slice(&lsn.to_le_bytes());
    }
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out
}

/// Decodes a mark.
///
/// # Errors
/// The bytes are no mark of this format, or damaged.
pub fn decode(bytes: &[u8]) -> Result<ToldMark, Malformed> {
    let mut fields = Fields::new(bytes);
    let magic = fields.take(8, "the magic")?;
    if magic != MAGIC {
        return Err(fields.wrong(0, format!("{:?}", String::from_utf8_lossy(magic))));
    }
    let database = fields.take(16, "the uuid")?.try_into().expect("16 bytes were taken");
    let incarnation = fields.u32("the incarnation")?;
    let (epoch, wall_us) = (fields.u64("the epoch")?, fields.u64("the clock")?);
    let verification = fields.u64("the verification")?;
    let streams = fields.u32("the number of streams")? as usize;
    if streams > MAX_LANES {
        return Err(fields.wrong(52, format!("{streams} streams")));
    }
    let mut positions = || -> Result<Vec<Lsn>, Malformed> {
        (0..streams).map(|_| fields.u64("a position")).collect()
    };
    let (from, to) = (positions()?, positions()?);
    let end = fields.at();
    let (stated, expected) = (fields.u32("the checksum")?, crc32c::crc32c(&bytes[..end]));
    if stated != expected || fields.at() != bytes.len() {
        return Err(fields.wrong(end, format!("checksum {stated:08x}, expected {expected:08x}")));
    }
    let mark = CutMark { incarnation, epoch, from, to, wall_us };
    Ok(ToldMark { database, mark, verification })
}

/// Makes and broadcasts the cut marks of a database: while records are logged one each interval,
/// otherwise one each second.
#[derive(Debug)]
pub struct MarkMaker {
    marks: CutMarks,
    log: Log,
    uuid: [u8; 16],
    service: Arc<dyn LogService>,
    interval_ns: u64,
    /// The positions of the last mark.
    last: Vec<Lsn>,
    sent_ns: u64,
    /// When to look for the next mark.
    due_ns: u64,
}

impl MarkMaker {
    /// For a database whose log is in the lanes of the service.
    ///
    /// # Errors
    /// The database has no log, or a log that cannot be followed.
    pub fn new(
        database: &Database,
        service: Arc<dyn LogService>,
        interval: Duration,
    ) -> Result<MarkMaker, Error> {
        let marks = database.cut_marks()?;
        let log = database.log().expect("a database with marks has a log").clone();
        let (uuid, interval_ns) = (log.manifest().uuid(), interval.as_nanos() as u64);
        let (last, sent_ns, due_ns) = (Vec::new(), 0, 0);
        Ok(MarkMaker { marks, log, uuid, service, interval_ns, last, sent_ns, due_ns })
    }

    /// Sends a mark if one is due. Returns when to call again, by [`clock::monotonic_ns`].
    pub fn step(&mut self) -> u64 {
        let now = clock::monotonic_ns();
        if now < self.due_ns {
            return self.due_ns;
        }
        self.due_ns = now + self.interval_ns;
        let mut positions = (0..).zip(&self.last);
        let has_moved =
            self.last.is_empty() || positions.any(|(at, last)| self.log.next_lsn(at) > *last);
        if has_moved || now.saturating_sub(self.sent_ns) >= IDLE_NS {
            match self.marks.tick() {
                Some(mark) => {
                    let told = ToldMark { database: self.uuid, mark, verification: 0 };
                    self.service.broadcast(encode(&told));
                    (self.last, self.sent_ns) = (told.mark.to, now);
                }
                None => self.due_ns = now + AGAIN_NS,
            }
        }
        self.due_ns
    }
}

/// A [`MarkMaker`] with a thread of its own, which ends when the value is dropped.
#[derive(Debug)]
pub struct MarkSender {
    /// Closed by the drop, which ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MarkSender {
    /// Starts the thread that makes and sends marks.
    ///
    /// # Errors
    /// As [`MarkMaker::new`]; the thread did not start.
    pub fn start(
        database: &Database,
        service: Arc<dyn LogService>,
        interval: Duration,
    ) -> Result<MarkSender, Error> {
        let mut maker = MarkMaker::new(database, service, interval)?;
        let (stop, stopped) = channel::<()>();
        let run = move || loop {
            let rest = maker.step().saturating_sub(clock::monotonic_ns());
            let ended = stopped.recv_timeout(Duration::from_nanos(rest));
            if ended != Err(RecvTimeoutError::Timeout) {
                return;
            }
        };
        let thread = std::thread::Builder::new().name("cut-marks".into()).spawn(run);
        let thread = thread.map_err(|error| {
            Error::Misuse(format!("the thread that makes cut marks does not start: {error}"))
        })?;
        Ok(MarkSender { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for MarkSender {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // Its panic was printed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_read_back_and_damage_is_found() {
        let (from, to) = (vec![1, 2, 3], vec![4, 5, 6]);
        let mark = CutMark { incarnation: 7, epoch: 8, from, to, wall_us: 9 };
        let told = ToldMark { database: [5; 16], mark, verification: 10 };
        let bytes = encode(&told);
        assert_eq!(decode(&bytes), Ok(told));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "{at} bytes");
        }
        assert!(decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}
