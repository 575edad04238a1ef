//! The state that the transactions of a partition leave for the next transaction there, where a
//! partition runs its transactions in sequence: the stamp of the logging protocol, and the last
//! version.

use super::turns::TurnQueues;
use crate::storage::Stamp;
use crate::storage::partition::{SLOTS, TouchedPartitions};
use crate::storage::tid::Tid;
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::{AtomicU64, Ordering};

/// The state left by the last transaction of a partition. Read and written by the transaction that
/// holds the partition.
#[derive(Default)]
pub struct PartitionStamp<S> {
    pub stamp: S,
    /// The TID of the last writer. Relaxed: the turns order all accesses.
    last: AtomicU64,
}

impl<S> PartitionStamp<S> {
    pub fn last(&self) -> Tid {
        Tid::from_bits(self.last.load(Ordering::Relaxed))
    }

    pub fn set_last(&self, tid: Tid) {
        let rules = [Mutation::UncheckedPartitions, Mutation::HandOnBeforeInstall];
        let ascends = self.last() < tid || rules.into_iter().any(mutation::is);
        debug_assert!(ascends, "versions in a partition ascend");
        self.last.store(tid.bits(), Ordering::Relaxed);
    }
}

/// The partitions of a database.
pub struct PartitionStamps<S> {
    pub turns: TurnQueues<PartitionStamp<S>>,
}

impl<S: Stamp> PartitionStamps<S> {
    /// `count` is a power of two up to [`SLOTS`].
    pub fn new(count: usize, waits: bool) -> Self {
        debug_assert!(count.is_power_of_two() && count <= SLOTS as usize);
        PartitionStamps { turns: TurnQueues::new(count, waits) }
    }

    /// The set of all partitions.
    #[inline]
    pub fn all(&self) -> u64 {
        u64::MAX >> (SLOTS as usize - self.turns.partitions())
    }

    /// The partitions of a set of slots.
    pub fn of_slots(&self, slots: u64) -> u64 {
        let count = self.turns.partitions() as u32;
        (0..SLOTS / count).fold(0, |set, nth| set | slots >> (nth * count)) & self.all()
    }

    /// The partitions that an access touches; none if any partition will do.
    #[inline]
    pub fn touched(&self, touched: TouchedPartitions) -> u64 {
        let one = |number: u32| 1 << (number & (self.turns.partitions() as u32 - 1));
        match touched {
            TouchedPartitions::One(slot) => one(slot),
            TouchedPartitions::All => self.all(),
            TouchedPartitions::Any => 0,
        }
    }

    /// The stamps of the partitions in a set.
    pub fn stamps(&self, set: u64) -> impl Iterator<Item = &PartitionStamp<S>> {
        let mut rest = set;
        std::iter::from_fn(move || {
            let at = rest.trailing_zeros() as usize;
            (rest != 0).then(|| {
                rest &= rest - 1;
                self.turns.left(at)
            })
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_fold_into_partitions() {
        let partitions = PartitionStamps::<()>::new(4, true);
        assert_eq!(partitions.all(), 0b1111);
        assert_eq!(partitions.of_slots(1 << 63 | 1 << 4), 0b1001);
        assert_eq!(partitions.touched(TouchedPartitions::One(63)), 0b1000);
        let most = PartitionStamps::<()>::new(64, true);
        assert_eq!(most.of_slots(u64::MAX - 1), most.all() - 1);
        assert_eq!(most.stamps(1 << 63 | 1).count(), 2);
        let single = PartitionStamps::<()>::new(1, true);
        assert_eq!((single.all(), single.of_slots(1 << 9)), (1, 1));
    }
}
