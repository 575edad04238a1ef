//! The definition of an experiment as a short word: a result is compared with the definition under
//! which it was judged, so that no page shows a result of another definition.

use crate::data::{Data, View};
use crate::experiment::Experiment;
use crate::scale::{Setup, Size};
use crate::table;
use std::collections::BTreeMap;

/// The definition of an experiment: the claim, the commands, and of each check the text, the basis
/// and the place in the paper. Eight hexadecimal digits.
pub fn of(experiment: &Experiment) -> String {
    let mut word = Word(0xCBF2_9CE4_8422_2325);
    let Experiment { source, claim, .. } = experiment;
    [source, claim].into_iter().for_each(|text| word.add(text));
    for run in &experiment.runs {
        word.add(run.group);
        word.add(&run.series);
        word.add(&run.x.to_string());
        word.add(&run.words.join(" "));
    }
    let data = Data::trial();
    let view = View { experiment, data: &data };
    for check in &experiment.checks {
        let finding = check.look(&view);
        word.add(check.basis(&view, finding.as_ref()).name());
        word.add(check.place().unwrap_or(""));
        // The text names the commands' figures, the claimed figure, and the series.
        word.add(&finding.map_or(String::new(), |finding| finding.text));
    }
    format!("{:08x}", word.0 >> 32)
}

/// The size at which experiments are compared: all steps of sweeps. How long runs are, and how many
/// rows they have, is in the head of a page.
const COMPARED: Size = Size {
    rows: 200_000,
    warehouses: 2,
    seconds: 1.0,
    device_seconds: 1.0,
    warmup: 0.0,
    rounds: 1,
    fine: true,
    budget: 0.0,
};

/// The definitions of this build's experiments, by id, on a typical machine, because loads and
/// devices differ from machine to machine.
pub fn current() -> BTreeMap<&'static str, String> {
    let experiments = table::all(&Setup::typical(COMPARED));
    experiments.iter().map(|experiment| (experiment.id, of(experiment))).collect()
}

/// Fowler, Noll and Vo's hash (FNV-1a) of texts, each with its end.
struct Word(u64);

impl Word {
    fn add(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Run;
    use crate::judge::{Basis, Check, Finding, Level};

    fn example(command: &str, check: Check) -> String {
        let run = Run {
            group: "g",
            series: "s".to_string(),
            x: 0.0,
            words: command.split(' ').map(str::to_string).collect(),
            cost: 0.0,
        };
        of(&Experiment { checks: vec![check], ..Experiment::example(vec![run]) })
    }

    fn check(text: &'static str) -> Check {
        Check::new(move |_| Some(Finding { text: text.to_string(), level: Level::Holds }))
    }

    #[test]
    fn a_definition_changes_with_what_is_measured_and_what_is_claimed() {
        let usual = example("bench ycsb", check("a").claimed("table 1"));
        assert_eq!(usual, example("bench ycsb", check("a").claimed("table 1")));
        assert_eq!(usual.len(), 8);
        for other in [
            example("bench ycsb --theta 0", check("a").claimed("table 1")),
            example("bench ycsb", check("b").claimed("table 1")),
            example("bench ycsb", check("a").claimed("table 2")),
            example("bench ycsb", check("a")),
            example("bench ycsb", check("a").claimed("table 1").resting_on(Basis::Construction)),
        ] {
            assert_ne!(usual, other);
        }
    }

    /// A longer run is another run of the same measurement: the page has the length in its head.
    #[test]
    fn each_experiment_has_a_definition() {
        let all = current();
        assert_eq!(all.len(), table::all(&Setup::typical(Size::FULL)).len());
        let distinct: std::collections::BTreeSet<&String> = all.values().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
