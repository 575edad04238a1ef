//! The surroundings of a script: the commands, as the client may run them.

use super::super::{
    Caller, Function, Local, LocalCommand, function, keys, stream_reads, subcommand_error,
};
use crate::access::{Denied, Login};
use crate::catalogue::names::{self, NamedCommand};
use crate::catalogue::{self, ADMIN, BLOCKS, Command, NO_MULTI, NOSCRIPT};
use crate::client::Client;
use crate::clients::channels::Publication;
use crate::data::keyspace::{Keyspace, Stop};
use crate::resp::reply::Reply;
use crate::script::{Flags, Halt, Host};
use crate::state::live_import::READ_ONLY;
use crate::state::memory::OUT_OF_MEMORY;
use crate::transact::abort_text;
use hyades::{Abort, SessionOrder};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::time::Instant;

/// The other commands.
pub struct CommandHost<'t, 'a> {
    space: Keyspace<'t>,
    caller: &'a Caller<'a>,
    flags: Flags,
    is_read_only: bool,
    /// The database chosen by SELECT.
    selected: RefCell<Option<Keyspace<'t>>>,
    /// For commands on the connection: their changes end with the script.
    client: RefCell<Option<Client>>,
    login: RefCell<Login>,
}

/// The lowest level of written messages.
const LEAST_LOGGED: i64 = 2;

/// Walks over the keys within the transaction.
const KEYS: &str = "keys";

const NOT_ALLOWED: &str = "ERR This Redis command is not allowed from script";

impl<'t, 'a> CommandHost<'t, 'a> {
    /// Of a script.
    pub fn new(
        space: &Keyspace<'t>,
        caller: &'a Caller<'a>,
        flags: Flags,
        is_read_only: bool,
    ) -> Self {
        CommandHost {
            space: space.for_script(),
            caller,
            flags,
            is_read_only: is_read_only || flags.no_writes,
            selected: RefCell::default(),
            client: RefCell::default(),
            login: RefCell::new(caller.login.clone()),
        }
    }

    /// The arguments with a renamed command's own name, as rules name the command.
    fn own_names<'w>(&self, args: &[&'w [u8]]) -> Option<SmallVec<[&'w [u8]; 8]>> {
        let place = self.caller.shared.settings.renamed.find(args[0]).flatten()?;
        let name = catalogue::all()[place].name.as_bytes();
        Some(std::iter::once(name).chain(args[1..].iter().copied()).collect())
    }

    /// Why a command is not run.
    fn refusal(&self, command: &Command, named: &NamedCommand, args: &[&[u8]]) -> Option<String> {
        if !command.takes(args.len()) {
            return Some("ERR Wrong number of args calling Redis command from script".into());
        }
        // The container has no subcommand of the given name.
        if let Some(given) = args.get(1).filter(|_| named.is_container) {
            return Some(subcommand_error("unknown subcommand", named.name, given));
        }
        let is_refused = (named.flags | command.flags) & (NOSCRIPT | NO_MULTI) != 0;
        if is_refused && command.name != KEYS {
            return Some(NOT_ALLOWED.into());
        }
        if ["xread", "xreadgroup"].contains(&command.name) && stream_reads::blocks(args) {
            let name = String::from_utf8_lossy(args[0]);
            let text = "command is not allowed with BLOCK option from scripts";
            return Some(format!("ERR {name} {text}"));
        }
        let shared = self.caller.shared;
        // What is published is noticed by others, as a write is.
        let publishes = ["publish", "spublish"].contains(&command.name);
        let may_write = named.flags & (catalogue::WRITE | catalogue::MAY_WRITE) != 0 || publishes;
        if self.is_read_only && may_write {
            return Some("ERR Write commands are not allowed from read-only scripts.".into());
        }
        if (shared.live_import.is_on() || shared.membership.only_reads())
            && named.flags & catalogue::WRITE != 0
            && !self.space.context().is_import
        {
            return Some(READ_ONLY.to_string());
        }
        let may_refuse = !self.flags.allow_oom && !self.space.context().is_import;
        if names::grows(command, args) && may_refuse && shared.is_out_of_memory() {
            return Some(OUT_OF_MEMORY.to_string());
        }
        if shared.settings.is_cluster()
            && let Some(text) = catalogue::out_of_cluster(command, args)
        {
            return Some(text.to_string());
        }
        let mut login = self.login.borrow_mut();
        let Err(denied) = login.check(&shared.access, args) else {
            return login.sort_refusal(&shared.access, args);
        };
        drop(login);
        let text = match denied {
            Denied::Command => "can't run this command or subcommand",
            Denied::Key(_) => {
                "can't access at least one of the keys mentioned in the command arguments"
            }
            Denied::Channel(_) => "can't publish to the channel mentioned in the command",
        };
        let login = self.login.borrow();
        self.caller.note_denied(&login, args, denied);
        Some(format!("NOPERM The user executing the script {text}"))
    }

    /// Runs a command on the connection or the server.
    fn run_local(
        &self,
        run: LocalCommand,
        args: &[&[u8]],
        reply: &mut Reply<'_>,
    ) -> Result<(), Stop> {
        let Caller { shared, client: entry, .. } = self.caller;
        let mut client = self.client.borrow_mut();
        let client = client.get_or_insert_with(|| {
            let mut client = Client::new(&shared.access, (*entry).clone());
            client.login = self.login.borrow().clone();
            client.database = self.space.database();
            client
        });
        self.space.context().check_copied()?;
        let mut job = None;
        let mut local = Local {
            client,
            order: &SessionOrder::default(),
            shared,
            now_ms: self.space.now_ms(),
            job: &mut job,
            session: None,
            is_in_exec: true,
        };
        run(&mut local, args, reply)?;
        if job.is_some() {
            return Err(NOT_ALLOWED.into());
        }
        // Published messages are kept until the transaction ends, like its writes.
        for Publication { channel, payload, .. } in &client.published {
            self.space.context().count_read_bytes(channel.len(), payload.len());
        }
        self.caller.notices.borrow_mut().events.append(&mut client.published);
        let mut selected = self.selected.borrow_mut();
        let now = selected.as_ref().map_or(self.space.database(), Keyspace::database);
        if client.database != now {
            *selected = Some(self.space.of_database(client.database)?);
        }
        Ok(())
    }

    fn run(&self, place: usize, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
        let selected = self.selected.borrow();
        let space = selected.as_ref().unwrap_or(&self.space);
        match function(place) {
            _ if catalogue::all()[place].name == KEYS => {
                keys::keys_in_transaction(space, args, reply)
            }
            Function::Data(run) => run(space, args, reply),
            Function::Local(run) => {
                drop(selected);
                self.run_local(run, args, reply)
            }
            Function::Script(_) | Function::Conversation => Err(NOT_ALLOWED.into()),
        }
    }
}

