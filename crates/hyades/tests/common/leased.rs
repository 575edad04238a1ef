//! A primary with a replicated log in memory, and a lease of answers.

use super::directory;
use hyades::wal::{AnswerLease, Lsn, Remote, RemoteEnded};
use hyades::{
    Abort, Attempt, Builder, Column, Columns, Database, Error, ProcedureId, Schema, Session, Table,
    Transaction, Type,
};
use hyades_platform::clock;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

pub const WORDS: Table = Table::nth(0);
pub const WORD: Column<str> = Column::at(1);

/// A remote with a lease, which stores a batch unless told to hold or to refuse it.
#[derive(Debug, Default)]
pub struct LeasedRemote {
    pub lease: Arc<AnswerLease>,
    state: Mutex<RemoteState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RemoteState {
    holds: bool,
    fenced_by: Option<u32>,
    ended: bool,
}

impl LeasedRemote {
    fn tell(&self, change: impl FnOnce(&mut RemoteState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Extends the lease beyond the end of any test.
    pub fn extend(&self) {
        self.lease.extend(clock::boot_ns() + 3_600_000_000_000);
    }

    /// Stores nothing from now on, or stores again.
    pub fn hold(&self, holds: bool) {
        self.tell(|state| state.holds = holds);
    }

    /// Refuses every batch from now on: a successor has sealed the log.
    pub fn fence(&self, by: u32) {
        self.tell(|state| state.fenced_by = Some(by));
    }
}

impl Remote for LeasedRemote {
    fn max_batch_bytes(&self) -> usize {
        1 << 20
    }

    fn send(&self, _: usize, _: Lsn, _: [&[u8]; 2]) {}

    fn stored(&self, _: usize, wait: bool) -> Option<Result<(), RemoteEnded>> {
        let waits =
            |state: &mut RemoteState| state.holds && state.fenced_by.is_none() && !state.ended;
        let mut state = self.state.lock().unwrap();
        if wait {
            state = self.changed.wait_while(state, waits).unwrap();
        }
        match state.fenced_by {
            Some(by) => Some(Err(RemoteEnded::Fenced { by })),
            None if state.ended => Some(Err(RemoteEnded::Stopped)),
            None => (!state.holds).then_some(Ok(())),
        }
    }

    fn lease(&self) -> Option<Arc<AnswerLease>> {
        Some(Arc::clone(&self.lease))
    }

    fn end(&self) {
        self.tell(|state| state.ended = true);
    }
}

/// Declares the table of words, and a procedure that reads.
pub fn declared(mut builder: Builder) -> (Builder, ProcedureId) {
    let schema = Schema::new("words").column("id", Type::I64).column("word", Type::Text);
    builder.table(schema.primary_key(&["id"]));
    let find = builder.procedure("find", 1, |tx: &Transaction<'_>, id: i64| {
        Ok(tx.get(WORDS, id)?.map(|row| row.get(WORD).to_string()))
    });
    (builder, find)
}

/// An open primary, whose lease has run out.
pub struct Leased {
    pub remote: Arc<LeasedRemote>,
    pub db: Database,
    pub find: ProcedureId,
    pub dir: tempfile::TempDir,
}

impl Leased {
    /// Opens a primary with a row.
    pub fn open(change: impl FnOnce(Builder) -> Builder) -> Leased {
        let (remote, dir) = (Arc::new(LeasedRemote::default()), directory());
        let (builder, find) = declared(change(Database::builder().streams(2)));
        let db = builder.remote(remote.clone()).open(dir.path()).unwrap();
        let put = |tx: &Transaction<'_>| Ok(tx.insert(WORDS, &[1i64.into(), "Ain".into()])?);
        // The ticket may need the lease.
        drop(db.session().unwrap().submit(put).unwrap());
        db.log().unwrap().flush().unwrap();
        Leased { remote, db, find, dir }
    }

