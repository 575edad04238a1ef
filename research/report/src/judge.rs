//! Verdicts: compares 90 % intervals with claims, by one rule for all.
//!
//! **A claim stands for a band.**
//!
//! - A factor: from a fifth less to a fifth more, because the papers' own figures are read from
//!   plots and vary; but from a twentieth above 1 on, so no difference is never a difference.
//! - Equality, or a factor less than a twentieth above 1: a fifth more or less than 1.
//! - A value: a fifth more or less. A limit given by a paper as a value: up to a fifth above the
//!   limit.
//! - At least, at most: from the bound on, or up to the bound.
//! - A rise or a fall: a change by a twentieth or more.
//!
//! **The rule.** If all of the interval lies in the band, the claim *holds*. If all of the interval
//! lies outside, the claim *does not hold*. If the interval has both, the claim is *undecided*, and
//! so is a single run. So the median of a result that holds is in the band, and noise never helps a
//! claim.
//!
//! **Of the results that do not hold**, two cases have words of their own. A factor *exceeds the
//! claim* if all of the interval is above the band. Too much is as suspicious as too little, for a
//! baseline may be weak. A cost below the band exceeds the claim too. A factor *holds in part* if
//! all of the interval is below the band and above 1; the number is the share of the factor's
//! logarithm reached by the median. Neither case counts as holding.

use crate::chart::Spread;
use crate::data::View;
use crate::metric::Metric;

/// How much more or less than a claimed factor or value still is the claim.
pub const TOLERANCE: f64 = 1.2;
/// The least change for a rise or a fall.
pub const LEAST: f64 = 1.05;

/// How far a claim holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    /// The claim does not hold.
    Fails,
    /// The direction is right, with the reached share of the claimed factor's logarithm.
    InPart(f64),
    /// More than claimed.
    Exceeds,
    /// The measurements decide nothing.
    Undecided,
    /// The claim holds.
    Holds,
}

impl Level {
    /// The level as text.
    pub fn words(self) -> String {
        match self {
            Level::Fails => "does not hold".to_string(),
            Level::InPart(share) => format!("holds in part, {:.0} %", 100.0 * share),
            Level::Exceeds => "exceeds the claim".to_string(),
            Level::Undecided => "undecided".to_string(),
            Level::Holds => "holds".to_string(),
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// A sentence with our figure, its interval, and the paper's.
    pub text: String,
    /// How far the claim holds.
    pub level: Level,
}

type Look = dyn Fn(&View<'_>) -> Option<Finding> + Send + Sync;
type Why = dyn Fn(&View<'_>) -> Option<String> + Send + Sync;
type Given = dyn Fn(&View<'_>) -> bool + Send + Sync;

/// A check of a claim. A check whose runs are missing has no finding.
pub struct Check {
    look: Box<Look>,
    basis: Basis,
    /// Where the paper states the claim; none: the figure is ours.
    claimed: Option<&'static str>,
    bound: Option<Bound>,
    /// Whether the set-up alone gives the result, by the figures of the runs.
    given: Option<Box<Given>>,
    why_above: Vec<Box<Why>>,
    why_not: Vec<Box<Why>>,
    /// Whether a separate measurement shows the cause.
    measured_apart: bool,
}

/// Why a result differs from the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The subject.
    pub kind: NoteKind,
    /// A sentence without its full stop.
    pub text: String,
}

/// The subject of a [`Note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// A result above the claim.
    Above,
    /// A claim that fails, or holds in part only.
    Not,
}

impl NoteKind {
    /// The words before the note's text.
    pub fn words(self) -> &'static str {
        match self {
            NoteKind::Above => "Why above",
            NoteKind::Not => "Why not",
        }
    }
}

/// Series possibly limited by throttled devices.
struct Bound {
    group: &'static str,
    metric: Metric,
    /// Series, each at a position, and the MB/s of all devices of the series there.
    series: Vec<Limited>,
}

/// A series, a position, and the MB/s of all devices of the series there.
pub type Limited = (&'static str, f64, f64);

/// From this share of the devices' bandwidth on, a series is limited by the devices.
const LIMITED: f64 = 0.75;
/// The same for series with equal shares of their devices: the ratio of the series is the ratio of
/// the devices. The limit is lower, because recovery also reads bytes not counted as log: the end
/// of the last segment and the segment allocated ahead.
const LIMITED_ALIKE: f64 = 0.5;

impl Bound {
    /// The share of the devices' bandwidth used by each series.
    fn shares(&self, view: &View<'_>) -> Option<Vec<f64>> {
        let share = |(series, x, all): &Limited| {
            Some(view.median(self.group, series, *x, self.metric)? / all)
        };
        self.series.iter().map(share).collect()
    }

    fn is_met(&self, view: &View<'_>) -> bool {
        self.shares(view).is_some_and(|shares| are_limited(&shares))
    }

    /// Which of two series the devices limit, as a reason why a ratio differs from the claimed
    /// ratio, and whether the reason applies: whether the devices limit any series.
    fn reason(&self, view: &View<'_>) -> Option<(bool, String)> {
        let shares = self.shares(view)?;
        let [(series, ..), (over, ..)] = self.series[..] else { return None };
        let limited = match [shares[0], shares[1]].map(|share| share >= LIMITED) {
            [false, false] => "neither",
            [true, false] => series,
            [false, true] => over,
            [true, true] => "both",
        };
        let [moves, over_moves] = [shares[0], shares[1]].map(|share| 100.0 * share);
        let text = format!(
            "devices limit {limited} here: {series} moves {moves:.0} % of the bytes that its \
             devices allow, {over} {over_moves:.0} %"
        );
        Some((limited != "neither", text))
    }
}

/// Whether series with these shares of their devices' bandwidth are limited by the devices.
fn are_limited(shares: &[f64]) -> bool {
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let most = shares.iter().copied().fold(0.0, f64::max);
    let alike = shares.len() > 1 && most <= least * TOLERANCE;
    least >= if alike { LIMITED_ALIKE } else { LIMITED }
}

/// The basis of a check's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// A measurement, and a claim for which the check names the place in the paper.
    Tested,
    /// A measurement, and a figure that we expect and no paper states.
    Expected,
    /// The devices, which limit every scheme here, so `n` devices give `n` times the figure of one.
    Throttle,
    /// The set-up or the input: every scheme would have the same result, as a latency equal to the
    /// flush interval, or the skew of the keys.
    Construction,
    /// A measurement without a claim of a paper.
    Context,
    /// A model: its error at the papers' sizes is not known.
    Simulated,
}

impl Basis {
    /// A word for each basis.
    pub fn name(self) -> &'static str {
        if self == Basis::Tested { "tested" } else { self.words() }
    }

    /// The words beside a result; empty for a tested result.
    pub fn words(self) -> &'static str {
        match self {
            Basis::Tested => "",
            Basis::Simulated => "simulated, not judged",
            Basis::Expected => "own expectation",
            Basis::Throttle => "arithmetic of the throttle",
            Basis::Construction => "follows from the set-up",
            Basis::Context => "no claim",
        }
    }

