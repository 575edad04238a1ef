//! Deuteronomy (CIDR 2015), continued: the cost of single mechanisms. For most mechanisms the paper
//! has a sentence and no figure.

use super::deuteronomy::{MEMORY, bars, component, differs, within};
use super::setup::*;
use crate::checks::with_interval;
use crate::experiment::Paper;
use crate::judge::{Check, Finding, of_band};

pub(super) fn experiments(table: &Table<'_>) -> Vec<Experiment> {
    vec![
        reader_records(table),
        reservation(table),
        checkpoints(table),
        update_logging(table),
        writes_only(table),
        epochs(),
    ]
}

fn reader_records(table: &Table<'_>) -> Experiment {
    const GROUP: &str = "Records of readers";
    const CHOICES: [(&str, &str); 3] =
        [("Never", ""), ("If needed", "if-needed"), ("Always", "always")];
    let run = |(series, word): (&str, &str)| {
        let option =
            if word.is_empty() { String::new() } else { format!(" --reader-records {word}") };
        component(table, u64::MAX, &format!("{MEMORY}{option}")).run(GROUP, series, 0.0)
    };
    let rate = (GROUP, Metric::Throughput);
    let bytes = (GROUP, Metric::BytesPerTransaction);
    Experiment {
        id: "deuteronomy-readers",
        paper: Paper::Deuteronomy,
        source: "Section 2.3.1",
        title: "Commit records of transactions that only read",
        claim: "Commit records of all transactions that only read add to the log, and to its \
                buffers. In the common case all that such a transaction has read is stable \
                already, and none is needed.",
        how: "We write none: a transaction that has read what is not durable waits until it is. \
              The other two ways are options. Expected: without them at least the throughput, and \
              fewer bytes."
            .to_string(),
        differs: differs(table, &["the paper has no figure for this; the limits are ours"]),
        runs: CHOICES.map(run).to_vec(),
        panels: vec![
            bars(GROUP, "(a) Throughput", Metric::Throughput),
            bars(GROUP, "(b) Log", Metric::BytesPerTransaction),
            bars(GROUP, "(c) Median latency", Metric::LatencyP50),
        ],
        checks: vec![
            within(rate, "Never", "Always", (1.0, f64::INFINITY), "expected: at least 1"),
            within(rate, "Never", "If needed", (0.95, f64::INFINITY), "expected: at least 0.95"),
            within(bytes, "Never", "Always", (0.0, 0.95), "expected: at most 0.95"),
        ],
        not_measured: None,
    }
}

fn reservation(table: &Table<'_>) -> Experiment {
    const GROUP: &str = "Reserving places in the log";
    let run = |series: &str, more: &str| {
        let options = format!("{MEMORY} --streams 1 --write-share 1{more}");
        component(table, u64::MAX, &options).run(GROUP, series, 0.0)
    };
    Experiment {
        id: "deuteronomy-reservation",
        paper: Paper::Deuteronomy,
        source: "Section 5.1",
        title: "Atomic addition and compare-and-swap",
        claim: "Reserving space in a buffer by an atomic addition, which always succeeds, improves \
                performance and scalability over compare-and-swap, of which concurrent ones fail.",
        how: "Only writes, to one stream, so that all workers reserve at one place. Expected: at \
              least 0.98 times the throughput with compare-and-swap."
            .to_string(),
        differs: differs(table, &["two threads meet at that place far less often than 32"]),
        runs: vec![run("Addition", ""), run("Compare-and-swap", " --reserve exchange")],
        panels: vec![bars(GROUP, "Throughput", Metric::Throughput)],
        checks: vec![within(
            (GROUP, Metric::Throughput),
            "Addition",
            "Compare-and-swap",
            (0.98, f64::INFINITY),
            "expected: at least 0.98",
        )],
        not_measured: None,
    }
}

fn checkpoints(table: &Table<'_>) -> Experiment {
    const ALL: &str = "Only writes";
    const FEW: &str = "16 % writes";
    const OFTEN: &str = "A checkpoint every 8 MiB of log";
    const NONE: &str = "None";
    let run = |group, writes: &str, redo: &str, series: &str| {
        let options = format!("--dc redb{writes} --redo {redo}");
        component(table, u64::MAX, &options).run(group, series, 0.0)
    };
    let both = |group, writes: &str| {
        [run(group, writes, "8MiB", OFTEN), run(group, writes, "1024GiB", NONE)]
    };
    let (all, few) = (both(ALL, " --write-share 1"), both(FEW, ""));
    let check = |group, expected| {
        let ratio = (group, Metric::Throughput);
        within(ratio, OFTEN, NONE, (0.9, f64::INFINITY), expected).claimed("section 6.6")
    };
    Experiment {
        id: "deuteronomy-checkpoints",
        paper: Paper::Deuteronomy,
        source: "Section 6.6",
        title: "Checkpoints of the data component",
        claim: "A checkpoint makes stable what was applied to the data component, so that the log \
                can be truncated. It has no significant effect, except that throughput falls by 8 \
                % where all operations write.",
        how: "Over redb, whose checkpoint is a durable commit. Expected: at least 0.9 times the \
              throughput without checkpoints."
            .to_string(),
        differs: differs(
            table,
            &[
                "the data component is redb, not a Bw-tree, in shared memory",
                "checkpoints by bytes of log, far more often than every 45 seconds",
            ],
        ),
        runs: all.into_iter().chain(few).collect(),
        panels: vec![
            bars(ALL, "(a) Only writes", Metric::Throughput),
            bars(FEW, "(b) 16 % writes", Metric::Throughput),
        ],
        checks: vec![
            check(ALL, "paper: 0.92; expected: at least 0.9"),
            check(FEW, "paper: no difference; expected: at least 0.9"),
        ],
        not_measured: None,
    }
}

