//! The papers' machines, simulated: curves over many workers.

use super::*;
use crate::chart::Spread;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Check, Finding, of_factor};

/// Placeholder for the path of the file with the costs of this machine.
pub const CALIBRATION: &str = "CALIBRATION";

pub(super) fn experiments(table: &Table<'_>) -> Vec<Experiment> {
    vec![nvme(table), hdd(table), recovery(table), poplar(table)]
}

type Modelled = (&'static str, &'static str);

const MODELLED: [Modelled; 6] = [
    ("No logging", "none"),
    ("Serial data", "serial --record data"),
    ("Taurus data", "taurus --record data"),
    ("Plover", "plover --record data"),
    ("Serial command", "serial --record command"),
    ("Taurus command", "taurus --record command"),
];

fn run(
    group: &'static str,
    (label, protocol): Modelled,
    workers: f64,
    machine: &str,
    more: &str,
) -> Run {
    let words = format!(
        "simulate --calibration {CALIBRATION} --protocol {protocol} --workers {workers} {machine} \
         {more}"
    );
    Run {
        group,
        series: label.to_string(),
        x: workers,
        words: words.split_whitespace().map(str::to_string).collect(),
        cost: 0.2,
    }
}

fn sweep(
    group: &'static str,
    schemes: &[Modelled],
    workers: &[f64],
    machine: &str,
    more: &str,
) -> Vec<Run> {
    let each = |scheme: &Modelled| -> Vec<Run> {
        workers.iter().map(|w| run(group, *scheme, *w, machine, more)).collect()
    };
    schemes.iter().flat_map(each).collect()
}

fn lines(group: &'static str, title: &str, metric: Metric) -> Panel {
    Panel {
        group,
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x: "workers", log_x: false, log_y: false },
    }
}

