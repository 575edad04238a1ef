//! Commands about the members of a replicated database: FAILOVER, REPLICAOF, WAIT, WAITAOF and
//! HYADES.AFTER. A server that is alone answers as it does without the feature.

use super::{Done, Job, Lane, Local, SYNTAX, integer, is, unsupported_error};
use crate::client::{AwaitedMember, AwaitingCommand, RunEnd};
use crate::resp::reply::Reply;
use crate::state::Shared;
use crate::state::membership::{Role, View, host_and_port};
use hyades::TransactionId;
use std::time::{Duration, Instant};

/// How long a hand-over may take to begin, without TIMEOUT.
const BEGUN_WITHIN: Duration = Duration::from_secs(10);

const NEGATIVE: &str = "ERR timeout is negative";
const NOT_A_TIMEOUT: &str = "ERR timeout is not an integer or out of range";

/// The node of a standby, by its address.
fn node_at(view: &View, host: &[u8], port: u16) -> Option<String> {
    let is_it = |address: &str| {
        let (own_host, own_port) = host_and_port(address);
        own_port == port && own_host.as_bytes() == host
    };
    let mut members = view.members.iter();
    members.find(|member| is_it(&member.address)).map(|member| member.node.clone())
}

/// What FAILOVER asks for.
#[derive(Default)]
struct FailoverRequest {
    /// The node.
    to: Option<String>,
    timeout: Option<Duration>,
}

