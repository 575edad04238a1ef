//! The time added to replay by reading the log.

use super::*;
use crate::judge::of_limit;

/// No disk of the paper's time reads faster, in MB/s.
const FASTEST_DISK: f64 = 250.0;

/// Why physiological records have less to wait for than the paper's: no disk is as fast as memory.
fn from_memory(view: &View<'_>, group: &str) -> Option<String> {
    let rate = view.median(group, PHYSIOLOGICAL.label, 0.0, Metric::ReadingRate)?;
    (rate > FASTEST_DISK).then(|| {
        format!(
            "the log is read from memory, with {} MB/s, where the paper reads a disk",
            short(rate)
        )
    })
}

/// The paper's replay of a workload, with about the time of a site for a record, from the paper's
/// rates.
pub(super) struct PaperReplay {
    pub group: &'static str,
    /// The time added by reading physiological records, in percent.
    pub percent: f64,
    pub command_us: f64,
    pub physiological_us: f64,
}

/// Six sites, 100,000 and 500,000 votes per second.
pub(super) const VOTES: PaperReplay =
    PaperReplay { group: "Voter", percent: 30.0, command_us: 60.0, physiological_us: 12.0 };

/// 865,000 New-Orders per minute, 45 % of all, and physiological records 1.5 times as fast. A site
/// for each core, at least eight.
pub(super) const TPCC: PaperReplay =
    PaperReplay { group: "TPC-C", percent: 8.0, command_us: 250.0, physiological_us: 167.0 };

/// Why a larger part of replay waits for the log than in the paper: of a shorter replay. `claimed`
/// is the paper's part, in percent.
fn by_short_replay(
    view: &View<'_>,
    group: &str,
    series: &str,
    (claimed, paper_us): (f64, f64),
) -> Option<String> {
    let at = |metric| view.median(group, series, 0.0, metric);
    let replay = 1e6 * at(Metric::ReplayThreads)? / at(Metric::ReplayRate)?;
    let reading = replay * at(Metric::ReadingShare)? / 100.0;
    let there = 100.0 * reading / paper_us;
    (there * TOLERANCE <= claimed).then(|| {
        format!(
            "a thread replays a record in {} \u{b5}s, and waits {} for it; a site of the paper \
             replays one in about {}, of which as long a wait would be {} %",
            short(replay),
            short(reading),
            short(paper_us),
            short(there)
        )
    })
}

/// The panel of a workload.
pub(super) fn panel(group: &'static str) -> Panel {
    let shape = Shape::Bars { log: false, paper: Vec::new() };
    let title = "(d) Reading the log".to_string();
    Panel { group, title, metric: Metric::ReadingShare, shape }
}

/// The paper's shares: less than 1 % with commands, and `percent` with physiological records.
pub(super) fn checks(paper: PaperReplay) -> [Check; 2] {
    let PaperReplay { group, percent, command_us, physiological_us } = paper;
    let command = Check::new(move |view| {
        let ours = view.at(group, ARRIVAL.label, 0.0, Metric::ReadingShare)?;
        let text = format!(
            "{group}: reading commands adds {} % to their replay (paper: less than 1 %)",
            with_interval(&ours)
        );
        Some(Finding { text, level: of_limit(&ours, 1.0) })
    });
    let physiological = Check::costs(group, Metric::ReadingShare, PHYSIOLOGICAL.label, percent);
    let why = move |series, paper: (f64, f64)| {
        move |view: &View<'_>| by_short_replay(view, group, series, paper)
    };
    [
        command.claimed("section V-C.5").not_by(why(ARRIVAL.label, (1.0, command_us))),
        physiological
            .claimed("section V-C.5")
            .above_by(move |view| from_memory(view, group))
            .not_by(why(PHYSIOLOGICAL.label, (percent, physiological_us))),
    ]
}
