//! HyperLogLog: an estimate of the number of different elements, in a string of at most 12 KiB. The
//! bytes are those of Redis, so that strings, dumps and replicas of both servers mean the same.
//!
//! A head of 16 bytes (`HYLL`, the encoding, three zeros, the last estimate) stands in front of
//! 16,384 registers. A register has the greatest rank of the elements that fall to it: the place of
//! the first set bit in the rest of an element's hash. *Dense* registers have six bits each.
//! *Sparse* registers are runs: `00llllll` stands for `l + 1` registers of 0, `01llllll llllllll`
//! for more registers of 0, `1vvvvvll` for `l + 1` registers of `v + 1`.

mod estimate;
mod runs;

use estimate::{estimate, hash};
use runs::{MOST_SPARSE_RANK, Run, Runs, covering, merge_equal};

/// Bits of a hash that choose a register.
const INDEX_BITS: u32 = 14;

/// The number of registers.
pub const REGISTERS: usize = 1 << INDEX_BITS;

/// Bits of a dense register.
const REGISTER_BITS: usize = 6;

const MAGIC: &[u8; 4] = b"HYLL";

/// Bytes of the head.
const HEAD_BYTES: usize = 16;

/// The place of the estimate. The highest bit is set if the estimate is no longer valid.
const ESTIMATE: std::ops::Range<usize> = 8..16;
const NO_ESTIMATE: u8 = 1 << 7;

/// Bytes of a dense sketch.
const DENSE_BYTES: usize = HEAD_BYTES + REGISTERS * REGISTER_BITS / 8;

/// The place of the encoding, and the possible values.
const ENCODING: usize = 4;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;

/// The runs of a string do not stand for 16,384 registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// All registers, a byte each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers(pub Vec<u8>);

impl Default for Registers {
    fn default() -> Registers {
        Registers(vec![0; REGISTERS])
    }
}

impl Registers {
    /// The number of different elements, about.
    pub fn count(&self) -> u64 {
        let mut histogram = [0; 64];
        self.0.iter().for_each(|rank| histogram[usize::from(*rank)] += 1);
        estimate(&histogram)
    }
}

/// A HyperLogLog as a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch(Vec<u8>);

impl Sketch {
    /// The sketch of no elements.
    pub fn empty() -> Sketch {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[ENCODING] = SPARSE;
        Run::zeros(REGISTERS).push(&mut bytes);
        Sketch(bytes)
    }

    /// The sketch in a string, if head and length are those of a sketch.
    pub fn of(bytes: Vec<u8>) -> Option<Sketch> {
        let has_head = bytes.len() >= HEAD_BYTES && bytes.starts_with(MAGIC);
        let is_one = has_head
            && match bytes[ENCODING] {
                DENSE => bytes.len() == DENSE_BYTES,
                encoding => encoding == SPARSE,
            };
        is_one.then_some(Sketch(bytes))
    }

    /// The string.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the registers are runs.
    pub fn is_sparse(&self) -> bool {
        self.0[ENCODING] == SPARSE
    }

