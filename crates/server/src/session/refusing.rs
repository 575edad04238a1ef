//! Refusals to a user: told to the client, and noted for ACL LOG.

use crate::access::{Denied, DeniedIn, Login};
use crate::clients::ClientEntry;
use crate::request::Request;
use crate::state::Shared;
use crate::state::refused::note_in;
use smallvec::SmallVec;

/// Refuses the commands of an EXEC that the user may not run any more. Their arguments may be in
/// `input`.
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
            let refused = login.sort_refusal(&shared.access, &args);
            drop(args);
            refused.into_iter().for_each(|text| request.refuse(text));
            continue;
        };
        note_in(shared, (login, entry), &args, denied, DeniedIn::Multi);
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
