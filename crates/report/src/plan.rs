//! Which commands are run, and in which order.

use crate::experiment::Experiment;
use std::collections::BTreeSet;

/// A command to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The experiment that asked first.
    pub experiment: &'static str,
    /// The words after `hyades`.
    pub words: Vec<String>,
    /// Which repetition of it.
    pub repeat: usize,
    /// About how many seconds it takes.
    pub cost: f64,
}

/// Every distinct command, so often. Experiments follow each other; within one, all its commands run
/// once before any runs again, so that those whose ratio matters alternate. A command that an
/// earlier experiment had is not run again.
pub fn plan(experiments: &[Experiment], repeats: usize) -> Vec<Step> {
    let mut known = BTreeSet::new();
    let mut steps = Vec::new();
    for experiment in experiments {
        let fresh: Vec<_> =
            experiment.runs.iter().filter(|run| known.insert(run.words.clone())).collect();
        for repeat in 0..repeats.max(1) {
            // A model gives the same again.
            let again = |words: &[String]| repeat == 0 || words[0] != "simulate";
            steps.extend(fresh.iter().filter(|run| again(&run.words)).map(|run| Step {
                experiment: experiment.id,
                words: run.words.clone(),
                repeat,
                cost: run.cost,
            }));
        }
    }
    steps
}

/// About how many seconds the rest takes.
pub fn cost(steps: &[Step]) -> f64 {
    steps.iter().map(|step| step.cost).sum()
}
