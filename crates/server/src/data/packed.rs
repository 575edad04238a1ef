//! Collections packed into the body of their key's row: each element is a length, seven bits a byte
//! with the lowest first, and the element's bytes.

use hyades::Abort;

/// Appends an element.
pub fn push(body: &mut Vec<u8>, element: &[u8]) {
    push_number(body, element.len() as u64);
    body.extend_from_slice(element);
}

/// Appends a number, in the form of a length.
pub fn push_number(body: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        body.push(number as u8 | 0x80);
        number >>= 7;
    }
    body.push(number as u8);
}

/// Takes a number off; `None` if the body was not written by this program.
pub fn take_number(body: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = body.split_first()?;
        *body = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The elements in their order.
///
/// # Errors
/// The body was not written by this program: it was read while it was overwritten, and the
/// transaction will not be validated.
pub fn elements(mut body: &[u8]) -> Result<Vec<&[u8]>, Abort> {
    let mut found = Vec::new();
    while !body.is_empty() {
        let element = take(&mut body).ok_or(Abort::Conflict)?;
        found.push(element);
    }
    Ok(found)
}

/// The bytes of a packed element of this length, including the length.
pub fn size(length: usize) -> usize {
    let digits = usize::BITS - (length | 1).leading_zeros();
    length + digits.div_ceil(7) as usize
}

/// Takes the first element off; `None` if the body was not written by this program.
pub fn take<'a>(body: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(body)?).ok()?;
    let (element, rest) = body.split_at_checked(length)?;
    *body = rest;
    Some(element)
}

/// Bytes of the time of a value.
pub const TIME_BYTES: usize = 6;

/// A value of a field, and the time of expiry of the field, in milliseconds since 1970.
pub type TimedValue<'a> = (&'a [u8], Option<i64>);

/// Appends a value of a field, with the time of expiry of the field, if there is one. A value
/// without a time is packed as any other element. The length of a value with a time ends with an
/// additional byte 0, which no length needs, and the time follows in six bytes: so a body itself
/// tells which values have times.
pub fn push_timed(body: &mut Vec<u8>, (value, expires): TimedValue<'_>) {
    push_number(body, value.len() as u64);
    if let Some(at_ms) = expires {
        debug_assert!((0..1 << (8 * TIME_BYTES)).contains(&at_ms));
        *body.last_mut().expect("a number has a digit") |= 0x80;
        body.push(0);
        body.extend_from_slice(&at_ms.to_le_bytes()[..TIME_BYTES]);
    }
    body.extend_from_slice(value);
}

/// Takes a value off, as [`push_timed`] has appended it; `None` if the body was not written by this
/// program.
pub fn take_timed<'a>(body: &mut &'a [u8]) -> Option<TimedValue<'a>> {
    let begin = *body;
    let length = usize::try_from(take_number(body)?).ok()?;
    let digits = begin.len() - body.len();
    let mut expires = None;
    if digits > 1 && begin[digits - 1] == 0 {
        let (time, rest) = body.split_at_checked(TIME_BYTES)?;
        let mut word = [0; 8];
        word[..TIME_BYTES].copy_from_slice(time);
        (*body, expires) = (rest, Some(i64::from_le_bytes(word)));
    }
    let (value, rest) = body.split_at_checked(length)?;
    *body = rest;
    Some((value, expires))
}

/// Takes a packed value off, with length and time.
pub fn take_packed<'a>(body: &mut &'a [u8]) -> Option<&'a [u8]> {
    let begin = *body;
    take_timed(body)?;
    Some(&begin[..begin.len() - body.len()])
}

/// A body with these elements.
pub fn pack<'a>(elements: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut body = Vec::new();
    elements.into_iter().for_each(|element| push(&mut body, element));
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_of_any_size() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 3 << 20] {
            let element = vec![7; length];
            let body = pack([&element[..], b"x"]);
            assert_eq!(body.len(), size(length) + size(1));
            assert_eq!(elements(&body).unwrap(), [&element[..], b"x"]);
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_reads_back(all: Vec<Vec<u8>>) {
            let body = pack(all.iter().map(Vec::as_slice));
            prop_assert_eq!(elements(&body).unwrap(), all);
        }

        #[test]
        fn values_with_and_without_times_read_back(
            all: Vec<(Vec<u8>, Option<u64>)>, length in 0usize..40_000
        ) {
            let longer = (vec![7; length], Some(length as u64));
            let all: Vec<(Vec<u8>, Option<i64>)> = all
                .into_iter()
                .chain([longer])
                .map(|(value, at)| (value, at.map(|at| (at >> 16) as i64)))
                .collect();
            let (mut body, mut sizes) = (Vec::new(), Vec::new());
            for (value, at) in &all {
                let begin = body.len();
                push_timed(&mut body, (value, *at));
                sizes.push(body.len() - begin);
                let least = size(value.len());
                let more = if at.is_some() { 1 + TIME_BYTES } else { 0 };
                prop_assert_eq!(body.len() - begin, least + more);
            }
            let (mut rest, mut packed) = (&body[..], &body[..]);
            for ((value, at), size) in all.iter().zip(sizes) {
                prop_assert_eq!(take_timed(&mut rest), Some((&value[..], *at)));
                prop_assert_eq!(take_packed(&mut packed).map(<[u8]>::len), Some(size));
            }
            prop_assert!(rest.is_empty() && packed.is_empty());
        }

        #[test]
        fn numbers_read_back(number: u64, shift in 0..64) {
            let (number, mut body) = (number >> shift, Vec::new());
            push_number(&mut body, number);
            let mut rest = &body[..];
            prop_assert_eq!((take_number(&mut rest), rest.len()), (Some(number), 0));
        }

        #[test]
        fn any_body_is_read_or_refused(body: Vec<u8>) {
            let _ = elements(&body);
            let mut rest = &body[..];
            while take_packed(&mut rest).is_some() {}
        }
    }
}
