//! Verdicts: compares 90 % intervals with the papers' claims, by the same rules for all.
//!
//! **A claimed factor** stands for a band: a fifth more and a fifth less, because the paper's own
//! figures are read from plots and vary. It *holds* if the interval meets the band. It is
//! *exceeded* if the whole interval lies above: that is as suspicious as too little, for a
//! baseline may be weak. It *holds in part* if the whole interval lies below the band and above 1;
//! the number is the share of the factor's logarithm that the median reaches. Otherwise it *does
//! not hold*.
//!
//! **A claimed value** stands for a band as well, and holds if the interval meets it.
//!
//! Nothing is decided by a single run, by an interval whose upper end is more than twice the lower
//! and that meets the band, or by one that meets the band and contains 1 where a factor is claimed.

use crate::chart::Spread;
use crate::data::View;
use crate::metric::Metric;

/// How much more or less than a claimed factor or value still is the claim.
pub const TOLERANCE: f64 = 1.2;
/// An interval whose upper end is more than this many times its lower decides nothing.
const WIDE: f64 = 2.0;

/// How far a claim holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    /// It does not hold.
    Fails,
    /// The direction is right; this share of the claimed factor's logarithm is reached.
    InPart(f64),
    /// More than claimed.
    Exceeds,
    /// The measurements decide nothing.
    Undecided,
    /// It holds.
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
    /// How far it holds.
    pub level: Level,
}

type Look = dyn Fn(&View<'_>) -> Option<Finding> + Send + Sync;

/// A check of a claim. It has no finding if the runs for it are missing.
pub struct Check {
    look: Box<Look>,
    basis: Basis,
    bound: Option<Bound>,
}

/// Series that throttled devices may limit.
struct Bound {
    group: &'static str,
    metric: Metric,
    x: f64,
    /// Series, and the MB/s of all of its devices.
    series: Vec<(&'static str, f64)>,
}

/// From this share of its devices' bandwidth on, a series is limited by them.
const LIMITED: f64 = 0.75;

impl Bound {
    fn is_met(&self, view: &View<'_>) -> bool {
        self.series.iter().all(|(series, all)| {
            let rate = view.median(self.group, series, self.x, self.metric);
            rate.is_some_and(|rate| rate >= LIMITED * all)
        })
    }
}

/// What a check's result rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// What was measured.
    Tested,
    /// The devices: they limit every scheme here, so that `n` of them give `n` times one.
    Throttle,
    /// What was measured, of which no paper claims anything.
    Context,
}

impl Basis {
    /// What is written beside a result; nothing if it was tested.
    pub fn words(self) -> &'static str {
        match self {
            Basis::Tested => "",
            Basis::Throttle => "arithmetic of the throttle",
            Basis::Context => "no claim",
        }
    }
}

/// The verdict over all checks of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All checks hold.
    Holds,
    /// This many checks hold, of this many; some of the others may hold in part, or exceed the
    /// claim.
    InPart(usize, usize),
    /// All checks fail.
    DoesNotHold,
    /// All that was measured decides nothing.
    Undecided,
    /// No check has a result that does not follow from the sizes of the devices.
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
            Verdict::InPart(held, of) => return format!("{held} of {of} hold"),
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "does not hold",
            Verdict::Undecided => "undecided",
            Verdict::NotTested => "not tested",
            Verdict::SimulatedOnly => "simulated only",
            Verdict::NotMeasured => "not measured",
        };
        fixed.to_string()
    }
}

