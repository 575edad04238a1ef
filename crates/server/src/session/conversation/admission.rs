//! Whether a client may run its requests.

use super::Conversation;
use super::transactions::tries_to_log_in;
use crate::access::{self, Access, Denied, DeniedIn};
use crate::catalogue::{self, Command, NO_AUTH, Phase, names};
use crate::request::Request;
use crate::state::Shared;
use crate::state::membership_asked::Demand;
use crate::state::refused::note_in;
use smallvec::SmallVec;
use std::time::Instant;

impl Conversation {
    /// Whether there is no objection to a request that runs with its neighbours.
    #[inline]
    pub(super) fn is_admitted(&mut self, shared: &Shared, request: &Request) -> bool {
        self.is_allowed(&shared.access, request)
            && !(request.grows(&self.input) && shared.is_out_of_memory())
            && !(shared.live_import.is_on() && self.is_refused_in_import(shared, request))
            && !(shared.settings.is_cluster() && self.is_refused_by_slot(shared, request))
            && !(shared.membership.restricts() && self.is_refused_by_role(shared, request))
    }

    /// Whether a live import refuses a request.
    #[cold]
    fn is_refused_in_import(&self, shared: &Shared, request: &Request) -> bool {
        let args: SmallVec<[&[u8]; 8]> = request.arguments(&self.input);
        let place = request.place().expect("it is a command on data");
        shared.live_import.refusal(names::writes(place, &args)).is_some()
    }

    /// Whether the role of this member refuses a request on data.
    #[cold]
    fn is_refused_by_role(&self, shared: &Shared, request: &Request) -> bool {
        let place = request.place().expect("it is a command on data");
        self.refusal_by_role(shared, request, &catalogue::all()[place]).is_some()
    }

    /// Why the role of this member refuses a request, also a request that MULTI queues.
    pub(super) fn refusal_by_role(
        &self,
        shared: &Shared,
        request: &Request,
        command: &Command,
    ) -> Option<String> {
        if !shared.membership.restricts() {
            return None;
        }
        shared.membership.refusal(self.demand(request, command)?)
    }

    /// Whether cluster mode refuses a request on data.
    #[cold]
    fn is_refused_by_slot(&self, shared: &Shared, request: &Request) -> bool {
        let place = request.place().expect("it is a command on data");
        self.refusal_by_slot(shared, request, &catalogue::all()[place]).is_some()
    }

    /// Why cluster mode refuses a request, also a request that MULTI queues.
    pub(super) fn refusal_by_slot(
        &self,
        shared: &Shared,
        request: &Request,
        command: &Command,
    ) -> Option<String> {
        if !shared.settings.is_cluster() {
            return None;
        }
        let args: SmallVec<[&[u8]; 8]> = request.arguments(&self.input);
        let slots = match &self.client.multi {
            Some(multi) if command.name == "exec" && multi.is_refused => return None,
            Some(multi) if command.name == "exec" => multi.slots,
            _ => catalogue::slots_of(command, &args),
        };
        // A command without a demand is about channels of a shard, which the primary has.
        let asked = self.demand(request, command).unwrap_or(Demand::Write);
        let refused = shared.refusal_by_slot(slots, asked, self.client.reads_standbys);
        refused.or_else(|| catalogue::out_of_cluster(command, &args).map(str::to_string))
    }

    /// What a request asks of the data, if anything.
    fn demand(&self, request: &Request, command: &Command) -> Option<Demand> {
        Some(match (command.phase, &self.client.multi) {
            (Phase::Data | Phase::Open, _) => {
                Demand::of(command, request.place()?, &request.arguments(&self.input))
            }
            (Phase::Multi, Some(multi)) if command.name == "exec" => match multi.queued.writes() {
                true => Demand::Write,
                false if multi.queued.is_empty() => return None,
                false => Demand::Read,
            },
            _ => return None,
        })
    }

    /// Whether the client may run a request.
    #[inline]
    pub(super) fn is_allowed(&mut self, access: &Access, request: &Request) -> bool {
        !access.is_restricted() || self.is_allowed_by_rules(access, request)
    }

    #[cold]
    fn is_allowed_by_rules(&mut self, access: &Access, request: &Request) -> bool {
        let args: SmallVec<[&[u8]; 8]> = request.arguments(&self.input);
        let login = &mut self.client.login;
        !login.is_missing(access)
            && login.check(access, &args).is_ok()
            && login.sort_refusal(access, &args).is_none()
    }

    /// Returns the reply to a forbidden request, which is noted for ACL LOG. `command` is `None` if
    /// the command is not built.
    pub(super) fn refused(
        &mut self,
        shared: &Shared,
        request: &Request,
        command: Option<&Command>,
    ) -> Option<String> {
        let access = &shared.access;
        if !access.is_restricted() {
            return None;
        }
        let args: SmallVec<[&[u8]; 8]> = request.arguments(&self.input);
        // A command unknown to Redis too gets another error.
        let named = names::of_request(&args)?;
        let is_free = command.is_some_and(|command| command.has(NO_AUTH));
        if self.client.login.is_missing(access) && !is_free {
            return Some("NOAUTH Authentication required.".to_string());
        }
        let Err(denied) = self.client.login.check(access, &args) else {
            return self.client.login.sort_refusal(access, &args);
        };
        note(shared, &self.client, &args, denied);
        let text = "NOPERM this user has no permissions to";
        Some(match denied {
            Denied::Command => {
                format!("{text} run the '{}' command", names::all()[named].name)
            }
            Denied::Key(_) => format!("{text} access one of the keys used as arguments"),
            Denied::Channel(_) => format!("{text} access one of the channels used as arguments"),
        })
    }

    /// Whether an attempt to log in, or an EXEC with an attempt, has to wait: too many attempts
    /// from the address have failed.
    pub(super) fn holds(&mut self, access: &Access, request: &Request) -> bool {
        let Some(name) = request.place().map(|at| catalogue::all()[at].name) else { return false };
        let tries = match &self.client.multi {
            Some(multi) => name == "exec" && multi.logs_in && !multi.is_refused,
            None => tries_to_log_in(name, request.len()),
        };
        if !tries {
            return false;
        }
        let now = Instant::now();
        match self.held.take() {
            // The attempt has waited.
            Some(until) if until <= now => false,
            Some(until) => {
                self.held = Some(until);
                true
            }
            None => {
                let source = access::source(&self.client.entry.address);
                let delay = source.map(|source| access.throttle.delay(source, now));
                self.held = delay.filter(|delay| !delay.is_zero()).map(|delay| now + delay);
                self.held.is_some()
            }
        }
    }
}

fn note(shared: &Shared, client: &crate::client::Client, args: &[&[u8]], denied: Denied) {
    let place = DeniedIn::multi(client.multi.is_some());
    note_in(shared, (&client.login, &client.entry), args, denied, place);
}
