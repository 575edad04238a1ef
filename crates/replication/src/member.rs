//! A member of a replicated database: a process that follows as a standby, and takes over as the
//! primary when there is none.
//!
//! ```text
//! joining ---> standby ---> primary
//!    ^            |            |
//!    +------------+------------+   fenced, or the lease was given away
//! ```
//!
//! Every start is a joining, also of a member that was the primary: its files are filled from the
//! lanes, or cut, to where the log says that its incarnation has ended.
//!
//! **Invariant.** A member writes and answers as the primary of incarnation k only between its
//! taking of the lease for k and the first set of the lease for a later one: its appends are
//! refused behind the seals of a later incarnation, and its answers have ended before the lease is
//! another's ([`lease`]).

mod files;
mod joining;
mod place_taking;
mod primary;
mod settings;
mod view;

use self::files::LocalFiles;
use self::place_taking::{TakenPlace, take_place};
use self::primary::{Left, Primary};
pub use self::settings::MemberSettings;
pub use self::view::{MemberView, NoSuccessor};
use crate::base_fetch::BaseFetch;
use crate::bases::BaseServer;
use crate::begin;
use crate::hex::hex;
use crate::hold_keeper::HoldKeeper;
use crate::lease::{self, Holder, Lease};
use crate::lease_keeper::LeaseKeeper;
use crate::lease_watch::LeaseWatch;
use crate::reports::{self, Told};
pub use crate::reports::{Heard, Report};
use crate::service::{LogService, Revision};
use crate::standby::{ReadFrom, Standby, StandbyError};
use crate::verify::Verifier;
use hyades::{Builder, Database};
use hyades_platform::{clock, random};
use hyades_wal::{AnswerLease, Error, Mirror, RemoteEnded};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// How often a directory in use, or a log without a primary, is looked at again.
const AGAIN_NS: u64 = 50_000_000;
/// How often a standby tells how far it is, and when it is forgotten.
const TELLS_NS: u64 = 100_000_000;
const FORGOTTEN_NS: u64 = 5_000_000_000;
/// How long a primary that leaves tries to give its lease away.
const RELEASE_PATIENCE: Duration = Duration::from_secs(1);

/// What a member has become. Handles of the database before are to be dropped then: its files are
/// locked, and the member waits until they are free.
#[non_exhaustive]
pub enum Role {
    /// The member has no state to show, and says why.
    Joining(String),
    /// The member follows: the database is only read.
    Standby(Database),
    /// The member has taken the lease, and takes the log over.
    Candidate,
    /// The member writes.
    Primary(Database),
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Joining(why) => f.debug_tuple("Joining").field(why).finish(),
            Role::Standby(_) => f.write_str("Standby"),
            Role::Candidate => f.write_str("Candidate"),
            Role::Primary(_) => f.write_str("Primary"),
        }
    }
}

enum MemberState {
    Joining {
        until_ns: u64,
    },
    /// A base comes from another member.
    Fetching(Box<BaseFetch>),
    Standby {
        standby: Box<Standby>,
        holds: Box<HoldKeeper>,
        is_told: bool,
    },
    /// The lease is taken.
    Candidate(Box<(Standby, KeptLease)>),
    Primary(Box<Primary>),
}

/// A lease, and what it allows.
type KeptLease = (LeaseKeeper, Arc<AnswerLease>);

/// A member, by steps of one thread.
pub struct MemberLoop {
    service: Arc<dyn LogService>,
    settings: MemberSettings,
    holder: Holder,
    /// Declares the tables and procedures: called for each role.
    declare: Box<dyn Fn() -> Builder + Send>,
    watch: LeaseWatch,
    state: MemberState,
    /// Why the member joins.
    reason: String,
    stop: Arc<AtomicBool>,
    /// Gives bases to others.
    bases: BaseServer,
    /// When a member that fetches a base states its hold again.
    holds_again_ns: u64,
    /// Bases that were fetched in vain since one came.
    failed_fetches: usize,
    /// What the members tell.
    told: Receiver<Vec<u8>>,
    standbys: BTreeMap<String, Heard>,
    /// When this member tells next.
    tells_ns: u64,
    verifier: Verifier,
    /// The node to which the database is to be handed over, or any.
    hand_over: Option<Option<String>>,
}