impl Host for CommandHost<'_, '_> {
    fn call(
        &self,
        args: &[&[u8]],
        now: Instant,
        resp3: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Halt> {
        let shared = self.caller.shared;
        let renamed = shared.settings.renamed.find(args[0]);
        let place = renamed.unwrap_or_else(|| catalogue::find(args[0]));
        let own = self.own_names(args);
        let args = own.as_deref().unwrap_or(args);
        let mut reply = Reply::new(out, resp3);
        let Some(place) = place else {
            reply.error(match names::of_request(args) {
                Some(_) => NOT_ALLOWED,
                None => "ERR Unknown Redis command called from script",
            });
            return Ok(());
        };
        let command = &catalogue::all()[place];
        let named = shared.stats.commands.place_of(place, args);
        if let Some(text) = self.refusal(command, &names::all()[named], args) {
            shared.stats.count_error(&text);
            reply.error(&text);
            return Ok(());
        }
        let (tx, effects) = (self.space.transaction(), self.space.context().effects);
        let (savepoint, mark) = (tx.savepoint(), effects.borrow_mut().mark());
        self.caller.remember(place, args);
        let mut result = self.run(place, args, &mut reply);
        if let Some(text) = reply.too_long().filter(|_| result.is_ok()) {
            result = Err(text.into());
        }
        // Nothing blocks in a script: a command that would wait finds nothing.
        if command.has(BLOCKS) && effects.borrow_mut().wait.take().is_some() {
            reply.truncate(0);
            reply.null_array();
        }
        let text = match result {
            Ok(()) => {
                self.caller.note_written(self.space.context(), place, args);
                None
            }
            Err(Stop::Abort(abort @ Abort::Conflict)) => return Err(Halt::Abort(abort)),
            Err(Stop::Abort(abort @ Abort::User(_))) => return Err(Halt::Abort(abort)),
            Err(Stop::Abort(abort)) => Some(abort_text(abort)),
            Err(Stop::Error(text) | Stop::ErrorKept(text)) => Some(text.into_owned()),
        };
        if shared.wiring.monitors.is_on() && command.flags & ADMIN == 0 {
            let selected = self.selected.borrow();
            let database = selected.as_ref().map_or(self.space.database(), Keyspace::database);
            self.caller.note_line(database, args);
        }
        let nanos = now.elapsed().as_nanos() as u64;
        let is_error = text.is_some();
        shared.stats.commands.note(named, nanos, is_error, shared.settings.tracks_latency());
        if let Some(text) = text {
            tx.rollback_to(savepoint).map_err(Halt::Abort)?;
            effects.borrow_mut().back_to(mark);
            let selected = self.selected.borrow();
            selected.as_ref().unwrap_or(&self.space).reopen().map_err(Halt::Abort)?;
            shared.stats.count_error(&text);
            reply.truncate(0);
            reply.error(&text);
        }
        Ok(())
    }

    fn may_run(&self, args: &[&[u8]]) -> Result<bool, &'static str> {
        let own = self.own_names(args);
        let args = own.as_deref().unwrap_or(args);
        names::of_request(args).ok_or("ERR Invalid command passed to redis.acl_check_cmd()")?;
        Ok(self.login.borrow_mut().check(&self.caller.shared.access, args).is_ok())
    }

    fn log(&self, level: i64, text: &[u8]) {
        // As much as Redis writes at its default level.
        if level >= LEAST_LOGGED {
            eprintln!("script: {}", String::from_utf8_lossy(text));
        }
    }
}
