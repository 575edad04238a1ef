//! A transaction component over a data component: item "Deuteronomy" of docs/protocols.
//!
//! One key. Writers and readers with timestamps, a proxy that applies committed versions to the
//! data component, and an evictor that drops the key from the version table interleave in every
//! way, in the steps of `crates/deuteronomy`. One promise is checked: a reader that commits has
//! read the newest committed version below its timestamp. `streams` is about durability, `leaving`
//! about keys and versions that leave memory, `parts` about transactions that log their writes in
//! parts, `cuts` about snapshots of the data component, `far` about one
//! in another process; `whole` has all rules at once, at random.
//!
//! Left out: weak memory, the log, and trimming. The code takes a latch for most of the steps
//! together; the model shows the necessary order of separate steps.

mod applying;
mod cuts;
mod far;
mod leaving;
mod parts;
pub mod ranges;
mod scripts;
mod streams;
pub mod whole;

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use scripts::ITEM;
use stateright::{Model, Property};

/// The first version in the data component and in the table.
const FIRST: u8 = 3;

/// The actors that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Actor {
    /// A writer with this timestamp.
    Writer(u8),
    /// A writer that aborts in the end.
    Quitter(u8),
    /// A reader with this timestamp.
    Reader(u8),
    Proxy,
    Evictor,
}

use Actor::{Evictor, Proxy, Quitter, Reader, Writer};

/// A step of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TableStep {
    /// A writer looks whether a younger transaction has read or written the key.
    Approve,
    /// Puts the writer's version in front of the versions seen there; or approves again.
    Install,
    /// Puts the writer's version in front, unless a younger version is there.
    Claim,
    /// Takes the version out again if a younger transaction has read the key.
    Check,
    /// A transaction ends.
    End,
    /// A reader raises the time of the last read.
    Raise,
    /// Finds the version to read: in the table, or else in the data component.
    Find,
    /// Both at once; only a read of the newest version raises the time.
    FindAndNoteNewest,
    /// The data component gets the newest committed version.
    Apply,
    /// The evictor stops changes of the versions of an applied key.
    Freeze,
    /// The evictor raises the floor of absent keys to the time of the last read.
    Fold,
    /// The evictor drops the key.
    Unlink,
    /// The evictor drops an applied key.
    Drop,
}

use TableStep::{
    Apply, Approve, Check, Claim, Drop, End, Find, FindAndNoteNewest, Fold, Freeze, Install, Raise,
    Unlink,
};

/// The rules.
#[derive(Debug, Clone, Copy)]
struct TableRules {
    writer: &'static [TableStep],
    reader: &'static [TableStep],
    evictor: &'static [TableStep],
    /// A reader passes the version of an older active writer.
    reads_past: bool,
    /// The data component says which version it returns.
    tells_version: bool,
    /// The proxy holds back versions younger than an active transaction.
    has_horizon: bool,
}

const BUILT: TableRules = TableRules {
    writer: &[Claim, Check, End],
    reader: &[Raise, Find, End],
    evictor: &[Freeze, Fold, Unlink],
    reads_past: false,
    tells_version: true,
    has_horizon: true,
};

/// The model.
#[derive(Debug, Clone)]
pub struct VersionTable {
    rules: TableRules,
    actors: &'static [Actor],
}

/// The progress of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Progress {
    next: u8,
    /// The front version when a writer approved.
    front: u8,
    /// The version found by a reader.
    read: Option<u8>,
    ended: bool,
    committed: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    actors: Vec<Progress>,
    /// In the table: timestamp, and whether the version is committed; the newest last.
    versions: Vec<(u8, bool)>,
    present: bool,
    frozen: bool,
    last_read: u8,
    floor: u8,
    data_component: u8,
    /// All committed versions.
    committed: Vec<u8>,
}

const NEWEST: &str = "a reader has read the newest committed version below its timestamp";

