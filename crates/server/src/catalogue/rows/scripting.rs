//! Rows of the commands for scripts. The columns are the fields of `Row`.

macro_rules! scripting_rows {
    ($with:ident) => { $with! { "scripting";
    "eval", -3, Script(scripts::eval), MAY_WRITE | NOSCRIPT | RUNS_SCRIPTS,
        [counted(2, RW | ACCESS | UPDATE)], "scripting", Event::None,
        "2.6.0", "That of the script", "Runs a script",
        "script numkeys [key ..] [arg ..]";
    "eval_ro", -3, Script(scripts::eval_ro), READ | NOSCRIPT | RUNS_SCRIPTS,
        [counted(2, RO | ACCESS)], "scripting", Event::None,
        "7.0.0", "That of the script", "Runs a script that only reads",
        "script numkeys [key ..] [arg ..]";
    "evalsha", -3, Script(scripts::evalsha), MAY_WRITE | NOSCRIPT | RUNS_SCRIPTS,
        [counted(2, RW | ACCESS | UPDATE)], "scripting", Event::None,
        "2.6.0", "That of the script", "Runs a script that is known by its digest",
        "sha1 numkeys [key ..] [arg ..]";
    "evalsha_ro", -3, Script(scripts::evalsha_ro), READ | NOSCRIPT | RUNS_SCRIPTS,
        [counted(2, RO | ACCESS)], "scripting", Event::None,
        "7.0.0", "That of the script", "Runs a script that is known by its digest and only reads",
        "sha1 numkeys [key ..] [arg ..]";
    "fcall", -3, Script(libraries::fcall), MAY_WRITE | NOSCRIPT | RUNS_SCRIPTS,
        [counted(2, RW | ACCESS | UPDATE)], "scripting", Event::None,
        "7.0.0", "That of the function", "Runs a function",
        "function numkeys [key ..] [arg ..]";
    "fcall_ro", -3, Script(libraries::fcall_ro), READ | NOSCRIPT | RUNS_SCRIPTS,
        [counted(2, RO | ACCESS)], "scripting", Event::None,
        "7.0.0", "That of the function", "Runs a function that only reads",
        "function numkeys [key ..] [arg ..]";
    "function", -2, Script(libraries::function), MAY_WRITE, [], "", Event::None,
        "7.0.0", "-", "Keeps, lists and deletes libraries of functions",
        "";
    "script", -2, Script(scripts::script), MAY_WRITE, [], "", Event::None,
        "2.6.0", "-", "Keeps, forgets and ends scripts",
        "";
    } };
}
pub(crate) use scripting_rows;
