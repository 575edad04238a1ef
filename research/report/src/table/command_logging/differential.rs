//! Physiological records of changed columns, against records of whole rows.

use super::*;

const GROUP: &str = "TPC-C";
const DIFFERENTIAL: &str = "Changed columns";
const WHOLE: &str = "Whole rows";

/// A figure of changed columns over the figure of whole rows, without a number in the paper.
fn beside(metric: Metric) -> Check {
    Check::new(move |view| {
        let ratio = view.ratio(GROUP, metric, (DIFFERENTIAL, 0.0), (WHOLE, 0.0))?;
        let text = format!(
            "{GROUP}, {}: with changed columns {} times that with whole rows",
            metric.label(),
            with_interval(&ratio)
        );
        Some(Finding { text, level: Level::Undecided })
    })
    .resting_on(Basis::Context)
}

pub(super) fn experiment(table: &Table<'_>) -> Experiment {
    let runs = [(DIFFERENTIAL, ""), (WHOLE, "--whole-rows")].map(|(series, option)| {
        let command = partitioned_tpcc(table).by(PHYSIOLOGICAL, "memory", 1, 1);
        let command = replayed(logged(command, PHYSIOLOGICAL), PHYSIOLOGICAL);
        command.with(option).run(GROUP, series, 0.0)
    });
    let (rate, size, replay) = (Metric::Throughput, Metric::BytesPerRecord, Metric::ReplayRate);
    let bars = |title: &str, metric, paper| Panel {
        group: GROUP,
        title: title.to_string(),
        metric,
        shape: Shape::Bars { log: false, paper },
    };
    Experiment {
        id: "command-differential",
        paper: Paper::CommandLogging,
        source: "section IV-B, differential logging",
        title: "Physiological records of changed columns",
        claim: "Records that hold the changed columns alone, before and after, in place of whole \
                rows, are nearly 5 times smaller on TPC-C, at the cost of processor time.",
        how: "Physiological logging, one stream in shared memory; all five transactions. Inserts \
              have whole rows in both. Replay by one thread. The paper has no figures of the cost \
              and of replay: ours are shown, without a claim."
            .to_string(),
        differs: vec![
            "after-images alone, as in the paper's best figures".to_string(),
            NO_SITES.to_string(),
            format!("{} workers on {} warehouses", table.here.cores, table.size.warehouses),
        ],
        runs: runs.into(),
        panels: vec![
            bars("(a) Bytes", size, vec![(WHOLE, DIFFERENTIAL, 5.0)]),
            bars("(b) Throughput", rate, Vec::new()),
            bars("(c) Replay", replay, Vec::new()),
        ],
        checks: vec![
            Check::times(GROUP, size, WHOLE, DIFFERENTIAL, 5.0)
                .claimed("section IV-B")
                .measured_apart(),
            beside(rate),
            beside(replay),
        ],
        not_measured: None,
    }
}
