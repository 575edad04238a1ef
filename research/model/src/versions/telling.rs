//! Describes the steps of the model.

use super::{
    Decision, FoundVersion, SlotCommits, Versions, VersionsAction, VersionsPhase, VersionsState,
    VersionsTxn,
};
use crate::check::Protocol;

const ROW_NAMES: [char; 2] = ['a', 'b'];

fn name(row: usize) -> char {
    ROW_NAMES[row]
}

fn tell_holder(state: &VersionsState, row: usize) -> String {
    let holder = |slot| format!("marked by {}", running_in(state, slot));
    state.rows[row].marked.map_or("unmarked".into(), holder)
}

/// The transaction that runs in a slot, or the last that ran there.
fn running_in(state: &VersionsState, slot: u8) -> String {
    let of_slot = |txn: &&VersionsTxn| txn.program.slot == slot;
    let in_slot = state.txns.iter().enumerate().filter(|(_, txn)| of_slot(txn));
    let has_begun = |txn: &VersionsTxn| txn.phase != VersionsPhase::Announce;
    let last = in_slot.filter(|(_, txn)| has_begun(txn)).map(|(number, _)| number + 1).next_back();
    last.map_or("no transaction".into(), |number| format!("T{number}"))
}

fn tell_slot(before: &VersionsState, was: &VersionsTxn, is: &VersionsTxn) -> String {
    let owner = running_in(before, was.owner);
    let again = match is.phase {
        VersionsPhase::Look(_) | VersionsPhase::Holder(_) => ", and looks again",
        _ => "",
    };
    match before.slots[usize::from(was.owner)].commits {
        SlotCommits::No => format!("finds that {owner} does not prepare"),
        SlotCommits::Draws => format!("finds that {owner} draws{again}"),
        SlotCommits::At(tid) => format!("finds that {owner} prepares at {tid}{again}"),
    }
}

fn tell_found(row: usize, found: FoundVersion) -> String {
    match found {
        FoundVersion::InPlace(version) => format!("reads {}@{version}", name(row)),
        FoundVersion::Kept(version) => format!("reads {}@{version}, which was kept", name(row)),
        FoundVersion::Shown(version) => format!("reads {}@{version}, before its commit", name(row)),
        _ => format!("finds no version of {}", name(row)),
    }
}

fn tell_mark(before: &VersionsState, is: &VersionsTxn, row: usize) -> String {
    let version = before.rows[row].version;
    match is.decision {
        Decision::Failed if before.rows[row].marked.is_some() => {
            format!("fails: {} is {}", name(row), tell_holder(before, row))
        }
        Decision::Failed => format!("fails: {}@{version} is newer than {}", name(row), is.as_of),
        _ => format!("marks {}", name(row)),
    }
}

fn tell_check(before: &VersionsState, was: &VersionsTxn, row: usize) -> String {
    let version = before.rows[row].version;
    if was.found[row].version() == Some(version) {
        return format!("finds {}@{version} as read", name(row));
    }
    format!("finds {}@{version} instead", name(row))
}

fn tell_install(before: &VersionsState, was: &VersionsTxn) -> String {
    let row = usize::from(was.program.writes().expect("it writes"));
    let kept = match was.keeps {
        true => format!("keeps {}@{}, and ", name(row), before.rows[row].version),
        false => String::new(),
    };
    format!("{kept}writes {}@{}", name(row), was.tid)
}

fn row_at(txn: &VersionsTxn, at: u8) -> usize {
    match txn.program.accesses[usize::from(at)] {
        super::Access::Read(row) | super::Access::Mark(row) => row.into(),
    }
}

