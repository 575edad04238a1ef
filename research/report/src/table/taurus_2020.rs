//! Taurus 2020, sections 5.2 and 5.3: hard disks, NVMe drives.

use super::curve::{Claims, Ratio, at_mark, checks, is_needed, panels, throttled};
use super::setup::*;
use super::taurus_2020_memory::{MEMORY, in_memory};
use crate::axis::short;
use crate::experiment::Paper;
use crate::judge::Check;
use crate::scale::{HDD, Machine, NVME};

/// The schemes of the paper whose logs are also replayed by the paper's own recovery, the pools of
/// section 3.3, and the labels of that replay.
const FROM_POOLS: [(Scheme, &str); 2] =
    [(TAURUS_DATA, "Taurus data, pools"), (TAURUS_COMMAND, "Taurus command, pools")];

pub(super) const RAID_DATA: &str = "Serial RAID-0 data";
pub(super) const RAID_COMMAND: &str = "Serial RAID-0 command";

/// The schemes compared on devices.
pub(super) const SCHEMES: [Scheme; 7] =
    [NONE, SERIAL_DATA, TAURUS_DATA, SILO_R, PLOVER, SERIAL_COMMAND, TAURUS_COMMAND];
/// The paper's schemes under two-phase locking, and the paper's schemes under Silo.
pub(super) const LOCKED: [Scheme; 6] =
    [NONE, SERIAL_DATA, TAURUS_DATA, PLOVER, SERIAL_COMMAND, TAURUS_COMMAND];
pub(super) const OPTIMISTIC: [Scheme; 4] = [NONE, TAURUS_DATA, SILO_R, TAURUS_COMMAND];

pub(super) fn experiments(table: &Table<'_>, slow: &Table<'_>) -> Vec<Experiment> {
    vec![hdd_logging(slow), hdd_recovery(table, slow), nvme_logging(slow), nvme_recovery(slow)]
}

/// A workload under a concurrency control: the same for all compared schemes.
pub(super) fn of(table: &Table<'_>, workload: &str, scheme: Scheme, control: &str) -> Command {
    let command = match workload {
        "YCSB" => table.ycsb(),
        "Payment" => table.payment(),
        _ => table.new_order(),
    };
    let command = command.under(control).with(DEEP);
    // The papers log whole rows. YCSB sets all columns in any case.
    let data = scheme.options.ends_with("data") && workload != "YCSB";
    if data { command.with("--whole-rows") } else { command }
}

/// A workload's runs: a group of panels.
pub(super) struct Figure {
    pub group: &'static str,
    pub workload: &'static str,
    pub control: &'static str,
    pub schemes: &'static [Scheme],
    /// Whether serial logging on RAID-0 is among the schemes.
    pub raid: bool,
    pub bandwidths: Vec<f64>,
    /// The paper's ratios: (of, over, ratio).
    pub logging: Vec<Ratio>,
    pub recovery: Vec<Ratio>,
}

/// All schemes of a figure on a machine's devices. Runs are recovered, so the logging and recovery
/// figures share the runs.
pub(super) fn runs(
    table: &Table<'_>,
    machine: &Machine,
    streams_each: u32,
    figures: &[Figure],
) -> Vec<Run> {
    let mut out = Vec::new();
    for figure in figures {
        for times in &figure.bandwidths {
            let device = table.device(machine, *times);
            let base = |scheme| of(table, figure.workload, scheme, figure.control);
            // The logging and the recovery of a group need the same runs.
            let claimed = [&figure.logging[..], &figure.recovery[..]].concat();
            let needed = |label: &str| is_needed(table, &claimed, *times, label);
            for scheme in figure.schemes.iter().filter(|scheme| needed(scheme.label)) {
                let command = base(*scheme).by(*scheme, &device, machine.devices, streams_each);
                let logged = scheme.label != NONE.label;
                let command = if logged { command.small(BUFFER).recovered() } else { command };
                out.push(command.run(figure.group, scheme.label, *times));
            }
            let raid = [(RAID_DATA, SERIAL_DATA), (RAID_COMMAND, SERIAL_COMMAND)];
            for (label, scheme) in
                raid.into_iter().filter(|(label, _)| figure.raid && needed(label))
            {
                let striped = format!("striped:over={device}");
                let command = base(scheme).with(scheme.options).on(&striped, machine.devices);
                let command = command.small(&raid_buffer(machine)).recovered();
                out.push(command.run(figure.group, label, *times));
            }
        }
    }
    out
}

