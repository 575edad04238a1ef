//! Tasks beside transactions: flushers, the proxy, fetches without a waiting transaction,
//! checkpoints, and eviction. No task ends.

use super::{
    Frame, Progress, RecordId, Rule, STREAMS, Shared, Status, Task, Undecided, VersionId, World,
    choose, step, steps,
};

pub(super) fn all(world: &Shared) -> Vec<Task> {
    let streams = |task: fn(Shared, usize) -> Task| {
        (0..STREAMS).map(|stream| task(world.clone(), stream)).collect::<Vec<_>>()
    };
    let mut all = streams(|world, stream| Box::pin(flush(world, stream)));
    all.extend(streams(|world, stream| Box::pin(apply_from(world, stream))));
    all.push(Box::pin(checkpoint(world.clone())));
    all.push(Box::pin(evict(world.clone())));
    all.push(Box::pin(fetch_ahead(world.clone())));
    all
}

async fn flush(world: Shared, stream: usize) {
    loop {
        {
            let world = &mut *world.borrow_mut();
            if world.chance(world.flushes[stream]) {
                world.durable[stream] = world.log[stream].len();
            }
        }
        step().await;
    }
}

impl World {
    /// Hands an operation to the data component.
    fn apply(&mut self, ts: u32, key: usize) {
        let is_last = self.breaks(Rule::HighestWins);
        self.data[key] = if is_last { ts } else { self.data[key].max(ts) };
        self.since[key].push(self.data[key]);
    }

    /// The next operation of a stream: applied, if the operation's transaction is known to have
    /// committed.
    fn pass_operation(&mut self, stream: usize) {
        let at = self.progress[stream].operations;
        if let Frame::Operation { ts, key } = self.log[stream][at] {
            let asks_table = self.breaks(Rule::BelieveLog);
            let is_over = self.transactions[&ts].status != Status::Active;
            if self.seen_committed.contains(&ts) || asks_table && is_over && self.chance(0.5) {
                self.apply(ts, key);
            } else {
                self.undecided.push(Undecided { stream, end: at + 1, ts, key });
            }
        }
        self.progress[stream].operations += 1;
    }

    /// Whether the data component has applied a version.
    fn is_applied(&self, version: VersionId) -> bool {
        let version = &self.versions[version.0];
        if version.is_fetched || self.breaks(Rule::DropApplied) {
            return true;
        }
        let writer = &self.transactions[&version.ts];
        let Progress { operations, commits_applied, .. } = self.progress[writer.stream];
        version.position.is_some_and(|end| end <= operations)
            && writer.commit.is_some_and(|end| end <= commits_applied)
    }

    /// Drops the versions below the newest that every active transaction may read.
    fn trim(&mut self, record: RecordId, oldest: u32) {
        let is_read = |version: &VersionId| {
            self.status_of(*version) == Status::Committed && self.ts_of(*version) <= oldest
        };
        let versions = &self.records[record.0].versions;
        let Some(at) = versions.iter().position(is_read) else { return };
        if versions.len() > at + 1 {
            let record = self.record(record);
            record.versions.truncate(at + 1);
            record.drops += 1;
        }
    }

    /// Whether all versions of a record may leave.
    fn may_leave(&self, record: RecordId, oldest: u32) -> bool {
        self.records[record.0].versions.iter().all(|version| {
            let is_committed = self.status_of(*version) == Status::Committed;
            is_committed && self.ts_of(*version) <= oldest && self.is_applied(*version)
        })
    }

    fn raise_floor(&mut self, record: RecordId) {
        let stored = &self.records[record.0];
        let newest = stored.versions.iter().map(|version| self.ts_of(*version)).max();
        self.floor = self.floor.max(stored.last_read.unwrap_or(0)).max(newest.unwrap_or(0));
    }
}

