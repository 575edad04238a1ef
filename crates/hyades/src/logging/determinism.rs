//! The draws of a procedure beside its arguments: time and random numbers. A command's record
//! states the draws, so that replay repeats them.

use super::record::RecordHead;
use crate::storage::tid::Tid;

/// Time and random seed of a transaction, fixed when first used. A command's record states the used
/// values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Determinism {
    pub time_us: Option<i64>,
    pub seed: Option<u64>,
    /// Number of random numbers drawn.
    pub drawn: u64,
}

impl Determinism {
    /// Restores the values stated by a command's record.
    pub fn recorded(head: &RecordHead) -> Self {
        Determinism { time_us: head.time_us, seed: head.seed, drawn: 0 }
    }

    /// Returns the seed of a call that was logged before execution, if the record states no seed:
    /// the same for every run.
    pub fn seed_of(tid: Tid, arguments: &[u8]) -> u64 {
        split_mix(tid.bits() ^ u64::from(crc32c::crc32c(arguments)) << 32)
    }

    /// Returns the next random number. `fresh` supplies the seed for the first number.
    pub fn random(&mut self, fresh: impl FnOnce() -> u64) -> u64 {
        let seed = *self.seed.get_or_insert_with(fresh);
        self.drawn += 1;
        split_mix(seed.wrapping_add(self.drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}

/// Finaliser of a splittable generator (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA 2014). Command replay repeats the numbers, so the function must never
/// change.
fn split_mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The draws of a procedure that the record of a call has to state if logged before execution: a
/// set. The set is learnt: a call with a draw missing in the record is rolled back, and logged
/// anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drawn(pub u8);

impl Drawn {
    pub const NOTHING: Drawn = Drawn(0);
    pub const TIME: Drawn = Drawn(1);
    /// Hidden ids of rows.
    pub const ROW_IDS: Drawn = Drawn(2);

    pub fn with(self, other: Drawn) -> Drawn {
        Drawn(self.0 | other.0)
    }

    pub fn contains(self, other: Drawn) -> bool {
        self.0 & other.0 == other.0
    }
}
