//! The functions of the sandbox that are the server's.

use super::control::Control;
use super::convert::as_number;
use super::header::{BAD_NAME, Flags, is_name};
use super::library::{
    LibraryError, Results, ScriptError, function, number, one, plain, text, text_argument,
};
use super::patterns::{self, Capture, NoMatch, PatternMatch};
use super::{bits, cjson, cmsgpack, structs};
use crate::base::sha1::{hexadecimal, sha1};
use mlua::{Function, LightUserData, Lua, LuaString, MultiValue, Table, Value, Variadic};
use std::cell::RefCell;
use std::rc::Rc;

/// What a script asks the server for, beside `redis.call`, through the same function: a mark of the
/// wish is in front of the arguments. Scripts never hold the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// `redis.pcall`.
    Protected,
    /// `redis.acl_check_cmd`.
    MayRun,
    /// `redis.log`.
    Log,
}

impl Asked {
    fn mark(self) -> Value {
        // An address that nothing has: 0 is that of `cjson.null`.
        Value::LightUserData(LightUserData(std::ptr::without_provenance_mut(1 + self as usize)))
    }

    /// The wish that a value is the mark of.
    #[inline]
    pub fn of(value: &Value) -> Option<Asked> {
        let Value::LightUserData(LightUserData(mark)) = value else { return None };
        [Asked::Protected, Asked::MayRun, Asked::Log]
            .into_iter()
            .find(|asked| 1 + *asked as usize == mark.addr())
    }
}

/// The function through which the running script reaches the transaction.
pub type CurrentFunction = Rc<RefCell<Option<Function>>>;

/// All of them.
pub fn table(
    lua: &Lua,
    control: &Rc<Control>,
    (settings, current): (&cjson::SharedSettings, &CurrentFunction),
) -> mlua::Result<Table> {
    let natives = lua.create_table()?;
    natives.raw_set("version", "7.0.15")?;
    natives.raw_set("version_number", 0x0007_000f)?;
    natives.raw_set("protected", Asked::Protected.mark())?;
    for (name, asked) in [("may_run", Asked::MayRun), ("log", Asked::Log)] {
        let current = current.clone();
        natives.raw_set(
            name,
            lua.create_function(move |_, mut given: MultiValue| {
                let ask = current.borrow().clone();
                let Some(ask) = ask else { return refused("no script runs") };
                given.push_front(asked.mark());
                ask.call::<Value>(given)
            })?,
        )?;
    }
    let clock = control.clone();
    natives.raw_set("is_halted", lua.create_function(move |_, ()| Ok(clock.is_halted()))?)?;
    let clock = control.clone();
    natives.raw_set(
        "setresp",
        lua.create_function(move |_, given: Variadic<Value>| {
            clock.protocol.set(asked_version(&given)?);
            Ok(())
        })?,
    )?;
    natives.raw_set("set_repl", lua.create_function(set_repl)?)?;
    natives.raw_set("plain", lua.create_function(plain)?)?;
    natives.raw_set("check_function", lua.create_function(check_function)?)?;
    natives.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    natives.raw_set("place", lua.create_function(place)?)?;
    let drawn = control.clone();
    let random = move |_: &Lua, ()| Ok(drawn.random.borrow_mut().f64());
    natives.raw_set("random", lua.create_function(random)?)?;
    let seeded = control.clone();
    natives.raw_set(
        "randomseed",
        lua.create_function(move |_, seed: f64| {
            *seeded.random.borrow_mut() = fastrand::Rng::with_seed(seed as i64 as u64);
            Ok(())
        })?,
    )?;
    for (name, body) in [
        ("find", find as fn(&Lua, &Control, &[Value]) -> Results),
        ("match", matched),
        ("search", search),
    ] {
        let clock = control.clone();
        natives.raw_set(name, function(lua, move |lua, given| body(lua, &clock, given))?)?;
    }
    natives.raw_set("expand", function(lua, expand)?)?;
    natives.raw_set("bit", bits::library(lua)?)?;
    natives.raw_set("struct", structs::library(lua)?)?;
    natives.raw_set("cmsgpack", cmsgpack::library(lua)?)?;
    natives.raw_set("cjson", cjson::library(lua, settings)?)?;
    let new = |lua: &Lua, ()| cjson::library(lua, &cjson::SharedSettings::default());
    natives.raw_set("new_cjson", lua.create_function(new)?)?;
    Ok(natives)
}

