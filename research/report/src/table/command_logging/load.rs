//! Throughput and latency by offered load, of a client that is refused when too many calls are
//! open; and the same with snapshots beside the run.

use super::*;
use crate::judge::{LEAST, of_same};

const TPCC: &str = "TPC-C";
const VOTER: &str = "Voter";

/// Offered loads as shares of the measured highest rate of commands, of the same workload; the last
/// load exceeds the rate.
const LOADS: [f64; 6] = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2];
const FEW: [f64; 2] = [0.8, 1.2];
/// The load at which latencies are compared: below saturation, where the paper's schemes differ.
const BELOW: f64 = 0.8;
/// The load at which throughput is compared.
const TOP: f64 = 1.2;

/// The paper's latency at low load, in milliseconds.
const LOW_LOAD_MS: [f64; 2] = [5.0, 7.0];

/// The loads with snapshots beside the run.
const SNAPSHOT_LOADS: [f64; 3] = [0.4, BELOW, TOP];
const FEW_SNAPSHOT_LOADS: [f64; 1] = [TOP];

/// The paper's three modes: no log, commands before they run, physiological records.
const MODES: [Scheme; 3] = [NONE, ARRIVAL, PHYSIOLOGICAL];
/// The modes with a log, and the labels of their runs with snapshots.
const WITH_SNAPSHOTS: [(Scheme, &str); 2] =
    [(ARRIVAL, "On arrival, snapshots"), (PHYSIOLOGICAL, "Physiological, snapshots")];

/// A client of the paper's database: one thread, whose calls the sites run, and which is refused
/// while 5,000 calls are open.
fn client(table: &Table<'_>, base: Command) -> Command {
    let sites = format!("--sites {} --posted-calls 5000", table.here.cores);
    base.fixed("--concurrency", CONTROL).workers(1).with(DEEP).with(&sites)
}

/// All five transactions of TPC-C, each within one warehouse, as in the paper's figures.
fn tpcc(table: &Table<'_>) -> Command {
    client(table, table.full_mix().with("--remote 0"))
}

fn voter(table: &Table<'_>) -> Command {
    client(table, table.voter())
}

/// A scheme with a single stream, so that each has as many streams.
fn single_stream(base: Command, scheme: Scheme) -> Command {
    logged(base.by(scheme, "memory", 1, 1), scheme)
}

/// The paper's figures on a workload.
struct Loads {
    group: &'static str,
    /// The highest rate of commands.
    most: f64,
    /// The paper's factors: of the highest throughput, commands over physiological records; of the
    /// median latency, physiological records over commands.
    throughput: f64,
    latency: f64,
}

impl Loads {
    fn tpcc(table: &Table<'_>) -> Loads {
        let most = table.rates.tpcc_commands;
        Loads { group: TPCC, most, throughput: 1.5, latency: 1.45 }
    }

    fn voter(table: &Table<'_>) -> Loads {
        let most = table.rates.voter_commands;
        Loads { group: VOTER, most, throughput: 1.19, latency: 1.15 }
    }

    /// A share of the highest rate, in hundreds of transactions per second.
    fn rate(&self, share: f64) -> f64 {
        (self.most * share / 1e2).round().max(1.0) * 1e2
    }

