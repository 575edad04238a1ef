//! The beginning of an incarnation, as the log service keeps the beginning: the writer, its number,
//! and what a member has to know before the first record.
//!
//! A process draws a number by replacing the key `lease` under the condition that no other process
//! has replaced the key meanwhile, so a number has one writer. The process seals the lanes, and
//! then creates the key `begin.N`, which never changes. Members read the lanes of incarnation N
//! once the key is there.

use crate::hex::{hex, unhex};
use crate::seal::Writer;
use crate::service::{LogService, Reply, Request, Revision, Versioned};
use hyades_wal::{
    Dimension, Incarnation, IncarnationSettings, Lsn, RemoteEnded, RemoteIncarnation, StreamId,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The format of the keys.
const FORMAT: u32 = 1;
const LEASE: &str = "lease";

/// The value of the key `lease`: the newest incarnation, and its writer's node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    format: u32,
    /// The number.
    pub incarnation: u32,
    /// The node.
    pub node: String,
}

/// The value of the key `begin.N`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    format: u32,
    /// The node of the writer.
    pub node: String,
    /// The database's uuid, in hexadecimal digits.
    pub database: String,
    /// The incarnation, with its streams and starts.
    pub incarnation: Incarnation,
    /// All epochs up to here count as used.
    pub epoch_floor: u64,
    /// The engine's catalogue, in hexadecimal digits.
    pub catalogue: String,
}

fn different(what: impl Into<String>) -> RemoteEnded {
    RemoteEnded::Different(what.into())
}

impl Begin {
    /// The beginning of an incarnation that a node writes.
    pub fn of(begun: &RemoteIncarnation<'_>, node: &str) -> Begin {
        let dim =
            |&(stream, start): &(StreamId, Lsn)| Dimension { stream, start, end: None, mark: 0 };
        let incarnation = Incarnation {
            number: begun.number,
            data_only: begun.data_only,
            protocol: begun.protocol.to_owned(),
            settings: begun.settings.clone(),
            clean: false,
            dims: begun.streams.iter().map(dim).collect(),
        };
        Begin {
            format: FORMAT,
            node: node.to_owned(),
            database: hex(&begun.log),
            incarnation,
            epoch_floor: begun.epoch_floor,
            catalogue: hex(begun.catalogue),
        }
    }

    /// The database's uuid. `None` if the text is none.
    pub fn database(&self) -> Option<[u8; 16]> {
        unhex(&self.database)?.try_into().ok()
    }

    /// The engine's catalogue. `None` if the text is none.
    pub fn catalogue(&self) -> Option<Vec<u8>> {
        unhex(&self.catalogue)
    }

    /// The settings of the incarnation, for a copy of the log.
    pub fn settings(&self) -> IncarnationSettings {
        let Incarnation { data_only, protocol, settings, .. } = self.incarnation.clone();
        IncarnationSettings {
            data_only,
            protocol,
            settings,
            catalogue: self.catalogue().unwrap_or_default(),
        }
    }

    fn key(number: u32) -> String {
        format!("begin.{number}")
    }
}

/// Reads a key, and waits for the service. `None`: the key has no value.
fn get(service: &dyn LogService, key: &str) -> Result<Option<Versioned>, RemoteEnded> {
    loop {
        match service.ask(Request::Get { key: key.to_owned() }) {
            Reply::Value(value) => return Ok(value),
            Reply::Gone(what) => return Err(RemoteEnded::Different(what)),
            _ => {}
        }
    }
}

fn decode<T: for<'d> Deserialize<'d>>(key: &str, value: &[u8]) -> Result<T, RemoteEnded> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let wrong = |why: String| different(format!("key {key:?} of the log service: {why}"));
    let Format { format } =
        serde_json::from_slice(value).map_err(|error| wrong(error.to_string()))?;
    if format != FORMAT {
        return Err(wrong(format!(
            "its format is {format}, and this program knows format {FORMAT}: use the program that \
             wrote it"
        )));
    }
    serde_json::from_slice(value).map_err(|error| wrong(error.to_string()))
}

/// Reads the newest incarnation's number and node, if there is one.
///
/// # Errors
/// The service holds something else.
pub fn newest(service: &dyn LogService) -> Result<Option<Lease>, RemoteEnded> {
    get(service, LEASE)?.map(|(_, value)| decode(LEASE, &value)).transpose()
}

