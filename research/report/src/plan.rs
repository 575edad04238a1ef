//! The commands to run, and the order.

use crate::data::{Data, View};
use crate::experiment::Experiment;
use crate::judge::{Basis, Check, Level};
use std::collections::{BTreeMap, BTreeSet};

/// The rounds of a simulation: results differ little by seed.
pub const SEEDS: usize = 2;
/// The rounds of a run for no judged check, shown by a figure beside other runs.
pub const SHOWN: usize = 3;
/// The rounds of every run for a judged check: intervals are by ranks from this number on. Further
/// rounds are for undecided claims ([`Further`]).
pub const JUDGED: usize = 5;

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
            out.extend(read_by(experiment, check));
        }
    }
    out
}

/// The commands of the runs that a check reads.
fn read_by(experiment: &Experiment, check: &Check) -> BTreeSet<String> {
    let data = Data::trial();
    check.look(&View { experiment, data: &data });
    data.asked()
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

/// The rounds beyond [`JUDGED`]: a measurement goes on while a claim of a paper that it decides is
/// undecided, and its share of the time is not over. Experiments that need further rounds have
/// equal shares; what an experiment does not need is divided among the others.
pub struct Further<'e> {
    experiments: &'e [Experiment],
    /// For each experiment, the commands of each check.
    read: Vec<Vec<BTreeSet<String>>>,
    /// Seconds of the further rounds of each experiment so far, as estimated.
    spent: Vec<f64>,
    /// The words and the cost of each command.
    known: BTreeMap<String, (Vec<String>, f64)>,
}

