//! Why claims do not hold, from measurements of the same run.

use crate::axis::short;
use crate::data::View;
use crate::judge::Check;
use crate::metric::Metric;

/// A series at a position on the horizontal axis.
pub type Point = (&'static str, f64);

/// What a metric is at two points.
fn both(
    view: &View<'_>,
    group: &str,
    metric: Metric,
    [of, over]: [Point; 2],
) -> Option<[String; 2]> {
    let at = |(series, x): Point| view.median(group, series, x, metric).map(short);
    Some([at(of)?, at(over)?])
}

impl Check {
    /// The same check of replay rates, with the threads that replay each series, where they differ.
    pub fn not_by_threads(self, group: &'static str, points: [Point; 2]) -> Check {
        self.not_by(move |view| {
            let [of, over] = both(view, group, Metric::ReplayThreads, points)?;
            let [left, right] = points.map(|point| point.0);
            (of != over)
                .then(|| format!("{left} is replayed by {of} threads here, and {right} by {over}"))
        })
    }

    /// The same check of rates, with the bytes that a transaction logs.
    pub fn not_by_bytes(self, group: &'static str, points: [Point; 2]) -> Check {
        self.not_by(move |view| {
            let [of, over] = both(view, group, Metric::BytesPerTransaction, points)?;
            let [left, right] = points.map(|point| point.0);
            Some(format!("a transaction logs {of} bytes with {left}, and {over} with {right}"))
        })
    }

    /// The same check of replay rates of one thread, with its time and bytes for a transaction.
    pub fn not_by_replay_time(self, group: &'static str, points: [Point; 2]) -> Check {
        self.not_by(move |view| {
            let of = |(series, x): Point| {
                let rate = view.median(group, series, x, Metric::ReplayRate)?;
                let bytes = view.median(group, series, x, Metric::BytesPerRecord)?;
                let (time, bytes) = (short(1e6 / rate), short(bytes));
                Some(format!("{time} \u{b5}s ({bytes} bytes) with {series}"))
            };
            Some(format!(
                "one thread replays a transaction in {}, and in {}: a procedure is compiled code \
                 on rows in memory, and takes about as long as it takes to install what it has \
                 written",
                of(points[0])?,
                of(points[1])?
            ))
        })
    }

    /// The same check, with a metric of two points and what it shows: nothing, or a clause that
    /// follows a colon.
    pub fn not_by_both(
        self,
        (group, metric): (&'static str, Metric),
        points: [Point; 2],
        shows: &'static str,
    ) -> Check {
        self.not_by(move |view| {
            let [of, over] = both(view, group, metric, points)?;
            let ([left, right], what) = (points.map(|point| point.0), metric.label());
            let colon = if shows.is_empty() { "" } else { ": " };
            Some(format!("{left} has {of} {what} and {right} {over}{colon}{shows}"))
        })
    }
}
