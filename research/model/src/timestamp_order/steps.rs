//! The steps of the model.

use super::{
    B, Background, OrderDecision, OrderMistake, OrderPhase, OrderState, OrderedAccess, ROWS,
    SWEEPER, TimestampOrder,
};

impl OrderState {
    /// The row of a transaction's next access.
    pub(super) fn next_row(&self, number: usize) -> usize {
        let txn = &self.txns[number];
        match txn.accesses[usize::from(txn.at)] {
            OrderedAccess::Read(row)
            | OrderedAccess::Mark(row)
            | OrderedAccess::Visit(row)
            | OrderedAccess::MarkAndFail(row) => row.into(),
        }
    }

    fn reads_next(&self, number: usize) -> bool {
        let txn = &self.txns[number];
        matches!(txn.accesses[usize::from(txn.at)], OrderedAccess::Read(_))
    }

    /// Whether an earlier transaction than `ts` has marked the row, and has not written the row.
    fn is_before(&self, row: usize, ts: u8) -> bool {
        let row = &self.rows[row];
        if row.marked == 0 || row.marked == SWEEPER {
            return false;
        }
        let owner = &self.txns[usize::from(row.marked) - 1];
        owner.ts < ts && row.version < owner.ts
    }

    fn is_others(&self, row: usize, number: usize) -> bool {
        let marked = self.rows[row].marked;
        marked != 0 && usize::from(marked) != number + 1
    }

    /// Whether a transaction has to wait for another transaction's step.
    pub(super) fn waits(&self, number: usize) -> bool {
        let txn = &self.txns[number];
        match txn.phase {
            OrderPhase::Over => true,
            OrderPhase::LookUp | OrderPhase::Take => {
                let row = self.next_row(number);
                let is_marked_before = self.is_others(row, number)
                    && (self.rows[row].marked == SWEEPER
                        || self.txns[usize::from(self.rows[row].marked) - 1].ts < txn.ts);
                self.rows[row].is_locked || !self.reads_next(number) && is_marked_before
            }
            OrderPhase::Look => self.is_before(self.next_row(number), txn.ts),
            _ => false,
        }
    }

    pub(super) fn snapshot_may_go_on(&self) -> bool {
        let commits = |entered: u8| entered != 0 && entered <= self.closed;
        match self.snapshot {
            Background::Done => false,
            Background::Third => !self.txns.iter().any(|txn| commits(txn.entered)),
            _ => true,
        }
    }

    pub(super) fn go_on_with_snapshot(&mut self) {
        self.snapshot = match self.snapshot {
            Background::First => {
                self.closed = self.epoch;
                Background::Second
            }
            Background::Second => {
                self.epoch += 1;
                Background::Third
            }
            _ => {
                let held = |versions: u8| {
                    let is_held = |ts: &u8| versions >> ts & 1 == 1 && *ts <= self.clock;
                    let of_epoch = |ts: &u8| self.epochs[usize::from(*ts)] <= self.closed;
                    (0..5).filter(is_held).filter(of_epoch).max().unwrap_or(0)
                };
                self.snapshot_read = Some(self.rows.map(|row| held(row.versions)));
                Background::Done
            }
        };
    }

    pub(super) fn sweeper_may_go_on(&self) -> bool {
        let row = &self.rows[B];
        match self.sweeper {
            Background::Done => false,
            // No transaction is below the version to be forgotten.
            Background::First => {
                let is_below = |ts: u8| ts != 0 && ts < row.version;
                let runs = self.txns.iter().filter(|txn| txn.phase != OrderPhase::Over);
                row.is_there
                    && !row.is_locked
                    && row.marked == 0
                    && !runs.clone().any(|txn| is_below(txn.ts))
            }
            _ => true,
        }
    }

    fn fail(&mut self, number: usize) {
        self.txns[number].decision = OrderDecision::Failed;
        self.txns[number].phase = OrderPhase::Unmark;
    }

    /// Goes on with the next access, or with the commit.
    fn next_access(&mut self, number: usize) {
        let txn = &mut self.txns[number];
        txn.at += 1;
        let is_last = usize::from(txn.at) == txn.accesses.len();
        txn.phase = match is_last {
            false => OrderPhase::LookUp,
            true if txn.writes_any() => OrderPhase::Enter,
            true => OrderPhase::ProtectUnwritten,
        };
        let is_to_fail = |access: &OrderedAccess| matches!(access, OrderedAccess::MarkAndFail(_));
        if is_last && txn.accesses.iter().any(is_to_fail) {
            self.fail(number);
        }
    }

    fn take(&mut self, number: usize, row: usize) {
        let ts = self.txns[number].ts;
        let versions = self.rows[row].versions;
        let found = (0..ts).filter(|version| versions >> version & 1 == 1).max();
        self.txns[number].found[row] = found;
        self.next_access(number);
    }

