//! How many elements of a collection are packed in the row of its key, or together in another row,
//! and the like.

/// How many elements of a collection are packed in its key's row at most, as the settings
/// `hash-max-listpack-entries`, `set-max-intset-entries`, `zset-max-listpack-entries` and, if it is
/// positive, `list-max-listpack-size` say; and what `hll-sparse-max-bytes` says.
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
    /// Bytes of a HyperLogLog that is not dense.
    pub sparse_sketch: usize,
    /// Entries in a node of a stream, as `stream-node-max-entries` says.
    pub node_entries: usize,
    /// Bytes of a node of a stream, as `stream-node-max-bytes` says.
    pub node_bytes: usize,
}
