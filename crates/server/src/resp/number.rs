//! Numbers as text: strict integers, floating-point numbers and exact decimal sums.

use bigdecimal::{BigDecimal, RoundingMode, num_bigint::Sign};

/// Reads an integer that is written as this crate writes it: no blanks, no `+`, no leading zeros.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let is_canonical = match digits {
        [b'0'] => !negative,
        [b'1'..=b'9', rest @ ..] => rest.len() < 19 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_canonical {
        return None;
    }
    let value = digits.iter().fold(0i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
    i64::try_from(if negative { -value } else { value }).ok()
}

/// Appends an integer as text.
pub fn push_integer(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0; 20];
    let (mut at, mut rest) = (digits.len(), value.unsigned_abs());
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// An integer as text.
pub fn integer_text(value: i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(20);
    push_integer(&mut out, value);
    out
}

/// A decimal number, or an infinity.
#[derive(Clone, Debug, PartialEq)]
pub enum Decimal {
    /// A number.
    Finite(BigDecimal),
    /// `inf` or `-inf`.
    Infinite,
}

/// More digits than any number needs, and few enough to compute with.
const LONGEST_DECIMAL: usize = 5_000;

/// The greatest exponent of a decimal number, about that of an 80-bit floating-point number.
const GREATEST_EXPONENT: u64 = 4_932;

/// The number of decimal places of a sum.
const PLACES: i64 = 17;

/// Reads a decimal number: digits with an optional fraction and exponent, or `inf`. `None` if it is
/// none, or too large or too long to compute with.
pub fn decimal(text: &[u8]) -> Option<Decimal> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= LONGEST_DECIMAL)?;
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
        return Some(Decimal::Infinite);
    }
    let (digits, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse().ok()?),
        None => (unsigned, 0i64),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && digits.bytes().filter(|byte| *byte == b'.').count() <= 1
        && digits.bytes().any(|byte| byte.is_ascii_digit());
    if !is_number || exponent.unsigned_abs() > GREATEST_EXPONENT {
        return None;
    }
    text.parse().ok().map(Decimal::Finite)
}

/// Adds two decimal numbers exactly, and rounds the sum to 17 places without trailing zeros.
pub fn decimal_sum(a: &BigDecimal, b: &BigDecimal) -> Vec<u8> {
    let sum = (a + b).with_scale_round(PLACES, RoundingMode::HalfEven);
    if sum.sign() == Sign::NoSign {
        return b"0".to_vec();
    }
    let text = sum.to_plain_string();
    let trimmed = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    trimmed.as_bytes().to_vec()
}

/// Appends a floating-point number as replies have it: `3`, `0.5`, `1e+30`, `inf`, `nan`.
pub fn push_float(out: &mut Vec<u8>, value: f64) {
    let text = match value {
        _ if value.is_nan() => "nan".to_string(),
        f64::INFINITY => "inf".to_string(),
        f64::NEG_INFINITY => "-inf".to_string(),
        _ if value == value.trunc() && value.abs() < 1e17 => format!("{value:.0}"),
        _ if value.abs() >= 1e17 || value.abs() < 1e-5 => {
            let text = format!("{value:e}");
            match text.split_once('e') {
                Some((digits, exponent)) if !exponent.starts_with('-') => {
                    format!("{digits}e+{exponent}")
                }
                _ => text,
            }
        }
        _ => value.to_string(),
    };
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_are_strict() {
        let good = ["0", "1", "-1", "9223372036854775807", "-9223372036854775808", "10"];
        for text in good {
            assert_eq!(integer(text.as_bytes()), Some(text.parse().unwrap()), "{text}");
        }
        let bad = ["", "-", "+1", "01", "-0", " 1", "1 ", "1.0", "0x1", "9223372036854775808"];
        for text in bad {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }

    fn sum(a: &str, b: &str) -> String {
        let of = |text: &str| match decimal(text.as_bytes()) {
            Some(Decimal::Finite(value)) => value,
            other => panic!("{text}: {other:?}"),
        };
        String::from_utf8(decimal_sum(&of(a), &of(b))).unwrap()
    }

    #[test]
    fn sums_are_exact_to_17_places() {
        assert_eq!(sum("1", "-1.1"), "-0.1");
        assert_eq!(sum("0.1", "0.2"), "0.3");
        assert_eq!(sum("5.0e3", "2e2"), "5200");
        assert_eq!(sum("17179869184", "1.5"), "17179869185.5");
        assert_eq!(sum("0.024390243902439025", "-0.024390243902439025"), "0");
        assert_eq!(sum("1e-18", "0"), "0");
        assert_eq!(sum("-1e-17", ".0"), "-0.00000000000000001");
        assert_eq!(sum("1e20", "1"), "100000000000000000001");
        assert_eq!(sum("100", "200"), "300");
        for bad in ["", " 1", "1 ", "abc", "1e", "e1", "nan", "--1", "1.2.3", "1_0", "1e9999999"] {
            assert_eq!(decimal(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(decimal(b"+inf"), Some(Decimal::Infinite));
        assert!(decimal(b"1e4932").is_some());
        assert_eq!(decimal(b"1\0\x002"), None);
    }

    #[test]
    fn floats_are_short() {
        let text = |value| {
            let mut out = Vec::new();
            push_float(&mut out, value);
            String::from_utf8(out).unwrap()
        };
        assert_eq!([3.0, 0.5, -0.1, 1e16].map(text), ["3", "0.5", "-0.1", "10000000000000000"]);
        assert_eq!([1e30, 1.5e-7, f64::INFINITY].map(text), ["1e+30", "1.5e-7", "inf"]);
    }

    proptest! {
        #[test]
        fn integers_read_back(value: i64) {
            prop_assert_eq!(integer(&integer_text(value)), Some(value));
            prop_assert_eq!(integer_text(value), value.to_string().into_bytes());
        }

        #[test]
        fn any_text_is_a_number_or_refused(text: Vec<u8>) {
            let _ = (integer(&text), decimal(&text));
        }
    }
}
