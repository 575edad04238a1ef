//! What the threads of a server know of its membership in a replicated database: the role, and what
//! the role allows; the members; orders to hand the database over.
//!
//! One thread, `member`, writes all of these. A role that ends a session of clients, such as a
//! demotion, begins a new *era*: event loops close the connections of earlier eras.

use super::live_import::READ_ONLY;
use super::membership_asked::Demand;
use super::membership_figures::MembershipFigures;
use hyades_platform::sync::Unpoisoned;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What a member knows of the members of its database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The name of the replicated database, by which clients of Sentinel ask for its primary.
    pub name: String,
    /// The node of this member.
    pub node: String,
    /// Where clients reach this member: `host:port`.
    pub address: String,
    /// The primary; `None` if it is not known, or was not heard of for as long as a lease lasts.
    pub primary: Option<PrimaryView>,
    /// The incarnation of the log.
    pub incarnation: u32,
    /// The uuid of the database.
    pub database: [u8; 16],
    /// By stream, the end of the log of this member: of a primary the stored end, of a standby the
    /// synced end.
    pub positions: Vec<u64>,
    /// The standbys, but for this member.
    pub members: Vec<MemberView>,
    /// The age of the state that this member serves; zero at the primary.
    pub lag: Duration,
    /// The bytes of the log that this standby knows of and does not show yet; `None` if not known.
    pub behind_bytes: Option<u64>,
    /// How long the lease of this primary lasts without another renewal.
    pub lease_left: Option<Duration>,
    /// Whether this member is the primary, or has replayed a mark of the primary since it joined.
    /// A state before may be of any age: that of a former primary's last start, say.
    pub has_caught_up: bool,
    /// Whether this member is the primary, and its lease has run out.
    pub suspended: bool,
    /// Whether the log goes on to store what a primary without a lease writes.
    pub stores: bool,
    /// By lane, the place in the replicated log up to which no member needs it; empty if not known.
    pub purged: Vec<u64>,
    /// The nodes that the replicated log is kept for.
    pub kept_for: Vec<String>,
    /// How many members fetch this member's files.
    pub bases: usize,
}

/// The primary of a replicated database, as a member knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrimaryView {
    /// The node.
    pub node: String,
    /// Where clients reach the primary: `host:port`.
    pub address: String,
}

/// A standby of a replicated database, as another member knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberView {
    /// The node.
    pub node: String,
    /// Where clients reach the standby: `host:port`.
    pub address: String,
    /// The age of the state that the standby serves, in milliseconds; `None` while the standby
    /// joins and serves none.
    pub lag_ms: Option<u64>,
    /// By stream, up to where the standby has synced the log.
    pub positions: Vec<u64>,
    /// Whether the standby was heard of lately.
    pub is_online: bool,
}

impl View {
    /// The sum of the positions of all streams.
    pub fn offset(&self) -> u64 {
        self.positions.iter().sum()
    }

    /// Whether this member is the primary.
    pub fn is_primary(&self) -> bool {
        self.primary.as_ref().is_some_and(|primary| primary.node == self.node)
    }

    /// This member, as the others are seen.
    pub fn own(&self) -> MemberView {
        MemberView {
            node: self.node.clone(),
            address: self.address.clone(),
            lag_ms: Some(u64::try_from(self.lag.as_millis()).unwrap_or(u64::MAX)),
            positions: self.positions.clone(),
            is_online: true,
        }
    }

    /// The standbys, with this member if it is not the primary.
    pub fn standbys(&self) -> Vec<MemberView> {
        let is_primary =
            |node: &str| self.primary.as_ref().is_some_and(|primary| primary.node == node);
        let all = std::iter::once(self.own()).chain(self.members.iter().cloned());
        all.filter(|member| !is_primary(&member.node)).collect()
    }

    /// The number of standbys that have synced all streams up to these positions.
    pub fn synced(&self, positions: &[u64]) -> usize {
        let has_all = |member: &&MemberView| {
            member.is_online
                && member.positions.len() >= positions.len()
                && member.positions.iter().zip(positions).all(|(has, wanted)| has >= wanted)
        };
        self.members.iter().filter(has_all).count()
    }
}

impl MemberView {
    /// The sum of the positions of all streams.
    pub fn offset(&self) -> u64 {
        self.positions.iter().sum()
    }
}