    /// Marks the row, if the row may be written.
    fn mark(&mut self, model: &TimestampOrder, number: usize, row: usize) {
        let ts = self.txns[number].ts;
        let is_marked = self.is_others(row, number);
        let it = &mut self.rows[row];
        let is_read_later =
            it.last_read > ts && model.mistake != Some(OrderMistake::OverwriteReadLater);
        if is_marked || it.version > ts || is_read_later || it.is_dead {
            return self.fail(number);
        }
        it.marked = number as u8 + 1;
        let visits = self.txns[number].accesses[usize::from(self.txns[number].at)];
        if matches!(visits, OrderedAccess::Visit(_)) {
            self.txns[number].found[row] = Some(self.rows[row].version);
        }
        self.next_access(number);
    }
}

impl TimestampOrder {
    /// Whether the log may have, before this transaction, a later writer of a row that was read.
    pub(super) fn is_late(&self, state: &OrderState, number: usize) -> bool {
        let txn = &state.txns[number];
        let is_changed = |row: usize, found: u8| {
            let is_held =
                state.is_others(row, number) && self.mistake != Some(OrderMistake::HeldIsNotLate);
            let is_overwritten = state.rows[row].version != found
                && self.mistake != Some(OrderMistake::OverwrittenIsNotLate);
            !txn.writes(row) && (is_held || is_overwritten)
        };
        let gap_has_changed = txn.gap.is_some_and(|version| version != state.gap.version);
        (0..ROWS).any(|row| txn.found[row].is_some_and(|found| is_changed(row, found)))
            || gap_has_changed
    }

    pub(super) fn step(&self, state: &mut OrderState, number: usize) {
        match state.txns[number].phase {
            OrderPhase::Begin => {
                state.clock += 1;
                state.epochs[usize::from(state.clock)] = state.epoch;
                let txn = &mut state.txns[number];
                (txn.ts, txn.epoch, txn.phase) = (state.clock, state.epoch, OrderPhase::LookUp);
            }
            OrderPhase::LookUp => self.look_up(state, number),
            OrderPhase::MarkRead => self.mark_read(state, number),
            OrderPhase::Look => {
                let looks_first = self.mistake == Some(OrderMistake::LookBeforeReadMark);
                state.txns[number].phase =
                    if looks_first { OrderPhase::MarkRead } else { OrderPhase::Take };
            }
            OrderPhase::Take => {
                let row = state.next_row(number);
                let is_gone = row == B && state.removals != state.txns[number].removals;
                if state.rows[row].is_dead || is_gone {
                    return state.fail(number);
                }
                state.take(number, row);
            }
            OrderPhase::CheckGap => self.check_gap(state, number),
            OrderPhase::Inherit => {
                if self.mistake != Some(OrderMistake::InsertWithoutInheriting) {
                    state.rows[B].last_read = state.rows[B].last_read.max(state.gap.last_read);
                }
                state.rows[B].is_locked = false;
                let is_read_later = state.gap.last_read > state.txns[number].ts;
                if is_read_later { state.fail(number) } else { state.next_access(number) }
            }
            _ => self.commit(state, number),
        }
    }

    fn look_up(&self, state: &mut OrderState, number: usize) {
        let row = state.next_row(number);
        let is_there = state.rows[row].is_there;
        if !state.reads_next(number) {
            if is_there {
                return state.mark(self, number, row);
            }
            let it = &mut state.rows[row];
            (it.is_there, it.is_locked, it.last_read) = (true, true, 0);
            it.marked = number as u8 + 1;
            state.gap.version += 1;
            state.txns[number].phase = OrderPhase::Inherit;
            return;
        }
        let looks_first = self.mistake == Some(OrderMistake::LookBeforeReadMark);
        let checks_first = self.mistake == Some(OrderMistake::GapCheckedFirst);
        let removals = state.removals;
        let txn = &mut state.txns[number];
        txn.removals = removals;
        txn.gap = if is_there { txn.gap } else { Some(state.gap.version) };
        txn.phase = match (is_there, looks_first, checks_first) {
            (true, ..) if state.rows[row].version > txn.ts => OrderPhase::Take,
            (true, true, _) => OrderPhase::Look,
            (false, _, true) => OrderPhase::CheckGap,
            _ => OrderPhase::MarkRead,
        };
    }

    fn mark_read(&self, state: &mut OrderState, number: usize) {
        let row = state.next_row(number);
        let ts = state.txns[number].ts;
        let by_gap = row == B && state.txns[number].gap.is_some();
        if !by_gap {
            let is_gone = row == B && state.removals != state.txns[number].removals;
            let ts = if is_gone { 0 } else { ts };
            state.rows[row].last_read = state.rows[row].last_read.max(ts);
            let looks_first = self.mistake == Some(OrderMistake::LookBeforeReadMark);
            state.txns[number].phase =
                if looks_first { OrderPhase::Take } else { OrderPhase::Look };
            return;
        }
        if self.mistake != Some(OrderMistake::GapWithoutReadMark) {
            state.gap.last_read = state.gap.last_read.max(ts);
        }
        if self.mistake == Some(OrderMistake::GapCheckedFirst) {
            return state.take(number, row);
        }
        state.txns[number].phase = OrderPhase::CheckGap;
    }

