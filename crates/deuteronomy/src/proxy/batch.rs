//! The order of the operations of a batch.

use crate::transaction_component::version::Version;

/// The number for an operation's first comparison ([`rank_of`]), and the version to be applied.
pub(super) type Ranked = (u64, Version);

/// Sorts by key, of each key the newest first. Keys with a common beginning, as usual, are compared
/// by the eight bytes behind the common prefix of all: a single number, in the vector.
pub(super) fn sorted(operations: impl Iterator<Item = Version>) -> Vec<Ranked> {
    let mut operations: Vec<Ranked> = operations.map(|version| (0, version)).collect();
    let Some((_, first)) = operations.first() else { return operations };
    let (first, mut common) = (first.key(), first.key().len());
    for (_, version) in &operations {
        let alike = first.iter().zip(version.key()).take(common).take_while(|(a, b)| a == b);
        common = alike.count();
    }
    for (rank, version) in &mut operations {
        *rank = rank_of(&version.key()[common..]);
    }
    operations.sort_unstable_by(|(a_rank, a), (b_rank, b)| {
        a_rank.cmp(b_rank).then_with(|| (a.key(), b.ts()).cmp(&(b.key(), a.ts())))
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
                operations.push(Version::pending(&[prefix, &rest].concat(), ts, None));
            }
            rng.shuffle(&mut operations);
            let found = sorted(operations.clone().into_iter());
            let key_and_ts = |version: &Version| (version.key().to_vec(), version.ts());
            let found: Vec<_> = found.iter().map(|(_, version)| key_and_ts(version)).collect();
            let mut expected: Vec<_> = operations.iter().map(key_and_ts).collect();
            expected.sort_by(|a, b| (&a.0, b.1).cmp(&(&b.0, a.1)));
            assert_eq!(found, expected);
        }
        assert!(sorted([].into_iter()).is_empty());
    }
}
