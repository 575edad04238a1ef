//! The keys that divide an index into parts, one for each thread that scans.

use super::*;

/// The parts between dividing keys hold all entries, in order, and about as many each; with fixed
/// and variable keys, few and many entries.
#[test]
fn dividing_keys_divide_evenly() {
    let shapes = [KeyShape::Fixed(8), KeyShape::Fixed(20), KeyShape::Fixed(40), KeyShape::Variable];
    for (shape, length) in shapes.into_iter().zip([8, 20, 40, 30]) {
        for many in if cfg!(miri) { [0, 1, 200] } else { [0, 1, 30_000] } {
            let index = Index::new(shape);
            let guard = epoch::pin();
            for i in 0..many as u32 {
                let mut key = vec![0; length];
                key[length - 4..].copy_from_slice(&i.to_be_bytes());
                assert!(insert(&index, &key, &guard));
            }
            let keys = index.dividing_keys(8, &guard);
            assert!(keys.len() < 8 && keys.is_sorted() && (keys.len() == 7 || many < 30_000));
            let mut bounds = vec![Bound::Unbounded];
            bounds.extend(keys.iter().map(|key| Bound::Included(&key[..])));
            let mut counts = Vec::new();
            for (part, lower) in bounds.iter().enumerate() {
                let upper =
                    keys.get(part).map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
                counts.push(scan_keys(&index, *lower, upper, false, &guard).len());
            }
            assert_eq!(counts.iter().sum::<usize>(), many);
            assert!(counts.iter().all(|count| *count <= 1000.max(many / 4)), "{counts:?}");
            assert!(index.dividing_keys(1, &guard).is_empty());
            drain(&index);
        }
    }
}
