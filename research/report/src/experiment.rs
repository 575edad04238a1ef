//! Experiments: a claim, the runs that test the claim, the panels of the runs, the checks.

use crate::chart::{Line, Stack};
use crate::data::View;
use crate::judge::Check;
use crate::metric::Metric;

/// The source of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paper {
    /// LSN vectors.
    Taurus2020,
    /// Lists of predecessors.
    Taurus2016,
    /// Sequence numbers that order RAW and WAW dependencies only.
    Poplar,
    /// Command records against physiological records.
    CommandLogging,
    /// The concurrency controls.
    Concurrency,
    /// A transaction component over a data component.
    Deuteronomy,
    /// Consequences of the protocols' rules, without a figure in a paper.
    Shapes,
    /// The papers' machines, simulated with this machine's costs.
    Simulation,
}

impl Paper {
    /// All papers, in the order of the report.
    pub const ALL: [Paper; 8] = [
        Paper::Taurus2020,
        Paper::Taurus2016,
        Paper::Poplar,
        Paper::CommandLogging,
        Paper::Concurrency,
        Paper::Deuteronomy,
        Paper::Shapes,
        Paper::Simulation,
    ];

    /// A short name.
    pub fn name(self) -> &'static str {
        match self {
            Paper::Taurus2020 => "Taurus (2020)",
            Paper::Taurus2016 => "Taurus (2016 report)",
            Paper::Poplar => "Poplar",
            Paper::CommandLogging => "Command logging",
            Paper::Concurrency => "Concurrency control",
            Paper::Deuteronomy => "Deuteronomy",
            Paper::Shapes => "Slow and idle streams",
            Paper::Simulation => "Many cores, simulated",
        }
    }

    /// The full citation.
    pub fn citation(self) -> &'static str {
        match self {
            Paper::Taurus2020 => {
                "Yu Xia, Xiangyao Yu, Andrew Pavlo, Srinivas Devadas: Taurus: Lightweight Parallel \
                 Logging for In-Memory Database Management Systems. PVLDB 14(2), 2020"
            }
            Paper::Taurus2016 => {
                "Taurus: A Parallel Transaction Recovery Method Based on Fine-Granularity \
                 Dependency Tracking (Xiangyao Yu, Siye Zhu and others). Report, 2016"
            }
            Paper::Poplar => {
                "Poplar: recoverable logging by partially constrained sequence numbers, evaluated \
                 in DBx1000 on SSDs and emulated NVM"
            }
            Paper::CommandLogging => {
                "Nirmesh Malviya, Ariel Weisberg, Samuel Madden, Michael Stonebraker: Rethinking \
                 Main Memory OLTP Recovery. ICDE 2014"
            }
            Paper::Concurrency => {
                "Tu and others: Silo, SOSP 2013. Yu and others: TicToc, SIGMOD 2016. Larson and \
                 others: Hekaton, PVLDB 5(4), 2011. Levandoski and others: Deuteronomy, CIDR 2015"
            }
            Paper::Deuteronomy => {
                "Justin Levandoski, David Lomet, Sudipta Sengupta, Ryan Stutsman, Rui Wang: High \
                 Performance Transactions in Deuteronomy. CIDR 2015"
            }
            Paper::Shapes => {
                "Consequences of the acknowledgement rules on any machine; no paper has figures \
                 for them"
            }
            Paper::Simulation => {
                "A discrete-event model that follows the protocols' rules, with the costs of this \
                 machine. Nothing in this chapter was measured on a machine of that size"
            }
        }
    }
}

/// A command of this program, and the place in the figure.
#[derive(Clone, Debug)]
pub struct Run {
    /// The group of panels that show the run, for example a workload.
    pub group: &'static str,
    /// The series of the run.
    pub series: String,
    /// The position on the horizontal axis; 0 for bars.
    pub x: f64,
    /// The words after `hyades-lab`, without `--json`.
    pub words: Vec<String>,
    /// Estimated duration in seconds.
    pub cost: f64,
}