/// The largest ratio of two series along the axis.
fn peak(
    group: &'static str,
    metric: Metric,
    of: &'static str,
    over: &'static str,
    paper: f64,
) -> Check {
    Check::new(move |view| {
        let points = view.points(group, of, metric);
        let ratio = points
            .iter()
            .filter_map(|(x, a)| Some((*x, a.median / view.median(group, over, *x, metric)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1))?;
        // A model repeats itself: any number of runs has this one result.
        let same = Spread { count: 2, ..Spread::one(ratio.1) };
        Some(Finding {
            text: format!(
                "Simulated, {group}: {of} is at most {:.2} times {over}, with {} workers (paper: \
                 {paper})",
                ratio.1, ratio.0
            ),
            level: of_factor(&same, paper),
        })
    })
}

const HOW: &str = "Simulated: a discrete-event model with the costs of this machine at one and \
                   two workers (calibration.json), and with the paper's devices. It does not \
                   model the paper's processors: sockets, their caches, two threads per core. The \
                   residuals on runs that it was not fitted to are at the end of the page.";

/// What the model leaves out.
fn assumptions() -> Vec<String> {
    [
        "rows are chosen uniformly, also where the paper has a Zipf exponent of 0.6",
        "each worker has one stream for good; the engine's move to the stream with the least to do",
        "no anchors; replay does not wait for its own lane",
        "replay takes records from one queue without a limit, by any thread; the engine has a \
         window for each lane",
        "parking a transaction costs nothing",
        "a cache line that moves costs the same between all cores",
        "Plover waits for touched partitions, and Poplar takes two writes as blind: the papers' \
         rules, not the engine's",
        "Silo-R is simulated for Poplar's machine only, where its loggers fill one device: its \
         latency is compared, not its throughput",
    ]
    .map(str::to_string)
    .into()
}

fn nvme(table: &Table<'_>) -> Experiment {
    let workers = table.steps(&[1.0, 8.0, 16.0, 32.0, 48.0, 64.0, 80.0, 96.0], &[8.0, 32.0, 80.0]);
    let machine = "--streams 16 --devices 8 --bandwidth 2GB --latency 100us";
    let rate = Metric::Throughput;
    Experiment {
        id: "simulated-nvme",
        paper: Paper::Simulation,
        source: "Taurus 2020, figures 5 and 6",
        title: "Logging on eight NVMe drives",
        claim: "Taurus data logging is 9.9 times as fast as serial data logging; Taurus command \
                logging is 2.9 times as fast as serial command logging, and 2.4 times as fast as \
                Plover.",
        how: HOW.to_string(),
        differs: assumptions(),
        runs: sweep("YCSB", &MODELLED, &workers, machine, ""),
        panels: vec![lines("YCSB", "YCSB", rate)],
        checks: vec![
            peak("YCSB", rate, "Taurus data", "Serial data", 9.9),
            peak("YCSB", rate, "Taurus command", "Serial command", 2.9),
            peak("YCSB", rate, "Taurus command", "Plover", 2.4),
        ],
        not_measured: None,
    }
}

fn hdd(table: &Table<'_>) -> Experiment {
    let workers = table.steps(&[1.0, 8.0, 16.0, 24.0, 32.0, 40.0, 48.0, 56.0], &[8.0, 24.0, 56.0]);
    let machine = "--streams 8 --devices 8 --bandwidth 160MB --latency 2ms";
    let rate = Metric::Throughput;
    Experiment {
        id: "simulated-hdd",
        paper: Paper::Simulation,
        source: "Taurus 2020, figure 9",
        title: "Logging on eight hard disks",
        claim: "Taurus data logging is 7.1 times as fast as serial data logging; Taurus command \
                logging is 9.2 times as fast as Plover.",
        how: HOW.to_string(),
        differs: assumptions(),
        runs: sweep("YCSB", &MODELLED, &workers, machine, ""),
        panels: vec![lines("YCSB", "YCSB", rate)],
        checks: vec![
            peak("YCSB", rate, "Taurus data", "Serial data", 7.1),
            peak("YCSB", rate, "Taurus command", "Plover", 9.2),
        ],
        not_measured: None,
    }
}

fn recovery(table: &Table<'_>) -> Experiment {
    let workers = table.steps(&[1.0, 8.0, 16.0, 32.0, 48.0, 64.0, 80.0], &[8.0, 32.0, 80.0]);
    let machine = "--streams 16 --devices 8 --bandwidth 2GB --latency 100us";
    let rate = Metric::ReplayRate;
    let schemes: Vec<Modelled> =
        MODELLED.into_iter().filter(|(label, _)| *label != "No logging").collect();
    Experiment {
        id: "simulated-recovery",
        paper: Paper::Simulation,
        source: "Taurus 2020, figures 7 and 8, abstract",
        title: "Recovery from eight NVMe drives",
        claim: "Taurus recovers up to 22.9 (data) and 75.6 times (command) as fast as serial \
                logging.",
        how: HOW.to_string(),
        differs: assumptions(),
        runs: sweep("YCSB", &schemes, &workers, machine, "--recover"),
        panels: vec![lines("YCSB", "YCSB", rate)],
        checks: vec![
            peak("YCSB", rate, "Taurus data", "Serial data", 22.9),
            peak("YCSB", rate, "Taurus command", "Serial command", 75.6),
        ],
        not_measured: None,
    }
}

fn poplar(table: &Table<'_>) -> Experiment {
    let workers = table.steps(&[1.0, 4.0, 8.0, 12.0, 16.0, 20.0], &[4.0, 12.0, 20.0]);
    let machine = "--streams 2 --devices 2 --bandwidth 1200MB --latency 100us";
    let schemes = [
        ("Serial data", "serial --record data"),
        ("Silo-R", "silo-r --record data"),
        ("Poplar", "poplar --record data"),
        ("GSN (NVM-D)", "gsn --record data"),
        ("Taurus data", "taurus --record data"),
    ];
    let rate = Metric::Throughput;
    Experiment {
        id: "simulated-poplar",
        paper: Paper::Simulation,
        source: "Poplar, figures 5 and 7",
        title: "Poplar's machine: two SSDs",
        claim: "Poplar and Silo have about twice the throughput of a central log; Silo's latency \
                is six times that of the others.",
        how: HOW.to_string(),
        differs: assumptions(),
        runs: sweep("YCSB", &schemes, &workers, machine, "--flush-interval 5ms"),
        panels: vec![
            lines("YCSB", "(a) Throughput", rate),
            lines("YCSB", "(b) Median latency", Metric::LatencyP50),
        ],
        checks: vec![
            peak("YCSB", rate, "Poplar", "Serial data", 2.0),
            peak("YCSB", Metric::LatencyP50, "Silo-R", "Poplar", 6.0),
        ],
        not_measured: None,
    }
}
