//! The commands to run, and the order.

use crate::data::{Data, View};
use crate::experiment::Experiment;
use std::collections::BTreeSet;

/// The rounds of a simulation: results differ little by seed.
pub const SEEDS: usize = 2;
/// The rounds of a run for no judged check, shown by a figure beside other runs.
pub const SHOWN: usize = 3;

/// A command to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The first experiment with the command.
    pub experiment: &'static str,
    /// The words after `hyades-lab`.
    pub words: Vec<String>,
    /// The number of the round, from 0.
    pub round: usize,
    /// Estimated duration in seconds.
    pub cost: f64,
}

impl Step {
    /// The words after `hyades-lab` for the run. A simulation gives the same result with the same
    /// seed, so each round has its own seed, from 1 on.
    pub fn arguments(&self) -> Vec<String> {
        let mut words = self.words.clone();
        if words[0] == "simulate" {
            words.extend(["--seed".to_string(), (self.round + 1).to_string()]);
        }
        words
    }
}

/// The commands of the runs read by judged checks.
pub fn judged(experiments: &[Experiment]) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for experiment in experiments {
        for check in experiment.checks.iter().filter(|check| check.is_judged()) {
            let data = Data::trial();
            check.look(&View { experiment, data: &data });
            out.extend(data.asked());
        }
    }
    out
}

/// Every distinct command, once in each of `rounds` rounds. Commands for no judged check run in the
/// first [`SHOWN`] rounds only, and simulations in the first [`SEEDS`] rounds. A round runs the
/// experiments in order, every second round backwards, so a changing machine favours no run. A
/// command of an earlier experiment is not run again.
pub fn plan(experiments: &[Experiment], rounds: usize) -> Vec<Step> {
    let judged = judged(experiments);
    let mut known = BTreeSet::new();
    let mut once = Vec::new();
    for experiment in experiments {
        let fresh = experiment.runs.iter().filter(|run| known.insert(run.words.clone()));
        once.extend(fresh.map(|run| (experiment.id, run)));
    }
    let mut steps = Vec::new();
    for round in 0..rounds.max(1) {
        let again = |words: &[String]| match words[0].as_str() {
            "simulate" => round < SEEDS,
            _ => round < SHOWN || judged.contains(&words.join(" ")),
        };
        let mut own: Vec<Step> = once
            .iter()
            .filter(|(_, run)| again(&run.words))
            .map(|(experiment, run)| Step {
                experiment,
                words: run.words.clone(),
                round,
                cost: run.cost,
            })
            .collect();
        if round % 2 == 1 {
            own.reverse();
        }
        steps.extend(own);
    }
    steps
}

/// Estimated duration of the steps in seconds.
pub fn cost(steps: &[Step]) -> f64 {
    steps.iter().map(|step| step.cost).sum()
}