/// Computes the lines of a panel from several runs each.
pub type Derived = fn(&View<'_>, &'static str) -> Vec<Line>;
/// Computes the stacked bars of a panel.
pub type Parts = fn(&View<'_>, &'static str) -> Vec<Stack>;

/// Computes the cells of a table from several runs each.
pub type Tabled = fn(&View<'_>, &'static str) -> Cells;

/// A table of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    /// The columns' names.
    pub heads: Vec<&'static str>,
    /// The rows, with a cell for each column.
    pub rows: Vec<Vec<String>>,
}

/// How a panel shows the runs.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A bar for each series. With ratios of the paper: (series, over series, ratio).
    Bars {
        /// Whether lengths are logarithmic.
        log: bool,
        /// The paper's ratios.
        paper: Vec<(&'static str, &'static str, f64)>,
    },
    /// A line for each series.
    Lines {
        /// The horizontal axis, with the unit.
        x: &'static str,
        /// Whether the horizontal axis is logarithmic.
        log_x: bool,
        /// Whether the vertical axis is logarithmic.
        log_y: bool,
    },
    /// A line for each series over the bandwidth of the devices, with a mark at the bandwidth of
    /// the paper's hardware.
    Curve,
    /// Ratios of series over the bandwidth, with the paper's ratios at the mark: (of, over, ratio).
    Ratios {
        /// The pairs, and the claims.
        pairs: Vec<(&'static str, &'static str, f64)>,
    },
    /// Lines computed from several runs each.
    Derived {
        /// Computes the lines.
        lines: Derived,
        /// The horizontal axis, with the unit.
        x: &'static str,
        /// Whether the horizontal axis is logarithmic.
        log_x: bool,
        /// The vertical axis, with the unit.
        y: &'static str,
    },
    /// Bars of parts computed from several runs each.
    Parts {
        /// Computes the bars.
        stacks: Parts,
        /// The parts' names.
        names: &'static [&'static str],
        /// The axis, with the unit.
        y: &'static str,
    },
    /// A table in place of a chart, computed from several runs for each cell.
    Table(Tabled),
}

/// One panel of a figure.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The group of runs in the panel.
    pub group: &'static str,
    /// The title above the panel.
    pub title: String,
    /// The metric of the panel.
    pub metric: Metric,
    /// How the panel shows the runs.
    pub shape: Shape,
}

/// An experiment.
pub struct Experiment {
    /// For `--only`, and the anchor in the page.
    pub id: &'static str,
    /// The source of the claim.
    pub paper: Paper,
    /// Figure, table or section.
    pub source: &'static str,
    /// The subject.
    pub title: &'static str,
    /// The paper's claim.
    pub claim: &'static str,
    /// How the experiment is reproduced on this machine.
    pub how: String,
    /// Differences from the paper's set-up, each a sentence without its full stop.
    pub differs: Vec<String>,
    /// The runs; none if the experiment cannot be measured.
    pub runs: Vec<Run>,
    /// The figure.
    pub panels: Vec<Panel>,
    /// The checks for the verdict.
    pub checks: Vec<Check>,
    /// Why the experiment, or a part, is not measured.
    pub not_measured: Option<&'static str>,
}

impl Experiment {
    /// Whether a model computes the figures.
    pub fn is_simulated(&self) -> bool {
        self.runs.iter().any(|run| run.words.first().is_some_and(|word| word == "simulate"))
    }

    #[cfg(test)]
    pub(crate) fn example(runs: Vec<Run>) -> Experiment {
        Experiment {
            id: "example",
            paper: Paper::Shapes,
            source: "",
            title: "",
            claim: "",
            how: String::new(),
            differs: Vec::new(),
            runs,
            panels: Vec::new(),
            checks: Vec::new(),
            not_measured: None,
        }
    }
}
