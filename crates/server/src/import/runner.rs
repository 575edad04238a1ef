//! Runs the commands of another server, many in a transaction.

use super::groups::{CommandGroup, database_of};
use super::report::ImportReport;
use crate::access::Login;
use crate::catalogue;
use crate::clients::channels::{Publication, Topic};
use crate::clients::tracking::Changed;
use crate::clients::{Calls, ClientEntry};
use crate::commands::{Caller, Function, function};
use crate::data::keyspace::{Context, Events, Keyspace, Notices, Stop};
use crate::resp::is;
use crate::resp::reply::Reply;
use crate::state::Shared;
use crate::transact::{in_parts, is_too_much, patiently};
use hyades::{Abort, SessionOrder, Ticket};
use std::cell::RefCell;
use std::sync::Arc;
use std::task::Waker;

/// The source of commands, and the receiver of their results.
pub trait CommandSource {
    /// The name of the source in errors.
    fn name(&self) -> String;

    /// Is called in each transaction: stores the position in the source, with `behind` groups left
    /// to run.
    ///
    /// # Errors
    /// The errors of a write.
    fn keep(&self, space: &Keyspace<'_>, behind: usize) -> Result<(), Abort>;

    /// Takes the result of a committed transaction, with `behind` groups left to run.
    ///
    /// # Errors
    /// No further transaction is to be run.
    fn committed(&mut self, behind: usize, part: CommittedPart) -> Result<(), String>;

    /// Whether a group too large for any transaction is left out.
    fn leaves_out_too_much(&self) -> bool;
}

/// A committed transaction.
pub struct CommittedPart {
    /// The ticket of the transaction: with its acknowledgement, all earlier transactions are on
    /// disk.
    pub ticket: Ticket,
    /// The commands run and left out.
    pub report: ImportReport,
    /// Messages to subscribers.
    pub events: Events,
    /// Changes to tell to tracking clients.
    pub changed: Changed,
}

/// Runs commands.
pub struct Runner {
    entry: Arc<ClientEntry>,
    login: Login,
    order: SessionOrder,
    last: Option<Ticket>,
}

impl Runner {
    /// A runner with all permissions.
    pub fn new(shared: &Shared) -> Runner {
        let addresses = ("import".to_string(), "import".to_string());
        let calls = Calls::new(Waker::noop().clone());
        let entry = Arc::new(ClientEntry::new(shared.clients.next_id(), addresses, 0, calls));
        let login = Login::unbound(&shared.access);
        Runner { entry, login, order: SessionOrder::default(), last: None }
    }

    /// Waits until all commands run by [`Runner::run_one`] are on disk.
    ///
    /// # Errors
    /// The log has failed.
    pub fn wait(&mut self) -> Result<(), String> {
        let last = self.last.take().map(Ticket::wait).transpose();
        last.map(drop).map_err(|error| error.to_string())
    }

    /// Runs one command by itself.
    ///
    /// # Errors
    /// The error of the command.
    pub fn run_one(&mut self, shared: &Arc<Shared>, args: &[&[u8]]) -> Result<(), String> {
        let (entry, login) = (&self.entry, &self.login);
        let (_, _, ticket) = patiently(shared, &mut self.order, |tx, context| {
            let context = Context { is_import: true, ..context };
            let space = Keyspace::open(*tx, context, 0)?;
            let caller = Caller::new(shared, entry, login, false);
            let mut out = Vec::new();
            execute((&space, &caller), args, &mut Reply::new(&mut out, false))
        })?;
        self.last = Some(ticket);
        Ok(())
    }

    /// Runs groups, in several transactions if too large for one.
    ///
    /// # Errors
    /// A description of the error, in a sentence.
    pub fn run(
        &mut self,
        shared: &Arc<Shared>,
        (groups, input): (&[CommandGroup], &[u8]),
        source: &mut impl CommandSource,
    ) -> Result<(), String> {
        in_parts(groups, 0, &mut |groups: &[CommandGroup], behind| {
            let part = match self.run_part(shared, (groups, input), behind, source) {
                Err(text)
                    if is_too_much(&text) && groups.len() == 1 && source.leaves_out_too_much() =>
                {
                    let mut part = self.run_part(shared, (&[], input), behind, source)?;
                    let (name, commands) = (source.name(), &groups[0].commands);
                    let first = commands.first().map(|first| shown(&[first.argument(0, input)]));
                    let first = first.unwrap_or_default();
                    for command in commands {
                        let place = format!("{name} at byte {}: {first}", command.offset);
                        part.report.leave_out(format!("{place}: {text}"));
                    }
                    part
                }
                Err(text) if is_too_much(&text) && groups.len() > 1 => return Err(text),
                Err(text) => {
                    let offset = groups.first().and_then(|group| group.commands.first());
                    let offset = offset.map_or(0, |command| command.offset);
                    return Err(format!("{} at byte {offset}: {text}", source.name()));
                }
                Ok(part) => part,
            };
            source.committed(behind, part)
        })
    }