/// An error without its place: that is told behind it.
fn refused<T>(text: &str) -> mlua::Result<T> {
    Err(mlua::Error::external(ScriptError { text: text.to_string(), is_reply: false }))
}

/// Checks the name and the flags of a function that is registered.
fn check_function(_: &Lua, (name, flags): (LuaString, Table)) -> mlua::Result<()> {
    if !is_name(&name.as_bytes()) {
        return refused(BAD_NAME);
    }
    for flag in flags.sequence_values::<Value>() {
        let text = text(&flag?).unwrap_or_default();
        if !Flags::default().set(&text) {
            return refused("unknown flag given");
        }
    }
    Ok(())
}

/// `redis.sha1hex`; for other values than texts, the digest of the empty text.
fn sha1hex(_: &Lua, given: Variadic<Value>) -> mlua::Result<String> {
    match &given[..] {
        [value] => Ok(hexadecimal(&sha1(&text(value).unwrap_or_default()))),
        _ => refused("wrong number of arguments"),
    }
}

/// `redis.set_repl`: what is logged is not the script's to choose.
fn set_repl(_: &Lua, given: Variadic<Value>) -> mlua::Result<()> {
    match &given[..] {
        [value] => match as_number(value).unwrap_or_default() as i64 {
            0..=3 => Ok(()),
            _ => refused(
                "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
            ),
        },
        _ => refused("redis.set_repl() requires two arguments."),
    }
}

/// The version that `redis.setresp` asks for.
fn asked_version(given: &[Value]) -> mlua::Result<i64> {
    match given {
        [value] => match as_number(value).map(|number| number as i64) {
            Some(version @ 2..=3) => Ok(version),
            _ => refused("RESP version must be 2 or 3."),
        },
        _ => refused("redis.setresp() requires one argument."),
    }
}

/// The level and the message of `redis.log`.
pub fn log_entry(lua: &Lua, given: &[Value]) -> mlua::Result<(i64, Vec<u8>)> {
    let [level, words @ ..] = given else {
        return refused("redis.log() requires two arguments or more.");
    };
    if words.is_empty() {
        return refused("redis.log() requires two arguments or more.");
    }
    let Some(level) = as_number(level) else {
        return refused("First argument must be a number (log level).");
    };
    if !(0.0..4.0).contains(&level) {
        return refused("Invalid debug level.");
    }
    let mut message = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            message.push(b' ');
        }
        let word = lua.coerce_string(word.clone())?;
        message.extend(word.iter().flat_map(|word| word.as_bytes().to_vec()));
    }
    Ok((level as i64, message))
}

/// The name and the line of the innermost function of a script.
fn place(lua: &Lua, (): ()) -> mlua::Result<(Option<String>, Option<usize>)> {
    let (mut level, mut found) = (0, None);
    while found.is_none() {
        let seen = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let name = source.source.map(|name| name.into_owned()).unwrap_or_default();
            debug
                .current_line()
                .filter(|_| source.what == "Lua" || source.what == "main")
                .filter(|_| name != "=prelude")
                .map(|line| (name, line))
        });
        match seen {
            None => return Ok((None, None)),
            Some(place) => found = place,
        }
        level += 1;
    }
    Ok(found.unzip())
}

/// Where a search begins: counted from 1, or from the end if negative.
fn begin(from: f64, length: usize) -> usize {
    let length = length as f64;
    let at = if from < 0.0 { (length + from).max(0.0) } else { (from - 1.0).max(0.0) };
    at.min(length) as usize
}

fn matching(
    control: &Control,
    subject: &[u8],
    pattern: &[u8],
    from: usize,
) -> Result<Option<PatternMatch>, LibraryError> {
    let found = patterns::find(subject, pattern, from, &mut || control.goes_on());
    found.map_err(|error| match error {
        NoMatch::Malformed(text) => text.into(),
        NoMatch::Stopped => "the script was ended".into(),
    })
}

fn push_captures(
    lua: &Lua,
    subject: &[u8],
    captures: &[Capture],
    out: &mut MultiValue,
) -> Result<(), LibraryError> {
    for capture in captures {
        out.push_back(match *capture {
            Capture::Bytes(from, to) => Value::String(lua.create_string(&subject[from..to])?),
            Capture::Position(at) => Value::Number((at + 1) as f64),
        });
    }
    Ok(())
}