    fn runs(&self, table: &Table<'_>, base: impl Fn() -> Command) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut run = |command: Command, series, share| {
            let rate = self.rate(share);
            runs.push(command.with(&format!("--rate {rate}")).run(self.group, series, rate));
        };
        for scheme in MODES {
            for share in table.steps(&LOADS, &FEW) {
                run(single_stream(base(), scheme), scheme.label, share);
            }
        }
        for (scheme, label) in WITH_SNAPSHOTS {
            for share in table.steps(&SNAPSHOT_LOADS, &FEW_SNAPSHOT_LOADS) {
                let interval = (1e3 * table.size.seconds / 4.0).round().max(1.0);
                let snapshots = format!("--checkpoint-interval {interval}ms");
                run(single_stream(base(), scheme).with(&snapshots), label, share);
            }
        }
        runs
    }

    fn panels(&self, letters: &mut impl Iterator<Item = char>) -> Vec<Panel> {
        let x = "offered load (transactions / s)";
        let metrics = [
            ("throughput", Metric::Throughput, false),
            ("latency", Metric::LatencyP50, true),
            ("refused calls", Metric::Refused, false),
        ];
        let panel = |((what, metric, log_y), letter): ((&str, _, _), char)| Panel {
            group: self.group,
            title: format!("({letter}) {}, {what}", self.group),
            metric,
            shape: Shape::Lines { x, log_x: false, log_y },
        };
        metrics.into_iter().zip(letters).map(panel).collect()
    }

    /// The paper's claims. Throughput at the highest load is judged unless both schemes acknowledge
    /// what is offered.
    fn checks(&self, table: &Table<'_>) -> Vec<Check> {
        let (group, below, top) = (self.group, self.rate(BELOW), self.rate(TOP));
        let [none, command, physiological] = MODES.map(|scheme| scheme.label);
        let (rate, median) = (Metric::Throughput, Metric::LatencyP50);
        let unless_served = |check: Check, both: [&'static str; 2]| {
            let check = check.claimed("section V-C.1, figures 3 and 6");
            check.unless_given(move |view| are_served(view, group, &both, top))
        };
        let over_rows =
            Check::times_at(group, rate, (command, top), (physiological, top), self.throughput);
        let as_none = Check::same_at(group, rate, (command, top), (none, top));
        let longer =
            Check::times_at(group, median, (physiological, below), (command, below), self.latency);
        let first = self.rate(LOADS[0]);
        let mut checks = vec![
            unless_served(over_rows, [command, physiological]),
            unless_served(as_none, [command, none]),
            longer
                .claimed("section V-C.2, figures 4 and 7")
                .not_by(move |view| by_group_commit(view, group, [first, below])),
            self.snapshots_cost_alike(),
        ];
        // The paper says it of Voter.
        if group == VOTER {
            checks.extend([command, physiological].map(|label| at_low_load(group, label, first)));
        }
        if table.size.fine {
            let [(_, with), _] = WITH_SNAPSHOTS;
            checks.push(Check::beside_at(group, median, (with, below), (command, below)));
        }
        // With 5,000 open calls the latency is the time to run them.
        checks.push(Check::beside_at(group, median, (command, top), (none, top)));
        checks.extend(MODES.map(|scheme| Check::shown(group, Metric::Refused, scheme.label, top)));
        let taken =
            WITH_SNAPSHOTS.map(|(_, label)| Check::shown(group, Metric::Snapshots, label, top));
        checks.extend(taken);
        checks
    }

    /// Snapshots take the same share of the throughput of both kinds of log: the paper's reason why
    /// their frequency does not matter for its comparison.
    fn snapshots_cost_alike(&self) -> Check {
        let (group, top) = (self.group, self.rate(TOP));
        let [(command, with_command), (rows, with_rows)] = WITH_SNAPSHOTS;
        let series = [with_command, command.label, with_rows, rows.label];
        let check = Check::new(move |view| {
            let left = |[with, without, over, without_over]: [f64; 4]| {
                with / without / (over / without_over)
            };
            let points = series.map(|series| (series, top));
            let ours = view.by_rounds(group, Metric::Throughput, points, left)?;
            Some(Finding {
                text: format!(
                    "{group} at {}/s: beside snapshots {} keeps {} times the share of its \
                     throughput that {} keeps (paper: about 1)",
                    short(top),
                    command.label,
                    with_interval(&ours),
                    rows.label
                ),
                level: of_same(&ours),
            })
        });
        let check = check.claimed("section V-B, on the frequency of snapshots");
        check.unless_given(move |view| are_served(view, group, &series, top))
    }
}

