//! The steps of the model, in words.

use super::{Action, Idle, Numbered, Program, Protocol, Scheme, State, Step, Txn, members};
use crate::vector::names;

/// The rows of a set: "a and b".
fn rows(set: u8) -> String {
    let names: Vec<&str> = members(set).map(|row| ["a", "b"][row]).collect();
    names.join(" and ")
}

fn streams(set: u8) -> String {
    let all: Vec<String> = members(set).map(|lane| (lane + 1).to_string()).collect();
    let what = if all.len() == 1 { "stream" } else { "streams" };
    format!("{what} {}", all.join(" and "))
}

impl Numbered {
    /// Describes a transaction that has run in one step.
    fn whole(&self, txn: &Txn) -> String {
        let Program { reads, writes } = txn.program;
        let what = match (reads, writes) {
            (true, 0) => return "reads a".to_string(),
            (false, writes) => format!("writes {}", rows(writes)),
            (true, 0b01) => "reads and writes a".to_string(),
            (true, writes) => format!("reads a and writes {}", rows(writes)),
        };
        format!("{what}: number {}, in {}", txn.number, streams(self.written(txn)))
    }

    fn step(&self, before: Step, after: &Txn) -> String {
        let writes = rows(after.program.writes);
        match before {
            Step::Read => "reads a".to_string(),
            Step::Lock => format!("locks {writes}"),
            Step::Draw if !self.latched => format!("draws number {}", after.number),
            Step::Draw => {
                format!("draws number {}, in {}", after.number, streams(self.written(after)))
            }
            Step::Place => format!("gets a place in {}", streams(self.written(after))),
            Step::Raise => format!("raises a's number to at least {}", after.number),
            Step::Validate if after.next == Step::Aborted => {
                "is not valid: another transaction has a".to_string()
            }
            Step::Validate if after.next == Step::Ended && after.program.writes != 0 => {
                format!("is valid, and installs {writes}")
            }
            Step::Validate => "is valid".to_string(),
            Step::Install => format!("installs {writes}"),
            Step::Ended | Step::Aborted => "has ended".to_string(),
        }
    }
}

impl Protocol for Numbered {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        let mut text = match action {
            Action::Begin(..) => {
                let txn = &after.txns[after.txns.len() - 1];
                let what = match self.at_once {
                    true => self.whole(txn),
                    false => self.step(self.steps(txn.program)[0], txn),
                };
                format!("T{} {what}", after.txns.len())
            }
            Action::Go(number) => {
                let step = before.txns[*number as usize].next;
                format!("T{} {}", number + 1, self.step(step, &after.txns[*number as usize]))
            }
            Action::Flush(lane) => {
                let stream = &after.streams[*lane];
                match stream.durable as usize == stream.records.len() {
                    true => format!("stream {} is durable, its mark is {}", lane + 1, stream.mark),
                    false => format!("stream {} is durable up to a gap", lane + 1),
                }
            }
            Action::Skip(lane) => {
                let number = after.streams[*lane].counter;
                match self.idle {
                    Idle::Durably => format!("stream {}, idle, states mark {number}", lane + 1),
                    _ => format!("stream {}, idle, takes number {number}", lane + 1),
                }
            }
        };
        let was = |n: &u8| before.txns.get(*n as usize).is_some_and(|txn| txn.answered);
        let newly = |n: &u8| after.txns[*n as usize].answered && !was(n);
        let newly: Vec<u8> = Numbered::numbers(after).filter(newly).collect();
        if !newly.is_empty() {
            text += &format!("; acknowledged: {}", names("T", newly));
        }
        text
    }

    fn verdict(&self, state: &State) -> String {
        let now = "if power fails now,";
        if let Some(number) = self.lost(state) {
            return format!("{now} T{} was acknowledged and is lost", number + 1);
        }
        if let Some((number, source)) = self.deceived(state) {
            let (number, source) = (number + 1, source + 1);
            return format!("{now} T{source} is lost, and T{number} has read what it wrote");
        }
        if let Some((row, wins, last)) = self.wrong_writer(state) {
            let (row, wins, last) = (rows(1 << row), wins + 1, last + 1);
            return format!("{now} T{wins}'s {row} wins, though T{last}'s is later");
        }
        if let Some(number) = self.halved(state).filter(|_| self.scheme == Scheme::Plover) {
            return format!("{now} a part of T{} is recovered, and a part is lost", number + 1);
        }
        if let Some((over, reader)) = self.overtaken(state) {
            let (over, reader) = (over + 1, reader + 1);
            return format!(
                "{now} T{reader} is lost, and T{over} is not, which overwrote what it read"
            );
        }
        match self.unanswered(state) {
            Some(waiting) => format!("T{} waits as long as a stream is idle", waiting + 1),
            None => "nothing is wrong".into(),
        }
    }
}
