//! Taurus 2020, section 5.4: the log in memory; the same by workers and by threads of recovery; the
//! papers' ways to recover.

use super::setup::*;
use super::taurus_2020::{SCHEMES, of};
use crate::axis::short;
use crate::checks::with_interval;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, LEAST, TOLERANCE, of_band};

pub(super) fn experiments(table: &Table<'_>) -> Vec<Experiment> {
    vec![memory(table), workers(table)]
}

/// The group of runs with the log in memory, where the group has no panel.
pub(super) const MEMORY: &str = "YCSB in memory";

pub(super) fn in_memory(
    table: &Table<'_>,
    workload: &str,
    group: &'static str,
    scheme: Scheme,
) -> Run {
    let command = of(table, workload, scheme, "no-wait").by(scheme, "memory", 1, 4);
    let logged = scheme.label != NONE.label;
    let command = if logged { command.recovered() } else { command };
    command.run(group, scheme.label, 0.0)
}

/// The group of runs with different ways of recovery.
const WAYS: &str = "YCSB, ways to recover";

/// Ways to recover, of command records and of data records. Only the first two are run where time
/// is short.
const RECOVERED: [(&str, Scheme, &str); 5] = [
    ("Taurus command, on all threads", TAURUS_COMMAND, "parallel"),
    ("Taurus command, with pools", TAURUS_COMMAND, "pools"),
    ("Taurus command, on one thread", TAURUS_COMMAND, "serial"),
    ("Taurus data, on all threads", TAURUS_DATA, "parallel"),
    ("Taurus data, with pools", TAURUS_DATA, "pools"),
];

fn ways(table: &Table<'_>) -> Vec<Run> {
    let some = if table.size.fine { &RECOVERED[..] } else { &RECOVERED[..2] };
    let run = |(label, scheme, way): &(&'static str, Scheme, &str)| {
        let command = of(table, "YCSB", *scheme, "no-wait").by(*scheme, "memory", 1, 4);
        command.recovered().with(&format!("--recovery {way}")).run(WAYS, *label, 0.0)
    };
    some.iter().map(run).collect()
}

/// Silo-R with shorter epochs than the default of 40 ms, for the cost of epochs at replay.
const SHORT_EPOCHS: &str = "Silo-R, epochs of 1 ms";

fn short_epochs(table: &Table<'_>) -> Run {
    let command = of(table, "YCSB", SILO_R, "no-wait").by(SILO_R, "memory", 1, 4);
    command.recovered().with("--epoch 1ms").run("YCSB", SHORT_EPOCHS, 0.0)
}

/// Why Silo-R replays more slowly: a record waits until the epoch has ended in all streams.
fn by_epochs(view: &View<'_>) -> Option<String> {
    let points = [(SHORT_EPOCHS, 0.0), (SILO_R.label, 0.0)];
    let gains = view.ratio("YCSB", Metric::ReplayRate, points[0], points[1])?;
    let rate = view.median("YCSB", SHORT_EPOCHS, 0.0, Metric::ReplayRate)?;
    (gains.low > LEAST).then(|| {
        format!(
            "with epochs of 1 ms in place of 40 Silo-R replays {}/s, {} times as many: replay \
             keeps a copy of a record until it has read that the record's epoch has ended in all \
             streams",
            short(rate),
            with_interval(&gains)
        )
    })
}

fn bars(letter: char, group: &'static str, what: &str, metric: Metric) -> Panel {
    let shape = Shape::Bars { log: false, paper: Vec::new() };
    Panel { group, title: format!("({letter}) {group}{what}"), metric, shape }
}

