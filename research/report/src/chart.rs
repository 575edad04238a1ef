//! The contents of a figure, before it is drawn.

/// Repeated measurements of a value: the centre, and a 90 % interval for the value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The lower end of the interval.
    pub low: f64,
    /// The median; the mean of two to four measurements, as [`Spread::of`] says.
    pub median: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// The number of measurements, without outliers. A single value has no interval: both ends are
    /// the value itself.
    pub count: usize,
    /// The number of outliers left out.
    pub dropped: usize,
}

/// Student's t for a two-sided 90 % interval, of two, three and four measurements.
const STUDENT: [f64; 3] = [6.314, 2.920, 2.353];

/// Outliers are dropped from this number of measurements on: at most one of as many.
pub const ENOUGH: usize = 8;
/// A measurement is an outlier from this distance to the median on, in median distances: 3.5
/// standard deviations of a normal distribution, as Iglewicz and Hoaglin have it.
pub const FAR: f64 = 5.2;

impl Spread {
    /// The spread of `values`; none if there are none. Undefined values, as 0 over 0, are left out.
    ///
    /// A value may be infinite: the ratio of something to nothing. Ranks do not mind. The interval
    /// of few values is then that of their inverses, if all are positive, and goes from the lowest
    /// to the highest otherwise.
    ///
    /// From [`ENOUGH`] values on, outliers are dropped ([`FAR`]), unless there are more than one in
    /// as many: then the values vary, and none is an outlier.
    ///
    /// From five values on, the interval is bounded by two values, chosen by rank so that the
    /// median of the distribution lies between the two with a probability of at least 90 %,
    /// whatever the distribution. Fewer values do not allow the choice by rank: the interval is
    /// Student's interval of a mean, and so the centre is the mean: the geometric mean, by
    /// logarithms, or the arithmetic mean if a value is not positive.
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.retain(|value| !value.is_nan());
        values.sort_by(f64::total_cmp);
        let dropped = drop_outliers(&mut values);
        let count = values.len();
        let first = *values.first()?;
        let spread = match count {
            1 => Spread::one(first),
            2..=4 if values.iter().any(|value| value.is_infinite()) => unbounded(&values),
            2..=4 if first > 0.0 => {
                let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
                let Spread { low, median, high, .. } = student(&logs);
                Spread::around((low.exp(), median.exp(), high.exp()), count)
            }
            2..=4 => student(&values),
            _ => {
                let outside = ranks_outside(count);
                let (low, high) = (values[outside], values[count - 1 - outside]);
                Spread::around((low, middle(&values), high), count)
            }
        };
        Some(Spread { dropped, ..spread })
    }

    /// The spread of `count` measurements, none of them dropped.
    fn around((low, median, high): (f64, f64, f64), count: usize) -> Spread {
        Spread { low, median, high, count, dropped: 0 }
    }

    /// The median of the finite values in `values`, with the lowest and the highest value in place
    /// of an interval; none if there are none.
    pub fn range(values: Vec<f64>) -> Option<Spread> {
        let mut values = values;
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        Some(Spread::around((low, middle(&values), high), values.len()))
    }

    /// The spread of a value without an interval.
    pub fn one(value: f64) -> Spread {
        Spread::around((value, value, value), 1)
    }

    /// Whether all figures are finite, so that the spread can be drawn.
    pub fn is_finite(&self) -> bool {
        [self.low, self.median, self.high].into_iter().all(f64::is_finite)
    }

    /// The spread of the values of a function that never falls.
    pub fn map(self, make: impl Fn(f64) -> f64) -> Spread {
        let Spread { low, median, high, .. } = self;
        Spread { low: make(low), median: make(median), high: make(high), ..self }
    }

    /// The spread of the inverse values. The inverse of an interval with 0 has no upper end.
    pub fn inverse(self) -> Spread {
        let Spread { low, median, high, .. } = self;
        let most = if low > 0.0 { 1.0 / low } else { f64::INFINITY };
        Spread { low: 1.0 / high, median: 1.0 / median, high: most, ..self }
    }
}

/// The middle value of sorted values, or the mean of the middle two.
fn middle(values: &[f64]) -> f64 {
    let (at, odd) = (values.len() / 2, values.len() % 2 == 1);
    if odd { values[at] } else { (values[at - 1] + values[at]) / 2.0 }
}

/// The mean of two to four values, and Student's interval of the mean.
fn student(values: &[f64]) -> Spread {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let half = STUDENT[values.len() - 2] * (squares / (count - 1.0) / count).sqrt();
    Spread::around((mean - half, mean, mean + half), values.len())
}

