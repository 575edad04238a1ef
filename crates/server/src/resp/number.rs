//! Numbers as text: strict integers, floating-point numbers and exact decimal sums.

use bigdecimal::{BigDecimal, RoundingMode, num_bigint::Sign};

/// Reads an integer in the written form of this crate: no blanks, no `+`, no leading zeros.
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

/// Reads a decimal number: digits with an optional fraction and exponent, or `inf`. `None` if the
/// text is no number, or a number too large or too long to compute with.
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

/// Whole numbers up to this amount are written with all their digits.
const MOST_WHOLE: f64 = (1u64 << 62) as f64;

/// Appends a floating-point number as Redis 7.2 does, with the necessary digits: `3`, `0.000001`,
/// `1.5e-7`, `1e+30`, `inf`, `nan`.
pub fn push_float(out: &mut Vec<u8>, value: f64) {
    let text = match value {
        _ if value.is_nan() => "nan".to_string(),
        f64::INFINITY => "inf".to_string(),
        f64::NEG_INFINITY => "-inf".to_string(),
        _ if value == value.trunc() && value.abs() <= MOST_WHOLE => format!("{value:.0}"),
        _ => {
            let text = format!("{value:e}");
            let (digits, exponent) = text.split_once('e').expect("it is written so");
            let exponent: i32 = exponent.parse().expect("it is a number");
            let count = digits.bytes().filter(u8::is_ascii_digit).count() as i32;
            // The place of the last digit, as a power of ten.
            let last = exponent - (count - 1);
            let is_plain = match last {
                0.. => exponent < count + 7,
                _ => last > -7 || exponent.abs() < 4,
            };
            match is_plain {
                true => value.to_string(),
                false if exponent < 0 => text,
                false => format!("{digits}e+{exponent}"),
            }
        }
    };
    out.extend_from_slice(text.as_bytes());
}

/// A floating-point number that was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Float {
    /// The number; an infinity or 0 if the number in the text is too large or too small.
    pub value: f64,
    /// The value differs from the text.
    pub is_out_of_range: bool,
}

/// Reads a number as C does: decimal or hexadecimal with an optional exponent, `inf`, `infinity` or
/// `nan`; blanks in front. `None` without a number, or with bytes behind the number.
pub fn float(text: &[u8]) -> Option<Float> {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let blanks = text.iter().take_while(|byte| is_blank(byte)).count();
    let text = std::str::from_utf8(&text[blanks..]).ok()?;
    let (sign, unsigned) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    let amount = match unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        Some(digits) => hexadecimal(digits)?,
        None if unsigned.starts_with(['+', '-']) => return None,
        None => unsigned.parse::<f64>().ok()?,
    };
    let says_infinite = unsigned.starts_with(['i', 'I']);
    let is_zero = |byte: u8| matches!(byte, b'0' | b'.' | b'x' | b'X');
    let exponent = if unsigned.contains(['x', 'X']) { ['p', 'P'] } else { ['e', 'E'] };
    let says_zero = unsigned.split(exponent).next().is_some_and(|text| text.bytes().all(is_zero));
    let is_out_of_range = amount.is_infinite() && !says_infinite || amount == 0.0 && !says_zero;
    Some(Float { value: sign * amount, is_out_of_range })
}

/// Reads hexadecimal digits with an optional point and a binary exponent.
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = match text.split_once(['p', 'P']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let (mut amount, mut places, mut seen) = (0u64, 0i32, 0);
    for (at, digit) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(digit.to_digit(16)?);
        seen += 1;
        match amount >> 58 {
            0 => {
                amount = amount << 4 | digit;
                places -= i32::from(at >= whole.len());
            }
            // Only whether there is more matters now.
            _ => {
                amount |= u64::from(digit != 0);
                places += i32::from(at < whole.len());
            }
        }
    }
    let exponent = exponent.saturating_add(places.saturating_mul(4)).clamp(-4_000, 4_000);
    // In two steps: the power by itself may be out of range where the product is not.
    let half = exponent / 2;
    let power = |exponent: i32| 2f64.powi(exponent.clamp(-1_000, 1_000));
    (seen > 0).then(|| {
        let rest = exponent - half;
        amount as f64 * power(half) * power(rest)
    })
}

