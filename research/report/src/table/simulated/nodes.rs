//! Nodes with replicas of partitions, simulated: figure 10 of the paper on command logging.

use super::*;
use crate::judge::TOLERANCE;
use crate::judge::of_band;

const GROUP: &str = "New-Order";
const COMMAND: &str = "On arrival";
const PHYSIOLOGICAL: &str = "Physiological";

const SCHEMES: [Modelled; 3] = [
    ("No logging", "none"),
    (COMMAND, "arrival --record command"),
    (PHYSIOLOGICAL, "physiological --record data"),
];

/// The paper's cluster: three nodes with twelve sites each, every partition on all of them.
const CLUSTER: &str = "--nodes 3 --sites 12 --replicas 3 --round-trip 100us --flush-interval 5ms";

fn run((label, protocol): Modelled, share: f64) -> Run {
    let words = format!(
        "simulate --calibration {CALIBRATION} --protocol {protocol} {CLUSTER} --multi-partition {}",
        share / 100.0
    );
    Run {
        group: GROUP,
        series: label.to_string(),
        x: share,
        words: words.split_whitespace().map(str::to_string).collect(),
        cost: 0.05,
    }
}

/// Command logging is `paper` times as fast as physiological logging at a share; with 1 as fast.
fn ratio_at(share: f64, paper: f64) -> Check {
    let metric = Metric::Throughput;
    Check::new(move |view| {
        let ratio = view.ratio(GROUP, metric, (COMMAND, share), (PHYSIOLOGICAL, share))?;
        Some(Finding {
            text: format!(
                "Simulated, {GROUP} at {share} %: logging on arrival is {} physiological logging \
                 (paper: {paper})",
                with_seeds(&ratio)
            ),
            level: match paper == 1.0 {
                true => of_band(&ratio, 1.0 / TOLERANCE, TOLERANCE),
                false => of_factor(&ratio, paper),
            },
        })
    })
}

pub(super) fn experiment(table: &Table<'_>) -> Experiment {
    let shares = table.steps(&[0.0, 1.0, 5.0, 10.0, 50.0, 100.0], &[0.0, 5.0, 10.0, 100.0]);
    let runs =
        SCHEMES.iter().flat_map(|scheme| shares.iter().map(|share| run(*scheme, *share))).collect();
    let panel = Panel {
        group: GROUP,
        title: "New-Order on three nodes".to_string(),
        metric: Metric::Throughput,
        shape: Shape::Lines { x: "share that span partitions (%)", log_x: false, log_y: true },
    };
    Experiment {
        id: "simulated-nodes",
        paper: Paper::Simulation,
        source: "Command logging, figure 10, section V-C",
        title: "Several nodes, replicas",
        claim: "On three nodes, each partition on all of them, command logging has almost twice \
                the throughput of physiological logging, 1.2 times with 5 % of New-Orders that \
                span partitions, and the same beyond 10 %.",
        how: "Simulated: the engine runs on one node. Three nodes of twelve sites, three replicas \
              of each partition; a transaction takes the time that a New-Order takes one worker \
              of this machine under each kind of log (calibration.json). What spans partitions \
              occupies all replicas of two partitions until it has ended, with two rounds of \
              messages of 100 us. Each round has a seed of its own."
            .to_string(),
        differs: vec![
            "the paper does not say how long a message takes: 100 us there and back are assumed"
                .to_string(),
            "initiators, and the order that they agree on, cost nothing, and messages no processor \
             time"
                .to_string(),
            "a New-Order that spans partitions accesses two, as often one as another, and takes \
             as long as one that does not, besides its messages"
                .to_string(),
            "replicas log what their own site runs; the log of a node is written every 5 ms and is \
             never the bottleneck"
                .to_string(),
            "sites share no memory bandwidth or caches".to_string(),
        ],
        runs,
        panels: vec![panel],
        checks: vec![
            ratio_at(0.0, 2.0),
            ratio_at(5.0, 1.2),
            ratio_at(10.0, 1.0),
            ratio_at(100.0, 1.0),
        ],
        not_measured: None,
    }
}
