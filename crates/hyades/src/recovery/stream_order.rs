//! The order in which a thread in search of work tries the streams.

use smallvec::SmallVec;

/// Returns the streams (`lane` in the code) with work, and the result of `progress` for each:
/// lowest progress first, and among equal streams in turn from `first` on, so threads beginning at
/// different streams rarely try the same stream. `progress` returns `None` if a stream has no work.
///
/// All threads prefer the stream that is furthest behind, because records of other streams may
/// depend on the records of this stream.
#[inline]
pub(super) fn furthest_behind_first<K: Ord + Copy>(
    lanes: usize,
    first: usize,
    progress: impl Fn(usize) -> Option<K>,
) -> impl Iterator<Item = (K, usize)> {
    let in_turn = (0..lanes).map(|at| (first + at) % lanes);
    let mut order: SmallVec<[(K, usize); 16]> =
        in_turn.filter_map(|at| Some((progress(at)?, at))).collect();
    insertion_sort(&mut order);
    order.into_iter()
}

/// Sorts stably. There are few streams, and the function is compiled for every stamp of rows: the
/// sort of the standard library is far more code.
fn insertion_sort<K: Ord>(order: &mut [(K, usize)]) {
    for end in 1..order.len() {
        for at in (1..=end).rev() {
            if order[at - 1].0 <= order[at].0 {
                break;
            }
            order.swap(at - 1, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_come_by_progress_and_equal_ones_in_turn() {
        let progress = [Some(7), None, Some(3), Some(7), Some(3)];
        let order = |first| furthest_behind_first(5, first, |at| progress[at]).collect::<Vec<_>>();
        assert_eq!(order(0), [(3, 2), (3, 4), (7, 0), (7, 3)]);
        assert_eq!(order(3), [(3, 4), (3, 2), (7, 3), (7, 0)]);
        assert_eq!(furthest_behind_first(0, 3, |_| Some(0)).count(), 0);
    }
}
