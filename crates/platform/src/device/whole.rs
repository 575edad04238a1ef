//! Complete transfers from partial ones: the system may transfer less than requested, or be
//! interrupted. A single loop for the file system and for the simulated disk; the simulated disk
//! makes partial transfers on purpose.

use std::io::{self, ErrorKind, IoSlice};

/// Writes all slices at `offset`; `some` writes a part of its argument and returns the part's
/// length.
pub(super) fn write(
    slices: &[IoSlice<'_>],
    offset: u64,
    mut some: impl FnMut(&[IoSlice<'_>], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let total: usize = slices.iter().map(|s| s.len()).sum();
    let mut done = 0;
    while done < total {
        let written = if done == 0 {
            some(slices, offset)
        } else {
            // Rare (a full disk, a signal): the rest, as a new list of slices.
            let mut skip = done;
            let rest = slices.iter().filter_map(|slice| {
                let skipped = skip.min(slice.len());
                skip -= skipped;
                (skipped < slice.len()).then(|| IoSlice::new(&slice[skipped..]))
            });
            some(&rest.collect::<Vec<_>>(), offset + done as u64)
        };
        match written {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => done += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads until the buffer is full or `some` reads nothing; returns the bytes read.
pub(super) fn read(
    buffer: &mut [u8],
    offset: u64,
    mut some: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match some(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_interrupted_transfers_are_finished() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let parts: Vec<Vec<u8>> = (0..random.usize(1..6))
                .map(|_| (0..random.usize(0..9)).map(|_| random.u8(..)).collect())
                .collect();
            let slices: Vec<IoSlice<'_>> = parts.iter().map(|p| IoSlice::new(p)).collect();
            let mut medium = Vec::new();
            write(&slices, 7, |slices, offset| {
                if random.u8(0..3) == 0 {
                    return Err(ErrorKind::Interrupted.into());
                }
                assert_eq!(offset, 7 + medium.len() as u64);
                let all: Vec<u8> = slices.iter().flat_map(|s| s.to_vec()).collect();
                let n = random.usize(1..=all.len());
                medium.extend_from_slice(&all[..n]);
                Ok(n)
            })
            .unwrap();
            assert_eq!(medium, parts.concat());
            let mut buffer = vec![0; medium.len() + 3];
            let n = read(&mut buffer, 0, |buffer, offset| {
                let rest = &medium[offset as usize..];
                let n = if rest.is_empty() { 0 } else { random.usize(1..=rest.len()) };
                buffer[..n].copy_from_slice(&rest[..n]);
                Ok(n)
            });
            assert_eq!((n.unwrap(), &buffer[..medium.len()]), (medium.len(), &medium[..]));
        }
    }

    #[test]
    fn a_device_that_takes_nothing_is_an_error_and_no_endless_loop() {
        let error = write(&[IoSlice::new(b"x")], 0, |_, _| Ok(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WriteZero);
    }
}