/// Host and port of an address `host:port`; the host may be an IPv6 address in brackets.
pub fn host_and_port(address: &str) -> (&str, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    (host.trim_matches(['[', ']']), port.parse().unwrap_or(0))
}

/// The role of a server, as far as its clients are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// The server is not a member of a replicated database.
    Alone,
    /// All commands are served.
    Primary,
    /// The primary hands the database over: nothing new is begun.
    HandingOver,
    /// The lease of the primary has run out, for longer than readers wait.
    Suspended,
    /// The log of the primary has stopped: the member joins anew, or stops.
    LogStopped,
    /// The database is read, as of the last epoch that was replayed.
    Standby,
    /// There is no database yet, or none any more.
    Joining,
    /// The member is about to be the primary.
    Candidate,
    /// The member has stopped.
    Stopped,
}

/// All roles, in the order of their numbers.
pub const ROLES: [Role; 9] = [
    Role::Alone,
    Role::Primary,
    Role::HandingOver,
    Role::Suspended,
    Role::LogStopped,
    Role::Standby,
    Role::Joining,
    Role::Candidate,
    Role::Stopped,
];

impl Role {
    /// Whether the member has the database of a primary.
    pub fn writes(self) -> bool {
        matches!(self, Role::Alone | Role::Primary | Role::HandingOver | Role::Suspended)
    }

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Role::Alone => "alone",
            Role::Primary => "primary",
            Role::HandingOver => "handing-over",
            Role::Suspended => "suspended",
            Role::LogStopped => "log-stopped",
            Role::Standby => "standby",
            Role::Joining => "joining",
            Role::Candidate => "candidate",
            Role::Stopped => "stopped",
        }
    }
}

/// An order to hand the database over.
pub struct HandOverOrder {
    /// The node to be the next primary; `None`: any.
    pub to: Option<String>,
    /// Gets the result.
    pub answer: Sender<Result<(), String>>,
}

/// The membership of a server.
#[derive(Default)]
pub struct Membership {
    /// A [`Role`]. Written under the lock of `text`; read by event loops before each run.
    role: AtomicU8,
    /// Connections of earlier eras are to be closed. Written after the role (Release), so that a
    /// loop that finds an era (Acquire) finds its role.
    era: AtomicU64,
    /// What the role is about: what the member waits for, or why it has stopped.
    text: Mutex<String>,
    view: Mutex<Arc<View>>,
    /// The primary that was known last.
    last_primary: Mutex<Option<PrimaryView>>,
    orders: Mutex<VecDeque<HandOverOrder>>,
    /// The last order that has failed, in words.
    refused: Mutex<Option<String>>,
    /// What is counted.
    pub figures: MembershipFigures,
}

impl Membership {
    /// The role.
    #[inline]
    pub fn role(&self) -> Role {
        ROLES[usize::from(self.role.load(Ordering::Acquire))]
    }

    /// The role in words, with database and incarnation, of a member.
    pub fn in_words(&self) -> Option<String> {
        let (role, view) = (self.role().name(), self.view());
        let (name, incarnation) = (&view.name, view.incarnation);
        self.is_on().then(|| format!("{role} of {name}, incarnation {incarnation} of the log,"))
    }

