//! The rounds of a report: first all runs, then those of claims that are undecided.

use super::is_wrong;
use crate::runner::Runner;
use hyades_cli::failure::Failure;
use hyades_cli::progress::Bar;
use hyades_cli::units;
use hyades_report::data::{Data, Outcome};
use hyades_report::experiment::Experiment;
use hyades_report::plan::{self, Further, JUDGED, Step};
use hyades_report::scale::Size;
use std::time::Instant;

/// Stores the data so far.
pub(super) type Keep<'k> = &'k dyn Fn(&Data) -> Result<(), Failure>;

/// The runs of a report under way.
pub(super) struct Running<'r> {
    runner: &'r Runner,
    experiments: &'r [Experiment],
    size: Size,
    began: Instant,
    data: Data,
    ran: usize,
    /// Measured and expected seconds of the runs so far.
    took: f64,
    expected: f64,
}

impl<'r> Running<'r> {
    /// `began`: from when on the time counts.
    pub fn new(
        runner: &'r Runner,
        experiments: &'r [Experiment],
        size: Size,
        began: Instant,
    ) -> Running<'r> {
        let (took, expected) = (0.0, 0.0);
        Running { runner, experiments, size, began, data: Data::default(), ran: 0, took, expected }
    }

    /// Runs all rounds, until the time is over or no claim that counts is undecided. `keep` is
    /// given the data so far at the end of each round but the last.
    ///
    /// # Errors
    /// Those of `keep`.
    pub fn run(mut self, keep: Keep<'_>) -> Result<Data, Failure> {
        self.first_rounds(keep)?;
        self.further_rounds(keep)?;
        Ok(self.data)
    }

    /// Duration of runs over their estimate.
    fn pace(&self) -> f64 {
        if self.expected > 0.0 { self.took / self.expected } else { 1.0 }
    }

    /// The time left, in seconds.
    fn left(&self) -> f64 {
        (self.size.budget - self.began.elapsed().as_secs_f64()).max(0.0)
    }

    fn has_time_for(&self, step: &Step) -> bool {
        step.cost * self.pace() <= self.left()
    }

    /// Runs the first round, and the next ones while there is time.
    fn first_rounds(&mut self, keep: Keep<'_>) -> Result<(), Failure> {
        let steps: &[Step] = &plan::plan(self.experiments, self.size.rounds.min(JUDGED));
        let bar = Bar::new("experiments", steps.len() as u64);
        for (at, step) in steps.iter().enumerate() {
            if at > 0 && step.round != steps[at - 1].round {
                keep(&self.data)?;
            }
            let left = (plan::cost(&steps[at..]) * self.pace()).min(self.left());
            bar.say(format!("{} left, {}", units::time(left), step.experiment));
            if step.round > 0 && !self.has_time_for(step) {
                break;
            }
            self.step(step, &bar);
            bar.set(self.ran as u64);
        }
        let skipped = match steps.len() - self.ran {
            0 => String::new(),
            n => format!(", {n} repetitions skipped for lack of time"),
        };
        let took = units::time(self.began.elapsed().as_secs_f64());
        bar.finish(&format!("{} runs in {took}{skipped}", self.ran));
        Ok(())
    }

    /// Repeats the runs of undecided claims.
    fn further_rounds(&mut self, keep: Keep<'_>) -> Result<(), Failure> {
        let mut further = Further::new(self.experiments);
        let bar = Bar::new("undecided claims", 0);
        let (before, mut planned) = (self.ran, 0);
        for round in JUDGED..self.size.rounds {
            keep(&self.data)?;
            let steps = further.round(&self.data, round, self.left() / self.pace());
            planned += steps.len();
            bar.set_total(planned as u64);
            for step in &steps {
                if !self.has_time_for(step) {
                    break;
                }
                let left = units::time(self.left());
                bar.say(format!("at most {left} left, round {}, {}", round + 1, step.experiment));
                self.step(step, &bar);
                bar.set((self.ran - before) as u64);
            }
            if steps.is_empty() || !steps.iter().all(|step| self.has_time_for(step)) {
                break;
            }
        }
        match self.ran - before {
            0 => bar.clear(),
            runs => bar.finish(&format!("{runs} further runs of undecided claims")),
        }
        Ok(())
    }

    /// Runs a command of a round.
    fn step(&mut self, step: &Step, bar: &Bar) {
        let start = Instant::now();
        let outcome = self.runner.run(&step.arguments());
        if matches!(outcome, Outcome::Done(_)) {
            self.took += start.elapsed().as_secs_f64();
            self.expected += step.cost;
        }
        if is_wrong(&outcome) {
            let why = match &outcome {
                Outcome::Failed(why) => why,
                other => other.trouble().unwrap_or_default(),
            };
            bar.note(&format!("failed: hyades-lab {}: {why}", step.words.join(" ")));
        }
        self.data.add_in_round(&step.words, step.round, outcome);
        self.ran += 1;
    }
}