    fn runs(&self) -> Runs<'_> {
        Runs::new(&self.0[HEAD_BYTES..])
    }

    /// The runs, if the sketch is sparse, as text: `Z:` and `z:` with the number of registers of 0,
    /// `v:` with the rank and the number of other registers.
    pub fn shown_runs(&self) -> String {
        self.runs().map(Run::shown).collect::<Vec<_>>().join(" ")
    }

    /// The last estimate, if nothing was added since.
    pub fn last_estimate(&self) -> Option<u64> {
        let bytes: [u8; 8] = self.0[ESTIMATE].try_into().expect("it has eight");
        (bytes[7] & NO_ESTIMATE == 0).then(|| u64::from_le_bytes(bytes))
    }

    /// Stores an estimate.
    pub fn keep_estimate(&mut self, count: u64) {
        self.0[ESTIMATE].copy_from_slice(&count.to_le_bytes());
    }

    /// Marks the estimate as no longer valid.
    pub fn drop_estimate(&mut self) {
        self.0[ESTIMATE.end - 1] |= NO_ESTIMATE;
    }

    /// The number of different elements, about.
    pub fn count(&self) -> Result<u64, Corrupt> {
        let mut histogram = [0; 64];
        if self.is_sparse() {
            let mut registers = 0;
            for run in self.runs() {
                histogram[usize::from(run.rank())] += run.len();
                registers += run.len();
            }
            if registers != REGISTERS {
                return Err(Corrupt);
            }
        } else {
            (0..REGISTERS).for_each(|at| histogram[usize::from(self.dense(at))] += 1);
        }
        Ok(estimate(&histogram))
    }

    /// Raises each register to the sketch's register, if the latter is higher.
    pub fn raise(&self, registers: &mut Registers) -> Result<(), Corrupt> {
        if !self.is_sparse() {
            for (at, register) in registers.0.iter_mut().enumerate() {
                *register = (*register).max(self.dense(at));
            }
            return Ok(());
        }
        let mut at = 0;
        for run in self.runs() {
            let covered = registers.0.get_mut(at..at + run.len()).ok_or(Corrupt)?;
            covered.iter_mut().for_each(|register| *register = (*register).max(run.rank()));
            at += run.len();
        }
        if at == REGISTERS { Ok(()) } else { Err(Corrupt) }
    }

    /// The registers.
    pub fn registers(&self) -> Result<Registers, Corrupt> {
        let mut registers = Registers::default();
        self.raise(&mut registers)?;
        Ok(registers)
    }

    /// Adds an element. Returns whether a register has changed. A sparse sketch becomes dense
    /// rather than longer than `most_sparse` bytes.
    pub fn add(&mut self, element: &[u8], most_sparse: usize) -> Result<bool, Corrupt> {
        let hash = hash(element);
        let at = hash as usize & (REGISTERS - 1);
        // A bit behind the last bit of the hash bounds the rank.
        let rest = hash >> INDEX_BITS | 1 << (64 - INDEX_BITS);
        self.raise_one(at, rest.trailing_zeros() as u8 + 1, most_sparse)
    }

    /// Raises a register to a rank. Returns whether the register was lower.
    pub fn raise_one(&mut self, at: usize, rank: u8, most_sparse: usize) -> Result<bool, Corrupt> {
        match self.is_sparse() {
            true => self.raise_sparse(at, rank, most_sparse),
            false => Ok(self.raise_dense(at, rank)),
        }
    }

    fn raise_sparse(
        &mut self,
        index: usize,
        rank: u8,
        most_sparse: usize,
    ) -> Result<bool, Corrupt> {
        if rank > MOST_SPARSE_RANK {
            self.make_dense()?;
            return Ok(self.raise_dense(index, rank));
        }
        let found = covering(&self.0, HEAD_BYTES, index).ok_or(Corrupt)?;
        if found.run.rank() >= rank {
            return Ok(false);
        }
        let (mut pieces, run) = (Vec::with_capacity(5), found.run);
        let (before, behind) = (index - found.first, found.first + run.len() - 1 - index);
        run.of_len(before).push(&mut pieces);
        Run::value(rank, 1).push(&mut pieces);
        run.of_len(behind).push(&mut pieces);
        let grows = pieces.len() > run.bytes();
        if grows && self.0.len() + pieces.len() - run.bytes() > most_sparse {
            self.make_dense()?;
            return Ok(self.raise_dense(index, rank));
        }
        self.0.splice(found.at..found.at + run.bytes(), pieces);
        merge_equal(&mut self.0, found.before);
        Ok(true)
    }

    /// Makes the sketch dense.
    pub fn make_dense(&mut self) -> Result<(), Corrupt> {
        if self.is_sparse() {
            let registers = self.registers()?;
            self.0.truncate(HEAD_BYTES);
            self.0.resize(DENSE_BYTES, 0);
            self.0[ENCODING] = DENSE;
            for (at, rank) in registers.0.iter().enumerate().filter(|(_, rank)| **rank > 0) {
                self.raise_dense(at, *rank);
            }
        }
        Ok(())
    }

    /// The rank in a dense register.
    fn dense(&self, at: usize) -> u8 {
        let (byte, bit) = dense_place(at);
        let word = u16::from(self.0[byte]) | u16::from(*self.0.get(byte + 1).unwrap_or(&0)) << 8;
        (word >> bit) as u8 & MOST_DENSE_RANK
    }

    fn raise_dense(&mut self, at: usize, rank: u8) -> bool {
        if self.dense(at) >= rank {
            return false;
        }
        let (byte, bit) = dense_place(at);
        let (mask, new) = (u16::from(MOST_DENSE_RANK) << bit, u16::from(rank) << bit);
        self.0[byte] = self.0[byte] & !(mask as u8) | new as u8;
        if mask >> 8 != 0 {
            self.0[byte + 1] = self.0[byte + 1] & !((mask >> 8) as u8) | (new >> 8) as u8;
        }
        true
    }
}

/// The greatest number in a dense register.
const MOST_DENSE_RANK: u8 = (1 << REGISTER_BITS) - 1;

/// The place of a dense register: the byte, and the first bit in the byte.
fn dense_place(at: usize) -> (usize, usize) {
    let bits = at * REGISTER_BITS;
    (HEAD_BYTES + bits / 8, bits % 8)
}

/// Checks that registers keep their values, and that estimates are good enough. Returns a
/// description of the first failure.
pub fn self_test() -> Result<(), String> {
    const ELEMENTS: u64 = 50_000;
    const MOST_SPARSE: usize = 3_000;
    let (mut sketch, mut dense) = (Sketch::empty(), Sketch::empty());
    dense.make_dense().map_err(|Corrupt| "an empty one has too few registers")?;
    for number in 1..=ELEMENTS {
        let added =
            (sketch.add(&number.to_le_bytes(), MOST_SPARSE), dense.add(&number.to_le_bytes(), 0));
        if added.0 != added.1 {
            return Err(format!("element {number} is {:?} here, {:?} there", added.0, added.1));
        }
        if !number.is_power_of_two() {
            continue;
        }
        if sketch.registers() != dense.registers() {
            return Err(format!("registers of {number} elements differ between the encodings"));
        }
        let counted = sketch.count().map_err(|Corrupt| "the runs are too few")?;
        // Six standard errors, or two of few elements.
        let allowed = (number as f64 * 6.0 * 1.04 / (REGISTERS as f64).sqrt()).max(2.0);
        if (counted as f64 - number as f64).abs() > allowed {
            return Err(format!("{number} elements are counted as {counted}"));
        }
    }
    match sketch.is_sparse() {
        true => Err(format!("{ELEMENTS} elements are sparse")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
