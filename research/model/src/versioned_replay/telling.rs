//! Describes the steps of the model.

use super::{LoggedPhase, LoggedTxn, VersionedReplay, VersionedReplayAction, VersionedReplayState};
use crate::check::Protocol;
use crate::vector::show;

fn name(row: u8) -> char {
    char::from(b'a' + row)
}

fn tell_next(was: &LoggedTxn, is: &LoggedTxn) -> String {
    let row = name(is.program.writes);
    match was.phase {
        LoggedPhase::Begin => format!("begins, and reads as of {}", is.as_of),
        LoggedPhase::Read => match is.program.reads {
            Some(read) => format!("reads {}@{}", name(read), is.found),
            None => "reads nothing".into(),
        },
        LoggedPhase::Mark if is.phase == LoggedPhase::Failed => format!("fails to mark {row}"),
        LoggedPhase::Mark => format!("marks {row}"),
        LoggedPhase::Draw => {
            let kind = if is.is_command { "a command" } else { "data" };
            format!("draws {}, to log {kind}", is.tid)
        }
        LoggedPhase::Validate if is.phase == LoggedPhase::Failed => "fails".into(),
        LoggedPhase::Validate => "is valid".into(),
        LoggedPhase::StateFloor => format!("will state the floor {}", is.floor),
        LoggedPhase::Write => format!("writes {row}@{}", is.tid),
        LoggedPhase::Place | LoggedPhase::Committed | LoggedPhase::Failed => "does nothing".into(),
    }
}

fn tell_replay(is: &LoggedTxn) -> String {
    let (row, tid) = (name(is.program.writes), is.tid);
    match (is.program.reads, is.finds_instead) {
        (Some(read), Some(Some(found))) => {
            format!("is replayed on {}@{found}: it writes {row}@{tid}", name(read))
        }
        (Some(read), Some(None)) => {
            format!("is replayed, and finds no version of {} as of its timestamp", name(read))
        }
        _ => format!("is replayed: it writes {row}@{tid}"),
    }
}

impl Protocol for VersionedReplay {
    fn tell(
        &self,
        before: &VersionedReplayState,
        action: &VersionedReplayAction,
        after: &VersionedReplayState,
    ) -> String {
        let (number, told) = match *action {
            VersionedReplayAction::NextEpoch => return "the second epoch begins".into(),
            VersionedReplayAction::Crash => return "the process ends, and replay begins".into(),
            VersionedReplayAction::CrashAfterCheckpoint => {
                return "the process ends, and replay begins with a checkpoint of the first epoch"
                    .into();
            }
            VersionedReplayAction::Next(number) => {
                let at = usize::from(number);
                (number, tell_next(&before.txns[at], &after.txns[at]))
            }
            VersionedReplayAction::Place(number, stream) => {
                let follows = show(after.txns[usize::from(number)].follows, super::STREAMS);
                (number, format!("takes a place in stream {}, behind {follows}", stream + 1))
            }
            VersionedReplayAction::Replay(number) => {
                (number, tell_replay(&after.txns[usize::from(number)]))
            }
        };
        format!("T{} {told}", number + 1)
    }

    fn verdict(&self, state: &VersionedReplayState) -> String {
        let numbered = || state.txns.iter().enumerate();
        if let Some((number, txn)) = numbered().find(|(_, txn)| txn.finds_instead.is_some()) {
            let row = name(txn.program.reads.unwrap_or(0));
            return format!("T{} had read {row}@{}", number + 1, txn.found);
        }
        match numbered().find(|(_, txn)| txn.is_out_of_order) {
            Some((number, _)) => format!("T{} is replayed after a later version", number + 1),
            None => "nothing is wrong".into(),
        }
    }
}
