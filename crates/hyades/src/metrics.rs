//! Metrics: numbers for the monitoring of a database.

use hyades_platform::latency::{LATENCY_BOUNDS_NS, LatencyCounts};
use std::fmt::Write;

/// A number of a database, with its name and meaning.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// The name in the style of Prometheus: `hyades_`, the measured quantity, the unit, `_total`
    /// for counters.
    pub name: &'static str,
    /// The unit of the value: `transactions`, `bytes`, `seconds`, ...
    pub unit: &'static str,
    /// The meaning of the value.
    pub help: &'static str,
    /// The measured part, as names and values: `stream`, `cause`. Values of one name with different
    /// labels may be added up.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: MetricValue,
}

/// The value of a [`Metric`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetricValue {
    /// A sum since the database was opened, which never falls.
    Counter(f64),
    /// A value that rises and falls.
    Gauge(f64),
    /// The frequencies of values since the database was opened.
    Histogram(Histogram),
}

/// A histogram: the frequencies of values.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// Upper bounds, ascending, each with the number of values up to the bound. All values count in
    /// the last bucket, with an infinite bound.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all values.
    pub sum: f64,
}

impl Histogram {
    /// Creates a histogram of `buckets`, the last with an infinite bound, and of values with this
    /// sum.
    ///
    /// # Panics
    /// The bounds do not ascend to infinity, or the counts fall.
    pub fn new(buckets: Vec<(f64, u64)>, sum: f64) -> Histogram {
        let ascends = buckets.is_sorted_by(|(a, m), (b, n)| a < b && m <= n);
        let ends = buckets.last().is_some_and(|(bound, _)| *bound == f64::INFINITY);
        assert!(ascends && ends, "the buckets of a histogram ascend to infinity: {buckets:?}");
        Histogram { buckets, sum }
    }

    /// The histogram of durations, in seconds.
    pub(crate) fn of_seconds(latencies: LatencyCounts) -> Histogram {
        let bounds = LATENCY_BOUNDS_NS.iter().map(|&ns| ns as f64 / 1e9).chain([f64::INFINITY]);
        let mut below = 0;
        let buckets = bounds.zip(latencies.counts).map(|(bound, count)| {
            below += count;
            (bound, below)
        });
        Histogram { buckets: buckets.collect(), sum: latencies.sum_ns as f64 / 1e9 }
    }

    /// Returns the value not exceeded by this share of the values, 0 to 1, as far as the buckets
    /// show: the upper bound of a bucket, or the bound below an infinite bound, if there is one.
    /// `None` if there are no values.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = (share.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0);
        let at = self.buckets.iter().position(|(_, values)| *values as f64 >= wanted)?;
        let is_finite = self.buckets[at].0.is_finite();
        let shown = if is_finite { at } else { at.saturating_sub(1) };
        Some(self.buckets[shown].0)
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.buckets.last().map_or(0, |(_, all)| *all)
    }
}

/// All metrics of a database at one time, see [`Database::metrics`](crate::Database::metrics). The
/// values are read one after the other, while transactions run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(Vec<Metric>);

/// The description of a metric, to be given values.
#[derive(Clone, Copy)]
pub(crate) struct Description {
    pub name: &'static str,
    pub unit: &'static str,
    pub help: &'static str,
}

impl Metrics {
    /// Returns all metrics. Metrics of one name are next to each other.
    pub fn iter(&self) -> std::slice::Iter<'_, Metric> {
        self.0.iter()
    }

    /// Returns the sum of the counters or gauges of this name over all labels; `None` if there are
    /// none. For a histogram, returns the number of its values.
    pub fn total(&self, name: &str) -> Option<f64> {
        let mut values =
            self.0.iter().filter(|metric| metric.name == name).map(|metric| match &metric.value {
                MetricValue::Counter(value) | MetricValue::Gauge(value) => *value,
                MetricValue::Histogram(histogram) => histogram.count() as f64,
            });
        let first = values.next()?;
        Some(values.fold(first, |sum, value| sum + value))
    }

    pub(crate) fn add(
        &mut self,
        description: Description,
        labels: Vec<(&'static str, String)>,
        value: MetricValue,
    ) {
        let Description { name, unit, help } = description;
        self.0.push(Metric { name, unit, help, labels, value });
    }

    /// Renders all metrics in the text format of Prometheus, version 0.0.4: the reply of an
    /// endpoint `/metrics`.
    ///
    /// ```
    /// # use hyades::Database;
    /// # let dir = tempfile::tempdir()?;
    /// let db = Database::builder().open(dir.path())?;
    /// let text = db.metrics().to_prometheus();
    /// assert!(text.contains("# TYPE hyades_commits_total counter\nhyades_commits_total 0\n"));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_prometheus(&self) -> String {
        let mut out = String::new();
        let mut last = "";
        for metric in &self.0 {
            if metric.name != last {
                let kind = match metric.value {
                    MetricValue::Counter(_) => "counter",
                    MetricValue::Gauge(_) => "gauge",
                    MetricValue::Histogram(_) => "histogram",
                };
                let Metric { name, unit, help, .. } = metric;
                let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
                let help = help.replace('\\', r"\\").replace('\n', r"\n");
                let _ = writeln!(out, "# HELP {name} {help}{unit}\n# TYPE {name} {kind}");
                last = metric.name;
            }
            metric.render(&mut out);
        }
        out
    }
}

