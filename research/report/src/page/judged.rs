//! The words of the page and the JSON on an experiment's findings.

use super::prose;
use super::residual::residual;
use crate::data::{Data, View};
use crate::experiment::Experiment;
use crate::judge::{
    Basis, Check, Finding, Level, NOT_EXAMINED, Note, Verdict, expectations, verdict,
};
use crate::svg::escape;
use serde_json::Value;
use std::fmt::Write;

/// An experiment with the findings.
pub(super) struct Judged<'a> {
    pub view: View<'a>,
    pub findings: Vec<(Basis, Option<Finding>)>,
    /// Why a result differs from the claim, for each finding.
    pub notes: Vec<Option<Note>>,
    pub verdict: Verdict,
}

impl<'a> Judged<'a> {
    /// Judges the data of an experiment.
    pub fn of(experiment: &'a Experiment, data: &'a Data) -> Judged<'a> {
        let view = View { experiment, data };
        let look = |check: &Check| {
            let finding = check.look(&view);
            (check.basis(&view, finding.as_ref()), finding)
        };
        let findings: Vec<_> = experiment.checks.iter().map(look).collect();
        // Simulated results count nowhere; the page lists the omissions of the model.
        let is_due = |note: &Note| !experiment.is_simulated() || note.text != NOT_EXAMINED;
        let note = |(check, (basis, finding)): (&Check, &(Basis, Option<Finding>))| {
            check.note(&view, *basis, finding.as_ref()?).filter(is_due)
        };
        let notes = experiment.checks.iter().zip(&findings).map(note).collect();
        let verdict = verdict(&findings, experiment.is_simulated());
        Judged { view, findings, notes, verdict }
    }

    /// The verdict over the claims, and the number of undecided claims.
    pub fn claims(&self) -> String {
        let is_open = |(basis, finding): &&(Basis, Option<Finding>)| {
            let level = finding.as_ref().map(|found| found.level);
            *basis == Basis::Tested && level == Some(Level::Undecided)
        };
        match (self.verdict, self.findings.iter().filter(is_open).count()) {
            (Verdict::InPart(..), open @ 1..) => {
                format!("{}, {open} undecided", self.verdict.words())
            }
            (verdict, _) => verdict.words(),
        }
    }

    /// How many of our own expectations hold; none if there are none.
    pub fn expectations(&self) -> Option<String> {
        let (held, all) = expectations(&self.findings)?;
        Some(format!("{held} of {all} hold"))
    }

    /// How far the model behind a simulated finding is off.
    pub fn residual(
        &self,
        basis: Basis,
        finding: &Finding,
        calibration: Option<&Value>,
    ) -> Option<String> {
        let simulated = basis == Basis::Simulated;
        simulated.then(|| residual(self.view.experiment, &finding.text, calibration)).flatten()
    }

    /// The words on the claims, and on our expectations if there are any.
    pub fn words(&self) -> Vec<String> {
        let own = self.expectations().map(|own| format!("own expectations: {own}"));
        [format!("claims: {}", self.claims())].into_iter().chain(own).collect()
    }
}

/// The verdict over the paper's claims, beside the number of our expectations that hold.
pub(super) fn standing(judged: &Judged<'_>) -> String {
    let verdict = judged.verdict;
    let class = match verdict {
        Verdict::Holds => "holds",
        Verdict::InPart(..) => "part",
        Verdict::DoesNotHold => "fails",
        Verdict::SimulatedOnly => "sim",
        Verdict::NotMeasured | Verdict::NotTested | Verdict::Undecided => "none",
    };
    let badge = |class, text: &str| format!("<span class=\"badge {class}\">{text}</span>");
    let classes = [class, "none"].into_iter();
    let badges = judged.words().into_iter().zip(classes).map(|(text, class)| badge(class, &text));
    badges.collect::<Vec<_>>().join(" ")
}

/// How many checks of a claim hold, if there are several.
pub(super) fn tally(findings: &[(Basis, Option<Finding>)]) -> String {
    let tested = || findings.iter().filter(|(basis, _)| *basis == Basis::Tested);
    let holds = |finding: &Finding| finding.level == Level::Holds;
    let holding = tested().filter(|(_, finding)| finding.as_ref().is_some_and(holds)).count();
    let own = match expectations(findings) {
        None => String::new(),
        Some((held, all)) => format!("; own expectations: {held} of {all}"),
    };
    let rest = match findings.iter().filter(|(basis, _)| !basis.is_judged()).count() {
        0 => String::new(),
        n => format!("; {n} not counted"),
    };
    match (findings.len(), tested().count()) {
        (0 | 1, _) => String::new(),
        (_, 0) => format!("No claim of the paper is tested{own}{rest}. "),
        (_, all) => format!("Paper's claims: {holding} of {all} hold{own}{rest}. "),
    }
}

