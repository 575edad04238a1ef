//! What an interpreter is asked to run, and how that ends.

use super::control::Halt;
use super::header::Flags;

/// The digest of a script, or of the code of a library.
pub type Sha = [u8; 20];

/// A script that is to be run.
pub struct Call<'a> {
    /// The digest of the body.
    pub sha: &'a Sha,
    /// The body, without its first line if that begins with `#!`.
    pub body: &'a [u8],
    /// KEYS.
    pub keys: &'a [&'a [u8]],
    /// ARGV.
    pub arguments: &'a [&'a [u8]],
}

/// How a script has ended, if it has no reply.
#[derive(Debug, PartialEq, Eq)]
pub enum ScriptEnd {
    /// An error, with the place that it comes from: the name of the chunk and the line.
    Error(String, Option<(String, i64)>),
    /// It was ended.
    Halted(Halt),
}

/// A function that is to be run.
pub struct FunctionCall<'a> {
    /// The digest of the code of its library.
    pub sha: &'a Sha,
    /// Its name in lower case.
    pub name: &'a [u8],
    /// Reads the code of the library.
    pub code: &'a dyn Fn() -> Result<Vec<u8>, Halt>,
    /// The keys.
    pub keys: &'a [&'a [u8]],
    /// The other arguments.
    pub arguments: &'a [&'a [u8]],
}

/// A function of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredFunction {
    /// The name, as the code has it.
    pub name: Vec<u8>,
    /// What the function says of itself.
    pub flags: Flags,
    /// What it does, in words.
    pub description: Option<Vec<u8>>,
}
