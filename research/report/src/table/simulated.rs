//! The papers' machines, simulated: curves over many workers.

use super::setup::*;
use crate::axis::short;
use crate::chart::Spread;
use crate::data::{Outcome, View};
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, Level};
use crate::scale::{self, HDD, NVME, SSD};

/// Placeholder for the path of the file with the costs of this machine.
pub const CALIBRATION: &str = "CALIBRATION";

pub(super) fn experiments(table: &Table<'_>) -> Vec<Experiment> {
    vec![nvme(table), hdd(table), recovery(table), poplar(table)]
}

type Modelled = (&'static str, &'static str);

/// Options, and the simulated time of runs without epochs: some tens of flushes, and more than the
/// time to fill the buffers.
type Load = (&'static str, &'static str);

/// The schemes of Taurus 2020. The paper has no length of Silo-R's epochs: the epochs are Silo's
/// own, and a single epoch is simulated.
const MODELLED: [Modelled; 7] = [
    ("No logging", "none"),
    ("Serial data", "serial --record data"),
    ("Taurus data", "taurus --record data"),
    ("Silo-R", "silo-r --record data --epoch 40ms --seconds 0.04"),
    ("Plover", "plover --record data"),
    ("Serial command", "serial --record command"),
    ("Taurus command", "taurus --record command"),
];

fn run(
    group: &'static str,
    (label, protocol): Modelled,
    workers: f64,
    machine: &str,
    (more, seconds): Load,
) -> Run {
    // A scheme with epochs is simulated for a single epoch.
    let seconds = if protocol.contains("--seconds") { "" } else { seconds };
    let words = format!(
        "simulate --calibration {CALIBRATION} --protocol {protocol} --workers {workers} {machine} \
         {more} {seconds}"
    );
    Run {
        group,
        series: label.to_string(),
        x: workers,
        words: words.split_whitespace().map(str::to_string).collect(),
        // Threads that wait for work at replay take most of the time.
        cost: 0.03 + if more.contains("--recover") { 0.04 } else { 0.003 } * workers,
    }
}

fn sweep(
    group: &'static str,
    schemes: &[Modelled],
    workers: &[f64],
    machine: &str,
    load: Load,
) -> Vec<Run> {
    let each = |scheme: &Modelled| -> Vec<Run> {
        workers.iter().map(|w| run(group, *scheme, *w, machine, load)).collect()
    };
    schemes.iter().flat_map(each).collect()
}

/// The options of a paper's devices, as in the paper, with `streams` streams.
fn devices(machine: &scale::Machine, streams: u32) -> String {
    format!(
        "--streams {streams} --devices {} --bandwidth {:.0}MB --latency {}",
        machine.devices,
        machine.bandwidth / 1e6,
        machine.latency
    )
}

fn lines(group: &'static str, title: &str, metric: Metric) -> Panel {
    Panel {
        group,
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x: "workers", log_x: false, log_y: false },
    }
}

/// A ratio, with the interval over the seeds.
fn with_seeds(ratio: &Spread) -> String {
    let Spread { low, median, high, count, .. } = ratio;
    match count {
        1 => format!("{} times (one seed)", short(*median)),
        n => format!("{} ({} to {}, {n} seeds) times", short(*median), short(*low), short(*high)),
    }
}

/// The largest ratio of two series along the axis. Not judged: the model was compared with runs of
/// one and two workers only.
fn peak(
    group: &'static str,
    metric: Metric,
    series: &'static str,
    over: &'static str,
    paper: f64,
) -> Check {
    Check::new(move |view| {
        let positions = view.points(group, series, metric).into_iter().map(|(x, _)| x);
        let ratios =
            positions.filter_map(|x| Some((x, view.ratio(group, metric, (series, x), (over, x))?)));
        let (x, ratio) = ratios.max_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
        Some(Finding {
            text: format!(
                "Simulated, {group}, {}: {series} is at most {} {over}, with {x} workers (paper: \
                 {paper})",
                metric.label(),
                with_seeds(&ratio)
            ),
            level: Level::Undecided,
        })
    })
    .resting_on(Basis::Simulated)
}

/// What gives way first as a series gets more workers: the resource that the model uses most, at
/// each number of workers from 16 on. `path` leads to the usage in the JSON of a run.
fn first_to_give_way(group: &'static str, path: &'static str, series: &'static str) -> Check {
    Check::new(move |view| {
        let each = view.runs(group).filter(|run| run.series == series && run.x >= 16.0);
        let each: Vec<String> = each.filter_map(|run| named(view, run, path)).collect();
        (!each.is_empty()).then(|| Finding {
            text: format!("Simulated, {group}, {series}: first to give way {}", each.join("; ")),
            level: Level::Undecided,
        })
    })
    .resting_on(Basis::Simulated)
}

