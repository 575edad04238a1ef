//! The sum index of a table: for prefixes of the primary key, the sums of a column over the rows of
//! the prefix. In memory only, built at the first use of a prefix, never logged.
//!
//! The index answers from nodes, a node for each prefix; see [`node`]. Writers of a prefix without
//! a node do nothing but observe the stamp left by dropped nodes.

pub(crate) mod counts;
pub(crate) mod node;

use self::counts::OrderedCounts;
use self::node::SumNode;
use super::address_hasher::AddressHasher;
use super::hash_index::HashSecret;
use super::key;
use super::layout::Layout;
use super::record::{Record, word};
use super::schema::Schema;
use super::tid::Tid;
use super::value::Type;
use hyades_platform::broken;
use hyades_platform::sync::{Padded, Unpoisoned};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// The default of [`Builder::sum_index_bytes`](crate::Builder::sum_index_bytes).
pub(crate) const SUM_INDEX_BYTES: usize = 64 << 20;

/// A scan of fewer rows takes no longer than a sum.
const LEAST_ROWS: usize = 32;

/// The number of shards of an index, a power of two.
const SHARDS: usize = 64;

/// The memory of all nodes of a database.
pub(crate) struct SumBudget {
    bytes: AtomicUsize,
    limit: AtomicUsize,
    /// The shard at which the next search for a node to drop begins.
    hand: AtomicUsize,
}

impl Default for SumBudget {
    fn default() -> Self {
        let limit = AtomicUsize::new(SUM_INDEX_BYTES);
        SumBudget { bytes: AtomicUsize::new(0), limit, hand: AtomicUsize::new(0) }
    }
}

impl SumBudget {
    /// Relaxed, here and below: a sum of bytes.
    fn add(&self, bytes: isize) {
        self.bytes.fetch_add(bytes as usize, Ordering::Relaxed);
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.bytes() > self.limit()
    }
}

/// Nodes by the hash of the prefix; prefixes may have the same hash.
type NodesByHash<S> = HashMap<u64, Vec<Arc<SumNode<S>>>, BuildHasherDefault<AddressHasher>>;

/// A part of the nodes, by the hash of the prefix.
struct SumShard<S> {
    nodes: Mutex<NodesByHash<S>>,
    /// The stamps of the readers of dropped nodes: writers that find no node observe the stamps.
    readers: S,
}

/// The sum index of a table.
pub(crate) struct TableSums<S> {
    /// The column that is summed, and its offset and width in the row of a record.
    pub column: u16,
    at: usize,
    is_wide: bool,
    /// The key columns of the prefix, and their bytes in a key.
    pub prefix_columns: usize,
    pub prefix_bytes: usize,
    secret: HashSecret,
    /// Whether the index ever had a node. SeqCst: a writer locks a row and loads; a proposer stores
    /// and validates the row.
    has_had_nodes: AtomicBool,
    shards: OnceLock<Box<[Padded<SumShard<S>>]>>,
    budget: Arc<SumBudget>,
}

impl<S: Default> TableSums<S> {
    /// The index of a table, if the schema declares a sum. `record` is the layout of rows in
    /// records.
    pub fn new(schema: &Schema, record: &Layout, secret: HashSecret) -> Option<Self> {
        let spec = schema.sum?;
        let prefix_columns = usize::from(spec.prefix);
        let widths = schema.key.iter().take(prefix_columns);
        let widths = widths.map(|&c| key::width(schema.columns[usize::from(c)].kind, false));
        let column = record.columns[usize::from(spec.column)];
        Some(TableSums {
            column: spec.column,
            at: column.offset as usize,
            is_wide: column.kind == Type::U64,
            prefix_columns,
            prefix_bytes: widths.sum::<Option<usize>>().unwrap_or(0),
            secret,
            has_had_nodes: AtomicBool::new(false),
            shards: OnceLock::new(),
            budget: Arc::default(),
        })
    }

    /// Shares a budget with the indexes of other tables.
    pub fn share_budget(&mut self, budget: Arc<SumBudget>) {
        self.budget = budget;
    }

    /// The memory of the nodes of all tables that share it.
    pub fn budget(&self) -> &SumBudget {
        &self.budget
    }

    fn shards(&self) -> &[Padded<SumShard<S>>] {
        let shard = |_| Padded(SumShard { nodes: Mutex::default(), readers: S::default() });
        self.shards.get_or_init(|| (0..SHARDS).map(shard).collect())
    }

    #[inline]
    fn shard(&self, hash: u64) -> &SumShard<S> {
        &self.shards()[hash as usize % SHARDS]
    }

