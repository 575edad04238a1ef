//! The commands, by subject.

mod client;
mod command_docs;
mod config_command;
mod connection;
mod debug;
mod expire;
mod generic;
mod info;
mod keys;
mod lcs;
mod lists;
mod numbers;
mod server;
mod sets;
mod strings;
pub mod table;
mod unsupported;

pub use unsupported::error as unsupported_error;

use crate::conversation::Client;
use crate::data::keyspace::{Keyspace, Stop};
use crate::resp::number;
use crate::resp::reply::Reply;
use crate::shared::Shared;
use std::sync::Arc;

/// Runs inside a transaction, perhaps several times: it has no effect but on its keys.
pub type DataCommand = fn(&Keyspace<'_>, &[&[u8]], &mut Reply<'_>) -> Result<(), Stop>;

/// Runs outside of transactions, once.
pub type LocalCommand = fn(&mut Local<'_>, &[&[u8]], &mut Reply<'_>) -> Result<(), Stop>;

/// Work that would hold up an event loop. It appends the reply.
pub type Job = Box<dyn FnOnce(&Shared, &mut Reply<'_>) + Send>;

/// What a command outside of transactions works on.
pub struct Local<'a> {
    /// Its client.
    pub client: &'a mut Client,
    /// The server.
    pub shared: &'a Arc<Shared>,
    /// The time in milliseconds since 1970.
    pub now_ms: i64,
    /// Set by a command whose reply a job appends.
    pub job: &'a mut Option<Job>,
}

/// The end of a command, without its reply if it has failed.
type Done = Result<(), Stop>;

const SYNTAX: &str = "ERR syntax error";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

fn integer(text: &[u8]) -> Result<i64, Stop> {
    number::integer(text).ok_or_else(|| NOT_AN_INTEGER.into())
}

fn is(text: &[u8], word: &str) -> bool {
    text.eq_ignore_ascii_case(word.as_bytes())
}

fn lower(text: &[u8]) -> String {
    String::from_utf8_lossy(text).to_ascii_lowercase()
}

/// The number of a database.
fn database(text: &[u8], databases: u32) -> Result<u32, Stop> {
    match u32::try_from(integer(text)?) {
        Ok(number) if number < databases => Ok(number),
        _ => Err("ERR DB index is out of range".into()),
    }
}

/// The error of a command with a wrong number of arguments.
fn wrong_arity(name: &str) -> Stop {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// The error of a container command, such as CLIENT, with an unknown subcommand.
fn unknown_subcommand(command: &str, given: &[u8]) -> Stop {
    let given = String::from_utf8_lossy(&given[..given.len().min(128)]).into_owned();
    let command = command.to_uppercase();
    format!(
        "ERR unknown subcommand or wrong number of arguments for '{given}'. Try {command} HELP."
    )
    .into()
}

/// Replies the lines of HELP.
fn help(reply: &mut Reply<'_>, lines: &[&str]) {
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.simple(line));
}
