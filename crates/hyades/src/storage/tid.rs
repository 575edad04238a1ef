//! Transaction ids, also the versions of rows.

use hyades_platform::epoch::{Epoch, EpochNumber, MAX_EPOCH};
use std::fmt;
use std::time::Duration;

/// The pause of a thread without a TID. The thread may have locked rows, but no other transaction
/// on these rows could commit either.
const NAP_AT_LIMIT: Duration = Duration::from_millis(1);

/// A transaction's identity, and the version of the rows written by the transaction: an epoch above
/// a sequence number, in [`Tid::BITS`] bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Tid(u64);

impl Tid {
    /// Bits of the sequence number.
    pub const SEQUENCE_BITS: u32 = 27;
    /// Bits of a whole TID: a version word has three flags below the TID.
    pub const BITS: u32 = 61;
    /// Below every transaction's TID: the version of a row that was never written.
    pub const NONE: Tid = Tid(0);

    /// Above every transaction's TID.
    pub const ABOVE_ALL: Tid = Tid(u64::MAX);

    #[inline]
    pub const fn new(epoch: EpochNumber, sequence: u64) -> Tid {
        Tid(epoch.0 << Self::SEQUENCE_BITS | sequence)
    }

    /// The highest TID of an epoch; above all TIDs for an epoch above all epochs.
    #[inline]
    pub const fn last_of(epoch: EpochNumber) -> Tid {
        if epoch.0 > MAX_EPOCH.0 {
            return Tid::ABOVE_ALL;
        }
        Tid::new(epoch, (1 << Self::SEQUENCE_BITS) - 1)
    }

    /// The TID with these bits.
    #[inline]
    pub const fn from_bits(bits: u64) -> Tid {
        Tid(bits)
    }

    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub const fn epoch(self) -> EpochNumber {
        EpochNumber(self.0 >> Self::SEQUENCE_BITS)
    }

    #[inline]
    pub const fn sequence(self) -> u64 {
        self.0 & ((1 << Self::SEQUENCE_BITS) - 1)
    }

    /// The lowest TID above this TID; after the last sequence number, in the next epoch.
    #[inline]
    pub const fn next(self) -> Tid {
        Tid(self.0 + 1)
    }

    /// The lowest TID above this TID that is not of an epoch before the current epoch. `None`,
    /// after a nap, if the TID's epoch is above the limit of epochs, see [`Tid::reach`].
    #[inline]
    pub fn next_in(self, epoch: &Epoch) -> Option<Tid> {
        let (above, current) = (self.next(), epoch.current());
        if above.epoch() < current {
            return Some(Tid::new(current, 0));
        }
        above.reach(epoch).then_some(above)
    }

    /// Advances the epoch until it is this TID's: more than 2^27 versions of a row in one epoch
    /// overflow into the epoch number. False, after a nap, if the limit of epochs forbids the
    /// advance: the caller has no TID, and tries again later.
    #[inline]
    pub fn reach(self, epoch: &Epoch) -> bool {
        epoch.current() >= self.epoch() || self.advance_to(epoch)
    }

    #[cold]
    fn advance_to(self, epoch: &Epoch) -> bool {
        while epoch.current() < self.epoch() {
            if !epoch.may_end(epoch.current()) {
                // The retries of a transaction keep no core busy until the limit is raised.
                std::thread::sleep(NAP_AT_LIMIT);
                return epoch.current() >= self.epoch();
            }
            epoch.advance();
        }
        true
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch(), self.sequence())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The last TID of an epoch has a successor in the next epoch alone, and none at the limit.
    #[test]
    fn no_version_is_above_the_limit_of_epochs() {
        let epoch = Epoch::new(EpochNumber(5)).limited_to(EpochNumber(6));
        let [first, last] = [5, 6].map(|epoch| Tid::last_of(EpochNumber(epoch)));
        assert_eq!(first.next_in(&epoch), Some(Tid::new(EpochNumber(6), 0)));
        assert_eq!(epoch.current(), EpochNumber(6));
        assert_eq!(first.next().next_in(&epoch), Some(Tid::new(EpochNumber(6), 1)));
        assert_eq!(last.next_in(&epoch), None);
        assert!(last.reach(&epoch) && !last.next().reach(&epoch));
        assert_eq!(epoch.current(), EpochNumber(6));
        epoch.raise_limit(EpochNumber(7));
        assert_eq!(last.next_in(&epoch), Some(Tid::new(EpochNumber(7), 0)));
        assert_eq!(epoch.current(), EpochNumber(7));
    }
}
