//! The keyspace events that follow from the writes of a command.

/// The keyspace event of a key written by a command. In addition, the removal of a key is reported
/// by `del`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventRule {
    /// None.
    None,
    /// The events reported by the command.
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
    /// `srem` of the first key, `sadd` of the second.
    MemberMoved,
    /// The first event if this word is behind the keys, else the second event.
    PoppedAt(&'static str, &'static str, &'static str),
    /// Pops of the first key and pushes to the second key, at the ends named by two words.
    ElementMovedBetween,
    /// `rpop` of the first key, `lpush` of the second.
    ElementMoved,
    /// `zadd`, or `zincr` with the option INCR.
    ScoresAdded,
}
