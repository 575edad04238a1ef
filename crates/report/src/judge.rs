//! Verdicts: compares ratios and shapes with the papers' claims, by the same rules for all.
//!
//! A ratio is judged by its logarithm: of a claimed factor of 8, a factor of 5.3 is 80 % and holds,
//! 1.9 is 30 % and holds in part. A ratio above the claimed one holds.

use crate::axis::short;
use crate::data::View;
use crate::metric::Metric;

/// From this share of the claimed factor's logarithm, a claim holds.
const HOLDS: f64 = 0.8;
/// From this share, it holds in part.
const IN_PART: f64 = 0.3;

/// How far a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It does not hold.
    Fails,
    /// The direction is right, the size is not.
    InPart,
    /// It holds.
    Holds,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// A sentence with our figure and the paper's.
    pub text: String,
    /// How far it holds.
    pub level: Level,
}

type Look = dyn Fn(&View<'_>) -> Option<Finding> + Send + Sync;

/// A check of a claim. It has no finding if the runs for it are missing.
pub struct Check {
    look: Box<Look>,
    basis: Basis,
}

/// What a check's result rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// What was measured.
    Tested,
    /// The claim: the devices' bandwidth was computed from the claimed ratio.
    Calibrated,
    /// The devices: they limit every scheme here, so that `n` of them give `n` times one.
    Throttle,
}

impl Basis {
    /// What is written beside a result; nothing if it was tested.
    pub fn words(self) -> &'static str {
        match self {
            Basis::Tested => "",
            Basis::Calibrated => "calibrated, not tested",
            Basis::Throttle => "arithmetic of the throttle",
        }
    }
}

/// The verdict over all checks of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All checks hold.
    Holds,
    /// Some checks hold, at least in part.
    InPart,
    /// All checks fail.
    DoesNotHold,
    /// No check has a result that does not follow from the sizes of the devices.
    NotTested,
    /// The figures are simulated.
    SimulatedOnly,
    /// There are no figures.
    NotMeasured,
}

impl Verdict {
    /// The verdict as text.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::InPart => "holds in part",
            Verdict::DoesNotHold => "does not hold",
            Verdict::NotTested => "not tested",
            Verdict::SimulatedOnly => "simulated only",
            Verdict::NotMeasured => "not measured",
        }
    }
}