impl Actor {
    fn ts(self) -> Option<u8> {
        match self {
            Writer(ts) | Quitter(ts) | Reader(ts) => Some(ts),
            Proxy | Evictor => None,
        }
    }
}

impl State {
    fn front(&self) -> u8 {
        self.versions.last().map_or(0, |version| version.0)
    }

    /// The record of the key, made if it is absent.
    fn find_or_make(&mut self) {
        if !self.present {
            self.present = true;
            self.last_read = self.floor;
        }
    }

    /// Whether the evictor may begin: all versions are applied and older than active transactions.
    fn is_evictable(&self, oldest: u8) -> bool {
        let is_old = |v: &(u8, bool)| v.1 && v.0 <= self.data_component && v.0 < oldest;
        self.present && self.versions.iter().all(is_old)
    }

    fn newest_below(&self, ts: u8) -> u8 {
        self.committed.iter().copied().filter(|version| *version < ts).max().unwrap_or(0)
    }
}

impl VersionTable {
    fn script(&self, actor: Actor) -> &'static [TableStep] {
        match actor {
            Writer(_) | Quitter(_) => self.rules.writer,
            Reader(_) => self.rules.reader,
            Proxy => &[Apply],
            Evictor => self.rules.evictor,
        }
    }

    fn step(&self, state: &State, at: usize) -> Option<TableStep> {
        let progress = state.actors[at];
        let step = self.script(self.actors[at]).get(progress.next as usize).copied();
        step.filter(|_| !progress.ended)
    }

    /// The oldest active transaction.
    fn oldest(&self, state: &State) -> u8 {
        let active = self.actors.iter().zip(&state.actors).filter(|(_, p)| !p.ended);
        active.filter_map(|(actor, _)| actor.ts()).min().unwrap_or(u8::MAX)
    }

    /// The version that the proxy may apply.
    fn to_apply(&self, state: &State) -> Option<u8> {
        let oldest = if self.rules.has_horizon { self.oldest(state) } else { u8::MAX };
        let newer = state.committed.iter().copied().filter(|v| *v > state.data_component);
        newer.filter(|v| *v < oldest).max()
    }

    /// The version for a reader; None while the reader waits.
    fn find(&self, state: &State, ts: u8) -> Option<u8> {
        for &(version, committed) in state.versions.iter().rev().filter(|v| v.0 <= ts) {
            match committed {
                true => return Some(version),
                false if self.rules.reads_past => {}
                false => return None,
            }
        }
        Some(state.data_component)
    }

    fn is_enabled(&self, state: &State, at: usize) -> bool {
        let ts = self.actors[at].ts().unwrap_or(0);
        match self.step(state, at) {
            None => false,
            Some(Install | Claim | Raise) => !state.frozen,
            Some(Find | FindAndNoteNewest) => self.find(state, ts).is_some(),
            Some(Apply) => self.to_apply(state).is_some(),
            Some(Freeze | Drop) => state.is_evictable(self.oldest(state)),
            Some(Approve | Check | End | Fold | Unlink) => true,
        }
    }

    /// Ends a transaction, with its version in the table if the transaction commits.
    fn end(&self, state: &mut State, at: usize, commits: bool) {
        let ts = self.actors[at].ts().unwrap_or(0);
        let progress = &mut state.actors[at];
        (progress.ended, progress.committed) = (true, commits);
        if matches!(self.actors[at], Reader(_)) {
            return;
        }
        if commits {
            state.versions.iter_mut().filter(|v| v.0 == ts).for_each(|v| v.1 = true);
            state.committed.push(ts);
        } else {
            state.versions.retain(|version| version.0 != ts);
        }
    }

    fn write(&self, state: &mut State, at: usize, ts: u8, step: TableStep) {
        match step {
            Approve if state.front() > ts || state.last_read > ts => self.end(state, at, false),
            Approve => state.actors[at].front = state.front(),
            Install if state.front() != state.actors[at].front => {
                state.actors[at].next = 0;
                return;
            }
            Claim if state.front() > ts => self.end(state, at, false),
            Install | Claim => {
                state.find_or_make();
                state.versions.push((ts, false));
            }
            Check if state.last_read > ts => self.end(state, at, false),
            _ => {}
        }
        state.actors[at].next += 1;
    }

    fn read(&self, state: &mut State, at: usize, ts: u8, step: TableStep) {
        let raises_first = self.rules.reader[0] == Raise;
        match step {
            Raise => {
                state.find_or_make();
                state.last_read = state.last_read.max(ts);
            }
            // The raised record may be gone: again.
            Find if raises_first && (state.frozen || !state.present) => {
                state.actors[at].next = 0;
                return;
            }
            _ => {
                let found = self.find(state, ts).unwrap_or(0);
                if found > ts && self.rules.tells_version {
                    return self.end(state, at, false);
                }
                state.actors[at].read = Some(found);
                if step == FindAndNoteNewest && found == state.front() {
                    state.last_read = state.last_read.max(ts);
                }
            }
        }
        state.actors[at].next += 1;
    }

    fn evict(&self, state: &mut State, at: usize, step: TableStep) {
        match step {
            Freeze => state.frozen = true,
            Fold => state.floor = state.floor.max(state.last_read).max(state.front()),
            _ => {
                (state.present, state.frozen) = (false, false);
                state.versions.clear();
            }
        }
        state.actors[at].next += 1;
    }
}

