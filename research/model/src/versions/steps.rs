//! The steps of a transaction.

use super::VersionsPhase::{
    Announce, Ask, AskHolder, AwaitCommit, Check, Decide, Draw, FindReaders, Holder, Install,
    Leave, Look, Mark, Over, Place, ReadClock, SayDrawing, SayDrawn, SayExactly, Take, TakeOutcome,
    Unmark,
};
use super::{
    Access, ActiveSlot, Decision, FoundVersion, Isolation, MarkedRow, ROWS, SlotCommits, SlotReads,
    Versions, VersionsMistake, VersionsPhase, VersionsState, VersionsTxn,
};

impl Versions {
    pub(super) fn has(&self, mistake: VersionsMistake) -> bool {
        self.rules.mistake == Some(mistake)
    }

    pub(super) fn first_phase(&self) -> VersionsPhase {
        if self.has(VersionsMistake::ReadBeforeAnnouncing) { ReadClock } else { Announce }
    }

    pub(super) fn step(&self, state: &mut VersionsState, number: usize) {
        let txn = state.txns[number];
        let slot = usize::from(txn.program.slot);
        let own = &mut state.txns[number];
        match txn.phase {
            Announce => {
                state.slots[slot].reads = SlotReads::Bound(state.clock);
                // Needed only where transactions may be ended: fewer states.
                own.bound = if self.rules.is_short { state.clock } else { 0 };
                own.phase = ReadClock;
            }
            ReadClock => {
                own.as_of = state.clock;
                own.phase = SayExactly;
            }
            SayExactly => {
                state.slots[slot].reads = SlotReads::AsOf(txn.as_of);
                own.phase = self.access(&txn, 0);
            }
            Look(at) => look(state, number, Ask(at), Take(at)),
            Ask(at) => self.ask(state, number, at),
            Take(at) => self.take(state, number, at),
            Mark(at) => self.mark(state, number, at),
            AwaitCommit(row) => state.await_commit(number, row),
            TakeOutcome(row) => self.take_outcome(state, number, row),
            SayDrawing => {
                state.slots[slot].commits = SlotCommits::Draws;
                own.phase = Draw;
            }
            Draw => {
                state.clock += 1;
                (own.tid, own.phase) = (state.clock, SayDrawn);
            }
            SayDrawn => {
                state.slots[slot].commits = SlotCommits::At(txn.tid);
                own.phase = Decide;
            }
            Decide => {
                if self.is_late(state, &txn) {
                    return self.log_data(state, number);
                }
                (state.txns[number].is_command, state.txns[number].phase) = (true, Place);
            }
            Place => {
                state.appended += 1;
                own.place = state.appended;
                own.phase = if txn.is_command { self.validation(&txn, 0) } else { FindReaders };
            }
            Holder(row) => look(state, number, AskHolder(row), self.behind_holder(&txn, row)),
            AskHolder(row) => self.ask_holder(state, number, row),
            Check(row) => self.check(state, number, row),
            FindReaders => self.find_readers(state, number),
            Install => state.install(number),
            Unmark => {
                for row in state.rows.iter_mut().filter(|row| row.marked == Some(slot as u8)) {
                    row.marked = None;
                }
                own.phase = Leave;
            }
            Leave => {
                let slot = &mut state.slots[slot];
                (slot.reads, slot.commits) = (SlotReads::Idle, SlotCommits::No);
                own.phase = Over;
            }
            Over => {}
        }
        self.conclude(&mut state.txns[number]);
    }

    /// Decides to log data.
    pub(super) fn log_data(&self, state: &mut VersionsState, number: usize) {
        let txn = &mut state.txns[number];
        txn.phase = self.validation(txn, 0);
        self.conclude(txn);
    }

    /// The phase of an access, or the phase after the last access.
    fn access(&self, txn: &VersionsTxn, at: u8) -> VersionsPhase {
        match txn.program.accesses.get(usize::from(at)) {
            Some(Access::Read(_)) => Look(at),
            Some(Access::Mark(_)) => Mark(at),
            None => self.settle(txn),
        }
    }