impl Check {
    /// Creates a check from a function.
    pub fn new(check: impl Fn(&View<'_>) -> Option<Finding> + Send + Sync + 'static) -> Check {
        Check { look: Box::new(check), basis: Basis::Tested }
    }

    /// The same check, with a result that rests on this.
    pub fn resting_on(self, basis: Basis) -> Check {
        Check { basis, ..self }
    }

    /// What its result rests on.
    pub fn basis(&self) -> Basis {
        self.basis
    }

    /// Runs the check.
    pub fn look(&self, view: &View<'_>) -> Option<Finding> {
        (self.look)(view)
    }

    /// `of` is at least `paper` times `over`.
    pub fn times(
        group: &'static str,
        metric: Metric,
        of: &'static str,
        over: &'static str,
        paper: f64,
    ) -> Check {
        Check::times_at(group, metric, (of, 0.0), (over, 0.0), paper)
    }

    /// As [`Check::times`], at positions on the horizontal axis.
    pub fn times_at(
        group: &'static str,
        metric: Metric,
        of: (&'static str, f64),
        over: (&'static str, f64),
        paper: f64,
    ) -> Check {
        Check::new(move |view| {
            let ratio = view.median(group, of.0, of.1, metric)?
                / view.median(group, over.0, over.1, metric)?;
            let name = |(series, x): (&str, f64)| match x {
                0.0 => series.to_string(),
                x => format!("{series} at {}", short(x)),
            };
            let (left, right, what) = (name(of), name(over), metric.label());
            Some(Finding {
                text: format!(
                    "{group}, {what}: {left} is {ratio:.2} times {right} (paper: {})",
                    short(paper)
                ),
                level: of_factor(ratio, paper),
            })
        })
    }

    /// The median latency of a scheme with slow or idle streams (at `to`), over that without (at
    /// `from`), is at most `within` if `spared`, and at least `within` if not.
    pub fn waits(
        group: &'static str,
        of: &'static str,
        (from, to): (f64, f64),
        within: f64,
        spared: bool,
    ) -> Check {
        Check::new(move |view| {
            let metric = Metric::LatencyP50;
            let (with, without) =
                (view.median(group, of, to, metric)?, view.median(group, of, from, metric)?);
            let ratio = with / without;
            let (rule, level) = match spared {
                true => ("at most", of_distance(ratio, within, within * 1.5)),
                false => ("at least", of_factor(ratio, within)),
            };
            Some(Finding {
                text: format!(
                    "{group}: the median latency of {of} goes from {without:.2} to {with:.2} ms, \
                     {ratio:.2} times ({rule} {within})"
                ),
                level,
            })
        })
    }

    /// The ratio of throughputs is the inverse ratio of log bytes per transaction, within 15 %.
    pub fn follows_bytes(
        group: &'static str,
        x: f64,
        of: &'static str,
        over: &'static str,
    ) -> Check {
        Check::new(move |view| {
            let ratio = |metric| {
                Some(view.median(group, of, x, metric)? / view.median(group, over, x, metric)?)
            };
            let (rate, bytes) =
                (ratio(Metric::Throughput)?, 1.0 / ratio(Metric::BytesPerTransaction)?);
            Some(Finding {
                text: format!(
                    "{group}: {of} has {rate:.2} times the throughput of {over}, whose \
                     transactions log {bytes:.2} times as many bytes"
                ),
                level: of_distance((rate / bytes - 1.0).abs(), 0.15, 0.4),
            })
        })
    }

    /// The throughput of a series does not depend on the number of devices.
    pub fn stays_at_one(group: &'static str, of: &'static str, most: f64) -> Check {
        Check::new(move |view| {
            let points = view.points(group, of, Metric::Throughput);
            let one = points.iter().find(|(x, _)| *x == 1.0)?.1.median;
            let (x, last) = points.iter().rev().find(|(x, _)| *x <= most && *x > 1.0)?;
            let ratio = last.median / one;
            Some(Finding {
                text: format!("{group}: {of} on {x} devices is {ratio:.2} times one device"),
                level: of_distance(ratio.max(1.0 / ratio), 1.15, 1.5),
            })
        })
    }

    /// `of` exceeds `base` by at most `paper`, within 15 %; in part up to twice that.
    pub fn adds_at_most(
        group: &'static str,
        metric: Metric,
        of: &'static str,
        base: &'static str,
        paper: f64,
    ) -> Check {
        Check::new(move |view| {
            let ours =
                view.median(group, of, 0.0, metric)? - view.median(group, base, 0.0, metric)?;
            Some(Finding {
                text: format!(
                    "{group}: {of} adds {ours:.1} to the {} of {base} (paper: {paper})",
                    metric.label()
                ),
                level: of_distance(ours / paper, 1.15, 2.0),
            })
        })
    }

    /// The ratio of replay rates reaches what devices and processors allow. The limit of each
    /// series is the lower of bandwidth over bytes per record and its rate from memory. Each series
    /// comes with its number of devices; `bandwidth` is that of one device in bytes per second.
    pub fn allowed(
        group: &'static str,
        memory: &'static str,
        of: (&'static str, u32),
        over: (&'static str, u32),
        bandwidth: f64,
    ) -> Check {
        Check::new(move |view| {
            let best = |(series, devices): (&'static str, u32)| {
                let bytes = view.median(group, series, 0.0, Metric::BytesPerRecord)?;
                let processors = view.median(memory, series, 0.0, Metric::ReplayRate)?;
                Some(processors.min(f64::from(devices) * bandwidth / bytes))
            };
            let (most, least) = (best(of)?, best(over)?);
            let rate = |series| view.median(group, series, 0.0, Metric::ReplayRate);
            let ratio = rate(of.0)? / rate(over.0)?;
            let allowed = most / least;
            Some(Finding {
                text: format!(
                    "{group}: devices and our two processors allow {} at most {allowed:.1} times \
                     {} ({}/s and {}/s); it reached {ratio:.1}",
                    of.0,
                    over.0,
                    short(most),
                    short(least)
                ),
                level: of_distance((allowed / ratio).max(1.0), 1.4, 2.0),
            })
        })
    }

    /// `of` and `over` are equal within 15 %, or in part within 40 %.
    pub fn same(
        group: &'static str,
        metric: Metric,
        of: &'static str,
        over: &'static str,
    ) -> Check {
        Check::new(move |view| {
            let ratio =
                view.median(group, of, 0.0, metric)? / view.median(group, over, 0.0, metric)?;
            let what = metric.label();
            Some(Finding {
                text: format!("{group}, {what}: {of} is {ratio:.2} times {over} (paper: about 1)"),
                level: of_distance((ratio - 1.0).abs(), 0.15, 0.4),
            })
        })
    }

    /// A figure is at most the paper's, within 15 %; in part up to twice that.
    pub fn at_most(group: &'static str, metric: Metric, of: &'static str, paper: f64) -> Check {
        Check::new(move |view| {
            let ours = view.median(group, of, 0.0, metric)?;
            let what = metric.label();
            Some(Finding {
                text: format!("{group}: {of} has {} {what} (paper: {})", short(ours), short(paper)),
                level: of_distance(ours / paper, 1.15, 2.0),
            })
        })
    }

    /// `n` devices give at least `0.9 * n` times the value of one, for the most up to `most`
    /// devices.
    pub fn grows_with(group: &'static str, metric: Metric, of: &'static str, most: f64) -> Check {
        Check::new(move |view| {
            let points = view.points(group, of, metric);
            let one = points.iter().find(|(x, _)| *x == 1.0)?.1.median;
            let (x, last) = points.iter().rev().find(|(x, _)| *x <= most && *x > 1.0)?;
            let ratio = last.median / one;
            Some(Finding {
                text: format!("{group}: {of} on {x} devices is {ratio:.2} times one device"),
                level: of_distance(x / ratio, 1.0 / 0.9, 2.0),
            })
        })
    }

    /// A series changes at most by a factor from its first point to its last.
    pub fn flat(group: &'static str, metric: Metric, of: &'static str, within: f64) -> Check {
        Check::new(move |view| {
            let points = view.points(group, of, metric);
            let (first, last) = (points.first()?.1.median, points.last()?.1.median);
            let change = (last / first).max(first / last);
            Some(Finding {
                text: format!(
                    "{group}, {}: {of} changes by a factor of {change:.2} from {} to {} \
                     (expected: below {within})",
                    metric.label(),
                    short(points.first()?.0),
                    short(points.last()?.0)
                ),
                level: of_distance(change, within, within * 1.5),
            })
        })
    }

    /// A series falls by at least a tenth between two positions.
    pub fn falls(
        group: &'static str,
        metric: Metric,
        of: &'static str,
        from: f64,
        to: f64,
    ) -> Check {
        Check::new(move |view| {
            let (a, b) =
                (view.median(group, of, from, metric)?, view.median(group, of, to, metric)?);
            let level = if b < 0.9 * a {
                Level::Holds
            } else if b < a {
                Level::InPart
            } else {
                Level::Fails
            };
            Some(Finding {
                text: format!(
                    "{group}, {}: {of} goes from {} at {from} to {} at {to} (paper: falls)",
                    metric.label(),
                    short(a),
                    short(b)
                ),
                level,
            })
        })
    }
}

/// Judges a ratio against a claimed one.
pub fn of_factor(ratio: f64, paper: f64) -> Level {
    // A claimed factor below 1 is the same claim for the inverse ratio.
    let (ratio, paper) = if paper < 1.0 { (1.0 / ratio, 1.0 / paper) } else { (ratio, paper) };
    let share = ratio.ln() / paper.ln();
    match share {
        s if s >= HOLDS => Level::Holds,
        s if s >= IN_PART => Level::InPart,
        _ => Level::Fails,
    }
}

/// Judges a distance that is to be small.
pub fn of_distance(distance: f64, holds: f64, in_part: f64) -> Level {
    match distance {
        d if d <= holds => Level::Holds,
        d if d <= in_part => Level::InPart,
        _ => Level::Fails,
    }
}

/// The verdict over the findings, of which only those that were tested count. It is not `Holds` if
/// the runs of a check are missing.
pub fn verdict(findings: &[(Basis, Option<Finding>)], simulated: bool) -> Verdict {
    let is_tested = |(basis, _): &&(Basis, Option<Finding>)| *basis == Basis::Tested;
    let tested: Vec<_> = findings.iter().filter(is_tested).map(|(_, finding)| finding).collect();
    let levels: Vec<Level> = tested.iter().copied().flatten().map(|found| found.level).collect();
    match levels.as_slice() {
        [] if findings.iter().any(|(_, finding)| finding.is_some()) => Verdict::NotTested,
        [] => Verdict::NotMeasured,
        _ if simulated => Verdict::SimulatedOnly,
        all if all.iter().all(|l| *l == Level::Holds) && all.len() == tested.len() => {
            Verdict::Holds
        }
        all if all.iter().all(|l| *l == Level::Fails) => Verdict::DoesNotHold,
        _ => Verdict::InPart,
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

    #[test]
    fn what_was_not_tested_does_not_count() {
        let (yes, no) = (found(Level::Holds), found(Level::Fails));
        let both = |basis| verdict(&[(Basis::Tested, no.clone()), (basis, yes.clone())], false);
        assert_eq!(both(Basis::Tested), Verdict::InPart);
        assert_eq!(both(Basis::Calibrated), Verdict::DoesNotHold);
        assert_eq!(both(Basis::Throttle), Verdict::DoesNotHold);
        assert_eq!(verdict(&[(Basis::Calibrated, yes)], false), Verdict::NotTested);
        assert_eq!(verdict(&[(Basis::Calibrated, None)], false), Verdict::NotMeasured);
    }

    #[test]
    fn factors_are_judged_by_their_logarithm() {
        assert_eq!(of_factor(8.0, 8.0), Level::Holds);
        assert_eq!(of_factor(20.0, 8.0), Level::Holds);
        assert_eq!(of_factor(5.3, 8.0), Level::Holds);
        assert_eq!(of_factor(5.2, 8.0), Level::InPart);
        assert_eq!(of_factor(1.8, 8.0), Level::Fails);
        assert_eq!(of_factor(0.5, 8.0), Level::Fails);
        assert_eq!(of_factor(0.5, 0.5), Level::Holds);
        assert_eq!(of_factor(1.5, 0.5), Level::Fails);
    }

    #[test]
    fn a_missing_run_keeps_a_claim_from_holding_in_full() {
        let (yes, no) = (found(Level::Holds), found(Level::Fails));
        assert_eq!(of(&[yes.clone(), yes.clone()], false), Verdict::Holds);
        assert_eq!(of(&[yes.clone(), None], false), Verdict::InPart);
        assert_eq!(of(&[yes.clone(), no.clone()], false), Verdict::InPart);
        assert_eq!(of(&[no.clone(), None], false), Verdict::DoesNotHold);
        assert_eq!(of(&[None, None], false), Verdict::NotMeasured);
        assert_eq!(of(&[], false), Verdict::NotMeasured);
        assert_eq!(of(&[yes], true), Verdict::SimulatedOnly);
    }
}
