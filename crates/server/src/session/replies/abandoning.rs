//! Forgets replies whose transactions will not be known to be durable.

use super::{Replies, State};

impl Replies {
    /// Forgets all that may not be sent now.
    pub fn abandon(&mut self) {
        let end = self.ready_end();
        self.rest.drain(..).for_each(|bytes| self.front.extend_from_slice(&bytes));
        self.front.truncate((end - self.begin) as usize);
        self.segments.retain(|segment| segment.end <= end);
        self.segments.iter_mut().for_each(|segment| segment.state = State::Free);
        self.parked = 0;
        self.forget_sent();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_certain_is_sent_and_the_rest_is_forgotten() {
        for long in [0, 100] {
            let mut replies = Replies::default();
            replies.buffer().extend_from_slice(b"+1\r\n");
            let first = replies.seal_parked(1);
            replies.buffer().extend_from_slice(b"+2\r\n");
            replies.seal_early(1, 0);
            let at = replies.append(vec![b'x'; 4 + long]);
            assert!(replies.buffer().len() >= at + 4);
            let third = replies.seal_parked(1);
            replies.buffer().extend_from_slice(b"+4\r\n");
            replies.seal_free();
            replies.acknowledge(first);
            replies.consume(2);
            replies.abandon();
            assert_eq!(replies.ready(), b"\r\n+2\r\n");
            assert_eq!((replies.unsent(), replies.parked(), replies.first_waiting()), (6, 0, None));
            replies.acknowledge(third);
            replies.consume(6);
            assert_eq!((replies.unsent(), replies.ready()), (0, &b""[..]));
            replies.abandon();
            assert_eq!(replies.unsent(), 0);
        }
    }
}
