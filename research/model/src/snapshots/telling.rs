//! The steps of snapshots, in words.

use super::ReaderStep::{Advance, Ask, Check, Clear, Close, Open, Read, Wait};
use super::WriterStep::{Enter, Install, Leave, Lock, Look, Mark, ReadEpoch};
use super::{Action, Found, Kept, Place, Reader, Snapshots, State};
use crate::check::Protocol;

const ROW_NAMES: [char; 2] = ['a', 'b'];

impl Snapshots {
    fn tell_write(&self, before: &State, at: usize, after: &State) -> String {
        let (was, is) = (&before.writers[at], &after.writers[at]);
        let number = was.number.max(is.number);
        let writer = match number {
            0 => format!("writer {}", at + 1),
            number => format!("T{number}"),
        };
        let step = self.writer_step(was).expect("it has made a step");
        match step {
            Enter => format!("{writer} enters its slot in epoch {}", before.epoch),
            Lock => format!("writer {} locks a and b for T{}", at + 1, is.number),
            ReadEpoch => format!("{writer} reads epoch {}", before.epoch),
            Look if is.keeps => format!("{writer} finds a snapshot below its epoch"),
            Look => format!("{writer} finds no snapshot below its epoch"),
            Mark if !before.overwritten && after.overwritten => {
                format!("{writer} sets the flag")
            }
            Mark => format!("{writer} has no flag to set"),
            Install(row) => {
                let (at, name) = (row as usize, ROW_NAMES[row as usize]);
                let version = before.rows[at].version;
                let kept = before.rows[at].kept != after.rows[at].kept;
                match kept {
                    true => format!("{writer} keeps {name} of T{version}, and overwrites it"),
                    false => format!("{writer} overwrites {name}"),
                }
            }
            Leave => format!("{writer} unlocks a and b, and leaves its slot"),
        }
    }

    fn tell_read(&self, before: &State, at: usize, after: &State) -> String {
        let (was, is) = (&before.readers[at], &after.readers[at]);
        let reader = format!("R{}", at + 1);
        match self.reader_step(was).expect("it has made a step") {
            Ask => format!("{reader} asks for a snapshot"),
            Open if before.opened == after.opened => {
                format!("{reader} shares the snapshot of epoch {}", is.epoch)
            }
            Open => format!("{reader} publishes a snapshot of epoch {}", is.epoch),
            Clear => format!("{reader} clears the flag"),
            Check if is.next < was.next => {
                format!("{reader} publishes it again, of epoch {}", is.epoch)
            }
            Check => format!("{reader} finds the epoch unchanged"),
            Advance => format!("{reader} ends the epoch; it is {}", after.epoch),
            Wait(writer) => {
                format!("{reader} finds no commit of the snapshot in slot {}", writer + 1)
            }
            Read(row) => tell_look(before, was, is, row.into(), &reader),
            Close => format!("{reader} closes its snapshot"),
        }
    }
}

/// Describes how a reader looks at a version of a row.
fn tell_look(before: &State, was: &Reader, is: &Reader, row: usize, reader: &str) -> String {
    let (name, row) = (ROW_NAMES[row], before.rows[row]);
    let link = match was.place {
        Place::Row if is.place == Place::Row => {
            return format!("{reader} reads {name} of T{} in place", row.version);
        }
        Place::Row => return format!("{reader} finds {name} of T{} too new", row.version),
        Place::BehindRow => row.links(),
        Place::Behind(kept) => kept as usize,
    };
    match link.checked_sub(1).map(|kept| row.kept[kept]) {
        Some(Kept::Version { version, .. }) if is.place == Place::Row => {
            format!("{reader} reads {name} of T{version} behind a link")
        }
        Some(Kept::Version { version, .. }) => {
            format!("{reader} finds {name} of T{version} behind a link, too new")
        }
        Some(Kept::Reused) => format!("{reader} follows a link into reused memory"),
        _ => format!("{reader} finds no further link"),
    }
}

/// The kept versions whose memory is reused in a step.
fn tell_reused(before: &State, after: &State) -> String {
    let mut text = String::new();
    for (row, name) in ROW_NAMES.iter().enumerate() {
        let pairs = before.rows[row].kept.iter().zip(&after.rows[row].kept);
        for (was, is) in pairs {
            if let (Kept::Version { version, .. }, Kept::Reused) = (was, is) {
                text += &format!("; the memory of {name} of T{version} is reused");
            }
        }
    }
    text
}

impl Protocol for Snapshots {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        let step = match *action {
            Action::Write(at) => self.tell_write(before, at.into(), after),
            Action::Read(at) => self.tell_read(before, at.into(), after),
            Action::End => format!("the epoch ends; it is {}", after.epoch),
        };
        step + &tell_reused(before, after)
    }

    fn verdict(&self, state: &State) -> String {
        let numbered = || (1..).zip(&state.readers);
        for (at, reader) in numbered() {
            let Reader { epoch, visible, .. } = *reader;
            let snapshot = format!("R{at}, with the snapshot of epoch {epoch},");
            if epoch != 0 && visible > epoch {
                let missed = state.last_up_to(visible);
                return format!("{snapshot} does not see T{missed}, which was visible before");
            }
            match reader.wrong {
                Some((wanted, Found::Version(found))) => {
                    return format!("{snapshot} reads what T{found} left, not T{wanted}");
                }
                Some((wanted, Found::Nothing)) => {
                    return format!("{snapshot} finds no version, not that of T{wanted}");
                }
                Some((wanted, Found::Reused)) => {
                    return format!("{snapshot} looks for the version of T{wanted}");
                }
                None => {}
            }
        }
        "nothing is wrong".into()
    }
}
