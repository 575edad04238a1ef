//! The function of the command added by tests in one row of the catalogue.

use super::Done;
use crate::data::keyspace::Keyspace;
use crate::resp::reply::Reply;

/// Appends the words, and replies the length.
pub fn example(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let words = args[2..].concat();
    super::strings::append(space, &[args[0], args[1], &words], reply)
}
