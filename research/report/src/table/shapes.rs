//! The cost of a slow stream and of idle streams: shapes that hold on any machine, without a figure
//! in a paper.

use super::setup::*;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::Check;

const SCHEMES: [Scheme; 6] = [TAURUS_DATA, TAURUS_COMMAND, POPLAR, GSN, PLOVER, SILO_R];

pub(super) fn experiments(table: &Table<'_>) -> Vec<Experiment> {
    vec![slow_stream(table), idle_streams(table)]
}

const DEVICE: &str = "throttled:bandwidth=100MB/s,latency=1ms,depth=1,over=memory";

fn ycsb(table: &Table<'_>) -> Command {
    table.ycsb_with("--theta 0 --accesses 2 --write-share 0.5 --in-flight 8192").emulated()
}

fn lines(group: &'static str, x: &'static str) -> Vec<Panel> {
    let panel = |title: &str, metric| Panel {
        group,
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x, log_x: true, log_y: true },
    };
    vec![panel("(a) Median", Metric::LatencyP50), panel("(b) 99th percentile", Metric::LatencyP99)]
}

fn differs() -> Vec<String> {
    vec![
        "no paper has this figure; the limits are ours".to_string(),
        "Plover waits for the marks of all streams, by our rule, which is stricter than its own: \
         the marks of the partitions that the transaction touched"
            .to_string(),
        "Poplar writes columns, which counts as a read: no transaction is blind".to_string(),
    ]
}

fn slow_stream(table: &Table<'_>) -> Experiment {
    const GROUP: &str = "One slow device";
    let steps = table.steps(&[1.0, 5.0, 20.0], &[1.0, 20.0]);
    // A load at which no device is the bottleneck.
    let offered = (table.rates.ycsb * 0.02 / 1e3).round().clamp(1.0, 20.0) * 1e3;
    let mut runs = Vec::new();
    for scheme in SCHEMES {
        for slow in &steps {
            let command = ycsb(table).with(&format!("--rate {offered}"));
            let command = command.by(scheme, DEVICE, 4, 1);
            let command = match *slow {
                1.0 => command,
                ms => {
                    let last = DEVICE.replace("latency=1ms", &format!("latency={ms}ms"));
                    command.with(&format!("--last-device {last}"))
                }
            };
            runs.push(command.run(GROUP, scheme.label, *slow));
        }
    }
    Experiment {
        id: "shape-slow-stream",
        paper: Paper::Shapes,
        source: "Taurus 2020, sections 2 and 3; Poplar, section 4",
        title: "One device is slow",
        claim: "With LSN vectors a transaction waits for its own stream and for the streams that \
                it depends on; a slow stream does not delay other transactions. An epoch, or the \
                lowest sequence number over all streams, waits for the slowest stream.",
        how: format!(
            "Four streams, each on a device whose writes take 1 ms; those of the last device take \
             as long as the axis says. The offered load is {offered} transactions per second, \
             with two accesses to uniformly chosen rows, half of them writes. Under every scheme \
             a session moves to the stream with the least to do. Expected latencies: with vectors \
             at most 1.3 times that without a slow device, with the others at least half of the \
             slow write (with epochs, which are long already, at least 1.3 times)."
        ),
        differs: differs(),
        runs,
        panels: lines(GROUP, "a write to the slow device (ms)"),
        checks: vec![
            Check::waits(GROUP, "Taurus data", (1.0, 20.0), 1.3, true),
            Check::waits(GROUP, "Taurus command", (1.0, 20.0), 1.3, true),
            Check::waits(GROUP, "Poplar", (1.0, 20.0), 4.0, false),
            Check::waits(GROUP, "GSN (NVM-D)", (1.0, 20.0), 4.0, false),
            Check::waits(GROUP, "Plover", (1.0, 20.0), 4.0, false),
            Check::waits(GROUP, "Silo-R", (1.0, 20.0), 1.3, false),
        ],
        not_measured: None,
    }
}

fn idle_streams(table: &Table<'_>) -> Experiment {
    const GROUP: &str = "Idle streams";
    let steps = [1.0, 8.0];
    // The first four are judged.
    let schemes = if table.size.fine { &SCHEMES[..] } else { &SCHEMES[..4] };
    let mut runs = Vec::new();
    for scheme in schemes.iter().copied() {
        for streams in &steps {
            let command = ycsb(table).fixed("--workers", "1").with("--rate 2000");
            let command = command.by(scheme, DEVICE, *streams as u32, 1);
            runs.push(command.run(GROUP, scheme.label, *streams));
        }
    }
    Experiment {
        id: "shape-idle-streams",
        paper: Paper::Shapes,
        source: "Taurus 2020, section 3; Poplar, section 4",
        title: "Streams without writes",
        claim: "With LSN vectors an idle stream costs nothing. Where the lowest number over all \
                streams decides, each idle stream has to write durably that it is idle before a \
                transaction is acknowledged.",
        how: "One worker and 2,000 transactions per second, so that most streams are idle at any \
              time. Each stream is on a device of its own whose writes take 1 ms. Our streams \
              write such a statement as soon as a transaction waits for it, so it costs a write, \
              not a timeout. Expected latencies: with vectors at most 1.3 times that with one \
              stream, with the others at least 1.3 times. Epochs end by the clock, so Silo-R is \
              not judged."
            .to_string(),
        differs: differs(),
        runs,
        panels: lines(GROUP, "streams"),
        checks: vec![
            Check::waits(GROUP, "Taurus data", (1.0, 8.0), 1.3, true),
            Check::waits(GROUP, "Taurus command", (1.0, 8.0), 1.3, true),
            Check::waits(GROUP, "Poplar", (1.0, 8.0), 1.3, false),
            Check::waits(GROUP, "GSN (NVM-D)", (1.0, 8.0), 1.3, false),
        ],
        not_measured: None,
    }
}
