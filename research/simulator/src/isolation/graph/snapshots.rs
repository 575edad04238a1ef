//! Snapshot isolation in the graph: a transaction reads at one point, its own node, and writes at a
//! later point, which has a node of its own. A history has snapshot isolation iff no cycle is left
//! (Adya's start-ordered serialization graph).

use super::{Graph, Why};

impl Graph<'_> {
    /// Moves the edges that concern writes to nodes for the commits.
    pub(super) fn set_commits_apart(&mut self) {
        let transactions = self.history.len();
        let first = self.edges.len();
        self.commits = Some(first);
        self.edges.extend((0..transactions).map(|_| Vec::new()));
        for at in 0..transactions {
            for (to, why) in std::mem::take(&mut self.edges[at]) {
                match why {
                    // The transaction read before the other transaction committed.
                    Why::ReadWrite(..) => self.edges[at].push((first + to, why)),
                    _ => self.edges[first + at].push((to, why)),
                }
            }
            self.edges[at].push((first + at, Why::Begins));
        }
    }

    /// The transaction of a node, if any.
    pub(super) fn transaction(&self, node: usize) -> Option<usize> {
        match self.commits {
            _ if node < self.history.len() => Some(node),
            Some(first) if node >= first => Some(node - first),
            _ => None,
        }
    }
}
