//! Formats written by Redis before listpacks: ziplists, zipmaps, and sets of integers.

/// Bytes of a ziplist's header: total bytes, place of the last element, and number of elements.
const HEADER: usize = 10;

const END: u8 = 0xff;

/// A length of four bytes follows.
const LONG: u8 = 0xfe;

/// Stands for a number of elements that has to be counted.
const UNCOUNTED: u16 = u16::MAX;

fn split<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn word(rest: &mut &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(split(rest, 4)?.try_into().ok()?) as usize)
}

/// The elements of a ziplist, one call of `take` for each; `None` if the bytes are no ziplist, or
/// if `take` refuses an element.
pub fn read(bytes: &[u8], mut take: impl FnMut(Vec<u8>) -> Option<()>) -> Option<()> {
    let (mut header, mut rest) = bytes.split_at_checked(HEADER)?;
    let (total, last_place) = (word(&mut header)?, word(&mut header)?);
    let said = u16::from_le_bytes(header.try_into().ok()?);
    if total != bytes.len() {
        return None;
    }
    let (mut count, mut before) = (0usize, 0);
    while *rest.first()? != END {
        let (from, place) = (rest.len(), bytes.len() - rest.len());
        let said_before = match split(&mut rest, 1)?[0] {
            LONG => word(&mut rest)?,
            short => usize::from(short),
        };
        if said_before != before {
            return None;
        }
        take(element(&mut rest)?)?;
        before = from - rest.len();
        count += 1;
        if rest.first() == Some(&END) && place != last_place {
            return None;
        }
    }
    (rest.len() == 1 && (said == UNCOUNTED || usize::from(said) == count)).then_some(())
}

fn element(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let first = split(rest, 1)?[0];
    let integer = |rest: &mut &[u8], width: usize| {
        let taken = split(rest, width)?;
        let mut bytes = [0; 8];
        bytes[8 - width..].copy_from_slice(taken);
        Some((i64::from_le_bytes(bytes) >> (64 - 8 * width)).to_string().into_bytes())
    };
    let length = match first {
        0..=0x3f => usize::from(first),
        0x40..=0x7f => usize::from(first & 0x3f) << 8 | usize::from(split(rest, 1)?[0]),
        0x80 => u32::from_be_bytes(split(rest, 4)?.try_into().ok()?) as usize,
        0xc0 => return integer(rest, 2),
        0xd0 => return integer(rest, 4),
        0xe0 => return integer(rest, 8),
        0xf0 => return integer(rest, 3),
        0xfe => return integer(rest, 1),
        0xf1..=0xfd => return Some(((first & 0xf) - 1).to_string().into_bytes()),
        _ => return None,
    };
    Some(split(rest, length)?.to_vec())
}

/// The fields and values of a zipmap, as [`read`].
pub fn read_zipmap(bytes: &[u8], mut take: impl FnMut(Vec<u8>) -> Option<()>) -> Option<()> {
    let mut rest = bytes.get(1..)?;
    let length = |rest: &mut &[u8]| match split(rest, 1)?[0] {
        LONG => word(rest),
        short => Some(usize::from(short)),
    };
    while *rest.first()? != END {
        let field = length(&mut rest)?;
        take(split(&mut rest, field)?.to_vec())?;
        // 255 ends the map, and is no length.
        if *rest.first()? == END {
            return None;
        }
        let value = length(&mut rest)?;
        let unused = usize::from(split(&mut rest, 1)?[0]);
        take(split(&mut rest, value)?.to_vec())?;
        split(&mut rest, unused)?;
    }
    (rest.len() == 1).then_some(())
}

/// The integers of an intset, as [`read`].
pub fn read_intset(bytes: &[u8], mut take: impl FnMut(Vec<u8>) -> Option<()>) -> Option<()> {
    let mut rest = bytes;
    let (width, count) = (word(&mut rest)?, word(&mut rest)?);
    if !matches!(width, 2 | 4 | 8) || width.checked_mul(count)? != rest.len() {
        return None;
    }
    let mut last = None;
    for integer in rest.chunks_exact(width) {
        let mut bytes = [0; 8];
        bytes[8 - width..].copy_from_slice(integer);
        let value = i64::from_le_bytes(bytes) >> (64 - 8 * width);
        if last.is_some_and(|last| last >= value) {
            return None;
        }
        last = Some(value);
        take(value.to_string().into_bytes())?;
    }
    Some(())
}
