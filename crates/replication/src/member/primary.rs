//! A member as the primary: begins an incarnation, keeps the lease, and makes cut marks.

use super::settings::MemberSettings;
use super::view::MemberView;
use crate::appender::Appender;
use crate::hold_keeper::HoldKeeper;
use crate::lane_place::{LanePlace, seen_before};
use crate::lease::Lease;
use crate::lease_keeper::LeaseKeeper;
use crate::marks::MarkMaker;
use crate::seal::Writer;
use crate::service::{LogService, Patience};
use crate::standby::{Standby, StandbyError};
use hyades::{Builder, Database, Promotion};
use hyades_platform::{broken, clock};
use hyades_wal::{AnswerLease, BaseFiles, Error, Lsn, RemoteEnded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a takeover waits for a service that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the leaders of lanes are spread over the servers again.
const PLACES_NS: u64 = 60_000_000_000;
/// How often the primary looks after its lease, at most.
const LOOK_NS: u64 = 2_000_000;

/// Why a member is primary no more.
pub(super) enum Left {
    /// Another process has the lease.
    Fenced(String),
    /// The log has stopped, and the lease is to be given away.
    Failed(String),
}

/// See the module.
pub(super) struct Primary {
    database: Database,
    uuid: [u8; 16],
    appender: Arc<Appender>,
    /// `None` once the lease was given away.
    keeper: Option<LeaseKeeper>,
    /// The incarnation.
    number: u32,
    answers: Arc<AnswerLease>,
    marks: MarkMaker,
    holds: HoldKeeper,
    service: Arc<dyn LogService>,
    /// When the leaders of lanes are spread next.
    places_ns: u64,
}

/// Keeps the lease until `done`; sets `gives_up` once the lease is lost, or `stop` is set.
fn keep(
    keeper: &mut LeaseKeeper,
    done: &AtomicBool,
    (gives_up, stop): (&AtomicBool, &AtomicBool),
) -> Option<RemoteEnded> {
    while !done.load(Ordering::SeqCst) {
        if stop.load(Ordering::Relaxed) {
            gives_up.store(true, Ordering::Relaxed);
        }
        if let Err(ended) = keeper.step(0, &[], false) {
            gives_up.store(true, Ordering::Relaxed);
            return Some(ended);
        }
        clock::sleep_until(clock::monotonic_ns() + LOOK_NS);
    }
    None
}

/// By lane, the place up to which the files have all after any crash.
fn places(database: &Database, appender: &Appender) -> Vec<LanePlace> {
    let Some(log) = database.log() else { return Vec::new() };
    let durable: Vec<Lsn> =
        (0..log.streams()).map(|stream| log.frontier().durable(stream)).collect();
    appender.proven_places(&durable)
}

impl Primary {
    /// Takes the log over: seals the lanes, replays the rest, and begins the incarnation of the
    /// lease.
    pub fn begin(
        service: Arc<dyn LogService>,
        standby: Standby,
        (mut keeper, answers): (LeaseKeeper, Arc<AnswerLease>),
        (builder, settings): (Builder, &MemberSettings),
        stop: &AtomicBool,
    ) -> Result<Primary, StandbyError> {
        let (own, uuid) = (keeper.own().clone(), standby.uuid());
        let (done, gives_up) = (AtomicBool::new(false), AtomicBool::new(false));
        let takeover = Takeover { service: &service, own: &own, answers: &answers };
        let begun = std::thread::scope(|scope| {
            // Replay may take longer than the lease lasts. A simulation has one thread.
            let keeping = (!clock::is_simulated())
                .then(|| scope.spawn(|| keep(&mut keeper, &done, (&gives_up, stop))));
            let begun = takeover.carry_out(standby, builder, &gives_up);
            done.store(true, Ordering::SeqCst);
            let ended = keeping.and_then(|keeping| keeping.join().expect("it does not panic"));
            ended.map_or(begun, |ended| Err(ended.into()))
        });
        let (database, appender) = begun?;
        let marks = MarkMaker::new(&database, service.clone(), settings.mark_interval)?;
        let whose = (&*settings.node, uuid);
        let holds = HoldKeeper::new(service.clone(), whose, settings.hold_limits(), true);
        let (number, keeper, places_ns) = (own.incarnation, Some(keeper), 0);
        let mut primary = Primary {
            database,
            uuid,
            appender,
            keeper,
            number,
            answers,
            marks,
            holds,
            service,
            places_ns,
        };
        primary.renew(stop)?;
        Ok(primary)
    }

    /// Renews the lease once more, until the key states a limit of epochs above the database's: a
    /// process that was slow is fenced before its first answer.
    fn renew(&mut self, stop: &AtomicBool) -> Result<(), StandbyError> {
        let (mut is_renewed, patience) = (false, Patience::new(PATIENCE).until(stop));
        while !is_renewed || self.epoch_limit() <= self.database.epoch() {
            patience.check()?;
            is_renewed |= self.keep(true)?;
            clock::sleep_until(clock::monotonic_ns() + LOOK_NS / 4);
        }
        Ok(())
    }

    fn keep(&mut self, wait: bool) -> Result<bool, RemoteEnded> {
        let stored: Vec<Lsn> = self.appender.stored_positions();
        let Some(keeper) = &mut self.keeper else { return Err(RemoteEnded::Stopped) };
        let is_applied = keeper.step(self.database.epoch(), &stored, wait)?;
        if is_applied {
            self.database.raise_epoch_limit(keeper.epoch_limit());
        }
        Ok(is_applied)
    }

    fn epoch_limit(&self) -> u64 {
        self.keeper.as_ref().map_or(0, LeaseKeeper::epoch_limit)
    }

    /// The database's uuid.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Keeps the lease, for about as long as `wait`.
    ///
    /// # Errors
    /// Why the member is primary no more. The database has stopped.
    pub fn step(&mut self, wait: Duration) -> Result<(), Left> {
        let until = clock::monotonic_ns() + wait.as_nanos() as u64;
        loop {
            match self.keep(false) {
                Ok(_) => {}
                Err(ended) => {
                    self.answers.end();
                    let by = match &ended {
                        RemoteEnded::Fenced { by } => *by,
                        _ => self.number + 1,
                    };
                    self.database.demote(by);
                    return Err(Left::Fenced(ended.to_string()));
                }
            }
            if let Some(stopped) = self.database.log().and_then(|log| log.poisoned()) {
                return Err(Left::Failed(format!("the log has stopped: {stopped}")));
            }
            let marked = self.marks.step();
            if let Err(ended) = self.step_holds() {
                return Err(Left::Failed(ended.to_string()));
            }
            let now = clock::monotonic_ns();
            if now >= self.places_ns {
                self.places_ns = now + PLACES_NS;
                self.service.place_leaders();
            }
            if now >= until {
                return Ok(());
            }
            clock::sleep_until(until.min(now + LOOK_NS).min(marked.max(now)));
        }
    }

    fn step_holds(&mut self) -> Result<(), RemoteEnded> {
        let (database, appender) = (&self.database, &self.appender);
        self.holds.step(|| places(database, appender)).map(drop)
    }

    /// Whether the member's place is stated.
    pub fn has_place(&self) -> bool {
        self.holds.newest().is_some()
    }

    /// The files as a base for another member.
    pub fn base_files(&self) -> Result<Option<BaseFiles>, Error> {
        let Some(log) = self.database.log() else { return Ok(None) };
        let manifest = log.manifest();
        let dims = manifest.newest().map_or(&[][..], |newest| &newest.dims);
        let streams: Vec<_> = dims.iter().map(|dim| dim.stream).collect();
        log.base_files(seen_before(&places(&self.database, &self.appender), &streams)).map(Some)
    }

    /// Gives the lease away. The database has stopped then.
    pub fn release(mut self, successor: Option<&str>, patience: Duration) {
        self.wait_for_log(patience);
        self.database.demote(self.number + 1);
        if let Some(keeper) = self.keeper.take() {
            keeper.release(successor, &self.appender.stored_positions(), patience);
        }
    }

    /// Waits for the end of what is under way, if the log service answers in time.
    fn wait_for_log(&self, patience: Duration) {
        let Some(log) = self.database.log() else { return };
        let ends: Vec<Lsn> = (0..log.streams()).map(|stream| log.next_lsn(stream)).collect();
        let is_behind =
            || ends.iter().enumerate().any(|(stream, end)| log.frontier().durable(stream) < *end);
        let until = clock::monotonic_ns() + patience.as_nanos() as u64;
        while is_behind() && log.poisoned().is_none() && clock::monotonic_ns() < until {
            // For a stepped log, which has no thread.
            (0..ends.len()).for_each(|stream| _ = log.step(stream));
            clock::sleep_until(clock::monotonic_ns() + LOOK_NS / 4);
        }
    }

    /// Fills in what members are told.
    pub fn show(&self, view: &mut MemberView) {
        view.lease = self.keeper.as_ref().map(|keeper| keeper.own().clone());
        (view.is_primary, view.is_answered) = (true, self.answers.may_answer());
        view.lease_left = Some(self.answers.left());
        view.database = Some(self.uuid);
        view.incarnation = self.number;
        view.positions = self.appender.stored_positions();
        view.epoch = self.database.epoch();
        view.lag_us = Some(0);
        view.show_holds(self.holds.newest());
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // Without its lease the database would hold what only reads for ever.
        self.database.demote(self.number + 1);
    }
}

/// A takeover of the log.
struct Takeover<'t> {
    service: &'t Arc<dyn LogService>,
    own: &'t Lease,
    answers: &'t Arc<AnswerLease>,
}

impl Takeover<'_> {
    fn carry_out(
        &self,
        standby: Standby,
        builder: Builder,
        stop: &AtomicBool,
    ) -> Result<(Database, Arc<Appender>), StandbyError> {
        let Takeover { service, own, answers } = *self;
        let (database, node) = (standby.uuid(), own.node.clone());
        let writer = Writer { database, incarnation: own.incarnation, node: node.clone() };
        let streams = builder.declared_streams();
        let taken = {
            let patience = Patience::new(PATIENCE).until(stop);
            standby.take_over((&writer, &patience), &own.stored, streams)?
        };
        let (service, lease) = (service.clone(), Some(answers.clone()));
        let mut appender = Appender::new(service, writer, &taken.lanes, lease);
        if own.has_content {
            appender = appender.with_base();
        }
        let appender = Arc::new(appender);
        let files = taken.mirror.into_recovering()?;
        let above_epoch = if broken!(ReuseEpochs) { 0 } else { own.first_epoch_above() };
        let (at, remote) = (taken.at, appender.clone());
        let promotion = Promotion { files, node, at, remote, above_epoch };
        let builder = builder.epoch_limit(own.epoch_limit);
        Ok((taken.follower.promote(builder, promotion)?, appender))
    }
}
