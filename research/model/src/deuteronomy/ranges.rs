//! Scans beside writers, a proxy and an evictor: item "Scans" of docs/protocols.
//!
//! One key, at first without a version, and a scan of a range that contains the key. The scan notes
//! its range, takes the keys of the index, then the keys of the data component, and reads the keys
//! from the index by the rule for single keys. A scan that ends early, with the key as its last
//! row, ends its note at the key. A writer has its key in the index before its version is in the
//! table, and looks for noted scans afterwards. One promise: a scan that commits has returned the
//! newest committed version below its timestamp, or none if there is none. Left out: weak memory,
//! bounds, limits. As in the code, keys enter and leave under the latch of their bucket; a scan
//! takes the keys without the latch.

mod cases;

pub use cases::cases;

use crate::check::Protocol;
use stateright::{Model, Property};

/// The parties that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Party {
    /// A transaction with this timestamp that writes the key.
    Inserts(u8),
    /// A transaction with this timestamp that writes the key and aborts in the end.
    InsertsInVain(u8),
    /// A transaction with this timestamp that scans.
    Scans(u8),
    Applies,
    Evicts,
    /// Drops notes that seem useless.
    Forgets,
}

use Party::{Applies, Evicts, Forgets, Inserts, InsertsInVain, Scans};

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RangeStep {
    /// M1: the key enters the index. The latch is taken.
    Enter,
    /// W4: the key's version is put in front. The latch is released.
    PutInFront,
    /// M2: the version is taken out again if a younger transaction has scanned over the key.
    LookForScans,
    /// A transaction ends.
    Finish,
    /// N1: the range is noted.
    Note,
    /// N1: writers are told to look at the notes.
    RaiseLastScan,
    /// N2: the keys of the index.
    TakeKeys,
    /// N3: the version of the data component.
    ScanData,
    /// N4: the version is read.
    ReadVersion,
    /// N5: the note ends with the key, if the key has a version that the scan returns.
    EndNote,
    /// The data component gets the newest committed version.
    ApplyNewest,
    /// The key leaves table and index, if the key is applied.
    Evict,
    /// Notes are dropped.
    Forget,
}

use RangeStep::{
    ApplyNewest, EndNote, Enter, Evict, Finish, Forget, LookForScans, Note, PutInFront,
    RaiseLastScan, ReadVersion, ScanData, TakeKeys,
};

/// The rules.
#[derive(Debug, Clone, Copy)]
struct RangeRules {
    scan: &'static [RangeStep],
    write: &'static [RangeStep],
    /// Whether a key taken from the index that has left the table is looked up again.
    asks_anew: bool,
    /// Whether a too new version of the data component aborts a scan.
    tells_version: bool,
    /// Whether a note is kept as long as a transaction below it is active.
    keeps_notes: bool,
    /// Whether a note that ends early still has the last key.
    keeps_last: bool,
    /// Whether the proxy holds back versions younger than an active transaction.
    has_horizon: bool,
}

const BUILT: RangeRules = RangeRules {
    scan: &[Note, RaiseLastScan, TakeKeys, ScanData, ReadVersion, Finish],
    write: &[Enter, PutInFront, LookForScans, Finish],
    asks_anew: true,
    tells_version: true,
    keeps_notes: true,
    keeps_last: true,
    has_horizon: true,
};

/// A scan that ends with this key.
const ENDS_EARLY: &[RangeStep] =
    &[Note, RaiseLastScan, TakeKeys, ScanData, ReadVersion, EndNote, Finish];

/// The model.
#[derive(Debug, Clone)]
pub struct ScannedTable {
    rules: RangeRules,
    parties: &'static [Party],
}

