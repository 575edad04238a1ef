//! The beginning of an incarnation, as the log service keeps the beginning: the writer, its number,
//! and what a member has to know before the first record.
//!
//! A process draws a number by taking the [`lease`], so a number has one writer. The
//! process seals the lanes, and then creates the key `begin.N`, which never changes. Members read
//! the lanes of incarnation N once the key is there.

use crate::hex::{hex, unhex};
use crate::keys::{self, FORMAT, different};
use crate::lane_place::LanePlace;
use crate::lease;
use crate::service::{LogService, Reply, Revision};
use hyades_wal::{
    Dimension, Incarnation, IncarnationSettings, Lsn, RemoteEnded, RemoteIncarnation, StreamId,
};
use serde::{Deserialize, Serialize};

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
    /// Whether the database had content that no lane has.
    pub needs_base: bool,
    /// By lane, the seal of the incarnation, behind which its messages are.
    pub seals: Vec<SealPlace>,
}

/// The seal of an incarnation in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealPlace {
    /// Its place.
    pub place: u64,
    /// Its chain.
    pub chain: u32,
}

impl Begin {
    /// The beginning of an incarnation that a node writes; `seals`: by lane.
    pub fn of(begun: &RemoteIncarnation<'_>, node: &str, seals: Vec<SealPlace>) -> Begin {
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
            needs_base: false,
            seals,
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

    /// By lane, where the reading of the incarnation begins.
    pub(crate) fn places(&self) -> Vec<LanePlace> {
        let lanes = self.seals.iter().zip(&self.incarnation.dims);
        let place = |(seal, dim): (&SealPlace, &Dimension)| LanePlace {
            incarnation: self.incarnation.number,
            place: seal.place,
            next: 0,
            chain: seal.chain,
            end: dim.start,
        };
        lanes.map(place).collect()
    }

    fn key(number: u32) -> String {
        format!("begin.{number}")
    }
}

/// Reads the beginning of an incarnation. `None`: the incarnation has not begun.
///
/// # Errors
/// The service holds something else.
pub fn read(service: &dyn LogService, number: u32) -> Result<Option<Begin>, RemoteEnded> {
    let key = Begin::key(number);
    let Some((_, value)) = keys::get(service, &key)? else { return Ok(None) };
    let begin: Begin = keys::decode(&key, &value)?;
    if begin.database().is_none() || begin.catalogue().is_none() {
        return Err(different(format!("key {key:?} of the log service has no hexadecimal digits")));
    }
    if begin.seals.len() != begin.incarnation.dims.len() {
        return Err(different(format!("key {key:?} of the log service has no seal of each lane")));
    }
    Ok(Some(begin))
}

/// Reads the beginning of the first incarnation that has begun, of those behind `number`.
///
/// # Errors
/// The service holds something else.
pub fn next(service: &dyn LogService, number: u32) -> Result<Option<Begin>, RemoteEnded> {
    let newest = lease::newest(service)?.map_or(0, |(_, lease)| lease.incarnation);
    for later in number + 1..=newest {
        if let Some(begin) = read(service, later)? {
            return Ok(Some(begin));
        }
    }
    Ok(None)
}

/// Tells members that the incarnation has begun. Repeating the call does no harm.
///
/// # Errors
/// The incarnation has begun otherwise.
pub(crate) fn announce(service: &dyn LogService, begin: &Begin) -> Result<(), RemoteEnded> {
    let key = Begin::key(begin.incarnation.number);
    let value = keys::encode(begin);
    loop {
        match service.ask(keys::put(&key, Revision::NONE, value.clone())) {
            Reply::Put(_) => return Ok(()),
            Reply::Gone(what) => return Err(RemoteEnded::Different(what)),
            _ => {}
        }
        match keys::get(service, &key)? {
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
    use std::sync::Arc;

    #[test]
    fn other_formats_are_refused() {
        let service = SimulatedLog::new(1, 1, Faults::default());
        let put = |key: &str, text: &str| {
            let value = Arc::new(text.as_bytes().to_vec());
            service.ask(keys::put(key, Revision::NONE, value))
        };
        put("lease", r#"{"format":4,"incarnation":1,"node":"a"}"#);
        let error = lease::newest(&service).unwrap_err().to_string();
        assert!(error.contains("format is 4"), "{error}");
        put("begin.1", "[]");
        assert!(read(&service, 1).unwrap_err().to_string().contains("begin.1"));
        assert_eq!(read(&service, 2), Ok(None));
    }
}
