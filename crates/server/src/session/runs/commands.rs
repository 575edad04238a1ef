//! Runs the commands of a transaction, one after the other.

use super::wrote::{Laps, Wrote};
use super::{Ended, Exec, MOST_REPLIED, MOST_WRITTEN};
use crate::catalogue::{self, names};
use crate::client::Remembered;
use crate::commands::{Caller, Function, function};
use crate::data::keyspace::{self, Context, Keyspace, Stop};
use crate::request::Request;
use crate::resp::reply::{Reply, TOO_LONG_FOR_CLIENT, TOO_LONG_FOR_LOOP};
use crate::transact::abort_text;
use hyades::{Abort, Transaction};

/// The keys of this many commands are announced at once: with many more, fetched rows are out of
/// the cache before their command runs.
const ANNOUNCED: usize = 64;

/// The commands of a transaction.
pub struct Commands<'a> {
    /// The client's database.
    pub database: u32,
    /// The commands.
    pub requests: &'a [Request],
    /// The arguments, except arguments that requests own themselves.
    pub input: &'a [u8],
    /// The EXEC of the commands.
    pub exec: Option<&'a Exec>,
    /// The commands' client.
    pub caller: &'a Caller<'a>,
    /// The commands whose keys are remembered.
    pub remembered: Remembered,
}

/// Runs requests in sequence, and returns the number of requests. Requests that do not belong
/// together end where there is no room for replies, or where the loop would be held up; if this
/// happens at the first request, or if the requests belong together, the result is
/// [`Ended::TooMuch`]. An error takes back its own command alone, or all commands if EXEC asks for
/// a rollback; a reply of EXEC too long for its client takes back none.
pub fn run_all(
    tx: &Transaction<'_>,
    context: Context<'_>,
    commands: &Commands<'_>,
    reply: &mut Reply<'_>,
    wrote: &mut Wrote,
) -> Result<usize, Ended> {
    let Commands { database, requests, input, exec, caller, .. } = *commands;
    let is_exec = exec.is_some();
    let has_waited = requests.first().is_some_and(Request::has_waited);
    let mut space = Keyspace::open(*tx, Context { is_exec, has_waited, ..context }, database)?;
    let begin = reply.position();
    // An attempt before may have ended within a script.
    caller.forget();
    if let Some(exec) = exec
        && !begin_exec(&space, exec, requests.len(), reply)?
    {
        return Ok(0);
    }
    wrote.end_at(exec, reply.position() - begin);
    let mut laps = Laps::start();
    for (done, request) in requests.iter().enumerate() {
        let may_end = done > 0 && !is_exec;
        if may_end && reply.position() - begin > MOST_REPLIED {
            return Ok(done);
        }
        if done.is_multiple_of(ANNOUNCED) {
            prefetch(&space, &requests[done..requests.len().min(done + ANNOUNCED)], input);
        }
        if let Some(own) = request.database().filter(|own| *own != space.database()) {
            space = space.of_database(own)?;
        }
        let next = NextCommand { space: &space, commands, number: done };
        let Some(failure) = next.run(reply, wrote, &mut laps)? else {
            wrote.end_at(exec, reply.position() - begin);
            continue;
        };
        match failure {
            Failure::Error(text) if exec.is_some_and(|exec| exec.rolls_back) => {
                let place = request.place().expect("it is a command");
                return Err(Ended::RolledBack { place, number: done + 1, text });
            }
            Failure::Error(text) => {
                reply.error(&text);
                wrote.end_at(exec, reply.position() - begin);
                wrote.failed.push((done, text));
            }
            Failure::TooMuch if may_end => return Ok(done),
            Failure::TooMuch => return Err(Ended::TooMuch),
        }
    }
    Ok(requests.len())
}

/// Why a command of a transaction is taken back.
enum Failure {
    /// The client gets the error, and the commands behind it go on.
    Error(String),
    /// The command is too much for an event loop.
    TooMuch,
}

/// The next command of a transaction.
struct NextCommand<'a, 't> {
    space: &'a Keyspace<'t>,
    commands: &'a Commands<'a>,
    /// The command's number in the transaction, from 0 on.
    number: usize,
}