    /// A candidate for the node of a prefix.
    pub fn candidate(&self, prefix: &[u8], counts: OrderedCounts) -> Arc<SumNode<S>> {
        let named = (self.secret.hash(prefix), prefix);
        Arc::new(SumNode::new(named, counts, self.budget.clone()))
    }

    /// Finds the node of a prefix.
    #[inline]
    pub fn find(&self, prefix: &[u8]) -> Option<Arc<SumNode<S>>> {
        if !self.has_had_nodes.load(Ordering::SeqCst) {
            return None;
        }
        let hash = self.secret.hash(prefix);
        let nodes = self.shard(hash).nodes.lock().unpoisoned();
        nodes.get(&hash)?.iter().find(|node| *node.prefix == *prefix).cloned()
    }

    /// The stamp of the readers of dropped nodes of a prefix; `None` if the index never had a node.
    pub fn dropped_readers(&self, prefix: &[u8]) -> Option<&S> {
        let had_nodes = self.has_had_nodes.load(Ordering::SeqCst);
        had_nodes.then(|| &self.shard(self.secret.hash(prefix)).readers)
    }

    /// Whether the counts of a prefix are worth a node.
    pub fn is_worth_a_node(&self, node: &SumNode<S>) -> bool {
        node.own(OrderedCounts::rows) >= LEAST_ROWS && !node.is_too_large()
    }

    /// Puts a candidate into the index, unless the prefix has a node. `highest` is the highest
    /// version of a row read. `stamp` gets the candidate and the stamp of the readers of dropped
    /// nodes. Returns whether the candidate is in the index.
    pub fn propose(
        &self,
        node: &Arc<SumNode<S>>,
        highest: Tid,
        stamp: impl FnOnce(&SumNode<S>, &S),
    ) -> bool {
        let shard = self.shard(node.hash);
        let mut nodes = shard.nodes.lock().unpoisoned();
        let same = nodes.entry(node.hash).or_default();
        if same.iter().any(|other| other.prefix == node.prefix) {
            return false;
        }
        stamp(node, &shard.readers);
        same.push(node.clone());
        node.enter_index(highest);
        drop(nodes);
        self.has_had_nodes.store(true, Ordering::SeqCst);
        true
    }

    /// Drops a node. `leave` raises the first stamp, which stays, to at least the second stamp, of
    /// the node's readers.
    pub fn drop_node(&self, node: &SumNode<S>, leave: impl FnOnce(&S, &S)) {
        let shard = self.shard(node.hash);
        let mut nodes = shard.nodes.lock().unpoisoned();
        Self::take_out(shard, &mut nodes, node, leave);
    }

    fn take_out(
        shard: &SumShard<S>,
        nodes: &mut NodesByHash<S>,
        node: &SumNode<S>,
        leave: impl FnOnce(&S, &S),
    ) {
        // Dead before the stamps are read: a reader that publishes its stamp later is not valid.
        node.kill();
        if !broken!(ForgetSumReaders) {
            leave(&shard.readers, &node.readers);
        }
        if let Some(same) = nodes.get_mut(&node.hash) {
            same.retain(|other| !std::ptr::eq(&**other, node));
            if same.is_empty() {
                nodes.remove(&node.hash);
            }
        }
    }

    /// Drops nodes until the memory suffices, first nodes that were not read for long: the second
    /// round over the shards finds all nodes unread. `leave` is as in [`TableSums::drop_node`].
    pub fn make_room(&self, mut leave: impl FnMut(&S, &S)) {
        for _ in 0..2 * SHARDS {
            if !self.budget.is_over() {
                return;
            }
            let at = self.budget.hand.fetch_add(1, Ordering::Relaxed);
            let shard = &self.shards()[at % SHARDS];
            let mut nodes = shard.nodes.lock().unpoisoned();
            let unused = nodes.values().flatten().filter(|node| node.is_unused());
            let unused: Vec<_> = unused.cloned().collect();
            for node in unused {
                if self.budget.is_over() {
                    Self::take_out(shard, &mut nodes, &node, &mut leave);
                }
            }
        }
    }

    /// The count of a row that is locked; `None` if there is no row.
    #[inline]
    pub fn count_in(&self, record: &Record<S>) -> Option<u64> {
        if record.word.load(Ordering::Relaxed) & word::ABSENT != 0 {
            return None;
        }
        let low = u64::from(record.read_u32(self.at));
        let high = if self.is_wide { u64::from(record.read_u32(self.at + 4)) } else { 0 };
        Some(high << 32 | low)
    }

    /// The value of the column, from its bytes in a row.
    #[inline]
    pub fn value(bytes: &[u8]) -> u64 {
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(all)
    }
}
