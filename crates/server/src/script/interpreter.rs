//! The interpreter of a thread: compiles scripts, keeps them, and runs them.

use super::calls::{Call, FunctionCall, RegisteredFunction, ScriptEnd, Sha};
use super::control::{Control, ScriptLimits};
use super::header::{Flags, Header};
use super::host::Host;
use super::library::reply_error;
use super::natives::{Asked, CurrentFunction};
use super::{cjson, convert, natives};
use crate::resp::reply::Reply;
use mlua::{
    Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value, VmState,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

/// Memory that an interpreter may have, in bytes.
const MOST_MEMORY: usize = 64 << 20;

/// An interpreter that has more after a script is dropped: its memory is given back.
const MOST_KEPT_MEMORY: usize = 8 << 20;

/// Most scripts that an interpreter keeps compiled.
const MOST_COMPILED: usize = 500;

/// Instructions of a script between two looks at the clock.
const INSTRUCTIONS: u32 = 10_000;

/// The names of texts, as errors tell them.
const SCRIPT: &str = "@user_script";
const FUNCTION: &str = "@user_function";

const NOT_COMPILED: &str = "ERR Error compiling script (new function): ";

/// The text of the error that ends a script, whatever it catches. No client is told.
const HALTED: &str = "the script was ended";

/// What the prelude returns of a script.
struct Returned {
    is_done: bool,
    /// The result, or the text of the error.
    value: Value,
    /// Where the error comes from: the name of the chunk and the line.
    place: Option<(String, i64)>,
}

struct Interpreter {
    lua: Lua,
    control: Rc<Control>,
    json: cjson::SharedSettings,
    current: CurrentFunction,
    compile: Function,
    run: Function,
    load: Function,
    compiled: HashMap<Sha, Function>,
    /// The functions of libraries, by their names in lower case.
    libraries: HashMap<Sha, HashMap<Vec<u8>, Function>>,
    /// A run has ended before the prelude restored the globals: no other script may use this
    /// interpreter.
    is_unsound: bool,
}

thread_local! {
    static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
}

/// Calls with the interpreter of this thread. An interpreter is dropped if a script panics, or if a
/// run ends before the prelude has restored the globals.
fn with_interpreter<T>(work: impl FnOnce(&mut Interpreter) -> T) -> T {
    let kept = INTERPRETER.with_borrow_mut(Option::take);
    let mut interpreter = kept.unwrap_or_else(Interpreter::new);
    let done = work(&mut interpreter);
    if interpreter.is_unsound {
        return done;
    }
    if interpreter.lua.used_memory() > MOST_KEPT_MEMORY {
        let _ = interpreter.lua.gc_collect();
    }
    if interpreter.lua.used_memory() <= MOST_KEPT_MEMORY {
        INTERPRETER.with_borrow_mut(|place| *place = Some(interpreter));
    }
    done
}

/// Runs a script, and appends its reply.
///
/// # Errors
/// The script has an error, or was ended.
pub fn run(
    call: &Call<'_>,
    limits: &ScriptLimits,
    host: &dyn Host,
    reply: &mut Reply<'_>,
) -> Result<(), ScriptEnd> {
    with_interpreter(|interpreter| interpreter.run(call, limits, host, reply))
}

/// Runs a function of a library, and appends its reply.
///
/// # Errors
/// The function has an error, or was ended.
pub fn run_function(
    call: &FunctionCall<'_>,
    limits: &ScriptLimits,
    host: &dyn Host,
    reply: &mut Reply<'_>,
) -> Result<(), ScriptEnd> {
    with_interpreter(|interpreter| interpreter.run_function(call, limits, host, reply))
}

/// Runs the code of a library. Returns its functions.
///
/// # Errors
/// The code has an error, or was ended.
pub fn load(
    sha: &Sha,
    code: &[u8],
    limits: &ScriptLimits,
) -> Result<Vec<RegisteredFunction>, ScriptEnd> {
    with_interpreter(|interpreter| interpreter.load(sha, code, limits))
}

/// Compiles a script, to see whether that is possible.
///
/// # Errors
/// What is wrong with it.
pub fn check_syntax(body: &[u8]) -> Result<(), String> {
    with_interpreter(|interpreter| interpreter.compile(body, SCRIPT).map(drop))
        .map_err(|text| format!("{NOT_COMPILED}{text}"))
}

impl Interpreter {
    fn new() -> Interpreter {
        let control = Rc::new(Control::default());
        Interpreter::with(control).expect("the prelude is valid, and the memory suffices for it")
    }

    fn with(control: Rc<Control>) -> mlua::Result<Interpreter> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let json = cjson::SharedSettings::default();
        let current = CurrentFunction::default();
        let natives = natives::table(&lua, &control, (&json, &current))?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        let (compile, run, load) = prelude.call(natives)?;
        let clock = control.clone();
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS);
        lua.set_global_hook(triggers, move |_, _| match clock.goes_on() {
            true => Ok(VmState::Continue),
            false => Err(reply_error(HALTED)),
        })?;
        lua.set_memory_limit(MOST_MEMORY)?;
        let (compiled, libraries, is_unsound) = Default::default();
        Ok(Interpreter {
            lua,
            control,
            json,
            current,
            compile,
            run,
            load,
            compiled,
            libraries,
            is_unsound,
        })
    }

    /// Compiles a text of this name; the error is what is wrong with it.
    fn compile(&self, body: &[u8], name: &str) -> Result<Function, String> {
        let text = self.lua.create_string(body).map_err(|error| error.to_string())?;
        let compiled = self.compile.call((text, name));
        let (function, message): (Option<Function>, Option<mlua::LuaString>) =
            compiled.map_err(|error| error.to_string())?;
        function.ok_or_else(|| message.map(|text| text.to_string_lossy()).unwrap_or_default())
    }

    fn compiled(&mut self, call: &Call<'_>) -> Result<Function, ScriptEnd> {
        if let Some(function) = self.compiled.get(call.sha) {
            return Ok(function.clone());
        }
        let function = self
            .compile(call.body, SCRIPT)
            .map_err(|text| ScriptEnd::Error(format!("{NOT_COMPILED}{text}"), None))?;
        if self.compiled.len() >= MOST_COMPILED {
            self.compiled.clear();
        }
        self.compiled.insert(*call.sha, function.clone());
        Ok(function)
    }

    fn run(
        &mut self,
        call: &Call<'_>,
        limits: &ScriptLimits,
        host: &dyn Host,
        reply: &mut Reply<'_>,
    ) -> Result<(), ScriptEnd> {
        let function = self.compiled(call)?;
        let words = (call.keys, call.arguments);
        self.run_limited((&function, false), words, (limits, host), reply)
    }

    fn run_function(
        &mut self,
        call: &FunctionCall<'_>,
        limits: &ScriptLimits,
        host: &dyn Host,
        reply: &mut Reply<'_>,
    ) -> Result<(), ScriptEnd> {
        if !self.libraries.contains_key(call.sha) {
            let code = (call.code)().map_err(ScriptEnd::Halted)?;
            let header = Header::of_library(&code).map_err(|text| ScriptEnd::Error(text, None))?;
            self.load(call.sha, header.rest, limits)?;
        }
        let function = self.libraries.get(call.sha).and_then(|library| library.get(call.name));
        let Some(function) = function.cloned() else {
            return Err(ScriptEnd::Error("ERR Function not found".into(), None));
        };
        let words = (call.keys, call.arguments);
        self.run_limited((&function, true), words, (limits, host), reply)
    }

    /// Runs the code of a library, and keeps its functions.
    fn load(
        &mut self,
        sha: &Sha,
        code: &[u8],
        limits: &ScriptLimits,
    ) -> Result<Vec<RegisteredFunction>, ScriptEnd> {
        let failed = |text: String| ScriptEnd::Error(text, None);
        let function = self
            .compile(code, FUNCTION)
            .map_err(|text| failed(format!("ERR Error compiling function: {text}")))?;
        self.control.begin(limits);
        let done = self.load.call::<(bool, Value)>(function);
        self.is_unsound |= done.is_err();
        self.json.reset();
        if let Some(halt) = self.control.end() {
            self.lua.gc_restart();
            return Err(ScriptEnd::Halted(halt));
        }
        const NOT_LOADED: &str = "ERR Error registering functions: ";
        let first_line = |error: mlua::Error| {
            let text = error.to_string();
            failed(format!("{NOT_LOADED}{}", text.lines().next().unwrap_or_default()))
        };
        let (is_done, value) = done.map_err(first_line)?;
        let found = match value {
            Value::Table(found) if is_done => found,
            text => {
                return Err(failed(format!(
                    "{NOT_LOADED}{}",
                    text.to_string().unwrap_or_default()
                )));
            }
        };
        let registered = registered(&found).map_err(first_line)?;
        if registered.is_empty() {
            return Err(failed("ERR No functions registered".into()));
        }
        if self.libraries.len() >= MOST_COMPILED {
            self.libraries.clear();
        }
        let functions = registered
            .iter()
            .map(|(own, callback)| (own.name.to_ascii_lowercase(), callback.clone()));
        self.libraries.insert(*sha, functions.collect());
        Ok(registered.into_iter().map(|(own, _)| own).collect())
    }

    fn run_limited(
        &mut self,
        function: (&Function, bool),
        words: (&[&[u8]], &[&[u8]]),
        (limits, host): (&ScriptLimits, &dyn Host),
        reply: &mut Reply<'_>,
    ) -> Result<(), ScriptEnd> {
        self.control.begin(limits);
        let done = self.call(function, words, host);
        self.is_unsound |= done.is_err();
        self.json.reset();
        let position = reply.position();
        let written = done.as_ref().ok().filter(|returned| returned.is_done).map(|returned| {
            let is_typed = self.control.protocol.get() == 3;
            convert::write(&returned.value, is_typed, reply, &|| self.control.goes_on())
        });
        let halt = self.control.end();
        if let Some(halt) = halt {
            reply.truncate(position);
            // It may have been halted where the collector rests.
            self.lua.gc_restart();
            return Err(ScriptEnd::Halted(halt));
        }
        if let Some(written) = written {
            return written.map_err(|text| ScriptEnd::Error(text.to_string(), None));
        }
        let Returned { value, place, .. } = done.map_err(|error| {
            // Without a place in the script: mostly that the memory was not enough.
            let text = error.to_string();
            ScriptEnd::Error(format!("ERR {}", text.lines().next().unwrap_or_default()), None)
        })?;
        Err(ScriptEnd::Error(value.to_string().unwrap_or_default(), place))
    }

    fn call(
        &self,
        (function, is_function): (&Function, bool),
        (keys, arguments): (&[&[u8]], &[&[u8]]),
        host: &dyn Host,
    ) -> mlua::Result<Returned> {
        let Self { lua, control, run, .. } = self;
        let list = |all: &[&[u8]]| {
            let table = lua.create_table_with_capacity(all.len(), 0)?;
            for text in all {
                table.raw_push(lua.create_string(text)?)?;
            }
            Ok::<_, mlua::Error>(table)
        };
        let buffers = RefCell::default();
        let ask = |lua: &Lua, given: MultiValue| {
            let given = given.into_vec();
            match given.first().and_then(Asked::of) {
                None => command(lua, (host, control), &given, &mut buffers.borrow_mut(), true),
                Some(Asked::Protected) => {
                    command(lua, (host, control), &given[1..], &mut buffers.borrow_mut(), false)
                }
                Some(Asked::MayRun) => may_run(host, &given[1..]).map(Value::Boolean),
                Some(Asked::Log) => {
                    let (level, text) = natives::log_entry(lua, &given[1..])?;
                    host.log(level, &text);
                    Ok(Value::Nil)
                }
            }
        };
        lua.scope(|scope| {
            let bytes = keys.iter().chain(arguments).map(|text| 1 + text.len()).sum();
            let (keys, arguments, ask) = with_room(lua, bytes, || {
                Ok((list(keys)?, list(arguments)?, scope.create_function(ask)?))
            })?;
            *self.current.borrow_mut() = Some(ask.clone());
            let done = run.call((function, is_function, keys, arguments, ask));
            *self.current.borrow_mut() = None;
            let (is_done, value, source, line) = done?;
            let place = Option::zip(source, line);
            Ok(Returned { is_done, value, place })
        })
    }
}

