//! The client's input: bytes, and the requests in them.

use super::{Conversation, MOST_ARGUMENTS, MOST_RUN_BYTES, Silence};
use crate::request::Request;
use crate::resp::reply::Reply;
use crate::resp::request::{Limits, Parsed};
use crate::state::Shared;
use std::sync::atomic::Ordering::Relaxed;

/// Input from this many bytes on is not copied for its job.
const LONG_INPUT: usize = 256 << 10;

impl Conversation {
    /// Takes bytes from the client.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.client.is_closing {
            return;
        }
        self.compact();
        let wanted = self.parser.wanted(self.input.len() - self.taken);
        // A large argument grows the buffer as the bytes arrive, not as the size is announced.
        self.input.reserve(bytes.len().max(wanted.min(self.input.len())));
        self.input.extend_from_slice(bytes);
        self.is_incomplete = false;
    }

    /// Frees the taken input. Not while a run refers to the input, and not before the taken input
    /// is the greater part: then no byte is moved more than twice.
    pub(super) fn compact(&mut self) {
        if self.taken == 0 || !self.run.is_empty() || self.stash.is_some() {
            return;
        }
        if self.taken == self.input.len() {
            match self.input.capacity() > MOST_RUN_BYTES {
                true => self.input = Vec::new(),
                false => self.input.clear(),
            }
        } else if self.taken > self.input.len() / 2 {
            self.input.drain(..self.taken);
        } else {
            return;
        }
        self.taken = 0;
    }

    /// Takes the input up to the end of the run's only request, if nothing else refers to the input
    /// and it is long: the job of the request owns the input, and nothing is copied.
    pub(super) fn take_long_input(&mut self) -> Option<Vec<u8>> {
        let is_referred_to = self.stash.is_some() || self.unfinished.is_some();
        if self.taken < LONG_INPUT || is_referred_to || !self.run.is_one_request() {
            return None;
        }
        let rest = self.input.split_off(self.taken);
        self.taken = 0;
        Some(std::mem::replace(&mut self.input, rest))
    }

    /// Parses a request. `None` if no request is complete, or the input is no request at all.
    pub(super) fn parse(&mut self, shared: &Shared) -> Option<Request> {
        let limits = match self.client.login.is_missing(&shared.access) {
            true => Limits::BEFORE_LOGIN,
            false => Limits {
                arguments: MOST_ARGUMENTS,
                argument_bytes: shared.settings.longest_argument(),
            },
        };
        let most = shared.settings.longest_request();
        while self.protocol_error.is_none() {
            let input = &self.input[self.taken..];
            match self.parser.next(input, &limits) {
                Ok(Parsed::Incomplete) if input.len() > most => {
                    self.protocol_error = Some(too_large(shared, most));
                }
                Ok(Parsed::Request(length)) if length > most => {
                    self.protocol_error = Some(too_large(shared, most));
                }
                Ok(Parsed::Incomplete) => {
                    self.is_incomplete = true;
                    return None;
                }
                Ok(Parsed::Nothing(length)) => self.taken += length,
                Ok(Parsed::Request(length)) => {
                    let (arguments, renamed) =
                        (self.parser.arguments(input), &shared.settings.renamed);
                    let request = Request::new(arguments, self.taken, renamed);
                    self.parser.free_unused();
                    self.taken += length;
                    return Some(request);
                }
                Err(error) => self.protocol_error = Some(format!("ERR {error}")),
            }
        }
        None
    }

    /// Ends the conversation if its input was no request: the begin of the next request is unknown.
    pub(super) fn end_broken(&mut self, shared: &Shared) {
        if let Some(text) = self.protocol_error.take() {
            shared.stats.count_error(&text);
            if self.client.silence == Silence::None {
                Reply::new(self.replies.buffer(), self.client.is_resp3).error(&text);
                self.replies.seal_free();
            }
            self.client.is_closing = true;
        }
    }
}

fn too_large(shared: &Shared, most: usize) -> String {
    shared.stats.counters.over_input.fetch_add(1, Relaxed);
    format!("ERR Protocol error: the request is larger than {most} bytes")
}
