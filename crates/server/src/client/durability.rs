//! When a client is told of a transaction: once it is durable, or before.
//!
//! Whatever a client chooses, its transactions are in the log in their order, and another client
//! that sees what they wrote is told so only when that is durable, unless it chose likewise.

/// When the replies of a transaction are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it, and all that it has seen, is on disk.
    #[default]
    Acknowledged,
    /// At once, unless the client was told of something that is not on disk after a second.
    Second,
    /// At once.
    Free,
}

impl Durability {
    const ALL: [Durability; 3] = [Durability::Acknowledged, Durability::Second, Durability::Free];

    /// Its name in HYADES.DURABILITY.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Acknowledged => "ack",
            Durability::Second => "1s",
            Durability::Free => "none",
        }
    }

    /// The one that has this name.
    pub fn named(name: &[u8]) -> Option<Durability> {
        Self::ALL
            .into_iter()
            .find(|durability| name.eq_ignore_ascii_case(durability.name().as_bytes()))
    }
}
