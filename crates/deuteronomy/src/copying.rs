//! Copies of all operations of a data component into an empty data component, read back and
//! compared.

use crate::data_component::{DataComponent, KeyRange, Operation, ScanOrder, holds_a_key};
use crate::error::Error;
use std::hash::{DefaultHasher, Hasher};
use std::ops::{Bound, ControlFlow};

/// The most operations and the bytes of keys and values applied at once.
const BATCH: usize = 4096;
const BATCH_BYTES: usize = 4 << 20;

const ALL: KeyRange<'_> = (Bound::Unbounded, Bound::Unbounded);

type Each<'e> = &'e mut dyn FnMut(Operation<'_>) -> ControlFlow<()>;

/// The counts of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopiedData {
    /// The keys with values.
    pub keys: u64,
    /// The bytes of keys and values.
    pub bytes: u64,
    /// The highest timestamp.
    pub highest_ts: u64,
}

/// Counts and digest of a sequence of operations.
#[derive(Default)]
struct CopySeen {
    copied: CopiedData,
    digest: DefaultHasher,
}

impl CopySeen {
    fn note(&mut self, operation: &Operation<'_>) {
        let Operation { key, ts, value } = operation;
        for part in [Some(*key), *value] {
            self.digest.write_u64(part.map_or(u64::MAX, |part| part.len() as u64));
            self.digest.write(part.unwrap_or_default());
        }
        self.digest.write_u64(*ts);
        self.copied.keys += u64::from(value.is_some());
        self.copied.bytes += (key.len() + value.map_or(0, <[u8]>::len)) as u64;
        self.copied.highest_ts = self.copied.highest_ts.max(*ts);
    }
}

/// Operations to be applied at once.
#[derive(Default)]
struct Batch {
    operations: Vec<(Vec<u8>, u64, Option<Vec<u8>>)>,
    bytes: usize,
}

impl Batch {
    fn add(&mut self, operation: &Operation<'_>) {
        let Operation { key, ts, value } = *operation;
        self.bytes += key.len() + value.map_or(0, <[u8]>::len);
        self.operations.push((key.to_vec(), ts, value.map(<[u8]>::to_vec)));
    }

    fn is_full(&self) -> bool {
        self.operations.len() >= BATCH || self.bytes >= BATCH_BYTES
    }

    /// Applies the operations, and is empty then.
    fn apply(&mut self, into: &dyn DataComponent) -> Result<(), Error> {
        let Batch { operations, .. } = std::mem::take(self);
        let limits = into.limits();
        for (key, _, value) in &operations {
            limits.check_key(key)?;
            limits.check_value(value.as_deref())?;
        }
        let batch = operations.iter();
        let batch =
            batch.map(|(key, ts, value)| Operation { key, ts: *ts, value: value.as_deref() });
        into.apply(&batch.collect::<Vec<_>>())
    }
}

/// Refuses a data component that is not empty, or does not outlive the process.
///
/// # Errors
/// [`Error::Invalid`]; the data component failed.
pub(crate) fn check_is_empty(into: &dyn DataComponent) -> Result<(), Error> {
    if !into.limits().is_durable {
        return Err(Error::Invalid(
            "the data component for the copy does not outlive the process: give one on a disk"
                .to_string(),
        ));
    }
    if into.resume_point()?.is_some() || holds_a_key(into)? {
        return Err(Error::Invalid(
            "the data component for the copy is not empty: give a new one".to_string(),
        ));
    }
    Ok(())
}

/// Copies the operations handed over by `scan`, in ascending order of keys, and reads the copy
/// back. Until a resume point is stable in the copy, the copy opens with no log.
///
/// # Errors
/// A data component failed; the copy differs.
pub(crate) fn copy_operations(
    scan: impl FnOnce(KeyRange<'_>, Each<'_>) -> Result<(), Error>,
    into: &dyn DataComponent,
) -> Result<CopiedData, Error> {
    let (mut seen, mut batch, mut applied) = (CopySeen::default(), Batch::default(), Ok(()));
    scan(ALL, &mut |operation| {
        seen.note(&operation);
        batch.add(&operation);
        if batch.is_full() {
            applied = batch.apply(into);
        }
        if applied.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    applied?;
    batch.apply(into)?;
    let mut back = CopySeen::default();
    into.scan(ALL, ScanOrder::Ascending, &mut |operation| {
        back.note(&operation);
        ControlFlow::Continue(())
    })?;
    let (keys, bytes) = (seen.copied.keys, seen.copied.bytes);
    if (back.copied.keys, back.copied.bytes, back.digest.finish())
        != (keys, bytes, seen.digest.finish())
    {
        return Err(Error::DataComponent(format!(
            "the copy, read back, has {} keys and {} bytes, or others, and {keys} keys with \
             {bytes} bytes were written: its disk or its data component is faulty",
            back.copied.keys, back.copied.bytes
        )));
    }
    Ok(seen.copied)
}
