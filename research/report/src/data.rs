//! The results of the runs.

use crate::chart::Spread;
use crate::experiment::{Experiment, Run};
use crate::metric::Metric;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// How a run ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The run printed this JSON.
    Done(Value),
    /// This build does not have a requested option; the error message.
    Unavailable(String),
    /// The run failed; the error message.
    Failed(String),
    /// The command was not run in this round.
    Skipped,
}

impl Outcome {
    /// The printed JSON, unless a check of the run does not hold.
    pub fn value(&self) -> Option<&Value> {
        match self {
            Outcome::Done(value) if broken(value).is_none() => Some(value),
            _ => None,
        }
    }

    /// Why there are no figures; none if there are.
    pub fn trouble(&self) -> Option<&str> {
        match self {
            Outcome::Done(value) => broken(value),
            Outcome::Unavailable(_) => Some("not available in this build"),
            Outcome::Failed(_) => Some("failed"),
            Outcome::Skipped => Some("not run"),
        }
    }
}

fn broken(value: &Value) -> Option<&'static str> {
    let is_false = |path| value.pointer(path) == Some(&Value::Bool(false));
    if is_false("/recovery/state_matches") {
        Some("wrong: the recovered state differs")
    } else if is_false("/consistent") {
        Some("wrong: the workload's conditions are violated")
    } else if is_false("/replicated/state_matches") {
        Some("wrong: a standby's state differs from the primary's")
    } else {
        None
    }
}

/// The outcomes of all runs, by command.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Data {
    /// The command after `hyades-lab`, and how each repetition ended.
    pub outcomes: BTreeMap<String, Vec<Outcome>>,
    /// In a trial, the commands asked for, each with the metric's label, empty if a check reads the
    /// run itself.
    #[serde(skip)]
    asked: Option<RefCell<BTreeSet<(String, &'static str)>>>,
}

impl Data {
    /// A trial: nothing was run, each figure is a positive number that depends on the command
    /// alone, and [`Data::asked`] has the commands with figures asked for.
    pub fn trial() -> Data {
        Data { outcomes: BTreeMap::new(), asked: Some(RefCell::default()) }
    }

    /// The commands with figures asked for in a trial; empty if the data is no trial.
    pub fn asked(&self) -> BTreeSet<String> {
        self.metrics_asked().into_iter().map(|(command, _)| command).collect()
    }

    /// As [`Data::asked`], each with the label of the metric asked for; empty for the run itself.
    pub fn metrics_asked(&self) -> BTreeSet<(String, &'static str)> {
        self.asked.as_ref().map(|asked| asked.borrow().clone()).unwrap_or_default()
    }

    /// The figure of a command in a trial; none if the data is no trial.
    fn assumed(&self, words: &[String], metric: Option<Metric>) -> Option<f64> {
        let asked = self.asked.as_ref()?;
        let command = words.join(" ");
        let sum: u32 = command.bytes().map(u32::from).sum();
        asked.borrow_mut().insert((command, metric.map_or("", Metric::label)));
        Some(1.0 + f64::from(sum % 997) / 997.0)
    }

    /// Adds an outcome.
    pub fn add(&mut self, words: &[String], outcome: Outcome) {
        self.outcomes.entry(words.join(" ")).or_default().push(outcome);
    }

    /// Adds the outcome of a round, numbered from 0. Rounds without the command are skipped, so
    /// that ratios compare runs of the same round.
    pub fn add_in_round(&mut self, words: &[String], round: usize, outcome: Outcome) {
        let outcomes = self.outcomes.entry(words.join(" ")).or_default();
        if outcomes.len() < round {
            outcomes.resize(round, Outcome::Skipped);
        }
        outcomes.push(outcome);
    }

    /// A report's outcomes of the experiments' runs, to judge the experiments anew. A run counts if
    /// the report has the same `command` for the run: a changed experiment has no figures for the
    /// changed runs.
    ///
    /// # Errors
    /// The JSON is not a report's.
    pub fn of_report(
        report: &Value,
        experiments: &[Experiment],
        command: impl Fn(&Run) -> String,
    ) -> Result<Data, String> {
        let list = |from: &Value, key: &str| match from.get(key).and_then(Value::as_array) {
            Some(values) => Ok(values.clone()),
            None => Err(format!("it has no {key:?}")),
        };
        let reported = list(report, "experiments")?;
        let mut data = Data::default();
        for experiment in experiments {
            let is_same = |one: &&Value| one["id"] == experiment.id;
            let Some(found) = reported.iter().find(is_same) else { continue };
            for run in list(found, "runs")? {
                let is_same = |known: &&Run| {
                    run["group"] == known.group
                        && run["series"] == known.series.as_str()
                        && run["x"] == known.x
                        && run["command"] == command(known)
                };
                let Some(known) = experiment.runs.iter().find(is_same) else { continue };
                let outcomes = serde_json::from_value(run["outcomes"].clone())
                    .map_err(|error| format!("the outcomes of {}: {error}", run["command"]))?;
                data.outcomes.entry(known.words.join(" ")).or_insert(outcomes);
            }
        }
        Ok(data)
    }

