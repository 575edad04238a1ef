//! Scripts and functions of the server. The arguments are commands, a text each, run one after the
//! other.

use super::commands::{self, Circumstances};
use super::model::Model;
use super::reply::{Answer, Expected};
use super::script::Words;

/// How a script ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptEnding {
    /// With the replies of its commands.
    Returns,
    /// With an error, which keeps the changes of the commands.
    Fails,
    /// With an error, which undoes the changes of the commands.
    RollsBack,
}

/// The first line of a script undone by an error.
const ROLLS_BACK: &str = "#!lua flags=rollback\n";

/// Runs the commands in ARGV.
const RUN: &str = "local replies = {} \
    for at, text in ipairs(ARGV) do \
        local words = {} \
        for word in text:gmatch('%S+') do words[#words + 1] = word end \
        replies[at] = redis.pcall(unpack(words)) \
    end ";

const RETURNS: &str = "return replies";

const FAILS: &str = "error('at the end')";

/// The library, whose function does the same.
const LIBRARY: &str = "torture";

/// The function.
const FUNCTION: &str = "run";

/// EVAL of commands.
pub(crate) fn eval(commands: Vec<Words>, ending: ScriptEnding) -> Words {
    let body = match ending {
        ScriptEnding::Returns => format!("{RUN}{RETURNS}"),
        ScriptEnding::Fails => format!("{RUN}{FAILS}"),
        ScriptEnding::RollsBack => format!("{ROLLS_BACK}{RUN}{FAILS}"),
    };
    with_commands(["EVAL".to_string(), body, "0".to_string()], commands)
}

/// FUNCTION LOAD of the library, and FCALL of its function with commands.
pub(crate) fn function(commands: Vec<Words>) -> Vec<Words> {
    let code = format!(
        "#!lua name={LIBRARY}\nredis.register_function('{FUNCTION}', function(_, ARGV) \
         {RUN}{RETURNS} end)"
    );
    let load = ["FUNCTION", "LOAD", "REPLACE", &code].map(str::to_string).to_vec();
    let call = ["FCALL", FUNCTION, "0"].map(str::to_string);
    vec![load, with_commands(call, commands)]
}

fn with_commands(head: [String; 3], commands: Vec<Words>) -> Words {
    head.into_iter().chain(commands.into_iter().map(|words| words.join(" "))).collect()
}

/// Runs a script or a function on the data, if the request is one. Returns the reply.
pub(crate) fn apply(model: &mut Model, at: Circumstances, request: &[String]) -> Option<Expected> {
    let ending = match request[0].as_str() {
        "FUNCTION" => return Some(Expected::Same(Answer::text(LIBRARY))),
        "FCALL" => ScriptEnding::Returns,
        "EVAL" if request[1].starts_with(ROLLS_BACK) => ScriptEnding::RollsBack,
        "EVAL" if request[1].ends_with(FAILS) => ScriptEnding::Fails,
        "EVAL" => ScriptEnding::Returns,
        _ => return None,
    };
    let mut replies = Vec::new();
    if ending != ScriptEnding::RollsBack {
        let mut at = at;
        for text in &request[3..] {
            let words: Words = text.split(' ').map(str::to_string).collect();
            replies.push(match words[0].as_str() {
                // For the later commands of the script, and not for the client.
                "SELECT" => {
                    at.database = words[1].parse().expect("it is a number");
                    Expected::Same(Answer::ok())
                }
                "PUBLISH" => Expected::Any,
                _ => commands::apply(model, at, &words).in_script(),
            });
        }
    }
    Some(match ending {
        ScriptEnding::Returns => Expected::All(replies),
        ScriptEnding::Fails | ScriptEnding::RollsBack => Expected::Error("ERR "),
    })
}
