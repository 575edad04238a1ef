//! The operations that a server may lose (R2 in the crate's documentation).

use std::collections::BTreeMap;
use std::sync::Arc;

/// A batch of operations, as sent.
#[derive(Clone, Debug)]
struct KeptBatch {
    request: Arc<Vec<u8>>,
    /// Whether a boot has applied the batch.
    is_applied: bool,
}

/// The batches not known to be stable at the server, in the order of their coming.
#[derive(Debug, Default)]
pub(crate) struct KeptBatches {
    next: u64,
    batches: BTreeMap<u64, KeptBatch>,
    bytes: usize,
}

impl KeptBatches {
    /// Keeps the request of a batch, before it is first sent. Returns its number.
    pub fn keep(&mut self, request: &Arc<Vec<u8>>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.bytes += request.len();
        self.batches.insert(number, KeptBatch { request: Arc::clone(request), is_applied: false });
        number
    }

    /// Notes that a boot has applied a batch.
    pub fn note_applied(&mut self, number: u64) {
        if let Some(batch) = self.batches.get_mut(&number) {
            batch.is_applied = true;
        }
    }

    /// The batches applied so far: a checkpoint that begins now makes these stable.
    pub fn applied(&self) -> Vec<u64> {
        let applied = self.batches.iter().filter(|(_, batch)| batch.is_applied);
        applied.map(|(number, _)| *number).collect()
    }

    /// Lets batches go that a checkpoint has made stable.
    pub fn forget(&mut self, stable: &[u64]) {
        for number in stable {
            let batch = self.batches.remove(number);
            self.bytes -= batch.map_or(0, |batch| batch.request.len());
        }
    }

    /// The request of the first kept batch from `number` on, with its number.
    pub fn first_from(&self, number: u64) -> Option<(u64, Arc<Vec<u8>>)> {
        let (number, batch) = self.batches.range(number..).next()?;
        Some((*number, Arc::clone(&batch.request)))
    }

    /// The bytes of all kept batches.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_applied_before_a_checkpoint_goes_with_it() {
        let mut kept = KeptBatches::default();
        let numbers: Vec<u64> = (0..4u8).map(|byte| kept.keep(&Arc::new(vec![byte; 10]))).collect();
        assert_eq!(kept.bytes(), 40);
        kept.note_applied(numbers[0]);
        kept.note_applied(numbers[2]);
        let stable = kept.applied();
        // Applied while the checkpoint is under way.
        kept.note_applied(numbers[1]);
        kept.forget(&stable);
        assert_eq!(kept.bytes(), 20);
        assert_eq!(kept.first_from(0), Some((numbers[1], Arc::new(vec![1; 10]))));
        assert_eq!(kept.first_from(numbers[1] + 1), Some((numbers[3], Arc::new(vec![3; 10]))));
        assert_eq!(kept.first_from(numbers[3] + 1), None);
        assert_eq!(kept.applied(), [numbers[1]]);
    }
}
