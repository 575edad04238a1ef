//! The shared parts of the functions of libraries: arguments, results and errors.

use super::convert::{as_number, error_table};
use crate::resp::number::push_general;
use mlua::{Function, IntoLua, Lua, MultiValue, Value, Variadic};
use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

/// Why a function of a library has no results.
#[derive(Debug)]
pub enum LibraryError {
    /// The message of the error.
    Text(Cow<'static, str>),
    /// An error of the interpreter: no memory is left.
    Lua(mlua::Error),
}

impl From<mlua::Error> for LibraryError {
    fn from(error: mlua::Error) -> LibraryError {
        LibraryError::Lua(error)
    }
}

impl From<&'static str> for LibraryError {
    fn from(text: &'static str) -> LibraryError {
        LibraryError::Text(text.into())
    }
}

impl From<String> for LibraryError {
    fn from(text: String) -> LibraryError {
        LibraryError::Text(text.into())
    }
}

/// Most bytes of an encoded value, and most values in it: tables with shared parts stand for more
/// than there is memory, or time.
const MOST_ENCODED: usize = 64 << 20;
const MOST_VALUES: usize = 1 << 20;

/// A value during its encoding.
#[derive(Debug, Default)]
pub struct Encoded {
    bytes: Vec<u8>,
    values: usize,
}

impl Encoded {
    /// Called before each value.
    ///
    /// # Errors
    /// The encoded value is too large.
    pub fn count(&mut self) -> Result<(), LibraryError> {
        self.values += 1;
        if self.values > MOST_VALUES || self.bytes.len() > MOST_ENCODED {
            return Err("not enough memory".into());
        }
        Ok(())
    }
}

impl Deref for Encoded {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Encoded {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

/// The results of a function of a library.
pub type Results = Result<MultiValue, LibraryError>;

/// An error raised by a function of the server in a script.
#[derive(Clone, Debug)]
pub struct ScriptError {
    /// The text.
    pub text: String,
    /// The text is the reply of a command, which is a table for the script.
    pub is_reply: bool,
}

impl std::fmt::Display for ScriptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ScriptError {}

/// The error of a reply of a command.
pub fn reply_error(text: &str) -> mlua::Error {
    mlua::Error::external(ScriptError { text: text.to_string(), is_reply: true })
}

/// The place of the call of a function of the server, in the form for the start of messages: a
/// line of the script; empty if a native function has made the call.
fn caller(lua: &Lua) -> String {
    for level in 1.. {
        let seen = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let name = source.short_src.unwrap_or_default().into_owned();
            (name != "prelude" && source.what != "tail").then(|| {
                match (source.what, debug.current_line()) {
                    ("C", _) | (_, None) => String::new(),
                    (_, Some(line)) => format!("{name}:{line}: "),
                }
            })
        });
        match seen {
            None => break,
            Some(Some(place)) => return place,
            Some(None) => {}
        }
    }
    String::new()
}

/// A function of a library.
pub fn function(
    lua: &Lua,
    body: impl Fn(&Lua, &[Value]) -> Results + 'static,
) -> mlua::Result<Function> {
    lua.create_function(move |lua, given: Variadic<Value>| {
        body(lua, &given).map_err(|refusal| match refusal {
            LibraryError::Lua(error) => error,
            LibraryError::Text(text) => {
                let text = caller(lua) + &text;
                mlua::Error::external(ScriptError { text, is_reply: false })
            }
        })
    })
}

/// The form of an error raised by a function of the server for a script: a table, if the error is
/// the reply of a command, else text.
pub fn plain(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let Value::Error(error) = &value else { return Ok(value) };
    let mut error: &mlua::Error = error;
    while let mlua::Error::CallbackError { cause, .. } = error {
        error = cause;
    }
    match error.downcast_ref::<ScriptError>() {
        Some(ScriptError { text, is_reply: true }) => {
            error_table(lua, text.as_bytes()).map(Value::Table)
        }
        Some(ScriptError { text, .. }) => text.as_str().into_lua(lua),
        None => {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().into_lua(lua)
        }
    }
}

/// A single result.
pub fn one(lua: &Lua, value: impl IntoLua) -> Results {
    Ok(MultiValue::from_vec(vec![value.into_lua(lua)?]))
}

/// The name of a value's type in messages.
fn type_name(value: Option<&Value>) -> &'static str {
    value.map_or("no value", Value::type_name)
}

/// The error of an argument of a wrong type.
pub fn wrong_argument(at: usize, name: &str, wanted: &str, given: &[Value]) -> LibraryError {
    let given = type_name(given.get(at));
    let given = if given == "integer" { "number" } else { given };
    format!("bad argument #{} to '{name}' ({wanted} expected, got {given})", at + 1).into()
}

/// A number among the arguments; text in the form of a number counts, too.
pub fn number(given: &[Value], at: usize, name: &str) -> Result<f64, LibraryError> {
    let value = given.get(at);
    let text = || value?.as_string()?.to_str().ok()?.trim().parse().ok();
    let found = value.and_then(as_number).or_else(text);
    found.ok_or_else(|| wrong_argument(at, name, "number", given))
}

/// The text of a text or a number.
pub fn text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(_) | Value::Number(_) => {
            let mut out = Vec::new();
            push_general(&mut out, as_number(value)?, 14);
            Some(out)
        }
        _ => None,
    }
}

/// Text among the arguments.
pub fn text_argument(given: &[Value], at: usize, name: &str) -> Result<Vec<u8>, LibraryError> {
    let found = given.get(at).and_then(text);
    found.ok_or_else(|| wrong_argument(at, name, "string", given))
}
