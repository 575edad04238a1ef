//! Conversations without sockets and threads: many clients of a few loops, run on request, on a log
//! written on request, in the time of the calling thread. The module exists for
//! `hyades-lab torture --clients resp`.

use crate::clients::{Calls, ClientEntry};
use crate::config::Settings;
use crate::data::Tables;
use crate::data::collections::remove_garbage;
use crate::session::conversation::{Conversation, Next, Turn};
use crate::state::{Opened, Shared};
use crate::upkeep::{opening, reaper};
use hyades::{Builder, CommitQueue, Database, Error, Session, Ticket};
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

/// The state of an event loop.
struct StageLoop {
    session: Session,
    queue: CommitQueue<(usize, u64)>,
}

/// A client, until it disconnects.
struct StageClient {
    conversation: Conversation,
    entry: Arc<ClientEntry>,
    /// The loop of the client.
    on: usize,
    /// Bytes sent to the client.
    taken: usize,
    /// Bytes written, as far as reported.
    reported: usize,
}

/// The result of a turn of a client.
#[derive(Debug, Default)]
pub struct StageTurn {
    /// The replies to the commands run, sendable or not.
    pub replies: Vec<u8>,
    /// Marks of transactions not yet acknowledged; see [`SteppedServer::drain`].
    pub marks: Vec<u64>,
    /// The client goes on after a pause: the log has no room.
    pub is_paused: bool,
}

/// A server without sockets and threads.
pub struct SteppedServer {
    shared: Arc<Shared>,
    opened: Opened,
    loops: Vec<StageLoop>,
    clients: Vec<Option<StageClient>>,
}

impl SteppedServer {
    /// Opens a database in `dir` and a server of some loops on top, with settings as on a command
    /// line.
    ///
    /// # Errors
    /// Errors of opening a database.
    ///
    /// # Panics
    /// A setting is wrong.
    pub fn open(
        mut builder: Builder,
        dir: &Path,
        loops: usize,
        settings: &[&str],
    ) -> Result<SteppedServer, Error> {
        let settings = Settings::from_arguments(settings).expect("the settings are right");
        let shared = Shared::new(settings);
        shared.scripts.run_whole();
        let tables = Tables::declare(&mut builder);
        let database = builder.open(dir)?;
        opening::count_keys(&shared, &database, tables)?;
        let open = |_| {
            let (session, queue) = (database.session()?, database.commit_queue());
            Ok(StageLoop { session, queue })
        };
        let loops = (0..loops).map(open).collect::<Result<_, Error>>()?;
        let opened = Opened { database, tables };
        assert!(shared.store.opened.set(opened.clone()).is_ok(), "it is new");
        Ok(SteppedServer { shared, opened, loops, clients: Vec::new() })
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.opened.database
    }

    /// Connects a client to a loop. Returns the number of the client here.
    pub fn connect(&mut self, on: usize) -> usize {
        let id = self.shared.clients.next_id();
        let addresses = (format!("127.0.0.1:{id}"), "127.0.0.1:6379".to_string());
        let entry = ClientEntry::new(id, addresses, 0, Calls::new(Waker::noop().clone()));
        let entry = Arc::new(entry);
        self.shared.clients.add(entry.clone());
        let conversation = Conversation::new(&self.shared.access, entry.clone());
        let client = StageClient { conversation, entry, on, taken: 0, reported: 0 };
        self.clients.push(Some(client));
        self.clients.len() - 1
    }

    /// Disconnects a client.
    pub fn disconnect(&mut self, number: usize) {
        if let Some(client) = self.clients[number].take() {
            self.shared.clients.remove(client.entry.id);
        }
    }

    fn client(&mut self, number: usize) -> &mut StageClient {
        self.clients[number].as_mut().expect("it is connected")
    }

    /// The client's id, as from CLIENT ID.
    pub fn id(&mut self, number: usize) -> u64 {
        self.client(number).entry.id
    }

    /// Sends bytes from the client.
    pub fn feed(&mut self, number: usize, bytes: &[u8]) {
        self.client(number).conversation.feed(bytes);
    }

    /// Whether the client has requests to run.
    pub fn has_work(&mut self, number: usize) -> bool {
        let conversation = &self.client(number).conversation;
        conversation.has_work() && !conversation.is_full()
    }

    /// Whether the client waits for an element.
    pub fn is_blocked(&mut self, number: usize) -> bool {
        self.client(number).conversation.is_blocked()
    }

    /// Runs a turn of the client on its loop.
    pub fn run(&mut self, number: usize) -> StageTurn {
        let client = self.clients[number].as_mut().expect("it is connected");
        let StageLoop { session, queue } = &mut self.loops[client.on];
        session.turn();
        let mut parked: Vec<(Ticket, u64)> = Vec::new();
        let conversation = &mut client.conversation;
        let session = Some(session);
        let mut turn = Turn { shared: &self.shared, session, parked: &mut parked, snapshot: None };
        let next = conversation.run(&mut turn);
        if let Some(job) = conversation.take_job() {
            let reply = job.run(&self.shared, conversation.is_resp3());
            parked.extend(conversation.job_done(&self.shared, reply));
        }
        let marks = parked.iter().map(|(_, mark)| *mark).collect();
        for (ticket, mark) in parked {
            queue.push(ticket, (number, mark));
        }
        let written = conversation.written();
        let end = client.taken + written.len();
        let replies = written[client.reported - client.taken..].to_vec();
        client.reported = end;
        StageTurn { replies, marks, is_paused: next == Next::Pause }
    }

    /// Takes the sendable replies for the client.
    pub fn output(&mut self, number: usize) -> Vec<u8> {
        let client = self.client(number);
        let mut output = Vec::new();
        loop {
            let ready = client.conversation.output();
            if ready.is_empty() {
                break;
            }
            output.extend_from_slice(ready);
            let sent = ready.len();
            client.conversation.sent(sent);
        }
        client.taken += output.len();
        output
    }

    /// Frees the replies of acknowledged transactions of a loop: of the returned clients and marks.
    ///
    /// # Errors
    /// The log has failed: parked replies become errors, see [`SteppedServer::output`], and nothing
    /// more may be run.
    pub fn drain(&mut self, loop_number: usize) -> Result<Vec<(usize, u64)>, Error> {
        let (clients, mut freed) = (&mut self.clients, Vec::new());
        let result = self.loops[loop_number].queue.drain(|(number, mark)| {
            if let Some(client) = &mut clients[number] {
                client.conversation.acknowledged(mark);
                freed.push((number, mark));
            }
        });
        if let Err(error) = result {
            let fail = |client: &mut StageClient| client.conversation.fail(&self.shared);
            self.clients.iter_mut().flatten().for_each(fail);
            return Err(error);
        }
        Ok(freed)
    }

    /// Removes expired keys, or some blocks of collections that are no value any more.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn reap(&mut self, garbage: bool) -> Result<(), Error> {
        let Opened { database, tables } = &self.opened;
        if garbage {
            remove_garbage(&mut database.session()?, *tables).map(drop)
        } else {
            reaper::reap(&self.shared, &self.opened)
        }
    }
}
