//! Patterns of Lua, matched in a bounded time: `a*a*a*..b` takes any time, and a match in a library
//! of Lua cannot be interrupted.

/// Most captures of a pattern.
const MOST_CAPTURES: usize = 32;

/// Most nested items of a pattern in a match: each is a call.
const MOST_DEPTH: usize = 200;

/// Steps between two calls of `goes_on`.
const STEPS: u32 = 10_000;

/// The reason of a match without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMatch {
    /// The pattern is malformed: the message.
    Malformed(&'static str),
    /// The caller does not want to go on.
    Stopped,
}

/// A part of the subject captured by a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// From the first byte to before the second.
    Bytes(usize, usize),
    /// `()`: the position of this byte.
    Position(usize),
}

/// The state of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Begun,
    Position,
    Done(usize),
}

/// A match of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternMatch {
    /// The first byte.
    pub from: usize,
    /// The byte behind the last byte of the match.
    pub to: usize,
    /// The captures; the whole match if the pattern has none.
    pub captures: Vec<Capture>,
}

/// A pattern and its subject.
struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<(usize, Open)>,
    steps: u32,
    goes_on: &'a mut dyn FnMut() -> bool,
}

type Ends = Result<Option<usize>, NoMatch>;

/// Finds the first match at `from` or behind. `goes_on` is asked now and then.
///
/// # Errors
/// The pattern is malformed, or the caller does not want to go on.
pub fn find(
    subject: &[u8],
    pattern: &[u8],
    from: usize,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<Option<PatternMatch>, NoMatch> {
    let (pattern, is_anchored) = match pattern {
        [b'^', rest @ ..] => (rest, true),
        _ => (pattern, false),
    };
    let mut matcher = Matcher { subject, pattern, captures: Vec::new(), steps: 0, goes_on };
    let mut at = from;
    while at <= subject.len() {
        matcher.captures.clear();
        if let Some(to) = matcher.item(at, 0, 0)? {
            return matcher.result(at, to).map(Some);
        }
        if is_anchored {
            break;
        }
        at += 1;
    }
    Ok(None)
}

/// Whether a byte belongs to a class: a letter behind `%`, or the byte itself.
fn is_in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}

