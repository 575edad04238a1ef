//! The recovered state of a stream.

use super::Inspector;
use crate::clients::model::streams::{EntryId, GroupPending, RecoveredStream, StreamLog};
use crate::clients::reply::Answer;
use std::collections::BTreeMap;

/// The fields of a map in version 2 of the protocol.
fn fields(answer: &Answer) -> Option<BTreeMap<&str, &Answer>> {
    let Answer::Array(Some(all)) = answer else { return None };
    all.chunks(2).map(|pair| Some((text(&pair[0])?, &pair[1]))).collect()
}

fn elements(answer: &Answer) -> Option<&[Answer]> {
    match answer {
        Answer::Array(Some(all)) => Some(all),
        _ => None,
    }
}

fn text(answer: &Answer) -> Option<&str> {
    match answer {
        Answer::Text(Some(text)) => Some(text),
        _ => None,
    }
}

fn id(answer: &Answer) -> Option<EntryId> {
    text(answer).map(EntryId::parse)
}

fn number(answer: &Answer) -> Option<u64> {
    match answer {
        Answer::Integer(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// The pending entries of a group. The counts of the consumers have to be right.
fn pending(group: &BTreeMap<&str, &Answer>) -> Option<GroupPending> {
    let mut found = GroupPending::default();
    for entry in elements(group["pending"])? {
        let [own_id, consumer, _, times] = elements(entry)? else { return None };
        found.entries.insert(id(own_id)?, (text(consumer)?.to_string(), number(times)?));
    }
    let mut counted = 0;
    for consumer in elements(group["consumers"])? {
        let consumer = fields(consumer)?;
        let name = text(consumer["name"])?;
        let own = found.entries.values().filter(|(owner, _)| owner == name).count() as u64;
        let is_right = number(consumer["pel-count"])? == own
            && elements(consumer["pending"])?.len() as u64 == own;
        counted += own;
        found.consumers.insert(name.to_string());
        is_right.then_some(())?;
    }
    let all = found.entries.len() as u64;
    (counted == all && number(group["pel-count"])? == all).then_some(found)
}

impl Inspector<'_> {
    /// The stream of a key; `None` if the parts of the reply do not agree.
    pub(super) fn stream(&mut self, key: &str) -> Option<RecoveredStream> {
        let answer = self.ask(&format!("XINFO STREAM {key} FULL COUNT 0"));
        let all = fields(&answer)?;
        let mut found = RecoveredStream {
            log: StreamLog {
                last: id(all["last-generated-id"])?,
                added: number(all["entries-added"])?,
                deleted: id(all["max-deleted-entry-id"])?,
                entries: BTreeMap::new(),
            },
            groups: BTreeMap::new(),
        };
        for entry in elements(all["entries"])? {
            let [own_id, strings] = elements(entry)? else { return None };
            found.log.entries.insert(id(own_id)?, strings.texts());
        }
        for group in elements(all["groups"])? {
            let group = fields(group)?;
            let state = (id(group["last-delivered-id"])?, pending(&group)?);
            found.groups.insert(text(group["name"])?.to_string(), state);
        }
        (number(all["length"])? == found.log.entries.len() as u64).then_some(found)
    }
}
