//! A waker for a thread that sleeps until one of its transactions is acknowledged, and for other
//! events at the same time.

use super::CommitQueue;
use hyades_wal::Lane;
use std::task::Waker;

impl<T> CommitQueue<T> {
    /// Has `waker` woken once [`CommitQueue::drain`] would make progress, or the log fails; at once
    /// if it would by now. The streams that transactions wait for stop collecting work and write.
    ///
    /// For a thread that sleeps until any of several events: drain, arm, and sleep until it is
    /// woken. A waker may be woken early, and a queue is always armed with the same one: a position
    /// for which it was armed already is not armed again. An empty queue wakes nothing.
    ///
    /// ```
    /// use hyades::{Database, Schema, Type};
    /// use std::{sync::Arc, task::{Wake, Waker}, thread::{self, Thread}};
    ///
    /// struct Unpark(Thread);
    /// impl Wake for Unpark {
    ///     fn wake(self: Arc<Self>) {
    ///         self.0.unpark();
    ///     }
    /// }
    /// # let dir = tempfile::tempdir()?;
    /// let mut builder = Database::builder();
    /// let names = builder.table(Schema::new("names").column("n", Type::Text).primary_key(&["n"]));
    /// let db = builder.open(dir.path())?;
    /// let (mut session, mut queue) = (db.session()?, db.commit_queue());
    /// let waker = Waker::from(Arc::new(Unpark(thread::current())));
    /// let (_, ticket) = session.submit(|tx| Ok(tx.insert(names, &["Ain".into()])?))?;
    /// queue.push(ticket, ());
    /// while queue.drain(drop)? == 0 {
    ///     queue.arm(&waker);
    ///     thread::park(); // until the waker is woken, or for another reason
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn arm(&mut self, waker: &Waker) {
        if !self.free.is_empty() {
            waker.wake_by_ref();
        }
        let Some(handles) = &self.handles else { return };
        for (lane, queue) in Lane::first(self.lanes.len()).zip(&mut self.lanes) {
            let Some(lowest) = queue.lowest() else { continue };
            // A waker parked at a position that is not reached yet is still parked there. If that
            // is below `lowest`, it is woken early, and the queue is armed again.
            let is_parked = handles.log.frontier().at(lane) < queue.armed && queue.armed <= lowest;
            if !is_parked {
                queue.armed = lowest;
                handles.log.register(lane, lowest, waker.clone());
            }
        }
    }
}
