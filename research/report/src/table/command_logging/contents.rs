//! Bytes by transaction and by table, as counted by `hyades log stat`.

use super::*;
use crate::chart::Stack;
use crate::metric::last_incarnation;
use serde_json::Value;

/// The group of runs with kept and counted logs.
const COUNTED: &str = "TPC-C, the log by contents";

/// Runs that keep the log. The runner replaces `LOG` by a directory, and adds the output of
/// `log stat`.
pub(super) fn runs(table: &Table<'_>) -> Vec<Run> {
    let run = |scheme: Scheme| {
        let command = partitioned_tpcc(table).by(scheme, "memory", 1, 1).with("--log-dir LOG");
        logged(command, scheme).run(COUNTED, scheme.label, 0.0)
    };
    [ARRIVAL, PHYSIOLOGICAL].map(run).to_vec()
}

/// Bytes of a command by procedure, and of a transaction's changes by table.
pub(super) fn panels() -> [Panel; 2] {
    let panel = |title: &str, stacks, names, y| Panel {
        group: COUNTED,
        title: title.to_string(),
        metric: Metric::OverheadPerRecord,
        shape: Shape::Parts { stacks, names, y },
    };
    [
        panel(
            "(e) Commands, by transaction",
            by_procedure,
            &["procedure and arguments", "head, checksum, number (mean of all)"],
            "log bytes / call",
        ),
        panel(
            "(f) Physiological records, by table",
            by_table,
            &["changes, keys included"],
            "log bytes / transaction",
        ),
    ]
}

/// The bytes of a record beside the contents.
pub(super) fn checks() -> [Check; 2] {
    [ARRIVAL, PHYSIOLOGICAL]
        .map(|scheme| Check::shown(COUNTED, Metric::OverheadPerRecord, scheme.label, 0.0))
}

/// The bytes of a series' entries under `list`, by name, over each entry's `count`, or over all
/// records. The last round's bytes, because all rounds have the same mix.
fn counted(view: &View<'_>, series: &str, list: &str, count: Option<&str>) -> Vec<(String, f64)> {
    let of_last = || {
        let run = view.runs(COUNTED).find(|run| run.series == series)?;
        let printed = view.data.of(&run.words).iter().rev().find_map(|outcome| outcome.value())?;
        let own = last_incarnation(printed)?;
        let records = own["records"].as_f64()?;
        let entry = |entry: &Value| {
            let name = entry["name"].as_str()?.trim_start_matches("tpcc_").replace('_', " ");
            let over = count.map_or(Some(records), |count| entry[count].as_f64())?;
            Some((name, entry["bytes"].as_f64()? / over)).filter(|(_, each)| each.is_finite())
        };
        Some(own.pointer(list)?.as_array()?.iter().filter_map(entry).collect())
    };
    of_last().unwrap_or_default()
}

fn by_procedure(view: &View<'_>, group: &'static str) -> Vec<Stack> {
    let series = ARRIVAL.label;
    let Some(rest) = view.median(group, series, 0.0, Metric::OverheadPerRecord) else {
        return Vec::new();
    };
    let all = counted(view, series, "/contents/procedures", Some("calls"));
    all.into_iter().map(|(label, each)| Stack { label, parts: vec![each, rest] }).collect()
}

fn by_table(view: &View<'_>, _: &'static str) -> Vec<Stack> {
    let series = PHYSIOLOGICAL.label;
    let mut all = counted(view, series, "/contents/tables", None);
    all.extend(counted(view, series, "/contents/procedures", None));
    let rest = view.median(COUNTED, series, 0.0, Metric::OverheadPerRecord);
    all.extend(rest.map(|rest| ("(heads, checksums, numbers)".to_string(), rest)));
    all.into_iter().map(|(label, each)| Stack { label, parts: vec![each] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Data, Outcome};
    use crate::scale::Setup;
    use serde_json::json;

    #[test]
    fn bytes_are_those_of_a_call_and_of_a_transaction() {
        let setup = Setup::typical(Size::FULL);
        let experiment = Experiment::example(runs(&Table::of(&setup)));
        let mut data = Data::default();
        let contents = [
            json!({"procedures": [{"name": "tpcc_new_order", "calls": 4, "bytes": 200}],
                   "tables": [], "overhead_bytes": 80}),
            json!({"procedures": [], "overhead_bytes": 80,
                   "tables": [{"name": "order_line", "changes": 40, "bytes": 2_000}]}),
        ];
        for (run, contents) in experiment.runs.iter().zip(contents) {
            let own = json!({"records": 8, "contents": contents});
            let log = json!({"log": {"incarnations": [{"records": 1}, own]}});
            data.add(&run.words, Outcome::Done(log));
        }
        let view = View { experiment: &experiment, data: &data };
        let command = Stack { label: "new order".to_string(), parts: vec![50.0, 10.0] };
        assert_eq!(by_procedure(&view, COUNTED), [command]);
        let stack = |label: &str, each| Stack { label: label.to_string(), parts: vec![each] };
        let rows = [stack("order line", 250.0), stack("(heads, checksums, numbers)", 10.0)];
        assert_eq!(by_table(&view, COUNTED), rows);
    }
}