    /// A finding's level as text, or the words of the basis for a result that is not judged.
    pub fn level(self, level: Level) -> String {
        match self {
            Basis::Tested => level.words(),
            Basis::Expected => format!("{}: {}", self.words(), level.words()),
            other => other.words().to_string(),
        }
    }

    /// Whether results on this basis are compared with a figure.
    pub fn is_judged(self) -> bool {
        matches!(self, Basis::Tested | Basis::Expected)
    }
}

/// The verdict over all claims of a paper in an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All hold.
    Holds,
    /// The number of claims that hold, and of all claims; some of the rest may be undecided, hold
    /// in part, or be exceeded.
    InPart(usize, usize),
    /// None holds, not even in part.
    DoesNotHold,
    /// No measurement decides a claim.
    Undecided,
    /// No claim of a paper was tested.
    NotTested,
    /// The figures are simulated.
    SimulatedOnly,
    /// There are no figures.
    NotMeasured,
}

impl Verdict {
    /// The verdict as text.
    pub fn words(self) -> String {
        let fixed = match self {
            Verdict::InPart(held, tested) => return format!("{held} of {tested} hold"),
            Verdict::Holds => "all hold",
            Verdict::DoesNotHold => "none holds",
            Verdict::Undecided => "undecided",
            Verdict::NotTested => "not tested",
            Verdict::SimulatedOnly => "simulated only",
            Verdict::NotMeasured => "not measured",
        };
        fixed.to_string()
    }
}

/// The text of a note if no reason is known.
pub const NOT_EXAMINED: &str = "not examined";
/// The text of a note if a separate measurement shows the reason.
const MEASURED_APART: &str = "the figures of this run do not show it; docs/experiments.md has a \
                              separate measurement of the cause";

/// The word before a figure of ours in a finding. A paper's figure has `paper:` before it.
const OWN: &str = "expected:";
/// The beginning of the words on a paper's figure, and of the words on ours in their place.
const OF_PAPER: &str = "(paper: ";
const OF_OURS: &str = "(expected: ";

