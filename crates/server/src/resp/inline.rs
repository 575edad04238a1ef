//! Lines typed by people: words separated by blanks, with quotes and escapes. Inline commands and
//! configuration files consist of such lines.

/// Whether a byte separates words, the vertical tab included.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Splits a line into words. A word in double quotes may hold `\n`, `\r`, `\t`, `\b`, `\a`, `\xHH`
/// and any other escaped byte; in single quotes, `\'`. `None` if quotes do not match.
pub fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut rest) = (Vec::new(), line);
    loop {
        let blanks = rest.iter().take_while(|byte| is_blank(**byte)).count();
        rest = &rest[blanks..];
        // A zero byte is a blank to C's parsers as well as their end.
        if rest.is_empty() || rest[0] == 0 {
            return Some(words);
        }
        let mut word = Vec::new();
        rest = take_word(rest, &mut word)?;
        words.push(word);
    }
}

/// Takes a word of quoted and bare parts; returns the rest.
fn take_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some(&first) = rest.first() {
        match first {
            blank if is_blank(blank) || blank == 0 => break,
            quote @ (b'"' | b'\'') => {
                rest = take_quoted(&rest[1..], quote, word)?;
                // A closing quote ends the word.
                return rest.first().is_none_or(|byte| is_blank(*byte)).then_some(rest);
            }
            byte => {
                word.push(byte);
                rest = &rest[1..];
            }
        }
    }
    Some(rest)
}

/// Takes the bytes up to the closing quote; returns the rest.
fn take_quoted<'a>(mut rest: &'a [u8], quote: u8, word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match *rest {
            [] => return None,
            [byte, ref after @ ..] if byte == quote => return Some(after),
            [b'\\', b'x', high, low, ref after @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
                word.push(digit(high) << 4 | digit(low));
                rest = after;
            }
            [b'\\', escaped, ref after @ ..] if quote == b'"' => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => other,
                });
                rest = after;
            }
            [b'\\', b'\'', ref after @ ..] if quote == b'\'' => {
                word.push(b'\'');
                rest = after;
            }
            [byte, ref after @ ..] => {
                word.push(byte);
                rest = after;
            }
        }
    }
}

/// Writes bytes as a printable word in double quotes that [`split`] reads back.
pub fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for &byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b'"' => out.push_str("\\\""),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b' '..=b'~' => out.push(byte as char),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let words = split(line.as_bytes())?;
        Some(words.into_iter().map(|word| String::from_utf8_lossy(&word).into_owned()).collect())
    }

    #[test]
    fn words_quotes_and_escapes() {
        let parts = |line| words(line).unwrap();
        assert_eq!(parts("  set  key value \t"), ["set", "key", "value"]);
        assert_eq!(parts(r#"set "a b" 'c d' "" e"f""#), ["set", "a b", "c d", "", "ef"]);
        assert_eq!(parts(r#""\x41\n\"\q" '\'\n'"#), ["A\n\"q", "'\\n"]);
        assert!(parts("").is_empty());
        assert_eq!(parts("a\u{b}\u{c}b\0c"), ["a", "b"]);
        for unbalanced in [r#"set "a"#, "'a", r#""a"b"#, r#"set """k""" v"#] {
            assert_eq!(words(unbalanced), None, "{unbalanced}");
        }
    }

    proptest! {
        #[test]
        fn what_is_quoted_reads_back(bytes: Vec<u8>) {
            prop_assert_eq!(split(quoted(&bytes).as_bytes()), Some(vec![bytes]));
        }

        #[test]
        fn any_line_is_split_or_refused(line: Vec<u8>) {
            let _ = split(&line);
        }
    }
}
