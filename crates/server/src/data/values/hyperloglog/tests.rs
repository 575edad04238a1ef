//! Tests of HyperLogLogs as strings.

use super::*;
use proptest::prelude::*;

const MOST_SPARSE: usize = 3_000;

fn of(numbers: std::ops::Range<u32>) -> Sketch {
    let mut sketch = Sketch::empty();
    for number in numbers {
        sketch.add(format!("element {number}").as_bytes(), MOST_SPARSE).unwrap();
    }
    sketch
}

#[test]
fn the_hash_is_that_of_redis() {
    // As in redis-server 7.0.15: the registers of these elements by PFDEBUG DECODE.
    let mut sketch = Sketch::empty();
    assert_eq!(sketch.shown_runs(), "Z:16384");
    ["a", "b", "abcdefgh", "abcdefghijklm", ""].into_iter().for_each(|element| {
        assert_eq!(sketch.add(element.as_bytes(), MOST_SPARSE), Ok(true), "{element}");
        assert_eq!(sketch.add(element.as_bytes(), MOST_SPARSE), Ok(false), "{element}");
    });
    assert_eq!(
        sketch.shown_runs(),
        "Z:1383 v:1,1 Z:4554 v:2,1 Z:3218 v:1,1 Z:3553 v:2,1 Z:3068 v:1,1 Z:603"
    );
}

#[test]
fn what_it_has_to_be_is_tested() {
    self_test().unwrap();
}

#[test]
fn strings_that_are_none() {
    for bytes in [&b""[..], b"HYLL", b"HYLLxxxxxxxxxxxx", b"HYLX\x01xxxxxxxxxxx"] {
        assert_eq!(Sketch::of(bytes.to_vec()), None);
    }
    let mut dense = of(0..10);
    dense.make_dense().unwrap();
    assert_eq!(dense.bytes().len(), DENSE_BYTES);
    assert_eq!(Sketch::of(dense.bytes()[..DENSE_BYTES - 1].to_vec()), None);
    assert_eq!(Sketch::of(dense.bytes().to_vec()), Some(dense));
}

/// Too few runs, too many, and a run cut off.
#[test]
fn runs_that_are_not_all_registers_are_an_error() {
    let whole = of(0..100);
    let bytes = whole.bytes();
    let cut = bytes[..bytes.len() - 1].to_vec();
    let long = [bytes, &[0x80]].concat();
    let broken = [&bytes[..HEAD_BYTES], &[0x7f]].concat();
    for bytes in [cut, long, broken] {
        let mut sketch = Sketch::of(bytes).unwrap();
        assert_eq!(sketch.count(), Err(Corrupt));
        assert_eq!(sketch.raise(&mut Registers::default()), Err(Corrupt));
        assert_eq!(sketch.make_dense(), Err(Corrupt));
        assert_eq!(sketch.raise_one(REGISTERS - 1, 33, MOST_SPARSE), Err(Corrupt));
    }
}

#[test]
fn an_estimate_is_kept_until_something_is_added() {
    let mut sketch = Sketch::empty();
    assert_eq!(sketch.last_estimate(), Some(0));
    sketch.drop_estimate();
    assert_eq!(sketch.last_estimate(), None);
    sketch.keep_estimate(77);
    assert_eq!(sketch.last_estimate(), Some(77));
}

proptest! {
    /// Whatever changes a sparse sketch, its registers are those of a list.
    #[test]
    fn sparse_registers_are_those_of_a_list(
        raised in proptest::collection::vec((0usize..40, 1u8..35), 0..200),
        spread in 1usize..400,
        most in 18usize..400,
    ) {
        let (mut sketch, mut registers) = (Sketch::empty(), Registers::default());
        for (at, rank) in raised {
            let at = at * spread;
            let is_higher = registers.0[at] < rank;
            registers.0[at] = registers.0[at].max(rank);
            prop_assert_eq!(sketch.raise_one(at, rank, most), Ok(is_higher));
            prop_assert!(!sketch.is_sparse() || sketch.bytes().len() <= most);
        }
        prop_assert_eq!(sketch.count().unwrap(), registers.count());
        prop_assert_eq!(sketch.registers().unwrap(), registers);
    }

    /// No bytes do harm.
    #[test]
    fn arbitrary_runs_do_no_harm(
        runs in proptest::collection::vec(any::<u8>(), 0..200),
        at in 0usize..REGISTERS,
        rank in 1u8..51,
    ) {
        let bytes = [&of(0..1).bytes()[..HEAD_BYTES], &runs].concat();
        let mut sketch = Sketch::of(bytes).unwrap();
        let _ = (sketch.count(), sketch.registers(), sketch.shown_runs());
        let _ = sketch.raise_one(at, rank, MOST_SPARSE);
    }
}
