//! The thread that puts each role of this member in force.
//!
//! Invariants:
//!
//! - A database is put into the slot once nothing holds the one before: no transaction, ticket or
//!   effect of one database reaches another. There is one exception: a reader of a standby may last
//!   into the next role for a moment, and has no effects.
//! - While a database comes or goes, the role is one that serves nothing.
//! - A standby is not read before it has replayed a mark of the primary: a member never shows less
//!   than it has shown before as the primary.
//! - An era ends with each role that had clients; its loops are woken after the role was set.

use super::counting::{self, Counting};
use super::source::{MakeBuilder, RoleChange, RoleSource, SourceFactory};
use crate::clients::channels::{Publication, Topic};
use crate::data::Tables;
use crate::data::primary::{ImportStage, PrimaryPosition};
use crate::state::membership::{PrimaryView, Role, View, host_and_port};
use crate::state::{Opened, Shared, Stopping};
use crate::upkeep::opening;
use hyades::{Attempt, Database};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long the source waits for a role before orders and members are looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// How long readers of a primary without a lease are held, before they are refused.
const HELD: Duration = Duration::from_secs(1);

/// How long a hand-over that has begun may last, before the primary serves again.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(5);

/// How long a reader of a standby may last into the next role.
const READERS_LAST: Duration = Duration::from_millis(100);

/// How often the thread looks whether a database was let go.
const LET_GO_EVERY: Duration = Duration::from_millis(1);

/// The channel by which Sentinel tells its clients of another primary.
const SWITCHED: &str = "+switch-master";

/// The state of the thread.
struct MemberThread<'s> {
    shared: &'s Arc<Shared>,
    source: Box<dyn RoleSource>,
    counting: Option<Counting>,
    /// The last known primary.
    primary: Option<PrimaryView>,
    /// Since when the lease is known to have run out.
    suspended_since: Option<Instant>,
    /// The database of a standby is there, and is too old to be read.
    catches_up: bool,
    /// When a hand-over that has begun is over.
    handing_over_until: Option<Instant>,
    /// Clients were served in a role since the last era began.
    has_served: bool,
}

/// Runs a member until the server stops. `ready` is called with the first database.
pub fn run(shared: &Arc<Shared>, factory: SourceFactory, ready: impl FnOnce()) {
    shared.note_memory_at_start();
    let telling = Arc::downgrade(shared);
    let make: MakeBuilder = Arc::new(move || {
        let shared = telling.upgrade().expect("a source is used while the server runs");
        opening::builder(&shared).0
    });
    let source = match factory(make, &shared.settings) {
        Ok(source) => source,
        Err(text) => return shared.stop(Stopping::Failed(text)),
    };
    source.figures().into_iter().for_each(|read| shared.membership.figures.read_lanes_by(read));
    let mut member = MemberThread {
        shared,
        source,
        counting: None,
        primary: None,
        suspended_since: None,
        catches_up: false,
        handing_over_until: None,
        has_served: false,
    };
    let mut ready = Some(ready);
    while shared.stopping().is_none() {
        if let Some(change) = member.source.next(LOOKS_EVERY) {
            member.change(change);
        }
        member.look();
        if shared.store.opened.get().is_some() {
            ready.take().into_iter().for_each(|ready| ready());
        }
    }
    member.end();
}

