//! Scripts in Lua 5.1: an interpreter for each thread, in a sandbox that nothing outlives, with a
//! bound on time and memory. A script reaches the server through its [`Host`].

#[cfg(feature = "lua")]
mod bits;
#[cfg_attr(not(feature = "lua"), expect(dead_code, reason = "the interpreter uses these"))]
mod calls;
#[cfg(feature = "lua")]
mod cjson;
#[cfg(feature = "lua")]
mod cmsgpack;
#[cfg_attr(not(feature = "lua"), expect(dead_code, reason = "the interpreter uses these"))]
mod control;
#[cfg(feature = "lua")]
mod convert;
mod header;
#[cfg_attr(not(feature = "lua"), expect(dead_code, reason = "the interpreter uses these"))]
mod host;
#[cfg_attr(not(feature = "lua"), path = "interpreter_off.rs")]
mod interpreter;
#[cfg(feature = "lua")]
mod library;
#[cfg(feature = "lua")]
mod natives;
#[cfg(feature = "lua")]
mod patterns;
#[cfg(feature = "lua")]
mod structs;

pub use calls::{Call, FunctionCall, ScriptEnd, Sha};
pub use control::{Halt, RunningScripts, ScriptLimits};
pub use header::{Flags, Header, only_reads};
pub use host::Host;
pub use interpreter::{check_syntax, load, run, run_function};
