//! The statement of the manifest about the next incarnation of a log.

use super::Opening;
use crate::logging::StartsOnLog;
use crate::logging::row_frame::RowFrames;
use crate::storage::partition;
use crate::storage::schema::Schema;
use hyades_wal::IncarnationSettings;

impl Opening<'_> {
    /// Returns the manifest's statement about the log's next incarnation. `versions`: whether
    /// commands are replayed on several versions of rows.
    pub(super) fn incarnation<P: StartsOnLog>(
        &self,
        catalogue: Vec<u8>,
        data_only: bool,
        versions: bool,
    ) -> IncarnationSettings {
        let vectors = match (P::PREDECESSORS, P::VECTORS) {
            (true, _) => "predecessors",
            (false, true) => "yes",
            (false, false) => "no",
        };
        let concurrency = self.control;
        let marks = P::MARKS.map(|marks| (hyades_wal::MARKS, marks));
        let by_timestamp = (hyades_wal::VERSIONS, hyades_wal::BY_TIMESTAMP);
        let versions = versions.then_some(by_timestamp);
        let rows = P::rows(&self.builder.log).setting();
        let partitions = self.declared_partitions();
        let calls = P::LOGS_FIRST.then_some((hyades_wal::CALLS, &*partitions));
        let edits = rows.is_none() && self.may_log_edits();
        let edits = edits.then_some((hyades_wal::EDITS, hyades_wal::WITH_SPLICES));
        let heads = rows.map(|_| (hyades_wal::ROW_HEADS, hyades_wal::SHORT_HEADS));
        let settings = [("vectors", vectors), ("concurrency", concurrency)].into_iter();
        let settings = settings.chain(marks).chain(versions).chain(rows).chain(calls).chain(edits);
        let settings = settings.chain(heads);
        let cut = self.builder.log.research.cut_changes.filter(|_| rows.is_some());
        let cut = cut.map(|bytes| bytes.to_string());
        let settings = settings.chain(cut.as_ref().map(|bytes| (RowFrames::CUT, &**bytes)));
        IncarnationSettings {
            catalogue,
            data_only,
            protocol: P::NAME.to_string(),
            settings: settings.map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        }
    }

    /// Returns the spread of the tables over partitions, in the manifest's form.
    fn declared_partitions(&self) -> String {
        let declared = partition::declarations(&self.builder.tables);
        serde_json::to_string(&declared).expect("names are text")
    }

    /// Whether a changed row may be logged by the changes in its long values.
    fn may_log_edits(&self) -> bool {
        let may_be_long = |schema: &Schema| {
            let mut columns = (0..).zip(&schema.columns);
            columns.any(|(at, c)| c.kind.width().is_none() && !schema.key.contains(&at))
        };
        !self.builder.log.research.whole_rows && self.builder.tables.iter().any(may_be_long)
    }
}
