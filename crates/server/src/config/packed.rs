//! How many elements of a collection are packed in the row of its key.

/// How many elements of a collection are packed in its key's row at most, as the settings
/// `hash-max-listpack-entries`, `set-max-intset-entries`, `zset-max-listpack-entries` and, if it is
/// positive, `list-max-listpack-size` say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedLimits {
    /// Fields of a hash.
    pub hash: usize,
    /// Members of a set.
    pub set: usize,
    /// Members of a sorted set.
    pub sorted_set: usize,
    /// Elements of a list.
    pub list: usize,
}
