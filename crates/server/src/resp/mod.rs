//! Redis's protocol: requests, replies and the text form of numbers.

pub mod inline;
pub mod number;
pub mod reply;
pub mod request;

/// Whether an argument is this word, in any case.
pub fn is(text: &[u8], word: &str) -> bool {
    text.eq_ignore_ascii_case(word.as_bytes())
}
