//! Batches: what is applied at once.

use super::Handed;
use crate::data_component::{DataComponent, Operation};
use crate::error::Error;
use crate::key::Key;
use crate::transaction_component::version::Version;
use std::sync::Arc;

/// X5, X6: applies the newest operation on each key, and then notes that the data component holds
/// them, which lets versions leave the table. In this order, or a version is nowhere (D6).
pub(super) fn apply(data: &dyn DataComponent, ready: &[Handed]) -> Result<(), Error> {
    // Those of transactions that only read have none.
    if ready.iter().all(|record| record.operations.is_empty()) {
        return Ok(());
    }
    let operations = sorted(ready.iter().flat_map(|record| &record.operations));
    let mut batch: Vec<Operation<'_>> = Vec::with_capacity(operations.len());
    for (_, (key, version)) in &operations {
        if batch.last().is_none_or(|last| *last.key != **key) {
            batch.push(Operation { key, ts: version.ts, value: version.value().as_deref() });
        }
    }
    data.apply(&batch)?;
    operations.iter().for_each(|(_, (_, version))| version.set_applied());
    Ok(())
}

/// The number by which an operation is compared first ([`rank_of`]), and the operation.
type Ranked<'r> = (u64, &'r (Key, Arc<Version>));

/// By key, of each key the newest first. Keys that begin alike, as most do, are compared by the
/// eight bytes behind what all of them have in common: one number, which lies in the vector.
fn sorted<'r>(operations: impl Iterator<Item = &'r (Key, Arc<Version>)>) -> Vec<Ranked<'r>> {
    let mut operations: Vec<Ranked<'_>> = operations.map(|operation| (0, operation)).collect();
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
        a_rank.cmp(b_rank).then_with(|| (&a.0, b.1.ts).cmp(&(&b.0, a.1.ts)))
    });
    operations
}

/// The first eight bytes as a number, zeros behind those of a shorter key. Keys whose numbers
/// differ are in the order of these.
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
                // Prefixes of others, zeros at the end, equal keys.
                let rest: Vec<u8> = (0..rng.usize(0..12)).map(|_| rng.u8(0..2)).collect();
                let key = Key::from(&[prefix, &rest].concat()[..]);
                operations.push((key, Version::pending(ts)));
            }
            rng.shuffle(&mut operations);
            let found = sorted(operations.iter());
            let found: Vec<_> = found.iter().map(|(_, (key, v))| (key.to_vec(), v.ts)).collect();
            let mut expected: Vec<_> =
                operations.iter().map(|(key, version)| (key.to_vec(), version.ts)).collect();
            expected.sort_by(|a, b| (&a.0, b.1).cmp(&(&b.0, a.1)));
            assert_eq!(found, expected);
        }
        assert!(sorted([].iter()).is_empty());
    }
}
