//! The reserved ends of all streams, and the anchors in effect.

use crate::rules::Vector;

/// Bytes of a frame's head for a payload of some tens of bytes: checksum, length, kind.
const FRAME_HEAD: u64 = 6;

/// The reserved length of each stream, and its anchor.
#[derive(Clone, Debug)]
pub struct Order {
    /// The reserved end of each stream.
    ends: Vec<u64>,
    /// The anchor in effect in each stream, and the anchor's number.
    anchors: Vec<(Vector, u64)>,
    /// The newest anchor, which a stream gets before its next record.
    newest: (Vector, u64),
    interval: u64,
}

impl Order {
    /// Empty streams, with this many bytes from one anchor to the next.
    pub fn new(streams: usize, interval: u64) -> Order {
        let none = (vec![0; streams], 0);
        Order {
            ends: vec![0; streams],
            anchors: vec![none.clone(); streams],
            newest: none,
            interval,
        }
    }

    /// The number of streams.
    pub fn streams(&self) -> usize {
        self.ends.len()
    }

    /// The reserved end of a stream.
    pub fn end(&self, stream: usize) -> u64 {
        self.ends[stream]
    }

    /// Reserves a frame; returns the frame's start and end.
    pub fn reserve(&mut self, stream: usize, bytes: u64) -> (u64, u64) {
        let start = self.ends[stream];
        self.ends[stream] += bytes.max(1);
        (start, self.ends[stream])
    }

    /// Reserves the frame of a heartbeat; returns the frame's end.
    pub fn heartbeat(&mut self, stream: usize) -> u64 {
        self.reserve(stream, FRAME_HEAD + 16).1
    }

    /// Writes the newest anchor to a stream without it, before the stream's next record.
    pub fn enter_stream(&mut self, stream: usize) {
        if self.anchors[stream].1 != self.newest.1 {
            self.reserve(stream, FRAME_HEAD + 8 * self.ends.len() as u64);
            self.anchors[stream].clone_from(&self.newest);
        }
    }

    /// The anchor in effect in a stream.
    pub fn anchor(&self, stream: usize) -> &[u64] {
        &self.anchors[stream].0
    }

    /// Makes the durable positions the newest anchor, if an anchor is due: if the positions have
    /// grown by the interval since the last anchor, summed over all streams.
    pub fn housekeep(&mut self, durable: &[u64]) {
        let sum = |vector: &[u64]| vector.iter().sum::<u64>();
        if sum(durable) >= sum(&self.newest.0).saturating_add(self.interval) {
            self.newest.0.copy_from_slice(durable);
            self.newest.1 += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_gets_the_newest_anchor_before_its_next_record() {
        let mut order = Order::new(2, 100);
        order.housekeep(&[60, 39]);
        order.enter_stream(0);
        assert_eq!((order.anchor(0), order.end(0)), (&[0, 0][..], 0));
        order.housekeep(&[60, 40]);
        assert_eq!(order.anchor(0), [0, 0]);
        order.enter_stream(0);
        assert_eq!(order.anchor(0), [60, 40]);
        assert_eq!((order.anchor(1), order.end(1)), (&[0, 0][..], 0));
        // The next anchor is due another interval later.
        order.housekeep(&[100, 99]);
        order.enter_stream(1);
        assert_eq!(order.anchor(1), [60, 40]);
    }
}
