//! The shared checks of experiments.

use crate::axis::short;
use crate::chart::Spread;
use crate::judge::{
    Basis, Check, Finding, Level, TOLERANCE, of_band, of_cost, of_factor, of_fall, of_same,
};
use crate::metric::Metric;

/// A value with its interval, as in `7.31 (7.02 to 7.65, 5 rounds)`.
pub fn with_interval(spread: &Spread) -> String {
    let Spread { low, median, high, count, dropped } = spread;
    let [low, median, high] = [low, median, high].map(|value| short(*value));
    let dropped = match dropped {
        0 => String::new(),
        1 => ", 1 outlier dropped".to_string(),
        n => format!(", {n} outliers dropped"),
    };
    match count {
        1 => format!("{median} (one run)"),
        n => format!("{median} ({low} to {high}, {n} rounds{dropped})"),
    }
}

/// The share in percent added by a series, from the ratio to the series without the addition.
pub fn share(ratio: &Spread) -> Spread {
    ratio.map(|ratio| 100.0 * (1.0 - 1.0 / ratio))
}

/// A series at a position, as text.
fn name((series, x): (&str, f64)) -> String {
    match x {
        0.0 => series.to_string(),
        x => format!("{series} at {}", short(x)),
    }
}

impl Check {
    /// `series` is `paper` times `over`.
    pub fn times(
        group: &'static str,
        metric: Metric,
        series: &'static str,
        over: &'static str,
        paper: f64,
    ) -> Check {
        Check::times_at(group, metric, (series, 0.0), (over, 0.0), paper)
    }