/// The checks of a paper's claims, and what gives way first for some series.
fn with_limits<const N: usize>(
    claimed: [Check; N],
    (group, path): (&'static str, &'static str),
    series: &[&'static str],
) -> Vec<Check> {
    let limits = series.iter().map(|series| first_to_give_way(group, path, series));
    claimed.into_iter().chain(limits).collect()
}

/// The most used resource of a run, with the utilisation.
fn named(view: &View<'_>, run: &Run, path: &str) -> Option<String> {
    let value = view.data.of(&run.words).iter().find_map(Outcome::value)?;
    let first = value.pointer(path)?.get("first")?;
    let used = 100.0 * first.get("utilisation")?.as_f64()?;
    let rest = match first.get("is_saturated")?.as_bool()? {
        true => "",
        false => ", so nothing is saturated",
    };
    let resource = first.get("resource")?.as_str()?;
    Some(format!("at {}: {resource}, used {used:.0} %{rest}", run.x))
}

const LOGGING: &str = "/usage";
const RECOVERY: &str = "/recovery/usage";

const HOW: &str = "Simulated: a discrete-event model with the costs of this machine at one and \
                   two workers (calibration.json), and with the paper's devices. Each round has a \
                   seed of its own: an interval shows how much the model varies by chance, not \
                   how far it is from a machine. How far it is from this one, with contention and \
                   with slow devices, is at the end of the page: the residuals on runs that it \
                   was not fitted to.";

/// The assumptions and the omissions of the model.
fn assumptions() -> Vec<String> {
    [
        "the paper's processors are not modelled: sockets, their caches, two threads per core. A \
         cache line takes the same time between all cores, and more than two workers slow each \
         other down no more than two do, except by cache lines, rows and conflicts",
        "the 1,000 most popular rows are in the cache of every core that has used them since they \
         were written",
        "all schemes run under Silo: a transaction runs again if a row that it read was \
         overwritten meanwhile; no transaction waits for a locked row",
        "each worker keeps to one stream (`--stream-choice fixed`); by default the engine's move \
         to the stream in which a record would be durable first",
        "flushers, and what collects acknowledgements, take no time from workers",
        "the flushes' rule, anchors, vectors and watermarks are the engine's. Read stamps are kept \
         in all rows, and no table is without writers",
        "commands are replayed by the engine's rule, with its windows. Reading, decoding and \
         copying a record, locks, sleep and the lines of caches take their measured times; all \
         threads without work read the line of a watermark one after the other once it is written. \
         Replay never falls back to one thread",
        "memory copies as much for each pair of cores as for this machine's two; a log of row \
         images is repeated until each thread has had some chunks",
        "row images are replayed by all threads without waiting for each other, also those of a \
         serial log, as in the engine; the paper's serial schemes replay on one thread",
    ]
    .map(str::to_string)
    .into()
}

fn assumptions_and(more: &[&str]) -> Vec<String> {
    assumptions().into_iter().chain(more.iter().map(|more| more.to_string())).collect()
}

/// An assumption about a fact not in the paper.
const EPOCHS: &str = "Silo-R's epochs take 40 ms, as in Silo; the paper does not say how long its \
                      own are";

/// The loads of the paper of 2020. Slow disks have smaller buffers, so buffers are full as soon.
const TAURUS: Load = ("--theta 0.6", "--seconds 0.02");
const RECOVERED: Load = ("--theta 0.6 --recover", "--seconds 0.02");
const SLOW: Load = ("--theta 0.6 --buffer 1MiB", "--seconds 0.08");

fn nvme(table: &Table<'_>) -> Experiment {
    let workers = table.steps(&[1.0, 16.0, 32.0, 64.0, 96.0], &[8.0, 80.0]);
    let rate = Metric::Throughput;
    Experiment {
        id: "simulated-nvme",
        paper: Paper::Simulation,
        source: "Taurus 2020, figures 5 and 6",
        title: "Logging on eight NVMe drives",
        claim: "Taurus data logging is 9.9 times as fast as serial data logging; Taurus command \
                logging is 2.9 times as fast as serial command logging, 2.4 times as fast as \
                Plover and 2.8 times as fast as Silo-R.",
        how: format!("{HOW} {}", NVME.assumed),
        differs: assumptions_and(&[EPOCHS]),
        runs: sweep("YCSB", &MODELLED, &workers, &devices(&NVME, 16), TAURUS),
        panels: vec![lines("YCSB", "YCSB", rate)],
        checks: with_limits(
            [
                peak("YCSB", rate, "Taurus data", "Serial data", 9.9),
                peak("YCSB", rate, "Taurus command", "Serial command", 2.9),
                peak("YCSB", rate, "Taurus command", "Plover", 2.4),
                peak("YCSB", rate, "Taurus command", "Silo-R", 2.8),
            ]
            .map(|check| check.claimed("section 5.2")),
            ("YCSB", LOGGING),
            &["Taurus data", "Taurus command"],
        ),
        not_measured: None,
    }
}

fn hdd(table: &Table<'_>) -> Experiment {
    let workers = table.steps(&[1.0, 16.0, 32.0, 56.0], &[8.0, 56.0]);
    let rate = Metric::Throughput;
    Experiment {
        id: "simulated-hdd",
        paper: Paper::Simulation,
        source: "Taurus 2020, figure 9",
        title: "Logging on eight hard disks",
        claim: "Taurus data logging is 7.1 times as fast as serial data logging; Taurus command \
                logging is 9.2 times as fast as Plover and Silo-R.",
        how: format!("{HOW} {}", HDD.assumed),
        differs: assumptions_and(&[EPOCHS]),
        runs: sweep("YCSB", &MODELLED, &workers, &devices(&HDD, 8), SLOW),
        panels: vec![lines("YCSB", "YCSB", rate)],
        checks: with_limits(
            [
                peak("YCSB", rate, "Taurus data", "Serial data", 7.1),
                peak("YCSB", rate, "Taurus command", "Plover", 9.2),
                peak("YCSB", rate, "Taurus command", "Silo-R", 9.2),
            ]
            .map(|check| check.claimed("section 5.3")),
            ("YCSB", LOGGING),
            &["Taurus data", "Taurus command"],
        ),
        not_measured: None,
    }
}

fn recovery(table: &Table<'_>) -> Experiment {
    let workers = table.steps(&[1.0, 16.0, 48.0, 80.0], &[8.0, 80.0]);
    let rate = Metric::ReplayRate;
    let schemes: Vec<Modelled> =
        MODELLED.into_iter().filter(|(label, _)| *label != "No logging").collect();
    Experiment {
        id: "simulated-recovery",
        paper: Paper::Simulation,
        source: "Taurus 2020, figures 7 and 8, abstract",
        title: "Recovery from eight NVMe drives",
        claim: "Taurus recovers up to 22.9 (data) and 75.6 times (command) as fast as serial \
                logging; Taurus command up to 9.7 times as fast as Silo-R.",
        how: format!("{HOW} The first 100,000 records of the log are replayed. {}", NVME.assumed),
        differs: assumptions_and(&[EPOCHS]),
        runs: sweep("YCSB", &schemes, &workers, &devices(&NVME, 16), RECOVERED),
        panels: vec![lines("YCSB", "YCSB", rate)],
        checks: with_limits(
            [
                peak("YCSB", rate, "Taurus data", "Serial data", 22.9),
                peak("YCSB", rate, "Taurus command", "Serial command", 75.6),
                peak("YCSB", rate, "Taurus command", "Silo-R", 9.7),
            ]
            .map(|check| check.claimed("section 5.2, abstract")),
            ("YCSB", RECOVERY),
            &["Taurus data", "Taurus command", "Serial data"],
        ),
        not_measured: None,
    }
}

fn poplar(table: &Table<'_>) -> Experiment {
    let workers = table.steps(&[1.0, 4.0, 12.0, 20.0], &[4.0, 20.0]);
    // The workers of NVM-D flush their own records as soon as possible.
    const AT_ONCE: Load = ("--theta 0", "--seconds 0.05");
    const COLLECTED: Load = ("--theta 0 --flush-interval 5ms", "--seconds 0.05");
    let schemes = [
        ("Serial data", "serial --record data"),
        ("Silo-R", "silo-r --record data --epoch 50ms --seconds 0.05"),
        ("Poplar", "poplar --record data"),
        ("Taurus data", "taurus --record data"),
    ];
    let machine = devices(&SSD, 2);
    let mut runs = sweep("YCSB", &schemes, &workers, &machine, COLLECTED);
    let gsn = ("GSN (NVM-D)", "gsn --record data");
    runs.extend(sweep("YCSB", &[gsn], &workers, &machine, AT_ONCE));
    let rate = Metric::Throughput;
    Experiment {
        id: "simulated-poplar",
        paper: Paper::Simulation,
        source: "Poplar, figures 5 and 7",
        title: "Poplar's machine: two SSDs",
        claim: "Poplar and Silo have about twice the throughput of a central log; Silo's latency \
                is six times that of the others.",
        how: format!(
            "{HOW} {} Silo-R's epochs take 50 ms, flushes collect records for 5 ms, except under \
             GSN.",
            SSD.assumed
        ),
        differs: assumptions_and(&[
            "half of two accesses write, where the paper's transactions write one row",
            "streams have flushers, also under GSN",
        ]),
        runs,
        panels: vec![
            lines("YCSB", "(a) Throughput", rate),
            lines("YCSB", "(b) Median latency", Metric::LatencyP50),
        ],
        checks: with_limits(
            [
                peak("YCSB", rate, "Poplar", "Serial data", 2.0),
                peak("YCSB", rate, "Silo-R", "Serial data", 2.0),
                peak("YCSB", Metric::LatencyP50, "Silo-R", "Poplar", 6.0),
            ]
            .map(|check| check.claimed("section 6.3")),
            ("YCSB", LOGGING),
            &["Poplar"],
        ),
        not_measured: None,
    }
}

#[cfg(test)]
mod tests;