/// The latency at low load is that of group commit: the set-up.
fn at_low_load(group: &'static str, series: &'static str, first: f64) -> Check {
    let check = Check::new(move |view| {
        let ours = view.at(group, series, first, Metric::LatencyP50)?;
        let [low, high] = LOW_LOAD_MS;
        let text = format!(
            "{group} at {}/s: the median latency of {series} is {} ms (paper: 5 to 7, with group \
             commit every 5)",
            short(first),
            with_interval(&ours)
        );
        Some(Finding { text, level: of_band(&ours, low / TOLERANCE, high * TOLERANCE) })
    });
    check.claimed("section V-C.2, figure 4").resting_on(Basis::Construction)
}

/// Why the latencies differ less: both wait for group commit, and nothing else, if the median of
/// commands is the same at the lowest load.
fn by_group_commit(view: &View<'_>, group: &str, [first, below]: [f64; 2]) -> Option<String> {
    let median = |series, x| view.median(group, series, x, Metric::LatencyP50);
    let [lowest, command] = [first, below].map(|x| median(ARRIVAL.label, x));
    let (lowest, command) = (lowest?, command?);
    let more = median(PHYSIOLOGICAL.label, below)? - command;
    (command < lowest * TOLERANCE).then(|| {
        format!(
            "a command takes {} ms, and {} at {}/s: it waits for group commit, every 5 ms, and \
             for no other transaction; a physiological record takes {} ms more",
            short(command),
            short(lowest),
            short(first),
            short(more)
        )
    })
}

/// Whether all of the series acknowledge what is offered: then their rates are the offered load.
fn are_served(view: &View<'_>, group: &str, series: &[&str], top: f64) -> bool {
    series.iter().all(|series| {
        let rate = view.median(group, series, top, Metric::Throughput);
        rate.is_some_and(|rate| rate * LEAST >= top)
    })
}

/// The runs that measure the highest rates of commands: TPC-C and Voter, as loads are offered to
/// them, but as fast as calls are taken.
pub(in crate::table) fn highest(table: &Table<'_>) -> [Run; 2] {
    [(TPCC, tpcc(table)), (VOTER, voter(table))]
        .map(|(name, base)| single_stream(base, ARRIVAL).run(name, ARRIVAL.label, 0.0))
}