/// The paper's ratios of recovery: claimed of the engine's own replay, and of the paper's pools.
fn of_both_replays(ratios: &[Ratio]) -> Vec<Ratio> {
    let mut out = ratios.to_vec();
    for (scheme, label) in FROM_POOLS {
        let own = ratios.iter().filter(|(series, ..)| *series == scheme.label);
        out.extend(own.map(|(_, over, ratio)| (label, *over, *ratio)));
    }
    out
}

/// The groups of recovery figures with the claimed ratios.
fn recovery_claims(figures: &[Figure]) -> Vec<Claims> {
    let claims = figures.iter();
    claims.map(|figure| (figure.group, of_both_replays(&figure.recovery))).collect()
}

/// The runs that replay from pools what [`runs`] replays otherwise.
fn pool_runs(
    table: &Table<'_>,
    machine: &Machine,
    streams_each: u32,
    figures: &[Figure],
) -> Vec<Run> {
    let mut out = Vec::new();
    for figure in figures {
        let claimed = of_both_replays(&figure.recovery);
        for times in &figure.bandwidths {
            let device = table.device(machine, *times);
            for (scheme, label) in FROM_POOLS {
                if !is_needed(table, &claimed, *times, label) {
                    continue;
                }
                let command = of(table, figure.workload, scheme, figure.control);
                let command = command.by(scheme, &device, machine.devices, streams_each);
                let command = command.small(BUFFER).recovered().with("--recovery pools");
                out.push(command.run(figure.group, label, *times));
            }
        }
    }
    out
}

/// How much faster or slower the pools are than the engine's own replay, at the mark.
fn pools_beside(figures: &[Figure]) -> Vec<Check> {
    let mut out = Vec::new();
    for figure in figures.iter().filter(|figure| !figure.recovery.is_empty()) {
        for (scheme, label) in FROM_POOLS {
            let own = |(series, ..): &Ratio| *series == scheme.label;
            if figure.recovery.iter().any(own) {
                let points = [(label, 1.0), (scheme.label, 1.0)];
                let [point, over] = points;
                out.push(Check::beside_at(figure.group, Metric::ReplayRate, point, over));
            }
        }
    }
    out
}

/// What the pages of recovery say about the two ways to replay.
const BOTH_REPLAYS: &str = "The claims are tested twice: of the engine's own replay, and of the \
                            paper's, from pools (section 3.3, `--recovery pools`), as series of \
                            their own.";

/// Buffers are scaled like the devices, so a slow device writes a full buffer no longer than a real
/// disk.
const BUFFER: &str = "--buffer 512KiB";

/// The buffer of serial logging on a striped set, as large as the buffers of all streams together.
fn raid_buffer(machine: &Machine) -> String {
    format!("--buffer {}KiB", 512 * machine.devices)
}

/// The groups of figures with the claimed ratios.
pub(super) fn claims(figures: &[Figure], ratios: fn(&Figure) -> &Vec<Ratio>) -> Vec<Claims> {
    figures.iter().map(|figure| (figure.group, ratios(figure).clone())).collect()
}

