//! Collections packed into the body of their key's row: each element is its length, seven bits a
//! byte with the lowest first, and its bytes.

use hyades::Abort;

/// Appends an element.
pub fn push(body: &mut Vec<u8>, element: &[u8]) {
    let mut length = element.len();
    while length >= 0x80 {
        body.push(length as u8 | 0x80);
        length >>= 7;
    }
    body.push(length as u8);
    body.extend_from_slice(element);
}

/// The elements in their order.
///
/// # Errors
/// The body is none of this program's: it was read while it was overwritten, and the transaction
/// will not be validated.
pub fn elements(mut body: &[u8]) -> Result<Vec<&[u8]>, Abort> {
    let mut found = Vec::new();
    while !body.is_empty() {
        let element = take(&mut body).ok_or(Abort::Conflict)?;
        found.push(element);
    }
    Ok(found)
}

/// The bytes of an element of this length, with its length.
pub fn size(length: usize) -> usize {
    let digits = usize::BITS - (length | 1).leading_zeros();
    length + digits.div_ceil(7) as usize
}

/// Takes the first element off; `None` if the body is none of this program's.
pub fn take<'a>(body: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut length = 0usize;
    for shift in (0..28).step_by(7) {
        let (&byte, rest) = body.split_first()?;
        *body = rest;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let (element, rest) = body.split_at_checked(length)?;
            *body = rest;
            return Some(element);
        }
    }
    None
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
        fn any_body_is_read_or_refused(body: Vec<u8>) {
            let _ = elements(&body);
        }
    }
}
