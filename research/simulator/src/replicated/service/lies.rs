//! A simulated log that lies, and the content of the log in words.

use super::{Lie, Net, Witnesses};
use hyades_replication::{Message, MessageBody};
use std::sync::Arc;

fn is_seal(message: &Arc<Vec<u8>>) -> bool {
    let decoded = Message::decode(message);
    decoded.is_ok_and(|(message, _)| matches!(message.body, MessageBody::Seal(_)))
}

impl Net {
    /// Makes the log lie. False if there is nothing to lie about.
    pub fn lie(&mut self, lie: Lie) -> bool {
        let did = match lie {
            Lie::Tail => {
                let one = (self.rng.bool()).then(|| self.rng.usize(..self.lanes.len()));
                let mut did = false;
                for at in 0..self.lanes.len() {
                    let lane = &mut self.lanes[at];
                    if one.is_none_or(|one| one == at) && lane.len() > 3 {
                        let most = (lane.len() - 2).min(6);
                        let lost = lane.split_off(lane.len() - self.rng.usize(1..=most));
                        self.has_lost_seal |= lost.iter().flatten().any(is_seal);
                        did = true;
                    }
                }
                did
            }
            Lie::Hole => {
                let at = self.rng.usize(..self.lanes.len());
                let found = Witnesses::hole(&self.lanes[at], &mut self.rng);
                if let Some(place) = found {
                    self.lanes[at][place] = None;
                }
                found.is_some()
            }
        };
        if did {
            self.has_lied = Some(lie);
        }
        did
    }

    /// The keys, and the last messages of each lane, one a line: for a failing history.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (key, (revision, value)) in &self.keys {
            let value: String = String::from_utf8_lossy(value).chars().take(700).collect();
            lines.push(format!("key {key}, revision {}: {value}", revision.0));
        }
        for (at, lane) in self.lanes.iter().enumerate() {
            for (place, bytes) in lane.iter().enumerate().skip(lane.len().saturating_sub(30)) {
                let message = bytes.as_ref().map(|bytes| Message::decode(bytes));
                let shown = match message {
                    None => "removed".to_string(),
                    Some(Err(malformed)) => malformed.to_string(),
                    Some(Ok((message, _))) => {
                        let Message { incarnation, index, start, stored, body, .. } = message;
                        match body {
                            MessageBody::Seal(node) => format!("seal of {incarnation} by {node}"),
                            MessageBody::Data(data) => format!(
                                "{index} of {incarnation}: [{start}, {}), stored {stored:?}",
                                start + data.len() as u64
                            ),
                        }
                    }
                };
                lines.push(format!("lane {at}, place {}: {shown}", place + 1));
            }
        }
        lines
    }
}
