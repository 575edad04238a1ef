//! An event loop: a thread that serves its connections with one session of the engine.
//!
//! A turn reads each ready socket once, runs what has arrived, frees the replies of transactions
//! that are on disk, writes each connection once, and sleeps if nothing is left: until a socket is
//! ready, a transaction is acknowledged, or another thread has a message for the loop.

mod deadlines;
mod farewell;
mod freeing;
mod mailbox;
#[cfg(feature = "replication")]
mod roles;
#[cfg(not(feature = "replication"))]
#[path = "event_loop/roles_off.rs"]
mod roles;

pub use mailbox::{Accepted, Mailbox};

use crate::clients::{Calls, ClientEntry};
use crate::commands::JobReply;
use crate::net::connection::Connection;
use crate::net::executors::Executors;
use crate::session::conversation::{Next, Turn};
use crate::sockets::waker::LoopWaker;
use crate::state::{Held, Shared, Stopping};
use deadlines::{Idlers, note_deadline};
use freeing::Freeing;
use hyades::{CommitQueue, Session, Snapshot, Ticket};
use mailbox::Message;
use mio::{Events, Interest, Poll, Token};
use roles::Parting;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use std::time::{Duration, Instant};

const WAKER: Token = Token(0);

/// Most bytes read from a socket at once.
const READ_BYTES: usize = 64 << 10;

/// The log has room again when any thread's records are written, not only this thread's, and a job
/// of an executor ends on another thread: the loop looks for both at this interval.
const PAUSE: Duration = Duration::from_millis(1);

/// The unit of a poll's timeout, a whole number.
const ROUNDING: Duration = Duration::from_millis(1);

/// Most handshakes served in a turn: each may take a millisecond to compute.
const MOST_SHAKEN: usize = 4;

/// After a request to stop, a loop sends the rest for this long.
const STOP: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 10_000 });

/// A transaction not acknowledged yet.
struct Awaited {
    /// The number of its connection.
    id: u64,
    /// The mark for [`crate::session::conversation::Conversation::acknowledged`].
    mark: u64,
    /// The time of the commit.
    since: Instant,
}

/// An event loop.
pub struct EventLoop {
    shared: Arc<Shared>,
    executors: Executors,
    mailbox: Arc<Mailbox>,
    waker: Waker,
    calls: Arc<Calls>,
    poll: Poll,
    /// Boxed: a free place of the table takes a few bytes.
    connections: HashMap<u64, Box<Connection>>,
    /// Connections to serve in the next turn.
    listed: VecDeque<u64>,
    /// The database of the session and the queue.
    held: Held,
    session: Option<Session>,
    queue: Option<CommitQueue<Awaited>>,
    /// The era of a member: connections of earlier eras are closed.
    #[cfg(feature = "replication")]
    era: u64,
    /// The end of an era.
    parting: Option<Parting>,
    parked: Vec<(Ticket, u64)>,
    buffer: Vec<u8>,
    /// Until when the loop sends the rest.
    ends: Option<Instant>,
    /// The log has failed: clients are read, and told of the failure, at least until then.
    tells_until: Option<Instant>,
    /// Connections whose run goes on after a pause.
    pausing: Vec<u64>,
    /// Connections whose next command waits for the end of CLIENT PAUSE.
    set_aside: HashSet<u64>,
    /// Connections, by the time at which the wait of a command ends.
    deadlines: BTreeSet<(Instant, u64)>,
    idlers: Idlers,
    freeing: Freeing,
    /// Handshakes served in the current turn.
    shaken: usize,
}

impl EventLoop {
    /// Creates a loop.
    pub fn new(shared: &Arc<Shared>, executors: Executors) -> std::io::Result<EventLoop> {
        let poll = Poll::new()?;
        let waker = LoopWaker::new(poll.registry(), WAKER)?;
        let mailbox = Mailbox::new(waker.clone());
        shared.wiring.add_waker(waker.as_waker());
        Ok(EventLoop {
            shared: shared.clone(),
            executors,
            mailbox: Arc::new(mailbox),
            waker: waker.as_waker(),
            calls: Calls::new(waker.as_waker()),
            poll,
            connections: HashMap::new(),
            listed: VecDeque::new(),
            held: Held::default(),
            session: None,
            queue: None,
            #[cfg(feature = "replication")]
            era: 0,
            parting: None,
            parked: Vec::new(),
            buffer: vec![0; READ_BYTES],
            ends: None,
            tells_until: None,
            pausing: Vec::new(),
            set_aside: HashSet::new(),
            deadlines: BTreeSet::new(),
            idlers: Idlers::default(),
            freeing: Freeing::default(),
            shaken: 0,
        })
    }

    /// Returns the loop's mailbox.
    pub fn mailbox(&self) -> Arc<Mailbox> {
        self.mailbox.clone()
    }