impl Check {
    /// Creates a check from a function.
    pub fn new(check: impl Fn(&View<'_>) -> Option<Finding> + Send + Sync + 'static) -> Check {
        Check { look: Box::new(check), basis: Basis::Tested, bound: None }
    }

    /// The same check, with a result that rests on this.
    pub fn resting_on(self, basis: Basis) -> Check {
        Check { basis, ..self }
    }

    /// The same check, whose result is arithmetic of the throttle if each of these series, at `x`,
    /// writes or reads (`metric`) about as many MB/s as its throttled devices allow.
    pub fn unless_bound(
        self,
        group: &'static str,
        metric: Metric,
        x: f64,
        series: Vec<(&'static str, f64)>,
    ) -> Check {
        Check { bound: Some(Bound { group, metric, x, series }), ..self }
    }

    /// What its result rests on.
    pub fn basis(&self, view: &View<'_>) -> Basis {
        match &self.bound {
            Some(bound) if bound.is_met(view) => Basis::Throttle,
            _ => self.basis,
        }
    }

    /// Runs the check.
    pub fn look(&self, view: &View<'_>) -> Option<Finding> {
        (self.look)(view)
    }
}

/// Whether an interval that meets a claim's band is too wide, or of a single run.
fn decides_nothing(ours: &Spread) -> bool {
    ours.count < 2 || ours.low <= 0.0 && ours.high > 0.0 || ours.high > WIDE * ours.low
}

/// Judges a ratio against a claimed one.
pub fn of_factor(ours: &Spread, paper: f64) -> Level {
    // A claimed factor below 1 is the same claim for the inverse ratio.
    let (ours, paper) = if paper < 1.0 { (ours.inverse(), 1.0 / paper) } else { (*ours, paper) };
    let (from, to) = (paper / TOLERANCE, paper * TOLERANCE);
    if ours.count < 2 {
        Level::Undecided
    } else if ours.low > to {
        Level::Exceeds
    } else if ours.high >= from {
        let undecided = decides_nothing(&ours) || ours.low <= 1.0;
        if undecided { Level::Undecided } else { Level::Holds }
    } else if ours.low > 1.0 {
        Level::InPart(ours.median.ln() / paper.ln())
    } else {
        Level::Fails
    }
}

/// Judges a value that is claimed to lie in a band.
pub fn of_band(ours: &Spread, from: f64, to: f64) -> Level {
    if ours.count < 2 {
        Level::Undecided
    } else if ours.low > to || ours.high < from {
        Level::Fails
    } else if ours.low >= from && ours.high <= to {
        // However wide it is, all of it is as claimed.
        Level::Holds
    } else if decides_nothing(ours) {
        Level::Undecided
    } else {
        Level::Holds
    }
}

/// Judges a value against a claimed upper limit.
pub fn of_limit(ours: &Spread, paper: f64) -> Level {
    of_band(ours, f64::NEG_INFINITY, paper * TOLERANCE)
}

/// Judges a cost against a claimed one, of which less is better: below the band the claim is
/// exceeded, above it fails.
pub fn of_cost(ours: &Spread, paper: f64) -> Level {
    let (from, to) = (paper / TOLERANCE, paper * TOLERANCE);
    match of_band(ours, from, to) {
        Level::Fails if ours.high < from => Level::Exceeds,
        other => other,
    }
}

/// Judges the ratio of a later value to an earlier one that is claimed to be higher. An interval
/// below 1 is a fall; one that contains 1 and lies above 0.9 is none.
pub fn of_fall(ratio: &Spread) -> Level {
    if ratio.count < 2 {
        Level::Undecided
    } else if ratio.high < 1.0 {
        Level::Holds
    } else if ratio.low > 0.9 {
        Level::Fails
    } else {
        Level::Undecided
    }
}

/// The verdict over the findings, of which only those that were tested count. It is not `Holds` if
/// the runs of a check are missing.
pub fn verdict(findings: &[(Basis, Option<Finding>)], simulated: bool) -> Verdict {
    let is_tested = |(basis, _): &&(Basis, Option<Finding>)| *basis == Basis::Tested;
    let tested: Vec<_> = findings.iter().filter(is_tested).map(|(_, finding)| finding).collect();
    let levels: Vec<Level> = tested.iter().copied().flatten().map(|found| found.level).collect();
    let held = levels.iter().filter(|level| **level == Level::Holds).count();
    match levels.as_slice() {
        [] if findings.iter().any(|(_, finding)| finding.is_some()) => Verdict::NotTested,
        [] => Verdict::NotMeasured,
        _ if simulated => Verdict::SimulatedOnly,
        _ if held == tested.len() => Verdict::Holds,
        all if all.iter().all(|level| *level == Level::Fails) => Verdict::DoesNotHold,
        all if all.iter().all(|level| *level == Level::Undecided) => Verdict::Undecided,
        _ => Verdict::InPart(held, tested.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(level: Level) -> Option<Finding> {
        Some(Finding { text: String::new(), level })
    }

    fn of(findings: &[Option<Finding>], simulated: bool) -> Verdict {
        let tested = findings.iter().map(|finding| (Basis::Tested, finding.clone()));
        verdict(&tested.collect::<Vec<_>>(), simulated)
    }

    fn spread(low: f64, high: f64) -> Spread {
        Spread { low, median: (low * high).sqrt(), high, count: 5 }
    }

    #[test]
    fn what_was_not_tested_does_not_count() {
        let (yes, no) = (found(Level::Holds), found(Level::Fails));
        let both = |basis| verdict(&[(Basis::Tested, no.clone()), (basis, yes.clone())], false);
        assert_eq!(both(Basis::Tested), Verdict::InPart(1, 2));
        assert_eq!(both(Basis::Context), Verdict::DoesNotHold);
        assert_eq!(both(Basis::Throttle), Verdict::DoesNotHold);
        assert_eq!(verdict(&[(Basis::Throttle, yes)], false), Verdict::NotTested);
        assert_eq!(verdict(&[(Basis::Throttle, None)], false), Verdict::NotMeasured);
    }

    #[test]
    fn a_factor_is_compared_with_the_interval() {
        for (low, high, level) in [
            (7.0, 8.5, Level::Holds),
            (5.0, 6.7, Level::Holds),
            (9.5, 12.0, Level::Holds),
            (10.0, 12.0, Level::Exceeds),
            (20.0, 50.0, Level::Exceeds),
            (0.9, 6.0, Level::Fails),
            (0.9, 9.0, Level::Undecided),
            (4.0, 9.0, Level::Undecided),
            (0.3, 0.5, Level::Fails),
        ] {
            assert_eq!(of_factor(&spread(low, high), 8.0), level, "{low} to {high}");
            let inverse = spread(low, high).inverse();
            assert_eq!(of_factor(&inverse, 1.0 / 8.0), level, "1 / {low} to {high}");
        }
        let Level::InPart(share) = of_factor(&spread(2.7, 2.963), 8.0) else { panic!() };
        assert!((share - 0.5).abs() < 1e-3, "{share}");
        assert_eq!(Level::InPart(share).words(), "holds in part, 50 %");
    }

    #[test]
    fn one_run_decides_nothing() {
        for value in [0.1, 8.0, 100.0] {
            assert_eq!(of_factor(&Spread::one(value), 8.0), Level::Undecided);
            assert_eq!(of_band(&Spread::one(value), 0.0, 8.0), Level::Undecided);
            assert_eq!(of_cost(&Spread::one(value), 8.0), Level::Undecided);
            assert_eq!(of_fall(&Spread::one(value)), Level::Undecided);
        }
    }

    #[test]
    fn bands_costs_and_falls() {
        assert_eq!(of_band(&spread(0.9, 1.1), 0.8, 1.2), Level::Holds);
        assert_eq!(of_band(&spread(1.1, 1.4), 0.8, 1.2), Level::Holds);
        assert_eq!(of_band(&spread(0.7, 1.5), 0.8, 1.2), Level::Undecided);
        assert_eq!(of_band(&spread(1.3, 1.4), 0.8, 1.2), Level::Fails);
        assert_eq!(of_band(&spread(0.0, 0.0), 0.0, 1.2), Level::Holds);
        assert_eq!(of_limit(&spread(0.1, 1.2), 2.0), Level::Holds);
        assert_eq!(of_limit(&spread(2.5, 3.0), 2.0), Level::Fails);
        assert_eq!(of_cost(&spread(240.0, 250.0), 252.0), Level::Holds);
        assert_eq!(of_cost(&spread(50.0, 60.0), 252.0), Level::Exceeds);
        assert_eq!(of_cost(&spread(500.0, 600.0), 252.0), Level::Fails);
        assert_eq!(of_fall(&spread(0.5, 0.8)), Level::Holds);
        assert_eq!(of_fall(&spread(0.95, 1.2)), Level::Fails);
        assert_eq!(of_fall(&spread(0.8, 1.2)), Level::Undecided);
    }

    #[test]
    fn a_missing_run_keeps_a_claim_from_holding_in_full() {
        let (yes, no) = (found(Level::Holds), found(Level::Fails));
        assert_eq!(of(&[yes.clone(), yes.clone()], false), Verdict::Holds);
        assert_eq!(of(&[yes.clone(), None], false), Verdict::InPart(1, 2));
        assert_eq!(of(&[yes.clone(), no.clone()], false), Verdict::InPart(1, 2));
        assert_eq!(of(&[found(Level::Exceeds)], false), Verdict::InPart(0, 1));
        assert_eq!(of(&[found(Level::Undecided), None], false), Verdict::Undecided);
        assert_eq!(of(&[no.clone(), None], false), Verdict::DoesNotHold);
        assert_eq!(of(&[None, None], false), Verdict::NotMeasured);
        assert_eq!(of(&[], false), Verdict::NotMeasured);
        assert_eq!(of(&[yes], true), Verdict::SimulatedOnly);
    }
}