/// The proxy in one stream: a scan for commits, and a scan for operations.
async fn apply_from(world: Shared, stream: usize) {
    loop {
        step().await;
        if world.borrow_mut().chance(0.4) {
            continue;
        }
        let Progress { commits_seen, operations, .. } = world.borrow().progress[stream];
        let durable = world.borrow().durable[stream];
        if commits_seen < durable && world.borrow_mut().chance(0.6) {
            let frame = world.borrow().log[stream][commits_seen];
            match frame {
                Frame::Commit { needs, .. } if !world.borrow().is_durable(needs) => continue,
                Frame::Commit { ts, .. } => decide(&world, stream, ts).await,
                Frame::Abort { ts } => world.borrow_mut().undecided.retain(|one| one.ts != ts),
                Frame::Operation { .. } => {}
            }
            let progress = &mut world.borrow_mut().progress[stream];
            progress.commits_seen += 1;
            progress.commits_applied = progress.commits_applied.max(progress.commits_seen);
        } else if operations < durable {
            world.borrow_mut().pass_operation(stream);
        }
    }
}

/// Applies the operations of a transaction whose commit was seen.
async fn decide(world: &Shared, stream: usize, ts: u32) {
    {
        let world = &mut *world.borrow_mut();
        world.seen_committed.insert(ts);
        if world.breaks(Rule::ApplyBeforeCounting) {
            let progress = &mut world.progress[stream];
            progress.commits_applied = progress.commits_seen + 1;
        }
    }
    step().await;
    let is_decided = |one: &&Undecided| one.stream == stream && one.ts == ts;
    let decided: Vec<Undecided> =
        world.borrow().undecided.iter().filter(is_decided).copied().collect();
    for one in decided {
        world.borrow_mut().apply(one.ts, one.key);
        world.borrow_mut().undecided.retain(|other| *other != one);
        step().await;
    }
}

/// Fetches that no transaction waits for, or no longer.
async fn fetch_ahead(world: Shared) {
    loop {
        step().await;
        let key = world.borrow_mut().key();
        let Some(record) = world.borrow().table[key] else { continue };
        if world.borrow_mut().record(record).is_frozen {
            continue;
        }
        let drops = world.borrow_mut().record(record).drops;
        step().await;
        let got = world.borrow().data[key];
        let pause = choose(&mut world.borrow_mut().rng, &[1, 5, 40]);
        steps(pause).await;
        world.borrow_mut().enter_fetched((key, record), got, drops);
    }
}

/// The data component makes all its versions durable, with the point where redo begins to read.
async fn checkpoint(world: Shared) {
    loop {
        let pause = world.borrow_mut().rng.usize(3..31);
        steps(pause).await;
        let resume = {
            let world = world.borrow();
            let keeps = !world.breaks(Rule::KeepUndecided);
            let mut resume = world.progress.map(|progress| progress.operations);
            for one in world.undecided.iter().filter(|_| keeps) {
                resume[one.stream] = resume[one.stream].min(one.end - 1);
            }
            resume
        };
        step().await;
        let world = &mut *world.borrow_mut();
        world.resume = resume;
        world.since = world.data.map(|version| vec![version]);
    }
}

/// Trims versions, drops all versions of a record, or drops the record.
async fn evict(world: Shared) {
    loop {
        step().await;
        let upper = world.borrow().clock;
        step().await;
        let oldest = world.borrow().announced.values().copied().fold(upper, u32::min);
        step().await;
        let key = world.borrow_mut().key();
        let Some(record) = world.borrow().table[key] else { continue };
        if world.borrow_mut().record(record).is_frozen {
            continue;
        }
        world.borrow_mut().trim(record, oldest);
        step().await;
        if world.borrow_mut().chance(0.5) {
            continue;
        }
        let folds_first = world.borrow().breaks(Rule::FreezeFirst);
        if folds_first {
            world.borrow_mut().raise_floor(record);
            step().await;
        }
        let may_leave = world.borrow().may_leave(record, oldest);
        if !may_leave || !world.borrow().is_in_table(key, record) {
            continue;
        }
        if world.borrow_mut().chance(0.5) {
            let mut world = world.borrow_mut();
            let record = world.record(record);
            record.versions.clear();
            record.drops += 1;
            continue;
        }
        world.borrow_mut().record(record).is_frozen = true;
        step().await;
        world.borrow_mut().settle(record);
        let keeps_floor = !world.borrow().breaks(Rule::KeepFloor);
        if keeps_floor && !folds_first {
            world.borrow_mut().raise_floor(record);
        }
        step().await;
        world.borrow_mut().record(record).drops += 1;
        world.borrow_mut().table[key] = None;
    }
}