impl<'e> Further<'e> {
    /// No further round yet.
    pub fn new(experiments: &'e [Experiment]) -> Further<'e> {
        let commands = |experiment: &Experiment| -> Vec<BTreeSet<String>> {
            experiment.checks.iter().map(|check| read_by(experiment, check)).collect()
        };
        let runs = experiments.iter().flat_map(|experiment| &experiment.runs);
        let known = runs.map(|run| (run.words.join(" "), (run.words.clone(), run.cost)));
        Further {
            experiments,
            read: experiments.iter().map(commands).collect(),
            spent: vec![0.0; experiments.len()],
            known: known.collect(),
        }
    }

    /// The commands of a further round: those of undecided claims, of the experiments whose share
    /// of the time allows them. `left` is the time left, in seconds as estimated. Empty if all
    /// claims are decided, or the time is over.
    pub fn round(&mut self, data: &Data, round: usize, left: f64) -> Vec<Step> {
        let needed: Vec<BTreeSet<&String>> =
            (0..self.experiments.len()).map(|at| self.undecided(at, data)).collect();
        let cost = |commands: &BTreeSet<&String>| -> f64 {
            commands.iter().filter_map(|command| Some(self.known.get(*command)?.1)).sum()
        };
        let open: Vec<usize> = (0..needed.len()).filter(|at| !needed[*at].is_empty()).collect();
        let so_far: f64 = open.iter().map(|at| self.spent[*at]).sum();
        let share = (so_far + left) / open.len().max(1) as f64;
        let mut steps: Vec<Step> = Vec::new();
        let (mut added, mut chosen) = (Vec::new(), BTreeSet::new());
        let mut time = left;
        for at in open {
            let own = cost(&needed[at]);
            if self.spent[at] + own > share || own > time {
                continue;
            }
            added.push((at, own));
            let fresh: Vec<&String> =
                needed[at].iter().copied().filter(|command| chosen.insert(*command)).collect();
            for command in fresh {
                let Some((words, cost)) = self.known.get(command) else { continue };
                time -= cost;
                let experiment = self.experiments[at].id;
                steps.push(Step { experiment, words: words.clone(), round, cost: *cost });
            }
        }
        added.into_iter().for_each(|(at, own)| self.spent[at] += own);
        if round % 2 == 1 {
            steps.reverse();
        }
        steps
    }

    /// The commands of an experiment's claims that count and are undecided. Simulations have their
    /// own number of rounds.
    fn undecided(&self, at: usize, data: &Data) -> BTreeSet<&String> {
        let experiment = &self.experiments[at];
        let view = View { experiment, data };
        let is_open = |check: &Check| {
            let finding = check.look(&view);
            let counts = check.basis(&view, finding.as_ref()) == Basis::Tested;
            counts && finding.is_some_and(|finding| finding.level == Level::Undecided)
        };
        let checks = experiment.checks.iter().zip(&self.read[at]);
        let open = checks.filter(|(check, _)| is_open(check)).flat_map(|(_, read)| read);
        open.filter(|command| !command.starts_with("simulate")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Outcome;
    use crate::experiment::Run;
    use crate::judge::{Finding, of_factor};
    use crate::metric::Metric;
    use serde_json::json;

    /// An experiment with a claim: the first series is twice the second.
    fn claim(
        id: &'static str,
        series: [&'static str; 2],
        place: Option<&'static str>,
    ) -> Experiment {
        let run = |series: &str| Run {
            group: "g",
            series: series.to_string(),
            x: 0.0,
            words: vec!["bench".to_string(), series.to_string()],
            cost: 10.0,
        };
        let check = Check::new(move |view| {
            let points = series.map(|series| (series, 0.0));
            let ratio = view.ratio("g", Metric::Throughput, points[0], points[1])?;
            let text = format!("{id} (paper: 2)");
            Some(Finding { text, level: of_factor(&ratio, 2.0) })
        });
        let check = place.map_or_else(|| Check::new(|_| None), |place| check.claimed(place));
        Experiment { id, checks: vec![check], ..Experiment::example(series.map(run).into()) }
    }

    /// Five rounds, in which each series has these rates in turn.
    fn data(rates: &[(&str, [f64; 2])]) -> Data {
        let mut data = Data::default();
        for round in 0..JUDGED {
            for (series, rates) in rates {
                let done = json!({ "acknowledged_per_s": rates[round % 2] });
                data.add(&["bench".to_string(), series.to_string()], Outcome::Done(done));
            }
        }
        data
    }

    fn commands(steps: &[Step]) -> Vec<String> {
        steps.iter().map(|step| step.words[1].clone()).collect()
    }

    #[test]
    fn only_undecided_claims_go_on() {
        let place = Some("table 1");
        let experiments = [
            claim("decided", ["a", "b"], place),
            claim("open", ["c", "b"], place),
            claim("no claim", ["d", "e"], None),
        ];
        let one = [1.0, 1.0];
        let mut seen = data(&[
            ("a", [2.0, 2.0]),
            ("b", one),
            ("c", [1.2, 2.2]),
            ("d", [9.0, 1.0]),
            ("e", one),
        ]);
        let mut further = Further::new(&experiments);
        let steps = further.round(&seen, JUDGED, 1e3);
        assert_eq!(commands(&steps), ["c", "b"], "every other round backwards");
        assert!(steps.iter().all(|step| step.round == JUDGED));
        // Decided after further rounds: no round is left.
        for round in JUDGED..JUDGED + 8 {
            for (series, rate) in [("b", 1.0), ("c", 2.0)] {
                let done = Outcome::Done(json!({ "acknowledged_per_s": rate }));
                seen.add_in_round(&["bench".to_string(), series.to_string()], round, done);
            }
        }
        assert!(further.round(&seen, JUDGED + 8, 1e3).is_empty());
    }

    /// The time left is divided: an experiment with long rounds has fewer.
    #[test]
    fn each_undecided_measurement_has_its_share_of_the_time() {
        let place = Some("table 1");
        let mut experiments = [claim("long", ["a", "b"], place), claim("short", ["c", "d"], place)];
        experiments[0].runs.iter_mut().for_each(|run| run.cost = 100.0);
        let open = [1.2, 2.2];
        let seen = data(&[("a", open), ("b", [1.0; 2]), ("c", open), ("d", [1.0; 2])]);
        let mut further = Further::new(&experiments);
        let mut left = 1_000.0;
        let mut rounds = BTreeMap::from([("long", 0), ("short", 0)]);
        for round in JUDGED..100 {
            let steps = further.round(&seen, round, left);
            if steps.is_empty() {
                break;
            }
            left -= cost(&steps);
            assert!(left >= 0.0, "no more than there is");
            for step in steps.iter().filter(|step| ["a", "c"].contains(&step.words[1].as_str())) {
                *rounds.get_mut(step.experiment).unwrap() += 1;
            }
        }
        // Of 1,000 seconds 500 each: two rounds of 200, and 25 of 20.
        assert_eq!(rounds, BTreeMap::from([("long", 2), ("short", 25)]));
        assert!(further.round(&seen, 100, 5.0).is_empty(), "no time");
    }
}