fn memory(table: &Table<'_>) -> Experiment {
    let groups: &[&'static str] =
        if table.size.fine { &["YCSB", "Payment", "New-Order"] } else { &["YCSB"] };
    let (rate, replay) = (Metric::Throughput, Metric::ReplayRate);
    let (mut runs, mut panels, mut checks) = (Vec::new(), Vec::new(), Vec::new());
    let mut letters = 'a'..;
    let mut letter = || letters.next().expect("letters do not run out");
    for group in groups {
        // The paper has no claim of Plover's TPC-C here.
        let shown = |scheme: &Scheme| *group == "YCSB" || scheme.label != PLOVER.label;
        let schemes = SCHEMES.into_iter().filter(shown);
        runs.extend(schemes.map(|scheme| in_memory(table, group, group, scheme)));
        if *group == "YCSB" && table.size.fine {
            runs.push(short_epochs(table));
        }
        panels.push(bars(letter(), group, "", rate));
        panels.push(bars(letter(), group, ", recovery", replay));
        let both = ["Taurus command", "Taurus data"];
        let same = Check::same(group, rate, both[0], both[1]);
        checks.push(same.not_by_bytes(group, both.map(|series| (series, 0.0))));
    }
    runs.extend(ways(table));
    panels.push(bars(letter(), WAYS, "", replay));
    checks.push(Check::same("YCSB", rate, "Taurus data", "Silo-R"));
    let slower = Check::same("YCSB", replay, "Taurus data", "Silo-R").claimed("section 5.4");
    checks.push(slower.not_by(by_epochs).measured_apart());
    checks.push(Check::beside(WAYS, replay, RECOVERED[1].0, RECOVERED[0].0));
    if table.size.fine {
        checks.push(Check::beside(WAYS, replay, RECOVERED[0].0, RECOVERED[2].0));
        checks.push(Check::beside(WAYS, replay, RECOVERED[4].0, RECOVERED[3].0));
    }
    Experiment {
        id: "2020-memory",
        paper: Paper::Taurus2020,
        source: "Figure 11, section 5.4; the pools of section 3.3",
        title: "Enough bandwidth: the log in memory",
        claim: "On a RAM disk the advantage of command logging is greatly reduced. All parallel \
                schemes scale in recovery, and Silo-R is slightly ahead of Taurus data logging, \
                because it resolves no dependencies.",
        how: "The log in shared memory, four streams, two-phase locking without waiting. Only \
              processor costs remain. The last panel has the ways to recover: on all threads as \
              the engine does, with the paper's pools, and on one thread."
            .to_string(),
        differs: vec![
            "the paper says that the advantage is greatly reduced, not to what: that commands are \
             then about as fast as data is what we expect"
                .to_string(),
            "the paper compares Taurus data with Silo-R in recovery; about the same rate of \
             logging is what we expect"
                .to_string(),
            format!("{} cores, not 56 workers; 2020-workers has the scale", table.here.cores),
            format!("YCSB has {} rows, not 10 GB", table.rows()),
            "Silo-R has the same locking as the others, in the paper Silo's".to_string(),
            "no serial logging on RAID-0, because memory is one device".to_string(),
        ],
        runs,
        panels,
        checks,
        not_measured: None,
    }
}

/// Numbers of workers, or threads: powers of two below the number of workers of a run, and the
/// number itself. At least two numbers, for a comparison.
pub(super) fn counts(table: &Table<'_>) -> Vec<f64> {
    let most = table.workers().max(2);
    let powers = (0..).map(|power| 1 << power).take_while(|count| *count < most);
    powers.chain([most]).map(f64::from).collect()
}

/// The rate with `most` workers or threads is at least four fifths of `most` times the rate of one.
fn scales(metric: Metric, series: &'static str, most: f64) -> Check {
    let least = 0.8 * most;
    Check::new(move |view| {
        let ratio = view.ratio("YCSB", metric, (series, most), (series, 1.0))?;
        Some(Finding {
            text: format!(
                "YCSB, {}: {series} with {most} threads is {} times one (expected: at least \
                 {least})",
                metric.label(),
                with_interval(&ratio)
            ),
            level: of_band(&ratio, least, f64::INFINITY),
        })
    })
}

/// Why the rate of data records grows less with the workers than the rate of the same transactions
/// with commands: further threads have to write the records' bytes.
fn by_bytes_written(view: &View<'_>, most: f64) -> Option<String> {
    let [data, command] = [TAURUS_DATA.label, TAURUS_COMMAND.label];
    let at = |series, metric| view.median("YCSB", series, most, metric);
    let grows = view.ratio("YCSB", Metric::Throughput, (command, most), (command, 1.0))?;
    let (many, few) = (at(data, Metric::DeviceRate)?, at(command, Metric::DeviceRate)?);
    if grows.low < 0.8 * most || many < few * TOLERANCE {
        return None;
    }
    let busy = |series| at(series, Metric::OtherProcessors).map(short);
    let beside = match (busy(data), busy(command)) {
        (Some(processors), Some(over)) => format!(
            ": threads beside the workers keep {processors} processors busy with data records, and \
             {over} with commands"
        ),
        _ => String::new(),
    };
    Some(format!(
        "with {command} the same transactions reach {} times one; they write {} MB/s, {data} \
         {}{beside}",
        with_interval(&grows),
        short(few),
        short(many)
    ))
}

fn workers(table: &Table<'_>) -> Experiment {
    let counts = counts(table);
    let most = counts.last().copied().unwrap_or(2.0);
    let few = [TAURUS_DATA, TAURUS_COMMAND];
    let all = [&SCHEMES[..], &[TAURUS_2016_DATA, TAURUS_2016_COMMAND]].concat();
    let schemes = if table.size.fine { &all[..] } else { &few[..] };
    let mut runs = Vec::new();
    for scheme in schemes {
        for count in &counts {
            runs.push(with_workers(table, *scheme, *count));
        }
    }
    let lines = |title: &str, metric, x| Panel {
        group: "YCSB",
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x, log_x: false, log_y: false },
    };
    let (rate, replay) = (Metric::Throughput, Metric::ReplayRate);
    let mut checks = Vec::new();
    for scheme in [TAURUS_DATA, TAURUS_COMMAND] {
        // Two threads do more than one, whatever they do.
        checks.extend([rate, replay].map(|metric| {
            let rises = Check::rises("YCSB", metric, scheme.label, 1.0, most);
            rises.claimed("sections 5.2 to 5.4").resting_on(Basis::Construction)
        }));
        let scaling = scales(rate, scheme.label, most);
        checks.push(if scheme.label == TAURUS_DATA.label {
            scaling.not_by(move |view| by_bytes_written(view, most))
        } else {
            scaling
        });
        checks.push(scales(replay, scheme.label, most));
    }
    Experiment {
        id: "2020-workers",
        paper: Paper::Taurus2020,
        source: "Figures 5 to 11, their horizontal axes; Taurus 2016, figures 5 and 8",
        title: "Workers, and threads of recovery",
        claim: "Where the devices have enough bandwidth, the throughput of the parallel schemes \
                grows with the number of workers, and the speed of their recovery with the number \
                of its threads.",
        how: format!(
            "The log in shared memory, four streams, two-phase locking without waiting: 1 to \
             {most} workers, and as many threads of recovery. More than there are cores here is \
             only simulated. Expected of {most}: at least four fifths of {most} times the rate of \
             one; flushers have threads of their own."
        ),
        differs: vec![
            format!("up to {most} workers, not 80"),
            format!("YCSB has {} rows, not 10 GB", table.rows()),
            "the log in memory, not on drives".to_string(),
            "Taurus of 2016 has the locking of the others here, in its report TicToc".to_string(),
        ],
        runs,
        panels: vec![
            lines("(a) Logging", rate, "workers"),
            lines("(b) Recovery", replay, "threads of recovery"),
        ],
        checks,
        not_measured: None,
    }
}

/// A run with `count` workers and threads of recovery. With one for each core, the default, the run
/// is the run of [`memory`].
fn with_workers(table: &Table<'_>, scheme: Scheme, count: f64) -> Run {
    if table.axes.workers.is_none() && count == f64::from(table.here.cores) {
        return Run { x: count, ..in_memory(table, "YCSB", "YCSB", scheme) };
    }
    let command = of(table, "YCSB", scheme, "no-wait").fixed("--workers", &count.to_string());
    let command = command.by(scheme, "memory", 1, 4);
    let threads = format!("--recovery-threads {count}");
    let logged = scheme.label != NONE.label;
    let command = if logged { command.recovered().with(&threads) } else { command };
    command.run("YCSB", scheme.label, count)
}