impl MemberThread<'_> {
    /// Puts a role in force.
    fn change(&mut self, change: RoleChange) {
        let (was, name, began) = (self.shared.membership.role(), change.name(), Instant::now());
        let closes = match &change {
            // A primary whose log has stopped has parted from its clients already.
            RoleChange::Joining(_) | RoleChange::Stopped(_) => was != Role::LogStopped,
            RoleChange::Primary(_) => true,
            RoleChange::Standby(_) => was.writes(),
            RoleChange::Candidate => false,
        };
        let is_primary = matches!(change, RoleChange::Primary(_));
        let has_switched = is_primary && self.note_view();
        let (role, text) = match &change {
            RoleChange::Standby(_) | RoleChange::Primary(_) => (Role::Joining, "the role changes"),
            RoleChange::Candidate => (Role::Candidate, "the member takes the database over"),
            RoleChange::Joining(text) => (Role::Joining, &text[..]),
            RoleChange::Stopped(text) => (Role::Stopped, &text[..]),
        };
        self.shared.membership.set_role(role, text);
        self.tell(name, &change);
        (self.handing_over_until, self.suspended_since) = (None, None);
        self.catches_up = false;
        if has_switched || closes && std::mem::take(&mut self.has_served) {
            self.shared.membership.begin_era();
        }
        let may_last = matches!(change, RoleChange::Candidate | RoleChange::Primary(_));
        self.let_go(was.writes() || was == Role::LogStopped, may_last);
        match change {
            RoleChange::Standby(database) => self.serve(database, Role::Standby),
            RoleChange::Primary(database) => self.serve(database, Role::Primary),
            RoleChange::Candidate | RoleChange::Joining(_) | RoleChange::Stopped(_) => {}
        }
        self.shared.membership.figures.took(name, began);
    }

    /// Tells the operator what the member becomes.
    fn tell(&self, name: &str, change: &RoleChange) {
        let view = self.source.view();
        let what = match change {
            RoleChange::Joining(why) | RoleChange::Stopped(why) => why.clone(),
            _ => format!("incarnation {} of the log", view.incarnation),
        };
        eprintln!("member {} of {}: {name}, {what}", view.node, view.name);
    }

    /// Lets go of the database, if there is one. A reader of a standby may last for a moment if
    /// `may_last`.
    fn let_go(&mut self, was_primary: bool, may_last: bool) {
        let shared = self.shared;
        let Some(opened) = shared.store.opened.take() else { return };
        if let Some(counting) = &self.counting {
            counting.end();
        }
        self.wake_all();
        if was_primary {
            // What is durable is acknowledged. The rest is the log's, which may not answer; nor may
            // a checkpoint go on. A log that has stopped cannot be closed in good order.
            opened.database.log().iter().for_each(|log| log.stop("this member has another role"));
            let _ = opened.database.clone().close();
        }
        let began = Instant::now();
        while Arc::strong_count(&opened) > 1 {
            if may_last && !was_primary && began.elapsed() >= READERS_LAST {
                break;
            }
            // A script that came meanwhile ends as well.
            for functions in [false, true] {
                shared.scripts.running.kill(functions);
            }
            std::thread::sleep(LET_GO_EVERY);
        }
        drop(opened);
        self.counting = None;
        self.forget();
    }

    /// Forgets what the server keeps beside the rows of a database.
    fn forget(&self) {
        let shared = self.shared;
        counting::forget(shared);
        shared.store.forget();
        shared.reaping.forget();
        shared.stats.counters.changes.store(0, Relaxed);
    }

    /// Wakes all threads that hold a database.
    fn wake_all(&self) {
        self.shared.store.timers.wake();
        self.shared.reaping.wake();
        self.shared.wiring.wake_all();
    }

    /// Serves a database in a role.
    fn serve(&mut self, database: Database, role: Role) {
        let (shared, tables) = (self.shared, Tables::BY_PLACE);
        if role == Role::Primary
            && let Err(text) = check_import(&database)
        {
            return shared.stop(Stopping::Failed(text));
        }
        shared.store.counts.set_exact(false);
        // From before the first write of a client.
        let snapshot = (role == Role::Primary).then(|| database.open_snapshot());
        let opened = Opened { database, tables };
        assert!(shared.store.opened.set(opened).is_ok(), "the database before was let go");
        self.catches_up = role == Role::Standby && !self.source.view().has_caught_up;
        match self.catches_up {
            true => shared.membership.set_role(Role::Joining, "the standby catches up"),
            false => shared.membership.set_role(role, ""),
        }
        self.has_served = true;
        if let Some(opened) = shared.store.opened.hold().into_opened() {
            self.counting = Some(match snapshot {
                Some(snapshot) => Counting::of_primary(shared, opened, snapshot),
                None => Counting::of_standby(shared, opened),
            });
        }
        shared.reaping.no_later_than(0);
        shared.reaping.remove_garbage();
        self.wake_all();
    }

    /// Looks at the members, and at orders of clients.
    fn look(&mut self) {
        if self.note_view() {
            self.shared.membership.begin_era();
            self.shared.wiring.wake_all();
        }
        if self.catches_up && self.shared.membership.view().has_caught_up {
            self.catches_up = false;
            self.shared.membership.set_role(Role::Standby, "");
        }
        while let Some(order) = self.shared.membership.next_order() {
            let result = self.hand_over(order.to.as_deref());
            *self.shared.membership.refused() = result.clone().err();
            // A client that has gone does not care.
            let _ = order.answer.send(result);
        }
        if self.handing_over_until.is_some_and(|until| until <= Instant::now()) {
            self.handing_over_until = None;
            self.shared.membership.replace_role(Role::HandingOver, Role::Primary);
            self.shared.wiring.wake_all();
        }
    }

    /// Keeps what this member sees of the members. Returns whether there is another primary.
    fn note_view(&mut self) -> bool {
        let view = Arc::new(self.source.view());
        self.shared.membership.note_view(view.clone());
        self.note_lease(&view);
        self.note_primary(&view)
    }

    /// Tells clients of Sentinel of another primary, if there is another one than before.
    fn note_primary(&mut self, view: &View) -> bool {
        let Some(primary) = &view.primary else { return false };
        let Some(before) = self.primary.replace(primary.clone()) else { return false };
        if before == *primary {
            return false;
        }
        self.shared.membership.figures.saw_another_primary();
        let [(old_host, old_port), (host, port)] =
            [&before, primary].map(|primary| host_and_port(&primary.address));
        let payload = format!("{} {old_host} {old_port} {host} {port}", view.name);
        let (channel, payload) = (SWITCHED.as_bytes().to_vec(), payload.into_bytes());
        let publication = Publication { topic: Topic::Channel, channel, payload };
        self.shared.wiring.channels.deliver(&Arc::new(publication));
        true
    }

    /// Refuses readers once the lease of a primary has run out for longer than they wait.
    fn note_lease(&mut self, view: &View) {
        let membership = &self.shared.membership;
        if !view.suspended {
            self.suspended_since = None;
            membership.replace_role(Role::Suspended, Role::Primary);
            return;
        }
        let since = *self.suspended_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= HELD {
            membership.replace_role(Role::Primary, Role::Suspended);
        }
    }

    fn hand_over(&mut self, to: Option<&str>) -> Result<(), String> {
        let membership = &self.shared.membership;
        if membership.role() == Role::Joining || membership.role() == Role::Stopped {
            return Err("this member has no database".to_string());
        }
        membership.replace_role(Role::Primary, Role::HandingOver);
        let begun = self.source.hand_over(to);
        match &begun {
            Ok(()) => self.handing_over_until = Some(Instant::now() + HANDED_OVER_WITHIN),
            Err(_) => membership.replace_role(Role::HandingOver, Role::Primary),
        }
        begun
    }

    /// The server stops. First all other threads end, and acknowledge their transactions.
    fn end(mut self) {
        let shared = self.shared;
        self.counting = None;
        let is_primary = shared.membership.role().writes();
        if let Some(opened) = shared.store.opened.take() {
            self.wake_all();
            while Arc::strong_count(&opened) > 1 {
                std::thread::sleep(LET_GO_EVERY);
            }
            if is_primary && let Err(error) = opened.database.clone().close() {
                eprintln!("the database could not be closed: {error}");
            }
        }
        self.source.end();
    }
}

/// Whether the database is no part of an import: the values would be no whole.
fn check_import(database: &Database) -> Result<(), String> {
    let stored = database.session().and_then(|mut session| {
        session.attempt(|tx| PrimaryPosition::stored(tx, Tables::BY_PLACE))
    });
    match stored {
        Ok(Attempt::Committed(Some(position), _)) if position.stage != ImportStage::Over => {
            let from = position.address;
            let end = "end that with REPLICAOF NO ONE on a server alone";
            Err(format!("the database is being imported from {from}: {end}, then replicate it"))
        }
        // An error occurs again at the first command, and is told to the client.
        _ => Ok(()),
    }
}
