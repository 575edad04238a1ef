//! What a history's data and clients look like. Most histories are plain; each of the others draws a few features,
//! and each of them strongly (Groce, Zhang, Eide, Chen, Regehr: "Swarm testing", ISSTA 2012): a test that has a
//! little of everything has nothing at its extreme.

use crate::schema::Tables;
use fastrand::Rng;
use hyades::{CheckpointSettings, LogSettings, MAX_KEY_BYTES, MAX_ROW_BYTES, RetrySettings};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is not plain in a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Each transaction has a session of its own.
    pub session_each: bool,
    /// A client begins no transaction while so many of its own are not answered.
    pub in_flight: Option<usize>,
    /// Transactions write ranges of keys.
    pub bulk: bool,
    /// One session does nothing but read everything.
    pub reader: bool,
    /// Settings at the ends of their ranges.
    pub extremes: bool,
    /// One stream's device stands still, and what does not depend on it has to go on.
    pub stalled: bool,
}

/// What a plan draws a shape for.
pub(crate) struct Drawn<'p> {
    pub tables: &'p mut Tables,
    pub sessions: &'p mut usize,
    pub transactions: &'p mut usize,
    pub lives: &'p mut usize,
}

/// The largest row's bytes, other than its text and key, in round numbers.
const REST_BYTES: usize = 64;

/// All rows of a history with large ones take about so many bytes.
const LARGE_BYTES: usize = 48 << 20;

/// The transactions of a life write about so many bytes at most: a simulated disk is in memory, as it is seen and as
/// it is on the medium, and keeps what all lives wrote.
const LIFE_BYTES: usize = 8 * LARGE_BYTES;

/// So many transactions of a life can be judged in a second, even if all of them write the same row.
const LIFE_PROGRAMS: usize = 8000;

/// More transactions of a session than this only have to be where a stream stands still.
const MOST_TRANSACTIONS: usize = 400;

/// Fewer transactions of a session than this show little.
const LEAST_TRANSACTIONS: usize = 3;

/// The longest keys of a history, in bytes before they are encoded, which may double them.
const LONGEST_KEY: usize = MAX_KEY_BYTES / 2 - 1;

impl Shape {
    /// The shape that a seed stands for; changes what it is drawn for.
    pub(crate) fn random(rng: &mut Rng, drawn: Drawn<'_>) -> Shape {
        let mut shape = Shape::default();
        if rng.bool() {
            return shape;
        }
        let Drawn { tables, sessions, transactions, lives } = drawn;
        for _ in 0..rng.usize(1..4) {
            match rng.u32(0..14) {
                0 | 13 => {
                    let most = [9_000, 40_000, 300_000, 1 << 20, MAX_ROW_BYTES - REST_BYTES];
                    let most = most[rng.usize(0..most.len()).min(rng.usize(0..most.len() + 1))];
                    tables.longest_text = most as u32;
                    tables.keys = ((LARGE_BYTES / most) as i64).clamp(4, 1200);
                    *lives = (*lives).min(3);
                    if rng.bool() {
                        // All of them are there then.
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
        shape.fit(Drawn { tables, sessions, transactions, lives });
        shape
    }

    /// Makes a history as small as its features allow, in whatever order they were drawn.
    fn fit(&mut self, drawn: Drawn<'_>) {
        let Drawn { tables, sessions, transactions, lives } = drawn;
        let longest_key = tables.longest_key as usize;
        if longest_key > 1000 {
            tables.keys = tables.keys.min((LARGE_BYTES / longest_key) as i64);
            let room = MAX_ROW_BYTES - REST_BYTES - longest_key;
            tables.longest_text = tables.longest_text.min(room as u32);
        }
        if longest_key == LONGEST_KEY {
            *lives = (*lives).min(3);
        }
        // A record longer than a buffer waits for its stream while its rows are locked.
        self.stalled &= tables.longest_text == 0 && !self.bulk && tables.longest_key <= 100;
        if !self.stalled {
            *transactions = (*transactions).min(MOST_TRANSACTIONS);
        }
        if self.bulk && tables.keys > 8 {
            *transactions = (*transactions).min(if tables.longest_text > 0 { 6 } else { 12 });
        }
        let session = (2 * LARGE_BYTES / tables.row_bytes()).max(LEAST_TRANSACTIONS);
        let life = self.programs(tables).min(LIFE_PROGRAMS);
        *sessions = (*sessions).min(life / LEAST_TRANSACTIONS);
        *transactions = (*transactions).min(session).min(life / *sessions);
    }

    /// The transactions of a life that write no more than it may, about.
    pub(crate) fn programs(&self, tables: &Tables) -> usize {
        // One in three writes a quarter of the keys then, and others one or two rows.
        let rows = if self.bulk { 1 + tables.keys as usize / 16 } else { 1 };
        LIFE_BYTES / (rows * tables.row_bytes())
    }

    /// What is not plain, in words.
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

    /// Settings of the log at the ends of what makes sense.
    pub(crate) fn log_settings(&self, rng: &mut Rng, tables: &Tables, log: &mut LogSettings) {
        if tables.longest_text > 0 {
            // Otherwise each row takes thousands of flushes.
            log.buffer_bytes = 1 << 22;
            log.segment_bytes = 1 << rng.u32(23..26);
        }
        if self.stalled {
            // Room for any record of such a history in half of it: what is begun in a stream with room never waits.
            log.buffer_bytes = log.buffer_bytes.max(1 << 17);
            log.segment_bytes = log.segment_bytes.max(1 << 19);
        }
        if self.extremes {
            log.anchor_interval_bytes = [1, 1 << 40][rng.usize(0..2)];
            log.delta_bytes = [0, 1, 1 << 40][rng.usize(0..3)];
            let epochs =
                [Duration::from_micros(100), Duration::from_millis(1), Duration::from_secs(1)];
            log.epoch = Some(epochs[rng.usize(0..3)]);
            log.flush_fill_bytes = [None, Some(1), Some(usize::MAX)][rng.usize(0..3)];
            log.hot_rows_bytes = [1, 4096, log.hot_rows_bytes][rng.usize(0..3)];
            log.whole_rows = rng.bool();
        }
    }

    /// Settings of checkpoints at their ends.
    pub(crate) fn checkpoint_settings(&self, rng: &mut Rng, settings: &mut CheckpointSettings) {
        if self.extremes {
            settings.share = [1e-3, 1.0][rng.usize(0..2)];
            settings.block_bytes = [1, 1 << 30][rng.usize(0..2)];
            settings.buffer_bytes = [1, 1 << 40][rng.usize(0..2)];
        }
    }

    /// How long a transaction may starve: far less than a history may take, and far more than it needs.
    pub(crate) fn retry_settings(&self, rng: &mut Rng, retries: &mut RetrySettings) {
        retries.deadline = Some(Duration::from_secs(if self.reader { 3 } else { 20 }));
        if self.reader {
            retries.alone_after = Some(Duration::from_millis(20));
        } else if self.extremes {
            retries.alone_after = [None, Some(Duration::ZERO)][rng.usize(0..2)];
        }
    }
}