impl Model for VersionTable {
    type State = State;
    type Action = usize;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            actors: vec![Progress::default(); self.actors.len()],
            versions: vec![(FIRST, true)],
            present: true,
            frozen: false,
            last_read: FIRST,
            floor: 0,
            data_component: FIRST,
            committed: vec![FIRST],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<usize>) {
        actions.extend((0..self.actors.len()).filter(|at| self.is_enabled(state, *at)));
    }

    fn next_state(&self, state: &State, at: usize) -> Option<State> {
        let (mut next, step) = (state.clone(), self.step(state, at)?);
        match (self.actors[at], step) {
            (Writer(_) | Reader(_), End) => self.end(&mut next, at, true),
            (Quitter(_), End) => self.end(&mut next, at, false),
            (Writer(ts) | Quitter(ts), step) => self.write(&mut next, at, ts, step),
            (Reader(ts), step) => self.read(&mut next, at, ts, step),
            (Proxy, _) => next.data_component = self.to_apply(state)?,
            (Evictor, step) => self.evict(&mut next, at, step),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEWEST, |model: &Self, state| model.wrong(state).is_none()),
            Property::sometimes("a transaction commits", |_, state: &State| {
                state.actors.iter().any(|actor| actor.committed)
            }),
        ]
    }
}

impl VersionTable {
    /// A committed reader that has read a wrong version: the reader's timestamp, the version read,
    /// and the right version.
    fn wrong(&self, state: &State) -> Option<(u8, u8, u8)> {
        self.actors.iter().zip(&state.actors).find_map(|(actor, progress)| {
            let (Reader(ts), true) = (*actor, progress.committed) else { return None };
            let (read, newest) = (progress.read?, state.newest_below(ts));
            (read != newest).then_some((ts, read, newest))
        })
    }
}

impl Protocol for VersionTable {
    fn tell(&self, before: &State, action: &usize, after: &State) -> String {
        let (actor, step) = (self.actors[*action], self.step(before, *action));
        let progress = after.actors[*action];
        let name = match actor {
            Writer(ts) | Quitter(ts) => format!("W{ts}"),
            Reader(ts) => format!("R{ts}"),
            Proxy => "the proxy".to_string(),
            Evictor => "the evictor".to_string(),
        };
        let aborted = progress.ended && !progress.committed;
        let does = match step {
            _ if aborted && !matches!(actor, Quitter(_)) => "has to abort".to_string(),
            Some(Approve) => "finds no younger reader or writer".to_string(),
            Some(Install | Claim) => "puts its version in front".to_string(),
            Some(Check) => "finds no younger reader".to_string(),
            Some(End) if aborted => "aborts".to_string(),
            Some(End) => "commits".to_string(),
            Some(Raise) => "notes its read".to_string(),
            Some(Find | FindAndNoteNewest) => match progress.read {
                Some(version) => format!("finds version {version}"),
                None => "begins again".to_string(),
            },
            Some(Apply) => format!("applies version {}", after.data_component),
            Some(Freeze) => "freezes the record".to_string(),
            Some(Fold) => format!("raises the floor to {}", after.floor),
            Some(Unlink | Drop) => "drops the record".to_string(),
            None => "rests".to_string(),
        };
        format!("{name} {does}")
    }

