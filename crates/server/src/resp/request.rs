//! Requests: arrays of bulk strings, or inline commands.
//!
//! The parser reads each byte once, in whatever pieces the input arrives: between two calls the
//! parser keeps its position. The arguments of a request are ranges of the input, which is not
//! copied.

use super::inline;
use smallvec::SmallVec;
use std::fmt;

/// Limits for requests of a client.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most arguments of a request.
    pub arguments: usize,
    /// Longest argument in bytes.
    pub argument_bytes: usize,
}

impl Limits {
    /// The limits of a client that has to log in first.
    pub const BEFORE_LOGIN: Limits = Limits { arguments: 10, argument_bytes: 16 << 10 };

    /// The word for the limits in an error.
    fn whose(&self) -> &'static str {
        if self.arguments == Limits::BEFORE_LOGIN.arguments { "unauthenticated" } else { "invalid" }
    }
}

/// Longest line: of an inline command, or of a length.
const LONGEST_LINE: usize = 64 << 10;

/// A client's parser keeps room for as many arguments, and for as long a line of words.
const MOST_KEPT: usize = 1 << 10;

/// Ranges of the arguments, relative to the beginning of the request.
type Ranges = SmallVec<[(usize, usize); 8]>;

/// A request is not Redis's protocol: the connection cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError(pub String);

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Protocol error: {}", self.0)
    }
}

impl std::error::Error for ProtocolError {}

/// The result of [`Parser::next`].
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The request is not complete: call again with more input behind it.
    Incomplete,
    /// The arguments are in [`Parser::arguments`], and the request has this length.
    Request(usize),
    /// An empty request of this length, which has no reply.
    Nothing(usize),
}

/// Parses one request after the other.
#[derive(Debug, Default)]
pub struct Parser {
    /// The parsed length of the request.
    at: usize,
    /// The position up to which no end of line was found.
    searched: usize,
    /// Arguments still to come; `None` before the first line.
    missing: Option<usize>,
    /// The length of the next argument.
    bulk: Option<usize>,
    ranges: Ranges,
    /// Arguments of an inline command, with quotes and escapes resolved.
    inline: Vec<Vec<u8>>,
}

/// The arguments of a request.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    input: &'a [u8],
    parser: &'a Parser,
}

impl<'a> Arguments<'a> {
    /// Number of arguments, the name of the command included.
    pub fn len(&self) -> usize {
        self.parser.ranges.len().max(self.parser.inline.len())
    }

    /// The ranges of the arguments in the input; `None` for an inline command.
    pub fn ranges(&self) -> Option<impl Iterator<Item = (usize, usize)> + use<'a>> {
        (!self.parser.ranges.is_empty()).then(|| self.parser.ranges.iter().copied())
    }

    /// The argument at `at`.
    pub fn get(&self, at: usize) -> &'a [u8] {
        match self.parser.ranges.get(at) {
            Some(&(from, to)) => &self.input[from..to],
            None => &self.parser.inline[at],
        }
    }

    /// All arguments.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let this = *self;
        (0..this.len()).map(move |at| this.get(at))
    }
}

fn error<T>(text: impl Into<String>) -> Result<T, ProtocolError> {
    Err(ProtocolError(text.into()))
}

impl Parser {
    /// Continues to parse the request at the beginning of `input`, which holds the same bytes as in
    /// the last call and perhaps more. After a complete request the next request begins behind.
    ///
    /// # Errors
    /// The input is not Redis's protocol, or beyond a limit.
    pub fn next(&mut self, input: &[u8], limits: &Limits) -> Result<Parsed, ProtocolError> {
        if self.at == 0 && self.missing.is_none() {
            self.ranges.clear();
            self.inline.clear();
            match input.first() {
                None => return Ok(Parsed::Incomplete),
                Some(b'*') => {}
                Some(_) => return self.inline_command(input),
            }
            let Some(line) = self.line(input, "too big mbulk count string")? else {
                return Ok(Parsed::Incomplete);
            };
            let count = super::number::integer(&line[1..]);
            let Some(count) = count.filter(|count| *count <= limits.arguments as i64) else {
                return error(format!("{} multibulk length", limits.whose()));
            };
            if count <= 0 {
                return Ok(Parsed::Nothing(self.finish()));
            }
            self.missing = Some(count as usize);
        }
        while self.missing.is_some_and(|missing| missing > 0) {
            if !self.argument(input, limits)? {
                return Ok(Parsed::Incomplete);
            }
        }
        Ok(Parsed::Request(self.finish()))
    }

