//! Lines of syntax, and the arguments that they describe.
//!
//! Words in lower case are arguments; words in upper case are tokens, sent literally by clients,
//! like `""` and the signs `*`, `~`, `=` and `$`. `[a]` may be missing, `a|b` is either of the two,
//! and `(..)` holds together. `a [a ..]` is one or more, `[a ..]` any number, and `(a ..)` one or
//! more as well. A token at the beginning of a bracket's contents belongs to the rest of them.
//! `name:[a|b]` and `name:(a b)` name a bracket's contents, `name:TOKEN` a token.
//!
//! The kind of an argument follows from its name, or is given, as in `timeout:double`. `pattern@1`
//! is found by the second of the command's key specifications.

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    Text,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    /// A word sent literally.
    Token,
    /// One of the argument's parts.
    OneOf,
    /// All of the argument's parts.
    Block,
}

/// Arguments that are keys.
const KEYS: [&str; 10] = [
    "destination",
    "destkey",
    "dst",
    "key",
    "key1",
    "key2",
    "newkey",
    "source",
    "sourcekey",
    "src",
];

/// Arguments that are integers.
const INTEGERS: [&str; 32] = [
    "bit",
    "bits",
    "client-id",
    "count",
    "cursor",
    "db",
    "decrement",
    "destination-db",
    "end",
    "frequency",
    "increment",
    "index",
    "index1",
    "index2",
    "len",
    "limit",
    "milliseconds",
    "num-matches",
    "numkeys",
    "numlocal",
    "numreplicas",
    "offset",
    "port",
    "protover",
    "rank",
    "seconds",
    "start",
    "stop",
    "timeout",
    "ttl",
    "version",
    "weight",
];

impl ArgumentKind {
    /// The name of the kind in COMMAND DOCS.
    pub fn name(self) -> &'static str {
        match self {
            ArgumentKind::Text => "string",
            ArgumentKind::Integer => "integer",
            ArgumentKind::Double => "double",
            ArgumentKind::Key => "key",
            ArgumentKind::Pattern => "pattern",
            ArgumentKind::UnixTime => "unix-time",
            ArgumentKind::Token => "pure-token",
            ArgumentKind::OneOf => "oneof",
            ArgumentKind::Block => "block",
        }
    }

    /// The kind of an argument with the given name.
    fn of(name: &str) -> ArgumentKind {
        match name {
            "pattern" => ArgumentKind::Pattern,
            "score" => ArgumentKind::Double,
            _ if KEYS.contains(&name) => ArgumentKind::Key,
            _ if INTEGERS.contains(&name) => ArgumentKind::Integer,
            _ if name.starts_with("unix-time") => ArgumentKind::UnixTime,
            _ => ArgumentKind::Text,
        }
    }

    /// The kind given behind a name.
    fn given(kind: &str) -> Option<ArgumentKind> {
        match kind {
            "double" => Some(ArgumentKind::Double),
            "integer" => Some(ArgumentKind::Integer),
            "string" => Some(ArgumentKind::Text),
            _ => None,
        }
    }
}

/// An argument, or a group of arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    pub name: String,
    pub kind: ArgumentKind,
    /// The word in front of the argument, or the argument itself.
    pub token: Option<&'static str>,
    /// The place of the key specification that finds the argument.
    pub key_spec: Option<usize>,
    /// The argument may be missing.
    pub is_optional: bool,
    /// There may be several.
    pub is_multiple: bool,
    /// Each repetition has the token in front.
    pub repeats_token: bool,
    /// The parts of [`ArgumentKind::OneOf`] and [`ArgumentKind::Block`].
    pub parts: Vec<Argument>,
}

impl Argument {
    fn new(name: &str, kind: ArgumentKind) -> Argument {
        Argument {
            name: name.to_string(),
            kind,
            token: None,
            key_spec: None,
            is_optional: false,
            is_multiple: false,
            repeats_token: false,
            parts: Vec::new(),
        }
    }

    fn token(name: &str, token: &'static str) -> Argument {
        Argument { token: Some(token), ..Argument::new(name, ArgumentKind::Token) }
    }

