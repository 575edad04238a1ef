//! The sparse registers of a HyperLogLog: runs of equal registers.

/// The greatest rank in a run.
pub const MOST_SPARSE_RANK: u8 = 32;

/// Most registers of a run with a rank other than 0.
const MOST_OF_RANK: usize = 4;

/// Most registers of a run of rank 0 in one byte.
const MOST_ZEROS: usize = 64;

/// The number of runs examined for equal neighbours after a change.
const LOOKED_AT: usize = 5;

/// The kinds of runs, by their first bits.
const MANY_ZEROS: u8 = 0b0100_0000;
const RANKED: u8 = 0b1000_0000;

/// Equal registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// This many registers of rank 0, in one byte.
    Zeros(usize),
    /// This many registers of rank 0, in two bytes.
    ManyZeros(usize),
    /// A rank, and the number of registers with this rank.
    Ranked(u8, usize),
}

impl Run {
    /// Registers of rank 0, in as few bytes as possible.
    pub fn zeros(len: usize) -> Run {
        if len > MOST_ZEROS { Run::ManyZeros(len) } else { Run::Zeros(len) }
    }

    /// Registers of another rank.
    pub fn value(rank: u8, len: usize) -> Run {
        Run::Ranked(rank, len)
    }

    /// The run at a place, if there is one.
    fn at(bytes: &[u8], at: usize) -> Option<Run> {
        let first = *bytes.get(at)?;
        Some(match first {
            _ if first & RANKED != 0 => {
                Run::Ranked((first >> 2 & 0x1f) + 1, usize::from(first & 3) + 1)
            }
            _ if first & MANY_ZEROS != 0 => {
                let low = usize::from(*bytes.get(at + 1)?);
                Run::ManyZeros((usize::from(first & 0x3f) << 8 | low) + 1)
            }
            _ => Run::Zeros(usize::from(first) + 1),
        })
    }

    /// The bytes of the run.
    pub fn bytes(self) -> usize {
        if matches!(self, Run::ManyZeros(_)) { 2 } else { 1 }
    }

    /// The number of registers.
    pub fn len(self) -> usize {
        match self {
            Run::Zeros(len) | Run::ManyZeros(len) | Run::Ranked(_, len) => len,
        }
    }

    /// The rank of the registers.
    pub fn rank(self) -> u8 {
        match self {
            Run::Zeros(_) | Run::ManyZeros(_) => 0,
            Run::Ranked(rank, _) => rank,
        }
    }

    /// A run of `len` registers of the same rank.
    pub fn of_len(self, len: usize) -> Run {
        match self.rank() {
            0 => Run::zeros(len),
            rank => Run::Ranked(rank, len),
        }
    }

    /// Appends the run, unless it has no registers.
    pub fn push(self, out: &mut Vec<u8>) {
        match self {
            _ if self.len() == 0 => {}
            Run::Zeros(len) => out.push((len - 1) as u8),
            Run::ManyZeros(len) => {
                out.extend([MANY_ZEROS | ((len - 1) >> 8) as u8, (len - 1) as u8]);
            }
            Run::Ranked(rank, len) => out.push(RANKED | (rank - 1) << 2 | (len - 1) as u8),
        }
    }

    /// The run as text.
    pub fn shown(self) -> String {
        match self {
            Run::Zeros(len) => format!("z:{len}"),
            Run::ManyZeros(len) => format!("Z:{len}"),
            Run::Ranked(rank, len) => format!("v:{rank},{len}"),
        }
    }
}

/// Runs, one after the other.
pub struct Runs<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Runs<'a> {
    /// The runs in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Runs<'a> {
        Runs { bytes, at: 0 }
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let run = Run::at(self.bytes, self.at)?;
        self.at += run.bytes();
        Some(run)
    }
}

/// The result of a search for a run.
pub struct FoundRun {
    /// The run.
    pub run: Run,
    /// Where the run begins.
    pub at: usize,
    /// Where the previous run begins; for the first run, where the run itself begins.
    pub before: usize,
    /// The number of the run's first register.
    pub first: usize,
}

/// The run of a register, among the runs from `begin` on.
pub fn covering(bytes: &[u8], begin: usize, index: usize) -> Option<FoundRun> {
    let (mut at, mut before, mut first) = (begin, begin, 0);
    loop {
        let run = Run::at(bytes, at)?;
        if index < first + run.len() {
            return Some(FoundRun { run, at, before, first });
        }
        (before, at, first) = (at, at + run.bytes(), first + run.len());
    }
}

/// Merges two neighbours of the same rank where one run can stand for both, among the first few
/// runs from `begin` on: not runs of rank 0, as in Redis.
pub fn merge_equal(bytes: &mut Vec<u8>, begin: usize) {
    let mut at = begin;
    for _ in 0..LOOKED_AT {
        let Some(run) = Run::at(bytes, at) else { return };
        match (run, Run::at(bytes, at + 1)) {
            (Run::Ranked(a, len), Some(Run::Ranked(b, more)))
                if a == b && len + more <= MOST_OF_RANK =>
            {
                let mut both = Vec::with_capacity(1);
                Run::Ranked(a, len + more).push(&mut both);
                bytes.splice(at..at + 2, both);
            }
            _ => at += run.bytes(),
        }
    }
}