    /// The arguments of the last request, at the start of `input`.
    pub fn arguments<'a>(&'a self, input: &'a [u8]) -> Arguments<'a> {
        Arguments { input, parser: self }
    }

    /// Number of missing bytes of the incomplete argument; 0 if unknown.
    pub fn wanted(&self, available: usize) -> usize {
        self.bulk.map_or(0, |bulk| (self.at + bulk + 2).saturating_sub(available))
    }

    /// Frees the memory of the last request, if large: its arguments are no longer needed, and a
    /// client may send nothing else for long.
    pub fn free_unused(&mut self) {
        if self.ranges.capacity() > MOST_KEPT {
            self.ranges = Ranges::new();
        }
        if self.inline.capacity() > MOST_KEPT {
            self.inline = Vec::new();
        }
    }

    /// Ends a request; returns its length.
    fn finish(&mut self) -> usize {
        (self.missing, self.searched) = (None, 0);
        std::mem::take(&mut self.at)
    }

    /// Takes a line without its end, `None` if the end has not arrived yet.
    fn line<'i>(
        &mut self,
        input: &'i [u8],
        too_long: &str,
    ) -> Result<Option<&'i [u8]>, ProtocolError> {
        let from = self.at.max(self.searched);
        let found = memchr::memchr(b'\r', &input[from..]).map(|found| from + found);
        let Some(end) = found.filter(|end| *end + 1 < input.len()) else {
            self.searched = found.unwrap_or(input.len());
            if input.len() - self.at > LONGEST_LINE {
                return error(too_long);
            }
            return Ok(None);
        };
        if end - self.at >= LONGEST_LINE {
            return error(too_long);
        }
        let line = &input[self.at..end];
        // The byte behind a carriage return is taken for the end of the line, whatever the byte.
        (self.at, self.searched) = (end + 2, 0);
        Ok(Some(line))
    }

    /// Takes an argument; false if the argument has not arrived yet.
    fn argument(&mut self, input: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        let length = match self.bulk {
            Some(length) => length,
            None => {
                // A wrong byte is refused before its line is complete.
                match input.get(self.at) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(byte) => {
                        let got = byte.escape_ascii();
                        return error(format!("expected '$', got '{got}'"));
                    }
                }
                let Some(line) = self.line(input, "too big bulk count string")? else {
                    return Ok(false);
                };
                let length = super::number::integer(&line[1..]);
                let fits = |length: &i64| (0..=limits.argument_bytes as i64).contains(length);
                let Some(length) = length.filter(fits) else {
                    return error(format!("{} bulk length", limits.whose()));
                };
                self.bulk = Some(length as usize);
                length as usize
            }
        };
        if input.len() < self.at + length + 2 {
            return Ok(false);
        }
        self.ranges.push((self.at, self.at + length));
        self.at += length + 2;
        (self.bulk, self.searched) = (None, 0);
        self.missing = self.missing.map(|missing| missing - 1);
        Ok(true)
    }

    /// Takes a line of words.
    fn inline_command(&mut self, input: &[u8]) -> Result<Parsed, ProtocolError> {
        let from = self.searched.min(input.len());
        let Some(found) = memchr::memchr(b'\n', &input[from..]) else {
            self.searched = input.len();
            if input.len() > LONGEST_LINE {
                return error("too big inline request");
            }
            return Ok(Parsed::Incomplete);
        };
        let end = from + found;
        if end > LONGEST_LINE {
            return error("too big inline request");
        }
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        let Some(words) = inline::split(line) else {
            return error("unbalanced quotes in request");
        };
        self.searched = 0;
        if words.is_empty() {
            return Ok(Parsed::Nothing(end + 1));
        }
        self.inline = words;
        Ok(Parsed::Request(end + 1))
    }
}

#[cfg(test)]
mod tests;
