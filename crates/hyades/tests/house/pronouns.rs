//! Comments name their nouns: few of their words are pronouns.

use super::{expect_none, sources};
use std::collections::BTreeMap;

const PRONOUNS: [&str; 17] = [
    "it", "its", "they", "them", "their", "that", "this", "those", "these", "such", "one", "ones",
    "other", "others", "which", "what", "whose",
];

/// Shorter sentences may have any share of pronouns.
const LEAST_WORDS: usize = 8;

/// The most pronouns of a sentence, as a divisor of the number of words.
const OF_A_SENTENCE: usize = 4;

/// The most pronouns of a crate, in hundredths of the words of all comments.
const PERCENT_OF_A_CRATE: usize = 7;

/// The text of a comment line; `None` for code, and for lines of a code block in documentation.
fn prose<'l>(line: &'l str, in_code: &mut bool) -> Option<&'l str> {
    let text = line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']);
    if text.trim_start().starts_with("```") {
        *in_code = !*in_code;
        return None;
    }
    Some(text.trim()).filter(|_| !*in_code)
}

/// Sentences of the comments of a file, each with the line of its end. Code in backticks is one
/// word.
fn sentences(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut sentence, mut in_code) = (Vec::new(), String::new(), false);
    let mut end = |at: usize, sentence: &mut String| {
        let whole = std::mem::take(sentence);
        found.extend(Some((at, whole)).filter(|(_, whole)| !whole.trim().is_empty()));
    };
    for (at, line) in text.lines().enumerate() {
        let Some(text) = prose(line, &mut in_code).filter(|text| !text.is_empty()) else {
            end(at, &mut sentence);
            continue;
        };
        if text.starts_with(['-', '#', '*', '|']) {
            end(at, &mut sentence);
        }
        let plain: String = text.split('`').step_by(2).collect::<Vec<_>>().join("X");
        for part in plain.split_inclusive(['.', ':', ';', '?']) {
            sentence.push_str(part);
            if part.ends_with(['.', ':', ';', '?']) {
                end(at + 1, &mut sentence);
            }
        }
        sentence.push(' ');
    }
    end(text.lines().count(), &mut sentence);
    found
}

/// The numbers of words and of pronouns.
fn count(text: &str) -> (usize, usize) {
    let letters = |c: char| c.is_ascii_alphabetic() || c == '\'';
    let words = text.split(|c| !letters(c)).filter(|word| !word.is_empty());
    words.fold((0, 0), |(words, pronouns), word| {
        let is_pronoun = PRONOUNS.iter().any(|pronoun| word.eq_ignore_ascii_case(pronoun));
        (words + 1, pronouns + usize::from(is_pronoun))
    })
}

#[test]
fn sentences_are_told_apart() {
    let text =
        "//! One of `a. b` is:\n//! - it, that.\n//!\n//! ```\n//! it\n//! ```\nlet it = 1;\n";
    let found: Vec<_> = sentences(text).into_iter().map(|(_, text)| count(&text)).collect();
    assert_eq!(found, [(4, 1), (2, 2)]);
}

#[test]
fn comments_name_their_nouns() {
    let (mut shares, mut found) = (BTreeMap::<String, (usize, usize)>::new(), Vec::new());
    for source in sources() {
        let mut parts = source.path.split('/');
        let name: Vec<&str> = parts.by_ref().take(2).collect();
        let share = shares.entry(name.join("/")).or_default();
        for (line, sentence) in sentences(&source.text) {
            let (words, pronouns) = count(&sentence);
            (share.0, share.1) = (share.0 + words, share.1 + pronouns);
            if words >= LEAST_WORDS && pronouns * OF_A_SENTENCE > words {
                found.push(format!("{}:{line}: {pronouns} of {words}: {sentence}", source.path));
            }
        }
    }
    for (name, (words, pronouns)) in &shares {
        println!("{name}: {:.1} % of {words} words", 100.0 * *pronouns as f64 / *words as f64);
        if pronouns * 100 > words * PERCENT_OF_A_CRATE {
            found.push(format!("{name}: {pronouns} of {words} words are pronouns"));
        }
    }
    expect_none(found, "say the noun in place of the pronoun");
}