    /// The outcomes of a command's repetitions.
    pub fn of(&self, words: &[String]) -> &[Outcome] {
        let _ = self.assumed(words, None);
        self.outcomes.get(&words.join(" ")).map_or(&[], Vec::as_slice)
    }
}

/// The data of an experiment.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// All data.
    pub data: &'a Data,
}

impl<'a> View<'a> {
    /// The runs of a group.
    pub fn runs(&self, group: &str) -> impl Iterator<Item = &'a Run> + use<'a> {
        let group = group.to_string();
        self.experiment.runs.iter().filter(move |run| run.group == group)
    }

    /// The series of a group, in the table's order.
    pub fn series(&self, group: &str) -> Vec<&'a str> {
        let mut out: Vec<&str> = Vec::new();
        for run in self.runs(group) {
            if !out.contains(&run.series.as_str()) {
                out.push(&run.series);
            }
        }
        out
    }

    /// The figures of a run.
    pub fn spread(&self, run: &Run, metric: Metric) -> Option<Spread> {
        if let Some(figure) = self.data.assumed(&run.words, Some(metric)) {
            return Some(Spread::one(figure));
        }
        let outcomes = self.data.of(&run.words);
        Spread::of(outcomes.iter().filter_map(|o| metric.of(o.value()?)).collect())
    }

    /// The figures of a run, by round: none where a round gave no figure.
    fn rounds(&self, group: &str, (series, x): (&str, f64), metric: Metric) -> Vec<Option<f64>> {
        let run = self.runs(group).find(|run| run.series == series && run.x == x);
        if let Some(figure) = run.and_then(|run| self.data.assumed(&run.words, Some(metric))) {
            return vec![Some(figure)];
        }
        let outcomes = run.map_or(&[][..], |run| self.data.of(&run.words));
        outcomes.iter().map(|o| metric.of(o.value()?)).collect()
    }

    /// The ratio of two series, each at a position. The runs of the same round are compared,
    /// because a machine that slows down for minutes slows both. Something over nothing is
    /// infinite; nothing over nothing is no ratio.
    pub fn ratio(
        &self,
        group: &str,
        metric: Metric,
        point: (&str, f64),
        over: (&str, f64),
    ) -> Option<Spread> {
        let (figures, over) = (self.rounds(group, point, metric), self.rounds(group, over, metric));
        Spread::of(
            figures
                .into_iter()
                .zip(over)
                .filter_map(|(figure, over)| Some(figure? / over?))
                .collect(),
        )
    }

    /// The difference of two series, by rounds as [`View::ratio`].
    pub fn difference(
        &self,
        group: &str,
        metric: Metric,
        point: (&str, f64),
        less: (&str, f64),
    ) -> Option<Spread> {
        let (figures, less) = (self.rounds(group, point, metric), self.rounds(group, less, metric));
        Spread::of(
            figures
                .into_iter()
                .zip(less)
                .filter_map(|(figure, less)| Some(figure? - less?))
                .collect(),
        )
    }

    /// A function's values over several series, by rounds as [`View::ratio`].
    pub fn by_rounds<const N: usize>(
        &self,
        group: &str,
        metric: Metric,
        points: [(&str, f64); N],
        make: impl Fn([f64; N]) -> f64,
    ) -> Option<Spread> {
        let all = points.map(|series| self.rounds(group, series, metric));
        let count = all.iter().map(Vec::len).min().unwrap_or(0);
        let round = |at: usize| {
            let figures = all.each_ref().map(|series| series[at]);
            figures
                .iter()
                .all(Option::is_some)
                .then(|| make(figures.map(Option::unwrap_or_default)))
        };
        Spread::of((0..count).filter_map(round).collect())
    }

    /// The figures of a series at `x`.
    pub fn at(&self, group: &str, series: &str, x: f64, metric: Metric) -> Option<Spread> {
        let run = self.runs(group).find(|run| run.series == series && run.x == x)?;
        self.spread(run, metric)
    }

    /// Why a run has no figures.
    pub fn trouble(&self, run: &Run) -> Option<String> {
        let outcomes = self.data.of(&run.words);
        if outcomes.is_empty() {
            return Some("not run".to_string());
        }
        if outcomes.iter().any(|outcome| outcome.value().is_some()) {
            return None;
        }
        outcomes.first().and_then(Outcome::trouble).map(str::to_string)
    }

    /// The points of a series.
    pub fn points(&self, group: &str, series: &str, metric: Metric) -> Vec<(f64, Spread)> {
        self.runs(group)
            .filter(|run| run.series == series)
            .filter_map(|run| Some((run.x, self.spread(run, metric)?)))
            .collect()
    }

    /// The median of a series at `x`.
    pub fn median(&self, group: &str, series: &str, x: f64, metric: Metric) -> Option<f64> {
        self.at(group, series, x, metric).map(|spread| spread.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_of_a_wrong_recovery_do_not_count() {
        let wrong = Outcome::Done(json!({"recovery": {"state_matches": false}}));
        assert!(wrong.value().is_none());
        assert!(wrong.trouble().unwrap().contains("differs"));
        let apart = json!({"replicated": {"state_matches": false}, "consistent": true});
        let apart = Outcome::Done(apart);
        assert!(apart.value().is_none() && apart.trouble().unwrap().contains("standby"));
        let alone = json!({"replicated": {"state_matches": null}});
        assert!(Outcome::Done(alone).value().is_some());
        let right = Outcome::Done(json!({"recovery": {"state_matches": null}, "consistent": true}));
        assert!(right.value().is_some() && right.trouble().is_none());
        assert!(Outcome::Failed(String::new()).value().is_none());
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let run = |series: &str| Run {
            group: "g",
            series: series.to_string(),
            x: 0.0,
            words: vec![series.to_string()],
            cost: 0.0,
        };
        let experiment = Experiment::example(vec![run("a"), run("b")]);
        let mut data = Data::default();
        // The machine is three times as fast in the second round; the third failed for `b`.
        for (a, b) in [(2.0, 1.0), (6.0, 3.0), (1.0, f64::NAN)] {
            let done = |rate: f64| Outcome::Done(json!({"acknowledged_per_s": rate}));
            data.add(&["a".to_string()], done(a));
            data.add(&["b".to_string()], done(b));
        }
        let view = View { experiment: &experiment, data: &data };
        let ratio = view.ratio("g", Metric::Throughput, ("a", 0.0), ("b", 0.0)).unwrap();
        assert_eq!(ratio, Spread { count: 2, ..Spread::one(2.0) });
        let both = [("a", 0.0), ("b", 0.0)];
        let same = view.by_rounds("g", Metric::Throughput, both, |[a, b]| (a - b) / b).unwrap();
        assert_eq!(same, Spread { count: 2, ..Spread::one(1.0) });
        let missing = [("a", 0.0), ("b", 0.0), ("c", 0.0)];
        assert_eq!(view.by_rounds("g", Metric::Throughput, missing, |[a, ..]| a), None);
    }

    /// Scans that never end beside scans that do: the strongest result of all once vanished.
    #[test]
    fn something_over_nothing_is_a_result() {
        let run = |series: &str| Run {
            group: "g",
            series: series.to_string(),
            x: 0.0,
            words: vec![series.to_string()],
            cost: 0.0,
        };
        let experiment = Experiment::example(vec![run("a"), run("b"), run("none")]);
        let mut data = Data::default();
        for (series, rate) in [("a", 5.0), ("b", 0.0), ("none", 0.0)] {
            let done = json!({ "scans": { "rows_per_s": rate } });
            (0..3).for_each(|_| data.add(&[series.to_string()], Outcome::Done(done.clone())));
        }
        let view = View { experiment: &experiment, data: &data };
        let ratio = |a, b| view.ratio("g", Metric::ScanRate, (a, 0.0), (b, 0.0));
        let over_nothing = ratio("a", "b").unwrap();
        assert_eq!((over_nothing.low, over_nothing.count), (f64::INFINITY, 3));
        let nothing = ratio("b", "a").unwrap();
        assert_eq!((nothing.low, nothing.high, nothing.count), (0.0, 0.0, 3));
        assert_eq!(ratio("none", "b"), None, "nothing over nothing is no ratio");
    }

    /// A command that was not run for some rounds is compared with others of its own round.
    #[test]
    fn rounds_without_a_command_are_skipped() {
        let run = |series: &str| Run {
            group: "g",
            series: series.to_string(),
            x: 0.0,
            words: vec![series.to_string()],
            cost: 0.0,
        };
        let experiment = Experiment::example(vec![run("a"), run("b")]);
        let mut data = Data::default();
        let done = |rate: f64| Outcome::Done(json!({ "acknowledged_per_s": rate }));
        for (round, rate) in [(0, 2.0), (1, 20.0), (4, 200.0)] {
            data.add_in_round(&["a".to_string()], round, done(rate));
        }
        for (round, rate) in [(0, 1.0), (4, 100.0)] {
            data.add_in_round(&["b".to_string()], round, done(rate));
        }
        let view = View { experiment: &experiment, data: &data };
        let ratio = view.ratio("g", Metric::Throughput, ("a", 0.0), ("b", 0.0)).unwrap();
        assert_eq!((ratio.median, ratio.count), (2.0, 2));
        assert_eq!(view.trouble(&experiment.runs[1]), None);
    }
}