fn tell_next(before: &VersionsState, was: &VersionsTxn, is: &VersionsTxn) -> String {
    use VersionsPhase as P;
    match was.phase {
        P::Announce => format!("announces a bound, {}", before.clock),
        P::ReadClock => format!("reads the clock: {}", is.as_of),
        P::SayExactly => format!("says that it reads as of {}", is.as_of),
        P::Look(at) => {
            let row = row_at(was, at);
            format!("finds {} {}", name(row), tell_holder(before, row))
        }
        P::Holder(row) => {
            let row = row.into();
            format!("validates {}: it is {}", name(row), tell_holder(before, row))
        }
        P::Ask(at) if matches!(is.found[row_at(was, at)], FoundVersion::Shown(_)) => {
            format!(
                "{}, and {}",
                tell_slot(before, was, is),
                tell_found(row_at(was, at), is.found[row_at(was, at)])
            )
        }
        P::Ask(_) | P::AskHolder(_) => tell_slot(before, was, is),
        P::Take(_) if is.decision == Decision::Failed => "finds that it was ended".into(),
        P::Take(at) => tell_found(row_at(was, at), is.found[row_at(was, at)]),
        P::Mark(at) => tell_mark(before, is, row_at(was, at)),
        P::AwaitCommit(row) => {
            let row = row.into();
            format!("awaits {}: it is {}", name(row), tell_holder(before, row))
        }
        P::TakeOutcome(_) if is.decision == Decision::Failed => {
            "fails: the commit it depends on has failed".into()
        }
        P::TakeOutcome(row) => tell_found(row.into(), is.found[usize::from(row)]),
        P::SayDrawing => "says that it draws a timestamp".into(),
        P::Draw => format!("draws {}", is.tid),
        P::SayDrawn => format!("says that it prepares at {}", is.tid),
        P::Decide if is.is_command => "logs a command".into(),
        P::Decide => "is late, and logs data".into(),
        P::Place => format!("takes place {} of the log", is.place),
        P::Check(row) => tell_check(before, was, row.into()),
        P::FindReaders if is.keeps => "finds a reader".into(),
        P::FindReaders => "finds no reader".into(),
        P::Install => tell_install(before, was),
        P::Unmark => "unmarks what it has marked".into(),
        P::Leave => "ends".into(),
        P::Over => "has ended".into(),
    }
}

impl Protocol for Versions {
    fn tell(
        &self,
        before: &VersionsState,
        action: &VersionsAction,
        after: &VersionsState,
    ) -> String {
        let (number, told) = match *action {
            VersionsAction::LogData(number) => (number, "logs data".into()),
            VersionsAction::EndReaders(number) => {
                let txn = &after.txns[usize::from(number)];
                let told = tell_install(before, txn);
                (number, format!("has no room to keep a version, ends its readers, and {told}"))
            }
            VersionsAction::Next(number) => {
                let at = usize::from(number);
                (number, tell_next(before, &before.txns[at], &after.txns[at]))
            }
        };
        let at = usize::from(number);
        let (was, is) = (&before.txns[at], &after.txns[at]);
        let validated = was.tid > 0 && was.decision == Decision::Open;
        let ending = match is.decision {
            Decision::Valid if validated && is.is_late => "; it is late, and valid",
            Decision::Valid if validated => "; it is valid",
            Decision::Failed if validated && is.is_command => "; it fails, and its place is void",
            Decision::Failed if validated => "; it fails",
            _ => "",
        };
        format!("T{} {told}{ending}", number + 1)
    }

    fn verdict(&self, state: &VersionsState) -> String {
        if let Some((number, row)) = state.lost() {
            let as_of = state.txns[number].as_of;
            return format!("T{} finds no version of {} as of {as_of}", number + 1, name(row));
        }
        let tell = |number: usize, row: usize, limit: String, version: u8| {
            let found = state.txns[number].found[row].version().unwrap_or(0);
            let name = name(row);
            format!("T{} {limit} has read {name}@{found}, not {name}@{version}", number + 1)
        };
        if let Some((number, row)) = state.dirty() {
            let name = name(row);
            return format!("T{} has read {name}, whose writer has not committed", number + 1);
        }
        if let Some((number, row, version)) = state.missed_as_of() {
            let limit = format!("reads as of {}, and", state.txns[number].as_of);
            return tell(number, row, limit, version);
        }
        if let Some((number, row, version)) = state.missed_at_commit() {
            let limit = format!("commits at {}, and", state.txns[number].tid);
            return tell(number, row, limit, version);
        }
        if let Some((number, row, version)) = state.replay().1 {
            return tell(
                number,
                row,
                format!("runs on {}@{version} at replay, and", name(row)),
                version,
            );
        }
        match state.overlapped() {
            Some((number, version)) => format!(
                "T{} reads as of {}, and overwrites version {version}",
                number + 1,
                state.txns[number].as_of
            ),
            None if state.ends_otherwise() => "replay leaves other rows".into(),
            None => "nothing is wrong".into(),
        }
    }
}