pub(super) fn experiment(table: &Table<'_>) -> Experiment {
    let mut letters = 'a'..;
    let loads = Loads::tpcc(table);
    let mut runs = loads.runs(table, || tpcc(table));
    let (mut panels, mut checks) = (loads.panels(&mut letters), loads.checks(table));
    if table.size.fine {
        let loads = Loads::voter(table);
        runs.extend(loads.runs(table, || voter(table)));
        panels.extend(loads.panels(&mut letters));
        checks.extend(loads.checks(table));
    }
    Experiment {
        id: "command-latency",
        paper: Paper::CommandLogging,
        source: "Figures 3, 4, 6 and 7, sections V-B and V-C",
        title: "Throughput and latency by offered load",
        claim: "All schemes follow the offered load until they saturate: on Voter physiological \
                logging at 80 k/s, command logging at 95 k/s; on TPC-C physiological logging at \
                two thirds of the others. Command logging has the throughput of no logging. At \
                low load all take 5 to 7 ms, the interval of group commit. Physiological logging \
                has 15 % more latency on Voter, at least 45 % more on TPC-C. Beyond saturation \
                5,000 calls are open, and further ones are refused. Snapshots cost all modes the \
                same.",
        how: format!(
            "Offered loads of 20 to 120 % of the highest rate of commands here, which is measured \
             first, on each workload. One client posts calls on schedule, without waiting; {} \
             sites own the partitions and run the calls; while 5,000 are open, a further one is \
             refused (`--posted-calls 5000`), and counted. Commands are logged on arrival. One \
             stream for each scheme, physiological records without before-images. Throughput is \
             compared at 120 %, unless both schemes acknowledge what is offered: then it is the \
             load. Latency is compared at 80 %. Beside the curves are those of the same runs with \
             snapshots (`--checkpoint-interval`), of which several begin within each run.",
            table.here.cores
        ),
        differs: vec![
            "the client shares the processors with the sites, and no network is between them"
                .to_string(),
            format!("{} sites, {} warehouses", table.here.cores, table.size.warehouses),
            "the log in memory, not on a disk with a write cache".to_string(),
            "a snapshot begins every fraction of a second, not every 180 s: runs are as short; \
             its writer may use a tenth of the processors"
                .to_string(),
            "without a log no snapshots are taken, so that the paper's third mode has none"
                .to_string(),
            "without a log nothing is waited for but a site, so that its latency is shown, and \
             compared with nothing"
                .to_string(),
        ],
        runs,
        panels,
        checks,
        not_measured: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Data, Outcome};
    use crate::judge::Basis;
    use crate::scale::{Rates, Setup};
    use serde_json::json;

    /// The findings on the throughput of Voter, if a scheme acknowledges at most `most` per second.
    fn judged(most: impl Fn(&str) -> f64) -> Vec<(Basis, String, Level)> {
        let setup = Setup::typical(Size::FULL);
        let experiment = experiment(&Table::of(&setup));
        let mut data = Data::default();
        for run in experiment.runs.iter().filter(|run| run.group == VOTER) {
            for _ in 0..5 {
                let rate = run.x.min(most(&run.series));
                let outcome = json!({
                    "acknowledged_per_s": rate, "seconds": 1.0, "acknowledged": rate,
                    "posted": {"limit": 5000, "refused": run.x - rate},
                    "latency_us": {"p50": 6e3},
                });
                data.add(&run.words, Outcome::Done(outcome));
            }
        }
        let view = View { experiment: &experiment, data: &data };
        let all = experiment.checks.iter().filter_map(|check| {
            let found = check.look(&view)?;
            Some((check.basis(&view, Some(&found)), found.text, found.level))
        });
        let about =
            |text: &str| text.contains("acknowledged transactions") || text.contains("beside");
        all.filter(|(_, text, _)| about(text)).collect()
    }

    #[test]
    fn what_is_offered_is_no_result_and_what_is_refused_is() {
        let served = judged(|_| f64::INFINITY);
        assert_eq!(served.len(), 3, "{served:?}");
        assert!(served.iter().all(|(basis, ..)| *basis == Basis::Construction), "{served:?}");
        let highest = Rates::TYPICAL.voter_commands;
        // Rows reach less, and snapshots cost them more.
        let saturated = judged(|series| match series {
            "Physiological" => highest / 1.19,
            "Physiological, snapshots" => highest / 1.19 / 2.0,
            _ => highest,
        });
        let levels: Vec<Level> = saturated.iter().map(|(.., level)| *level).collect();
        assert_eq!(levels, [Level::Holds, Level::Holds, Level::Fails], "{saturated:?}");
        assert!(saturated.iter().all(|(basis, ..)| *basis == Basis::Tested));
    }

    /// An overload is refused, so no run waits for calls without a bound.
    #[test]
    fn every_client_is_refused_at_5000_open_calls() {
        let setup = Setup::typical(Size::FULL);
        let table = Table::of(&setup);
        let all = experiment(&table).runs;
        for run in all.iter().chain(&highest(&table)) {
            let text = run.words.join(" ");
            assert!(text.contains("--posted-calls 5000"), "{text}");
            assert_eq!(text.contains("--rate"), run.x > 0.0, "{text}");
            assert_eq!(text.contains("--checkpoint-interval"), run.series.contains("snapshots"));
        }
        let shares: Vec<f64> = LOADS.into();
        assert_eq!((shares[0], shares[shares.len() - 1]), (0.2, TOP));
    }
}