    /// A group of arguments, named after all of them.
    fn group(kind: ArgumentKind, parts: Vec<Argument>) -> Argument {
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let name = names.join("_");
        Argument { parts, ..Argument::new(&name, kind) }
    }

    /// The argument of a word.
    fn word(word: &'static str) -> Result<Argument, String> {
        if word == "\"\"" {
            return Ok(Argument::token("empty_string", ""));
        }
        if is_token(word) {
            return Ok(Argument::token(&word.to_ascii_lowercase(), word));
        }
        if let Some((name, behind)) = word.split_once(':') {
            if is_token(behind) {
                return Ok(Argument::token(name, behind));
            }
            if let Some(kind) = ArgumentKind::given(behind) {
                return Ok(Argument::new(name, kind));
            }
        }
        let (name, spec) = word.split_once('@').map_or((word, None), |(n, at)| (n, Some(at)));
        let of_name =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_:".contains(&byte);
        if name.is_empty() || name.ends_with(':') || !name.bytes().all(of_name) {
            return Err(format!("`{word}` is no name"));
        }
        let key_spec = match spec.map(str::parse::<usize>) {
            None => None,
            Some(Ok(at)) => Some(at),
            Some(Err(_)) => return Err(format!("`{word}` has no number behind @")),
        };
        Ok(Argument { key_spec, ..Argument::new(name, ArgumentKind::of(name)) })
    }

    /// The fewest words of a request for the argument.
    pub fn least_words(&self) -> usize {
        let own = match self.kind {
            _ if self.is_optional => return 0,
            ArgumentKind::Token => 0,
            ArgumentKind::OneOf => self.parts.iter().map(Argument::least_words).min().unwrap_or(0),
            ArgumentKind::Block => least_words(&self.parts),
            _ => 1,
        };
        own + usize::from(self.token.is_some())
    }

    /// Whether the number of words is always the same.
    pub fn is_fixed(&self) -> bool {
        let least = |part: &Argument| part.least_words();
        let are_equal = self.parts.windows(2).all(|pair| least(&pair[0]) == least(&pair[1]));
        !self.is_optional
            && !self.is_multiple
            && (self.kind != ArgumentKind::OneOf || are_equal)
            && self.parts.iter().all(Argument::is_fixed)
    }
}

/// The fewest words of a request for the arguments.
pub fn least_words(arguments: &[Argument]) -> usize {
    arguments.iter().map(Argument::least_words).sum()
}

/// Numbers the key specification that finds each key: the nth specification, or the last.
pub fn number_keys(arguments: &mut [Argument], specs: usize) {
    fn number(arguments: &mut [Argument], last: usize, next: &mut usize) {
        for argument in arguments {
            if argument.kind == ArgumentKind::Key {
                argument.key_spec = argument.key_spec.or(Some((*next).min(last)));
                *next += 1;
            }
            number(&mut argument.parts, last, next);
        }
    }
    if let Some(last) = specs.checked_sub(1) {
        number(arguments, last, &mut 0);
    }
}

fn is_token(word: &str) -> bool {
    let has_lower = word.bytes().any(|byte| byte.is_ascii_lowercase());
    !has_lower && word.bytes().any(|byte| byte.is_ascii_uppercase() || b"*~=$".contains(&byte))
}

/// The arguments of a line.
pub fn parse(line: &'static str) -> Result<Vec<Argument>, String> {
    let mut reader = SyntaxReader { words: words(line), at: 0 };
    let (arguments, _) = reader.row()?;
    match reader.take() {
        None => Ok(arguments),
        Some(word) => Err(format!("`{word}` ends nothing")),
    }
}

