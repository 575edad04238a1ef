//! The writer of lanes that are new and have no other writer: no lease is kept, and no process
//! takes over. For measurements and tests.

use crate::appender::Appender;
use crate::lease::{self, Holder, Lease};
use crate::seal::{Writer, seal_new_lane};
use crate::service::{LogService, Patience, Revision};
use hyades_wal::{Lsn, Remote, RemoteEnded, RemoteIncarnation};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long the service is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Begins new lanes with the first incarnation of the log that names the writer as its remote.
#[derive(Debug)]
pub struct FirstAppender {
    service: Arc<dyn LogService>,
    node: String,
    /// Set when the incarnation begins.
    appender: OnceLock<Appender>,
}

impl FirstAppender {
    /// A writer on the node of this name.
    pub fn new(service: Arc<dyn LogService>, node: &str) -> FirstAppender {
        FirstAppender { service, node: node.to_owned(), appender: OnceLock::new() }
    }

    fn appender(&self) -> &Appender {
        self.appender.get().expect("the log begins an incarnation before it sends")
    }

    /// Draws the number of the incarnation. A process that has drawn the number before goes on.
    fn draw(&self, begun: &RemoteIncarnation<'_>) -> Result<(), RemoteEnded> {
        let holder =
            Holder { node: self.node.clone(), address: String::new(), place: String::new() };
        let own = Lease::new(&begun.log, begun.number, &holder, begun.epoch_floor);
        loop {
            let seen = match lease::newest(&*self.service)? {
                Some((_, lease)) if lease == own => return Ok(()),
                Some((_, lease)) if lease.incarnation >= own.incarnation => {
                    return Err(RemoteEnded::Fenced { by: lease.incarnation });
                }
                Some((revision, _)) => revision,
                None => Revision::NONE,
            };
            if lease::take(&*self.service, seen, &own)?.is_some() {
                return Ok(());
            }
        }
    }
}

impl Remote for FirstAppender {
    fn max_batch_bytes(&self) -> usize {
        Appender::max_batch_bytes_of(&*self.service)
    }

    fn begin(&self, begun: &RemoteIncarnation<'_>) -> Result<(), RemoteEnded> {
        self.draw(begun)?;
        let (database, incarnation) = (begun.log, begun.number);
        let writer = Writer { database, incarnation, node: self.node.clone() };
        let patience = Patience::new(PATIENCE);
        let lanes = begun.streams.iter().enumerate().map(|(stream, (_, start))| {
            let lane = (stream, begun.streams.len());
            Ok((seal_new_lane(&*self.service, lane, (&writer, &patience), *start)?, *start))
        });
        let lanes = lanes.collect::<Result<Vec<_>, RemoteEnded>>()?;
        let appender = Appender::new(self.service.clone(), writer, &lanes, None);
        appender.begin(begun)?;
        let is_first = self.appender.set(appender).is_ok();
        debug_assert!(is_first, "a remote begins once");
        Ok(())
    }

    fn send(&self, stream: usize, start: Lsn, frames: [&[u8]; 2]) {
        self.appender().send(stream, start, frames);
    }

    fn stored(&self, stream: usize, wait: bool) -> Option<Result<(), RemoteEnded>> {
        self.appender().stored(stream, wait)
    }

    fn end(&self) {
        if let Some(appender) = self.appender.get() {
            appender.end();
        }
    }
}