    /// Whether the server is a member.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.role() != Role::Alone
    }

    /// Whether some commands are refused by the role of the server.
    #[inline]
    pub fn restricts(&self) -> bool {
        self.role.load(Ordering::Acquire) > Role::Primary as u8
    }

    /// Whether transactions only read.
    #[inline]
    pub fn only_reads(&self) -> bool {
        !self.role().writes()
    }

    /// Why the role refuses a command on data, if at all.
    #[cold]
    pub fn refusal(&self, asked: Demand) -> Option<String> {
        match self.role() {
            Role::Alone | Role::Primary => None,
            Role::Standby if asked == Demand::Read => None,
            Role::Standby => Some(READ_ONLY.to_string()),
            Role::HandingOver => {
                Some("TRYAGAIN the database is being handed over to another member".to_string())
            }
            Role::Suspended if asked == Demand::Write && self.view().stores => None,
            Role::Suspended => Some(
                "MASTERDOWN the lease of this primary has run out, and another member may be the \
                 primary"
                    .to_string(),
            ),
            Role::Joining | Role::Candidate | Role::LogStopped => {
                Some(format!("LOADING {}", self.text()))
            }
            Role::Stopped => Some(format!("MASTERDOWN this member has stopped: {}", self.text())),
        }
    }

    /// Why a request on keys of a slot is not served here in cluster mode, by the role. A client
    /// that `reads_standbys` has said so.
    pub fn redirection(&self, slot: u16, asked: Demand, reads_standbys: bool) -> Option<String> {
        let view = match self.role() {
            Role::Alone | Role::Primary | Role::HandingOver => return None,
            Role::Standby if asked == Demand::Read && reads_standbys => return None,
            _ => self.view(),
        };
        if self.role() == Role::Suspended && asked == Demand::Write && view.stores {
            return None;
        }
        Some(match view.primary.as_ref().filter(|primary| primary.node != view.node) {
            Some(primary) => {
                let (host, port) = host_and_port(&primary.address);
                format!("MOVED {slot} {host}:{port}")
            }
            None => "CLUSTERDOWN Hash slot not served".to_string(),
        })
    }

    /// What the server waits for before it has a database, in words.
    pub fn waits_for(&self) -> Option<String> {
        let waits = matches!(self.role(), Role::Joining | Role::Candidate | Role::LogStopped);
        waits.then(|| self.text())
    }

    /// Why the member has stopped, if it has.
    pub fn stopped(&self) -> Option<String> {
        (self.role() == Role::Stopped).then(|| self.text())
    }

    fn text(&self) -> String {
        self.text.lock().unpoisoned().clone()
    }

    /// For the thread of the member: sets the role.
    pub fn set_role(&self, role: Role, text: &str) {
        let mut kept = self.text.lock().unpoisoned();
        text.clone_into(&mut kept);
        self.role.store(role as u8, Ordering::Release);
    }

    /// For the thread of the member: replaces a role, unless the role has changed meanwhile.
    pub fn replace_role(&self, from: Role, to: Role) {
        let _text = self.text.lock().unpoisoned();
        if self.role() == from {
            self.role.store(to as u8, Ordering::Release);
        }
    }

    /// Whether the stop of the log ends the role of the server, and not the server. The connections
    /// of the role are closed: no outcome under way will be known here.
    pub fn note_log_stopped(&self, cause: &str) -> bool {
        let mut text = self.text.lock().unpoisoned();
        let role = self.role();
        if role == Role::Alone {
            return false;
        }
        if role.writes() {
            *text = format!("the log of this member has stopped: {cause}");
            self.role.store(Role::LogStopped as u8, Ordering::Release);
            self.begin_era();
        }
        true
    }

    /// The present era.
    #[inline]
    pub fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    /// Has the connections of all eras so far closed, once the loops are woken.
    pub fn begin_era(&self) {
        self.era.fetch_add(1, Ordering::Release);
    }

    /// The members, as last seen.
    pub fn view(&self) -> Arc<View> {
        self.view.lock().unpoisoned().clone()
    }

    /// The primary that was known last: while none is known, clients of a cluster are told that
    /// its slots are still there, since some end where slots have no node.
    pub fn last_primary(&self) -> Option<PrimaryView> {
        self.last_primary.lock().unpoisoned().clone()
    }

    /// For the thread of the member: keeps the members as seen now.
    pub fn note_view(&self, view: Arc<View>) {
        if let Some(primary) = &view.primary {
            let mut last = self.last_primary.lock().unpoisoned();
            if last.as_ref() != Some(primary) {
                *last = Some(primary.clone());
            }
        }
        *self.view.lock().unpoisoned() = view;
    }

    /// Orders the thread of the member to hand the database over. The receiver gets the result.
    pub fn order(&self, to: Option<String>) -> Receiver<Result<(), String>> {
        let (answer, receiver) = channel();
        self.orders.lock().unpoisoned().push_back(HandOverOrder { to, answer });
        receiver
    }

    /// For the thread of the member: the next order.
    pub fn next_order(&self) -> Option<HandOverOrder> {
        self.orders.lock().unpoisoned().pop_front()
    }

    /// The last order that has failed, in words.
    pub fn refused(&self) -> MutexGuard<'_, Option<String>> {
        self.refused.lock().unpoisoned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_refuses_what_it_cannot_serve() {
        let membership = Membership::default();
        assert!(!membership.is_on() && !membership.restricts() && !membership.only_reads());
        assert!(!membership.note_log_stopped("a test"), "a server alone stops with its log");
        for (number, role) in ROLES.into_iter().enumerate() {
            assert_eq!(role as usize, number);
        }
        let all = [Demand::Read, Demand::Write, Demand::Wait, Demand::Watch];
        let refused = |role, text: &str| {
            membership.set_role(role, text);
            all.map(|asked| membership.refusal(asked).map(|text| text[..4].to_string()))
        };
        let [read, only, load, down] = ["", "READ", "LOAD", "MAST"].map(|text| match text {
            "" => None,
            text => Some(text.to_string()),
        });
        assert_eq!(refused(Role::Primary, ""), [None, None, None, None]);
        assert_eq!(
            refused(Role::Standby, ""),
            [read.clone(), only.clone(), only.clone(), only.clone()]
        );
        assert_eq!(
            refused(Role::Joining, "files"),
            [load.clone(), load.clone(), load.clone(), load.clone()]
        );
        assert_eq!(
            refused(Role::Suspended, ""),
            [down.clone(), down.clone(), down.clone(), down.clone()]
        );
        membership.note_view(Arc::new(View { stores: true, ..View::default() }));
        assert_eq!(membership.refusal(Demand::Write), None, "its record is stored");
        assert!(membership.refusal(Demand::Read).is_some());
        let era = membership.era();
        assert!(membership.note_log_stopped("fenced") && membership.era() == era + 1);
        assert_eq!(membership.role(), Role::LogStopped);
        assert!(membership.note_log_stopped("again") && membership.era() == era + 1);
        membership.replace_role(Role::Standby, Role::Primary);
        assert_eq!(membership.role(), Role::LogStopped);
    }

    #[test]
    fn a_cluster_client_is_sent_to_another_member_that_is_known_as_primary() {
        let membership = Membership::default();
        let told = |asked, reads| {
            let text = membership.redirection(7, asked, reads);
            text.map_or("served".to_string(), |text| text.split_at(5).0.to_string())
        };
        let see = |primary: Option<&str>| {
            let primary =
                primary.map(|node| PrimaryView { node: node.into(), address: "h:1".into() });
            let view = View { node: "n1".into(), primary, stores: true, ..View::default() };
            membership.note_view(Arc::new(view));
        };
        assert_eq!(told(Demand::Write, false), "served", "alone");
        for role in [Role::Primary, Role::HandingOver] {
            membership.set_role(role, "");
            assert_eq!(told(Demand::Write, false), "served");
        }
        for (role, primary, expected) in [
            (Role::Standby, Some("n2"), "MOVED"),
            (Role::Joining, Some("n2"), "MOVED"),
            (Role::Standby, None, "CLUST"),
            (Role::Candidate, Some("n1"), "CLUST"),
            (Role::LogStopped, Some("n1"), "CLUST"),
            (Role::Suspended, Some("n1"), "CLUST"),
            (Role::Stopped, Some("n2"), "MOVED"),
        ] {
            membership.set_role(role, "");
            see(primary);
            assert_eq!(told(Demand::Read, false), expected, "{role:?}");
            let read = if role == Role::Standby { "served" } else { expected };
            assert_eq!(told(Demand::Read, true), read, "{role:?}");
            let written = if role == Role::Suspended { "served" } else { expected };
            assert_eq!(told(Demand::Write, true), written, "{role:?}");
            let waited = if role == Role::Suspended { expected } else { written };
            assert_eq!(told(Demand::Wait, true), waited, "{role:?}");
        }
        see(Some("n2"));
        let text = membership.redirection(7, Demand::Write, false);
        assert_eq!(text.as_deref(), Some("MOVED 7 h:1"));
    }

    #[test]
    fn standbys_have_synced_what_they_say_of_each_stream() {
        let member = |positions: &[u64], is_online| MemberView {
            positions: positions.to_vec(),
            is_online,
            ..MemberView::default()
        };
        let members = vec![member(&[5, 5], true), member(&[9, 4], true), member(&[9, 9], false)];
        let view = View { members, ..View::default() };
        assert_eq!(view.synced(&[5, 5]), 1);
        assert_eq!(view.synced(&[5, 4]), 2);
        assert_eq!(view.synced(&[]), 2, "of a client that has written nothing");
        assert_eq!(view.synced(&[1, 1, 1]), 0, "of another number of streams");
    }

    #[test]
    fn an_address_is_host_and_port() {
        assert_eq!(host_and_port("10.0.0.1:6379"), ("10.0.0.1", 6379));
        assert_eq!(host_and_port("[::1]:7"), ("::1", 7));
        assert_eq!(host_and_port("db"), ("db", 0));
    }
}