fn update_logging(table: &Table<'_>) -> Experiment {
    const GROUP: &str = "When updates are logged";
    let run = |series: &str, more: &str| {
        component(table, u64::MAX, &format!("{MEMORY}{more}")).run(GROUP, series, 0.0)
    };
    let rate = (GROUP, Metric::Throughput);
    let bytes = (GROUP, Metric::BytesPerTransaction);
    Experiment {
        id: "deuteronomy-at-once",
        paper: Paper::Deuteronomy,
        source: "Sections 3.2 and 4.3.1",
        title: "A record for each update, or one for each transaction",
        claim: "Each update is logged at once, and the transaction's commit record at its end. \
                No other transaction may see an update before that, so one record at the end says \
                as much.",
        how: "One record at the end is our default, a record at once the paper's way. Expected: \
              one record has at least the throughput, and fewer bytes."
            .to_string(),
        differs: differs(table, &["the paper has no figure for this; the limits are ours"]),
        runs: vec![run("At commit", ""), run("At once", " --log-updates at-once")],
        panels: vec![
            bars(GROUP, "(a) Throughput", Metric::Throughput),
            bars(GROUP, "(b) Log", Metric::BytesPerTransaction),
        ],
        checks: vec![
            within(rate, "At commit", "At once", (1.0, f64::INFINITY), "expected: at least 1"),
            within(bytes, "At commit", "At once", (0.0, 1.0), "expected: at most 1"),
        ],
        not_measured: None,
    }
}

fn writes_only(table: &Table<'_>) -> Experiment {
    const GROUP: &str = "Only writes";
    const DEVICE: &str = "A device of 100 MB/s";
    /// Of `DEVICE`, in MB/s.
    const BANDWIDTH: f64 = 100.0;
    let throttled = "--device throttled:bandwidth=100MB/s,over=memory";
    let command = table.small_ycsb_with(u64::MAX, "--engine deuteronomy").without_control();
    let command = command.with(throttled).with(MEMORY).with("--write-share 1");
    let reaches = Check::new(|view| {
        let rate = view.at(GROUP, DEVICE, 0.0, Metric::DeviceRate)?;
        let text = format!(
            "the log is written with {} MB/s, of {BANDWIDTH} (paper: 0.89 of the device's \
             bandwidth; expected: at least 0.85)",
            with_interval(&rate)
        );
        Some(Finding { text, level: of_band(&rate, 0.85 * BANDWIDTH, f64::INFINITY) })
    })
    .claimed("section 6.3");
    Experiment {
        id: "deuteronomy-writes",
        paper: Paper::Deuteronomy,
        source: "Section 6.3",
        title: "Only writes, and the bandwidth of the log's device",
        claim: "Where all operations write, the device of the log is the bottleneck, and is used \
                at 89 % of its bandwidth.",
        how: "The data component is in memory, and all streams share a device that is throttled."
            .to_string(),
        differs: vec![
            "the device is simulated: a file in shared memory, throttled to 100 MB/s".to_string(),
        ],
        runs: vec![command.run(GROUP, DEVICE, 0.0)],
        panels: vec![
            bars(GROUP, "(a) Written to the device", Metric::DeviceRate),
            bars(GROUP, "(b) Throughput", Metric::Throughput),
        ],
        checks: vec![reaches],
        not_measured: None,
    }
}

fn epochs() -> Experiment {
    Experiment {
        id: "deuteronomy-epochs",
        paper: Paper::Deuteronomy,
        source: "Section 5.2",
        title: "Epochs",
        claim: "Epoch protection, by which memory is reclaimed that others may still look at, is a \
                tiny fraction of the cost of each operation.",
        how: String::new(),
        differs: Vec::new(),
        runs: Vec::new(),
        panels: Vec::new(),
        checks: Vec::new(),
        not_measured: Some(
            "Our versions are counted by references, under the latch of their bucket. There are no \
             epochs in this component whose cost could be measured.",
        ),
    }
}
