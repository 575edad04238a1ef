//! Replies, in the client's version of the protocol.

use super::number::{push_float, push_integer};

/// Writes the replies of one client.
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    resp3: bool,
    /// The length up to which strings are written.
    limit: usize,
    /// The limit is smaller than for other clients.
    is_limited: bool,
    /// The limit is smaller than on other threads.
    is_on_loop: bool,
    is_too_long: bool,
}

/// The error of a command with a reply longer than any client should be sent.
const TOO_LONG: &str = "ERR the reply is longer than 512 MiB";

/// The error of a reply longer than the limit of its client, which is disconnected.
pub const TOO_LONG_FOR_CLIENT: &str =
    "ERR the reply is longer than client-output-buffer-limit allows";

/// Stands for the error of a reply too long for an event loop: another thread makes the reply.
pub const TOO_LONG_FOR_LOOP: &str = "";

/// Most bytes of strings in a reply of an event loop. A single read of values is smaller; but a
/// command may name a value often, or draw a member often.
const MOST_BYTES_ON_LOOP: usize = 16 << 20;

/// Most bytes of strings in the reply to a command, or to the commands of an EXEC. The longest
/// string from a client by default fits, with the bytes around the string.
const MOST_BYTES: usize = (512 << 20) + (64 << 10);

impl<'a> Reply<'a> {
    /// Appends to `out`, in version 3 of the protocol or 2.
    pub fn new(out: &'a mut Vec<u8>, resp3: bool) -> Self {
        let limit = out.len() + MOST_BYTES;
        Reply { out, resp3, limit, is_limited: false, is_on_loop: false, is_too_long: false }
    }

    /// The same, for a client with this many bytes waiting at most; 0: any number. A longer reply
    /// is not made in vain.
    pub fn limited(out: &'a mut Vec<u8>, resp3: bool, most: u64) -> Self {
        let reply = Reply::new(out, resp3);
        let most = usize::try_from(most).ok().filter(|most| (1..MOST_BYTES).contains(most));
        match most {
            Some(most) => Reply { limit: reply.out.len() + most, is_limited: true, ..reply },
            None => reply,
        }
    }

    /// The same; bytes already written from this position on count as well.
    pub fn counted_from(self, begin: usize) -> Self {
        let limit = self.limit - (self.out.len() - begin);
        Reply { limit, ..self }
    }

    /// The same on an event loop.
    pub fn on_loop(self) -> Self {
        let limit = self.out.len() + MOST_BYTES_ON_LOOP;
        if limit < self.limit { Reply { limit, is_on_loop: true, ..self } } else { self }
    }

    /// The same, for bytes that are no reply of a command, and were bounded before.
    pub fn of_any_length(out: &'a mut Vec<u8>, resp3: bool) -> Self {
        Reply { limit: usize::MAX, ..Reply::new(out, resp3) }
    }

    /// Sets the version of the rest.
    pub fn set_version(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    /// Whether the client speaks version 3.
    pub fn is_resp3(&self) -> bool {
        self.resp3
    }

    /// Where the next reply begins.
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// The length of the longest string that can still be written.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.out.len())
    }

    /// Removes everything written since [`Reply::position`].
    pub fn truncate(&mut self, position: usize) {
        self.out.truncate(position);
        self.is_too_long = false;
    }

