//! Replies of Redis's protocol, version 2: cut from a stream, and compared with expected replies.

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// `+`
    Simple(String),
    /// `-`
    Error(String),
    /// `:`
    Integer(i64),
    /// `$`; `None` is the null string.
    Text(Option<String>),
    /// `*`; `None` is the null array.
    Array(Option<Vec<Answer>>),
}

/// The expected reply.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// This reply.
    Same(Answer),
    /// An array of these replies, in any order, in groups of this size that belong together.
    AnyOrder(Vec<Answer>, usize),
    /// An error with this start.
    Error(&'static str),
    /// An array of these replies.
    All(Vec<Expected>),
    /// Any reply.
    Any,
}

impl Answer {
    /// The first reply of `bytes`, with its length. `None` if the reply is incomplete.
    pub fn parse(bytes: &[u8]) -> Option<(Answer, usize)> {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().expect("it is a number");
        let mut at = end + 2;
        let answer = match kind {
            "+" => Answer::Simple(rest.to_string()),
            "-" => Answer::Error(rest.to_string()),
            ":" => Answer::Integer(number()),
            "$" if number() < 0 => Answer::Text(None),
            "$" => {
                let length = number() as usize;
                let text = bytes.get(at..at + length)?;
                bytes.get(at + length..at + length + 2)?;
                at += length + 2;
                Answer::Text(Some(String::from_utf8_lossy(text).into_owned()))
            }
            "*" if number() < 0 => Answer::Array(None),
            "*" => {
                let mut all = Vec::new();
                for _ in 0..number() {
                    let (one, length) = Answer::parse(&bytes[at..])?;
                    at += length;
                    all.push(one);
                }
                Answer::Array(Some(all))
            }
            other => panic!("no reply begins with {other:?}"),
        };
        Some((answer, at))
    }

    /// A string.
    pub fn text(text: impl Into<String>) -> Answer {
        Answer::Text(Some(text.into()))
    }

    /// `+OK`
    pub fn ok() -> Answer {
        Answer::Simple("OK".into())
    }

    /// Whether the reply is an error with this start.
    pub fn is_error(&self, begins: &str) -> bool {
        matches!(self, Answer::Error(text) if text.starts_with(begins))
    }

    /// The reply as passed on by a script: there is one null.
    fn in_script(self) -> Answer {
        match self {
            Answer::Array(None) => Answer::Text(None),
            Answer::Array(Some(all)) => {
                Answer::Array(Some(all.into_iter().map(Answer::in_script).collect()))
            }
            other => other,
        }
    }

    /// Whether the reply is null.
    pub fn is_null(&self) -> bool {
        matches!(self, Answer::Text(None) | Answer::Array(None))
    }

    /// The texts of an array.
    pub fn texts(&self) -> Vec<String> {
        let Answer::Array(Some(all)) = self else { return Vec::new() };
        let text = |answer: &Answer| match answer {
            Answer::Text(Some(text)) => text.clone(),
            other => format!("{other:?}"),
        };
        all.iter().map(text).collect()
    }
}

impl Expected {
    /// The result of a script that passes the reply on.
    pub fn in_script(self) -> Expected {
        match self {
            Expected::Same(answer) => Expected::Same(answer.in_script()),
            other => other,
        }
    }

    /// Whether a reply is the expected reply.
    pub fn is(&self, answer: &Answer) -> bool {
        match (self, answer) {
            (Expected::Any, _) => true,
            (Expected::Same(same), answer) => same == answer,
            (Expected::Error(begins), answer) => answer.is_error(begins),
            (Expected::AnyOrder(all, group), Answer::Array(Some(found))) => {
                let sorted = |answers: &[Answer]| {
                    let mut groups: Vec<Vec<Answer>> =
                        answers.chunks(*group).map(<[Answer]>::to_vec).collect();
                    groups.sort();
                    groups
                };
                sorted(all) == sorted(found)
            }
            (Expected::All(all), Answer::Array(Some(found))) => {
                all.len() == found.len() && all.iter().zip(found).all(|(all, found)| all.is(found))
            }
            _ => false,
        }
    }
}

/// A request in the protocol.
pub(crate) fn encode(request: &[String], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", request.len()).as_bytes());
    for argument in request {
        out.extend_from_slice(format!("${}\r\n{argument}\r\n", argument.len()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_cut_and_compared() {
        let bytes = b"*3\r\n$1\r\na\r\n:-2\r\n*-1\r\n+OK\r\n";
        let (answer, length) = Answer::parse(bytes).unwrap();
        let parts = vec![Answer::text("a"), Answer::Integer(-2), Answer::Array(None)];
        assert_eq!((answer.clone(), length), (Answer::Array(Some(parts.clone())), 21));
        assert_eq!(Answer::parse(&bytes[21..]), Some((Answer::ok(), 5)));
        for end in 0..21 {
            assert_eq!(Answer::parse(&bytes[..end]), None, "{end}");
        }
        let turned: Vec<Answer> = parts.iter().rev().cloned().collect();
        assert!(Expected::AnyOrder(turned.clone(), 1).is(&answer));
        assert!(!Expected::AnyOrder(turned, 3).is(&answer));
        assert!(!Expected::AnyOrder(parts[1..].to_vec(), 1).is(&answer));
        assert!(Expected::Error("ERR no").is(&Answer::Error("ERR no such key".into())));
        assert!(!Expected::Same(Answer::ok()).is(&answer) && Expected::Any.is(&answer));
    }
}
