//! The builder that a handle comes from.

use hyades_platform::random::Random;

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