impl Check {
    /// Creates a check from a function. The figure of the check is ours until
    /// [`Check::claimed`] names the place in a paper.
    pub fn new(check: impl Fn(&View<'_>) -> Option<Finding> + Send + Sync + 'static) -> Check {
        Check {
            look: Box::new(check),
            basis: Basis::Tested,
            claimed: None,
            bound: None,
            given: None,
            why_above: Vec::new(),
            why_not: Vec::new(),
            measured_apart: false,
        }
    }

    /// The same check, with this basis of the result.
    pub fn resting_on(self, basis: Basis) -> Check {
        Check { basis, ..self }
    }

    /// The same check. `place` is the section, figure or table in which the paper states the claim.
    pub fn claimed(self, place: &'static str) -> Check {
        Check { claimed: Some(place), ..self }
    }

    /// Where the paper states the claim; none if the figure is ours.
    pub fn place(&self) -> Option<&'static str> {
        self.claimed
    }

    /// The same check; the result follows from the set-up where `given` is true of the figures.
    pub fn unless_given(self, given: impl Fn(&View<'_>) -> bool + Send + Sync + 'static) -> Check {
        Check { given: Some(Box::new(given)), ..self }
    }

    /// Whether the check says when its result follows from the set-up.
    pub fn excludes_set_up(&self) -> bool {
        self.given.is_some()
    }

    /// The same check; the result is arithmetic of the throttle if each of the series writes or
    /// reads (`metric`) about as many MB/s as the series' throttled devices allow.
    pub fn unless_bound(self, group: &'static str, metric: Metric, series: Vec<Limited>) -> Check {
        Check { bound: Some(Bound { group, metric, series }), ..self }
    }

    /// The same check, with a reason for a result above the claim: a sentence without its full
    /// stop, with the measurements that show the reason; none if the measurements do not show the
    /// reason.
    pub fn above_by(
        mut self,
        why: impl Fn(&View<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Check {
        self.why_above.push(Box::new(why));
        self
    }

    /// The same check, with a further reason for a claim that fails or holds in part only: a
    /// sentence without its full stop, with the measurements that show the reason; none if the
    /// measurements do not show the reason.
    pub fn not_by(
        mut self,
        why: impl Fn(&View<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Check {
        self.why_not.push(Box::new(why));
        self
    }

    /// The same check, with a separate measurement of the result's cause. The note names the
    /// separate measurement where the figures of the run show no cause.
    pub fn measured_apart(self) -> Check {
        Check { measured_apart: true, ..self }
    }

    /// The basis of the check's result. A claim without a place in a paper is ours; and a finding
    /// with an expected figure is compared with a figure of ours, whatever else the check says.
    pub fn basis(&self, view: &View<'_>, finding: Option<&Finding>) -> Basis {
        if self.bound.as_ref().is_some_and(|bound| bound.is_met(view)) {
            return Basis::Throttle;
        }
        if !self.basis.is_judged() {
            return self.basis;
        }
        if self.given.as_ref().is_some_and(|given| given(view)) {
            return Basis::Construction;
        }
        let is_own = self.claimed.is_none() || finding.is_some_and(|own| own.text.contains(OWN));
        if is_own { Basis::Expected } else { self.basis }
    }

    /// Whether the check's result is judged, unless devices limit the result.
    pub fn is_judged(&self) -> bool {
        self.basis.is_judged()
    }

    /// Runs the check. Words on a paper's figure are words on ours if no paper states the figure.
    pub fn look(&self, view: &View<'_>) -> Option<Finding> {
        let mut finding = (self.look)(view)?;
        if self.claimed.is_none() {
            finding.text = finding.text.replace(OF_PAPER, OF_OURS);
        }
        Some(finding)
    }

    /// Why a result exceeds the claim, or why the claim does not hold; none if neither is so.
    pub fn note(&self, view: &View<'_>, basis: Basis, finding: &Finding) -> Option<Note> {
        let (kind, why) = match finding.level {
            Level::Exceeds => (NoteKind::Above, &self.why_above),
            Level::Fails | Level::InPart(_) => (NoteKind::Not, &self.why_not),
            Level::Holds | Level::Undecided => return None,
        };
        let mut known: Vec<String> = why.iter().filter_map(|why| why(view)).collect();
        let by_devices = match (kind, &self.bound) {
            (NoteKind::Not, Some(bound)) => bound.reason(view),
            _ => None,
        };
        // "Devices limit neither series" only excludes a cause, so the note has the sentence only
        // if no cause is known.
        let is_cause = by_devices.as_ref().is_some_and(|(is_cause, _)| *is_cause);
        let is_shown = !known.is_empty() || is_cause;
        known.extend(by_devices.filter(|_| is_cause || !is_shown).map(|(_, text)| text));
        if !is_shown {
            let words = if self.measured_apart { MEASURED_APART } else { NOT_EXAMINED };
            known.push(words.to_string());
        }
        basis.is_judged().then_some(Note { kind, text: known.join("; ") })
    }
}

/// Where an interval lies, seen from a band.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Below,
    Within,
    Above,
    /// Parts of the interval are within, parts outside; or the interval is of a single run.
    Across,
}

fn place(ours: &Spread, from: f64, to: f64) -> Place {
    if ours.count < 2 {
        Place::Across
    } else if ours.low >= from && ours.high <= to {
        Place::Within
    } else if ours.high < from {
        Place::Below
    } else if ours.low > to {
        Place::Above
    } else {
        Place::Across
    }
}

/// Judges a ratio against a claimed ratio.
pub fn of_factor(ours: &Spread, paper: f64) -> Level {
    // A claimed factor below 1 is the same claim for the inverse ratio.
    let (ours, paper) = if paper < 1.0 { (ours.inverse(), 1.0 / paper) } else { (*ours, paper) };
    if paper < LEAST {
        return of_same(&ours);
    }
    match place(&ours, (paper / TOLERANCE).max(LEAST), paper * TOLERANCE) {
        Place::Within => Level::Holds,
        Place::Above => Level::Exceeds,
        Place::Across => Level::Undecided,
        Place::Below if ours.low > 1.0 => Level::InPart(ours.median.ln() / paper.ln()),
        Place::Below => Level::Fails,
    }
}

/// Judges a ratio with a claim of 1.
pub fn of_same(ours: &Spread) -> Level {
    of_band(ours, 1.0 / TOLERANCE, TOLERANCE)
}

/// Judges a value against a claimed band.
pub fn of_band(ours: &Spread, from: f64, to: f64) -> Level {
    match place(ours, from, to) {
        Place::Within => Level::Holds,
        Place::Across => Level::Undecided,
        Place::Below | Place::Above => Level::Fails,
    }
}

/// Judges a value against a claimed upper limit.
pub fn of_limit(ours: &Spread, paper: f64) -> Level {
    of_band(ours, f64::NEG_INFINITY, paper * TOLERANCE)
}

/// Judges a cost against a claimed cost. Less is better: below the band the claim is exceeded,
/// above the band the claim fails.
pub fn of_cost(ours: &Spread, paper: f64) -> Level {
    let (from, to) = (paper / TOLERANCE, paper * TOLERANCE);
    match place(ours, from, to) {
        Place::Below => Level::Exceeds,
        _ => of_band(ours, from, to),
    }
}

/// Judges the ratio of a later value to an earlier value, with the claim of a higher earlier value.
pub fn of_fall(ratio: &Spread) -> Level {
    of_band(ratio, f64::NEG_INFINITY, 1.0 / LEAST)
}

/// The findings of an experiment, each with its basis.
pub type Findings = [(Basis, Option<Finding>)];

/// The verdict over the findings. Only findings that test a claim of a paper count. The verdict is
/// not `Holds` if the runs of a check are missing.
pub fn verdict(findings: &Findings, simulated: bool) -> Verdict {
    let is_tested = |(basis, _): &&(Basis, Option<Finding>)| *basis == Basis::Tested;
    let tested: Vec<_> = findings.iter().filter(is_tested).map(|(_, finding)| finding).collect();
    let levels: Vec<Level> = tested.iter().copied().flatten().map(|found| found.level).collect();
    let held = levels.iter().filter(|level| **level == Level::Holds).count();
    match levels.as_slice() {
        [] if findings.iter().all(|(_, finding)| finding.is_none()) => Verdict::NotMeasured,
        _ if simulated => Verdict::SimulatedOnly,
        [] => Verdict::NotTested,
        _ if held == tested.len() => Verdict::Holds,
        all if all.iter().all(|level| *level == Level::Fails) => Verdict::DoesNotHold,
        all if all.iter().all(|level| *level == Level::Undecided) => Verdict::Undecided,
        _ => Verdict::InPart(held, tested.len()),
    }
}

/// How many of the expectations of ours hold, and how many there are; none if there are none.
pub fn expectations(findings: &Findings) -> Option<(usize, usize)> {
    let own = || findings.iter().filter(|(basis, _)| *basis == Basis::Expected);
    let holds = |finding: &Finding| finding.level == Level::Holds;
    let held = own().filter(|(_, finding)| finding.as_ref().is_some_and(holds)).count();
    let all = own().count();
    (all > 0).then_some((held, all))
}

#[cfg(test)]
mod tests;