impl NextCommand<'_, '_> {
    /// Runs the command, which appends its reply. A failing command is taken back with its reply,
    /// unless its error keeps the changes.
    #[inline]
    fn run(
        &self,
        reply: &mut Reply<'_>,
        wrote: &mut Wrote,
        laps: &mut Laps,
    ) -> Result<Option<Failure>, Ended> {
        let NextCommand { space, commands: Commands { requests, input, exec, caller, .. }, .. } =
            *self;
        let (request, context) = (&requests[self.number], space.context());
        let (effects, tx) = (context.effects, space.transaction());
        let args = request.arguments(input);
        let (position, savepoint) = (reply.position(), tx.savepoint());
        let mark = effects.borrow_mut().mark();
        let is_remembered = self.commands.remembered.has(self.number);
        let result = run_one((space, caller, is_remembered), request, &args, reply);
        let is_kept = matches!(result, Err(Stop::ErrorKept(_)));
        wrote.times.push(laps.next());
        let is_large = effects.borrow().written > MOST_WRITTEN && !context.is_patient;
        let failure = failure_of(result, is_large, reply.too_long())?;
        if failure.is_some() {
            reply.truncate(position);
        }
        // The client of EXEC is disconnected, and hears of no command of EXEC: all are done.
        let is_done = match &failure {
            None => true,
            Some(Failure::Error(text)) => is_kept || exec.is_some() && text == TOO_LONG_FOR_CLIENT,
            Some(Failure::TooMuch) => false,
        };
        if is_done {
            let place = request.place().expect("it is a command");
            wrote.note_written(context, caller, place, &args);
        } else {
            tx.rollback_to(savepoint)?;
            effects.borrow_mut().back_to(mark);
            caller.forget();
            space.reopen()?;
        }
        Ok(failure)
    }
}

/// Begins the reply of EXEC; false if a watched key has changed.
fn begin_exec(
    space: &Keyspace<'_>,
    Exec { watched, others, .. }: &Exec,
    requests: usize,
    reply: &mut Reply<'_>,
) -> Result<bool, Ended> {
    let is_as_watched = space.are_as_watched(watched)?;
    match is_as_watched {
        true => reply.array(requests + others),
        // A lost race is a reply as well, which waits for the data read.
        false => reply.null_array(),
    }
    Ok(is_as_watched)
}

fn run_one(
    (space, caller, is_remembered): (&Keyspace<'_>, &Caller<'_>, bool),
    request: &Request,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    if let Some(text) = request.refusal() {
        return Err(Stop::Error(text.to_string().into()));
    }
    let place = request.place().expect("it is a command");
    let import = &caller.shared.live_import;
    if import.is_on()
        && let Some(text) = import.refusal(names::writes(place, args))
    {
        return Err(Stop::Error(text.into()));
    }
    caller.remembers.set(is_remembered);
    caller.remember(place, args);
    match function(place) {
        Function::Data(run) => run(space, args, reply),
        Function::Script(run) => {
            let result = run(space, caller, args, reply);
            if !matches!(result, Err(Stop::Abort(_))) {
                space.reopen()?;
            }
            result
        }
        Function::Local(_) | Function::Conversation => unreachable!("it runs on its own"),
    }
}

/// Why a command is taken back, if at all.
fn failure_of(
    result: Result<(), Stop>,
    is_large: bool,
    too_long: Option<&str>,
) -> Result<Option<Failure>, Ended> {
    Ok(Some(match result {
        Ok(()) if is_large => Failure::TooMuch,
        Err(Stop::Abort(keyspace::TOO_MUCH_FOR_LOOP)) => Failure::TooMuch,
        Ok(()) => match too_long {
            Some(TOO_LONG_FOR_LOOP) => Failure::TooMuch,
            Some(text) => Failure::Error(text.to_string()),
            None => return Ok(None),
        },
        Err(Stop::Abort(abort @ (Abort::Conflict | keyspace::TOO_MUCH))) => {
            return Err(abort.into());
        }
        Err(Stop::Abort(abort)) => Failure::Error(abort_text(abort)),
        Err(Stop::Error(text) | Stop::ErrorKept(text)) => Failure::Error(text.into_owned()),
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
