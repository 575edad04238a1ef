//! The end of a history: all members are equal, and hold what the clients know.

use super::super::judge::{Column, ShownRows};
use super::Cluster;
use super::tables::content;
use hyades_platform::sync::Unpoisoned;

impl Cluster {
    pub(super) fn contents(&self) -> Option<Vec<(bool, u64, ShownRows)>> {
        let mut contents = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let _running = self.time.run(at);
            let mut node = node.borrow_mut();
            node.databases.retain(|one| one.left_until.is_none());
            let served = node.databases.last_mut()?;
            let (shown, _) = served.session.submit(|tx| Ok(content(tx)?)).ok()?;
            if !served.under_way.is_empty() {
                return None;
            }
            contents.push((served.incarnation.is_some(), served.database.digest(), shown));
        }
        Some(contents)
    }

    pub(super) fn is_together(&self) -> bool {
        let Some(contents) = self.contents() else { return false };
        let (_, digest, first) = &contents[0];
        let together = contents.iter().filter(|(is_primary, ..)| *is_primary).count() == 1
            && contents.iter().all(|(_, _, shown)| shown == first);
        if together {
            let mut judge = self.judge.borrow_mut();
            let known = judge.known();
            judge.shows(first, known, Column::Lost, "the end");
            if contents.iter().any(|(_, other, _)| other != digest) {
                judge.wrong(Column::Diverged, "digests differ, and rows do not".into());
            }
        }
        together
    }

    pub(super) fn is_not_together(&self) {
        if self.net.lock().unpoisoned().has_lied.is_some() {
            self.count("histories without an end, after a lie");
            return;
        }
        // A member may be waiting.
        let waits = self.nodes.iter().any(|node| node.try_borrow_mut().is_err());
        let contents = if waits { None } else { self.contents() };
        let views = self.views();
        let mut judge = self.judge.borrow_mut();
        let (column, what) = match contents {
            Some(contents) if contents.iter().any(|(is_primary, ..)| *is_primary) => {
                (Column::Diverged, format!("members differ: {contents:?}"))
            }
            _ => (Column::Hung, "members or transactions are not at their end".to_string()),
        };
        judge.wrong(column, format!("{what}; {views}"));
    }
}
