//! Entry points for tests of the decoders with arbitrary bytes. Not part of the public interface.

use crate::transaction_component::record::{self, PART_HEAD_BYTES, Parts};

/// The position of each stream in the anchor of a record.
const STATED: u64 = 9;

/// Decodes bytes as a record, of a single stream and of several, and as a part.
pub fn component_record(bytes: &[u8]) {
    for streams in [1, 3, hyades_wal::MAX_LANES] {
        let (anchor, mut vector) = (vec![STATED; streams], vec![0; streams]);
        let Ok(read) = record::read(bytes, &anchor, &mut vector) else { continue };
        assert_eq!(record::read_ts(bytes), Some((read.ts, read.parts.is_some())));
        let mut out = Vec::new();
        record::put_head(&mut out, read.parts, read.ts, &vector, &anchor, |lsn| *lsn);
        for operation in &read.operations {
            record::put_operation(&mut out, operation.key, operation.value);
        }
        let mut same = vec![0; streams];
        let again = record::read(&out, &anchor, &mut same).expect("what was written reads back");
        assert_eq!(
            (again.ts, again.parts, again.operations),
            (read.ts, read.parts, read.operations)
        );
        // The anchor's positions count, whatever the record states.
        vector.iter_mut().for_each(|lsn| *lsn = STATED.max(*lsn));
        assert_eq!(same, vector);
    }
    if let Ok((ts, operations)) = record::read_part(bytes)
        && let Ok(operations) = record::read_operations(operations, ts)
    {
        let (mut out, mut most) = (Vec::new(), PART_HEAD_BYTES);
        record::put_part_head(&mut out, ts);
        for operation in operations {
            record::put_operation(&mut out, operation.key, operation.value);
            most += record::operation_bytes(operation.key, operation.value);
            assert!(out.len() <= most, "an operation takes more than it may");
        }
        assert_eq!(out, bytes, "a part has one spelling");
    }
}

/// Sound inputs of [`component_record`] to start from.
pub fn component_record_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let parts = [None, Some(Parts { first: 4096, count: 3 })];
    for (parts, streams) in parts.into_iter().flat_map(|parts| [1, 3].map(|n| (parts, n))) {
        let mut out = Vec::new();
        let (vector, anchor) = (vec![STATED + 300; streams], vec![STATED; streams]);
        record::put_head(&mut out, parts, 1 << 40, &vector, &anchor, |lsn| *lsn);
        if parts.is_none() {
            record::put_operation(&mut out, b"", Some(b""));
            record::put_operation(&mut out, b"deleted", None);
            record::put_operation(&mut out, b"key", Some(&[7; 200]));
        }
        seeds.push(out);
    }
    let mut part = Vec::new();
    record::put_part_head(&mut part, 300);
    record::put_operation(&mut part, b"z", Some(b"1"));
    record::put_operation(&mut part, b"a", None);
    seeds.push(part);
    seeds
}
