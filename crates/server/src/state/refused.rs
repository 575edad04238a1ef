//! Keeps refusals of a user's requests for ACL LOG.

use super::Shared;
use crate::access::{Denied, DeniedEntry, DeniedIn, Login, Reason};
use crate::catalogue::names;
use crate::clients::ClientEntry;

/// Adds a refusal to the log.
pub fn note_in(
    shared: &Shared,
    (login, entry): (&Login, &ClientEntry),
    args: &[&[u8]],
    denied: Denied,
    place: DeniedIn,
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
        place,
        object: object.to_vec(),
        user: login.name().to_string(),
        at_ms,
        client: entry.line(at_ms),
    };
    shared.access.denied.add(denied, shared.settings.denied_log_length());
}