    fn verdict(&self, state: &State) -> String {
        match self.wrong(state) {
            Some((ts, read, newest)) => {
                format!("R{ts} has read version {read}, and version {newest} is committed")
            }
            None => "nothing is wrong".to_string(),
        }
    }
}

fn run(rules: TableRules, actors: &'static [Actor]) -> Outcome {
    explore(VersionTable { rules, actors })
}

/// All cases of the item.
pub fn cases() -> Vec<Case> {
    let printed = |rule, explore| Case::breaks((ITEM, Rules::Printed), rule, NEWEST, explore);
    let mistake = |rule, explore| Case::breaks((ITEM, Rules::Mutation), rule, NEWEST, explore);
    let mut all = vec![
        printed("a reader passes a version whose writer has not ended", || {
            run(TableRules { reads_past: true, ..BUILT }, &[Writer(5), Reader(7)])
        }),
        printed("approve, then install; find, then note the read", || {
            let (writer, reader) = (&[Approve, Install, End], &[Find, Raise, End]);
            run(TableRules { writer, reader, ..BUILT }, &[Writer(5), Reader(7)])
        }),
        printed("only a read of the newest version is noted", || {
            let rules = TableRules { reader: &[FindAndNoteNewest, End], ..BUILT };
            run(rules, &[Quitter(9), Reader(7), Writer(5)])
        }),
        printed("a version is dropped because the data component has it", || {
            let rules = TableRules { tells_version: false, has_horizon: false, ..BUILT };
            run(rules, &[Writer(20), Reader(10), Proxy, Evictor])
        }),
        printed("a key is dropped with the time of its last read", || {
            let rules = TableRules { evictor: &[Drop], reader: &[Raise, Find, End], ..BUILT };
            run(rules, &[Reader(40), Writer(30), Evictor])
        }),
        mistake("a writer approves before it installs", || {
            let rules = TableRules { writer: &[Approve, Install, End], ..BUILT };
            run(rules, &[Writer(5), Reader(7)])
        }),
        mistake("a reader finds its version before it notes the read", || {
            run(TableRules { reader: &[Find, Raise, End], ..BUILT }, &[Writer(5), Reader(7)])
        }),
        mistake("the floor is raised before the record is frozen", || {
            let rules = TableRules { evictor: &[Fold, Freeze, Unlink], ..BUILT };
            run(rules, &[Reader(40), Writer(30), Evictor])
        }),
        Case::holds(ITEM, "claim, check; note, find; freeze, fold, unlink", 5_000, || {
            run(BUILT, &[Writer(5), Reader(7), Quitter(9), Writer(20), Reader(30), Proxy, Evictor])
        }),
        Case::holds(ITEM, "without a horizon readers that are too old abort", 5_000, || {
            let rules = TableRules { has_horizon: false, ..BUILT };
            run(rules, &[Writer(5), Reader(7), Quitter(9), Writer(20), Reader(30), Proxy, Evictor])
        }),
    ];
    all.extend(streams::cases());
    all.extend(leaving::cases());
    all.extend(applying::cases());
    all.extend(parts::cases());
    all.extend(cuts::cases());
    all.extend(far::cases());
    all
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn a_reader_reads_the_newest_version_below_it() {
        verify_item(cases(), "Deuteronomy");
    }
}
