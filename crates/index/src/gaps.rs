//! Payloads of gaps: the leaves' data about the key ranges between entries.

/// Callbacks for updates of gap payloads when leaves are split and merged.
///
/// Both leaves are locked or not yet linked during the call. A payload also changed without a lock
/// must be changed by sequentially consistent operations followed by
/// [`Leaf::is_current`](crate::Leaf::is_current): if the check succeeds, the change came before the
/// call and is seen by the call. The hooks must not panic, nor use the index.
pub trait GapHooks<G> {
    /// The upper part of `from`'s key range goes to a new leaf with payload `to`.
    fn split(&self, from: &G, to: &G);
    /// The whole key range of `from` goes to the leaf with payload `into`.
    fn merge(&self, into: &G, from: &G);
    /// Whether the key range of an empty leaf may go to another leaf. After `true` the leaf leaves
    /// the tree.
    fn may_merge(&self, _from: &G) -> bool {
        true
    }
}

/// For payloads without a need of updates, for example `()`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl<G> GapHooks<G> for NoHooks {
    fn split(&self, _from: &G, _to: &G) {}
    fn merge(&self, _into: &G, _from: &G) {}
}
