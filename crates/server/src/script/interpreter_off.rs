//! Without the feature `lua`: nothing is run.

use super::calls::{Call, FunctionCall, RegisteredFunction, ScriptEnd, Sha};
use super::control::ScriptLimits;
use super::host::Host;
use crate::resp::reply::Reply;

const LEFT_OUT: &str = "ERR scripts: this program was built without its feature lua";

fn left_out() -> ScriptEnd {
    ScriptEnd::Error(LEFT_OUT.to_string(), None)
}

/// Refuses a script.
pub fn run(
    _: &Call<'_>,
    _: &ScriptLimits,
    _: &dyn Host,
    _: &mut Reply<'_>,
) -> Result<(), ScriptEnd> {
    Err(left_out())
}

/// Refuses a function.
pub fn run_function(
    _: &FunctionCall<'_>,
    _: &ScriptLimits,
    _: &dyn Host,
    _: &mut Reply<'_>,
) -> Result<(), ScriptEnd> {
    Err(left_out())
}

/// Refuses a library.
pub fn load(_: &Sha, _: &[u8], _: &ScriptLimits) -> Result<Vec<RegisteredFunction>, ScriptEnd> {
    Err(left_out())
}

/// Refuses any text.
pub fn check_syntax(_: &[u8]) -> Result<(), String> {
    Err(LEFT_OUT.to_string())
}