    fn check_gap(&self, state: &mut OrderState, number: usize) {
        if state.txns[number].gap != Some(state.gap.version) {
            return state.fail(number);
        }
        if self.mistake == Some(OrderMistake::GapCheckedFirst) {
            state.txns[number].phase = OrderPhase::MarkRead;
            return;
        }
        let row = state.next_row(number);
        state.take(number, row);
    }

    /// Enters the current epoch, and asks whether the transaction's own epoch is closed.
    fn enter(&self, state: &mut OrderState, number: usize) {
        let asks_first = self.mistake == Some(OrderMistake::AskBeforeEntering);
        let is_closed = state.txns[number].epoch <= state.closed;
        let epoch = state.epoch;
        let txn = &mut state.txns[number];
        if txn.phase == OrderPhase::Enter {
            if asks_first && is_closed {
                return state.fail(number);
            }
            txn.entered = if asks_first { 0 } else { epoch };
            txn.phase = OrderPhase::AskClosed;
            return;
        }
        let may_be = self.mistake == Some(OrderMistake::CommitInClosedEpoch) || asks_first;
        if is_closed && !may_be {
            return state.fail(number);
        }
        if asks_first {
            txn.entered = epoch;
        }
        txn.phase = OrderPhase::ProtectUnwritten;
    }

    fn commit(&self, state: &mut OrderState, number: usize) {
        let ts = state.txns[number].ts;
        match state.txns[number].phase {
            OrderPhase::Enter | OrderPhase::AskClosed => self.enter(state, number),
            OrderPhase::ProtectUnwritten => self.protect_unwritten(state, number),
            OrderPhase::CheckReaders => {
                let is_read_later = (0..ROWS)
                    .any(|row| state.txns[number].writes(row) && state.rows[row].last_read > ts);
                if is_read_later && self.mistake != Some(OrderMistake::OverwriteReadLater) {
                    return state.fail(number);
                }
                state.txns[number].phase = OrderPhase::Decide;
            }
            OrderPhase::Decide => {
                state.txns[number].is_command = !self.is_late(state, number);
                state.txns[number].phase = OrderPhase::Place;
            }
            OrderPhase::Place => {
                state.appended += 1;
                let txn = &mut state.txns[number];
                txn.place = state.appended;
                let is_command = txn.is_command;
                txn.phase = if is_command { OrderPhase::Confirm } else { OrderPhase::Install };
                if !is_command {
                    txn.decision = OrderDecision::Valid;
                }
            }
            OrderPhase::Confirm => {
                if self.is_late(state, number) {
                    return state.fail(number);
                }
                state.txns[number].decision = OrderDecision::Valid;
                state.txns[number].phase = OrderPhase::Install;
            }
            OrderPhase::Install => {
                for row in (0..ROWS).filter(|row| state.txns[number].writes(*row)) {
                    state.rows[row].version = ts;
                    state.rows[row].versions |= 1 << ts;
                }
                state.txns[number].phase = OrderPhase::Unmark;
            }
            _ => {
                for row in state.rows.iter_mut() {
                    if usize::from(row.marked) == number + 1 {
                        row.marked = 0;
                    }
                }
                state.txns[number].entered = 0;
                state.txns[number].phase = OrderPhase::Over;
            }
        }
    }

    fn protect_unwritten(&self, state: &mut OrderState, number: usize) {
        let txn = state.txns[number];
        let unwritten = |row: &usize| txn.accesses.contains(&OrderedAccess::Visit(*row as u8));
        for row in (0..ROWS).filter(unwritten) {
            if self.mistake != Some(OrderMistake::VisitWithoutReadMark) {
                state.rows[row].last_read = state.rows[row].last_read.max(txn.ts);
            }
        }
        let txn = &mut state.txns[number];
        if txn.writes_any() {
            txn.phase = OrderPhase::CheckReaders;
        } else {
            txn.decision = OrderDecision::Valid;
            txn.phase = OrderPhase::Unmark;
        }
    }

    pub(super) fn go_on_with_sweeping(&self, state: &mut OrderState) {
        let inherits_first = self.mistake == Some(OrderMistake::InheritBeforeDead);
        state.sweeper = match state.sweeper {
            Background::First => {
                state.rows[B].marked = SWEEPER;
                Background::Second
            }
            step @ (Background::Second | Background::Third) => {
                let is_second = step == Background::Second;
                if is_second != inherits_first {
                    state.rows[B].is_dead = true;
                } else if self.mistake != Some(OrderMistake::RemoveWithoutInheriting) {
                    state.gap.last_read = state.gap.last_read.max(state.rows[B].last_read);
                }
                if is_second { Background::Third } else { Background::Fourth }
            }
            _ => {
                let it = &mut state.rows[B];
                (it.is_there, it.is_dead, it.marked, it.last_read) = (false, false, 0, 0);
                state.gap.version += 1;
                state.removals += 1;
                Background::Done
            }
        };
    }
}
