//! Replies in the order of their requests, of which some wait for the disk.
//!
//! Each segment of the output belongs to one transaction, or to none. A segment is *free* when all
//! it tells is durable; the free segments at the front may be sent. A client may ask to be told
//! early: then a segment may be sent before its transaction is durable, and is kept until then.

#[cfg(feature = "replication")]
mod abandoning;
use std::collections::VecDeque;

/// A reply of another thread with this many bytes is not copied behind unsent bytes.
const LONG: usize = if cfg!(test) { 24 } else { 256 << 10 };

/// The condition for sending a segment, beside the conditions of the segments before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for its transaction: the segment is not sent before the transaction is durable.
    Parked,
    /// Waits for its transaction, but may be sent.
    Early {
        /// Time of the write, in milliseconds.
        since_ms: i64,
    },
    /// Waits for the transactions of all segments before it, early segments too.
    Behind,
    /// Waits for nothing, but is sent with the next segment, which may be parked.
    Held,
    /// Waits for nothing.
    Free,
}

struct Segment {
    /// The position behind the segment, counted from the first byte ever written.
    end: u64,
    /// Number of replies in the segment.
    replies: usize,
    state: State,
}

impl Segment {
    /// The segment's share of the parked replies: a transaction without replies waits as well.
    fn parked(&self) -> usize {
        match self.state {
            State::Parked => self.replies.max(1),
            State::Early { .. } => 1,
            State::Behind | State::Held | State::Free => 0,
        }
    }

    /// Whether the segment's own transaction, if there is one, is durable.
    fn is_durable(&self) -> bool {
        matches!(self.state, State::Behind | State::Held | State::Free)
    }
}

/// The output of a connection.
#[derive(Default)]
pub struct Replies {
    /// The bytes sent first; empty only if all bytes are sent.
    front: Vec<u8>,
    /// Bytes of `front` already sent.
    sent: usize,
    /// The buffers behind `front`.
    rest: VecDeque<Vec<u8>>,
    /// The position of the first byte of `front`.
    begin: u64,
    segments: VecDeque<Segment>,
    /// The mark of the first segment; later segments have the following marks.
    first_mark: u64,
    parked: usize,
}

/// Above this many sent bytes, if they are most of the buffer, the buffer is compacted.
const COMPACTED: usize = 64 << 10;

/// Compacted only when at most this many bytes are left: other connections wait meanwhile. A client
/// with more to read is sent nothing new.
const MOST_MOVED: usize = 1 << 20;

