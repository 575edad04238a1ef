use super::*;
use crate::storage::layout::layout_of_tests as layout;
use crate::storage::row::{apply_delta, encode_delta};
use crate::storage::schema::Set;
use proptest::prelude::*;

fn row(layout: &Layout, a: Option<&str>, c: &[u8]) -> Vec<u8> {
    let mut row = Vec::new();
    layout.encode(&[1i64.into(), a.into(), 2i32.into(), c.into()], &mut row).unwrap();
    row
}

fn delta(layout: &Layout, sets: &[Set<'_>]) -> Vec<u8> {
    let mut delta = Vec::new();
    encode_delta(layout, sets, &mut delta).unwrap();
    delta
}

fn delta_of_c(layout: &Layout, c: &[u8]) -> Vec<u8> {
    delta(layout, &[Set { column: 3, value: c.into() }])
}

/// The edits from one value to another, checked by expansion. `None` if not worth logging.
fn edits(old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let layout = layout();
    let (row, delta) = (row(&layout, None, old), delta_of_c(&layout, new));
    let mut edits = vec![7];
    if !push_edits(&layout, &row, &delta, &mut edits) {
        assert_eq!(edits, [7], "what is not worth it leaves nothing");
        return None;
    }
    let edits = edits.split_off(1);
    assert_eq!(check_edits(&layout, &edits), Some(&[][..]));
    let mut expanded = Vec::new();
    expand_edits(&layout, &row, &edits, &mut expanded).unwrap();
    assert_eq!(expanded, delta);
    Some(edits)
}

/// Bytes without repetitions nearby.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

/// A change of a value: a place, the number of bytes replaced there, and the new bytes.
fn changed(old: &[u8], changes: &[(usize, usize, Vec<u8>)]) -> Vec<u8> {
    let mut new = old.to_vec();
    for (at, replaced, bytes) in changes {
        let at = at % (new.len() + 1);
        let end = (at + replaced).min(new.len());
        new.splice(at..end, bytes.iter().copied());
    }
    new
}

fn change() -> impl Strategy<Value = (usize, usize, Vec<u8>)> {
    (any::<usize>(), 0usize..60, prop::collection::vec(any::<u8>(), 0..60))
}

proptest! {
    #[test]
    fn edits_give_the_new_value(
        seed: u64, len in 0usize..600, few in 1u8..=255,
        changes in prop::collection::vec(change(), 0..6),
    ) {
        // With few different bytes, equal bytes are found in many places.
        let old: Vec<u8> = noise(seed, len).into_iter().map(|byte| byte % few).collect();
        let new = changed(&old, &changes);
        edits(&old, &new);
        // However much the edits save.
        let mut stored = Vec::new();
        push_splices(&old, &new, &mut stored);
        prop_assert_eq!(spliced(&old, &stored), Some(new));
    }

    #[test]
    fn edits_of_several_columns_and_nulls_give_what_their_delta_gives(
        old: Option<String>, new: Option<Option<String>>, b: Option<Option<i32>>,
        seed: u64, len in 60usize..300, changes in prop::collection::vec(change(), 1..3),
    ) {
        let layout = layout();
        let c = noise(seed, len);
        let row = row(&layout, old.as_deref(), &c);
        let c = changed(&c, &changes);
        let mut sets = vec![Set { column: 3, value: c[..].into() }];
        if let Some(b) = b { sets.push(Set { column: 2, value: b.into() }); }
        if let Some(new) = &new { sets.push(Set { column: 1, value: new.as_deref().into() }); }
        let delta = delta(&layout, &sets);
        let mut edits = Vec::new();
        if push_edits(&layout, &row, &delta, &mut edits) {
            prop_assert_eq!(check_edits(&layout, &edits), Some(&[][..]));
            let mut expanded = Vec::new();
            expand_edits(&layout, &row, &edits, &mut expanded).unwrap();
            let (mut by_edits, mut by_delta) = (row.clone(), row);
            apply_delta(&layout, &mut by_edits, &expanded).unwrap();
            apply_delta(&layout, &mut by_delta, &delta).unwrap();
            prop_assert_eq!(by_edits, by_delta);
        }
    }

    #[test]
    fn edits_from_random_bytes_never_panic(bytes: Vec<u8>, c: Vec<u8>) {
        let layout = layout();
        if check_edits(&layout, &bytes).is_some() {
            let row = row(&layout, Some("text"), &c);
            let _ = expand_edits(&layout, &row, &bytes, &mut Vec::new());
            Edits::new(&layout, &bytes).for_each(|(_, value)| drop(value.splices()));
        }
    }
}

#[test]
fn an_element_in_a_block_is_logged_alone() {
    let block = noise(1, 2_000);
    let element = noise(2, 30);
    for at in [0, 1, 700, 1_999, 2_000] {
        let edits = edits(&block, &changed(&block, &[(at, 0, element.clone())])).unwrap();
        assert!(edits.len() <= 30 + 9, "inserted at {at}: {} bytes", edits.len());
    }
    for at in [0, 700, 1_970] {
        assert!(edits(&block, &changed(&block, &[(at, 30, Vec::new())])).unwrap().len() <= 10);
        let edits = edits(&block, &changed(&block, &[(at, 20, element.clone())])).unwrap();
        assert!(edits.len() <= 30 + 9, "replaced at {at}: {} bytes", edits.len());
    }
}

#[test]
fn a_counter_in_front_and_an_element_behind_are_two_splices() {
    let value = noise(3, 1_000);
    let new = changed(&value, &[(2, 4, vec![1, 2, 3, 4]), (800, 0, noise(4, 20))]);
    let edits = edits(&value, &new).unwrap();
    assert!(edits.len() <= 4 + 20 + 14, "{} bytes", edits.len());
    // And at the end.
    let new = changed(&new, &[(1_012, 3, vec![0; 3])]);
    let edits = super::tests::edits(&value, &new).unwrap();
    assert!(edits.len() <= 4 + 20 + 3 + 20, "{} bytes", edits.len());
}

#[test]
fn values_from_48_bytes_on_are_compared() {
    let layout = layout();
    for (len, compared) in [(LONG - 1, false), (LONG, true)] {
        let new = delta_of_c(&layout, &noise(5, len));
        assert_eq!(may_be_similar(&layout, &new), compared, "{len}");
    }
    let long = "x".repeat(LONG);
    let text = delta(&layout, &[Set { column: 1, value: long[..].into() }]);
    assert!(may_be_similar(&layout, &text));
}

#[test]
fn edits_that_save_less_than_16_bytes_are_not_logged() {
    let old = noise(6, 200);
    let mut least = None;
    for replaced in (100..200).rev() {
        let new = changed(&old, &[(0, replaced, noise(7, replaced))]);
        if let Some(edits) = edits(&old, &new) {
            least = Some(delta_of_c(&layout(), &new).len() - edits.len());
            break;
        }
    }
    assert_eq!(least, Some(WORTH));
}

#[test]
fn equal_values_are_a_few_bytes() {
    assert!(edits(&noise(8, 5_000), &noise(8, 5_000)).unwrap().len() <= 4);
}

#[test]
fn edits_of_another_row_are_refused() {
    let layout = layout();
    let edits = edits(&noise(9, 300), &changed(&noise(9, 300), &[(250, 20, vec![1])])).unwrap();
    let shorter = row(&layout, None, &noise(9, 260));
    assert_eq!(expand_edits(&layout, &shorter, &edits, &mut Vec::new()), None);
}

#[test]
fn a_text_stays_text() {
    let layout = layout();
    let old = "\u{e4}".repeat(100);
    let row = row(&layout, Some(&old), b"");
    let new = format!("{}\u{e5}{}", &old[..60], &old[62..]);
    let delta = delta(&layout, &[Set { column: 1, value: new[..].into() }]);
    let mut edits = Vec::new();
    assert!(push_edits(&layout, &row, &delta, &mut edits));
    let mut expanded = Vec::new();
    expand_edits(&layout, &row, &edits, &mut expanded).unwrap();
    assert_eq!(expanded, delta);
    // The second byte of a letter alone.
    let other = super::tests::row(&layout, Some(&"x".repeat(200)), b"");
    assert_eq!(expand_edits(&layout, &other, &edits, &mut expanded), None);
}

#[test]
fn edits_have_their_columns_in_order_and_none_of_the_key() {
    let layout = layout();
    // b = 1, b = 1.
    let twice = [2, 4, 1, 0, 0, 0, 4, 1, 0, 0, 0];
    assert_eq!(check_edits(&layout, &twice), None);
    let mut once = [1, 4, 1, 0, 0, 0].to_vec();
    assert_eq!(check_edits(&layout, &once), Some(&[][..]));
    once[0] = 0;
    assert_eq!(check_edits(&layout, &once), None, "no column");
    assert_eq!(check_edits(&layout, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None, "the key");
    assert_eq!(check_edits(&layout, &[1, 7]), None, "c is null");
    assert_eq!(check_edits(&layout, &[1, 5]), Some(&[][..]), "b is null");
}
