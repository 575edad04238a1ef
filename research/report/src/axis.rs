//! Axes: the position of a value, and the round numbers beside the axis.

/// A linear or logarithmic axis from the value `low` at pixel `from` to `high` at pixel `to`.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Axis {
    /// A linear axis from 0 to a round number a little above `high`.
    pub fn linear(high: f64, from: f64, to: f64) -> Axis {
        let high = if high > 0.0 { high } else { 1.0 };
        let step = step(high, 5);
        let high = (high * 1.02 / step).ceil() * step;
        Axis { low: 0.0, high, logarithmic: false, from, to }
    }

    /// A linear axis between two values, with room on both sides.
    pub fn between(low: f64, high: f64, from: f64, to: f64) -> Axis {
        let room = if high > low { (high - low) * 0.04 } else { 0.5 };
        Axis { low: low - room, high: high + room, logarithmic: false, from, to }
    }

    /// A logarithmic axis that contains both values.
    pub fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Axis {
        let low = low.max(f64::MIN_POSITIVE);
        let high = high.max(low * 1.5);
        let room = (high / low).powf(0.05);
        Axis { low: low / room, high: high * room, logarithmic: true, from, to }
    }

    /// The position of a value in pixels.
    pub fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low).ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    /// Round values along the axis, at least two.
    pub fn ticks(&self) -> Vec<f64> {
        let ticks = if self.logarithmic { self.powers() } else { self.multiples() };
        if ticks.len() < 2 { self.multiples() } else { ticks }
    }

    /// Multiples of a round step.
    fn multiples(&self) -> Vec<f64> {
        let step = step(self.high - self.low, 5);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|at| at as f64 * step).collect()
    }

    /// Powers of ten, and values between where there are few.
    fn powers(&self) -> Vec<f64> {
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let few = self.high / self.low < 30.0;
        let factors: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
        decades
            .flat_map(|decade| factors.iter().map(move |f| f * 10f64.powi(decade)))
            .filter(|value| (self.low..=self.high).contains(value))
            .collect()
    }
}

/// A step of 1, 2 or 5 times a power of ten, so about `parts` steps make up `range`.
fn step(range: f64, parts: u32) -> f64 {
    let rough = range / f64::from(parts);
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

/// A short number for an axis or a bar, with k, M or G.
pub fn short(value: f64) -> String {
    if value.is_infinite() {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}\u{221e}");
    }
    let magnitude = value.abs();
    let (scaled, unit) = match magnitude {
        m if m >= 1e9 => (value / 1e9, "G"),
        m if m >= 1e6 => (value / 1e6, "M"),
        m if m >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        s if s >= 100.0 => 0,
        s if s >= 10.0 => 1,
        s if s >= 1.0 || s == 0.0 => 2,
        s => (2 - s.log10().floor() as i32).clamp(2, 6) as usize,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    };
    text + unit
}

/// A whole number with the thousands apart, as in `200,000`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        let axis = Axis::linear(1_234_567.0, 0.0, 100.0);
        assert_eq!(axis.ticks(), [0.0, 5e5, 1e6, 1.5e6]);
        let axis = Axis::logarithmic(1.0, 8.0, 0.0, 100.0);
        assert_eq!(axis.ticks(), [1.0, 2.0, 5.0]);
        assert!(axis.ticks().iter().all(|t| (0.0..=100.0).contains(&axis.place(*t))));
        assert!(Axis::linear(0.0, 0.0, 1.0).place(0.5).is_finite());
        // None of 1, 2 and 5 lies between these, or one.
        assert_eq!(Axis::logarithmic(5.3, 8.4, 0.0, 100.0).ticks(), [6.0, 7.0, 8.0]);
        for (low, high) in [(7.0, 11.0), (0.5, 0.5), (1e6, 1.01e6), (3.0, 4.9)] {
            let axis = Axis::logarithmic(low, high, 0.0, 100.0);
            assert!(axis.ticks().len() >= 2, "{low} to {high}: {:?}", axis.ticks());
        }
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1_500.0, "1.5k"),
            (1_234_567.0, "1.23M"),
            (0.0314, "0.0314"),
            (250.4, "250"),
            (2e9, "2G"),
            (f64::INFINITY, "\u{221e}"),
            (f64::NEG_INFINITY, "-\u{221e}"),
        ] {
            assert_eq!(short(value), text);
        }
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (200_000, "200,000")] {
            assert_eq!(grouped(number), text);
        }
    }
}
