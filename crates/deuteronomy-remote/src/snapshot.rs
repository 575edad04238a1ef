//! Snapshots of the data at a server. A snapshot has a connection of its own, and ends with it.

use crate::connection::Connection;
use crate::message::{Refusal, Request, decode_answer};
use crate::peer::{Missed, Peer, decode_found, scan, unreadable};
use hyades_deuteronomy::{DataSnapshot, Error, Found, KeyRange, Operation, ScanOrder};
use hyades_platform::sync::locked;
use std::ops::ControlFlow;
use std::sync::Mutex;

#[derive(Debug)]
pub(crate) struct RemoteSnapshot {
    /// Locked for single requests.
    connection: Mutex<Connection>,
}

impl RemoteSnapshot {
    /// Begins a snapshot; None if the data component keeps none.
    pub fn begin(server: &Peer) -> Result<Option<Self>, Missed> {
        let (boot, mut connection) = server.connection()?;
        let answer = connection.ask(&Request::Snapshot.encode())?;
        let answer = decode_answer(answer).map(|answer| answer.map(<[u8]>::to_vec));
        match unreadable(answer).map_err(Missed::Refused)? {
            Ok(has_one) if has_one == [1] => Ok(Some(Self { connection: Mutex::new(connection) })),
            Ok(_) => Ok(None),
            Err(Refusal::Restarted) => Err(Missed::Restarted(boot)),
            Err(refusal) => Err(Missed::Refused(failed(refusal))),
        }
    }

    fn ask(&self, request: &[u8]) -> Result<Vec<u8>, Error> {
        let mut connection = locked(&self.connection);
        let answer = connection.ask(request).map_err(|why| {
            Error::DataComponent(format!(
                "the snapshot ended with its connection to the server of the data ({why}): begin \
                 another one"
            ))
        })?;
        unreadable(decode_answer(answer))?.map(<[u8]>::to_vec).map_err(failed)
    }
}

fn failed(refusal: Refusal) -> Error {
    Error::DataComponent(match refusal {
        Refusal::Failed(why) => why,
        Refusal::Restarted => "the server of the data was restarted".to_string(),
        Refusal::Displaced => "another database has taken this one's place".to_string(),
    })
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
