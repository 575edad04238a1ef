//! Unusual data and clients of a history. Half of the histories are plain. Each of the others draws
//! a few features and exaggerates the features (Groce, Zhang, Eide, Chen, Regehr: "Swarm testing",
//! ISSTA 2012): a test with a little of everything takes nothing to its extreme.

use crate::schema::Tables;
use fastrand::Rng;
use hyades::{CheckpointSettings, LogSettings, MAX_KEY_BYTES, MAX_ROW_BYTES, Protocol};
use hyades_schemes::SILO_R;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Unusual features of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Whether each transaction has a session of its own.
    pub session_each: bool,
    /// Maximum number of unacknowledged transactions of a client before the next begins.
    pub in_flight: Option<usize>,
    /// Whether transactions write ranges of keys.
    pub bulk: bool,
    /// Whether one session does nothing but read everything.
    pub reader: bool,
    /// Whether settings are at the ends of their ranges.
    pub extremes: bool,
    /// Whether one stream's device is stalled. Transactions without a dependency on the stream must
    /// go on.
    pub stalled: bool,
}

/// The parts of a plan that a shape may change.
pub(crate) struct PlanParts<'p> {
    pub tables: &'p mut Tables,
    pub sessions: &'p mut usize,
    pub transactions: &'p mut usize,
    pub lives: &'p mut usize,
}

/// Approximate bytes of a row besides its text and key.
const REST_BYTES: usize = 64;

/// Approximate size of all rows of a history with large rows.
const LARGE_BYTES: usize = 48 << 20;

/// Approximate bound for the bytes written by the transactions of a life. A simulated disk is held
/// in memory twice, as seen and as on the medium, and keeps the writes of all lives.
const LIFE_BYTES: usize = 8 * LARGE_BYTES;

/// Maximum number of transactions of a life. This number can be checked in a second even if all
/// write the same row.
const LIFE_PROGRAMS: usize = 8000;

/// The most round trips of a session that waits for its answers: each may take an epoch, 40 ms
/// under some protocols, and a history is to end well before it counts as hung.
const CLOSED_LOOP_ROUNDS: usize = 200;

/// Maximum number of transactions of a session, except where a stream is stalled.
const MOST_TRANSACTIONS: usize = 400;

/// Minimum number of transactions of a session. Fewer show little.
const LEAST_TRANSACTIONS: usize = 3;

/// Longest keys of a history, in bytes before the encoding, which may double a key.
const LONGEST_KEY: usize = MAX_KEY_BYTES / 2 - 1;

impl Shape {
    /// The shape of a seed. Adjusts the parts of the plan in `drawn`.
    pub(crate) fn random(rng: &mut Rng, drawn: PlanParts<'_>) -> Shape {
        let mut shape = Shape::default();
        if rng.bool() {
            return shape;
        }
        let PlanParts { tables, sessions, transactions, lives } = drawn;
        for _ in 0..rng.usize(1..4) {
            match rng.u32(0..14) {
                0 | 13 => {
                    let most = [9_000, 40_000, 300_000, 1 << 20, MAX_ROW_BYTES - REST_BYTES];
                    let most = most[rng.usize(0..most.len()).min(rng.usize(0..most.len() + 1))];
                    tables.longest_text = most as u32;
                    tables.keys = ((LARGE_BYTES / most) as i64).clamp(4, 1200);
                    *lives = (*lives).min(3);
                    if rng.bool() {
                        // With bulk writes all rows exist.
                        shape.bulk = true;
                        *sessions = (*sessions).min(2);
                    }
                }
                1 => {
                    let most = [1, 2, 9, 100, 1000, 32_000, LONGEST_KEY][rng.usize(0..7)];
                    tables.longest_key = most as u32;
                }
                2 => tables.spare = [1, 10, 300][rng.usize(0..3)],
                3 => {
                    tables.indexed = true;
                    tables.keys = tables.keys.min(8);
                    *transactions = 400;
                }
                4 => {
                    *sessions = [8, 24, 64][rng.usize(0..3)];
                    *transactions = (*transactions).min(60);
                }
                5 => shape.session_each = true,
                6 => shape.in_flight = Some([1, 4, 32][rng.usize(0..3)]),
                7 if tables.longest_text == 0 => {
                    shape.bulk = true;
                    tables.keys = [500, 3000, 3000, 20_000][rng.usize(0..4)];
                    *lives = (*lives).min(3);
                }
                8 => {
                    shape.reader = true;
                    *sessions = (*sessions).max(3);
                }
                9 => tables.pairs = true,
                10 | 11 => shape.extremes = true,
                _ => {
                    shape.stalled = true;
                    *transactions = 2000;
                }
            }
        }
        shape.fit(PlanParts { tables, sessions, transactions, lives });
        shape
    }