/// How far a party is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct PartyState {
    next: u8,
    /// Whether the key was in the index.
    in_index: bool,
    /// The version that the data component had; 0 for none.
    in_data: u8,
    /// The version returned by a scan; 0 for none.
    read: u8,
    ended: bool,
    committed: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RangeState {
    parties: Vec<PartyState>,
    /// The party that holds the latch of the key's bucket.
    latched_by: Option<u8>,
    /// In the table: timestamp, and whether the version is committed; the newest last.
    versions: Vec<(u8, bool)>,
    /// Whether the table has a record of the key.
    present: bool,
    /// Whether the index has the key.
    indexed: bool,
    last_read: u8,
    floor: u8,
    /// The noted scans.
    notes: Vec<u8>,
    last_scan: u8,
    data_component: u8,
    /// All committed versions.
    committed: Vec<u8>,
}

const RETURNED: &str = "a scan has returned the newest committed version below its timestamp";

impl Party {
    fn ts(self) -> Option<u8> {
        match self {
            Inserts(ts) | InsertsInVain(ts) | Scans(ts) => Some(ts),
            Applies | Evicts | Forgets => None,
        }
    }
}

impl RangeState {
    /// Drops the version with this timestamp.
    fn take_out(&mut self, ts: u8) {
        self.versions.retain(|version| version.0 != ts);
    }

    /// The record of the key, made if there is none.
    fn find_or_make(&mut self) {
        if !self.present {
            self.present = true;
            self.last_read = self.floor;
        }
    }
}

