//! Taurus 2020, sections 5.2 to 5.4: hard disks, NVMe drives, memory.

use super::*;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check};
use crate::scale::{HDD, Load, Machine, NVME};

const WORKLOADS: [(&str, Load); 3] =
    [("YCSB", Load::Ycsb), ("Payment", Load::Payment), ("New-Order", Load::NewOrder)];

const RAID_DATA: &str = "Serial RAID-0 data";
const RAID_COMMAND: &str = "Serial RAID-0 command";

/// The schemes that are compared on devices.
const SCHEMES: [Scheme; 7] =
    [NONE, SERIAL_DATA, TAURUS_DATA, SILO_R, PLOVER, SERIAL_COMMAND, TAURUS_COMMAND];

pub(super) fn experiments(table: &Table<'_>, slow: &Table<'_>) -> Vec<Experiment> {
    let mut out = vec![hdd_logging(slow), hdd_recovery(table, slow)];
    out.extend([nvme_logging(slow), nvme_recovery(slow), memory(table)]);
    out
}

fn of(table: &Table<'_>, workload: &str) -> Command {
    match workload {
        "YCSB" => table.ycsb(),
        "Payment" => table.payment(),
        _ => table.new_order(),
    }
    .with(DEEP)
}

/// A scaled device of a paper, in memory so that the disk of this machine has no influence.
fn device(table: &Table<'_>, machine: &Machine, load: Load) -> String {
    format!("{},over=memory", machine.device(table.rates, load))
}

/// Buffers are scaled like the devices, so that a slow device writes a full one no longer than a
/// real disk.
const BUFFER: &str = "--buffer 512KiB";

/// The buffer of serial logging on a striped set, as large as those of all streams together.
fn raid_buffer(machine: &Machine) -> String {
    format!("--buffer {}KiB", 512 * machine.devices)
}

/// The papers log whole rows. YCSB sets all columns in any case.
fn as_logged(command: Command, scheme: Scheme, group: &str) -> Command {
    let data = scheme.options.ends_with("data") && group != "YCSB";
    if data { command.with("--whole-rows") } else { command }
}

/// All schemes on a machine's devices. Runs are recovered, so that the logging and recovery figures
/// share them.
fn runs(table: &Table<'_>, machine: &Machine, streams_each: u32, some: &[&str]) -> Vec<Run> {
    let mut out = Vec::new();
    for (group, load) in WORKLOADS.into_iter().filter(|(name, _)| some.contains(name)) {
        let device = device(table, machine, load);
        for scheme in SCHEMES {
            let command = of(table, group).by(scheme, &device, machine.devices, streams_each);
            let logged = scheme.label != NONE.label;
            let command = as_logged(command, scheme, group);
            let set = format!("{BUFFER} {SEGMENT}");
            let command = if logged { command.with(&set).recovered() } else { command };
            out.push(command.run(group, scheme.label, 0.0));
        }
        for (label, record) in [(RAID_DATA, "data"), (RAID_COMMAND, "command")] {
            let set = format!(
                "--protocol serial --record {record} --device striped:over={device} --devices {} \
                 {} {SEGMENT}",
                machine.devices,
                raid_buffer(machine)
            );
            let scheme = if record == "data" { SERIAL_DATA } else { SERIAL_COMMAND };
            let command = as_logged(of(table, group).with(&set), scheme, group);
            out.push(command.recovered().run(group, label, 0.0));
        }
    }
    out
}

type Ratio = (&'static str, &'static str, f64);
type Group = (&'static str, Vec<Ratio>);

fn panels(groups: &[Group], metric: Metric) -> Vec<Panel> {
    let letters = ["(a)", "(b)", "(c)"];
    groups
        .iter()
        .zip(letters)
        .map(|((group, paper), letter)| Panel {
            group,
            title: format!("{letter} {group}"),
            metric,
            shape: Shape::Bars { log: false, paper: paper.clone() },
        })
        .collect()
}

fn times(groups: &[Group], metric: Metric, basis: fn(&Ratio) -> Basis) -> Vec<Check> {
    let each = |group: &'static str, ratios: &[Ratio]| -> Vec<Check> {
        let check = |claimed: &Ratio| {
            let (of, over, ratio) = *claimed;
            Check::times(group, metric, of, over, ratio).resting_on(basis(claimed))
        };
        ratios.iter().map(check).collect()
    };
    groups.iter().flat_map(|(group, ratios)| each(group, ratios)).collect()
}

