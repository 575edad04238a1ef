//! What keys and lanes of a simulated log state as stored: an incarnation that begins below has
//! lost silently what a witness knew.

use fastrand::Rng;
use hyades_replication::{Message, MessageBody};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

type Lane = [Option<Arc<Vec<u8>>>];

/// The witnesses, and what is wrong by them.
#[derive(Debug, Default)]
pub(super) struct Witnesses {
    /// By incarnation, the positions that its first lease states as stored.
    leases: BTreeMap<u64, Vec<u64>>,
    /// By member, what it had received as a standby of the newest incarnation seen.
    pub received: BTreeMap<usize, (u32, Vec<u64>)>,
    /// By incarnation, where each stream begins.
    pub starts: BTreeMap<u64, Vec<u64>>,
    pub wrong: Vec<String>,
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

impl Witnesses {
    /// A key was set by a member.
    pub fn put(
        &mut self,
        (member, key): (usize, &str),
        value: &[u8],
        lanes: &[Vec<Option<Arc<Vec<u8>>>>],
        lies: bool,
    ) {
        let Ok(value) = serde_json::from_slice::<Value>(value) else { return };
        if key == "lease" {
            let incarnation = value["incarnation"].as_u64().unwrap_or(0);
            self.leases.entry(incarnation).or_insert_with(|| numbers(&value["stored"]));
            return;
        }
        let Some(number) = key.strip_prefix("begin.").and_then(|n| n.parse::<u64>().ok()) else {
            return;
        };
        let dims = value["incarnation"]["dims"].as_array().cloned().unwrap_or_default();
        let starts: Vec<u64> = dims.iter().filter_map(|dim| dim["start"].as_u64()).collect();
        let mut known = vec![("the lease", self.leases.get(&number).cloned().unwrap_or_default())];
        known.extend(lanes.iter().map(|lane| ("a message", stated(lane, number))));
        if let Some((_, received)) = self.received.get(&member) {
            known.push(("the member's files", received.clone()));
        }
        for (witness, stored) in known {
            if stored.iter().zip(&starts).any(|(stored, start)| stored > start) {
                self.wrong.push(format!(
                    "incarnation {number} begins at {starts:?} although {witness} knew {stored:?} \
                     as stored (the log has lied: {lies})"
                ));
            }
        }
        self.starts.insert(number, starts);
    }

    /// A place whose message is followed by another one of the same incarnation.
    pub fn hole(lane: &Lane, rng: &mut Rng) -> Option<usize> {
        let data = |at: usize| {
            let message = Message::decode(lane.get(at)?.as_ref()?).ok()?.0;
            matches!(message.body, MessageBody::Data(_)).then_some(message)
        };
        let followed = |at: &usize| {
            let (Some(one), Some(next)) = (data(*at), data(at + 1)) else { return false };
            next.incarnation == one.incarnation && next.index == one.index + 1
        };
        let places: Vec<usize> = (0..lane.len()).rev().filter(followed).take(5).collect();
        rng.choice(places)
    }
}

/// By lane, the highest position that the messages of a lane before the seal of an incarnation
/// state as stored.
fn stated(lane: &Lane, number: u64) -> Vec<u64> {
    let (mut stated, mut newest) = (Vec::<u64>::new(), 0);
    for bytes in lane.iter().flatten() {
        let Ok((message, _)) = Message::decode(bytes) else { continue };
        if let MessageBody::Seal(_) = message.body {
            if u64::from(message.incarnation) >= number {
                break;
            }
            newest = newest.max(message.incarnation);
            continue;
        }
        // A message behind the seal of a later incarnation counts for no reader.
        if message.incarnation < newest {
            continue;
        }
        stated.resize(stated.len().max(message.stored.len()), 0);
        stated.iter_mut().zip(&message.stored).for_each(|(known, now)| *known = (*known).max(*now));
    }
    stated
}