impl Replies {
    /// The buffer for the next replies. The written bytes become part of the output with
    /// [`Replies::seal_free`] or [`Replies::seal_parked`].
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.rest.back_mut().unwrap_or(&mut self.front)
    }

    /// Adds a reply of another thread. Returns where the reply begins in [`Replies::buffer`].
    pub fn append(&mut self, bytes: Vec<u8>) -> usize {
        if self.front.is_empty() {
            self.front = bytes;
            return 0;
        }
        if bytes.len() >= LONG {
            self.rest.push_back(bytes);
            return 0;
        }
        let buffer = self.buffer();
        buffer.extend_from_slice(&bytes);
        buffer.len() - bytes.len()
    }

    fn end(&self) -> u64 {
        let rest: usize = self.rest.iter().map(Vec::len).sum();
        self.begin + (self.front.len() + rest) as u64
    }

    /// Lets the bytes written since the last seal be sent once all bytes before are sent.
    pub fn seal_free(&mut self) {
        let end = self.end();
        match self.segments.back_mut() {
            Some(last) if last.end == end => {}
            None if end == self.begin + self.sent as u64 => {}
            Some(last) if last.state == State::Free => {
                last.end = end;
                last.replies += 1;
            }
            _ => self.segments.push_back(Segment { end, replies: 1, state: State::Free }),
        }
    }

    /// Holds back the bytes written since the last seal, one reply, until all transactions of the
    /// segments before are durable.
    pub fn seal_behind(&mut self) {
        self.seal(1, State::Behind);
    }

    /// Has an unsent free segment at the end of the output be sent with the next sealed segment.
    /// For MULTI: the reply about a queued command is of no use before EXEC has its reply, and two
    /// writes cost more than one.
    pub fn hold_free(&mut self) {
        let position = self.begin + self.sent as u64;
        if let Some(last) = self.segments.back_mut()
            && last.state == State::Free
            && last.end > position
        {
            last.state = State::Held;
        }
    }

    fn seal(&mut self, replies: usize, state: State) -> u64 {
        let segment = Segment { end: self.end(), replies, state };
        self.parked += segment.parked();
        self.segments.push_back(segment);
        self.first_mark + self.segments.len() as u64 - 1
    }

    /// Holds back the bytes written since the last seal, `replies` replies, until the returned mark
    /// is acknowledged.
    pub fn seal_parked(&mut self, replies: usize) -> u64 {
        self.seal(replies, State::Parked)
    }

    /// Lets the bytes written since the last seal, `replies` replies, be sent once all bytes before
    /// are sent. The segment is kept until the returned mark is acknowledged.
    pub fn seal_early(&mut self, replies: usize, now_ms: i64) -> u64 {
        self.seal(replies, State::Early { since_ms: now_ms })
    }

    /// How long the first early segment has waited for its transaction, in milliseconds.
    pub fn early_for_ms(&self, now_ms: i64) -> i64 {
        let since = self.segments.iter().find_map(|segment| match segment.state {
            State::Early { since_ms } => Some(since_ms),
            _ => None,
        });
        since.map_or(0, |since_ms| now_ms - since_ms)
    }

    /// Notes that the transaction of a mark is acknowledged.
    pub fn acknowledge(&mut self, mark: u64) {
        let at = mark.checked_sub(self.first_mark).map(|at| at as usize);
        let segment = at.and_then(|at| self.segments.get_mut(at));
        if let Some(segment) = segment.filter(|segment| !segment.is_durable()) {
            self.parked -= segment.parked();
            segment.state = State::Free;
        }
        self.forget_sent();
    }

    /// Forgets the segments at the front with nothing left to send: a client without replies has no
    /// other segments.
    fn forget_sent(&mut self) {
        let position = self.begin + self.sent as u64;
        let has_left = |first: &Segment| first.is_durable() && first.end <= position;
        while self.segments.front().is_some_and(has_left) {
            self.segments.pop_front();
            self.first_mark += 1;
        }
    }

    /// Replaces every parked reply by an error, after a failure of the log.
    pub fn fail(&mut self, error: &str) {
        self.rest.drain(..).for_each(|bytes| self.front.extend_from_slice(&bytes));
        // Sent bytes belong to no segment any more.
        self.front.drain(..self.sent);
        self.begin += self.sent as u64;
        self.sent = 0;
        let mut bytes = Vec::new();
        let mut from = self.begin;
        for segment in &mut self.segments {
            // An early segment may have been sent.
            let end = segment.end.max(from);
            let old = (from - self.begin) as usize..(end - self.begin) as usize;
            from = end;
            match segment.state {
                State::Free | State::Held | State::Early { .. } => {
                    bytes.extend_from_slice(&self.front[old]);
                }
                State::Parked | State::Behind => {
                    for _ in 0..segment.replies {
                        bytes.extend_from_slice(format!("-{error}\r\n").as_bytes());
                    }
                }
            }
            segment.state = State::Free;
            segment.end = self.begin + bytes.len() as u64;
        }
        self.front = bytes;
        self.parked = 0;
    }

    /// Bytes that may be sent, up to the end of the first buffer.
    pub fn ready(&self) -> &[u8] {
        let end = (self.ready_end() - self.begin) as usize;
        &self.front[self.sent..self.front.len().min(end)]
    }

    /// The position up to which bytes may be sent.
    fn ready_end(&self) -> u64 {
        let (mut end, mut all_durable) = (self.begin + self.sent as u64, true);
        for (at, segment) in self.segments.iter().enumerate() {
            let is_next_parked =
                || self.segments.get(at + 1).is_some_and(|next| next.state == State::Parked);
            let may_leave = match segment.state {
                State::Free | State::Early { .. } => true,
                State::Held => !is_next_parked(),
                State::Behind => all_durable,
                State::Parked => false,
            };
            if !may_leave {
                break;
            }
            all_durable &= segment.is_durable();
            end = end.max(segment.end);
        }
        end
    }

    /// All bytes written and not sent.
    #[cfg(any(test, feature = "torture"))]
    pub fn written(&self) -> Vec<u8> {
        let rest = self.rest.iter().flatten();
        self.front[self.sent..].iter().chain(rest).copied().collect()
    }

    /// Notes that `sent` bytes of [`Replies::ready`] were sent.
    pub fn consume(&mut self, sent: usize) {
        self.sent += sent;
        self.forget_sent();
        let position = self.begin + self.sent as u64;
        let left = self.front.len() - self.sent;
        if left == 0 {
            self.begin = position;
            self.sent = 0;
            match self.rest.pop_front() {
                Some(next) => self.front = next,
                None if self.front.capacity() > COMPACTED => self.front = Vec::new(),
                None => self.front.clear(),
            }
        } else if self.sent > COMPACTED && self.sent > left && left <= MOST_MOVED {
            // The smaller part is moved: no byte more often than twice.
            self.front.drain(..self.sent);
            self.begin = position;
            self.sent = 0;
        }
    }

    /// The mark of the transaction whose replies are sealed next.
    pub fn next_mark(&self) -> u64 {
        self.first_mark + self.segments.len() as u64
    }

    /// The mark of the first transaction that waits for the disk.
    pub fn first_waiting(&self) -> Option<u64> {
        let at = self.segments.iter().position(|segment| !segment.is_durable())?;
        Some(self.first_mark + at as u64)
    }

    /// Number of replies that wait for the disk, and of transactions with replies that do not.
    pub fn parked(&self) -> usize {
        self.parked
    }

    /// Bytes of memory of the output.
    pub fn capacity(&self) -> usize {
        self.front.capacity() + self.rest.iter().map(Vec::capacity).sum::<usize>()
    }

    /// Bytes written and not sent.
    pub fn unsent(&self) -> usize {
        (self.end() - self.begin) as usize - self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::thread_seconds;
    use proptest::prelude::*;

    fn write(replies: &mut Replies, text: &str) {
        replies.buffer().extend_from_slice(text.as_bytes());
    }

    /// The rest is not moved for each sent piece.
    #[test]
    fn a_long_reply_is_sent_in_linear_time() {
        let mut replies = Replies::default();
        replies.buffer().resize(128 << 20, b'x');
        replies.seal_free();
        let began = thread_seconds();
        while !replies.ready().is_empty() {
            replies.consume(replies.ready().len().min(64 << 10));
        }
        let seconds = thread_seconds() - began;
        assert!(seconds < 5.0, "{seconds}");
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

    /// A client without replies is held back by waiting transactions, and leaves nothing behind.
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

    #[test]
    fn what_is_held_leaves_with_what_follows_it() {
        let mut replies = Replies::default();
        write(&mut replies, "a");
        replies.seal_free();
        replies.consume(1);
        // Sent already, so there is nothing to hold.
        replies.hold_free();
        write(&mut replies, "bb");
        replies.seal_free();
        replies.hold_free();
        write(&mut replies, "c");
        let mark = replies.seal_parked(1);
        write(&mut replies, "d");
        replies.seal_free();
        assert_eq!((replies.ready(), replies.parked()), (&b""[..], 1));
        replies.acknowledge(mark);
        assert_eq!((replies.ready(), replies.parked()), (&b"bbcd"[..], 0));
        replies.consume(4);

        // An early segment is not waited for; a failing segment takes nothing along.
        write(&mut replies, "e");
        replies.seal_free();
        replies.hold_free();
        write(&mut replies, "f");
        replies.seal_early(1, 0);
        assert_eq!(replies.ready(), b"ef");
        write(&mut replies, "g");
        replies.seal_free();
        replies.hold_free();
        write(&mut replies, "h");
        replies.seal_parked(1);
        assert_eq!(replies.ready(), b"ef");
        replies.fail("lost");
        assert_eq!(replies.ready(), b"efg-lost\r\n");
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

    /// An early reply is not sent again, and its transaction is still waited for.
    #[test]
    fn early_replies_leave_before_their_transactions() {
        let mut replies = Replies::default();
        write(&mut replies, "a");
        let first = replies.seal_early(1, 100);
        write(&mut replies, "b");
        replies.seal_behind();
        assert_eq!((replies.ready(), replies.first_waiting()), (&b"a"[..], Some(first)));
        replies.consume(1);
        assert_eq!((replies.ready(), replies.parked()), (&b""[..], 1));
        assert_eq!((replies.early_for_ms(100), replies.early_for_ms(350)), (0, 250));
        replies.acknowledge(first);
        assert_eq!((replies.ready(), replies.first_waiting()), (&b"b"[..], None));
        assert_eq!((replies.parked(), replies.early_for_ms(350)), (0, 0));
        replies.consume(1);
        for sent in [0, 1, 2] {
            write(&mut replies, "c");
            replies.seal_early(1, 0);
            write(&mut replies, "d");
            replies.seal_early(1, 0);
            write(&mut replies, "e");
            replies.seal_behind();
            replies.consume(sent);
            replies.fail("lost");
            assert_eq!(replies.ready(), &b"cd-lost\r\n"[sent..]);
            replies.consume(9 - sent);
            assert_eq!((replies.segments.len(), replies.parked()), (0, 0));
        }
    }

    proptest! {
        /// Against a list of texts: nothing leaves early, late or twice.
        #[test]
        fn as_a_list_of_texts(steps in proptest::collection::vec((0u8..7, 0usize..40), 0..60)) {
            let mut replies = Replies::default();
            // Text, whether it may leave, whether it needs all texts before, the mark it waits for.
            let mut all: Vec<(String, bool, bool, Option<u64>)> = Vec::new();
            let mut sent = Vec::new();
            for (number, (step, size)) in steps.into_iter().enumerate() {
                match step {
                    0..4 => {
                        let text = format!("{number}:{}", "x".repeat(size));
                        match size % 2 {
                            0 => write(&mut replies, &text),
                            // A longer text is not copied.
                            _ => {
                                let at = replies.append(text.clone().into_bytes());
                                prop_assert_eq!(&replies.buffer()[at..], text.as_bytes());
                            }
                        }
                        let mark = match step {
                            0 => Some(replies.seal_parked(1)),
                            1 => { replies.seal_free(); None }
                            2 => Some(replies.seal_early(1, 0)),
                            _ => { replies.seal_behind(); None }
                        };
                        all.push((text, step != 0, step == 3, mark));
                    }
                    4 => {
                        let waiting: Vec<usize> =
                            (0..all.len()).filter(|at| all[*at].3.is_some()).collect();
                        if let Some(at) = waiting.get(size % waiting.len().max(1)) {
                            let mark = all[*at].3.take();
                            all[*at].1 = true;
                            replies.acknowledge(mark.unwrap());
                        }
                    }
                    _ => {
                        let n = size.min(replies.ready().len());
                        sent.extend_from_slice(&replies.ready()[..n]);
                        replies.consume(n);
                    }
                }
                let mut free = String::new();
                for (at, (text, may_leave, is_behind, _)) in all.iter().enumerate() {
                    let is_held = *is_behind && all[..at].iter().any(|reply| reply.3.is_some());
                    if !may_leave || is_held {
                        break;
                    }
                    free.push_str(text);
                }
                let mut unsent = replies.written();
                unsent.truncate((replies.ready_end() - replies.begin) as usize - replies.sent);
                prop_assert!(unsent.starts_with(replies.ready()));
                prop_assert_eq!(unsent.is_empty(), replies.ready().is_empty());
                let now = [&sent[..], &unsent].concat();
                prop_assert_eq!(String::from_utf8(now).unwrap(), free);
                let parked = all.iter().filter(|reply| reply.3.is_some()).count();
                prop_assert_eq!(replies.parked(), parked);
                let first = all.iter().find_map(|reply| reply.3);
                prop_assert_eq!(replies.first_waiting(), first);
            }
        }
    }
}