    /// Settles the next commit that the transaction depends on, or begins its own.
    fn settle(&self, txn: &VersionsTxn) -> VersionsPhase {
        let shown = |(_, it): &(usize, FoundVersion)| matches!(it, FoundVersion::Shown(_));
        match txn.read().find(shown) {
            Some((row, _)) if !self.has(VersionsMistake::ForgetDependencies) => {
                AwaitCommit(row as u8)
            }
            _ if txn.program.writes().is_none() => Leave,
            _ if self.has(VersionsMistake::DrawBeforeSaying) => Draw,
            _ => SayDrawing,
        }
    }

    /// Looks at the slot that has marked a row. Looks at the mark again if the slot's transaction
    /// commits, or may commit, at a timestamp that counts.
    fn ask(&self, state: &mut VersionsState, number: usize, at: u8) {
        let txn = &mut state.txns[number];
        let waits = match state.slots[usize::from(txn.owner)].commits {
            SlotCommits::No => false,
            SlotCommits::Draws => true,
            SlotCommits::At(tid) => tid <= txn.as_of,
        };
        let waits = waits && !self.has(VersionsMistake::OverlookPreparing);
        let owner = std::mem::take(&mut txn.owner);
        let row = usize::from(row_of(txn, at));
        if let SlotCommits::At(tid) = state.slots[usize::from(owner)].commits
            && waits
            && self.rules.speculates
            && state.rows[row].version < tid
        {
            txn.found[row] = FoundVersion::Shown(tid);
            txn.phase = self.access(txn, at + 1);
            return;
        }
        txn.phase = if waits { Look(at) } else { Take(at) };
    }

    fn take(&self, state: &mut VersionsState, number: usize, at: u8) {
        let txn = &mut state.txns[number];
        let row = usize::from(row_of(txn, at));
        let MarkedRow { version, ends, .. } = state.rows[row];
        let ended = state.slots[usize::from(txn.program.slot)].ended;
        txn.found[row] = if version <= txn.as_of {
            FoundVersion::InPlace(version)
        } else if self.has_ended(txn, ended) {
            (txn.decision, txn.phase) = (Decision::Failed, Unmark);
            return;
        } else {
            let kept = (0..=txn.as_of).rev().find(|older| ends[usize::from(*older)] > 0);
            kept.map_or(FoundVersion::Nothing, FoundVersion::Kept)
        };
        txn.phase = self.access(txn, at + 1);
    }

    /// The outcome of a commit that the transaction depends on: its version, in place or kept, or
    /// no such version.
    fn take_outcome(&self, state: &mut VersionsState, number: usize, row: u8) {
        let txn = &mut state.txns[number];
        let MarkedRow { version, ends, .. } = state.rows[usize::from(row)];
        let found = &mut txn.found[usize::from(row)];
        let tid = found.version().expect("it was read");
        *found = if version == tid {
            FoundVersion::InPlace(tid)
        } else if version > tid && ends[usize::from(tid)] > 0 {
            FoundVersion::Kept(tid)
        } else {
            (txn.decision, txn.phase) = (Decision::Failed, Unmark);
            return;
        };
        txn.phase = self.settle(txn);
    }

    /// Whether the transaction, or another one begun at the same time in its slot, was ended.
    fn has_ended(&self, txn: &VersionsTxn, ended: SlotReads) -> bool {
        match ended {
            SlotReads::Idle => false,
            SlotReads::AsOf(as_of) => as_of == txn.as_of,
            SlotReads::Bound(bound) if self.has(VersionsMistake::OverlookEndedBound) => {
                bound == txn.as_of
            }
            SlotReads::Bound(bound) => bound == txn.bound,
        }
    }

