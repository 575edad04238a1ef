//! The contents of a figure, before it is drawn.

/// Repeated measurements of one value: the median is shown, the extremes as an error bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The lowest.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// The highest.
    pub high: f64,
}

impl Spread {
    /// The spread of the finite values among these; none if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        };
        Some(Spread { low, median, high })
    }

    /// The spread of a single value.
    pub fn one(value: f64) -> Spread {
        Spread { low: value, median: value, high: value }
    }
}

/// A line through points.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub label: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, Spread)>,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its name, at its left.
    pub label: String,
    /// Its length, or why it has none.
    pub value: Result<Spread, String>,
    /// Where it would end by the paper's ratio.
    pub paper: Option<f64>,
}

/// A bar made of parts, for breakdowns.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Its name.
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
        /// What the horizontal axis is, with its unit.
        x: String,
        /// Whether it is logarithmic.
        log_x: bool,
        /// Whether the vertical axis is.
        log_y: bool,
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
    /// The title above it.
    pub title: String,
    /// What is measured, with its unit.
    pub y: String,
    /// What is drawn.
    pub marks: Marks,
    /// Whether a model computed it. The figure then says so.
    pub simulated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_finite_values() {
        assert_eq!(Spread::of(vec![]), None);
        assert_eq!(Spread::of(vec![f64::NAN]), None);
        let spread = Spread::of(vec![3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!(spread, Spread { low: 1.0, median: 2.5, high: 10.0 });
    }
}