/// The differences of all figures of this file.
pub(super) fn differs(table: &Table<'_>, machine: &Machine) -> Vec<String> {
    let mut out = vec![
        format!("YCSB has {} rows, not 10 or 500 GB", table.rows()),
        format!("TPC-C has {} warehouses, not 80", table.size.warehouses),
        "a command record here is at most half as long as the paper's, so commands need less \
         bandwidth"
            .to_string(),
        "a transaction counts when it is acknowledged as durable, also a read-only one; the \
         paper's counts when its worker has committed it"
            .to_string(),
        "serial logs of data are replayed by all threads here (the last writer of a row wins), \
         the paper's by one"
            .to_string(),
        format!(
            "{} processors of another make, with other work per cycle than the paper's",
            table.here.cores
        ),
    ];
    if *machine == HDD {
        out.push("Silo-R has the same locking as the others, in the paper Silo's".to_string());
    }
    if *machine == NVME {
        out.push("serial logging on RAID-0, and New-Order, are in 2020-nvme-orders".to_string());
    }
    out.extend(throttled(table, machine));
    out
}

fn hdd_figures(table: &Table<'_>) -> Vec<Figure> {
    let figure = |group, bandwidths| Figure {
        group,
        workload: group,
        control: "no-wait",
        schemes: &SCHEMES,
        raid: true,
        bandwidths,
        logging: Vec::new(),
        recovery: Vec::new(),
    };
    let mut out = vec![
        Figure {
            logging: vec![
                ("Taurus data", "Serial data", 7.1),
                ("Taurus command", "Silo-R", 9.2),
                ("Taurus command", "Plover", 9.2),
            ],
            recovery: vec![
                ("Taurus data", "Serial data", 5.5),
                ("Taurus command", "Serial command", 11.3),
                ("Taurus command", "Silo-R", 6.3),
                ("Taurus data", RAID_DATA, 1.7),
            ],
            ..figure("YCSB", table.bandwidths(&[1.0, 8.0, 64.0], &[1.0, 16.0]))
        },
        Figure {
            logging: vec![("Taurus command", "Silo-R", 5.2)],
            recovery: vec![("Taurus command", "Serial command", 7.1)],
            ..figure("Payment", vec![1.0])
        },
    ];
    if table.size.fine {
        out.push(Figure {
            recovery: vec![
                ("Taurus data", "Serial data", 6.7),
                ("Taurus command", "Serial command", 17.5),
                ("Taurus command", "Taurus data", 7.7),
            ],
            ..figure("New-Order", vec![1.0])
        });
    }
    out
}

fn hdd_logging(table: &Table<'_>) -> Experiment {
    let figures = hdd_figures(table);
    let rate = Metric::Throughput;
    let logging = claims(&figures, |figure| &figure.logging);
    let mut all = checks(table, &HDD, &logging, (rate, "section 5.3, figure 9"));
    for (series, over) in
        [("Taurus data", "Silo-R"), ("Taurus data", "Plover"), (RAID_DATA, "Taurus data")]
    {
        let check = Check::same_at("YCSB", rate, (series, 1.0), (over, 1.0));
        let check = check.claimed("section 5.3, figure 9a");
        all.push(at_mark(table, &HDD, check, ("YCSB", rate), [series, over]));
    }
    Experiment {
        id: "2020-hdd-logging",
        paper: Paper::Taurus2020,
        source: "Figure 9, section 5.3",
        title: "Logging on slow devices",
        claim: "On eight hard disks Taurus data logging is 7.1 times as fast as serial data \
                logging on YCSB, and so are serial logging on RAID-0, Silo-R and Plover. Taurus \
                command logging is 9.2 times as fast as Silo-R and Plover on YCSB and 5.2 times \
                as fast as Silo-R on Payment.",
        how: format!(
            "{} Two-phase locking without waiting. Data records hold whole rows, as in the paper. \
             To the right of the mark the devices get faster, until the \
             processors are the bottleneck.",
            table.scaled(&HDD)
        ),
        differs: differs(table, &HDD),
        runs: runs(table, &HDD, 1, &figures),
        panels: panels(&logging, rate),
        checks: all,
        not_measured: None,
    }
}