/// Reads the beginning of an incarnation. `None`: the incarnation has not begun.
///
/// # Errors
/// The service holds something else.
pub fn read(service: &dyn LogService, number: u32) -> Result<Option<Begin>, RemoteEnded> {
    let key = Begin::key(number);
    let Some((_, value)) = get(service, &key)? else { return Ok(None) };
    let begin: Begin = decode(&key, &value)?;
    if begin.database().is_none() || begin.catalogue().is_none() {
        return Err(different(format!("key {key:?} of the log service has no hexadecimal digits")));
    }
    Ok(Some(begin))
}

/// Draws the number of the writer's incarnation. A process that has drawn the number before, on the
/// same node, goes on: the lock of the directory keeps a second process of the node out.
///
/// # Errors
/// Another process has drawn the number or a higher one.
pub(crate) fn draw(service: &dyn LogService, writer: &Writer) -> Result<(), RemoteEnded> {
    let own = Lease { format: FORMAT, incarnation: writer.incarnation, node: writer.node.clone() };
    let value = Arc::new(serde_json::to_vec(&own).expect("a lease is plain"));
    loop {
        let found = get(service, LEASE)?;
        let known: Option<Lease> =
            found.as_ref().map(|(_, value)| decode(LEASE, value)).transpose()?;
        match known {
            Some(known) if known == own => return Ok(()),
            Some(known) if known.incarnation >= own.incarnation => {
                return Err(RemoteEnded::Fenced { by: known.incarnation });
            }
            _ => {}
        }
        let after = found.map_or(Revision::NONE, |(revision, _)| revision);
        let put = Request::Put { key: LEASE.to_owned(), after, value: value.clone() };
        match service.ask(put) {
            Reply::Put(_) => return Ok(()),
            Reply::Gone(what) => return Err(RemoteEnded::Different(what)),
            // Refused, or not known: look again.
            _ => {}
        }
    }
}

/// Tells members that the incarnation has begun. Repeating the call does no harm.
///
/// # Errors
/// The incarnation has begun otherwise.
pub(crate) fn announce(service: &dyn LogService, begin: &Begin) -> Result<(), RemoteEnded> {
    let key = Begin::key(begin.incarnation.number);
    let value = Arc::new(serde_json::to_vec(begin).expect("a beginning is plain"));
    loop {
        let put = Request::Put { key: key.clone(), after: Revision::NONE, value: value.clone() };
        match service.ask(put) {
            Reply::Put(_) => return Ok(()),
            Reply::Gone(what) => return Err(RemoteEnded::Different(what)),
            _ => {}
        }
        match get(service, &key)? {
            Some((_, found)) if found == value => return Ok(()),
            Some(_) => return Err(different(format!("key {key:?} of the log service is taken"))),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{Faults, SimulatedLog};

    fn writer(incarnation: u32, node: &str) -> Writer {
        Writer { database: [1; 16], incarnation, node: node.into() }
    }

    #[test]
    fn a_number_is_drawn_once() {
        for seed in 0..50 {
            let faults = Faults { lost_requests: 0.3, lost_replies: 0.3, ..Faults::default() };
            let service = SimulatedLog::new(1, seed, faults);
            assert_eq!(newest(&service), Ok(None));
            draw(&service, &writer(3, "a")).unwrap();
            draw(&service, &writer(3, "a")).unwrap();
            assert_eq!(draw(&service, &writer(3, "b")), Err(RemoteEnded::Fenced { by: 3 }));
            assert_eq!(draw(&service, &writer(2, "b")), Err(RemoteEnded::Fenced { by: 3 }));
            draw(&service, &writer(4, "b")).unwrap();
            assert_eq!(draw(&service, &writer(3, "a")), Err(RemoteEnded::Fenced { by: 4 }));
            assert_eq!(newest(&service).unwrap().unwrap().node, "b");
        }
    }

    #[test]
    fn other_formats_are_refused() {
        let service = SimulatedLog::new(1, 1, Faults::default());
        let put = |key: &str, text: &str| {
            let value = Arc::new(text.as_bytes().to_vec());
            service.ask(Request::Put { key: key.into(), after: Revision::NONE, value })
        };
        put("lease", r#"{"format":2,"incarnation":1,"node":"a"}"#);
        let error = newest(&service).unwrap_err().to_string();
        assert!(error.contains("format is 2"), "{error}");
        put("begin.1", "[]");
        assert!(read(&service, 1).unwrap_err().to_string().contains("begin.1"));
        assert_eq!(read(&service, 2), Ok(None));
    }
}