fn scaled(table: &Table<'_>, machine: &Machine) -> String {
    let [ycsb, payment, new_order] = WORKLOADS.map(|(_, load)| machine.scaled(table.rates, load));
    format!(
        "The paper has {}. Here {} throttled devices in memory have {ycsb} MB/s for YCSB, \
         {payment} MB/s for Payment and {new_order} MB/s for New-Order: scaled by our rate of \
         Taurus command logging to memory over the rate that the paper's figures imply, so that \
         the devices are the bottleneck at the same fraction of what the processors can do. Two \
         workers. Data records hold whole rows, as in the paper, not only the changed columns \
         that we log otherwise. Our command records are at most half as long as the paper's, so \
         that commands can gain more here where a device is the bottleneck.",
        machine.name, machine.devices
    )
}

fn hdd_logging(table: &Table<'_>) -> Experiment {
    let groups = vec![
        (
            "YCSB",
            vec![
                ("Taurus data", "Serial data", 7.1),
                ("Taurus command", "Silo-R", 9.2),
                ("Taurus command", "Plover", 9.2),
            ],
        ),
        ("Payment", vec![("Taurus command", "Silo-R", 5.2)]),
        ("New-Order", vec![("Taurus command", "Taurus data", 7.7)]),
    ];
    let groups = present(groups, hdd_workloads(table));
    let mut checks = times(&groups, Metric::Throughput, |(_, over, _)| match *over {
        "Serial data" => Basis::Throttle,
        _ => Basis::Calibrated,
    });
    checks.push(Check::same("YCSB", Metric::Throughput, "Taurus data", "Silo-R"));
    checks.push(Check::same("YCSB", Metric::Throughput, "Taurus data", "Plover"));
    checks.push(Check::same("YCSB", Metric::Throughput, RAID_DATA, "Taurus data"));
    Experiment {
        id: "2020-hdd-logging",
        paper: Paper::Taurus2020,
        source: "Figure 9, section 5.3",
        title: "Logging on slow devices",
        claim: "On eight hard disks Taurus data logging is 7.1 times as fast as serial data \
                logging on YCSB, and so are serial logging on RAID-0, Silo-R and Plover. Taurus \
                command logging is 9.2 times as fast as Silo-R and Plover on YCSB and 5.2 times \
                as fast as Silo-R on Payment.",
        how: scaled(table, &HDD),
        runs: runs(table, &HDD, 1, hdd_workloads(table)),
        panels: panels(&groups, Metric::Throughput),
        checks,
        not_measured: None,
    }
}

fn hdd_recovery(table: &Table<'_>, slow: &Table<'_>) -> Experiment {
    let groups = vec![
        (
            "YCSB",
            vec![
                ("Taurus data", "Serial data", 5.5),
                ("Taurus command", "Serial command", 11.3),
                ("Taurus command", "Silo-R", 6.3),
                ("Taurus data", RAID_DATA, 1.7),
            ],
        ),
        ("Payment", vec![("Taurus command", "Serial command", 7.1)]),
        (
            "New-Order",
            vec![
                ("Taurus data", "Serial data", 6.7),
                ("Taurus command", "Serial command", 17.5),
                ("Taurus command", "Taurus data", 7.7),
            ],
        ),
    ];
    let groups = present(groups, hdd_workloads(table));
    let schemes = [SERIAL_DATA, TAURUS_DATA, SILO_R, SERIAL_COMMAND, TAURUS_COMMAND];
    let from_memory = schemes.map(|scheme| in_memory(table, "YCSB", MEMORY, scheme));
    let one = HDD.scaled(table.rates, Load::Ycsb) * 1e6;
    let allowed = |of, over| Check::allowed("YCSB", MEMORY, of, over, one);
    let mut checks = times(&groups, Metric::ReplayRate, |claimed| match *claimed {
        ("Taurus data", "Serial data", _) => Basis::Throttle,
        _ => Basis::Tested,
    });
    checks.extend([
        allowed(("Taurus data", 8), ("Serial data", 1)),
        allowed(("Taurus command", 8), ("Serial command", 1)),
        allowed(("Taurus command", 8), ("Silo-R", 8)),
    ]);
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
            "The logs of the figure above, read from the same devices. {} Here serial data is \
             replayed on all threads (the last writer of a row wins), and commands run on two \
             cores, not on 56: where the device is not the bottleneck, no scheme can be more than \
             twice as fast as a serial one. So the checks also compare with the ratios that are \
             possible here. The limit of each scheme is the lower of its replay rate from memory, \
             which our processors set, and bandwidth over bytes per record.",
            scaled(slow, &HDD)
        ),
        runs: runs(slow, &HDD, 1, hdd_workloads(table)).into_iter().chain(from_memory).collect(),
        panels: panels(&groups, Metric::ReplayRate),
        checks,
        not_measured: None,
    }
}

