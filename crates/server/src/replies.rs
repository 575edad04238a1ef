//! Replies in the order of their requests, some of which wait for the disk.
//!
//! Each segment of the output belongs to one transaction, or to none. A segment is *free* when what
//! it tells is durable; the free segments at the front may be sent.

use std::collections::VecDeque;

struct Segment {
    /// The position behind it, counted from the first byte ever written.
    end: u64,
    /// Number of replies in it.
    replies: usize,
    is_free: bool,
}

impl Segment {
    /// What it counts for while it waits: a transaction without replies waits as well.
    fn parked(&self) -> usize {
        self.replies.max(1)
    }
}

/// The output of a connection.
#[derive(Default)]
pub struct Replies {
    bytes: Vec<u8>,
    /// Bytes of `bytes` that were sent.
    sent: usize,
    /// The position of the first byte of `bytes`.
    begin: u64,
    segments: VecDeque<Segment>,
    /// The mark of the first segment; those behind it follow on.
    first_mark: u64,
    parked: usize,
}

/// Above this many sent bytes the buffer is compacted.
const COMPACTED: usize = 64 << 10;

impl Replies {
    /// Where the next replies are written. What is written becomes part of the output with
    /// [`Replies::seal_free`] or [`Replies::seal_parked`].
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    /// What was written since the last seal may be sent once all before it has been.
    pub fn seal_free(&mut self) {
        let end = self.end();
        match self.segments.back_mut() {
            Some(last) if last.end == end => {}
            None if end == self.begin + self.sent as u64 => {}
            Some(last) if last.is_free => {
                last.end = end;
                last.replies += 1;
            }
            _ => self.segments.push_back(Segment { end, replies: 1, is_free: true }),
        }
    }

    /// What was written since the last seal, this many replies, is not sent before the mark that is
    /// returned is acknowledged.
    pub fn seal_parked(&mut self, replies: usize) -> u64 {
        let segment = Segment { end: self.end(), replies, is_free: false };
        self.parked += segment.parked();
        self.segments.push_back(segment);
        self.first_mark + self.segments.len() as u64 - 1
    }

    /// The transaction of a mark is acknowledged.
    pub fn acknowledge(&mut self, mark: u64) {
        let at = mark.checked_sub(self.first_mark).map(|at| at as usize);
        let segment = at.and_then(|at| self.segments.get_mut(at));
        if let Some(segment) = segment.filter(|segment| !segment.is_free) {
            segment.is_free = true;
            self.parked -= segment.parked();
        }
        self.forget_sent();
    }

    /// Forgets the segments at the front of which nothing is left to send: a client that hears
    /// nothing has no others.
    fn forget_sent(&mut self) {
        let position = self.begin + self.sent as u64;
        while self.segments.front().is_some_and(|of| of.is_free && of.end <= position) {
            self.segments.pop_front();
            self.first_mark += 1;
        }
    }

    /// The log has failed: replaces every reply that is still parked by an error.
    pub fn fail(&mut self, error: &str) {
        // What was sent belongs to no segment any more.
        self.bytes.drain(..self.sent);
        self.begin += self.sent as u64;
        self.sent = 0;
        let mut bytes = Vec::new();
        let mut from = self.begin;
        for segment in &mut self.segments {
            let old = (from - self.begin) as usize..(segment.end - self.begin) as usize;
            from = segment.end;
            match segment.is_free {
                true => bytes.extend_from_slice(&self.bytes[old]),
                false => {
                    for _ in 0..segment.replies {
                        bytes.extend_from_slice(format!("-{error}\r\n").as_bytes());
                    }
                }
            }
            segment.is_free = true;
            segment.end = self.begin + bytes.len() as u64;
        }
        self.bytes = bytes;
        self.parked = 0;
    }

    /// What may be sent.
    pub fn ready(&self) -> &[u8] {
        let free = self.segments.iter().take_while(|segment| segment.is_free).last();
        let end = free.map_or(self.begin + self.sent as u64, |segment| segment.end);
        &self.bytes[self.sent..(end - self.begin) as usize]
    }

    /// A number of bytes of [`Replies::ready`] was sent.
    pub fn consume(&mut self, sent: usize) {
        self.sent += sent;
        self.forget_sent();
        let position = self.begin + self.sent as u64;
        if self.sent == self.bytes.len() {
            self.begin = position;
            self.sent = 0;
            match self.bytes.capacity() > COMPACTED {
                true => self.bytes = Vec::new(),
                false => self.bytes.clear(),
            }
        } else if self.sent > COMPACTED {
            self.bytes.drain(..self.sent);
            self.begin = position;
            self.sent = 0;
        }
    }

