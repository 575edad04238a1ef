//! Why claims do not hold, from measurements of the same run.
//!
//! A rule reads the figures of a cause, and gives no reason if the figures do not show the cause.

use crate::axis::short;
use crate::data::View;
use crate::judge::{Check, TOLERANCE};
use crate::metric::Metric;

/// A series at a position on the horizontal axis.
pub type Point = (&'static str, f64);

/// A share as text.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// A metric at two points.
fn both(
    view: &View<'_>,
    group: &str,
    metric: Metric,
    [point, over]: [Point; 2],
) -> Option<[f64; 2]> {
    let at = |(series, x): Point| view.median(group, series, x, metric);
    Some([at(point)?, at(over)?])
}

/// The microseconds of a worker for a transaction, by the clock: all workers run all the time.
pub fn worker_us(view: &View<'_>, group: &str, (series, x): Point) -> Option<f64> {
    let at = |metric| view.median(group, series, x, metric);
    Some(1e6 * at(Metric::Workers)? / at(Metric::Throughput)?)
}

impl Check {
    /// The same check of replay rates, claimed to differ `claimed` times. Where the ratio of replay
    /// threads, first series over second, is lower, the threads are the reason. Where the measured
    /// ratio is below the ratio of threads, the time of a record on a thread is a reason too.
    pub fn not_by_threads(self, group: &'static str, points: [Point; 2], claimed: f64) -> Check {
        self.not_by(move |view| {
            let [threads, over] = both(view, group, Metric::ReplayThreads, points)?;
            let ratio = view.ratio(group, Metric::ReplayRate, points[0], points[1])?.median;
            let (allowed, [left, right]) = (threads / over, points.map(|point| point.0));
            // Where more is reached, something else limits the second series.
            if allowed <= 1.0 || allowed * TOLERANCE >= claimed || ratio > allowed * TOLERANCE {
                return None;
            }
            let [rate, over_rate] = both(view, group, Metric::ReplayRate, points)?;
            let text = format!(
                "{} threads replay {left} here and {} {right}: with equal work for a record that \
                 allows {} times, of which {} are reached",
                short(threads),
                short(over),
                short(allowed),
                percent(ratio / allowed)
            );
            let each = [threads / rate, over / over_rate].map(|seconds| short(1e6 * seconds));
            Some(match ratio * TOLERANCE < allowed {
                true => format!(
                    "{text}, for a record takes {} \u{b5}s of a thread, waiting included, with \
                     {left}, and {} with {right}",
                    each[0], each[1]
                ),
                false => text,
            })
        })
    }

    /// The same check of rates, claimed to differ `claimed` times. The reason is a second series so
    /// near to the rate without a log that no log can be as much faster.
    pub fn not_by_headroom(
        self,
        group: &'static str,
        (over, none): (Point, Point),
        claimed: f64,
    ) -> Check {
        self.not_by(move |view| {
            let most = 1.0 / view.ratio(group, Metric::Throughput, over, none)?.median;
            (most * TOLERANCE < claimed).then(|| {
                format!(
                    "{} has {} of the rate without a log here, so that no log is more than {} \
                     times as fast",
                    over.0,
                    percent(1.0 / most),
                    short(most)
                )
            })
        })
    }

    /// The same check of rates, with the logged bytes per transaction, if the bytes differ.
    pub fn not_by_bytes(self, group: &'static str, points: [Point; 2]) -> Check {
        self.not_by(move |view| {
            let [bytes, over] = both(view, group, Metric::BytesPerTransaction, points)?;
            let [left, right] = points.map(|point| point.0);
            let differ = bytes.max(over) > bytes.min(over) * TOLERANCE;
            let [bytes, over] = [bytes, over].map(short);
            differ.then(|| {
                format!("a transaction logs {bytes} bytes with {left}, and {over} with {right}")
            })
        })
    }

    /// The same check of replay rates of one thread, with the claim that installing changes is
    /// faster than running a procedure again. The reason: installing takes about as long as a
    /// worker's run of the procedure without a log.
    pub fn not_by_replay_time(
        self,
        group: &'static str,
        [changes, procedure]: [Point; 2],
        none: Point,
    ) -> Check {
        self.not_by(move |view| {
            let replayed = |(series, x): Point| {
                let rate = view.median(group, series, x, Metric::ReplayRate)?;
                let bytes = view.median(group, series, x, Metric::BytesPerRecord)?;
                Some((1e6 / rate, short(bytes)))
            };
            let ((install, many), (again, few)) = (replayed(changes)?, replayed(procedure)?);
            let run = worker_us(view, group, none)?;
            (install * TOLERANCE >= run).then(|| {
                format!(
                    "one thread installs the changes of a transaction in {} \u{b5}s ({many} \
                     bytes), and runs its procedure again in {} ({few} bytes); a worker without \
                     a log runs one in {}, so that there is nothing to save by installing",
                    short(install),
                    short(again),
                    short(run)
                )
            })
        })
    }
}