/// The spread of two to four sorted values, of which some are infinite.
fn unbounded(values: &[f64]) -> Spread {
    let (first, last) = (values[0], values[values.len() - 1]);
    if first > 0.0 {
        let inverses: Vec<f64> = values.iter().map(|value| 1.0 / value).collect();
        return student(&inverses).inverse();
    }
    Spread::around((first, middle(values), last), values.len())
}

/// Drops the outliers of sorted values; returns their number.
fn drop_outliers(values: &mut Vec<f64>) -> usize {
    let count = values.len();
    if count < ENOUGH || values.iter().any(|value| value.is_infinite()) {
        return 0;
    }
    let centre = middle(values);
    let mut distances: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    distances.sort_by(f64::total_cmp);
    let usual = middle(&distances);
    let is_outlier = |value: f64| (value - centre).abs() > FAR * usual;
    let outliers = values.iter().filter(|value| is_outlier(**value)).count();
    // Where most values are equal, none has a distance to compare others with.
    if usual == 0.0 || outliers > count / ENOUGH {
        return 0;
    }
    values.retain(|value| !is_outlier(*value));
    outliers
}

/// How many of the lowest and of the highest of `count` values lie outside a 90 % interval of the
/// median: at most 5 % of all outcomes of `count` tosses of a coin have this few heads.
fn ranks_outside(count: usize) -> usize {
    let mut ways = 1.0;
    let mut sum = 0.0;
    for heads in 0..count {
        sum += ways;
        if sum / 2f64.powi(count as i32) > 0.05 {
            return heads.saturating_sub(1);
        }
        ways *= (count - heads) as f64 / (heads + 1) as f64;
    }
    0
}

/// A line through points.
#[derive(Clone, Debug)]
pub struct Line {
    /// The line's name in the legend.
    pub label: String,
    /// The points, from left to right.
    pub points: Vec<(f64, Spread)>,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The name, at the left of the bar.
    pub label: String,
    /// The length, or why the bar has no length.
    pub value: Result<Spread, String>,
    /// The end of the bar by the paper's ratio.
    pub paper: Option<f64>,
}

/// A bar made of parts, for breakdowns.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// The name of the bar.
    pub label: String,
    /// Lengths, in the order of the chart's parts.
    pub parts: Vec<f64>,
}

/// The marks of a chart.
#[derive(Clone, Debug)]
pub enum Marks {
    /// Lines over a numeric axis.
    Lines {
        /// The lines.
        lines: Vec<Line>,
        /// The label of the horizontal axis, with the unit.
        x: String,
        /// Whether the horizontal axis is logarithmic.
        log_x: bool,
        /// Whether the vertical axis is logarithmic.
        log_y: bool,
        /// A marked position on the horizontal axis, and the name of the mark.
        mark: Option<(f64, String)>,
        /// A paper's claims: the number of a line, a position and a value.
        claims: Vec<(usize, f64, f64)>,
    },
    /// Horizontal bars.
    Bars {
        /// The bars, from the top.
        bars: Vec<Bar>,
        /// Whether lengths are logarithmic.
        log: bool,
    },
    /// Horizontal bars made of parts.
    Stacks {
        /// The bars, from the top.
        stacks: Vec<Stack>,
        /// The names of the parts.
        parts: Vec<String>,
    },
}