impl ScannedTable {
    fn script(&self, party: Party) -> &'static [RangeStep] {
        match party {
            Inserts(_) | InsertsInVain(_) => self.rules.write,
            Scans(_) => self.rules.scan,
            Applies => &[ApplyNewest, ApplyNewest],
            Evicts => &[Evict, Evict],
            Forgets => &[Forget],
        }
    }

    fn step(&self, state: &RangeState, at: usize) -> Option<RangeStep> {
        let progress = state.parties[at];
        let step = self.script(self.parties[at]).get(progress.next as usize).copied();
        step.filter(|_| !progress.ended)
    }

    /// The oldest active transaction.
    fn oldest(&self, state: &RangeState) -> u8 {
        let active = self.parties.iter().zip(&state.parties).filter(|(_, p)| !p.ended);
        active.filter_map(|(party, _)| party.ts()).min().unwrap_or(u8::MAX)
    }

    /// The version that the proxy may apply.
    fn to_apply(&self, state: &RangeState) -> Option<u8> {
        let oldest = if self.rules.has_horizon { self.oldest(state) } else { u8::MAX };
        let newer = state.committed.iter().copied().filter(|v| *v > state.data_component);
        newer.filter(|v| *v < oldest).max()
    }

    fn is_evictable(&self, state: &RangeState) -> bool {
        let oldest = self.oldest(state);
        let is_old = |v: &(u8, bool)| v.1 && v.0 <= state.data_component && v.0 < oldest;
        state.present && state.versions.iter().all(is_old)
    }

    /// The version that a scan finds in the table, and whether the version is committed; None
    /// without a version.
    fn in_table(state: &RangeState, ts: u8) -> Option<(u8, bool)> {
        state.versions.iter().rev().find(|v| v.0 <= ts).copied()
    }

    fn is_enabled(&self, state: &RangeState, at: usize) -> bool {
        let is_free = state.latched_by.is_none_or(|by| by as usize == at);
        match self.step(state, at) {
            None => false,
            // The scan waits for a version of an active transaction in the table.
            Some(ReadVersion) => {
                let ts = self.parties[at].ts().unwrap_or(0);
                let found = Self::in_table(state, ts);
                is_free && (!self.looks_up(state, at) || found.is_none_or(|version| version.1))
            }
            Some(Enter | PutInFront | LookForScans | Finish) => is_free,
            Some(ApplyNewest) => self.to_apply(state).is_some(),
            Some(Evict) => is_free && self.is_evictable(state),
            Some(Note | RaiseLastScan | TakeKeys | ScanData | EndNote | Forget) => true,
        }
    }

    /// Whether a scan reads the key by the rule for single keys.
    fn looks_up(&self, state: &RangeState, at: usize) -> bool {
        let scan = state.parties[at];
        scan.in_index && (self.rules.asks_anew || state.present)
    }

    /// Ends a transaction, with its version in the table if it commits.
    fn end(&self, state: &mut RangeState, at: usize, commits: bool) {
        let ts = self.parties[at].ts().unwrap_or(0);
        let party = &mut state.parties[at];
        (party.ended, party.committed) = (true, commits);
        if matches!(self.parties[at], Scans(_)) {
            return;
        }
        if state.latched_by == Some(at as u8) {
            state.latched_by = None;
        }
        if commits {
            state.versions.iter_mut().filter(|v| v.0 == ts).for_each(|v| v.1 = true);
            state.committed.push(ts);
            state.committed.sort_unstable();
        } else {
            state.take_out(ts);
        }
    }

    fn write(&self, state: &mut RangeState, at: usize, ts: u8, step: RangeStep) {
        state.find_or_make();
        let next = state.parties[at].next as usize;
        if next == 0 {
            let newest = state.versions.last().map_or(0, |version| version.0);
            if newest > ts || state.last_read > ts {
                return self.end(state, at, false);
            }
        }
        match step {
            Enter => state.indexed = true,
            PutInFront => state.versions.push((ts, false)),
            LookForScans if state.last_scan > ts && state.notes.iter().any(|note| *note > ts) => {
                return self.end(state, at, false);
            }
            _ => {}
        }
        let holds = step == Enter && self.rules.write[next + 1] == PutInFront;
        state.latched_by = holds.then_some(at as u8);
        state.parties[at].next += 1;
    }

    fn scan(&self, state: &mut RangeState, at: usize, ts: u8, step: RangeStep) {
        match step {
            Note => {
                state.notes.push(ts);
                state.notes.sort_unstable();
            }
            RaiseLastScan => state.last_scan = state.last_scan.max(ts),
            TakeKeys => state.parties[at].in_index = state.indexed,
            EndNote if self.rules.keeps_last || state.parties[at].read == 0 => {}
            EndNote => state.notes.retain(|note| *note != ts),
            ScanData => {
                let found = state.data_component;
                if found > ts && self.rules.tells_version && !state.parties[at].in_index {
                    return self.end(state, at, false);
                }
                state.parties[at].in_data = found;
            }
            _ => {
                let found = match self.looks_up(state, at) {
                    true => {
                        state.find_or_make();
                        state.last_read = state.last_read.max(ts);
                        Self::in_table(state, ts).map_or(state.data_component, |version| version.0)
                    }
                    false => state.parties[at].in_data,
                };
                if found > ts && self.rules.tells_version {
                    return self.end(state, at, false);
                }
                state.parties[at].read = found;
            }
        }
        state.parties[at].next += 1;
    }

    fn evict(&self, state: &mut RangeState, at: usize) {
        state.floor = state.floor.max(state.last_read);
        (state.present, state.indexed) = (false, false);
        state.versions.clear();
        state.parties[at].next += 1;
    }

    fn forget(&self, state: &mut RangeState, at: usize) {
        let oldest = self.oldest(state);
        let is_active = |ts: u8| {
            let is_running = |(party, p): (&Party, &PartyState)| party.ts() == Some(ts) && !p.ended;
            self.parties.iter().zip(&state.parties).any(is_running)
        };
        let active: Vec<u8> = state.notes.iter().copied().filter(|ts| is_active(*ts)).collect();
        match self.rules.keeps_notes {
            true => state.notes.retain(|note| *note >= oldest),
            false => state.notes = active,
        }
        state.parties[at].next += 1;
    }

    /// A scan that has returned a wrong version: the scan's timestamp, the version returned, and
    /// the right version.
    fn wrong(&self, state: &RangeState) -> Option<(u8, u8, u8)> {
        self.parties.iter().zip(&state.parties).find_map(|(party, p)| {
            let (Scans(ts), true) = (*party, p.committed) else { return None };
            let below = state.committed.iter().copied().filter(|version| *version < ts);
            let newest = below.max().unwrap_or(0);
            (p.read != newest).then_some((ts, p.read, newest))
        })
    }
}

impl Model for ScannedTable {
    type State = RangeState;
    type Action = usize;

