//! CLIENT TRACKING, CACHING and TRACKINGINFO.

use super::{Done, Local, SYNTAX, integer, is};
use crate::clients::tracking::{TrackingOptions, TrackingState};
use crate::data::keyspace::Stop;
use crate::resp::reply::Reply;

/// Most prefixes of a client, and most bytes of all its prefixes.
const MOST_PREFIXES: usize = 1_024;
const MOST_PREFIX_BYTES: usize = 64 << 10;

/// The request of CLIENT TRACKING.
#[derive(Default)]
struct Wanted<'a> {
    options: TrackingOptions,
    is_broadcast: bool,
    prefixes: Vec<&'a [u8]>,
}

fn wanted<'a>(local: &Local<'_>, args: &[&'a [u8]]) -> Result<Wanted<'a>, Stop> {
    let (mut wanted, mut at) = (Wanted::default(), 0);
    while let Some(word) = args.get(at) {
        at += 1;
        match args.get(at) {
            Some(id) if is(word, "REDIRECT") => {
                if wanted.options.redirect.is_some() {
                    let text = "ERR A client can only redirect to a single other client";
                    return Err(text.into());
                }
                let id = integer(id)?;
                let found = u64::try_from(id).ok().and_then(|id| local.shared.clients.find(id));
                let missing = "ERR The client ID you want redirect to does not exist";
                wanted.options.redirect = Some(found.ok_or(missing)?);
                at += 1;
            }
            Some(prefix) if is(word, "PREFIX") => {
                wanted.prefixes.push(prefix);
                at += 1;
            }
            _ if is(word, "BCAST") => wanted.is_broadcast = true,
            _ if is(word, "OPTIN") => wanted.options.flags |= TrackingState::OPTIN,
            _ if is(word, "OPTOUT") => wanted.options.flags |= TrackingState::OPTOUT,
            _ if is(word, "NOLOOP") => wanted.options.flags |= TrackingState::NOLOOP,
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok(wanted)
}

/// An error if options do not go together, or not with how the client tracks already.
fn check(local: &Local<'_>, wanted: &Wanted<'_>) -> Result<(), Stop> {
    const OPTIN: u8 = TrackingState::OPTIN;
    const OPTOUT: u8 = TrackingState::OPTOUT;
    let (state, flags) = (&local.client.entry.tracking, wanted.options.flags);
    let opts = flags & (OPTIN | OPTOUT);
    let was_broadcast = state.has(TrackingState::BCAST);
    let another = "before disabling tracking for this client, and then re-enabling it with a \
                   different mode.";
    let wrong = match () {
        () if !wanted.is_broadcast && !wanted.prefixes.is_empty() => {
            "PREFIX option requires BCAST mode to be enabled".to_string()
        }
        () if state.is_on() && was_broadcast != wanted.is_broadcast => {
            format!("You can't switch BCAST mode on/off {another}")
        }
        () if wanted.is_broadcast && opts != 0 => {
            "OPTIN and OPTOUT are not compatible with BCAST".to_string()
        }
        () if opts == OPTIN | OPTOUT => {
            "You can't specify both OPTIN mode and OPTOUT mode".to_string()
        }
        () if opts == OPTIN && state.has(OPTOUT) || opts == OPTOUT && state.has(OPTIN) => {
            format!("You can't switch OPTIN/OPTOUT mode {another}")
        }
        () => return check_prefixes(local, &wanted.prefixes),
    };
    Err(format!("ERR {wrong}").into())
}

fn check_prefixes(local: &Local<'_>, prefixes: &[&[u8]]) -> Result<(), Stop> {
    let known: &[Vec<u8>] = local.client.tracks.as_ref().map_or(&[], |tracks| &tracks.prefixes);
    let overlaps = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
    let refused = |a: &[u8], with: &str, b: &[u8]| {
        let [a, b] = [a, b].map(String::from_utf8_lossy);
        let text = "Prefixes for a single client must not overlap.";
        Err(format!("ERR Prefix '{a}' overlaps with {with} prefix '{b}'. {text}").into())
    };
    for (at, prefix) in prefixes.iter().enumerate() {
        if let Some(other) = known.iter().find(|other| overlaps(prefix, other)) {
            return refused(prefix, "an existing", other);
        }
        if let Some(other) = prefixes[at + 1..].iter().find(|other| overlaps(prefix, other)) {
            return refused(prefix, "another provided", other);
        }
    }
    let all = known.iter().map(Vec::as_slice).chain(prefixes.iter().copied());
    let (count, bytes) = all.fold((0, 0), |(n, bytes), prefix| (n + 1, bytes + prefix.len()));
    if count > MOST_PREFIXES || bytes > MOST_PREFIX_BYTES {
        let text = format!("ERR a client has {MOST_PREFIXES} prefixes with 64 KiB at most");
        return Err(text.into());
    }
    Ok(())
}

pub fn tracking(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let mut wanted = wanted(local, &args[1..])?;
    if is(args[0], "OFF") {
        local.client.tracks = None;
    } else if is(args[0], "ON") {
        if local.shared.membership.only_reads() {
            let text = "ERR CLIENT TRACKING is not possible on a standby: nothing tells of the \
                        writes that are replayed here";
            return Err(text.into());
        }
        check(local, &wanted)?;
        // All keys begin with nothing.
        if wanted.is_broadcast && wanted.prefixes.is_empty() {
            wanted.prefixes.push(b"");
        }
        let prefixes = wanted.prefixes.iter().map(|prefix| prefix.to_vec()).collect();
        wanted.options.prefixes = wanted.is_broadcast.then_some(prefixes);
        let (client, shared) = (&mut *local.client, local.shared);
        let start = || shared.wiring.tracking.start(&client.entry);
        client.tracks.get_or_insert_with(start).set(wanted.options);
    } else {
        return Err(SYNTAX.into());
    }
    reply.ok();
    Ok(())
}

pub fn caching(local: &mut Local<'_>, word: &[u8], reply: &mut Reply<'_>) -> Done {
    let state = &local.client.entry.tracking;
    let Some(tracks) = &mut local.client.tracks else {
        let text = "ERR CLIENT CACHING can be called only when the client is in tracking mode with \
                    OPTIN or OPTOUT mode enabled";
        return Err(text.into());
    };
    let wrong = match () {
        () if is(word, "YES") => {
            let text =
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
            (!state.has(TrackingState::OPTIN)).then_some(text)
        }
        () if is(word, "NO") => {
            let text =
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";
            (!state.has(TrackingState::OPTOUT)).then_some(text)
        }
        () => Some(SYNTAX),
    };
    if let Some(text) = wrong {
        return Err(text.into());
    }
    tracks.is_named = true;
    reply.ok();
    Ok(())
}

pub fn tracking_info(local: &Local<'_>, reply: &mut Reply<'_>) {
    let (state, tracks) = (&local.client.entry.tracking, &local.client.tracks);
    let is_named = tracks.as_ref().is_some_and(|tracks| tracks.is_named);
    let (opts_in, opts_out) = (state.has(TrackingState::OPTIN), state.has(TrackingState::OPTOUT));
    let flags = [
        ("off", !state.is_on()),
        ("on", state.is_on()),
        ("bcast", state.has(TrackingState::BCAST)),
        ("optin", opts_in),
        ("caching-yes", opts_in && is_named),
        ("optout", opts_out),
        ("caching-no", opts_out && is_named),
        ("noloop", state.has(TrackingState::NOLOOP)),
        ("broken_redirect", state.has(TrackingState::BROKEN)),
    ];
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.iter().filter(|(_, is_set)| *is_set).count());
    for (name, _) in flags.iter().filter(|(_, is_set)| *is_set) {
        reply.bulk(name.as_bytes());
    }
    reply.bulk(b"redirect");
    reply.integer(state.redirect());
    reply.bulk(b"prefixes");
    let prefixes: &[Vec<u8>] = tracks.as_ref().map_or(&[], |tracks| &tracks.prefixes);
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
}
