//! What is refused to a user: told to the client, and noted for ACL LOG.

use crate::access::{self, Denied, DeniedEntry, Login, Reason};
use crate::catalogue::names;
use crate::clients::ClientEntry;
use crate::request::Request;
use crate::state::Shared;
use smallvec::SmallVec;

/// Refuses those of the commands that EXEC is to run whose user may not run them any more. Their
/// arguments may be in `input`.
pub fn refuse_queued<'r>(
    shared: &Shared,
    login: &mut Login,
    entry: &ClientEntry,
    requests: impl Iterator<Item = &'r mut Request>,
    input: &[u8],
) {
    if !shared.access.is_restricted() {
        return;
    }
    for request in requests {
        let args: SmallVec<[&[u8]; 8]> = request.arguments(input);
        let Err(denied) = login.check(&shared.access, &args) else {
            let refused = sort_refusal(login.refresh(&shared.access), &args);
            drop(args);
            refused.into_iter().for_each(|text| request.refuse(text));
            continue;
        };
        note_in(shared, (login, entry), &args, denied, true);
        let reason = match denied {
            Denied::Command => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => "no permission to access one of the channels used as arguments",
        };
        drop(args);
        request.refuse(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated \
             and the EXEC call. This command is no longer allowed for the following reason: \
             {reason}"
        ));
    }
}

/// Why SORT is refused with a pattern: BY and GET read any keys.
pub fn sort_refusal(user: &access::User, args: &[&[u8]]) -> Option<String> {
    let sorts = args[0].len() >= 4 && args[0][..4].eq_ignore_ascii_case(b"sort");
    let option = user.refused_sort_option(args).filter(|_| sorts)?;
    Some(format!("ERR {option} option of SORT denied due to insufficient ACL permissions."))
}

/// Adds what was refused to the log.
pub fn note_in(
    shared: &Shared,
    (login, entry): (&Login, &ClientEntry),
    args: &[&[u8]],
    denied: Denied,
    in_multi: bool,
) {
    let (reason, object) = match denied {
        Denied::Command => {
            let named = names::of_request(args).map(|at| names::all()[at].name);
            (Reason::Command, named.unwrap_or_default().as_bytes())
        }
        Denied::Key(at) => (Reason::Key, args[at]),
        Denied::Channel(at) => (Reason::Channel, args[at]),
    };
    let at_ms = shared.clock.now_ms();
    let denied = DeniedEntry {
        count: 1,
        reason,
        in_multi,
        object: object.to_vec(),
        user: login.name().to_string(),
        at_ms,
        client: entry.line(at_ms),
    };
    shared.access.denied.add(denied, shared.settings.denied_log_length());
}
