//! Throughput and latency by offered load.

use super::*;
use crate::judge::LEAST;

const TPCC: &str = "TPC-C";
const VOTER: &str = "Voter";

/// Offered loads as shares of the measured highest rate of commands, of the same workload; the last
/// load exceeds the rate.
const LOADS: [f64; 3] = [0.2, 0.8, 1.2];
const FEW: [f64; 1] = [0.8];

struct Loads {
    group: &'static str,
    /// Offered loads per second, rising.
    rates: Vec<f64>,
}

impl Loads {
    /// Shares of `most` transactions per second, in thousands.
    fn new(table: &Table<'_>, group: &'static str, most: f64) -> Loads {
        let rate = |share: f64| (most * share / 1e3).round().max(1.0) * 1e3;
        let mut rates: Vec<f64> = table.steps(&LOADS, &FEW).into_iter().map(rate).collect();
        rates.dedup();
        Loads { group, rates }
    }

    fn runs(&self, base: impl Fn() -> Command) -> Vec<Run> {
        let mut runs = Vec::new();
        for scheme in [SERIAL_COMMAND, ARRIVAL, PHYSIOLOGICAL] {
            for rate in &self.rates {
                if !self.is_compared(scheme, *rate) {
                    continue;
                }
                // As many streams for each.
                let command = logged(base().by(scheme, "memory", 1, 1), scheme);
                let command = command.with(&format!("--rate {rate}"));
                runs.push(command.run(self.group, scheme.label, *rate));
            }
        }
        runs
    }

    /// Whether a check is about a scheme at the load `rate`: at the lowest load about the latency
    /// of commands, at the highest load about the throughput of schemes that log at commit.
    fn is_compared(&self, scheme: Scheme, rate: f64) -> bool {
        match scheme.label {
            label if label == PHYSIOLOGICAL.label => rate >= self.below(),
            label if label == ARRIVAL.label => rate <= self.below(),
            _ => true,
        }
    }

    fn first(&self) -> f64 {
        self.rates[0]
    }

    /// The load above the approximate highest rate.
    fn top(&self) -> f64 {
        self.rates[self.rates.len() - 1]
    }

    /// The load below the top load; the only load if there is one.
    fn below(&self) -> f64 {
        self.rates[self.rates.len().saturating_sub(2)]
    }

    fn panels(&self, letters: [char; 2]) -> [Panel; 2] {
        let x = "offered load (transactions / s)";
        let metrics = [("throughput", Metric::Throughput), ("latency", Metric::LatencyP50)];
        [0, 1].map(|at| Panel {
            group: self.group,
            title: format!("({}) {}, {}", letters[at], self.group, metrics[at].0),
            metric: metrics[at].1,
            shape: Shape::Lines { x, log_x: false, log_y: false },
        })
    }

    /// The paper's factors: of the highest throughput, commands over physiological records; of the
    /// median latency below the top load, physiological records over commands. That logging on
    /// arrival has the latency of commands logged at commit is what we expect: the paper logs no
    /// command at commit.
    fn checks(&self, throughput: f64, latency: f64) -> Vec<Check> {
        let (group, top, below) = (self.group, self.top(), self.below());
        let [command, physiological] = [SERIAL_COMMAND.label, PHYSIOLOGICAL.label];
        let (rate, median) = (Metric::Throughput, Metric::LatencyP50);
        let same = |at| Check::same_at(group, median, (ARRIVAL.label, at), (command, at));
        let mut checks = vec![
            Check::times_at(group, median, (physiological, below), (command, below), latency)
                .claimed("section V-C.2, figures 4 and 7")
                .not_by({
                    let first = self.first();
                    move |view| by_group_commit(view, group, [first, below])
                }),
            same(below),
        ];
        if top != below {
            let most = (command, top);
            let least = (physiological, top);
            let check = Check::times_at(group, rate, most, least, throughput);
            let check = check.claimed("section V-C.1, figures 3 and 6");
            checks.push(check.unless_given(move |view| is_served(view, group, top)));
            checks.push(same(self.first()));
        }
        checks
    }
}

/// Why the latencies differ less: both wait for group commit, and nothing else, if the median of
/// commands is the same at the lowest load.
fn by_group_commit(view: &View<'_>, group: &str, [first, below]: [f64; 2]) -> Option<String> {
    let median = |series, x| view.median(group, series, x, Metric::LatencyP50);
    let [lowest, command] = [first, below].map(|x| median(SERIAL_COMMAND.label, x));
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

/// Whether both schemes acknowledge what is offered: then their rates are the offered load.
fn is_served(view: &View<'_>, group: &str, top: f64) -> bool {
    [SERIAL_COMMAND, PHYSIOLOGICAL].iter().all(|scheme| {
        let rate = view.median(group, scheme.label, top, Metric::Throughput);
        rate.is_some_and(|rate| rate * LEAST >= top)
    })
}

/// The runs that measure the highest rates of commands: TPC-C and Voter, as loads are offered to
/// them.
pub(in crate::table) fn highest(table: &Table<'_>) -> [Run; 2] {
    let command = |base: Command| logged(base.by(SERIAL_COMMAND, "memory", 1, 1), SERIAL_COMMAND);
    [(TPCC, partitioned_tpcc(table)), (VOTER, partitioned_voter(table))]
        .map(|(name, base)| command(base).run(name, SERIAL_COMMAND.label, 0.0))
}

pub(super) fn experiment(table: &Table<'_>) -> Experiment {
    let tpcc = Loads::new(table, TPCC, table.rates.tpcc_commands);
    let mut runs = tpcc.runs(|| partitioned_tpcc(table));
    let (mut panels, mut checks) = (tpcc.panels(['a', 'b']).to_vec(), tpcc.checks(1.5, 1.45));
    if table.size.fine {
        let voter = Loads::new(table, VOTER, table.rates.voter_commands);
        runs.extend(voter.runs(|| partitioned_voter(table)));
        panels.extend(voter.panels(['c', 'd']));
        checks.extend(voter.checks(1.19, 1.15));
    }
    Experiment {
        id: "command-latency",
        paper: Paper::CommandLogging,
        source: "Figures 3, 4, 6 and 7, section V-C",
        title: "Throughput and latency by offered load",
        claim: "All schemes follow the offered load until they saturate: on Voter physiological \
                logging at 80 k/s, command logging at 95 k/s; on TPC-C physiological logging at \
                two thirds of the others. At low load all take 5 to 7 ms, the interval of group \
                commit. Physiological logging has 15 % more latency on Voter, at least 45 % more \
                on TPC-C.",
        how:
            "Offered loads of 20 to 120 % of the highest rate of commands here, which is measured \
              first, on each workload. One stream for each scheme. Throughput is compared at the \
              highest load, unless both schemes acknowledge what is offered: then it is the load. \
              Latency is compared at the load before."
                .to_string(),
        differs: vec![
            "loads are set from our own rates; a worker that is behind its schedule starts its \
             transactions late, and no call is refused"
                .to_string(),
            NO_SITES.to_string(),
            "the log in memory, not on a disk with a write cache".to_string(),
            "without a log nothing is waited for, so that there is no latency to compare"
                .to_string(),
            AT_COMMIT.to_string(),
        ],
        runs,
        panels,
        checks,
        not_measured: None,
    }
}