/// Appends a number with this many significant digits at most, as `%g` of C does it.
#[cfg(any(test, feature = "lua"))]
pub fn push_general(out: &mut Vec<u8>, value: f64, digits: usize) {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        let name = if value.is_nan() { "nan" } else { "inf" };
        out.extend_from_slice(sign.as_bytes());
        out.extend_from_slice(name.as_bytes());
        return;
    }
    if value == value.trunc() && value.abs() < 1e14 && (value != 0.0 || value.is_sign_positive()) {
        return push_integer(out, value as i64);
    }
    let text = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e').expect("it is written so");
    let exponent: i32 = exponent.parse().expect("it is a number");
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    let text = if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
    } else {
        let behind = (digits as i32 - 1 - exponent).max(0) as usize;
        without_zeros(&format!("{value:.behind$}"))
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
        let number = |text: &str| match decimal(text.as_bytes()) {
            Some(Decimal::Finite(value)) => value,
            other => panic!("{text}: {other:?}"),
        };
        String::from_utf8(decimal_sum(&number(a), &number(b))).unwrap()
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
        let whole = 4_611_686_018_427_387_904.0;
        assert_eq!([whole, -whole].map(text), ["4611686018427387904", "-4611686018427387904"]);
        assert_eq!([1e18, 1e19, 1e300].map(text), ["1000000000000000000", "1e+19", "1e+300"]);
        assert_eq!([1e-6, 1e-7, 0.1234567].map(text), ["0.000001", "1e-7", "0.1234567"]);
        assert_eq!([1.23456e-4, 123.456].map(text), ["1.23456e-4", "123.456"]);
        let long = [1_234_567_890.123_456_7, 1_234.567_890_123_456_7];
        assert_eq!(long.map(text), ["1.2345678901234567e+9", "1234.5678901234567"]);
    }

    #[test]
    fn floats_are_read_as_c_does() {
        let value = |text: &str| float(text.as_bytes()).map(|number| number.value);
        let good = [
            ("1", 1.0),
            (" \t+1.5e1", 15.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("0x10", 16.0),
            ("-0x1.8p1", -3.0),
            ("0X.8P-1", 0.25),
            ("0x1p-1074", 5e-324),
            ("Infinity", f64::INFINITY),
            ("-inf", f64::NEG_INFINITY),
            ("1e400", f64::INFINITY),
            ("1e-400", 0.0),
        ];
        good.iter().for_each(|(text, number)| assert_eq!(value(text), Some(*number), "{text}"));
        for bad in ["", " ", "-", ".", "1 ", "0x", "0xg", "1e", "--1", "+-1", "1_0", "infi", "0x1p"]
        {
            assert_eq!(value(bad), None, "{bad}");
        }
        let is_out =
            |text: &str| float(text.as_bytes()).is_some_and(|number| number.is_out_of_range);
        assert!(["1e400", "-1e400", "1e-400", "0x1p5000", "0x1p-5000"].into_iter().all(is_out));
        assert!(!["inf", "0", "-0.0e5", "0x0", "1e300", "5e-324"].into_iter().any(is_out));
    }

    proptest! {
        #[test]
        fn integers_read_back(value: i64) {
            prop_assert_eq!(integer(&integer_text(value)), Some(value));
            prop_assert_eq!(integer_text(value), value.to_string().into_bytes());
        }

        #[test]
        fn any_text_is_a_number_or_refused(text: Vec<u8>) {
            let _ = (integer(&text), decimal(&text), float(&text));
        }

        #[test]
        fn floats_read_back(bits: u64) {
            let value = f64::from_bits(bits);
            let mut out = Vec::new();
            push_float(&mut out, value);
            let back = float(&out).unwrap().value;
            prop_assert!(back == value || back.is_nan() && value.is_nan(), "{value:e}");
        }
    }

    #[test]
    fn general_numbers_are_written_as_in_c() {
        for (value, digits, text) in [
            (0.0, 14, "0"),
            (-0.0, 14, "-0"),
            (3.0, 17, "3"),
            (0.1, 17, "0.10000000000000001"),
            (0.1, 14, "0.1"),
            (1e15, 17, "1000000000000000"),
            (1e17, 17, "1e+17"),
            (1e100, 14, "1e+100"),
            (9_007_199_254_740_992.0, 14, "9.007199254741e+15"),
            (1.5e-7, 14, "1.5e-07"),
            (0.000_123, 14, "0.000123"),
            (-2.5, 14, "-2.5"),
            (f64::NEG_INFINITY, 14, "-inf"),
        ] {
            let mut out = Vec::new();
            push_general(&mut out, value, digits);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