    /// Writes a row, and returns once the row is stored.
    pub fn put(&self, id: i64, word: &str) -> Result<(), Error> {
        self.db.transact(|tx| Ok(tx.upsert(WORDS, &[id.into(), word.into()]).map(drop)?))
    }
}

fn word(tx: &Transaction<'_>) -> Result<String, Abort> {
    let row = tx.get(WORDS, 1i64)?.ok_or(Abort::User(1))?;
    Ok(row.get(WORD).to_string())
}

fn attempt(session: &mut Session, fails: bool) -> Result<String, Error> {
    let body = |tx: &Transaction<'_>| match word(tx)? {
        word if fails && word == "Ain" => Err(Abort::User(7)),
        word => Ok(word),
    };
    match session.attempt(body)? {
        Attempt::Committed(word, ticket) => ticket.wait().map(|()| word),
        Attempt::Abandoned(Abort::User(7), ticket) => ticket.wait().map(|()| "Ain".to_string()),
        other => panic!("{other:?}"),
    }
}

/// A way to read row 1, which returns once the answer may be given.
pub type Reader = fn(&Leased) -> Result<String, Error>;

/// The ways to read, by name.
pub const READERS: [(&str, Reader); 15] = [
    ("closure", |l| l.db.transact(|tx| Ok(word(tx)?))),
    ("error of a closure", |l| {
        match l.db.try_transact(|tx| word(tx).and(Err::<(), _>(Abort::User(7))))? {
            Err(Abort::User(7)) => Ok("Ain".to_string()),
            other => panic!("{other:?}"),
        }
    }),
    ("error of a submitted closure", |l| {
        let body = |tx: &Transaction<'_>| word(tx).and(Err::<(), _>(Abort::User(7)));
        match l.db.session()?.submit(|tx| Ok(body(tx)?)) {
            Err(Error::Aborted(Abort::User(7))) => Ok("Ain".to_string()),
            Err(error) => Err(error),
            Ok(_) => panic!("the closure fails"),
        }
    }),
    ("submitted closure", |l| {
        let (word, ticket) = l.db.session()?.submit(|tx| Ok(word(tx)?))?;
        ticket.wait().map(|()| word)
    }),
    ("attempt", |l| attempt(&mut l.db.session()?, false)),
    ("attempt that fails", |l| attempt(&mut l.db.session()?, true)),
    ("open transaction", |l| {
        let mut session = l.db.session()?;
        let open = session.begin()?;
        let word = word(&open.tx())?;
        open.commit()?.wait().map(|()| word)
    }),
    ("open transaction, rolled back", |l| {
        let mut session = l.db.session()?;
        let open = session.begin()?;
        let word = word(&open.tx())?;
        open.roll_back()?.wait().map(|()| word)
    }),
    ("call", |l| Ok(l.db.call::<_, Option<String>>("find", &1i64)?.unwrap_or_default())),
    ("call of a session", |l| {
        let mut session = l.db.session()?;
        let (outcome, ticket) = session.call(l.find, &1i64)?;
        outcome?;
        ticket.wait()?;
        Ok(session.result::<Option<String>>()?.unwrap_or_default())
    }),
    ("posted call", |l| {
        Ok(l.db.post::<_, Option<String>>(l.find, &1i64)?.wait()?.unwrap_or_default())
    }),
    ("snapshot", |l| l.db.snapshot(|tx| Ok(word(tx)?))),
    ("snapshot of a session", |l| {
        let (word, ticket) = l.db.session()?.snapshot(|tx| Ok(word(tx)?))?;
        ticket.wait().map(|()| word)
    }),
    ("walk over a snapshot", |l| {
        let mut found = String::new();
        let visit = |row: &hyades::Row<'_>| found = row.get(WORD).to_string();
        l.db.open_snapshot().for_each(WORDS, Columns::ALL, visit).map(|_| found)
    }),
    ("commit queue", |l| {
        let (mut session, mut queue) = (l.db.session()?, l.db.commit_queue());
        let (word, ticket) = session.submit(|tx| Ok(word(tx)?))?;
        queue.push(ticket, ());
        while queue.drain(drop)? == 0 {
            queue.wait_for_one()?;
        }
        Ok(word)
    }),
];

/// Whether a reader gets no answer while the lease has run out, and then the right one.
pub fn is_held(leased: &Leased, reader: Reader) -> bool {
    thread::scope(|scope| {
        let reads = scope.spawn(|| reader(leased));
        thread::sleep(Duration::from_millis(10));
        let is_held = !reads.is_finished();
        leased.remote.extend();
        assert_eq!(reads.join().unwrap().unwrap(), "Ain");
        is_held
    })
}