fn hdd_recovery(table: &Table<'_>, slow: &Table<'_>) -> Experiment {
    let figures = hdd_figures(slow);
    let rate = Metric::ReplayRate;
    let schemes = [SERIAL_DATA, TAURUS_DATA, SILO_R, SERIAL_COMMAND, TAURUS_COMMAND];
    let from_memory = schemes.map(|scheme| in_memory(table, "YCSB", MEMORY, scheme));
    let one = HDD.scaled(&table.here, 1.0) * 1e6;
    let allowed = |scheme, over| Check::allowed(("YCSB", 1.0), MEMORY, scheme, over, one);
    let claimed = recovery_claims(&figures);
    let mut all = checks(slow, &HDD, &claimed, (rate, "section 5.3, figure 10"));
    if table.axes.log_dirs.is_empty() {
        all.extend([
            allowed(("Taurus data", 8), ("Serial data", 1)),
            allowed(("Taurus command", 8), ("Serial command", 1)),
            allowed(("Taurus command", 8), ("Silo-R", 8)),
        ]);
    }
    all.extend(pools_beside(&figures));
    let mut runs = runs(slow, &HDD, 1, &figures);
    runs.extend(from_memory);
    runs.extend(pool_runs(slow, &HDD, 1, &figures));
    Experiment {
        id: "2020-hdd-recovery",
        paper: Paper::Taurus2020,
        source: "Figure 10, section 5.3",
        title: "Recovery from slow devices",
        claim: "From eight hard disks Taurus recovers YCSB 11.3 (command) and 5.5 times (data) as \
                fast as the serial schemes, Payment 7.1 times (command), and New-Order 17.5 \
                (command) and 6.7 times (data), where command is 7.7 times as fast as data. \
                Command logging recovers up to 6.3 times as fast as Silo-R, data logging up to \
                1.7 times as fast as serial data logging on RAID-0.",
        how: format!(
            "The logs of the figure above, read from the same devices. {} {BOTH_REPLAYS} Where the \
             device is not the bottleneck, no scheme can exceed a serial one by more than the \
             number of cores. So beside the claims is what is allowed here: the limit of each \
             scheme is the lower of its replay rate from memory, which our processors set, and \
             bandwidth over bytes per record.",
            slow.scaled(&HDD)
        ),
        differs: differs(slow, &HDD),
        runs,
        panels: panels(&claimed, rate),
        checks: all,
        not_measured: None,
    }
}

fn nvme_figures(table: &Table<'_>) -> Vec<Figure> {
    let bandwidths = table.bandwidths(&[0.125, 1.0], &[1.0]);
    let mut out = vec![
        Figure {
            group: "YCSB, 2PL",
            workload: "YCSB",
            control: "no-wait",
            schemes: &LOCKED,
            raid: false,
            bandwidths: bandwidths.clone(),
            logging: vec![
                ("Taurus data", "Serial data", 9.9),
                ("Taurus command", "Serial command", 2.9),
                ("Taurus command", "Plover", 2.4),
            ],
            recovery: vec![
                ("Taurus data", "Serial data", 22.9),
                ("Taurus command", "Serial command", 42.6),
            ],
        },
        Figure {
            group: "YCSB, OCC",
            workload: "YCSB",
            control: "silo",
            schemes: &OPTIMISTIC,
            raid: false,
            bandwidths,
            logging: vec![("Taurus command", "Silo-R", 2.8)],
            recovery: vec![("Taurus command", "Silo-R", 9.7)],
        },
    ];
    if table.size.fine {
        out.push(Figure {
            group: "Payment, 2PL",
            workload: "Payment",
            control: "no-wait",
            schemes: &LOCKED,
            raid: false,
            bandwidths: vec![1.0],
            logging: Vec::new(),
            recovery: vec![("Taurus command", "Serial command", 75.6)],
        });
        out.push(Figure {
            group: "Payment, OCC",
            workload: "Payment",
            control: "silo",
            schemes: &OPTIMISTIC,
            raid: false,
            bandwidths: vec![1.0],
            logging: Vec::new(),
            recovery: Vec::new(),
        });
    }
    out
}

