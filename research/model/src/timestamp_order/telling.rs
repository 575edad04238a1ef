//! Describes the steps of the model.

use super::{
    B, Background, OrderAction, OrderDecision, OrderPhase, OrderState, OrderTxn, OrderedAccess,
    TimestampOrder,
};
use crate::check::Protocol;

const ROW_NAMES: [char; 2] = ['a', 'b'];

fn name(row: usize) -> char {
    ROW_NAMES[row]
}

fn tell_snapshot(before: &OrderState, after: &OrderState) -> String {
    match before.snapshot {
        Background::First => format!("a snapshot closes epoch {}", after.closed),
        Background::Second => format!("epoch {} begins", after.epoch),
        _ => {
            let [a, b] = after.snapshot_read.unwrap_or_default();
            format!("the snapshot reads a@{a} and b@{b}")
        }
    }
}

fn tell_sweep(before: &OrderState, after: &OrderState) -> &'static str {
    match before.sweeper {
        Background::First => "the removal of garbage marks b",
        Background::Second | Background::Third
            if after.rows[B].is_dead != before.rows[B].is_dead =>
        {
            "it says that b is dead"
        }
        Background::Second | Background::Third => "it hands the last reader of b to the gap",
        _ => "it takes b out of its index",
    }
}

impl TimestampOrder {
    fn tell_access(&self, before: &OrderState, after: &OrderState, number: usize) -> String {
        let (was, is) = (&before.txns[number], &after.txns[number]);
        let row = before.next_row(number);
        let (it, now) = (&before.rows[row], &after.rows[row]);
        let reads = matches!(was.accesses[usize::from(was.at)], OrderedAccess::Read(_));
        let is_to_fail = matches!(was.accesses[usize::from(was.at)], OrderedAccess::MarkAndFail(_));
        if is_to_fail && was.phase != OrderPhase::LookUp {
            return "fails, as it is to".into();
        }
        if is.decision == OrderDecision::Failed && !reads && now.marked == it.marked {
            return format!("fails: {} is marked, written or read later", name(row));
        }
        match was.phase {
            OrderPhase::LookUp if !reads && it.is_there => format!("marks {}", name(row)),
            OrderPhase::LookUp if !reads => format!("puts {} into its index, marked", name(row)),
            OrderPhase::LookUp if it.is_there => {
                format!("finds {}@{}", name(row), it.version)
            }
            OrderPhase::LookUp => format!("finds no {} in its index", name(row)),
            OrderPhase::MarkRead if is.gap.is_some() => {
                format!("marks the gap as read at {}", after.gap.last_read)
            }
            OrderPhase::MarkRead => format!("marks {} as read at {}", name(row), now.last_read),
            OrderPhase::Look => format!("finds no earlier mark of {}", name(row)),
            OrderPhase::CheckGap if is.decision == OrderDecision::Failed => {
                "fails: the gap has changed".into()
            }
            OrderPhase::CheckGap => "finds the gap as it was".into(),
            OrderPhase::Inherit => {
                format!("takes over the last reader of the gap, {}", before.gap.last_read)
            }
            _ => match is.found[row] {
                Some(version) => format!("reads {}@{version}", name(row)),
                None => "fails: the row is dead".into(),
            },
        }
    }
}

fn tell_commit(was: &OrderTxn, is: &OrderTxn) -> String {
    let failed = is.decision == OrderDecision::Failed;
    match was.phase {
        OrderPhase::Enter => format!("begins its commit, in epoch {}", is.entered),
        OrderPhase::AskClosed if failed => format!("fails: epoch {} is closed", is.epoch),
        OrderPhase::AskClosed => format!("goes on: its own epoch is {}", is.epoch),
        OrderPhase::ProtectUnwritten => "marks as read what it does not write".into(),
        OrderPhase::CheckReaders if failed => "fails: what it writes was read later".into(),
        OrderPhase::CheckReaders => "finds no later reader of what it writes".into(),
        OrderPhase::Decide if is.is_command => "logs a command".into(),
        OrderPhase::Decide => "is late, and logs data".into(),
        OrderPhase::Place => format!("takes place {} of the log", is.place),
        OrderPhase::Confirm if failed => "is late: its command is void".into(),
        OrderPhase::Confirm => "is not late".into(),
        OrderPhase::Install => format!("writes at {}", is.ts),
        _ => "ends".into(),
    }
}

impl Protocol for TimestampOrder {
    fn tell(&self, before: &OrderState, action: &OrderAction, after: &OrderState) -> String {
        let number = match *action {
            OrderAction::Snapshot => return tell_snapshot(before, after),
            OrderAction::Sweep => return tell_sweep(before, after).into(),
            OrderAction::LogData(number) => return format!("T{} logs data", number + 1),
            OrderAction::Next(number) => usize::from(number),
        };
        let (was, is) = (&before.txns[number], &after.txns[number]);
        let told = match was.phase {
            OrderPhase::Begin => format!("begins at {}, in epoch {}", is.ts, is.epoch),
            OrderPhase::LookUp
            | OrderPhase::MarkRead
            | OrderPhase::Look
            | OrderPhase::Take
            | OrderPhase::CheckGap
            | OrderPhase::Inherit => self.tell_access(before, after, number),
            _ => tell_commit(was, is),
        };
        format!("T{} {told}", number + 1)
    }

    fn verdict(&self, state: &OrderState) -> String {
        if let Some((number, row, missed)) = state.missed() {
            let found = state.txns[number].found[row].unwrap_or_default();
            return format!(
                "T{} at {} has read {}@{found}, and {}@{missed} is there",
                number + 1,
                state.txns[number].ts,
                name(row),
                name(row)
            );
        }
        if let Some((row, version)) = state.unseen() {
            return format!("the snapshot does not hold {}@{version}", name(row));
        }
        if let (_, Some((number, row, found))) = state.replay() {
            return format!("replay of T{} reads {}@{found}", number + 1, name(row));
        }
        "nothing is wrong".into()
    }
}
