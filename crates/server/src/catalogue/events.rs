//! Which keyspace events follow from what a command has written.

/// The keyspace event of a key that a command has written. The removal of a key is told by `del`,
/// beside these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventRule {
    /// None.
    None,
    /// Those that the command has told.
    Told,
    /// An event named as the command.
    Own,
    /// An event of this name.
    Named(&'static str),
    /// `set`, if the key is there afterwards.
    Set,
    /// `set`, and `expire` if the key expires afterwards.
    SetExpiring,
    /// The same, but no `expire` with the option KEEPTTL.
    SetWithOptions,
    /// `expire` or `persist`, if the key is there afterwards.
    Expiry,
    /// `restore`, if the key is there afterwards.
    Restored,
    /// An event of this name, or none if the result is empty.
    Stored(&'static str),
    /// `rename_from` and `rename_to`.
    Renamed,
    /// `move_from` and `move_to`.
    Moved,
    /// `srem` of the first key, `sadd` of the second one.
    MemberMoved,
    /// The first event if this word is behind the keys, else the second one.
    PoppedAt(&'static str, &'static str, &'static str),
    /// Pops of the first key and pushes to the second one, at the ends that two words name.
    ElementMovedBetween,
    /// `rpop` of the first key, `lpush` of the second one.
    ElementMoved,
    /// `zadd`, or `zincr` with the option INCR.
    ScoresAdded,
}
