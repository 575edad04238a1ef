//! Calls of an interpreter, and their ends.

use super::control::Halt;
use super::header::Flags;

/// The digest of a script, or of the code of a library.
pub type Sha = [u8; 20];

/// A script to run.
pub struct Call<'a> {
    /// The digest of the body.
    pub sha: &'a Sha,
    /// The body, without a first line that begins with `#!`.
    pub body: &'a [u8],
    /// KEYS.
    pub keys: &'a [&'a [u8]],
    /// ARGV.
    pub arguments: &'a [&'a [u8]],
}

/// The end of a script without a reply.
#[derive(Debug, PartialEq, Eq)]
pub enum ScriptEnd {
    /// An error, with its place: the name of the chunk and the line.
    Error(String, Option<(String, i64)>),
    /// The script was ended.
    Halted(Halt),
}

/// A function to run.
pub struct FunctionCall<'a> {
    /// The digest of the code of the library.
    pub sha: &'a Sha,
    /// The name in lower case.
    pub name: &'a [u8],
    /// Reads the code of the library.
    pub code: &'a dyn Fn() -> Result<Vec<u8>, Halt>,
    /// The keys.
    pub keys: &'a [&'a [u8]],
    /// The remaining arguments.
    pub arguments: &'a [&'a [u8]],
}

/// A function of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredFunction {
    /// The name, as in the code.
    pub name: Vec<u8>,
    /// The flags declared by the function.
    pub flags: Flags,
    /// The description, in words.
    pub description: Option<Vec<u8>>,
}
