//! Conversion between microseconds since 1970 and dates with times of day, in UTC.

fn days_of(year: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if leap { 366 } else { 365 }
}

fn days_of_months(year: u64) -> [u64; 12] {
    let february = days_of(year) - 337;
    [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

/// Parses a UTC date and time of day, as in `2026-11-21T14:03:07.25Z` or `2026-11-21 14:03`, into
/// microseconds since 1970. Returns `None` for any other text.
pub(crate) fn parse_time(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let number = |text: &str| -> Option<u64> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse().ok())?
    };
    let mut date = date.split('-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (whole, part) = time.split_once('.').unwrap_or((time, ""));
    let mut time = whole.split(':').map(number);
    let (hour, minute) = (time.next()??, time.next()??);
    let second = time.next().unwrap_or(Some(0))?;
    let months = (1970..10_000).contains(&year).then(|| days_of_months(year))?;
    let days_in_month = *months.get((month as usize).checked_sub(1)?)?;
    let sound = (1..=days_in_month).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60
        && date.next().is_none()
        && time.next().is_none()
        && part.len() <= 6;
    if !sound {
        return None;
    }
    let micros = if part.is_empty() { 0 } else { number(&format!("{part:0<6}"))? };
    let days = (1970..year).map(days_of).sum::<u64>()
        + months[..month as usize - 1].iter().sum::<u64>()
        + day
        - 1;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros)
}

/// Formats microseconds since 1970 as a UTC date and time, as in `2026-11-21T14:03:07.250000Z`.
pub fn time(us: u64) -> String {
    let (days, rest) = (us / 86_400_000_000, us % 86_400_000_000);
    let (mut year, mut left) = (1970, days);
    while left >= days_of(year) {
        left -= days_of(year);
        year += 1;
    }
    let months = days_of_months(year);
    let mut month = 0;
    while left >= months[month] {
        left -= months[month];
        month += 1;
    }
    let seconds = rest / 1_000_000;
    format!(
        "{year:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        month + 1,
        left + 1,
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        rest % 1_000_000
    )
}

#[cfg(test)]
mod tests {
    use super::{parse_time, time};

    #[test]
    fn times_are_dates() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(time(951_782_400_000_001), "2000-02-29T00:00:00.000001Z");
        assert_eq!(time(1_798_761_599_999_999), "2026-12-31T23:59:59.999999Z");
        for us in [0, 951_782_400_000_001, 1_798_761_599_999_999, 1_700_000_000_123_456] {
            assert_eq!(parse_time(&time(us)), Some(us));
        }
        assert_eq!(parse_time("1970-01-02 00:01"), Some(86_460_000_000));
    }
}
