//! The builder that a handle comes from.

use hyades_platform::random::Random;
use std::sync::atomic::{AtomicU32, Ordering};

/// The origin of a handle: a number drawn by the builder that returned it. Two builders draw the
/// same number with a probability of 2^-32. A handle made by hand has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin(u32);

impl Origin {
    /// No builder: fits every database.
    pub const BY_HAND: Origin = Origin(0);

    /// Draws the origin of a builder's handles.
    pub fn draw() -> Origin {
        Origin((Random::from_entropy().next_u64() as u32).max(1))
    }

    /// Restores an origin from [`Origin::number`].
    pub const fn numbered(number: u32) -> Origin {
        Origin(number)
    }

    /// Returns the number; 0 for a handle made by hand.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Whether a handle of this origin may be used with objects declared by `declared`.
    #[inline(always)]
    pub fn fits(self, declared: Origin) -> bool {
        self == declared || self == Origin::BY_HAND
    }
}

/// The builder that has declared an object. Another builder may declare the object anew.
#[derive(Debug)]
pub(crate) struct DeclaringBuilder(AtomicU32);

impl DeclaringBuilder {
    pub fn new(origin: Origin) -> DeclaringBuilder {
        DeclaringBuilder(AtomicU32::new(origin.0))
    }

    /// The origin of the builder. Relaxed: handles of the builder are used after it has declared
    /// the object, and no rows depend on the origin.
    #[inline(always)]
    pub fn origin(&self) -> Origin {
        Origin(self.0.load(Ordering::Relaxed))
    }

    /// Declares the object by another builder: the handles of the builder before fit no more.
    pub fn set(&self, origin: Origin) {
        self.0.store(origin.0, Ordering::Relaxed);
    }
}
