//! Loops over the components (`lanes`) of vectors, unrolled for four streams, the usual number.

/// Calls `each` with each pair of components.
#[inline(always)]
pub(crate) fn zip_lanes<A, B>(a: &[A], b: &[B], mut each: impl FnMut(&A, &B)) {
    if let (Ok(a), Ok(b)) = (<&[A; 4]>::try_from(a), <&[B; 4]>::try_from(b)) {
        for lane in 0..4 {
            each(&a[lane], &b[lane]);
        }
    } else {
        a.iter().zip(b).for_each(|(a, b)| each(a, b));
    }
}

/// As [`zip_lanes`], with the first vector mutable.
#[inline(always)]
pub(crate) fn zip_lanes_mut<A, B>(a: &mut [A], b: &[B], mut each: impl FnMut(&mut A, &B)) {
    if let (Ok(a), Ok(b)) = (<&mut [A; 4]>::try_from(&mut *a), <&[B; 4]>::try_from(b)) {
        for lane in 0..4 {
            each(&mut a[lane], &b[lane]);
        }
    } else {
        a.iter_mut().zip(b).for_each(|(a, b)| each(a, b));
    }
}

/// Sets every component to zero.
#[inline(always)]
pub fn clear(lanes: &mut [u64]) {
    match <&mut [u64; 4]>::try_from(&mut *lanes) {
        Ok(lanes) => *lanes = [0; 4],
        Err(_) => clear_any(lanes),
    }
}

/// Not inlined: the compiler would merge it with the usual case into one call for any length.
#[inline(never)]
fn clear_any(lanes: &mut [u64]) {
    lanes.fill(0);
}