    /// Makes a history as small as its features allow, independent of the order of the draws.
    fn fit(&mut self, drawn: PlanParts<'_>) {
        let PlanParts { tables, sessions, transactions, lives } = drawn;
        let longest_key = tables.longest_key as usize;
        if longest_key > 1000 {
            tables.keys = tables.keys.min((LARGE_BYTES / longest_key) as i64);
            let room = MAX_ROW_BYTES - REST_BYTES - longest_key;
            tables.longest_text = tables.longest_text.min(room as u32);
        }
        if longest_key == LONGEST_KEY {
            *lives = (*lives).min(3);
        }
        // Records longer than a buffer wait for their stream while their rows are locked.
        self.stalled &= tables.longest_text == 0 && !self.bulk && tables.longest_key <= 100;
        if !self.stalled {
            *transactions = (*transactions).min(MOST_TRANSACTIONS);
        }
        if let Some(in_flight) = self.in_flight {
            *transactions = (*transactions).min(CLOSED_LOOP_ROUNDS * in_flight);
        }
        if self.bulk && tables.keys > 8 {
            *transactions = (*transactions).min(if tables.longest_text > 0 { 6 } else { 12 });
        }
        let session = (2 * LARGE_BYTES / tables.row_bytes()).max(LEAST_TRANSACTIONS);
        let life = self.programs(tables).min(LIFE_PROGRAMS);
        *sessions = (*sessions).min(life / LEAST_TRANSACTIONS);
        *transactions = (*transactions).min(session).min(life / *sessions);
    }

    /// Approximate number of transactions of a life within `LIFE_BYTES`.
    pub(crate) fn programs(&self, tables: &Tables) -> usize {
        // With `bulk`, one transaction in three writes a quarter of the keys on average, the rest
        // one or two rows.
        let rows = if self.bulk { 1 + tables.keys as usize / 16 } else { 1 };
        LIFE_BYTES / (rows * tables.row_bytes())
    }

    /// Names of the unusual features.
    pub(crate) fn features(&self, tables: &Tables, sessions: usize) -> Vec<&'static str> {
        let all = [
            (tables.longest_text >= 1 << 20, "rows of 1 to 16 MiB"),
            (tables.longest_text > 0 && tables.longest_text < 1 << 20, "rows of 9 to 300 kB"),
            (tables.longest_key > 32_000, "keys up to the limit"),
            (tables.longest_key > 100 && tables.longest_key <= 32_000, "long keys"),
            (tables.longest_key > 0 && tables.longest_key <= 100, "keys of bytes"),
            (tables.spare > 0, "more tables"),
            (sessions >= 8, "8 to 64 sessions"),
            (self.session_each, "a session for each transaction"),
            (self.in_flight.is_some(), "closed loops"),
            (self.bulk, "transactions of many writes"),
            (self.reader, "readers of everything"),
            (tables.pairs, "bodies that panic on torn views"),
            (self.extremes, "settings at their ends"),
            (self.stalled, "a stream stands still, and others must not"),
        ];
        all.into_iter().filter(|(drawn, _)| *drawn).map(|(_, name)| name).collect()
    }

    /// Sets log settings to the ends of their useful ranges.
    pub(crate) fn log_settings(
        &self,
        rng: &mut Rng,
        (tables, protocol): (&Tables, Protocol),
        log: &mut LogSettings,
    ) {
        if tables.longest_text > 0 {
            // Otherwise each row takes thousands of flushes.
            log.buffer_bytes = 1 << 22;
            log.segment_bytes = 1 << rng.u32(23..26);
        }
        if self.stalled {
            // Half of the buffer holds any record of a stalled history, so that a record in a
            // stream with room never waits.
            log.buffer_bytes = log.buffer_bytes.max(1 << 17);
            log.segment_bytes = log.segment_bytes.max(1 << 19);
        }
        if self.extremes {
            log.research.anchor_interval_bytes = [1, 1 << 40][rng.usize(0..2)];
            log.research.delta_bytes = [0, 1, 1 << 40][rng.usize(0..3)];
            let epochs =
                [Duration::from_micros(100), Duration::from_millis(1), Duration::from_secs(1)];
            log.epoch = Some(epochs[rng.usize(0..3)]);
            if protocol == SILO_R {
                // A ticket waits until its epoch ends: with epochs of a second for minutes.
                log.epoch = log.epoch.filter(|epoch| *epoch < Duration::from_secs(1));
            }
            log.research.flush_fill_bytes = [None, Some(1), Some(usize::MAX)][rng.usize(0..3)];
            log.hot_rows_bytes = [1, 4096, log.hot_rows_bytes][rng.usize(0..3)];
            log.research.whole_rows = rng.bool();
            // Of a clone: known seeds draw the same as before.
            log.research.compresses_lists = rng.clone().bool();
        }
    }

    /// Sets the flushers, the streams of sessions, and the unit of writing.
    pub(crate) fn writing(&self, rng: &mut Rng, log: &mut LogSettings) {
        // Sessions that keep to a stream wait where the stream stalls.
        log.research.fixed_streams = !self.stalled && rng.u32(0..4) == 0;
        log.research.flushed_by_sessions =
            !self.stalled && log.flush_interval.is_none() && rng.u32(0..4) == 0;
        log.research.flush_fill_count = [None, None, Some(1), Some(7)][rng.usize(0..4)];
        log.research.block_bytes = [4096, 4096, 64, 1024][rng.usize(0..4)];
    }

    /// Sets checkpoint settings to the ends of their ranges.
    pub(crate) fn checkpoint_settings(&self, rng: &mut Rng, settings: &mut CheckpointSettings) {
        if self.extremes {
            settings.share = [1e-3, 1.0][rng.usize(0..2)];
            settings.block_bytes = [1, 1 << 30][rng.usize(0..2)];
            settings.buffer_bytes = [1, 1 << 40][rng.usize(0..2)];
        }
    }
}