    /// As [`Check::times`], at positions on the horizontal axis.
    pub fn times_at(
        group: &'static str,
        metric: Metric,
        point: (&'static str, f64),
        over: (&'static str, f64),
        paper: f64,
    ) -> Check {
        Check::new(move |view| {
            let ratio = view.ratio(group, metric, point, over)?;
            let (left, right, what) = (name(point), name(over), metric.label());
            Some(Finding {
                text: format!(
                    "{group}, {what}: {left} is {} times {right} (paper: {})",
                    with_interval(&ratio),
                    short(paper)
                ),
                level: of_factor(&ratio, paper),
            })
        })
    }

    /// The median latency of a scheme with slow or idle streams (at `to`), over the latency without
    /// (at `from`), is at most `within` if `spared`, and at least `within` if not.
    pub fn waits(
        group: &'static str,
        series: &'static str,
        (from, to): (f64, f64),
        within: f64,
        spared: bool,
    ) -> Check {
        Check::new(move |view| {
            let ratio = view.ratio(group, Metric::LatencyP50, (series, to), (series, from))?;
            let (rule, level) = match spared {
                true => ("at most", of_band(&ratio, 0.0, within)),
                false => ("at least", of_band(&ratio, within, f64::INFINITY)),
            };
            Some(Finding {
                text: format!(
                    "{group}: the median latency of {series} grows {} times from {} to {} \
                     (expected: {rule} {within})",
                    with_interval(&ratio),
                    short(from),
                    short(to)
                ),
                level,
            })
        })
    }

    /// `series` exceeds `base` by `paper`.
    pub fn adds(
        group: &'static str,
        metric: Metric,
        series: &'static str,
        base: &'static str,
        paper: f64,
    ) -> Check {
        Check::new(move |view| {
            let ours = view.difference(group, metric, (series, 0.0), (base, 0.0))?;
            Some(Finding {
                text: format!(
                    "{group}: {series} adds {} to the {} of {base} (paper: {paper})",
                    with_interval(&ours),
                    metric.label()
                ),
                level: of_cost(&ours, paper),
            })
        })
    }

    /// A figure is the paper's, where less is better.
    pub fn costs(group: &'static str, metric: Metric, series: &'static str, paper: f64) -> Check {
        Check::new(move |view| {
            let ours = view.at(group, series, 0.0, metric)?;
            let what = metric.label();
            Some(Finding {
                text: format!(
                    "{group}: {series} has {} {what} (paper: {})",
                    with_interval(&ours),
                    short(paper)
                ),
                level: of_cost(&ours, paper),
            })
        })
    }

    /// `series` and `over` are equal.
    pub fn same(
        group: &'static str,
        metric: Metric,
        series: &'static str,
        over: &'static str,
    ) -> Check {
        Check::same_at(group, metric, (series, 0.0), (over, 0.0))
    }

    /// As [`Check::same`], at positions on the horizontal axis.
    pub fn same_at(
        group: &'static str,
        metric: Metric,
        point: (&'static str, f64),
        over: (&'static str, f64),
    ) -> Check {
        Check::new(move |view| {
            let ratio = view.ratio(group, metric, point, over)?;
            let (left, right, what) = (name(point), name(over), metric.label());
            Some(Finding {
                text: format!(
                    "{group}, {what}: {left} is {} times {right} (paper: about 1)",
                    with_interval(&ratio)
                ),
                level: of_same(&ratio),
            })
        })
    }

    /// The ratio of replay rates, beside the ratio allowed by devices and processors: the limit of
    /// each series is the lower of bandwidth over bytes per record and the rate from memory. The
    /// ratio of the limits does not bound the measured ratio, which is higher where the second
    /// series stays further below its limit than the first. Each series has a number of devices;
    /// `bandwidth` is the bandwidth of one device in bytes per second.
    pub fn allowed(
        (group, x): (&'static str, f64),
        memory: &'static str,
        scheme: (&'static str, u32),
        over: (&'static str, u32),
        bandwidth: f64,
    ) -> Check {
        Check::new(move |view| {
            let best = |(series, devices): (&'static str, u32)| {
                let bytes = view.median(group, series, x, Metric::BytesPerRecord)?;
                let processors = view.median(memory, series, 0.0, Metric::ReplayRate)?;
                Some(processors.min(f64::from(devices) * bandwidth / bytes))
            };
            let (first, second) = (best(scheme)?, best(over)?);
            let ratio = view.ratio(group, Metric::ReplayRate, (scheme.0, x), (over.0, x))?;
            let reached = |(series, _), limit: f64| {
                let rate = view.median(group, series, x, Metric::ReplayRate)?;
                Some(format!("{:.0} %", 100.0 * rate / limit))
            };
            Some(Finding {
                text: format!(
                    "{group}: the devices and our processors allow {} {}/s and {} {}/s, {:.1} \
                     times; measured {} times, with {} and {} of what is allowed",
                    scheme.0,
                    short(first),
                    over.0,
                    short(second),
                    first / second,
                    with_interval(&ratio),
                    reached(scheme, first)?,
                    reached(over, second)?
                ),
                level: Level::Undecided,
            })
        })
        .resting_on(Basis::Context)
    }

    /// The ratio of throughputs is the inverse ratio of log bytes per transaction.
    pub fn follows_bytes(
        group: &'static str,
        x: f64,
        series: &'static str,
        over: &'static str,
    ) -> Check {
        Check::new(move |view| {
            let rate = view.ratio(group, Metric::Throughput, (series, x), (over, x))?;
            let bytes = view.ratio(group, Metric::BytesPerTransaction, (over, x), (series, x))?;
            let (low, high) = (rate.low / bytes.median, rate.high / bytes.median);
            let share = Spread { low, median: rate.median / bytes.median, high, ..rate };
            Some(Finding {
                text: format!(
                    "{group}: {series} has {} times the throughput of {over}, whose transactions \
                     log {:.2} times as many bytes",
                    with_interval(&rate),
                    bytes.median
                ),
                level: of_band(&share, 1.0 / TOLERANCE, TOLERANCE),
            })
        })
    }

    /// A series changes at most by a factor from the first point to the last.
    pub fn flat(group: &'static str, metric: Metric, series: &'static str, within: f64) -> Check {
        Check::new(move |view| {
            let points = view.points(group, series, metric);
            let (first, last) = (points.first()?.0, points.last()?.0);
            let change = view.ratio(group, metric, (series, last), (series, first))?;
            Some(Finding {
                text: format!(
                    "{group}, {}: {series} at {} is {} times that at {} (expected: \
                     within {within})",
                    metric.label(),
                    short(last),
                    with_interval(&change),
                    short(first)
                ),
                level: of_band(&change, 1.0 / within, within),
            })
        })
    }

    /// A series falls between two positions.
    pub fn falls(
        group: &'static str,
        metric: Metric,
        series: &'static str,
        from: f64,
        to: f64,
    ) -> Check {
        Check::goes("falls", group, metric, series, (from, to))
    }

    /// A series rises between two positions.
    pub fn rises(
        group: &'static str,
        metric: Metric,
        series: &'static str,
        from: f64,
        to: f64,
    ) -> Check {
        Check::goes("rises", group, metric, series, (from, to))
    }

    /// A series `falls` or `rises` between two positions.
    fn goes(
        how: &'static str,
        group: &'static str,
        metric: Metric,
        series: &'static str,
        (from, to): (f64, f64),
    ) -> Check {
        Check::new(move |view| {
            let ratio = view.ratio(group, metric, (series, to), (series, from))?;
            let fall = if how == "rises" { ratio.inverse() } else { ratio };
            Some(Finding {
                text: format!(
                    "{group}, {}: {series} at {to} is {} times that at {from} (paper: {how})",
                    metric.label(),
                    with_interval(&ratio)
                ),
                level: of_fall(&fall),
            })
        })
    }

    /// The same check of a ratio of rates. If the ratio exceeds the claim, and the records of the
    /// slower series are longer, the note says how much longer.
    pub fn above_by_bytes(
        self,
        group: &'static str,
        x: f64,
        series: &'static str,
        over: &'static str,
    ) -> Check {
        self.above_by(move |view| {
            let bytes = |series| view.median(group, series, x, Metric::BytesPerTransaction);
            let (few, many) = (bytes(series)?, bytes(over)?);
            let is_why = many > few * TOLERANCE;
            is_why.then(|| {
                format!(
                    "a transaction logs {} bytes with {over} and {} with {series}, {:.1} times \
                     fewer, so that equal devices allow as many times more of them",
                    short(many),
                    short(few),
                    many / few
                )
            })
        })
    }

    /// A ratio of ours, without a comparable statement in a paper.
    pub fn beside(
        group: &'static str,
        metric: Metric,
        series: &'static str,
        over: &'static str,
    ) -> Check {
        Check::beside_at(group, metric, (series, 0.0), (over, 0.0))
    }

    /// As [`Check::beside`], at positions on the horizontal axis.
    pub fn beside_at(
        group: &'static str,
        metric: Metric,
        point: (&'static str, f64),
        over: (&'static str, f64),
    ) -> Check {
        Check::new(move |view| {
            let ratio = view.ratio(group, metric, point, over)?;
            let (times, what) = (with_interval(&ratio), metric.label());
            let (left, right) = (name(point), name(over));
            let text = format!("{group}, {what}: {left} is {times} times {right}");
            Some(Finding { text, level: Level::Undecided })
        })
        .resting_on(Basis::Context)
    }

    /// A figure of ours, without a comparable statement in a paper.
    pub fn shown(group: &'static str, metric: Metric, series: &'static str, x: f64) -> Check {
        Check::new(move |view| {
            let ours = view.at(group, series, x, metric)?;
            Some(Finding {
                text: format!("{group}: {series} has {} {}", with_interval(&ours), metric.label()),
                level: Level::Undecided,
            })
        })
        .resting_on(Basis::Context)
    }
}