    fn mark(&self, state: &mut VersionsState, number: usize, at: u8) {
        let txn = &mut state.txns[number];
        let row = &mut state.rows[usize::from(row_of(txn, at))];
        let is_newer = row.version > txn.as_of && !self.has(VersionsMistake::OverwriteNewer);
        if row.marked.is_some() || is_newer {
            (txn.decision, txn.phase) = (Decision::Failed, Leave);
            return;
        }
        row.marked = Some(txn.program.slot);
        txn.phase = self.access(txn, at + 1);
    }

    /// Whether the transaction is late by now.
    pub(super) fn is_late(&self, state: &VersionsState, txn: &VersionsTxn) -> bool {
        let is_changed = |row: u8| {
            let row = usize::from(row);
            txn.found[row].version() != Some(state.rows[row].version)
        };
        let mut read = (0..ROWS as u8).filter(|row| validates(txn, *row));
        read.any(is_changed) && !self.has(VersionsMistake::OverwrittenIsNotLate)
    }

    /// Validates the next row, from `row` on, or goes on.
    pub(super) fn validation(&self, txn: &VersionsTxn, row: u8) -> VersionsPhase {
        match (row..ROWS as u8).find(|row| validates(txn, *row)) {
            Some(row) if self.has(VersionsMistake::VersionBeforeHolder) => Check(row),
            Some(row) => Holder(row),
            None if txn.is_command => FindReaders,
            None => Place,
        }
    }

    /// The phase after the holder of a row was found not to matter.
    fn behind_holder(&self, txn: &VersionsTxn, row: u8) -> VersionsPhase {
        match self.has(VersionsMistake::VersionBeforeHolder) {
            true => self.validation(txn, row + 1),
            false => Check(row),
        }
    }

    /// The version read of a row differs from the version at the transaction's timestamp.
    fn conflict(&self, txn: &mut VersionsTxn, row: u8) {
        match self.rules.isolation {
            Isolation::Serializable => (txn.decision, txn.phase) = (Decision::Failed, Unmark),
            Isolation::Snapshot => {
                txn.is_late = true;
                txn.phase = self.validation(txn, row + 1);
            }
        }
    }

    fn ask_holder(&self, state: &mut VersionsState, number: usize, row: u8) {
        let txn = &mut state.txns[number];
        let owner = std::mem::take(&mut txn.owner);
        match state.slots[usize::from(owner)].commits {
            SlotCommits::Draws => txn.phase = Holder(row),
            SlotCommits::At(tid) if !self.has(VersionsMistake::ValidateInPlaceOnly) => {
                if tid < txn.tid {
                    return self.conflict(txn, row);
                }
                txn.is_late |= !self.has(VersionsMistake::HeldIsNotLate);
                txn.phase = self.behind_holder(txn, row);
            }
            _ => txn.phase = self.behind_holder(txn, row),
        }
    }

    fn check(&self, state: &mut VersionsState, number: usize, row: u8) {
        let txn = &mut state.txns[number];
        let MarkedRow { version, ends, .. } = state.rows[usize::from(row)];
        let found = txn.found[usize::from(row)].version();
        if found != Some(version) {
            let end = found.map_or(0, |found| ends[usize::from(found)]);
            if end < txn.tid {
                return self.conflict(txn, row);
            }
            txn.is_late |= !self.has(VersionsMistake::OverwrittenIsNotLate);
        }
        txn.phase = match self.has(VersionsMistake::VersionBeforeHolder) {
            true => Holder(row),
            false => self.validation(txn, row + 1),
        };
    }

    /// Decides about a transaction without a step left at which the transaction may fail.
    fn conclude(&self, txn: &mut VersionsTxn) {
        let is_validated = match txn.phase {
            FindReaders => true,
            Place => !txn.is_command,
            Leave => txn.program.writes().is_none(),
            _ => false,
        };
        if !is_validated || txn.decision != Decision::Open {
            return;
        }
        txn.decision = Decision::Valid;
        if txn.is_command && txn.is_late {
            (txn.decision, txn.phase) = (Decision::Failed, Unmark);
        }
    }

