//! Keys with their times of expiry, one behind the other in a run of bytes: no allocation for each.

/// The time, the generation and the length of the key: 6, 8 and 3 bytes.
const HEAD_BYTES: usize = 17;

/// A generation, a key, and when it expires, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry<'e> {
    /// When it expires.
    pub at_ms: i64,
    /// The generation of the key.
    pub generation: u64,
    /// The key, of less than 2^24 bytes.
    pub key: &'e [u8],
}

impl Expiry<'_> {
    /// Bytes that it takes among [`Expiries`].
    pub fn bytes(&self) -> usize {
        HEAD_BYTES + self.key.len()
    }
}

/// Some [`Expiry`], in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Expiries {
    bytes: Vec<u8>,
    count: usize,
}

impl Expiries {
    /// Adds one at the end. Times are below 2^48, those of [`Head`](crate::data::head::Head).
    pub fn push(&mut self, expiry: Expiry<'_>) {
        debug_assert!(expiry.key.len() < 1 << 24 && (0..1 << 48).contains(&expiry.at_ms));
        self.bytes.extend_from_slice(&expiry.at_ms.to_le_bytes()[..6]);
        self.bytes.extend_from_slice(&expiry.generation.to_le_bytes());
        self.bytes.extend_from_slice(&expiry.key.len().to_le_bytes()[..3]);
        self.bytes.extend_from_slice(expiry.key);
        self.count += 1;
    }

    /// The number of them.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Removes all, and keeps a little memory for others.
    pub fn clear(&mut self) {
        if self.bytes.capacity() > 1 << 10 {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.count = 0;
    }

    /// A place behind the last one, for [`Expiries::back_to`].
    pub fn mark(&self) -> (usize, usize) {
        (self.bytes.len(), self.count)
    }

    /// Removes those that were added since then.
    pub fn back_to(&mut self, (bytes, count): (usize, usize)) {
        self.bytes.truncate(bytes);
        self.count = count;
    }

    /// Removes the first `count` timers, of `bytes` bytes together.
    pub fn drop_first(&mut self, bytes: usize, count: usize) {
        self.bytes.drain(..bytes);
        self.count -= count;
    }

    /// Adds all timers of `other`.
    pub fn append(&mut self, other: &Expiries) {
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
    }

    /// All timers.
    pub fn iter(&self) -> impl Iterator<Item = Expiry<'_>> {
        self.from(0)
    }

    /// The timers behind the first `at` [bytes](Expiry::bytes).
    pub fn from(&self, at: usize) -> impl Iterator<Item = Expiry<'_>> {
        self.runs(at).map(read)
    }

    /// The [bytes](Expiry::bytes) of all.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// When the first one expires that was added.
    pub fn first_at_ms(&self) -> Option<i64> {
        self.iter().next().map(|expiry| expiry.at_ms)
    }

    /// The bytes of each.
    fn runs(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[at..];
        std::iter::from_fn(move || {
            let length = rest.get(14..HEAD_BYTES)?;
            let length = usize::from(length[0]) | usize::from(length[1]) << 8;
            let length = length | usize::from(rest[16]) << 16;
            let (first, behind) = rest.split_at(HEAD_BYTES + length);
            rest = behind;
            Some(first)
        })
    }

    /// The same without those that are there twice, in another order.
    pub fn without_doubles(&self) -> Expiries {
        let mut runs: Vec<&[u8]> = self.runs(0).collect();
        runs.sort_unstable();
        runs.dedup();
        Expiries { bytes: runs.concat(), count: runs.len() }
    }
}

fn read(run: &[u8]) -> Expiry<'_> {
    let (mut at, mut generation) = ([0; 8], [0; 8]);
    at[..6].copy_from_slice(&run[..6]);
    generation.copy_from_slice(&run[6..14]);
    Expiry {
        at_ms: i64::from_le_bytes(at),
        generation: u64::from_le_bytes(generation),
        key: &run[HEAD_BYTES..],
    }
}

/// Whether a row that expires at `at_ms` needs a timer. `before` is when it expired before.
pub fn needs_timer(before: Option<i64>, at_ms: i64) -> bool {
    before.is_none_or(|before| at_ms < before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_read_and_taken_back() {
        let long = vec![7; 70_000];
        let all = [
            Expiry { at_ms: 0, generation: 0, key: b"" },
            Expiry { at_ms: (1 << 48) - 1, generation: u64::MAX, key: b"key" },
            Expiry { at_ms: 1_700_000_000_000, generation: 1 << 32, key: &long },
        ];
        let mut expiries = Expiries::default();
        expiries.push(all[0]);
        let mark = expiries.mark();
        all[1..].iter().for_each(|one| expiries.push(*one));
        assert_eq!(expiries.iter().collect::<Vec<_>>(), all);
        expiries.append(&expiries.clone());
        assert_eq!(expiries.len(), 6);
        let once = expiries.without_doubles();
        assert_eq!(once.len(), 3);
        assert!(all.iter().all(|one| once.iter().any(|kept| kept == *one)));
        expiries.back_to(mark);
        assert_eq!(expiries.iter().collect::<Vec<_>>(), all[..1]);
        expiries.clear();
        assert!(expiries.is_empty() && expiries.bytes() <= 1 << 10);
    }
}
