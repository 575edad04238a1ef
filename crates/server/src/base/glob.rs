//! Glob patterns: `*`, `?`, `[a-z]`, `[^a]`, and `\` before any byte.

/// Whether a text matches a pattern as a whole. After a mismatch only the last `*` is tried again,
/// with a byte more, so the time is at most the product of the lengths.
pub fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    let (mut p, mut t) = (0, 0);
    // Behind the last `*`, and the end of the text covered by the `*`.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        match one(&pattern[p..], text[t], ignore_case) {
            Some(length) => (p, t) = (p + length, t + 1),
            None => match star {
                Some((behind, covered)) => {
                    star = Some((behind, covered + 1));
                    (p, t) = (behind, covered + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// If the first element of a pattern matches a byte, the length of the element.
fn one(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
    let fold = |b: u8| if ignore_case { b.to_ascii_lowercase() } else { b };
    let equal = |b: u8| fold(b) == fold(byte);
    match *pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => equal(escaped).then_some(2),
        [b'[', ref class @ ..] => {
            let (is_in, length) = class_has(class, fold(byte), fold);
            is_in.then_some(length + 1)
        }
        [literal, ..] => equal(literal).then_some(1),
    }
}

/// Whether a class, behind `[`, has a byte; and the length of the class with `]`, which may be
/// missing.
fn class_has(class: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let (mut at, mut found) = (usize::from(negated), false);
    while let Some(&first) = class.get(at) {
        match (first, class.get(at + 1), class.get(at + 2)) {
            (b']', ..) => return (found != negated, at + 1),
            (b'\\', Some(&escaped), _) => {
                found |= fold(escaped) == byte;
                at += 2;
            }
            (_, Some(b'-'), Some(&last)) => {
                let (low, high) = (fold(first).min(fold(last)), fold(first).max(fold(last)));
                found |= (low..=high).contains(&byte);
                at += 3;
            }
            _ => {
                found |= fold(first) == byte;
                at += 1;
            }
        }
    }
    (found != negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns() {
        let all = |pattern: &str, texts: &[&str], expected| {
            for text in texts {
                let found = matches(pattern.as_bytes(), text.as_bytes(), false);
                assert_eq!(found, expected, "{pattern} {text}");
            }
        };
        all("foo*", &["foo", "foo_a"], true);
        all("foo*", &["fo", "afoo"], false);
        all("h?llo", &["hello", "hallo"], true);
        all("h?llo", &["hllo"], false);
        all("h[a-c]l\\*o", &["hal*o", "hbl*o"], true);
        all("h[^a-c]llo", &["hallo"], false);
        all("h[^a-c]llo", &["hello"], true);
        all("[z-a]", &["m"], true);
        all("*a*b", &["aab", "xaxb"], true);
        all("*a*b", &["ba", "aa"], false);
        all("", &[""], true);
        all("[a", &["a"], true);
        assert!(matches(b"HEL*", b"hello", true) && !matches(b"HEL*", b"hello", false));
        let long = "a".repeat(40);
        all("a*a*a*a*a*a*a*a*a*a*a*a*b", &[&long], false);
    }

    proptest! {
        #[test]
        fn any_pattern_ends(pattern: Vec<u8>, text: Vec<u8>) {
            matches(&pattern, &text, false);
        }
    }
}
