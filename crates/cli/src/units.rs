//! Sizes, durations and rates: parsing of options, and formatting for output.

/// Reads seconds: a plain number, or a number with `us`, `ms`, `s` or `m`.
///
/// # Errors
/// A sentence with the right form.
pub fn seconds(text: &str) -> Result<f64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a duration: give seconds, or a number with us, ms, s or m, as in 500ms"
        )
    };
    let (number, unit) = split(text);
    let number = number.parse::<f64>().map_err(|_| wrong())?;
    let value = match unit {
        "" | "s" => number,
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "m" => number * 60.0,
        _ => return Err(wrong()),
    };
    // The limit of about a year keeps all derived values finite.
    if (0.0..=3.2e7).contains(&value) { Ok(value) } else { Err(wrong()) }
}

/// As [`seconds`], but above 0.
///
/// # Errors
/// A sentence with the right form.
pub fn some_seconds(text: &str) -> Result<f64, String> {
    let value = seconds(text)?;
    if value > 0.0 { Ok(value) } else { Err("it must be longer than 0 seconds".to_string()) }
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    (text[..end].trim_end(), &text[end..])
}

/// Reads a rate or another positive number.
///
/// # Errors
/// A sentence with the right form.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err(format!("{text:?} is not a number above 0")),
    }
}

fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    let (scale, unit) = steps
        .iter()
        .find(|(scale, _)| value >= *scale)
        .or(steps.last())
        .copied()
        .unwrap_or((1.0, ""));
    let value = value / scale;
    // Three significant digits.
    let digits = match value {
        v if v >= 100.0 || (v == v.trunc() && scale == 1.0) => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{unit}")
}

/// Reads a size in bytes: a number, with KB, MB, GB, TB, KiB, MiB, GiB, TiB or nothing behind
/// it.
///
/// # Errors
/// A sentence with the right form.
pub fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 9] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("KB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("", 1),
    ];
    UNITS
        .iter()
        .find_map(|(unit, bytes)| {
            let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            (number.is_finite() && number >= 0.0).then_some((number * *bytes as f64) as u64)
        })
        .ok_or(format!("{text:?} is not a size such as 512MiB or 2GB"))
}

/// A number, short: 1.23 M.
pub fn count(value: f64) -> String {
    scaled(value, &[(1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")])
}

/// A rate, short: 1.23 M/s.
pub fn rate(per_second: f64) -> String {
    match count(per_second) {
        text if text.contains(' ') => text + "/s",
        text => text + " /s",
    }
}

/// A size, short, in powers of ten: 45.6 MB.
pub fn bytes(value: f64) -> String {
    scaled(value, &[(1e12, " TB"), (1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B")])
}

/// A time, short: 1.23 ms.
pub fn time(seconds: f64) -> String {
    if seconds >= 120.0 {
        return format!("{:.0} min {:.0} s", (seconds / 60.0).floor(), (seconds % 60.0).floor());
    }
    scaled(seconds, &[(1.0, " s"), (1e-3, " ms"), (1e-6, " us"), (1e-9, " ns")])
}

/// A whole number with separators between thousands: 1,234,567.
pub fn exact(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
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
    fn durations_take_units_and_refuse_others() {
        assert_eq!(seconds("2"), Ok(2.0));
        assert_eq!(seconds("0.5s"), Ok(0.5));
        assert_eq!(seconds("250ms"), Ok(0.25));
        assert_eq!(seconds("5us"), Ok(5e-6));
        assert_eq!(seconds("2m"), Ok(120.0));
        for wrong in ["", "s", "1h", "-1", "inf", "nan", "1e99"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert!(some_seconds("0").is_err());
        assert!(positive("0").is_err() && positive("inf").is_err());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(rate(1_234_567.0), "1.23 M/s");
        assert_eq!(rate(12.0), "12 /s");
        assert_eq!(bytes(45_600_000.0), "45.6 MB");
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(time(0.00123), "1.23 ms");
        assert_eq!(time(125.0), "2 min 5 s");
        assert_eq!(exact(1_234_567), "1,234,567");
        assert_eq!(exact(12), "12");
    }
}