    fn init_states(&self) -> Vec<RangeState> {
        vec![RangeState {
            parties: vec![PartyState::default(); self.parties.len()],
            latched_by: None,
            versions: Vec::new(),
            present: false,
            indexed: false,
            last_read: 0,
            floor: 0,
            notes: Vec::new(),
            last_scan: 0,
            data_component: 0,
            committed: Vec::new(),
        }]
    }

    fn actions(&self, state: &RangeState, actions: &mut Vec<usize>) {
        actions.extend((0..self.parties.len()).filter(|at| self.is_enabled(state, *at)));
    }

    fn next_state(&self, state: &RangeState, at: usize) -> Option<RangeState> {
        let (mut next, step) = (state.clone(), self.step(state, at)?);
        match (self.parties[at], step) {
            (Inserts(_) | Scans(_), Finish) => self.end(&mut next, at, true),
            (InsertsInVain(_), Finish) => self.end(&mut next, at, false),
            (Inserts(ts) | InsertsInVain(ts), step) => self.write(&mut next, at, ts, step),
            (Scans(ts), step) => self.scan(&mut next, at, ts, step),
            (Applies, _) => {
                next.data_component = self.to_apply(state)?;
                next.parties[at].next += 1;
            }
            (Evicts, _) => self.evict(&mut next, at),
            (Forgets, _) => self.forget(&mut next, at),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(RETURNED, |model: &Self, state| model.wrong(state).is_none()),
            Property::sometimes("a scan returns a version", |_, state: &RangeState| {
                state.parties.iter().any(|p| p.committed && p.read > 0)
            }),
        ]
    }
}

impl Protocol for ScannedTable {
    fn tell(&self, before: &RangeState, action: &usize, after: &RangeState) -> String {
        let party = self.parties[*action];
        let (step, p) = (self.step(before, *action), after.parties[*action]);
        let name = match party {
            Inserts(ts) | InsertsInVain(ts) => format!("W{ts}"),
            Scans(ts) => format!("S{ts}"),
            Applies => "the proxy".to_string(),
            Evicts => "the evictor".to_string(),
            Forgets => "the sweep".to_string(),
        };
        let none_or = |version: u8| match version {
            0 => "no version".to_string(),
            version => format!("version {version}"),
        };
        let aborted = p.ended && !p.committed;
        let does = match step {
            _ if aborted && !matches!(party, InsertsInVain(_)) => "has to abort".to_string(),
            Some(Finish) if aborted => "aborts".to_string(),
            Some(Finish) => "commits".to_string(),
            Some(Enter) => "enters the key into the index".to_string(),
            Some(PutInFront) => "puts its version into the table".to_string(),
            Some(LookForScans) => "finds no younger scan".to_string(),
            Some(Note) => "notes its range".to_string(),
            Some(RaiseLastScan) => "raises the time of the last scan".to_string(),
            Some(TakeKeys) if p.in_index => "finds the key in the index".to_string(),
            Some(TakeKeys) => "finds no key in the index".to_string(),
            Some(ScanData) => format!("finds {} in the data component", none_or(p.in_data)),
            Some(ReadVersion) => format!("returns {}", none_or(p.read)),
            Some(EndNote) if p.read == 0 => "has no row to end with".to_string(),
            Some(EndNote) if self.rules.keeps_last => "ends its note with the key".to_string(),
            Some(EndNote) => "ends its note before the key".to_string(),
            Some(ApplyNewest) => format!("applies version {}", after.data_component),
            Some(Evict) => "drops the key from table and index".to_string(),
            Some(Forget) => "drops notes".to_string(),
            None => "rests".to_string(),
        };
        format!("{name} {does}")
    }

    fn verdict(&self, state: &RangeState) -> String {
        match self.wrong(state) {
            Some((ts, 0, newest)) => {
                format!("S{ts} has returned no version, and version {newest} is committed")
            }
            Some((ts, read, 0)) => {
                format!("S{ts} has returned version {read}, and none below it is committed")
            }
            Some((ts, read, newest)) => {
                format!("S{ts} has returned version {read}, and version {newest} is committed")
            }
            None => "nothing is wrong".to_string(),
        }
    }
}
