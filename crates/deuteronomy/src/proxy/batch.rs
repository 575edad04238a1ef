//! The order of the operations of a batch.

use crate::key::Key;
use crate::transaction_component::version::Version;

/// A key, and a version of the key to be applied.
pub(super) type KeyVersion = (Key, Version);

/// The number for an operation's first comparison ([`rank_of`]), and the operation.
pub(super) type Ranked = (u64, KeyVersion);

/// Sorts by key, of each key the newest first. Keys with a common beginning, as usual, are compared
/// by the eight bytes behind the common prefix of all: a single number, in the vector.
pub(super) fn sorted(operations: impl Iterator<Item = KeyVersion>) -> Vec<Ranked> {
    let mut operations: Vec<Ranked> = operations.map(|operation| (0, operation)).collect();
    let Some((_, (first, _))) = operations.first() else { return operations };
    let mut common = first.len();
    for (_, (key, _)) in &operations {
        let alike = first.iter().zip(&**key).take(common).take_while(|(a, b)| a == b);
        common = alike.count();
    }
    for (rank, (key, _)) in &mut operations {
        *rank = rank_of(&key[common..]);
    }
    operations.sort_unstable_by(|(a_rank, a), (b_rank, b)| {
        a_rank.cmp(b_rank).then_with(|| (&a.0, b.1.ts()).cmp(&(&b.0, a.1.ts())))
    });
    operations
}

/// The first eight bytes as a number, zeros behind the bytes of a shorter key. Keys with different
/// numbers are in the order of the numbers.
fn rank_of(rest: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = rest.len().min(8);
    bytes[..len].copy_from_slice(&rest[..len]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_in_the_order_of_keys_and_of_each_the_newest_comes_first() {
        let mut rng = fastrand::Rng::with_seed(6);
        for prefix in [&b""[..], b"key", &[9; 40]] {
            let mut operations = Vec::new();
            for ts in 0..500 {
                // Prefixes of other keys, zeros at the end, equal keys.
                let rest: Vec<u8> = (0..rng.usize(0..12)).map(|_| rng.u8(0..2)).collect();
                let key = Key::from(&[prefix, &rest].concat()[..]);
                operations.push((key, Version::pending(ts, None)));
            }
            rng.shuffle(&mut operations);
            let found = sorted(operations.clone().into_iter());
            let found: Vec<_> = found.iter().map(|(_, (key, v))| (key.to_vec(), v.ts())).collect();
            let mut expected: Vec<_> =
                operations.iter().map(|(key, version)| (key.to_vec(), version.ts())).collect();
            expected.sort_by(|a, b| (&a.0, b.1).cmp(&(&b.0, a.1)));
            assert_eq!(found, expected);
        }
        assert!(sorted([].into_iter()).is_empty());
    }
}
