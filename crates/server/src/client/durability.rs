//! When a client is told of a transaction: once the transaction is durable, or before.
//!
//! Whatever a client chooses, its transactions are in the log in their order, and another client's
//! reply about their writes waits until the writes are durable, unless the other client chose
//! likewise.

/// When the replies of a transaction are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the transaction, with all data seen, is on disk.
    #[default]
    Acknowledged,
    /// At once, unless the client was told of something that is not on disk after a second.
    Second,
    /// At once.
    Free,
}

impl Durability {
    const ALL: [Durability; 3] = [Durability::Acknowledged, Durability::Second, Durability::Free];

    /// The name in HYADES.DURABILITY.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Acknowledged => "ack",
            Durability::Second => "1s",
            Durability::Free => "none",
        }
    }

    /// The setting of a name.
    pub fn named(name: &[u8]) -> Option<Durability> {
        Self::ALL
            .into_iter()
            .find(|durability| name.eq_ignore_ascii_case(durability.name().as_bytes()))
    }
}