/// One panel of a figure.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title above the panel.
    pub title: String,
    /// The metric, with the unit.
    pub y: String,
    /// The marks of the chart.
    pub marks: Marks,
    /// Whether a model computed the panel. The figure then says so.
    pub simulated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_defined_values() {
        assert_eq!(Spread::of(vec![]), None);
        assert_eq!(Spread::of(vec![f64::NAN]), None);
        assert_eq!(Spread::of(vec![f64::NAN, 3.0]), Some(Spread::one(3.0)));
    }

    /// Something over nothing is a result: it once vanished from the page.
    #[test]
    fn an_infinite_value_counts() {
        let inf = f64::INFINITY;
        let ends = |values: &[f64]| {
            let Spread { low, median, high, count, .. } = Spread::of(values.to_vec()).unwrap();
            (low, median, high, count)
        };
        for count in [1, 2, 3, 4, 5, 9] {
            assert_eq!(ends(&vec![inf; count]), (inf, inf, inf, count));
        }
        let (low, median, high, _) = ends(&[2.0, inf]);
        assert!(low > 0.0 && low < 2.0 && median == 4.0 && high == inf, "{low} {median}");
        assert_eq!(ends(&[0.0, 1.0, inf]), (0.0, 1.0, inf, 3));
        assert_eq!(ends(&[1.0, 2.0, 3.0, inf, inf]), (1.0, 3.0, inf, 5));
        assert!(!Spread::of(vec![1.0, inf]).unwrap().is_finite());
    }

    #[test]
    fn one_outlier_in_eight_is_dropped_and_said() {
        let usual = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06];
        let with = |more: &[f64]| Spread::of([&usual[..], more].concat()).unwrap();
        assert_eq!(with(&[]).dropped, 0);
        let spread = with(&[9.0]);
        assert_eq!((spread.count, spread.dropped, spread.high), (7, 1, 1.06));
        assert_eq!(with(&[1.11]).dropped, 0, "not far from the others");
        assert_eq!(with(&[8.0, 9.0]).dropped, 0, "two of nine are no outliers");
        // One failure among many successes is no outlier.
        let failures = [[0.0; 9].as_slice(), &[1.0]].concat();
        assert_eq!(Spread::of(failures).unwrap().dropped, 0);
        assert_eq!(with(&[f64::INFINITY]).dropped, 0);
    }

    #[test]
    fn a_range_goes_from_the_lowest_to_the_highest() {
        let range = Spread::range(vec![3.0, f64::NAN, 1.0, 2.0]).unwrap();
        assert_eq!(range, Spread { low: 1.0, median: 2.0, high: 3.0, count: 3, dropped: 0 });
        assert!(Spread::of(vec![3.0, 1.0, 2.0]).unwrap().high > range.high);
        assert_eq!(Spread::range(vec![f64::NAN]), None);
    }

    #[test]
    fn few_values_have_a_wide_interval_and_one_has_none() {
        let width = |values: &[f64]| {
            let spread = Spread::of(values.to_vec()).unwrap();
            assert!(spread.low <= spread.median && spread.median <= spread.high);
            assert_eq!(spread.count, values.len());
            spread.high / spread.low
        };
        assert_eq!(width(&[5.0]), 1.0);
        // Two values 10 % apart: the interval is 6.3 times as wide as the values are apart.
        assert!((width(&[1.0, 1.1]) - 1.1f64.powf(6.314)).abs() < 1e-9);
        assert!(width(&[1.0, 1.05, 1.1]) < width(&[1.0, 1.1]));
        assert_eq!(width(&[2.0, 2.0, 2.0]), 1.0);
        let zero = Spread::of(vec![0.0, 1.0]).unwrap();
        assert!(zero.low < 0.0 && zero.high > 1.0);
        assert_eq!((zero.median, zero.inverse().high), (0.5, f64::INFINITY));
    }

    /// An interval of the mean round a median would be an interval of neither.
    #[test]
    fn the_centre_of_few_values_is_that_of_their_interval() {
        for values in [vec![1.0, 9.0], vec![1.0, 2.0, 16.0], vec![1.0, 1.1, 1.2, 8.0]] {
            let Spread { low, median, high, .. } = Spread::of(values.clone()).unwrap();
            assert!((median / low / (high / median) - 1.0).abs() < 1e-9, "{values:?}");
        }
        let some = Spread::of(vec![-1.0, 0.0, 4.0]).unwrap();
        assert!((some.median - 1.0).abs() < 1e-9);
        assert!((some.high - some.median - (some.median - some.low)).abs() < 1e-9);
        // From five values on the centre is the median.
        assert_eq!(Spread::of(vec![1.0, 1.1, 1.2, 1.3, 90.0]).unwrap().median, 1.2);
    }

    #[test]
    fn five_values_or_more_are_bounded_by_ranks() {
        let spread = |count: i32| Spread::of((1..=count).map(f64::from).collect()).unwrap();
        // 2/32 of the outcomes lie outside of five, 2 * 9/256 outside of the inner six of eight.
        assert_eq!((spread(5).low, spread(5).high), (1.0, 5.0));
        assert_eq!((spread(7).low, spread(7).high), (1.0, 7.0));
        assert_eq!((spread(8).low, spread(8).high), (2.0, 7.0));
        assert_eq!((spread(10).low, spread(10).high), (2.0, 9.0));
        assert_eq!((spread(11).low, spread(11).high), (3.0, 9.0));
    }

    #[test]
    fn the_interval_covers_the_median_as_often_as_it_says() {
        // A fixed sequence of pseudo-random values, uniform below 1: their median is one half.
        let mut state = 12_345_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            0.5 + (state >> 11) as f64 / (1u64 << 53) as f64
        };
        for count in [3, 5, 7, 10] {
            let rounds = 2_000;
            let covered = (0..rounds)
                .filter(|_| {
                    let spread = Spread::of((0..count).map(|_| random()).collect()).unwrap();
                    spread.low <= 1.0 && 1.0 <= spread.high
                })
                .count();
            let share = covered as f64 / f64::from(rounds);
            assert!(share > 0.87, "{count} values: {share}");
        }
    }
}