fn nvme_logging(table: &Table<'_>) -> Experiment {
    let claimed = claims(&nvme_figures(table), |figure| &figure.logging);
    let rate = Metric::Throughput;
    Experiment {
        id: "2020-nvme-logging",
        paper: Paper::Taurus2020,
        source: "Figures 5 and 6, section 5.2",
        title: "Logging on fast devices",
        claim: "On eight NVMe drives Taurus data logging is up to 9.9 times as fast as serial \
                data logging. Taurus command logging is up to 2.9 times as fast as serial command \
                logging, 2.4 times as fast as Plover and 2.8 times as fast as Silo-R. The \
                bottleneck of serial logging is its shared counter, not the drive.",
        how: format!(
            "{} Two streams on each device, as in the paper. The claims about counters that many \
             cores share cannot come out on few cores; see the simulated figures.",
            table.scaled(&NVME)
        ),
        differs: differs(table, &NVME),
        runs: runs(table, &NVME, 2, &nvme_figures(table)),
        panels: panels(&claimed, rate),
        checks: checks(table, &NVME, &claimed, (rate, "abstract; section 5.2")),
        not_measured: None,
    }
}

/// The group of runs with a count of the log records that can be replayed at once.
const CHAINS: &str = "Payment, chains";

fn chains(table: &Table<'_>) -> Run {
    let command = of(table, "Payment", TAURUS_COMMAND, "no-wait").with(TAURUS_COMMAND.options);
    // The runner replaces LOG by a directory, and adds the output of `log stat`.
    let command = command.with("--streams 4 --device memory --log-dir LOG");
    command.run(CHAINS, TAURUS_COMMAND.label, 0.0)
}

/// Why threads replay Payment no faster: the log has few records to be replayed at once.
fn by_chains(view: &View<'_>) -> Option<String> {
    let at_once = view.median(CHAINS, TAURUS_COMMAND.label, 0.0, Metric::Parallelism)?;
    let threads = view.median("Payment, 2PL", TAURUS_COMMAND.label, 1.0, Metric::ReplayThreads)?;
    (at_once < threads).then(|| {
        format!(
            "records wait for each other in chains, so that {} of them can be replayed at once on \
             average, whatever the number of threads",
            short(at_once)
        )
    })
}

fn nvme_recovery(table: &Table<'_>) -> Experiment {
    let figures = nvme_figures(table);
    let rate = Metric::ReplayRate;
    let claimed = recovery_claims(&figures);
    // The abstract names no workload for 22.9 and 75.6.
    let mut all = checks(table, &NVME, &claimed, (rate, "abstract; section 5.2"));
    let mut runs = runs(table, &NVME, 2, &figures);
    runs.extend(pool_runs(table, &NVME, 2, &figures));
    if table.size.fine {
        // The checks of Payment are the last: of both ways to replay.
        let payment = all.split_off(all.len() - 2).into_iter();
        all.extend(payment.map(|check| check.not_by(by_chains).measured_apart()));
        runs.push(chains(table));
    }
    all.extend(pools_beside(&figures));
    Experiment {
        id: "2020-nvme-recovery",
        paper: Paper::Taurus2020,
        source: "Figures 7 and 8, section 5.2, abstract",
        title: "Recovery from fast devices",
        claim: "Taurus recovers up to 22.9 (data) and 75.6 times (command) as fast as the serial \
                schemes (abstract; the text supports 42.6 on YCSB), and with commands up to 9.7 \
                times as fast as Silo-R.",
        how: format!(
            "{} In the paper a serial scheme replays on one thread and Taurus on 80. Here Taurus \
             has a thread for each core, so that higher factors need a device that is the \
             bottleneck. {BOTH_REPLAYS}",
            table.scaled(&NVME)
        ),
        differs: differs(table, &NVME),
        runs,
        panels: panels(&claimed, rate),
        checks: all,
        not_measured: None,
    }
}