fn nvme_workloads(table: &Table<'_>) -> &'static [&'static str] {
    if table.size.fine { &["YCSB", "Payment"] } else { &["YCSB"] }
}

fn hdd_workloads(table: &Table<'_>) -> &'static [&'static str] {
    if table.size.fine { &["YCSB", "Payment", "New-Order"] } else { &["YCSB", "Payment"] }
}

/// The groups that have runs. Quick reports leave some out.
fn present(groups: Vec<Group>, some: &[&str]) -> Vec<Group> {
    groups.into_iter().filter(|(name, _)| some.contains(name)).collect()
}

fn nvme_logging(table: &Table<'_>) -> Experiment {
    let groups = vec![
        (
            "YCSB",
            vec![
                ("Taurus data", "Serial data", 9.9),
                ("Taurus command", "Serial command", 2.9),
                ("Taurus command", "Plover", 2.4),
                ("Taurus command", "Silo-R", 2.8),
            ],
        ),
        ("Payment", vec![("Taurus command", "Silo-R", 2.8)]),
    ];
    let groups = present(groups, nvme_workloads(table));
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
            "{} Two streams on each device, as in the paper. Claims about counters that many \
             cores share cannot be tested on two cores; see the simulated figures.",
            scaled(table, &NVME)
        ),
        runs: runs(table, &NVME, 2, nvme_workloads(table)),
        panels: panels(&groups, Metric::Throughput),
        checks: times(&groups, Metric::Throughput, |_| Basis::Tested),
        not_measured: None,
    }
}

fn nvme_recovery(table: &Table<'_>) -> Experiment {
    let groups = vec![
        (
            "YCSB",
            vec![
                ("Taurus data", "Serial data", 22.9),
                ("Taurus command", "Serial command", 75.6),
                ("Taurus command", "Silo-R", 9.7),
            ],
        ),
        ("Payment", vec![("Taurus command", "Serial command", 42.6)]),
    ];
    let groups = present(groups, nvme_workloads(table));
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
             has two, so that factors above two need a device that is the bottleneck.",
            scaled(table, &NVME)
        ),
        runs: runs(table, &NVME, 2, nvme_workloads(table)),
        panels: panels(&groups, Metric::ReplayRate),
        checks: times(&groups, Metric::ReplayRate, |_| Basis::Tested),
        not_measured: None,
    }
}

/// The group of runs with the log in memory, which has no panel.
const MEMORY: &str = "YCSB in memory";

fn in_memory(table: &Table<'_>, workload: &str, group: &'static str, scheme: Scheme) -> Run {
    let command = of(table, workload).by(scheme, "memory", 1, 4);
    let logged = scheme.label != NONE.label;
    let command = if logged { command.recovered() } else { command };
    command.run(group, scheme.label, 0.0)
}

fn memory(table: &Table<'_>) -> Experiment {
    let mut runs = Vec::new();
    for (group, _) in WORKLOADS.into_iter().filter(|(g, _)| table.size.fine || *g != "Payment") {
        for scheme in SCHEMES {
            runs.push(in_memory(table, group, group, scheme));
        }
    }
    let bars = |group, title: &str, metric| Panel {
        group,
        title: title.to_string(),
        metric,
        shape: Shape::Bars { log: false, paper: Vec::new() },
    };
    let near_one = |group: &'static str, metric, of: &'static str, over: &'static str| {
        Check::same(group, metric, of, over)
    };
    Experiment {
        id: "2020-memory",
        paper: Paper::Taurus2020,
        source: "Figure 11, section 5.4",
        title: "Enough bandwidth: the log in memory",
        claim: "On a RAM disk the advantage of command logging is greatly reduced. All parallel \
                schemes scale in recovery, and Silo-R is slightly ahead of Taurus data logging, \
                because it resolves no dependencies.",
        how: "The log in shared memory, four streams, two workers. Only processor costs remain."
            .to_string(),
        runs,
        panels: vec![
            bars("YCSB", "(a) YCSB", Metric::Throughput),
            bars("New-Order", "(b) New-Order", Metric::Throughput),
            bars("YCSB", "(c) YCSB, recovery", Metric::ReplayRate),
            bars("New-Order", "(d) New-Order, recovery", Metric::ReplayRate),
        ],
        checks: vec![
            near_one("YCSB", Metric::Throughput, "Taurus command", "Taurus data"),
            near_one("New-Order", Metric::Throughput, "Taurus command", "Taurus data"),
            near_one("YCSB", Metric::Throughput, "Taurus data", "Silo-R"),
            near_one("YCSB", Metric::ReplayRate, "Taurus data", "Silo-R"),
        ],
        not_measured: None,
    }
}
