//! Tests of data components sharing the keys.

use super::*;
use crate::data::MemoryData;

fn three() -> (Vec<Arc<MemoryData>>, PartitionedData) {
    let parts: Vec<_> = (0..3).map(|_| Arc::new(MemoryData::outliving())).collect();
    let data = together(&parts, &[b"d", b"m"]).unwrap();
    (parts, data)
}

fn together(parts: &[Arc<MemoryData>], splits: &[&[u8]]) -> Result<PartitionedData, Error> {
    let parts = parts.iter().map(|part| Arc::clone(part) as Arc<dyn DataComponent>);
    PartitionedData::new(splits.iter().map(|split| split.to_vec()).collect(), parts.collect())
}

fn point(incarnation: u32, positions: &[u64], highest_ts: u64) -> ResumePoint {
    ResumePoint { uuid: [1; 16], incarnation, highest_ts, positions: positions.to_vec() }
}

#[test]
fn each_key_goes_to_the_part_of_its_range() {
    let (parts, data) = three();
    let keys: [&[u8]; 7] = [b"", b"a", b"czz", b"d", b"lzz", b"m", b"z"];
    let batch: Vec<_> =
        (1..).zip(keys).map(|(ts, key)| Operation { key, ts, value: None }).collect();
    data.apply(&batch).unwrap();
    assert_eq!(parts.iter().map(|part| part.items()).collect::<Vec<_>>(), [3, 2, 2]);
    for (ts, key) in (1..).zip(keys) {
        assert_eq!(data.get(key).unwrap().ts, ts);
    }
    let scanned = |range, order, most| {
        let mut found = Vec::new();
        data.scan(range, order, &mut |item| {
            found.push(item.ts);
            if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .unwrap();
        found
    };
    use Bound::{Excluded, Included, Unbounded};
    assert_eq!(scanned((Unbounded, Unbounded), ScanOrder::Ascending, 9), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(scanned((Unbounded, Unbounded), ScanOrder::Descending, 4), [7, 6, 5, 4]);
    assert_eq!(scanned((Included(b"d"), Excluded(b"m")), ScanOrder::Ascending, 9), [4, 5]);
    assert_eq!(scanned((Excluded(b"d"), Included(b"m")), ScanOrder::Descending, 9), [6, 5]);
    assert_eq!(scanned((Included(b"d"), Included(b"d")), ScanOrder::Ascending, 9), [4]);
    assert_eq!(scanned((Excluded(b"a"), Excluded(b"czz")), ScanOrder::Ascending, 9), [0; 0]);
    data.forget_below(4).unwrap();
    assert_eq!(parts.iter().map(|part| part.items()).collect::<Vec<_>>(), [0, 2, 2]);
}

#[test]
fn the_resume_point_is_one_that_all_have_reached() {
    let (parts, data) = three();
    assert_eq!(data.resume_point().unwrap(), None);
    data.checkpoint(&point(2, &[10, 20], 5)).unwrap();
    assert_eq!(data.resume_point().unwrap(), Some(point(2, &[10, 20], 5)));
    // A crash in the middle of a checkpoint.
    parts[0].checkpoint(&point(2, &[30, 20], 9)).unwrap();
    assert_eq!(data.resume_point().unwrap(), Some(point(2, &[10, 20], 9)));
    parts[1].checkpoint(&point(3, &[1, 1], 8)).unwrap();
    assert_eq!(data.resume_point().unwrap(), Some(point(2, &[10, 20], 9)));
    let fresh = [parts[0].clone(), Arc::new(MemoryData::outliving())];
    let all_of_the_log = ResumePoint { highest_ts: 9, ..ResumePoint::initial([1; 16]) };
    assert_eq!(together(&fresh, &[b"d"]).unwrap().resume_point().unwrap(), Some(all_of_the_log));
    assert!(data.limits().is_durable);
    let one_is_not = [parts[0].clone(), Arc::new(MemoryData::new())];
    assert!(!together(&one_is_not, &[b"d"]).unwrap().limits().is_durable);
}

#[test]
fn what_would_lose_keys_is_refused() {
    let (parts, data) = three();
    let refused = |parts: &[Arc<MemoryData>], splits: &[&[u8]]| {
        together(parts, splits).err().expect("it is refused").to_string()
    };
    assert!(refused(&parts, &[b"d"]).contains("3 data components for 2 ranges"));
    assert!(refused(&parts, &[b"d", b"d"]).contains("do not ascend"));
    data.apply(&[Operation { key: b"d", ts: 1, value: Some(b"1") }]).unwrap();
    for splits in [[&b"a"[..], b"d"], [b"da", b"m"]] {
        assert!(refused(&parts, &splits).contains("data component 2 of 3 holds keys outside"));
    }
    let swapped = [parts[1].clone(), parts[0].clone(), parts[2].clone()];
    assert!(refused(&swapped, &[b"d", b"m"]).contains("data component 1 of 3"));
    assert!(together(&parts, &[b"", b"da"]).is_ok(), "the first has nothing, and gets nothing");
    parts[0].checkpoint(&point(1, &[1], 1)).unwrap();
    parts[1].checkpoint(&ResumePoint { uuid: [2; 16], ..point(1, &[1], 1) }).unwrap();
    parts[2].checkpoint(&point(1, &[1], 1)).unwrap();
    assert!(refused(&parts, &[b"d", b"m"]).contains("different logs"));
    parts[1].checkpoint(&point(1, &[1, 1], 1)).unwrap();
    assert!(refused(&parts, &[b"d", b"m"]).contains("different streams"));
    let without_point = Arc::new(MemoryData::outliving());
    without_point.apply(&[Operation { key: b"d", ts: 1, value: Some(b"1") }]).unwrap();
    let refusal = refused(&[parts[0].clone(), without_point], &[b"d"]);
    assert!(refusal.contains("2 of 2 holds keys, and does not say of which log"), "{refusal}");
}

#[test]
fn a_batch_may_be_cut_between_parts_and_where_a_part_says_so() {
    struct Everywhere(MemoryData);
    impl crate::DataLayer for Everywhere {
        fn below(&self) -> &dyn DataComponent {
            &self.0
        }

        fn may_cut(&self, _: &[u8], _: &[u8]) -> bool {
            true
        }
    }
    let parts: Vec<Arc<dyn DataComponent>> =
        vec![Arc::new(MemoryData::new()), Arc::new(Everywhere(MemoryData::new()))];
    let data = PartitionedData::new(vec![b"m".to_vec()], parts).unwrap();
    assert!(!data.may_cut(b"a", b"lz"));
    assert!(data.may_cut(b"lz", b"m"));
    assert!(data.may_cut(b"m", b"n"));
}

#[test]
fn an_initial_point_is_for_those_that_have_none() {
    let (parts, data) = three();
    parts[1].checkpoint(&point(4, &[7], 5)).unwrap();
    data.checkpoint(&ResumePoint::initial([1; 16])).unwrap();
    let points: Vec<_> = parts.iter().map(|part| part.resume_point().unwrap().unwrap()).collect();
    let initial = ResumePoint::initial([1; 16]);
    assert_eq!(points, [initial.clone(), point(4, &[7], 5), initial]);
    data.checkpoint(&point(4, &[9], 6)).unwrap();
    assert_eq!(data.resume_point().unwrap(), Some(point(4, &[9], 6)));
}