    /// Runs groups in one transaction.
    fn run_part(
        &mut self,
        shared: &Arc<Shared>,
        (groups, input): (&[CommandGroup], &[u8]),
        behind: usize,
        source: &impl CommandSource,
    ) -> Result<CommittedPart, String> {
        let (entry, login) = (&self.entry, &self.login);
        let (name, notes_keys) = (source.name(), RefCell::new(false));
        let notices = RefCell::new(Notices::default());
        let (report, effects, ticket) = patiently(shared, &mut self.order, |tx, context| {
            // The other server decides about expiry.
            let context = Context { is_import: true, ..context };
            let (mut report, mut notices) = (ImportReport::default(), notices.borrow_mut());
            notices.clear();
            *notes_keys.borrow_mut() = context.tracks;
            let caller = Caller::new(shared, entry, login, false);
            for group in groups {
                let mut space = Keyspace::open(*tx, context, group.database)?;
                for command in &group.commands {
                    let args = command.arguments.iter().map(|&(from, to)| &input[from..to]);
                    let args: Vec<&[u8]> = args.collect();
                    let to = (&mut report, &mut *notices);
                    apply((&mut space, &caller), &args, (&name, command.offset), to)?;
                }
            }
            source.keep(&Keyspace::open(*tx, context, 0)?, behind)?;
            Ok(report)
        })?;
        let mut notices = notices.into_inner();
        let keys = std::mem::take(&mut notices.keys);
        let changed = shared.changed(notes_keys.into_inner(), &effects, keys);
        Ok(CommittedPart { ticket, report, events: notices.events, changed })
    }
}

fn shown(args: &[&[u8]]) -> String {
    let shown = args.iter().take(2).map(|arg| String::from_utf8_lossy(&arg[..arg.len().min(128)]));
    shown.collect::<Vec<_>>().join(" ")
}

/// Runs a command in the transaction. A failing command is left out.
fn apply<'t>(
    (space, caller): (&mut Keyspace<'t>, &Caller<'_>),
    args: &[&[u8]],
    (name, offset): (&str, u64),
    (report, notices): (&mut ImportReport, &mut Notices),
) -> Result<(), Stop> {
    if is(args[0], "SELECT") {
        if let Some(number) = args.get(1).and_then(|text| database_of(text)) {
            *space = space.of_database(number)?;
        }
        return Ok(());
    }
    report.commands += 1;
    if let (Some(topic), [_, channel, payload]) = (topic_of(args[0]), args) {
        let (channel, payload) = (channel.to_vec(), payload.to_vec());
        notices.events.push(Publication { topic, channel, payload });
        return Ok(());
    }
    let (tx, effects) = (space.transaction(), space.context().effects);
    let (savepoint, mark) = (tx.savepoint(), effects.borrow_mut().mark());
    let mut out = Vec::new();
    match execute((space, caller), args, &mut Reply::new(&mut out, false)) {
        Ok(()) => {
            notices.append(&mut caller.notices.borrow_mut());
            if let Some(command) = catalogue::command(args[0]) {
                notices.note(space.context(), command, args);
            }
            Ok(())
        }
        Err(Stop::Abort(abort)) => Err(abort.into()),
        Err(Stop::Error(text) | Stop::ErrorKept(text)) => {
            tx.rollback_to(savepoint)?;
            effects.borrow_mut().back_to(mark);
            caller.forget();
            report.leave_out(format!("{name} at byte {offset}: {}: {text}", shown(args)));
            space.reopen()?;
            Ok(())
        }
    }
}

/// The kind of topic of a publishing command, else `None`.
fn topic_of(name: &[u8]) -> Option<Topic> {
    match name {
        _ if is(name, "PUBLISH") => Some(Topic::Channel),
        _ if is(name, "SPUBLISH") => Some(Topic::Shard),
        _ => None,
    }
}

pub(super) fn execute(
    (space, caller): (&Keyspace<'_>, &Caller<'_>),
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let command = catalogue::find(args[0]).ok_or("ERR unknown command")?;
    if !catalogue::all()[command].takes(args.len()) {
        return Err("ERR wrong number of arguments".into());
    }
    match function(command) {
        Function::Data(run) => run(space, args, reply),
        Function::Script(run) => {
            let done = run(space, caller, args, reply);
            if !matches!(done, Err(Stop::Abort(_))) {
                space.reopen()?;
            }
            done
        }
        Function::Local(_) | Function::Conversation => Err("ERR it changes no data".into()),
    }
}
