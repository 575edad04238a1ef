//! The steps of writers and readers.

use super::ReaderStep::{Advance, Ask, Check, Clear, Close, Open, Read, Wait};
use super::WriterStep::{Enter, Install, Leave, Lock, Look, Mark, ReadEpoch};
use super::{ABOVE_ALL, IDLE_READER, IDLE_WRITER, PUBLISHED};
use super::{Found, Kept, Mistake, Place, Reader, ReaderStep, Snapshots, State};
use super::{Writer, WriterStep};

impl Snapshots {
    pub(super) fn writer_step(&self, writer: &Writer) -> Option<WriterStep> {
        (writer.left > 0).then(|| self.order.writer[writer.next as usize])
    }

    pub(super) fn reader_step(&self, reader: &Reader) -> Option<ReaderStep> {
        let goes_on = reader.left > 0 && reader.wrong.is_none();
        goes_on.then(|| self.order.reader[reader.next as usize])
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.order.mistake == Some(mistake)
    }

    /// The place of a step that readers have.
    pub(super) fn position(&self, step: ReaderStep) -> u8 {
        self.order.reader.iter().position(|it| *it == step).expect("readers have it") as u8
    }

    /// Whether a reader that has published a snapshot waits for the commits in the snapshot.
    pub(super) fn is_opening(&self, reader: &Reader) -> bool {
        reader.next >= PUBLISHED && reader.next < self.position(Read(0))
    }

    fn install(&self, state: &mut State, writer: &Writer, row: usize) {
        let base = state.epoch_of(&state.rows[row]);
        let is_held = match self.makes(Mistake::KeepsOnlyOlder) {
            true => base < state.newest,
            false => base <= state.newest,
        };
        let version = state.rows[row].version;
        if writer.keeps && is_held && writer.epoch > state.oldest {
            let at = state.rows[row].links();
            state.rows[row].kept[at] = Kept::Version { version, end: writer.epoch };
        }
        state.rows[row].version = writer.number;
    }

    pub(super) fn write(&self, state: &mut State, at: usize) {
        let mut writer = state.writers[at];
        let Some(step) = self.writer_step(&writer) else { return };
        match step {
            Enter => writer.slot = state.epoch,
            Lock => {
                state.locked = true;
                state.transactions += 1;
                writer.number = state.transactions;
            }
            ReadEpoch => writer.epoch = state.epoch,
            // Without an epoch, any snapshot counts.
            Look if writer.epoch == 0 => writer.keeps = state.oldest != ABOVE_ALL,
            Look => writer.keeps = writer.epoch > state.oldest,
            Mark => state.overwritten |= writer.keeps && writer.epoch > state.newest,
            Install(row) => self.install(state, &writer, row.into()),
            Leave => {
                state.locked = false;
                writer.slot = ABOVE_ALL;
            }
        }
        if writer.number != 0 {
            state.epochs[writer.number as usize] = writer.epoch;
        }
        writer.next += 1;
        if writer.next as usize == self.order.writer.len() {
            writer = Writer { left: writer.left - 1, ..IDLE_WRITER };
        }
        state.writers[at] = writer;
    }

    /// The newest open snapshot, if the snapshot serves a reader: it was opened after the reader's
    /// request, or it is the last one and nothing was overwritten since.
    fn shared(&self, state: &State, reader: &Reader) -> Option<Reader> {
        let newest = *state.open().max_by_key(|open| open.number)?;
        let is_last = newest.number == state.opened || self.makes(Mistake::SharesAny);
        let serves = newest.number > reader.arrived || (is_last && !state.overwritten);
        serves.then_some(newest)
    }

    /// Whether a reader can share a snapshot now, and `is_so` is true of the reader and of the
    /// snapshot's number.
    pub(super) fn may_share(&self, state: &State, is_so: fn(&Reader, u8) -> bool) -> bool {
        let asks = |reader: &Reader| {
            self.reader_step(reader) == Some(Open)
                && self.shared(state, reader).is_some_and(|open| is_so(reader, open.number))
        };
        let is_opening = state.readers.iter().any(|reader| self.is_opening(reader));
        !is_opening && state.readers.iter().any(asks)
    }