/// The subject, the pattern and the beginning.
fn subject_and_pattern(
    given: &[Value],
    name: &str,
) -> Result<(Vec<u8>, Vec<u8>, usize), LibraryError> {
    let subject = text_argument(given, 0, name)?;
    let pattern = text_argument(given, 1, name)?;
    let from = match given.get(2) {
        None | Some(Value::Nil) => 1.0,
        Some(_) => number(given, 2, name)?,
    };
    let from = begin(from, subject.len());
    Ok((subject, pattern, from))
}

/// `string.find`: the first and the last place of a match, and captures.
fn find(lua: &Lua, control: &Control, given: &[Value]) -> Results {
    let (subject, pattern, from) = subject_and_pattern(given, "find")?;
    let (subject, pattern) = (&subject[..], &pattern[..]);
    let is_asked = !matches!(given.get(3), None | Some(Value::Nil | Value::Boolean(false)));
    let is_plain = is_asked || !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte));
    let places =
        |from: usize, to: usize| vec![Value::Number((from + 1) as f64), Value::Number(to as f64)];
    if is_plain {
        let found = memchr::memmem::find(&subject[from..], pattern);
        return Ok(MultiValue::from_vec(match found {
            Some(at) => places(from + at, from + at + pattern.len()),
            None => vec![Value::Nil],
        }));
    }
    let Some(found) = matching(control, subject, pattern, from)? else {
        return one(lua, Value::Nil);
    };
    let mut out = MultiValue::from_vec(places(found.from, found.to));
    let whole = [Capture::Bytes(found.from, found.to)];
    if found.captures != whole || pattern.contains(&b'(') {
        push_captures(lua, subject, &found.captures, &mut out)?;
    }
    Ok(out)
}

/// `string.match`: the captures of a match.
fn matched(lua: &Lua, control: &Control, given: &[Value]) -> Results {
    let (subject, pattern, from) = subject_and_pattern(given, "match")?;
    let (subject, pattern) = (&subject[..], &pattern[..]);
    let Some(found) = matching(control, subject, pattern, from)? else {
        return one(lua, Value::Nil);
    };
    let mut out = MultiValue::new();
    push_captures(lua, subject, &found.captures, &mut out)?;
    Ok(out)
}

/// For `gmatch` and `gsub`: the first and the last place of a match, and its captures.
fn search(lua: &Lua, control: &Control, given: &[Value]) -> Results {
    let (subject, pattern, from) = subject_and_pattern(given, "gsub")?;
    let (subject, pattern) = (&subject[..], &pattern[..]);
    let Some(found) = matching(control, subject, pattern, from)? else {
        return one(lua, Value::Nil);
    };
    let mut out = MultiValue::from_vec(vec![
        Value::Number((found.from + 1) as f64),
        Value::Number(found.to as f64),
    ]);
    push_captures(lua, subject, &found.captures, &mut out)?;
    Ok(out)
}

/// The text that stands for a match: `%0` is all of it, `%1` the first capture.
fn expand(lua: &Lua, given: &[Value]) -> Results {
    let [Value::String(replacement), Value::String(whole), Value::Table(captures), count] = given
    else {
        return Err("the prelude passes these".into());
    };
    let count = as_number(count).unwrap_or_default() as usize;
    let (replacement, mut out) = (replacement.as_bytes(), Vec::new());
    let mut rest = &replacement[..];
    loop {
        rest = match rest {
            [] => return one(lua, lua.create_string(&out)?),
            [b'%', b'0', more @ ..] => {
                out.extend_from_slice(&whole.as_bytes());
                more
            }
            [b'%', digit @ b'1'..=b'9', more @ ..] => {
                let at = usize::from(digit - b'0');
                if at > count {
                    return Err("invalid capture index".into());
                }
                let capture: Value = captures.raw_get(at)?;
                out.extend(text(&capture).unwrap_or_default());
                more
            }
            [b'%', other, more @ ..] => {
                out.push(*other);
                more
            }
            [byte, more @ ..] => {
                out.push(*byte);
                more
            }
        }
    }
}