/// Memory that a text of the server takes at most as values of Lua, as a multiple of its bytes: an
/// element of three bytes is a table with one string.
const MOST_EXPANSION: usize = 128;

/// What the interpreter takes beside.
const SLACK: usize = 64 << 10;

/// Makes values of a text of this many bytes. If there plainly is room for them, the limit of
/// memory is off meanwhile: under a limit the interpreter makes each value in a protected call.
fn with_room<T>(
    lua: &Lua,
    bytes: usize,
    make: impl FnOnce() -> mlua::Result<T>,
) -> mlua::Result<T> {
    let most = bytes.saturating_mul(MOST_EXPANSION).saturating_add(SLACK);
    if lua.used_memory().saturating_add(most) > MOST_MEMORY {
        return make();
    }
    lua.set_memory_limit(0)?;
    let made = make();
    lua.set_memory_limit(MOST_MEMORY)?;
    made
}

/// The functions that a library has registered, as the prelude returns them.
fn registered(found: &Table) -> mlua::Result<Vec<(RegisteredFunction, Function)>> {
    let mut all = Vec::new();
    for entry in found.sequence_values::<Table>() {
        let entry = entry?;
        let name: LuaString = entry.raw_get("function_name")?;
        let description: Option<LuaString> = entry.raw_get("description")?;
        let mut flags = Flags::default();
        for flag in entry.raw_get::<Table>("flags")?.sequence_values::<Value>() {
            if let Value::String(flag) = flag? {
                flags.set(&flag.as_bytes());
            }
        }
        let own = RegisteredFunction {
            name: name.as_bytes().to_vec(),
            flags,
            description: description.map(|text| text.as_bytes().to_vec()),
        };
        all.push((own, entry.raw_get("callback")?));
    }
    Ok(all)
}