impl FailoverRequest {
    fn of(view: &View, args: &[&[u8]]) -> Result<FailoverRequest, super::Stop> {
        let (mut request, mut at) = (FailoverRequest::default(), 0);
        while let Some(word) = args.get(at) {
            match &args[at + 1..] {
                [host, port, ..] if is(word, "TO") && request.to.is_none() => {
                    let port = integer(port).ok().and_then(|port| u16::try_from(port).ok());
                    let node = port.and_then(|port| node_at(view, host, port));
                    let missing = "ERR FAILOVER target HOST and PORT is not a replica.";
                    request.to = Some(node.ok_or(missing)?);
                    at += 3;
                    // A member that does not answer is never waited for.
                    at += usize::from(args.get(at).is_some_and(|word| is(word, "FORCE")));
                }
                [ms, ..] if is(word, "TIMEOUT") && request.timeout.is_none() => {
                    let ms = u64::try_from(integer(ms)?).ok().filter(|ms| *ms > 0);
                    let wrong = "ERR FAILOVER timeout must be greater than 0";
                    request.timeout = Some(Duration::from_millis(ms.ok_or(wrong)?));
                    at += 2;
                }
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(request)
    }
}

/// FAILOVER: the reply comes once the hand-over has begun; its end closes the connection, behind
/// the reply.
pub fn failover(local: &mut Local<'_>, args: &[&[u8]], _: &mut Reply<'_>) -> Done {
    let membership = &local.shared.membership;
    if !membership.is_on() {
        return Err(unsupported_error(args).into());
    }
    if let [_, abort] = args
        && is(abort, "ABORT")
    {
        return Err("ERR No failover in progress.".into());
    }
    let view = membership.view();
    let FailoverRequest { to, timeout } = FailoverRequest::of(&view, &args[1..])?;
    match membership.role() {
        Role::Primary | Role::Suspended => {}
        Role::HandingOver => return Err("ERR FAILOVER already in progress.".into()),
        Role::Standby | Role::Candidate => {
            return Err("ERR FAILOVER is not valid when server is a replica.".into());
        }
        _ => return Err(local.shared.loading().into()),
    }
    if view.members.is_empty() {
        return Err("ERR FAILOVER requires connected replicas.".into());
    }
    *local.job = Some(hand_over(to, timeout.unwrap_or(BEGUN_WITHIN)));
    Ok(())
}

/// A job that has the database handed over.
fn hand_over(to: Option<String>, within: Duration) -> Job {
    let job = Job::transaction(move |shared, reply| {
        let result = shared.membership.order(to).recv_timeout(within);
        match result {
            Ok(Ok(())) => reply.ok(),
            Ok(Err(text)) => reply.error(&format!("ERR {text}")),
            Err(_) => reply.error("ERR the hand-over has not begun in time"),
        }
        RunEnd { is_certain: true, ..RunEnd::default() }
    });
    job.in_lane(Lane::Network)
}

/// REPLICAOF and SLAVEOF: a standby asks the primary for the database; nothing else is decided by
/// clients.
pub fn replicaof(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if !(is(args[1], "NO") && is(args[2], "ONE")) {
        return Err("ERR REPLICAOF is not possible on a member of a replicated database: the log \
                    decides. Hand the database over with FAILOVER"
            .into());
    }
    match local.shared.membership.role() {
        Role::Primary | Role::HandingOver | Role::Suspended => reply.ok(),
        _ => {
            let own = local.shared.membership.view().node.clone();
            *local.job = Some(hand_over(Some(own), BEGUN_WITHIN));
        }
    }
    Ok(())
}

/// The end of a wait; `None` for no end.
fn end_of(ms: &[u8]) -> Result<Option<Instant>, super::Stop> {
    match u64::try_from(integer(ms).map_err(|_| NOT_A_TIMEOUT)?) {
        Err(_) => Err(NEGATIVE.into()),
        Ok(0) => Ok(None),
        Ok(ms) => Ok(Instant::now().checked_add(Duration::from_millis(ms))),
    }
}

/// What the client's last write needs on a standby: at least the positions that the log has given
/// out by now.
fn written(local: &Local<'_>) -> Vec<u64> {
    let opened = local.shared.store.opened.get().filter(|_| local.client.last.is_some());
    let log = opened.as_ref().and_then(|opened| opened.database.log());
    log.map_or(Vec::new(), |log| (0..log.streams()).map(|stream| log.next_lsn(stream)).collect())
}

/// Has the client wait, but not in an EXEC or a script.
fn wait_for(
    local: &mut Local<'_>,
    what: AwaitedMember,
    until: Option<Instant>,
    reply: &mut Reply<'_>,
) -> Done {
    if local.is_in_exec {
        let (found, _) = what.found(local.shared);
        what.write(found, reply);
        return Ok(());
    }
    let looks_at = Instant::now();
    local.client.awaits = Some(AwaitingCommand { what, until, looks_at });
    Ok(())
}

/// WAIT of a member.
pub fn wait(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let standbys = usize::try_from(integer(args[1])?).unwrap_or(0);
    let until = end_of(args[2])?;
    check_primary(local.shared, "WAIT")?;
    let positions = written(local);
    wait_for(
        local,
        AwaitedMember::Synced { standbys, positions, counts_files: false },
        until,
        reply,
    )
}

/// WAITAOF of a member, whose arguments were checked but for the last two.
pub fn waitaof(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let standbys = usize::try_from(integer(args[2])?);
    let standbys = standbys.map_err(|_| "ERR value is out of range, must be positive")?;
    let until = end_of(args[3])?;
    check_primary(local.shared, "WAITAOF")?;
    let positions = written(local);
    wait_for(local, AwaitedMember::Synced { standbys, positions, counts_files: true }, until, reply)
}

fn check_primary(shared: &Shared, name: &str) -> Done {
    match shared.membership.only_reads() {
        false => Ok(()),
        true => Err(format!(
            "ERR {name} cannot be used with replica instances. Please also note that writes to \
             replicas are just local and are not propagated."
        )
        .into()),
    }
}

/// HYADES.AFTER: waits until what is read here has a transaction, by its id from HYADES.LAST.
pub fn after(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if !local.shared.membership.is_on() {
        return Err(unsupported_error(args).into());
    }
    let id = std::str::from_utf8(args[1]).map_err(|_| SYNTAX)?;
    let id: TransactionId = id.parse().map_err(|text| format!("ERR {text}"))?;
    let until = match &args[2..] {
        [] => None,
        [ms] => end_of(ms)?,
        _ => return Err(SYNTAX.into()),
    };
    wait_for(local, AwaitedMember::Served { epoch: id.epoch }, until, reply)
}
