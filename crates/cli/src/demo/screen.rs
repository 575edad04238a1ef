//! The summary at the end of the demo.

use super::round::Round;
use hyades_cli::units::{bytes, exact, rate, time};
use std::fmt::Write;

fn recovery(found: &super::check::Found) -> String {
    match &found.refused {
        Some(_) => "REFUSED".to_string(),
        None => format!("{}, {}", time(found.seconds), rate(found.records as f64 / found.seconds)),
    }
}

fn yes_or(holds: bool, no: &str) -> String {
    if holds { "yes".to_string() } else { no.to_string() }
}

/// A summary in columns, one for each round.
pub struct Summary(String);

impl Summary {
    /// Begins a summary.
    pub fn new(title: &str) -> Summary {
        Summary(format!("\n{title}\n\n"))
    }

    /// Adds a line: a value for each round.
    pub fn line(&mut self, label: &str, values: impl Iterator<Item = String>) {
        let _ = write!(self.0, "  {label:<31}");
        for value in values {
            let _ = write!(self.0, "{value:<24}");
        }
        self.0.truncate(self.0.trim_end().len());
        self.0.push('\n');
    }

    /// Adds a sentence.
    pub fn note(&mut self, text: &str) {
        let _ = writeln!(self.0, "  {text}");
    }

    /// Ends with a sentence, and returns the whole text.
    pub fn verdict(mut self, text: &str) -> String {
        let _ = writeln!(self.0, "\n  {text}");
        self.0
    }
}

/// The summary of all rounds as text.
pub fn screen(rounds: &[(&str, Round)], seed: u64) -> String {
    let mut summary = Summary::new(&format!(
        "Bank transfers and TPC-C together, stopped at a random moment (seed {seed})"
    ));
    let mut line = |label: &str, value: &dyn Fn(&Round) -> String| {
        summary.line(label, rounds.iter().map(|(_, round)| value(round)));
    };
    let threads = rounds.iter().map(|(_, r)| r.together.threads).max().unwrap_or(0);
    line("", &|round| {
        let name = rounds.iter().find(|(_, r)| std::ptr::eq(r, round)).map_or("", |(name, _)| name);
        name.to_uppercase()
    });
    line("acknowledged", &|r| exact(r.acknowledged));
    line("throughput", &|r| rate(r.acknowledged as f64 / r.seconds.max(1e-9)));
    line("latency, p50 and p99", &|r| {
        let us = |q| time(r.latency.value_at_quantile(q) as f64 * 1e-6);
        format!("{}, {}", us(0.5), us(0.99))
    });
    line("log", &|r| format!("{} on {} streams", bytes(r.together.bytes as f64), r.streams));
    line("recovery on 1 thread", &|r| recovery(&r.alone));
    line(&format!("recovery on {threads} threads"), &|r| recovery(&r.together));
    line("both recover the same state", &|r| yes_or(r.states_agree(), "NO"));
    line("consistency conditions hold", &|r| {
        yes_or(r.together.refused.is_none() && r.together.violations == 0, "NO")
    });
    line("partial transactions", &|r| match r.together.refused {
        Some(_) => "unknown".to_string(),
        None => exact(r.together.violations),
    });
    line("acknowledged but missing", &|r| match r.together.refused {
        Some(_) => exact(r.acknowledged),
        None => exact(r.together.missing),
    });
    for (name, round) in rounds {
        for found in [&round.alone, &round.together] {
            if let Some(text) = found.refused.as_ref().or(found.first_violation.as_ref()) {
                summary.note(&format!("{name}: {text}"));
            }
        }
    }
    summary.verdict(if rounds.iter().all(|(_, round)| round.holds()) {
        "Every acknowledged transaction was recovered completely."
    } else {
        "NOT every acknowledged transaction was recovered completely."
    })
}
