//! Which commands are run, and in which order.

use crate::experiment::Experiment;
use std::collections::BTreeSet;

/// A command to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The first experiment that has it.
    pub experiment: &'static str,
    /// The words after `hyades`.
    pub words: Vec<String>,
    /// The number of the repetition, from 0.
    pub repeat: usize,
    /// Estimated duration in seconds.
    pub cost: f64,
}

/// Every distinct command, `repeats` times. Experiments follow each other. Within one, all commands
/// run once before any runs again, so that commands whose ratio matters alternate. A command of an
/// earlier experiment is not run again.
pub fn plan(experiments: &[Experiment], repeats: usize) -> Vec<Step> {
    let mut known = BTreeSet::new();
    let mut steps = Vec::new();
    for experiment in experiments {
        let fresh: Vec<_> =
            experiment.runs.iter().filter(|run| known.insert(run.words.clone())).collect();
        for repeat in 0..repeats.max(1) {
            // A simulation gives the same result each time.
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

/// Estimated duration of these steps in seconds.
pub fn cost(steps: &[Step]) -> f64 {
    steps.iter().map(|step| step.cost).sum()
}
