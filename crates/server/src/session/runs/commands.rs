//! Runs the commands of a transaction, one after the other.

use super::wrote::{Laps, Wrote};
use super::{Ended, Exec, MOST_REPLIED, MOST_WRITTEN};
use crate::catalogue;
use crate::commands::{Function, function};
use crate::data::keyspace::{self, Context, Keyspace, Stop};
use crate::request::Request;
use crate::resp::reply::{Reply, TOO_LONG_FOR_CLIENT, TOO_LONG_FOR_LOOP};
use hyades::{Abort, Transaction};

/// The keys of this many commands are announced at once: what is fetched for many more is out of
/// the cache when its command runs.
const ANNOUNCED: usize = 64;

/// The commands of a transaction.
pub struct Commands<'a> {
    /// The database of its client.
    pub database: u32,
    /// The commands.
    pub requests: &'a [Request],
    /// What those refer to that do not have their arguments.
    pub input: &'a [u8],
    /// They are those of EXEC.
    pub exec: Option<&'a Exec>,
}

/// Runs requests one after the other, and returns how many. Requests that do not belong together
/// end where there is no room for replies, or where the loop would be held up; if that is at the
/// first one, or if they belong together, they are [`Ended::TooMuch`]. An error takes back its own
/// command alone, or all where EXEC is to do so; a reply of EXEC that is too long for its client
/// takes back none.
pub fn run_all(
    tx: &Transaction<'_>,
    context: Context<'_>,
    commands: &Commands<'_>,
    reply: &mut Reply<'_>,
    wrote: &mut Wrote,
) -> Result<usize, Ended> {
    let Commands { database, requests, input, exec } = *commands;
    let is_exec = exec.is_some();
    let has_waited = requests.first().is_some_and(Request::has_waited);
    let mut space = Keyspace::open(*tx, Context { is_exec, has_waited, ..context }, database)?;
    let begin = reply.position();
    if let Some(Exec { watched, others, .. }) = exec {
        if !space.are_as_watched(watched)? {
            // That another was first is a reply as well: it waits for what was read.
            reply.null_array();
            return Ok(0);
        }
        reply.array(requests.len() + others);
        wrote.end_at(exec, reply.position() - begin);
    }
    let (effects, mut laps) = (context.effects, Laps::start());
    for (done, request) in requests.iter().enumerate() {
        let may_end = done > 0 && !is_exec;
        if may_end && reply.position() - begin > MOST_REPLIED {
            return Ok(done);
        }
        if done.is_multiple_of(ANNOUNCED) {
            prefetch(&space, &requests[done..requests.len().min(done + ANNOUNCED)], input);
        }
        let place = request.place().expect("it is a command");
        let Function::Data(run) = function(place) else { continue };
        if let Some(own) = request.database().filter(|own| *own != space.database()) {
            space = space.of_database(own)?;
        }
        let args = request.arguments(input);
        let (position, savepoint) = (reply.position(), tx.savepoint());
        let mark = effects.borrow_mut().mark();
        let refusal = request.refusal().map(|text| Err(Stop::Error(text.to_string().into())));
        let result = refusal.unwrap_or_else(|| run(&space, &args, reply));
        wrote.times.push(laps.next());
        let is_large = effects.borrow().written > MOST_WRITTEN && !context.is_patient;
        let Some((text, goes_on)) = failure_of(result, is_large, reply.too_long())? else {
            wrote.end_at(exec, reply.position() - begin);
            wrote.note_events(&context, place, &args);
            continue;
        };
        reply.truncate(position);
        // The client of EXEC is disconnected, and hears of none of its commands: all are done.
        if is_exec && text == TOO_LONG_FOR_CLIENT {
            wrote.note_events(&context, place, &args);
        } else {
            tx.rollback_to(savepoint)?;
            effects.borrow_mut().back_to(mark);
        }
        match goes_on {
            true if exec.is_some_and(|exec| exec.rolls_back) => {
                return Err(Ended::RolledBack { place, number: done + 1, text });
            }
            true => {
                reply.error(&text);
                wrote.end_at(exec, reply.position() - begin);
                wrote.failed.push((done, text));
            }
            false if may_end => return Ok(done),
            false => return Err(Ended::TooMuch),
        }
    }
    Ok(requests.len())
}

/// Why a command is taken back, if it is: the error that it replies, and whether the commands
/// behind it go on. Those of a loop do not if it is too much for one.
fn failure_of(
    result: Result<(), Stop>,
    is_large: bool,
    too_long: Option<&str>,
) -> Result<Option<(String, bool)>, Ended> {
    Ok(Some(match result {
        Ok(()) if is_large => (String::new(), false),
        Err(Stop::Abort(keyspace::TOO_MUCH_FOR_LOOP)) => (String::new(), false),
        Ok(()) => match too_long {
            Some(TOO_LONG_FOR_LOOP) => (String::new(), false),
            Some(text) => (text.to_string(), true),
            None => return Ok(None),
        },
        Err(Stop::Abort(abort @ (Abort::Conflict | keyspace::TOO_MUCH))) => {
            return Err(abort.into());
        }
        Err(Stop::Abort(abort)) => (format!("ERR {abort}"), true),
        Err(Stop::Error(text)) => (text.into_owned(), true),
    }))
}

/// Announces the first key of each request.
fn prefetch(space: &Keyspace<'_>, requests: &[Request], input: &[u8]) {
    if requests.len() < 2 {
        return;
    }
    for request in requests {
        let command = &catalogue::all()[request.place().expect("it is a command")];
        if let Some(at) = command.key_places(request.len()).next() {
            space.prefetch(request.arguments(input)[at]);
        }
    }
}
