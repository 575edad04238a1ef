//! Snapshots of the data at a server. A snapshot has a connection of its own, and ends with it.

use crate::connection::Connection;
use crate::message::Request;
use crate::peer::{Missed, Peer, decode_found, fields, scan};
use hyades_deuteronomy::{DataSnapshot, Error, Found, KeyRange, Operation, ScanOrder};
use hyades_platform::sync::locked;
use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::Mutex;

#[derive(Debug)]
pub(crate) struct RemoteSnapshot {
    /// Locked for single requests.
    connection: Mutex<Connection>,
    boot: u64,
}

impl RemoteSnapshot {
    /// Begins a snapshot; None if the data component keeps none.
    pub fn begin(server: &Peer) -> Result<Option<Self>, Missed> {
        let (boot, mut connection) = server.connection()?;
        let is_kept = fields(connection.ask(&Request::Snapshot.encode())?, boot)? == [1];
        Ok(is_kept.then(|| Self { connection: Mutex::new(connection), boot }))
    }

    fn ask(&self, request: &[u8]) -> Result<Vec<u8>, Error> {
        let mut connection = locked(&self.connection);
        let answer = connection.ask(request).map_err(Missed::from);
        let ended = |why: &dyn Display| {
            Error::DataComponent(format!(
                "the snapshot ended with its connection to the server of the data ({why}): begin \
                 another one"
            ))
        };
        match answer.and_then(|answer| fields(answer, self.boot)) {
            Ok(answer) => Ok(answer.to_vec()),
            Err(Missed::Refused(error)) => Err(error),
            Err(Missed::Unreached(why)) => Err(ended(&why)),
            Err(Missed::Restarted(_)) => Err(ended(&"the server was restarted")),
        }
    }
}

impl DataSnapshot for RemoteSnapshot {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        decode_found(&self.ask(&Request::Get(key).encode())?)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        scan((range, order), each, |request| self.ask(request))
    }
}
