//! Cases: a model with certain rules, and the expected result.

use crate::check::Outcome;

/// The origin of the rules that a case checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// As printed in a paper.
    Printed,
    /// As Hyades is built.
    Ours,
    /// The rules of a paper, corrected.
    Mended,
    /// `Ours` or `Mended`, with one mistake.
    Mutation,
}

/// The expected result of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The checker finds that the named promise is broken.
    Breaks(&'static str),
    /// Every promise holds in all states, and there are at least this many states.
    Holds(usize),
}

/// A model with certain rules.
pub struct Case {
    /// The item of docs/protocols.
    pub item: &'static str,
    /// The origin of the rules.
    pub rules: Rules,
    /// The rule in a few words.
    pub rule: &'static str,
    /// The expected result.
    pub expected: Expected,
    /// Runs the checker.
    pub explore: fn() -> Outcome,
}

impl Case {
    /// A case in which the checker has to break `promise`.
    pub fn breaks(
        (item, rules): (&'static str, Rules),
        rule: &'static str,
        promise: &'static str,
        explore: fn() -> Outcome,
    ) -> Case {
        Case { item, rules, rule, expected: Expected::Breaks(promise), explore }
    }

    /// A case of our rules: all promises hold, in at least `states` states.
    pub fn holds(
        item: &'static str,
        rule: &'static str,
        states: usize,
        explore: fn() -> Outcome,
    ) -> Case {
        Case::mended((item, Rules::Ours), rule, states, explore)
    }

    /// A case of correct rules: all promises hold, in at least `states` states.
    pub fn mended(
        (item, rules): (&'static str, Rules),
        rule: &'static str,
        states: usize,
        explore: fn() -> Outcome,
    ) -> Case {
        Case { item, rules, rule, expected: Expected::Holds(states), explore }
    }

    /// Runs the checker and compares its result with the expected result.
    ///
    /// # Errors
    /// The result is another; the text describes the result, with the trace if there is one.
    pub fn verify(&self) -> Result<Outcome, String> {
        let outcome = (self.explore)();
        let fault = match (self.expected, &outcome.violation) {
            (Expected::Breaks(promise), Some(found)) if found.promise == promise => None,
            (Expected::Breaks(promise), _) => Some(format!("should break \"{promise}\"")),
            (Expected::Holds(_), Some(_)) => Some("should hold".to_string()),
            (Expected::Holds(least), None) if outcome.states < least => {
                Some(format!("visited less than {least} states"))
            }
            (Expected::Holds(_), None) if !outcome.unreached.is_empty() => {
                Some(format!("never reached {:?}", outcome.unreached))
            }
            (Expected::Holds(_), None) => None,
        };
        match fault {
            None => Ok(outcome),
            Some(fault) => Err(format!("{fault}:\n{}", self.report(&outcome))),
        }
    }

    /// Formats the case and its result as docs/protocols shows them.
    pub fn report(&self, outcome: &Outcome) -> String {
        let whose = match self.rules {
            Rules::Printed => "as printed",
            Rules::Ours => "ours",
            Rules::Mended => "mended",
            Rules::Mutation => "mistake",
        };
        let mut text = format!("{}, {whose}: {}\n", self.item, self.rule);
        match &outcome.violation {
            Some(violation) => {
                text += &trace(violation);
            }
            None => {
                let Outcome { states, depth, promises, .. } = outcome;
                text += &format!("  holds in all {states} states, up to {depth} steps deep: ");
                text += &format!("{}\n", promises.join("; "));
            }
        }
        text
    }
}

/// Formats the steps of a violation, numbered, and the broken promise.
pub fn trace(violation: &crate::check::Violation) -> String {
    let mut text = String::new();
    for (at, step) in violation.steps.iter().enumerate() {
        text += &format!("  {}. {step}\n", at + 1);
    }
    text + &format!("  => {}\n     breaks: {}\n", violation.verdict, violation.promise)
}

/// Verifies all cases of an item, for tests.
///
/// # Panics
/// If a case has an unexpected result, or the item has no case.
pub fn verify_item(cases: Vec<Case>, item: &str) {
    let mut verified = 0;
    for case in cases.into_iter().filter(|case| case.item == item) {
        match case.verify() {
            Ok(outcome) => println!("{}", case.report(&outcome)),
            Err(fault) => panic!("{fault}"),
        }
        verified += 1;
    }
    assert!(verified > 0, "no case of item {item}");
}
