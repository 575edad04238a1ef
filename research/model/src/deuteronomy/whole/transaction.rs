//! The steps of transactions.

use super::{
    Frame, LOOKS, PATIENCE, RecordId, Rule, STREAMS, Shared, Status, Transaction, VersionId, World,
    choose, step, steps,
};

/// The find of a reader in a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looked {
    Version(VersionId),
    /// An older writer is still active.
    Wait,
    Nothing,
}

impl World {
    fn begin(&mut self, ts: u32) {
        let begun = Transaction {
            status: Status::Active,
            reads: Vec::new(),
            writes: Vec::new(),
            depends_on: [0; STREAMS],
            stream: self.rng.usize(0..STREAMS),
            commit: None,
            at_once: self.rng.bool(),
            is_acknowledged: false,
        };
        self.transactions.insert(ts, begun);
    }

    fn announce(&mut self, me: usize, bound: u32) {
        self.announced.insert(me, bound);
    }

    fn has_written(&self, ts: u32, key: usize) -> bool {
        self.transactions[&ts].writes.iter().any(|write| write.0 == key)
    }

    fn is_frozen(&self, record: RecordId) -> bool {
        self.records[record.0].is_frozen
    }

    /// The newest committed version below a timestamp.
    fn look(&self, ts: u32, record: RecordId) -> Looked {
        for &version in &self.records[record.0].versions {
            match self.status_of(version) {
                _ if self.ts_of(version) >= ts => {}
                Status::Aborted => {}
                Status::Active if self.breaks(Rule::WaitForWriters) => {}
                Status::Active => return Looked::Wait,
                Status::Committed => return Looked::Version(version),
            }
        }
        Looked::Nothing
    }

    /// Adds the dependencies of a transaction that has read this version.
    fn join(&mut self, ts: u32, version: VersionId) {
        if self.versions[version.0].is_fetched || self.breaks(Rule::Depend) {
            return;
        }
        let writer = &self.transactions[&self.ts_of(version)];
        let is_direct = self.breaks(Rule::JoinVectors);
        let mut joined = if is_direct { [0; STREAMS] } else { writer.depends_on };
        let stream = writer.stream;
        joined[stream] = joined[stream].max(writer.commit.expect("it has committed"));
        let own = &mut self.transaction(ts).depends_on;
        own.iter_mut().zip(joined).for_each(|(own, other)| *own = (*own).max(other));
    }

    /// Enters a version of the data component as the oldest version of a record.
    pub(super) fn enter_fetched(&mut self, (key, record): (usize, RecordId), got: u32, drops: u32) {
        let now = &self.records[record.0];
        let is_same = now.drops == drops && !now.is_frozen && self.is_in_table(key, record);
        let are_newer = now.versions.iter().all(|version| self.ts_of(*version) > got);
        if (is_same || self.breaks(Rule::NumberFetches)) && are_newer {
            let fetched = self.add_version(got, true);
            self.record(record).versions.push(fetched);
        }
    }

    /// Whether a writer may still write: no younger transaction has written or read the key.
    fn may_write(&self, ts: u32, record: RecordId) -> bool {
        let is_live = |version: &&VersionId| self.status_of(**version) != Status::Aborted;
        let newest = self.records[record.0].versions.iter().find(is_live);
        newest.is_none_or(|version| self.ts_of(*version) <= ts) && !self.is_read_later(ts, record)
    }

    fn is_read_later(&self, ts: u32, record: RecordId) -> bool {
        self.records[record.0].last_read > Some(ts)
    }

    /// Logs the operation of a write, unless already logged.
    fn log_operation(&mut self, ts: u32, key: usize, version: VersionId) {
        if self.versions[version.0].position.is_none() {
            let stream = self.transactions[&ts].stream;
            let end = self.append(stream, Frame::Operation { ts, key });
            self.versions[version.0].position = Some(end);
        }
    }

    /// Logs the commit.
    fn log_commit(&mut self, ts: u32) {
        for (key, version) in self.transactions[&ts].writes.clone() {
            self.log_operation(ts, key, version);
        }
        let Transaction { stream, depends_on: needs, .. } = self.transactions[&ts];
        self.transaction(ts).commit = Some(self.log[stream].len() + 1);
        self.append(stream, Frame::Commit { ts, needs });
    }
}

/// A transaction from beginning to acknowledgement.
pub(super) async fn run(world: Shared, me: usize) {
    let draws_first = world.borrow().breaks(Rule::AnnounceFirst);
    if !draws_first {
        let bound = world.borrow().clock;
        world.borrow_mut().announce(me, bound);
        step().await;
    }
    let ts = world.borrow_mut().draw();
    step().await;
    world.borrow_mut().announce(me, ts);
    world.borrow_mut().begin(ts);
    step().await;
    let operations = world.borrow_mut().rng.usize(1..4);
    let mut goes_on = true;
    for _ in 0..operations {
        let key = world.borrow_mut().key();
        let reads = world.borrow_mut().chance(0.55);
        goes_on = if reads { read(&world, ts, key).await } else { write(&world, ts, key).await };
        if !goes_on {
            break;
        }
        let pause = choose(&mut world.borrow_mut().rng, &[0, 0, 0, 6]);
        steps(pause).await;
    }
    if !goes_on || world.borrow_mut().chance(0.1) {
        abort(&world, ts).await;
    } else {
        commit(&world, ts).await;
    }
    world.borrow_mut().announced.remove(&me);
}