/// Names, tokens and signs.
fn words(line: &'static str) -> Vec<&'static str> {
    let mut words = Vec::new();
    for mut text in line.split_whitespace() {
        while let Some(at) = text.find(['[', ']', '(', ')', '|']) {
            words.extend((at > 0).then_some(&text[..at]));
            words.push(&text[at..=at]);
            text = &text[at + 1..];
        }
        words.extend((!text.is_empty()).then_some(text));
    }
    words
}

struct SyntaxReader {
    words: Vec<&'static str>,
    at: usize,
}

impl SyntaxReader {
    fn peek(&self) -> Option<&'static str> {
        self.words.get(self.at).copied()
    }

    fn take(&mut self) -> Option<&'static str> {
        let word = self.peek();
        self.at += usize::from(word.is_some());
        word
    }

    /// Reads the arguments up to the end of brackets or of an alternative, and whether they are
    /// repeated.
    fn row(&mut self) -> Result<(Vec<Argument>, bool), String> {
        let mut row = Vec::new();
        loop {
            let word = match self.peek() {
                None | Some("|" | "]" | ")") => return Ok((row, false)),
                Some(word) => word,
            };
            self.at += 1;
            if word == ".." {
                return match self.peek() {
                    Some("|" | "]" | ")") => Ok((row, true)),
                    _ => Err("`..` is not at the end of brackets".to_string()),
                };
            }
            let is_open = |word: &&str| matches!(*word, "[" | "(");
            let named = word.strip_suffix(':').zip(self.peek().filter(is_open));
            match named {
                Some((name, open)) => {
                    self.at += 1;
                    self.brackets(open, Some(name), &mut row)?;
                }
                None if is_open(&word) => self.brackets(word, None, &mut row)?,
                None => row.push(Argument::word(word)?),
            }
        }
    }

    /// Reads the contents of brackets, behind the arguments in front of the brackets.
    fn brackets(
        &mut self,
        open: &str,
        name: Option<&str>,
        row: &mut Vec<Argument>,
    ) -> Result<(), String> {
        let mut alternatives = Vec::new();
        let close = loop {
            alternatives.push(self.row()?);
            match self.take() {
                Some("|") => {}
                Some(close) => break close,
                None => return Err(format!("`{open}` has no end")),
            }
        };
        let is_optional = open == "[";
        if is_optional != (close == "]") {
            return Err(format!("`{close}` ends `{open}`"));
        }
        if let [(again, true)] = &alternatives[..]
            && is_optional
            && name.is_none()
            && !again.is_empty()
            && row.ends_with(again)
        {
            let once = row.split_off(row.len() - again.len());
            row.push(repeated(once)?);
            return Ok(());
        }
        let join = |(row, repeats)| if repeats { repeated(row) } else { joined(row) };
        let mut parts = alternatives.into_iter().map(join).collect::<Result<Vec<_>, _>>()?;
        let mut argument = match parts.len() {
            1 => parts.remove(0),
            _ => Argument::group(ArgumentKind::OneOf, parts),
        };
        if let Some(name) = name {
            if argument.parts.is_empty() {
                return Err(format!("`{name}` names a single argument"));
            }
            argument.name = name.to_string();
        }
        argument.is_optional |= is_optional;
        row.push(argument);
        Ok(())
    }
}

/// Joins the arguments of a row into one. A token in front of a row belongs to the row.
fn joined(mut row: Vec<Argument>) -> Result<Argument, String> {
    match &row[..] {
        [] => Err("brackets hold nothing".to_string()),
        [_] => Ok(row.remove(0)),
        [first, ..] if first.kind == ArgumentKind::Token && !first.is_optional => {
            let token = first.token;
            row.remove(0);
            let rest = joined(row)?;
            match rest.token {
                None if !rest.is_optional => Ok(Argument { token, ..rest }),
                // The token may stand alone.
                _ if rest.is_optional => {
                    Ok(Argument { token, ..Argument::group(ArgumentKind::Block, vec![rest]) })
                }
                _ => Err(format!("what stands behind {} is no argument", token.unwrap_or(""))),
            }
        }
        _ => Ok(Argument::group(ArgumentKind::Block, row)),
    }
}

/// As `joined`, one or more times.
fn repeated(row: Vec<Argument>) -> Result<Argument, String> {
    let once = joined(row)?;
    let repeats_token = once.kind != ArgumentKind::Token && once.token.is_some();
    Ok(Argument { is_multiple: true, repeats_token, ..once })
}

#[cfg(test)]
mod tests;