/// Returns a label's value as written between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

impl Metric {
    /// Creates a metric without labels: for programs that add metrics to the metrics of a database.
    ///
    /// ```
    /// # use hyades::{Database, Metric, MetricValue};
    /// # let dir = tempfile::tempdir()?;
    /// # let db = Database::builder().open(dir.path())?;
    /// let mut metrics = db.metrics();
    /// let clients = MetricValue::Gauge(3.0);
    /// let clients = Metric::new("shop_clients", "clients", "Clients in the shop", clients);
    /// metrics.extend([clients.with_label("floor", "1")]);
    /// assert!(metrics.to_prometheus().ends_with("shop_clients{floor=\"1\"} 3\n"));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        value: MetricValue,
    ) -> Metric {
        Metric { name, unit, help, labels: Vec::new(), value }
    }

    /// Adds a label. Its value may be any text.
    #[must_use]
    pub fn with_label(mut self, label: &'static str, value: impl Into<String>) -> Metric {
        self.labels.push((label, value.into()));
        self
    }

    fn render(&self, out: &mut String) {
        let mut line = |suffix: &str, bound: Option<&str>, value: f64| {
            let pairs = self.labels.iter().map(|(label, value)| {
                let value = escaped(value);
                format!("{label}=\"{value}\"")
            });
            let pairs: Vec<_> = pairs.chain(bound.map(|bound| format!("le=\"{bound}\""))).collect();
            let labels = match pairs.is_empty() {
                true => String::new(),
                false => format!("{{{}}}", pairs.join(",")),
            };
            // Writing to a text cannot fail.
            let _ = writeln!(out, "{}{suffix}{labels} {value}", self.name);
        };
        match &self.value {
            MetricValue::Counter(value) | MetricValue::Gauge(value) => line("", None, *value),
            MetricValue::Histogram(histogram) => {
                for (bound, count) in &histogram.buckets {
                    let bound = match bound.is_finite() {
                        true => bound.to_string(),
                        false => "+Inf".to_string(),
                    };
                    line("_bucket", Some(&bound), *count as f64);
                }
                line("_sum", None, histogram.sum);
                line("_count", None, histogram.count() as f64);
            }
        }
    }
}

impl<'m> IntoIterator for &'m Metrics {
    type Item = &'m Metric;
    type IntoIter = std::slice::Iter<'m, Metric>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl IntoIterator for Metrics {
    type Item = Metric;
    type IntoIter = std::vec::IntoIter<Metric>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Metrics of one name have to be next to each other, with different labels.
impl FromIterator<Metric> for Metrics {
    fn from_iter<I: IntoIterator<Item = Metric>>(metrics: I) -> Metrics {
        Metrics(metrics.into_iter().collect())
    }
}

/// As for [`Metrics::from_iter`].
impl Extend<Metric> for Metrics {
    fn extend<I: IntoIterator<Item = Metric>>(&mut self, metrics: I) {
        self.0.extend(metrics);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_help_are_escaped() {
        let value = MetricValue::Gauge(0.5);
        let metric = Metric::new("a", "", "one\\two\nthree", value).with_label("l", "\"\\\n}");
        let text = Metrics::from_iter([metric]).to_prometheus();
        let help = r"# HELP a one\\two\nthree";
        let sample = r#"a{l="\"\\\n}"} 0.5"#;
        assert_eq!(text, format!("{help}\n# TYPE a gauge\n{sample}\n"));
    }

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        let histogram =
            Histogram::new(vec![(1.0, 10), (2.0, 99), (5.0, 99), (f64::INFINITY, 100)], 0.0);
        let quantiles =
            [-1.0, 0.0, 0.1, 0.101, 0.99, 0.991, 1.0, 2.0].map(|q| histogram.quantile(q));
        let expected = [1.0, 1.0, 1.0, 2.0, 2.0, 5.0, 5.0, 5.0].map(Some);
        assert_eq!(quantiles, expected);
        assert_eq!(Histogram::new(vec![(f64::INFINITY, 0)], 0.0).quantile(0.5), None);
        let unbounded = Histogram::new(vec![(f64::INFINITY, 1)], 0.0);
        assert_eq!(unbounded.quantile(0.5), Some(f64::INFINITY));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    #[should_panic(expected = "ascend to infinity")]
    fn a_histogram_without_an_infinite_bound_is_refused() {
        let _ = Histogram::new(vec![(1.0, 1)], 1.0);
    }
}