const NO_ARGUMENTS: &str = "ERR Please specify at least one argument for this redis lib call";

const WRONG_ARGUMENTS: &str = "ERR Lua redis lib command arguments must be strings or integers";

/// The arguments of a command and its reply, one after the other for all commands of a script.
#[derive(Default)]
struct Buffers {
    bytes: Vec<u8>,
    out: Vec<u8>,
}

/// `redis.call`, which raises errors, and `redis.pcall`, which returns errors.
fn command(
    lua: &Lua,
    (host, control): (&dyn Host, &Control),
    given: &[Value],
    buffers: &mut Buffers,
    raises: bool,
) -> mlua::Result<Value> {
    let refuse = |text: &str| match raises {
        true => Err(reply_error(text)),
        false => convert::error_table(lua, text.as_bytes()).map(Value::Table),
    };
    let now = Instant::now();
    if !control.goes_on_at(now) {
        return Err(reply_error(HALTED));
    }
    if given.is_empty() {
        return refuse(NO_ARGUMENTS);
    }
    let Buffers { bytes, out } = buffers;
    bytes.clear();
    out.clear();
    let Some(ends) = convert::arguments(given, bytes) else {
        return refuse(WRONG_ARGUMENTS);
    };
    let args = convert::split(bytes, &ends);
    if let Err(halt) = host.call(&args, now, control.protocol.get() == 3, out) {
        control.halt(halt);
        return Err(reply_error(HALTED));
    }
    match &out[..] {
        [b'-', text @ .., b'\r', b'\n'] if raises => {
            Err(reply_error(&String::from_utf8_lossy(text)))
        }
        reply => with_room(lua, reply.len(), || convert::read(lua, reply)),
    }
}

/// `redis.acl_check_cmd`.
fn may_run(host: &dyn Host, given: &[Value]) -> mlua::Result<bool> {
    if given.is_empty() {
        return Err(reply_error(NO_ARGUMENTS));
    }
    let mut bytes = Vec::new();
    let ends = convert::arguments(given, &mut bytes).ok_or_else(|| reply_error(WRONG_ARGUMENTS))?;
    host.may_run(&convert::split(&bytes, &ends)).map_err(reply_error)
}