/// Reads a key. False if the transaction has to abort.
async fn read(world: &Shared, ts: u32, key: usize) -> bool {
    let notes_late = world.borrow().breaks(Rule::NoteFirst);
    let notes_newest = world.borrow().breaks(Rule::NoteEveryRead);
    for _ in 0..LOOKS {
        if world.borrow().has_written(ts, key) {
            return true;
        }
        let record = world.borrow_mut().find_or_make(key);
        step().await;
        if world.borrow().is_frozen(record) {
            step().await;
            continue;
        }
        world.borrow_mut().settle(record);
        if !notes_late && !notes_newest {
            world.borrow_mut().note_read(record, ts);
        }
        step().await;
        if world.borrow().is_frozen(record) || !world.borrow().is_in_table(key, record) {
            continue;
        }
        let looked = world.borrow().look(ts, record);
        if looked == Looked::Wait {
            step().await;
            continue;
        }
        let newest = world.borrow().records[record.0].versions.first().copied();
        let is_newest = newest.is_none_or(|newest| looked == Looked::Version(newest));
        if notes_newest && (is_newest || looked == Looked::Nothing) {
            world.borrow_mut().note_read(record, ts);
        }
        let Looked::Version(version) = looked else {
            return fetch(world, ts, (key, record), notes_late).await;
        };
        world.borrow_mut().join(ts, version);
        let read = world.borrow().ts_of(version);
        world.borrow_mut().transaction(ts).reads.push((key, read));
        if notes_late {
            step().await;
            world.borrow_mut().note_read(record, ts);
        }
        step().await;
        return true;
    }
    false
}

/// Reads the data component. False if the data component has a younger version.
async fn fetch(world: &Shared, ts: u32, at: (usize, RecordId), notes_late: bool) -> bool {
    let (key, record) = at;
    let drops = world.borrow_mut().record(record).drops;
    let got = world.borrow().data[key];
    steps(2).await;
    if got > ts {
        let is_taken = world.borrow().breaks(Rule::TellVersion);
        if is_taken {
            world.borrow_mut().transaction(ts).reads.push((key, got));
        }
        return is_taken;
    }
    if notes_late {
        world.borrow_mut().note_read(record, ts);
    }
    world.borrow_mut().transaction(ts).reads.push((key, got));
    step().await;
    world.borrow_mut().enter_fetched(at, got, drops);
    true
}

/// Writes a key. False if the transaction has to abort.
async fn write(world: &Shared, ts: u32, key: usize) -> bool {
    if world.borrow().has_written(ts, key) {
        return true;
    }
    for _ in 0..LOOKS {
        let record = world.borrow_mut().find_or_make(key);
        step().await;
        if world.borrow().is_frozen(record) {
            step().await;
            continue;
        }
        world.borrow_mut().settle(record);
        if !world.borrow().may_write(ts, record) {
            return false;
        }
        let seen = world.borrow().records[record.0].versions.clone();
        step().await;
        let is_changed = world.borrow().records[record.0].versions != seen;
        let is_gone = !world.borrow().is_in_table(key, record);
        if is_changed || is_gone || world.borrow().is_frozen(record) {
            continue;
        }
        let version = world.borrow_mut().add_version(ts, false);
        world.borrow_mut().record(record).versions.insert(0, version);
        world.borrow_mut().transaction(ts).writes.push((key, version));
        step().await;
        let checks = !world.borrow().breaks(Rule::CheckClaimed);
        if checks && world.borrow().is_read_later(ts, record) {
            return false;
        }
        if world.borrow().transactions[&ts].at_once {
            world.borrow_mut().log_operation(ts, key, version);
        }
        step().await;
        return true;
    }
    false
}

async fn commit(world: &Shared, ts: u32) {
    let mut needs = world.borrow().transactions[&ts].depends_on;
    if !world.borrow().transactions[&ts].writes.is_empty() {
        world.borrow_mut().log_commit(ts);
        step().await;
        world.borrow_mut().transaction(ts).status = Status::Committed;
        step().await;
        let Transaction { stream, commit, .. } = world.borrow().transactions[&ts];
        needs[stream] = needs[stream].max(commit.expect("it is logged"));
    } else {
        world.borrow_mut().transaction(ts).status = Status::Committed;
    }
    for _ in 0..PATIENCE {
        if world.borrow().is_durable(needs) {
            world.borrow_mut().transaction(ts).is_acknowledged = true;
            return;
        }
        step().await;
    }
}

async fn abort(world: &Shared, ts: u32) {
    step().await;
    world.borrow_mut().transaction(ts).status = Status::Aborted;
    step().await;
    let writes = world.borrow().transactions[&ts].writes.clone();
    for (key, version) in writes {
        let record = world.borrow().table[key];
        if let Some(record) = record {
            world.borrow_mut().record(record).versions.retain(|other| *other != version);
        }
        let is_logged = world.borrow().versions[version.0].position.is_some();
        if is_logged {
            let stream = world.borrow().transactions[&ts].stream;
            world.borrow_mut().append(stream, Frame::Abort { ts });
        }
        step().await;
    }
}
