//! What reading the log adds to replay.

use super::*;
use crate::judge::of_limit;

/// Why physiological records have less to wait for than the paper's.
fn from_memory(view: &View<'_>, group: &str) -> Option<String> {
    let rate = view.median(group, PHYSIOLOGICAL.label, 0.0, Metric::ReadingRate)?;
    Some(format!(
        "the log is read from memory, with {} MB/s, where the paper reads a disk",
        short(rate)
    ))
}

/// The panel of a workload.
pub(super) fn panel(group: &'static str) -> Panel {
    let shape = Shape::Bars { log: false, paper: Vec::new() };
    let title = "(d) Reading the log".to_string();
    Panel { group, title, metric: Metric::ReadingShare, shape }
}

/// The paper's shares: less than 1 % with commands, and `percent` with physiological records.
pub(super) fn checks(group: &'static str, percent: f64) -> [Check; 2] {
    let command = Check::new(move |view| {
        let ours = view.at(group, SERIAL_COMMAND.label, 0.0, Metric::ReadingShare)?;
        let text = format!(
            "{group}: reading commands adds {} % to their replay (paper: less than 1 %)",
            with_interval(&ours)
        );
        Some(Finding { text, level: of_limit(&ours, 1.0) })
    });
    let physiological = Check::costs(group, Metric::ReadingShare, PHYSIOLOGICAL.label, percent);
    [command, physiological.above_by(move |view| from_memory(view, group))]
}
