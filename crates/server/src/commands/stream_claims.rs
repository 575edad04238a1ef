//! XCLAIM and XAUTOCLAIM: entries pending for a consumer are given to another consumer.

use super::stream_arguments::{find_group, reply_entry, start, strict_id};
use super::streams::tell;
use super::{Done, SYNTAX, is};
use crate::base::stream_id::StreamId;
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::stream_groups::{Group, Pending, PendingEdit, Seen, Shifts};
use crate::data::values::stream::StoredStream;
use crate::resp::number;
use crate::resp::reply::Reply;
use std::collections::BTreeMap;

/// The options of XCLAIM.
#[derive(Default)]
struct ClaimOptions {
    /// When the entries were delivered, if not now.
    time: Option<i64>,
    /// How often they were delivered.
    count: Option<u64>,
    /// Entries are claimed even if they are not pending.
    is_forced: bool,
    /// The reply has ids alone, and a claim is no delivery.
    only_ids: bool,
    /// The group was delivered up to this id.
    last: StreamId,
}

fn number(text: &[u8], what: &str, command: &str) -> Result<i64, Stop> {
    number::integer(text).ok_or_else(|| format!("ERR Invalid {what} argument for {command}").into())
}

fn claim_options(args: &[&[u8]], now: i64) -> Result<ClaimOptions, Stop> {
    let (mut options, mut at) = (ClaimOptions::default(), 0);
    while let Some(&option) = args.get(at) {
        let value = args.get(at + 1);
        let option_of =
            |value: &[u8], name: &str| number(value, &format!("{name} option"), "XCLAIM");
        at += match value {
            _ if is(option, "FORCE") => {
                options.is_forced = true;
                1
            }
            _ if is(option, "JUSTID") => {
                options.only_ids = true;
                1
            }
            Some(value) if is(option, "IDLE") => {
                options.time = Some(now.saturating_sub(option_of(value, "IDLE")?));
                2
            }
            Some(value) if is(option, "TIME") => {
                options.time = Some(option_of(value, "TIME")?);
                2
            }
            Some(value) if is(option, "RETRYCOUNT") => {
                options.count = u64::try_from(option_of(value, "RETRYCOUNT")?).ok();
                2
            }
            Some(value) if is(option, "LASTID") => {
                options.last = strict_id(value)?;
                2
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Unrecognized XCLAIM option '{option}'").into());
            }
        };
    }
    Ok(options)
}

/// A claim of entries.
struct Claim<'a> {
    consumer: &'a [u8],
    now: i64,
    /// The least time since the entries' delivery, in milliseconds.
    idle: i64,
    options: ClaimOptions,
}

impl Claim<'_> {
    /// Whether a pending entry may be claimed.
    fn takes(&self, pending: &Pending<'_>) -> bool {
        self.now.saturating_sub(pending.time) >= self.idle
    }

    /// Returns the claimed form of an entry.
    fn claimed(&self, old: Option<&Pending<'_>>) -> Pending<'static> {
        let (ClaimOptions { time, count, only_ids, .. }, old) =
            (&self.options, old.map_or(1, |old| old.count));
        let time = time.filter(|time| (0..=self.now).contains(time)).unwrap_or(self.now);
        let count = count.unwrap_or(old.saturating_add(u64::from(!only_ids)));
        Pending { consumer: self.consumer.to_vec().into(), time, count }
    }

    fn reply(&self, found: &Found<'_>, reply: &mut Reply<'_>) {
        match self.options.only_ids {
            true => reply.bulk(&found.0.text()),
            false => found.1.iter().for_each(|entry| reply.written(entry)),
        }
    }

    /// Notes the consumer.
    fn settle(
        &self,
        stream: &StoredStream<'_, '_>,
        group: &Group<'_>,
        shifts: &Shifts,
        is_active: bool,
    ) -> Done {
        let seen = Seen { name: self.consumer, now: self.now, is_active };
        if group.settle(shifts, Some(seen))? {
            tell(stream.entry(), "xgroup-createconsumer");
        }
        Ok(())
    }
}

/// An id, and the reply of its entry if there is one.
type Found<'a> = (StreamId, Option<&'a [u8]>);

/// The replies of the existing entries of `ids`, which ascend.
fn entries(
    stream: &StoredStream<'_, '_>,
    ids: &[StreamId],
    is_resp3: bool,
) -> Result<BTreeMap<StreamId, Vec<u8>>, Stop> {
    let mut all = BTreeMap::new();
    stream.each(ids, &mut |id, entry| {
        if let Some(entry) = entry {
            let mut bytes = Vec::new();
            reply_entry(&mut Reply::of_any_length(&mut bytes, is_resp3), entry);
            all.insert(id, bytes);
        }
    })?;
    Ok(all)
}