    /// Whether strings were left out, because the reply is too long to be kept and sent. The
    /// written bytes are no reply then, and have to be removed.
    pub fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// The error in place of a reply that is too long.
    pub fn too_long(&self) -> Option<&'static str> {
        let text = match (self.is_on_loop, self.is_limited) {
            (true, _) => TOO_LONG_FOR_LOOP,
            (_, true) => TOO_LONG_FOR_CLIENT,
            _ => TOO_LONG,
        };
        self.is_too_long.then_some(text)
    }

    fn head(&mut self, kind: u8, number: i64) {
        self.out.push(kind);
        push_integer(self.out, number);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A line of text without line breaks, for example `OK`.
    pub fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// `OK`.
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// An error. Line breaks in the text become blanks.
    pub fn error(&mut self, text: &str) {
        self.out.push(b'-');
        let is_break = |byte: u8| byte == b'\r' || byte == b'\n';
        self.out.extend(text.bytes().map(|byte| if is_break(byte) { b' ' } else { byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer.
    pub fn integer(&mut self, value: i64) {
        self.head(b':', value);
    }

    /// A length.
    pub fn count(&mut self, count: usize) {
        self.integer(count as i64);
    }

    /// A string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        if self.is_too_long || self.out.len() + bytes.len() > self.limit {
            self.is_too_long = true;
            return;
        }
        self.head(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A string of this length, with the bytes appended by `append`.
    ///
    /// # Errors
    /// Errors of `append`: the written bytes have to be removed.
    pub fn bulk_of<E>(
        &mut self,
        length: usize,
        append: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.is_too_long || self.out.len() + length > self.limit {
            self.is_too_long = true;
            return Ok(());
        }
        self.head(b'$', length as i64);
        let begin = self.out.len();
        self.out.reserve(length + 2);
        append(self.out)?;
        debug_assert_eq!(self.out.len() - begin, length, "the string has the length it was said");
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// A string, or null.
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// No value.
    pub fn null(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// No array.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Whether the bytes written since a position are [`Reply::null_array`].
    pub fn is_null_array_at(&self, position: usize) -> bool {
        self.out[position..] == *if self.resp3 { b"_\r\n".as_slice() } else { b"*-1\r\n" }
    }

    /// The head of an array.
    pub fn array(&mut self, length: usize) {
        self.head(b'*', length as i64);
    }

    /// Bytes written elsewhere.
    pub fn written(&mut self, bytes: &[u8]) {
        if self.is_too_long || self.out.len() + bytes.len() > self.limit {
            self.is_too_long = true;
            return;
        }
        self.out.extend_from_slice(bytes);
    }

    /// The head of an array, in front of the elements written since a position.
    pub fn array_before(&mut self, position: usize, length: usize) {
        self.head_before(position, |reply| reply.array(length));
    }

    /// The head of a map, in front of the pairs written since a position; in version 2 the head of
    /// an array of pairs, as arrays.
    pub fn pairs_before(&mut self, position: usize, pairs: usize) {
        self.head_before(position, |reply| match reply.resp3 {
            true => reply.map(pairs),
            false => reply.array(pairs),
        });
    }

    fn head_before(&mut self, position: usize, write: impl FnOnce(&mut Self)) {
        let end = self.out.len();
        write(self);
        let length = self.out.len() - end;
        self.out[position..].rotate_right(length);
    }

    /// The head of a map with this number of pairs; in version 2 an array of keys and values.
    pub fn map(&mut self, pairs: usize) {
        match self.resp3 {
            true => self.head(b'%', pairs as i64),
            false => self.array(2 * pairs),
        }
    }

    /// The head of a set.
    pub fn set(&mut self, length: usize) {
        self.head(if self.resp3 { b'~' } else { b'*' }, length as i64);
    }

    /// A floating-point number; a string in version 2.
    pub fn double(&mut self, value: f64) {
        let mut text = Vec::with_capacity(24);
        push_float(&mut text, value);
        self.double_text(&text);
    }

    /// The same, of a number as text.
    pub fn double_text(&mut self, text: &[u8]) {
        if self.resp3 {
            self.out.push(b',');
            self.out.extend_from_slice(text);
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text);
        }
    }

    /// A truth value; 1 or 0 in version 2.
    pub fn boolean(&mut self, value: bool) {
        match self.resp3 {
            true => self.out.extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" }),
            false => self.integer(i64::from(value)),
        }
    }

    /// Text for people; a string in version 2.
    pub fn verbatim(&mut self, text: &str) {
        if self.resp3 {
            if self.is_too_long || self.out.len() + text.len() > self.limit {
                self.is_too_long = true;
                return;
            }
            self.head(b'=', text.len() as i64 + 4);
            self.out.extend_from_slice(b"txt:");
            self.out.extend_from_slice(text.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// An integer of any size, as its digits; a string in version 2.
    pub fn big_number(&mut self, digits: &str) {
        if self.resp3 {
            self.out.push(b'(');
            self.out.extend_from_slice(digits.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(digits.as_bytes());
        }
    }

    /// The head of a message that replies to no command; an array in version 2.
    pub fn push(&mut self, length: usize) {
        self.head(if self.resp3 { b'>' } else { b'*' }, length as i64);
    }

    /// The head of an attribute of the next reply. Only in version 3.
    pub fn attribute(&mut self, pairs: usize) {
        self.head(b'|', pairs as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(resp3: bool, write: impl Fn(&mut Reply<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Reply::new(&mut out, resp3));
        String::from_utf8(out).unwrap().replace("\r\n", " ")
    }

    #[test]
    fn the_versions_differ_in_types() {
        let all = |reply: &mut Reply<'_>| {
            reply.ok();
            reply.null();
            reply.null_array();
            reply.map(1);
            reply.set(2);
            reply.double(0.5);
            reply.boolean(true);
            reply.verbatim("a");
        };
        assert_eq!(written(false, all), "+OK $-1 *-1 *2 *2 $3 0.5 :1 $1 a ");
        assert_eq!(written(true, all), "+OK _ _ %1 ~2 ,0.5 #t =5 txt:a ");
    }

    /// At the limit the string is whole; earlier bytes do not count.
    #[test]
    fn strings_are_written_up_to_the_limit() {
        for (most, text) in [(4, None), (3, Some(TOO_LONG_FOR_CLIENT)), (0, None)] {
            let mut out = b"before".to_vec();
            let mut reply = Reply::limited(&mut out, false, most);
            reply.bulk(b"1234");
            assert_eq!((reply.too_long(), reply.is_too_long()), (text, text.is_some()), "{most}");
            reply.truncate(6);
            assert!(!reply.is_too_long());
        }
        for (begin, is_long) in [(6, false), (5, true), (0, true)] {
            let mut out = b"before".to_vec();
            let mut reply = Reply::limited(&mut out, true, 4).counted_from(begin);
            reply.verbatim("1234");
            assert_eq!(reply.is_too_long(), is_long, "{begin}");
        }
        let mut out = Vec::new();
        let mut reply = Reply::limited(&mut out, false, u64::MAX);
        reply.bulk(&vec![0; MOST_BYTES + 1]);
        assert_eq!(reply.too_long(), Some(TOO_LONG));
    }

    #[test]
    fn an_error_is_one_line() {
        assert_eq!(written(false, |reply| reply.error("ERR a\r\nb")), "-ERR a  b ");
    }
}