    fn find_readers(&self, state: &mut VersionsState, number: usize) {
        let txn = &mut state.txns[number];
        let row = txn.program.writes().expect("it writes");
        let base = state.rows[usize::from(row)].version;
        let wants = |slot: &ActiveSlot| match slot.reads {
            reads if reads == slot.ended => false,
            SlotReads::Idle => false,
            SlotReads::Bound(bound) if self.has(VersionsMistake::BoundAsTimestamp) => base <= bound,
            SlotReads::Bound(_) => true,
            SlotReads::AsOf(as_of) => (base..txn.tid).contains(&as_of),
        };
        let slots = state.slots.iter().enumerate();
        let mut others = slots.filter(|(slot, _)| *slot != usize::from(txn.program.slot));
        let found = others.any(|(_, slot)| wants(slot));
        txn.keeps = found && !self.has(VersionsMistake::OverlookReaders);
        txn.phase = Install;
    }

    /// Drops the versions that ended at or before every timestamp of present and later reads.
    pub(super) fn drop_versions(&self, state: &mut VersionsState) {
        let lowest = state.slots.iter().fold(state.clock, |lowest, slot| match slot.reads {
            reads if reads == slot.ended => lowest,
            SlotReads::Bound(_) if self.has(VersionsMistake::OverlookBounds) => lowest,
            SlotReads::Bound(reads) | SlotReads::AsOf(reads) => lowest.min(reads),
            SlotReads::Idle => lowest,
        });
        let ends = state.rows.iter_mut().flat_map(|row| &mut row.ends);
        ends.filter(|end| **end <= lowest).for_each(|end| *end = 0);
    }
}

/// The row of an access.
fn row_of(txn: &VersionsTxn, at: u8) -> u8 {
    match txn.program.accesses[usize::from(at)] {
        Access::Read(row) | Access::Mark(row) => row,
    }
}

/// Whether a row is validated: no other transaction can have changed a row to be overwritten.
fn validates(txn: &VersionsTxn, row: u8) -> bool {
    txn.found[usize::from(row)] != FoundVersion::Unread && txn.program.writes() != Some(row)
}

/// Looks at the mark of a row, and goes on to the phase for the mark.
fn look(state: &mut VersionsState, number: usize, marked: VersionsPhase, unmarked: VersionsPhase) {
    let txn = &mut state.txns[number];
    let row = match txn.phase {
        Look(at) => row_of(txn, at),
        Holder(row) => row,
        _ => return,
    };
    match state.rows[usize::from(row)].marked {
        Some(owner) if owner != txn.program.slot => (txn.owner, txn.phase) = (owner, marked),
        _ => txn.phase = unmarked,
    }
}

impl VersionsState {
    /// Waits while the version that the transaction has read is under way.
    fn await_commit(&mut self, number: usize, row: u8) {
        let txn = &mut self.txns[number];
        let MarkedRow { version, marked, .. } = self.rows[usize::from(row)];
        let tid = txn.found[usize::from(row)].version().expect("it was read");
        let commits = marked.map(|slot| self.slots[usize::from(slot)].commits);
        if commits != Some(SlotCommits::At(tid)) || version >= tid {
            txn.phase = TakeOutcome(row);
        }
    }

    fn install(&mut self, number: usize) {
        let txn = &mut self.txns[number];
        let row = &mut self.rows[usize::from(txn.program.writes().expect("it writes"))];
        if txn.keeps {
            row.ends[usize::from(row.version)] = txn.tid;
        }
        row.version = txn.tid;
        txn.phase = Unmark;
    }

    /// Overwrites a row without keeping the old version, and ends all readers as of a lower
    /// timestamp.
    pub(super) fn end_readers(&mut self, number: usize) {
        let txn = &mut self.txns[number];
        txn.keeps = false;
        let tid = txn.tid;
        for slot in &mut self.slots {
            if matches!(slot.reads, SlotReads::Bound(reads) | SlotReads::AsOf(reads) if reads < tid)
            {
                slot.ended = slot.reads;
            }
        }
        self.was_short = true;
        self.install(number);
    }
}
