//! Loops over the lanes of vectors, unrolled for the usual number of streams.

/// Calls `each` with every lane of the one and the other.
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

/// As [`zip_lanes`], where the first ones are changed.
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

/// Sets every lane to zero.
#[inline(always)]
pub(crate) fn clear(lanes: &mut [u64]) {
    match <&mut [u64; 4]>::try_from(&mut *lanes) {
        Ok(lanes) => *lanes = [0; 4],
        Err(_) => clear_any(lanes),
    }
}

/// Apart: in one with the usual number the two would become one call, for any length.
#[inline(never)]
fn clear_any(lanes: &mut [u64]) {
    lanes.fill(0);
}