    /// Publishes a snapshot of the current epoch.
    fn begin(&self, state: &mut State, at: usize) {
        let reader = &mut state.readers[at];
        (reader.epoch, reader.next) = (state.epoch, PUBLISHED);
        state.publish();
    }

    pub(super) fn read(&self, state: &mut State, at: usize) {
        let Some(step) = self.reader_step(&state.readers[at]) else { return };
        state.readers[at].next += 1;
        let reader = state.readers[at];
        match step {
            Ask => {
                let visible = state.rows.iter().map(|row| state.epoch_of(row)).max();
                state.readers[at].visible = visible.unwrap_or(0);
                state.readers[at].arrived = state.opened;
            }
            Open => {
                if let Some(Reader { epoch, number, .. }) = self.shared(state, &reader) {
                    let next = self.position(Read(0));
                    state.readers[at] = Reader { epoch, number, next, ..reader };
                } else {
                    state.opened += 1;
                    state.readers[at].number = state.opened;
                    self.begin(state, at);
                }
                let reader = &mut state.readers[at];
                reader.arrived = 0;
                if reader.visible <= reader.epoch {
                    reader.visible = 0;
                }
            }
            Clear => state.overwritten = false,
            Check if state.epoch != reader.epoch => self.begin(state, at),
            Check | Wait(_) => {}
            Advance => state.epoch = state.epoch.max(reader.epoch + 1),
            Read(row) => self.look(state, at, row.into()),
            Close => {
                state.readers[at] = Reader { left: reader.left - 1, ..IDLE_READER };
                state.publish();
                if self.makes(Mistake::ForgetsOthers) {
                    (state.oldest, state.newest) = (ABOVE_ALL, 0);
                }
            }
        }
    }

    /// A reader looks at the next version of a row.
    fn look(&self, state: &mut State, at: usize, row: usize) {
        let (reader, row) = (state.readers[at], state.rows[row]);
        let is_in = |version: u8| state.epochs[version as usize] <= reader.epoch;
        let link = match reader.place {
            Place::Row => None,
            Place::BehindRow => Some(row.links()),
            Place::Behind(kept) => Some(kept as usize),
        };
        let found = match link {
            None if is_in(row.version) => Found::Version(row.version),
            None => return self.go_on(state, at, Place::BehindRow),
            Some(0) => Found::Nothing,
            Some(link) => match row.kept[link - 1] {
                Kept::Version { version, .. } if is_in(version) => Found::Version(version),
                Kept::Version { .. } => {
                    return self.go_on(state, at, Place::Behind(link as u8 - 1));
                }
                Kept::Reused => Found::Reused,
                Kept::None => Found::Nothing,
            },
        };
        let wanted = state.last_up_to(reader.epoch);
        state.readers[at].place = Place::Row;
        if found != Found::Version(wanted) {
            state.readers[at].wrong = Some((wanted, found));
        }
    }

    /// A reader has not found its version yet, and repeats the step at another place.
    fn go_on(&self, state: &mut State, at: usize, place: Place) {
        state.readers[at].place = place;
        state.readers[at].next -= 1;
    }

    /// Reuses the memory of versions that no snapshot holds, now or later.
    pub(super) fn reuse(&self, state: &mut State) {
        let open = || state.open().map(|reader| reader.epoch);
        let lowest = match self.makes(Mistake::ReusesBelowNewest) {
            true => open().max(),
            false => open().min(),
        };
        let lowest = lowest.unwrap_or(state.epoch);
        for kept in state.rows.iter_mut().flat_map(|row| &mut row.kept) {
            if matches!(kept, Kept::Version { end, .. } if *end <= lowest) {
                *kept = Kept::Reused;
            }
        }
    }
}