pub fn xclaim(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (stream, mut group) = find_group(space, args[1], args[2])?;
    let idle = number(args[4], "min-idle-time", "XCLAIM")?.max(0);
    let ids: Vec<StreamId> = args[5..].iter().map_while(|id| StreamId::parse(id, 0)).collect();
    let now = space.now_ms();
    let options = claim_options(&args[5 + ids.len()..], now)?;
    if options.last > group.last {
        group.last = options.last;
        stream.store_group(args[2], &group)?;
    }
    let claim = Claim { consumer: args[3], now, idle, options };
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let entries = entries(&stream, &sorted, reply.is_resp3())?;
    let mut claimed = vec![false; ids.len()];
    let shifts = group.edit_pending(&ids, &mut |at, old| {
        let is_taken = match (&old, entries.contains_key(&ids[at])) {
            (Some(_), false) => return Ok(PendingEdit::Remove),
            (None, false) => false,
            (Some(old), true) => claim.takes(old),
            (None, true) => claim.options.is_forced,
        };
        claimed[at] = is_taken;
        Ok(match is_taken {
            true => PendingEdit::Set(claim.claimed(old.as_ref())),
            false => PendingEdit::Keep,
        })
    })?;
    let is_active = claimed.contains(&true);
    claim.settle(&stream, &group, &shifts, is_active)?;
    reply.array(claimed.iter().filter(|is_claimed| **is_claimed).count());
    for (id, _) in ids.iter().zip(claimed).filter(|(_, is_claimed)| *is_claimed) {
        claim.reply(&(*id, entries.get(id).map(Vec::as_slice)), reply);
    }
    Ok(())
}

/// Pending entries examined by XAUTOCLAIM for each entry that may be claimed.
const TRIES: usize = 10;

/// The options of XAUTOCLAIM: the number of entries, and whether ids alone.
fn autoclaim_options(args: &[&[u8]]) -> Result<(usize, bool), Stop> {
    let (mut most, mut only_ids, mut at) = (100, false, 6);
    while let Some(&option) = args.get(at) {
        if is(option, "COUNT") && at + 1 < args.len() {
            let longest = i64::MAX / 16;
            most = number::integer(args[at + 1])
                .filter(|most| (1..=longest).contains(most))
                .ok_or("ERR COUNT must be > 0")? as usize;
            at += 2;
        } else if is(option, "JUSTID") {
            only_ids = true;
            at += 1;
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok((most, only_ids))
}

pub fn xautoclaim(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let idle = number(args[4], "min-idle-time", "XAUTOCLAIM")?.max(0);
    let from = start(args[5])?;
    let (most, only_ids) = autoclaim_options(args)?;
    let (stream, group) = find_group(space, args[1], args[2])?;
    let options = ClaimOptions { only_ids, ..ClaimOptions::default() };
    let claim = Claim { consumer: args[3], now: space.now_ms(), idle, options };
    // The examined entries, whether each may be claimed, and the next entry.
    let (mut seen, mut taken, mut next) = (Vec::new(), 0, StreamId::ZERO);
    let tries = most.saturating_mul(TRIES);
    group.pending_from(from, &mut |id, pending| {
        let is_full = seen.len() >= tries || taken == most;
        if is_full {
            next = id;
        } else {
            taken += usize::from(claim.takes(&pending));
            seen.push((id, claim.takes(&pending)));
        }
        !is_full
    })?;
    let mut ids: Vec<StreamId> = seen.iter().map(|(id, _)| *id).collect();
    let entries = entries(&stream, &ids, reply.is_resp3())?;
    // Each claimed or deleted entry counts.
    let is_counted = |at: &usize| seen[*at].1 || !entries.contains_key(&ids[*at]);
    if let Some(last) = (0..ids.len()).filter(is_counted).nth(most - 1)
        && last + 1 < ids.len()
    {
        next = ids[last + 1];
        ids.truncate(last + 1);
    }
    let (mut claimed, mut deleted) = (Vec::new(), Vec::new());
    let shifts = group.edit_pending(&ids, &mut |at, old| {
        if !entries.contains_key(&ids[at]) {
            deleted.push(ids[at]);
            return Ok(PendingEdit::Remove);
        }
        if !seen[at].1 {
            return Ok(PendingEdit::Keep);
        }
        claimed.push(ids[at]);
        Ok(PendingEdit::Set(claim.claimed(old.as_ref())))
    })?;
    claim.settle(&stream, &group, &shifts, !claimed.is_empty())?;
    reply.array(3);
    reply.bulk(&next.text());
    reply.array(claimed.len());
    for id in &claimed {
        claim.reply(&(*id, entries.get(id).map(Vec::as_slice)), reply);
    }
    reply.array(deleted.len());
    deleted.iter().for_each(|id| reply.bulk(&id.text()));
    Ok(())
}
