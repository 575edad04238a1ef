//! Where the time of a transaction goes, by the number of accesses: figure 15 of Taurus 2020.

use super::*;
use crate::chart::Stack;
use crate::experiment::{Panel, Shape};

/// The group of the runs.
const LENGTHS: &str = "By accesses";
const READS: &str = "reads";
const WRITES: &str = "writes";
const SERIAL: &str = "serial data";
const ONE: &str = "Taurus data, one stream";
const FOUR: &str = "Taurus data, four streams";

/// A single worker with a core of its own; the log is in memory.
pub(super) fn runs(table: &Table<'_>) -> Vec<Run> {
    let mut out = Vec::new();
    for accesses in table.steps(&[2.0, 20.0, 200.0, 2_000.0], &[2.0, 200.0]) {
        let base = |share: u32| {
            // Fewer transactions in flight if transactions are long, so the engine's tables fit.
            let in_flight = (16_384.0 / accesses).max(64.0) as u64;
            let options = format!(
                "--theta 0 --accesses {accesses} --write-share {share} --in-flight {in_flight}"
            );
            table.ycsb_with(&options).under("no-wait").fixed("--workers", "1").with(PROCESSOR)
        };
        let mut run = |command: Command, series: &str| {
            out.push(command.run(LENGTHS, series, accesses));
        };
        run(base(0).with(NONE.options), READS);
        run(base(1).with(NONE.options), WRITES);
        run(base(1).by(SERIAL_DATA, "memory", 1, 1), SERIAL);
        run(base(1).by(TAURUS_DATA, "memory", 1, 1), ONE);
        run(base(1).by(TAURUS_DATA, "memory", 1, 4), FOUR);
    }
    out
}

/// The parts as shares of the whole, as in the paper.
pub(super) fn panel() -> Panel {
    Panel {
        group: LENGTHS,
        title: "(b) Taurus data logging, by accesses".to_string(),
        metric: Metric::WorkerTime,
        shape: Shape::Parts {
            stacks,
            names: &[
                "driver and begin",
                "index and read",
                "lock and install",
                "record and buffer",
                "tracking",
                "vectors to 4 streams",
            ],
            y: "share of worker time (%)",
        },
    }
}

fn stacks(view: &View<'_>, group: &'static str) -> Vec<Stack> {
    let time = |series: &str, x: f64| worker_time(view, group, series, x);
    let points: Vec<f64> =
        view.runs(group).filter(|run| run.series == READS).map(|run| run.x).collect();
    // The time independent of the number of accesses, from the two shortest transactions.
    let begin = || -> Option<f64> {
        let [short, long, ..] = points[..] else { return None };
        let (few, many) = (time(READS, short)?, time(READS, long)?);
        Some((few - short * (many - few) / (long - short)).max(0.0))
    };
    let Some(begin) = begin() else { return Vec::new() };
    let stack = |x: f64| -> Option<Stack> {
        let (reads, writes) = (time(READS, x)?, time(WRITES, x)?);
        let (serial, one, four) = (time(SERIAL, x)?, time(ONE, x)?, time(FOUR, x)?);
        let parts =
            [begin, reads - begin, writes - reads, serial - writes, one - serial, four - one];
        let parts = parts.map(|part| part.max(0.0));
        let all: f64 = parts.iter().sum();
        let label = format!("{x} accesses");
        Some(Stack { label, parts: parts.iter().map(|part| 100.0 * part / all).collect() })
    };
    points.iter().filter_map(|x| stack(*x)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Data, Outcome};
    use crate::scale::Setup;
    use serde_json::json;

    /// Each part is the additional time of a run over the run before, as a share of the whole.
    #[test]
    fn parts_are_differences_of_runs() {
        let setup = Setup::typical(Size::FULL);
        let runs = runs(&Table::of(&setup));
        let experiment = Experiment::example(runs);
        let mut data = Data::default();
        for run in &experiment.runs {
            // 10 to begin, and for each access: 1 to read, and 1 for each further part.
            let each = match run.series.as_str() {
                READS => 1.0,
                WRITES => 2.0,
                SERIAL => 3.0,
                ONE => 4.0,
                // A negative difference counts as zero.
                _ => 3.5,
            };
            let time = json!({ "worker_cpu_us": 10.0 + each * run.x });
            data.add(&run.words, Outcome::Done(time));
        }
        let view = View { experiment: &experiment, data: &data };
        let stacks = stacks(&view, LENGTHS);
        let labels: Vec<&str> = stacks.iter().map(|stack| stack.label.as_str()).collect();
        assert_eq!(labels, ["2 accesses", "20 accesses", "200 accesses", "2000 accesses"]);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let first = &stacks[0].parts;
        assert!(close(first[0], 100.0 * 10.0 / 18.0), "{first:?}");
        assert!(first[1..5].iter().all(|part| close(*part, 100.0 * 2.0 / 18.0)), "{first:?}");
        assert_eq!(first[5], 0.0);
        assert!(stacks.iter().all(|stack| close(stack.parts.iter().sum(), 100.0)));
    }
}