    /// Runs until the server stops.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(1_024);
        loop {
            let sleeps = self.listed.is_empty();
            match self.poll.poll(&mut events, self.timeout(sleeps)) {
                Ok(()) => {}
                // The arrived events are not known, so no client is known to be idle.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return self.shared.stop(Stopping::Failed(format!("cannot poll: {error}")));
                }
            }
            self.shared.stats.counters.cycles.fetch_add(1, Relaxed);
            if sleeps {
                self.shared.stats.counters.turns.fetch_add(1, Relaxed);
            }
            self.note(&events);
            self.end_idle();
            if !self.turn() {
                self.connections.values_mut().for_each(|connection| connection.part());
                return;
            }
        }
    }

    /// Notes the events of a poll.
    fn note(&mut self, events: &Events) {
        let now_ms = self.shared.clock.now_ms();
        for event in events {
            if event.token() == WAKER {
                continue;
            }
            let id = event.token().0 as u64;
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.note(event);
            // The client is not idle, however long this thread was held up before it could look.
            if event.is_readable() {
                connection.entry.active_ms.store(now_ms, Relaxed);
            }
            self.list(id);
        }
        // Messages sent from here on wake the loop again.
        self.mailbox.reset();
        for message in self.take_messages() {
            match message {
                Message::Accepted(accepted) => self.accept(*accepted),
                Message::JobDone(id, reply, _held) => self.job_done(id, *reply),
            }
        }
        self.calls.take().into_iter().for_each(|id| self.list(id));
        let now = self.deadlines.first().map(|_| Instant::now());
        while let Some((deadline, id)) = self.deadlines.first().copied()
            && now.is_some_and(|now| deadline <= now)
        {
            self.deadlines.pop_first();
            self.list(id);
        }
    }

    fn job_done(&mut self, id: u64, reply: JobReply) {
        if self.drops_job(id, reply.end.is_certain) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let parked = connection.conversation.job_done(&self.shared, reply);
        match (&mut self.queue, parked) {
            (Some(queue), Some((ticket, mark))) => {
                queue.push(ticket, Awaited { id, mark, since: Instant::now() });
            }
            (Some(_), None) => {}
            // The database is being opened: nothing waits for its log.
            (None, _) if self.session.is_none() => {}
            // The log has failed meanwhile: a command that would go on waiting is told as well.
            (None, _) => connection.conversation.fail(&self.shared),
        }
        self.list(id);
    }

    /// Serves a connection in the next turn.
    fn list(&mut self, id: u64) {
        if let Some(connection) =
            self.connections.get_mut(&id).filter(|connection| !connection.is_listed)
        {
            connection.is_listed = true;
            self.listed.push_back(id);
        }
    }

    fn accept(&mut self, accepted: Accepted) {
        let Accepted { mut socket, addresses, tls, refusal } = accepted;
        let id = self.shared.clients.next_id();
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(id as usize);
        if self.poll.registry().register(&mut socket, token, interest).is_err() {
            self.mailbox.connections.fetch_sub(1, Relaxed);
            return;
        }
        let now = self.shared.clock.now_ms();
        let mut entry = ClientEntry::new(id, addresses, now, self.calls.clone());
        entry.is_unix = socket.is_unix();
        let mut connection = Connection::new(&self.shared, socket, tls, entry);
        self.note_era(&mut connection);
        if let Some(text) = refusal {
            connection.conversation.refuse(text);
        }
        self.shared.clients.add(connection.entry.clone());
        self.connections.insert(id, Box::new(connection));
        self.list(id);
    }

    /// A turn. False if the loop ends.
    fn turn(&mut self) -> bool {
        self.shared.stand_still();
        self.look_at_role();
        if self.session.is_none() && self.ends.is_none() && self.parting.is_none() {
            self.open_session();
        }
        self.look_for_stop();
        if let Some(session) = &mut self.session {
            session.turn();
            self.shared.free_deleted(session);
        }
        std::mem::take(&mut self.pausing).into_iter().for_each(|id| self.list(id));
        if !self.set_aside.is_empty() && self.shared.limits.pause.running().is_none() {
            std::mem::take(&mut self.set_aside).into_iter().for_each(|id| self.list(id));
        }
        self.free_unused();
        let now = self.shared.clock.now_ms();
        self.shaken = 0;
        let has_served = !self.listed.is_empty();
        let snapshot = self.open_snapshot();
        for _ in 0..self.listed.len() {
            let Some(id) = self.listed.pop_front() else { break };
            // Another loop may have begun a standstill in the current turn.
            self.shared.stand_still();
            if !self.puts_off(id) {
                self.serve(id, now, snapshot.as_ref());
            }
        }
        drop(snapshot);
        self.drain();
        self.end_telling();
        self.end_parting();
        self.plan_freeing(has_served);
        if self.listed.is_empty()
            && let Some(queue) = self.queue.as_mut().filter(|queue| !queue.is_empty())
        {
            queue.arm(&self.waker);
        }
        !self.ends.is_some_and(|ends| self.has_ended(ends))
    }

    /// Opens a session once the database is open.
    fn open_session(&mut self) {
        let held = self.shared.store.opened.hold();
        let Some(opened) = self.shared.store.opened.get() else { return };
        if !self.shared.store.opened.is_current(&held) {
            // It has come, or gone, just now: the loop was woken, and looks again.
            return;
        }
        match opened.database.session() {
            Ok(session) => {
                self.queue = Some(opened.database.commit_queue());
                (self.session, self.held) = (Some(session), held);
            }
            Err(error) if self.shared.parts_for(&error) => {}
            Err(error) => self.shared.stop(Stopping::Failed(error.to_string())),
        }
    }

    /// Reads, runs and writes one connection.
    fn serve(&mut self, id: u64, now: i64, snapshot: Option<&Snapshot>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.is_listed = false;
        if connection.is_handshaking() {
            connection.end_slow_handshake(&self.shared);
            self.shaken += 1;
            // Other connections are served between.
            if self.shaken > MOST_SHAKEN && !connection.is_cut_off() {
                return self.list(id);
            }
        }
        // A loop that ends runs nothing, and hands on published messages.
        connection.conversation.deliver();
        let has_deliverable = connection.conversation.has_deliverable();
        // Whatever the connection still has to run.
        if connection.is_cut_off() {
            // Its published messages wait for the disk: they are delivered even so.
            match connection.is_done() {
                true => self.close(id),
                false if has_deliverable => self.list(id),
                false => {}
            }
            return;
        }
        let is_running = self.ends.is_none() || self.tells_until.is_some();
        let mut next = Next::Wait;
        if is_running {
            connection.read(&self.shared, &mut self.buffer, now);
            let (session, parked) = (self.session.as_mut(), &mut self.parked);
            let mut turn = Turn { shared: &self.shared, session, parked, snapshot };
            next = connection.conversation.run(&mut turn);
        }
        for (ticket, mark) in self.parked.drain(..) {
            match &mut self.queue {
                Some(queue) => queue.push(ticket, Awaited { id, mark, since: Instant::now() }),
                // The log has failed: the transaction will not be acknowledged.
                None => connection.conversation.fail(&self.shared),
            }
        }
        if let Some(mut job) = connection.conversation.take_job() {
            // Dropped replies wait for no client.
            job.most = if job.is_silent { 0 } else { connection.limit(&self.shared).hard };
            let (done, held) = (self.mailbox.receiver_of(id), self.held.clone());
            self.executors.submit(job, held, connection.conversation.is_resp3(), done);
        }
        connection.write(&self.shared);
        note_deadline(&mut self.deadlines, &self.shared, id, connection);
        if connection.is_done() && next != Next::Again {
            return self.close(id);
        }
        match next {
            Next::Again => self.list(id),
            Next::Pause if connection.conversation.is_set_aside() => {
                self.set_aside.insert(id);
                // The client may have hung up behind the input read so far, or listens.
                if connection.has_traffic() {
                    self.list(id);
                }
            }
            Next::Pause => self.pausing.push(id),
            // A loop that ends reads no more, and sends the rest.
            Next::Wait if connection.has_more() => self.list(id),
            Next::Wait if connection.goes_on() && is_running => self.list(id),
            Next::Wait if has_deliverable => self.list(id),
            Next::Wait => {}
        }
    }

    fn close(&mut self, id: u64) {
        self.set_aside.remove(&id);
        if let Some(mut connection) = self.connections.remove(&id) {
            connection.deadline.map(|deadline| self.deadlines.remove(&(deadline, id)));
            connection.part();
            let _ = self.poll.registry().deregister(&mut connection.socket);
            // Once INFO shows that the client is gone, its place is free.
            self.mailbox.connections.fetch_sub(1, Relaxed);
            self.shared.clients.remove(id);
        }
    }

    /// Frees the replies of acknowledged transactions.
    fn drain(&mut self) {
        let Some(queue) = &mut self.queue else { return };
        let mut changed = Vec::new();
        let (connections, shared) = (&mut self.connections, &self.shared);
        let mut now = None;
        let result = queue.drain(|Awaited { id, mark, since }| {
            let now = *now.get_or_insert_with(Instant::now);
            shared.stats.note_acknowledged(now.saturating_duration_since(since));
            if let Some(connection) = connections.get_mut(&id) {
                connection.conversation.acknowledged(mark);
                if changed.last() != Some(&id) {
                    changed.push(id);
                }
            }
        });
        if result.is_err() {
            return self.fail();
        }
        for id in changed {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.write(&self.shared);
            note_deadline(&mut self.deadlines, &self.shared, id, connection);
            // The connection may have been too far behind to be read, and may be done.
            if connection.is_done() {
                self.close(id);
            } else if connection.goes_on() || connection.conversation.has_deliverable() {
                self.list(id);
            }
        }
    }
}
