//! The protocols' stamps, and when a transaction may be acknowledged: the engine's rules, with a
//! stamp for every row of the model.

use crate::machine::MAX_STREAMS;

/// A position or number for each stream.
pub type Vector = [u64; MAX_STREAMS];

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
    /// A number above those of all partitions touched.
    Plover,
    /// Numbers that reads do not raise; a blind write waits for its own stream only.
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

    /// Whether rows carry a vector.
    pub fn has_vectors(self) -> bool {
        self == Protocol::Taurus
    }
}

/// What a transaction waits for.
#[derive(Clone, Debug)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// These durable positions.
    Positions(Box<Vector>),
    /// This number, stated by the watermarks of all streams.
    AllMarks(u64),
    /// This number, stated by the watermarks of the streams in a bit set.
    Marks(u32, u64),
    /// This durable position of one stream.
    Position(usize, u64),
}

/// The durable positions and watermarks.
#[derive(Clone, Debug)]
pub struct Frontier {
    /// Number of streams.
    pub streams: usize,
    /// Durable positions.
    pub positions: Vector,
    /// Durable watermarks: numbers or epochs.
    pub marks: Vector,
}

impl Frontier {
    /// Returns a stream that still lacks something, and what it has to reach; `None` if the
    /// transaction may be acknowledged. The rule is monotone: as the frontier grows, what is
    /// admitted stays admitted.
    pub fn lacking(&self, need: &Need) -> Option<(usize, u64)> {
        let short = |have: &Vector, i: usize, want: u64| (want > have[i]).then_some((i, want));
        let (positions, marks) = (&self.positions, &self.marks);
        let mut all = 0..self.streams;
        match need {
            Need::Nothing => None,
            Need::Positions(vector) => all.find_map(|i| short(positions, i, vector[i])),
            Need::AllMarks(mark) => all.find_map(|i| short(marks, i, *mark)),
            Need::Marks(set, mark) => {
                all.filter(|i| set & (1 << i) != 0).find_map(|i| short(marks, i, *mark))
            }
            Need::Position(stream, at) => short(positions, *stream, *at),
        }
    }
}

/// The stamps of all rows.
pub struct Rows {
    /// LSN vectors, where the protocol has them: of the writers and, with commands, of the readers.
    vectors: Vec<Vector>,
    /// Transaction numbers.
    numbers: Vec<u64>,
}

impl Rows {
    /// Empty stamps for `rows` rows.
    pub fn new(protocol: Protocol, rows: u32) -> Rows {
        let vectors = if protocol.has_vectors() { rows as usize } else { 0 };
        Rows { vectors: vec![[0; MAX_STREAMS]; vectors], numbers: vec![0; rows as usize] }
    }

    /// Joins a row's vector into a transaction's.
    pub fn fold(&self, row: u32, into: &mut Vector) {
        for (into, from) in into.iter_mut().zip(&self.vectors[row as usize]) {
            *into = (*into).max(*from);
        }
    }

    /// Raises a row's vector to a transaction's.
    pub fn publish(&mut self, row: u32, from: &Vector) {
        for (into, from) in self.vectors[row as usize].iter_mut().zip(from) {
            *into = (*into).max(*from);
        }
    }

    /// A row's number.
    pub fn number(&self, row: u32) -> u64 {
        self.numbers[row as usize]
    }

    /// Raises a row's number.
    pub fn raise(&mut self, row: u32, to: u64) {
        let number = &mut self.numbers[row as usize];
        *number = (*number).max(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frontier(marks: [u64; 2], positions: [u64; 2]) -> Frontier {
        let wide = |of: [u64; 2]| {
            let mut vector = [0; MAX_STREAMS];
            vector[..2].copy_from_slice(&of);
            vector
        };
        Frontier { streams: 2, positions: wide(positions), marks: wide(marks) }
    }

    #[test]
    fn what_is_lacking_is_named() {
        let f = frontier([3, 5], [10, 20]);
        assert_eq!(f.lacking(&Need::AllMarks(3)), None);
        assert_eq!(f.lacking(&Need::AllMarks(4)), Some((0, 4)));
        assert_eq!(f.lacking(&Need::Marks(0b10, 5)), None);
        assert_eq!(f.lacking(&Need::Position(1, 21)), Some((1, 21)));
        let mut vector = [0; MAX_STREAMS];
        vector[0] = 11;
        assert_eq!(f.lacking(&Need::Positions(Box::new(vector))), Some((0, 11)));
    }

    #[test]
    fn folding_what_was_published_dominates_it() {
        let mut rows = Rows::new(Protocol::Taurus, 4);
        let mut writer = [0; MAX_STREAMS];
        writer[3] = 7;
        rows.publish(2, &writer);
        let mut reader = [0; MAX_STREAMS];
        reader[1] = 9;
        rows.fold(2, &mut reader);
        assert_eq!((reader[1], reader[3]), (9, 7));
    }
}