impl fmt::Debug for MemberLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberLoop").field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl MemberLoop {
    /// A member that joins. `declare` makes the same declarations each time. `stop` ends what
    /// blocks.
    ///
    /// # Errors
    /// The first directory cannot be created, or the settings are not possible.
    pub fn new(
        service: Arc<dyn LogService>,
        settings: MemberSettings,
        declare: Box<dyn Fn() -> Builder + Send>,
        stop: Arc<AtomicBool>,
    ) -> Result<MemberLoop, StandbyError> {
        let place = match &settings.place {
            Some(place) => place.clone(),
            None => files::place(&settings.dirs)?,
        };
        let (node, address) = (settings.node.clone(), settings.address.clone());
        let watch = LeaseWatch::new(service.clone(), settings.term);
        Ok(MemberLoop {
            told: service.listen(),
            bases: BaseServer::new(service.clone(), &settings.node),
            holds_again_ns: 0,
            failed_fetches: 0,
            standbys: BTreeMap::new(),
            tells_ns: 0,
            verifier: Verifier::new(&node, service.clone()),
            hand_over: None,
            service,
            settings,
            holder: Holder { node, address, place },
            declare,
            watch,
            state: MemberState::Joining { until_ns: 0 },
            reason: "the member starts".to_owned(),
            stop,
        })
    }

    /// Goes on for about as long as `wait`. Returns a role that the member has newly.
    ///
    /// # Errors
    /// The member cannot go on.
    pub fn step(&mut self, wait: Duration) -> Result<Option<Role>, StandbyError> {
        let was_candidate = matches!(self.state, MemberState::Candidate(_));
        match self.go_on(wait) {
            Err(error) if error.is_silence() && was_candidate => {
                Ok(Some(self.leave(error.to_string())))
            }
            Err(error) if error.is_silence() => {
                self.reason = error.to_string();
                Ok(None)
            }
            result => result,
        }
    }

    fn go_on(&mut self, wait: Duration) -> Result<Option<Role>, StandbyError> {
        self.listen();
        self.give_bases();
        // A standby asks, and knows less of the others: the primary decides.
        if let Some(to) = self.hand_over.take()
            && self.view().successor(to.as_deref()).is_ok()
            && let Some(role) = self.hand_over_now(to.as_deref())
        {
            return Ok(Some(role));
        }
        match &mut self.state {
            MemberState::Joining { .. } => self.join(wait),
            MemberState::Fetching(_) => self.fetch(wait),
            MemberState::Standby { .. } => {
                let followed = self.follow(wait);
                self.or_join_anew(followed)
            }
            MemberState::Candidate(_) => {
                let taken = self.take_over();
                self.or_join_anew(taken)
            }
            MemberState::Primary(primary) => match primary.step(wait) {
                Ok(()) => Ok(None),
                Err(Left::Fenced(why)) => Ok(Some(self.leave(why))),
                Err(Left::Failed(why)) => {
                    self.hand_over_now(None);
                    Ok(Some(self.leave(why)))
                }
            },
        }
    }

    /// Asks for a hand-over of the database, to a node or to any: the next steps of this member
    /// give the lease away, or ask the primary to do so.
    ///
    /// # Errors
    /// No such standby follows closely, so the primary goes on.
    pub fn hand_over(&mut self, to: Option<&str>) -> Result<(), NoSuccessor> {
        let view = self.view();
        view.successor(to)?;
        let (to, database) = (to.map(str::to_owned), view.database);
        match (&self.state, database) {
            (MemberState::Primary(_), _) => self.hand_over = Some(to),
            (_, Some(database)) => {
                let told = Told::HandOver { database: hex(&database), to };
                self.service.broadcast(reports::encode(&told));
            }
            _ => {}
        }
        Ok(())
    }

    /// Leaves the database: a primary gives its lease away.
    pub fn end(mut self) {
        self.hand_over_now(None);
    }

    /// Gives a primary's lease away at once: to a node, or to the standby that follows closest, or
    /// else to the first that takes the lease. Returns the new role.
    pub fn hand_over_now(&mut self, successor: Option<&str>) -> Option<Role> {
        let MemberState::Primary(_) = &self.state else { return None };
        let best = successor.map(str::to_owned).or_else(|| self.view().successor(None).ok());
        let MemberState::Primary(primary) =
            std::mem::replace(&mut self.state, MemberState::Joining { until_ns: 0 })
        else {
            unreachable!("the state was looked at");
        };
        let database = hex(&primary.uuid());
        primary.release(best.as_deref(), RELEASE_PATIENCE);
        self.service.broadcast(reports::encode(&Told::Released { database }));
        Some(self.leave("the lease was given away".to_owned()))
    }

    /// Takes what members have told, and tells.
    fn listen(&mut self) {
        let now = clock::monotonic_ns();
        while let Ok(bytes) = self.told.try_recv() {
            match reports::decode(&bytes) {
                Some(Told::Standby(report)) if report.node != self.holder.node => {
                    self.standbys.insert(report.node.clone(), Heard { report, at_ns: now });
                }
                Some(Told::HandOver { database, to }) => {
                    if let MemberState::Primary(primary) = &self.state
                        && database == hex(&primary.uuid())
                    {
                        self.hand_over = Some(to);
                    }
                }
                Some(Told::Verify { database, number }) => {
                    if let MemberState::Primary(primary) = &self.state
                        && database == hex(&primary.uuid())
                    {
                        let opened = primary.database().clone();
                        self.verifier.begin(primary.uuid(), number, opened);
                    }
                }
                Some(Told::Released { .. }) => self.watch.hurry(),
                _ => {}
            }
        }
        self.standbys.retain(|_, heard| now.saturating_sub(heard.at_ns) < FORGOTTEN_NS);
        if let MemberState::Standby { standby, .. } = &self.state
            && now >= self.tells_ns
        {
            self.tells_ns = now + TELLS_NS;
            let report = Report {
                database: hex(&standby.uuid()),
                node: self.holder.node.clone(),
                address: self.holder.address.clone(),
                incarnation: standby.incarnation(),
                synced: standby.synced(),
                lag_us: standby.lag_us(),
            };
            self.service.broadcast(reports::encode(&Told::Standby(report)));
        }
    }

    /// What the member knows.
    pub fn view(&self) -> MemberView {
        let lease = self.watch.newest().map(|(_, lease)| lease.clone());
        let mut view = MemberView {
            node: self.holder.node.clone(),
            lease,
            is_answered: self.watch.is_answered(),
            standbys: self.standbys.values().cloned().collect(),
            bases: self.bases.lists(),
            ..MemberView::default()
        };
        match &self.state {
            MemberState::Joining { .. } | MemberState::Fetching(_) => {
                view.database = view.lease.as_ref().and_then(Lease::database);
            }
            MemberState::Standby { standby, holds, .. } => {
                view.show_holds(holds.newest());
                view.database = Some(standby.uuid());
                view.incarnation = standby.incarnation();
                view.positions = standby.received();
                view.epoch = standby.served().unwrap_or(0);
                view.lag_us = standby.lag_us();
                view.behind_bytes = standby.behind_bytes();
            }
            MemberState::Candidate(candidate) => view.database = Some(candidate.0.uuid()),
            MemberState::Primary(primary) => primary.show(&mut view),
        }
        let own = view.database.map(|own| hex(&own));
        view.standbys.retain(|heard| Some(&heard.report.database) == own.as_ref());
        view
    }

    fn leave(&mut self, why: String) -> Role {
        self.bases.clear();
        self.state = MemberState::Joining { until_ns: 0 };
        self.watch = LeaseWatch::new(self.service.clone(), self.settings.term);
        self.reason = why;
        Role::Joining(self.reason.clone())
    }

    /// Joins: opens the files, and begins to follow; or founds the database.
    fn join(&mut self, wait: Duration) -> Result<Option<Role>, StandbyError> {
        let MemberState::Joining { until_ns } = self.state else { return Ok(None) };
        let now = clock::monotonic_ns();
        if now < until_ns {
            clock::sleep_until(until_ns.min(now + wait.as_nanos() as u64));
            return Ok(None);
        }
        self.state = MemberState::Joining { until_ns: now + AGAIN_NS };
        self.watch.step()?;
        // Marks from here on: none is missed that a record of the first read needs.
        let marks = self.service.listen();
        let Some(first) = begin::next(&*self.service, 0)? else { return self.found() };
        let database = first.database().expect("it was checked when it was read");
        let lanes = first.incarnation.dims.len();
        let Some(mirror) = self.open(database, lanes)? else { return Ok(None) };
        match take_place(&*self.service, &mirror, first, &self.holder.node)? {
            TakenPlace::Place(from) => {
                let followed = (self.service.clone(), marks);
                let standby = Standby::over(followed, mirror, *from, (self.declare)())?;
                self.become_standby(standby);
            }
            TakenPlace::Hold(holds) => {
                drop(mirror);
                self.begin_fetch((database, lanes), &holds)?;
            }
        }
        Ok(None)
    }

    fn become_standby(&mut self, standby: Standby) {
        let whose = (&*self.settings.node, standby.uuid());
        let limits = self.settings.hold_limits();
        let holds = HoldKeeper::new(self.service.clone(), whose, limits, false);
        let (standby, holds) = (Box::new(standby), Box::new(holds));
        self.state = MemberState::Standby { standby, holds, is_told: false };
    }

    /// Opens the files; `None` while they are in use.
    fn open(&mut self, database: [u8; 16], lanes: usize) -> Result<Option<Mirror>, StandbyError> {
        let options = (self.declare)().mirror_options(self.settings.dirs.clone(), lanes);
        match Mirror::open(options, &self.settings.node, database) {
            Ok(mirror) => Ok(Some(mirror)),
            Err(Error::InUse { path }) => {
                self.reason = format!("{} is in use: drop the database before", path.display());
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Begins the log of a database that has none: a new database, or the one in the directories.
    fn found(&mut self) -> Result<Option<Role>, StandbyError> {
        self.reason = "no primary has begun".to_owned();
        let local = LocalFiles::look(&self.settings.dirs, &*self.declare)?;
        let (seen, database, incarnation) = match lease::newest(&*self.service)? {
            None => (Revision::NONE, local.database.unwrap_or_else(random::fresh_uuid), local.next),
            Some((revision, lease)) => {
                let is_own = lease.node == self.holder.node && lease.place == self.holder.place;
                // Content that was before the log is the holder's alone.
                if self.watch.may_take(&self.holder) != Some(revision)
                    || lease.has_content && !is_own
                {
                    return Ok(None);
                }
                let database = lease.database().expect("it was checked when it was read");
                (revision, database, (lease.incarnation + 1).max(local.next))
            }
        };
        if local.database.is_some_and(|own| own != database) {
            return Err(RemoteEnded::Different(
                "the lanes were taken for another database than that in the directories".into(),
            )
            .into());
        }
        let mut own = Lease::new(&database, incarnation, &self.holder, local.epoch);
        own.has_content = local.has_content;
        let sent_ns = clock::boot_ns();
        let Some(revision) = lease::take(&*self.service, seen, &own)? else { return Ok(None) };
        let keeper = self.keeper(own, revision, sent_ns);
        let marks = self.service.listen();
        let lanes = (self.declare)().declared_streams();
        let Some(mirror) = self.open(database, lanes)? else { return Ok(None) };
        let followed = (self.service.clone(), marks);
        let standby = Standby::over(followed, mirror, ReadFrom::default(), (self.declare)())?;
        Ok(Some(self.become_candidate(standby, keeper)))
    }

    fn become_candidate(&mut self, standby: Standby, keeper: KeptLease) -> Role {
        self.state = MemberState::Candidate(Box::new((standby, keeper)));
        Role::Candidate
    }

    fn keeper(&self, own: Lease, revision: Revision, sent_ns: u64) -> KeptLease {
        let answers = Arc::new(AnswerLease::new());
        let (service, term) = (self.service.clone(), self.settings.term);
        let keeper = LeaseKeeper::new(service, (own, revision), (term, sent_ns), answers.clone());
        (keeper, answers)
    }

    /// Follows, and takes the lease when it may.
    fn follow(&mut self, wait: Duration) -> Result<Option<Role>, StandbyError> {
        self.watch.step()?;
        let MemberState::Standby { standby, holds, is_told } = &mut self.state else {
            return Ok(None);
        };
        standby.step(wait)?;
        if let Some(state) = standby.take_compared() {
            self.verifier.compare(standby.uuid(), state);
        }
        if !holds.step(|| standby.places())? {
            return Ok(Some(
                self.leave("the member was silent for long, and is forgotten".to_owned()),
            ));
        }
        if !*is_told && standby.served().is_some() {
            *is_told = true;
            return Ok(Some(Role::Standby(standby.database().clone())));
        }
        let Some(seen) = self.watch.may_take(&self.holder) else { return Ok(None) };
        let (_, former) = self.watch.newest().expect("it may be taken").clone();
        let MemberState::Standby { standby, .. } = &self.state else { return Ok(None) };
        let incarnation = former.incarnation.max(standby.incarnation()) + 1;
        let epoch = former.epoch_limit.max(standby.epoch());
        let mut own = Lease::new(&standby.uuid(), incarnation, &self.holder, epoch);
        own.know_stored(&former.stored);
        // A takeover that breaks off forgets what the files do not prove; the key does not.
        own.know_stored(&standby.received());
        let sent_ns = clock::boot_ns();
        if let Some(revision) = lease::take(&*self.service, seen, &own)? {
            let keeper = self.keeper(own, revision, sent_ns);
            let joining = MemberState::Joining { until_ns: 0 };
            let MemberState::Standby { standby, .. } = std::mem::replace(&mut self.state, joining)
            else {
                unreachable!("the state was looked at");
            };
            self.bases.clear();
            return Ok(Some(self.become_candidate(*standby, keeper)));
        }
        Ok(None)
    }

    /// Becomes the primary. The lease is renewed meanwhile.
    fn take_over(&mut self) -> Result<Option<Role>, StandbyError> {
        let joining = MemberState::Joining { until_ns: 0 };
        let MemberState::Candidate(candidate) = std::mem::replace(&mut self.state, joining) else {
            unreachable!("called for a candidate");
        };
        let (standby, keeper) = *candidate;
        let (service, stop) = (self.service.clone(), &*self.stop);
        let builder = (self.declare)();
        let settings = &self.settings;
        match Primary::begin(service, standby, keeper, (builder, settings), stop) {
            Ok(primary) => {
                let database = primary.database().clone();
                self.state = MemberState::Primary(Box::new(primary));
                Ok(Some(Role::Primary(database)))
            }
            // Another was faster.
            Err(StandbyError::Service(RemoteEnded::Fenced { by })) => {
                Ok(Some(self.leave(format!("incarnation {by} of the log was faster"))))
            }
            Err(StandbyError::Service(RemoteEnded::Stopped)) => {
                Ok(Some(self.leave("the takeover was stopped".to_owned())))
            }
            Err(error) => Err(error),
        }
    }
}