impl Matcher<'_> {
    fn result(&self, from: usize, to: usize) -> Result<PatternMatch, NoMatch> {
        let capture = |&(begin, open): &(usize, Open)| match open {
            Open::Position => Ok(Capture::Position(begin)),
            Open::Done(end) => Ok(Capture::Bytes(begin, end)),
            Open::Begun => Err(NoMatch::Malformed("unfinished capture")),
        };
        let mut captures = self.captures.iter().map(capture).collect::<Result<Vec<_>, _>>()?;
        if captures.is_empty() {
            captures.push(Capture::Bytes(from, to));
        }
        Ok(PatternMatch { from, to, captures })
    }

    fn step(&mut self) -> Result<(), NoMatch> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS) && !(self.goes_on)() {
            return Err(NoMatch::Stopped);
        }
        Ok(())
    }

    fn at(&self, p: usize) -> Option<u8> {
        self.pattern.get(p).copied()
    }

    /// The place behind the class that begins at `p`.
    fn class_end(&self, p: usize) -> Result<usize, NoMatch> {
        match (self.at(p), self.at(p + 1)) {
            (Some(b'%'), None) => Err(NoMatch::Malformed("malformed pattern (ends with '%')")),
            (Some(b'%'), Some(_)) => Ok(p + 2),
            (Some(b'['), _) => self.set_end(p),
            _ => Ok(p + 1),
        }
    }

    fn set_end(&self, p: usize) -> Result<usize, NoMatch> {
        const MISSING: NoMatch = NoMatch::Malformed("malformed pattern (missing ']')");
        let mut at = p + 1;
        if self.at(at) == Some(b'^') {
            at += 1;
        }
        // The first byte belongs to the set, whatever the byte.
        loop {
            match self.at(at).ok_or(MISSING)? {
                b'%' => {
                    self.at(at + 1).ok_or(MISSING)?;
                    at += 2;
                }
                _ => at += 1,
            }
            if self.at(at).ok_or(MISSING)? == b']' {
                return Ok(at + 1);
            }
        }
    }

    /// Whether a byte belongs to the set from `p` to before `end`.
    fn is_in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let set = &self.pattern[p + 1..end - 1];
        let (set, is_in) = match set {
            [b'^', rest @ ..] => (rest, false),
            _ => (set, true),
        };
        let mut rest = set;
        loop {
            rest = match rest {
                [] => return !is_in,
                [b'%', class, more @ ..] => {
                    if is_in_class(byte, *class) {
                        return is_in;
                    }
                    more
                }
                [low, b'-', high, more @ ..] => {
                    if (*low..=*high).contains(&byte) {
                        return is_in;
                    }
                    more
                }
                [one, more @ ..] => {
                    if *one == byte {
                        return is_in;
                    }
                    more
                }
            };
        }
    }

    /// Whether the byte at `s` belongs to the class from `p` to before `end`.
    fn is_one(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.subject.get(s) else { return false };
        match self.pattern[p] {
            b'.' => true,
            b'%' => is_in_class(byte, self.pattern[p + 1]),
            b'[' => self.is_in_set(byte, p, end),
            own => own == byte,
        }
    }

    /// Matches the pattern from `p` on with the subject from `s` on: the place behind the match.
    fn item(&mut self, mut s: usize, mut p: usize, depth: usize) -> Ends {
        if depth > MOST_DEPTH {
            return Err(NoMatch::Malformed("pattern too complex"));
        }
        loop {
            self.step()?;
            let Some(byte) = self.at(p) else { return Ok(Some(s)) };
            match (byte, self.at(p + 1)) {
                (b'(', Some(b')')) => return self.open(s, p + 2, Open::Position, depth),
                (b'(', _) => return self.open(s, p + 1, Open::Begun, depth),
                (b')', _) => return self.close(s, p + 1, depth),
                (b'%', Some(b'b')) => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => match self.frontier(s, p + 2)? {
                    Some(end) => p = end,
                    None => return Ok(None),
                },
                (b'%', Some(digit @ b'0'..=b'9')) => match self.captured(s, digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => return Ok(None),
                },
                (b'$', None) => return Ok((s == self.subject.len()).then_some(s)),
                _ => {
                    let end = self.class_end(p)?;
                    let is_one = self.is_one(s, p, end);
                    match self.at(end) {
                        Some(b'?') => {
                            if is_one && let Some(to) = self.item(s + 1, end + 1, depth + 1)? {
                                return Ok(Some(to));
                            }
                            p = end + 1;
                        }
                        Some(b'*') => return self.most(s, p, end, depth),
                        Some(b'+') if is_one => return self.most(s + 1, p, end, depth),
                        Some(b'-') => return self.fewest(s, p, end, depth),
                        _ if !is_one => return Ok(None),
                        _ => (s, p) = (s + 1, end),
                    }
                }
            }
        }
    }

    fn most(&mut self, s: usize, p: usize, end: usize, depth: usize) -> Ends {
        let mut count = 0;
        while self.is_one(s + count, p, end) {
            self.step()?;
            count += 1;
        }
        loop {
            if let Some(to) = self.item(s + count, end + 1, depth + 1)? {
                return Ok(Some(to));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn fewest(&mut self, mut s: usize, p: usize, end: usize, depth: usize) -> Ends {
        loop {
            if let Some(to) = self.item(s, end + 1, depth + 1)? {
                return Ok(Some(to));
            }
            if !self.is_one(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, open: Open, depth: usize) -> Ends {
        if self.captures.len() == MOST_CAPTURES {
            return Err(NoMatch::Malformed("too many captures"));
        }
        let before = self.captures.len();
        self.captures.push((s, open));
        let to = self.item(s, p, depth + 1)?;
        if to.is_none() {
            self.captures.truncate(before);
        }
        Ok(to)
    }

    fn close(&mut self, s: usize, p: usize, depth: usize) -> Ends {
        let begun = self.captures.iter().rposition(|(_, open)| *open == Open::Begun);
        let at = begun.ok_or(NoMatch::Malformed("invalid pattern capture"))?;
        self.captures[at].1 = Open::Done(s);
        let to = self.item(s, p, depth + 1)?;
        if to.is_none() {
            self.captures[at].1 = Open::Begun;
        }
        Ok(to)
    }

    /// `%b()`: from an opening byte to the closing byte that balances it.
    fn balanced(&mut self, s: usize, p: usize) -> Ends {
        let (Some(open), Some(close)) = (self.at(p), self.at(p + 1)) else {
            return Err(NoMatch::Malformed("unbalanced pattern"));
        };
        if self.subject.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for at in s + 1..self.subject.len() {
            self.step()?;
            match self.subject[at] {
                byte if byte == close => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(Some(at + 1));
                    }
                }
                byte if byte == open => depth += 1,
                _ => {}
            }
        }
        Ok(None)
    }

    /// `%f[set]`: between a byte outside of the set and a byte inside. Returns the place behind the
    /// item in the pattern.
    fn frontier(&mut self, s: usize, p: usize) -> Ends {
        if self.at(p) != Some(b'[') {
            return Err(NoMatch::Malformed("missing '[' after '%f' in pattern"));
        }
        let end = self.class_end(p)?;
        let before = s.checked_sub(1).map_or(0, |at| self.subject[at]);
        let behind = self.subject.get(s).copied().unwrap_or(0);
        let is_there = !self.is_in_set(before, p, end) && self.is_in_set(behind, p, end);
        Ok(is_there.then_some(end))
    }

    /// `%1`: the same bytes as a capture.
    fn captured(&mut self, s: usize, digit: u8) -> Ends {
        let number = usize::from(digit - b'0');
        let capture = number.checked_sub(1).and_then(|at| self.captures.get(at));
        let Some(&(begin, Open::Done(end))) = capture else {
            return Err(NoMatch::Malformed("invalid capture index"));
        };
        let own = &self.subject[begin..end];
        Ok(self.subject[s..].starts_with(own).then_some(s + own.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(subject: &str, pattern: &str) -> Option<String> {
        let found = find(subject.as_bytes(), pattern.as_bytes(), 0, &mut || true).unwrap()?;
        let text = |capture: &Capture| match *capture {
            Capture::Bytes(from, to) => subject[from..to].to_string(),
            Capture::Position(at) => format!("@{at}"),
        };
        Some(found.captures.iter().map(text).collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn items_match_as_in_lua() {
        for (subject, pattern, captures) in [
            ("hello world", "o w", Some("o w")),
            ("hello", "l+", Some("ll")),
            ("hello", "^e", None),
            ("hello", "(h)(.)", Some("h|e")),
            ("key = value", "^(%w+)%s*=%s*(%w+)$", Some("key|value")),
            ("f(a(b)c)d", "%b()", Some("(a(b)c)")),
            ("THE (quick) fox", "%f[%a]%a+%f[%A]", Some("THE")),
            ("abcabc", "(abc)%1", Some("abc")),
            ("aXb", "a()X", Some("@1")),
            ("[[x]]", "%[%[(.-)%]%]", Some("x")),
            ("a-z", "[a%-z]+", Some("a-z")),
            ("]x", "[]]", Some("]")),
            ("x^", "[%^]", Some("^")),
            ("abc", "[^a-b]", Some("c")),
            ("", "^$", Some("")),
            ("a.b", "%.", Some(".")),
            ("aaa", "a-$", Some("aaa")),
            ("ab", "a?b?c?", Some("ab")),
            ("\u{7f}", "%c", Some("\u{7f}")),
        ] {
            assert_eq!(found(subject, pattern).as_deref(), captures, "{subject} {pattern}");
        }
    }

    #[test]
    fn malformed_patterns_are_told() {
        for (pattern, text) in [
            ("%", "malformed pattern (ends with '%')"),
            ("[a", "malformed pattern (missing ']')"),
            ("(a", "unfinished capture"),
            ("a)", "invalid pattern capture"),
            ("%1", "invalid capture index"),
            ("%f", "missing '[' after '%f' in pattern"),
            ("%b", "unbalanced pattern"),
        ] {
            let error = find(b"a", pattern.as_bytes(), 0, &mut || true);
            assert_eq!(error, Err(NoMatch::Malformed(text)), "{pattern}");
        }
        let deep = "(".repeat(MOST_CAPTURES + 1);
        let error = find(b"a", deep.as_bytes(), 0, &mut || true);
        assert_eq!(error, Err(NoMatch::Malformed("too many captures")));
        let deep = "a?".repeat(MOST_DEPTH + 2);
        let subject = "a".repeat(MOST_DEPTH + 2);
        let error = find(subject.as_bytes(), deep.as_bytes(), 0, &mut || true);
        assert_eq!(error, Err(NoMatch::Malformed("pattern too complex")));
    }

    /// A match that takes very long ends when its caller says so.
    #[test]
    fn a_pattern_that_explodes_is_stopped() {
        let subject = "a".repeat(5_000);
        let mut asked = 0;
        let mut goes_on = || {
            asked += 1;
            asked < 100
        };
        let pattern = "a*".repeat(30) + "b";
        let error = find(subject.as_bytes(), pattern.as_bytes(), 0, &mut goes_on);
        assert_eq!((error, asked), (Err(NoMatch::Stopped), 100));
    }
}
