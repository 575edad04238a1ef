//! Describes the steps of the model.

use super::{K, Phase, TicToc, TicTocAction, TicTocState};
use crate::check::Protocol;
use crate::vector::show;

const ROW_NAMES: [char; 4] = ['a', 'b', 'c', 'k'];

fn name(row: Option<u8>) -> char {
    row.map_or('-', |row| ROW_NAMES[row as usize])
}

impl Protocol for TicToc {
    fn tell(&self, before: &TicTocState, action: &TicTocAction, after: &TicTocState) -> String {
        let TicTocAction::Next(number) = *action else {
            return format!("epoch {} begins", after.epoch);
        };
        let (was, is) = (&before.txns[number as usize], &after.txns[number as usize]);
        let txn = format!("T{}", number + 1);
        let written = name(was.program.writes);
        if is.phase == Phase::Aborted {
            return format!("{txn} aborts");
        }
        match was.phase {
            Phase::Read(at) => {
                let row = was.program.reads[at as usize];
                let seen = is.seen[at as usize];
                if row == Some(K) && seen.version == 0 {
                    return format!("{txn} looks up k and finds nothing");
                }
                let wts = before.rows[row.unwrap_or(0) as usize].wts;
                format!("{txn} reads {}, valid from {wts} to {}", name(row), seen.until)
            }
            Phase::Place => format!("{txn} links a row for k, not yet inserted"),
            Phase::Lock => {
                format!("{txn} locks {written}; its timestamp is {}, its epoch {}", is.ts, is.epoch)
            }
            Phase::Reserve => format!(
                "{txn} gets stream {} [{},{}); it logs {}, {}",
                was.program.stream + 1,
                is.end - 1,
                is.end,
                show(is.logged, 2),
                if is.is_data { "as data" } else { "as a command, and marks what it has read" }
            ),
            Phase::Validate if is.phase == Phase::Committed => {
                format!("{txn} is valid at {} and ends; it has only read", is.ts)
            }
            Phase::Validate => format!("{txn} is valid at {}", is.ts),
            Phase::Install => format!("{txn} installs {written}, stamps and releases it"),
            Phase::Committed | Phase::Aborted => format!("{txn} has ended"),
        }
    }

    fn verdict(&self, state: &TicTocState) -> String {
        if let Some(at) = TicToc::circle(state) {
            return format!("T{} precedes itself", at + 1);
        }
        if let Some((before, after)) = TicToc::missed(state) {
            return format!(
                "T{} follows T{}, but logs {}: replay may run it first",
                after + 1,
                before + 1,
                show(state.txns[after].logged, 2)
            );
        }
        match TicToc::no_prefix(state) {
            Some((before, after)) => format!(
                "T{} precedes T{}; a snapshot of epoch {} holds the latter alone",
                before + 1,
                after + 1,
                state.txns[after].epoch
            ),
            None => "nothing is wrong".into(),
        }
    }
}