    /// Number of replies that wait for the disk.
    pub fn parked(&self) -> usize {
        self.parked
    }

    /// Bytes that were written and not sent.
    pub fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write(replies: &mut Replies, text: &str) {
        replies.buffer().extend_from_slice(text.as_bytes());
    }

    #[test]
    fn replies_leave_in_order_when_they_are_free() {
        let mut replies = Replies::default();
        write(&mut replies, "a");
        let first = replies.seal_parked(1);
        write(&mut replies, "b");
        replies.seal_free();
        write(&mut replies, "cc");
        let second = replies.seal_parked(2);
        replies.acknowledge(second);
        assert_eq!((replies.ready(), replies.parked()), (&b""[..], 1));
        replies.acknowledge(first);
        assert_eq!((replies.ready(), replies.parked()), (&b"abcc"[..], 0));
        replies.consume(3);
        assert_eq!(replies.ready(), b"c");
        write(&mut replies, "d");
        let third = replies.seal_parked(1);
        replies.fail("lost");
        assert_eq!(replies.ready(), b"c-lost\r\n");
        replies.acknowledge(third);
        replies.consume(8);
        assert_eq!((replies.ready(), replies.unsent(), replies.parked()), (&b""[..], 0, 0));
    }

    /// A client that wants no replies is held back by what waits, and leaves nothing behind.
    #[test]
    fn silent_transactions_leave_nothing_behind() {
        let mut replies = Replies::default();
        for _ in 0..1_000 {
            let marks = [0; 3].map(|_| replies.seal_parked(0));
            assert_eq!(replies.parked(), 3);
            replies.seal_free();
            [1, 0, 2].into_iter().for_each(|at| replies.acknowledge(marks[at]));
            replies.seal_free();
            assert_eq!((replies.segments.len(), replies.parked()), (0, 0));
        }
        let silent = replies.seal_parked(0);
        write(&mut replies, "a");
        replies.seal_free();
        assert_eq!(replies.ready(), b"");
        replies.acknowledge(silent);
        assert_eq!(replies.ready(), b"a");
    }

    /// The log fails when a part has been sent: the rest is whole replies.
    #[test]
    fn what_was_sent_is_not_sent_again_when_the_log_fails() {
        for sent in [0, 2, 5] {
            let mut replies = Replies::default();
            write(&mut replies, "+OK\r\n");
            replies.seal_free();
            write(&mut replies, "+OK\r\n");
            replies.seal_parked(1);
            replies.consume(sent);
            replies.fail("lost");
            let left = ["+OK\r\n", "-lost\r\n"].concat();
            assert_eq!(replies.ready(), &left.as_bytes()[sent..], "{sent}");
        }
    }

    proptest! {
        /// Against a list of texts: nothing leaves early, late or twice.
        #[test]
        fn as_a_list_of_texts(steps in proptest::collection::vec((0u8..4, 0usize..40), 0..60)) {
            let mut replies = Replies::default();
            let mut all: Vec<(String, bool, u64)> = Vec::new();
            let mut sent = Vec::new();
            for (number, (step, size)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        let text = format!("{number}:{}", "x".repeat(size));
                        write(&mut replies, &text);
                        let mark = match step {
                            0 => replies.seal_parked(1),
                            _ => { replies.seal_free(); u64::MAX }
                        };
                        all.push((text, step == 1, mark));
                    }
                    2 => {
                        let parked: Vec<usize> =
                            (0..all.len()).filter(|at| !all[*at].1).collect();
                        if let Some(at) = parked.get(size % parked.len().max(1)) {
                            all[*at].1 = true;
                            replies.acknowledge(all[*at].2);
                        }
                    }
                    _ => {
                        let n = size.min(replies.ready().len());
                        sent.extend_from_slice(&replies.ready()[..n]);
                        replies.consume(n);
                    }
                }
                let free: String =
                    all.iter().take_while(|of| of.1).map(|of| of.0.as_str()).collect();
                let now = [&sent[..], replies.ready()].concat();
                prop_assert_eq!(String::from_utf8(now).unwrap(), free);
            }
        }
    }
}