/// Names, before all else, the results that rest on the sizes of the devices and are no verdicts.
pub(super) fn untested(judged: &[Judged<'_>]) -> String {
    let list = |basis: Basis| {
        let count = |judged: &Judged<'_>| {
            let resting = judged.findings.iter().filter(|(rests_on, _)| *rests_on == basis).count();
            let id = judged.view.experiment.id;
            (resting > 0).then(|| {
                format!("<a href=\"#{id}\">{id}</a> ({resting} of {})", judged.findings.len())
            })
        };
        judged.iter().filter_map(count).collect::<Vec<_>>().join(", ")
    };
    let throttle = list(Basis::Throttle);
    if throttle.is_empty() {
        return String::new();
    }
    format!(
        "<p><b>Arithmetic of the throttle:</b> in {throttle} checks compare schemes that throttled \
         devices limit here: <i>n</i> devices give <i>n</i> times one. They show that nothing else \
         limits these schemes at such rates, and count in no verdict.</p>\n"
    )
}

/// Why there are no findings, or not all.
pub(super) fn reason(judged: &Judged<'_>) -> String {
    if let Some(why) = judged.view.experiment.not_measured {
        return why.to_string();
    }
    let runs = &judged.view.experiment.runs;
    let trouble = runs.iter().find_map(|run| judged.view.trouble(run));
    trouble.unwrap_or_else(|| "the runs gave no figures".to_string())
}

pub(super) fn found(judged: &Judged<'_>, calibration: Option<&Value>) -> String {
    let mut out = String::from("<ul class=\"found\">");
    let checks = judged.view.experiment.checks.iter();
    for ((check, (basis, finding)), note) in checks.zip(&judged.findings).zip(&judged.notes) {
        let Some(finding) = finding else { continue };
        let mark = match finding.level {
            _ if !basis.is_judged() => "=",
            Level::Holds => "\u{2713}",
            Level::Fails => "\u{2717}",
            Level::Undecided => "?",
            Level::Exceeds => "&gt;",
            Level::InPart(_) => "\u{25d0}",
        };
        let rests = match (basis, finding.level) {
            (Basis::Tested, Level::Holds) => String::new(),
            (basis, level) => format!(": <b>{}</b>", prose(&basis.level(level))),
        };
        let why = match note {
            Some(note) => format!("<br>{}: {}.", note.kind.words(), prose(&note.text)),
            None => String::new(),
        };
        let residual = judged.residual(*basis, finding, calibration);
        let residual = residual.map_or(String::new(), |words| format!("; {}", prose(&words)));
        let place = check
            .place()
            .map_or(String::new(), |place| format!(" title=\"the paper: {}\"", escape(place)));
        let _ = write!(
            out,
            "<li{place}>{mark}\u{2002}{}{rests}{residual}{why}</li>",
            prose(&finding.text)
        );
    }
    let missing = judged.findings.iter().filter(|(_, finding)| finding.is_none()).count();
    if judged.verdict == Verdict::NotMeasured {
        let _ = write!(out, "<li>Not measured: {}.</li>", escape(&reason(judged)));
    } else if missing > 0 {
        let _ = write!(
            out,
            "<li>\u{2013}\u{2002}{missing} of {} checks not measured: {}.</li>",
            judged.findings.len(),
            escape(&reason(judged))
        );
    }
    out + "</ul>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_undecided_is_counted_beside_what_holds() {
        let experiment = Experiment::example(Vec::new());
        let data = Data::default();
        let words = |levels: &[(Basis, Level)]| {
            let mut judged = Judged::of(&experiment, &data);
            let found = |level| Some(Finding { text: String::new(), level });
            judged.findings = levels.iter().map(|(basis, level)| (*basis, found(*level))).collect();
            judged.verdict = verdict(&judged.findings, false);
            judged.words().join("; ")
        };
        let (tested, own) = (Basis::Tested, Basis::Expected);
        let (holds, open) = (Level::Holds, Level::Undecided);
        assert_eq!(words(&[(tested, holds), (tested, Level::Fails)]), "claims: 1 of 2 hold");
        assert_eq!(
            words(&[(tested, holds), (tested, open), (own, holds), (own, open)]),
            "claims: 1 of 2 hold, 1 undecided; own expectations: 1 of 2 hold"
        );
        assert_eq!(words(&[(tested, open)]), "claims: undecided");
        assert_eq!(words(&[(own, holds)]), "claims: not tested; own expectations: 1 of 1 hold");
    }
}
