//! What reading the log adds to replay.

use super::*;
use crate::judge::of_limit;

/// Why physiological records have less to wait for than the paper's.
const FROM_MEMORY: &str = "the log is read from memory, where the paper reads a disk: what is left \
                           of reading is to copy it and to compare its checksums";

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
    [command, physiological.above_because(FROM_MEMORY)]
}
