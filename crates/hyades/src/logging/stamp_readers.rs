//! The formats of stamps by protocol: recovery knows only the protocol's name.

use super::arrival::{self, Arrival};
use super::gsn::{self, Gsn};
use super::plover::{self, Plover};
use super::poplar::{self, Poplar};
use super::record::RecordHead;
use super::silo_r::{self, SiloR};
use super::taurus::{self, Taurus};
use super::taurus_2016::{self, Taurus2016};
use super::{StampFormat, StartsOnLog};
use hyades_wal::{Incarnation, MARKS, NUMBERS_ARE_VERSIONS};

impl StampFormat {
    /// The format of an incarnation's records.
    pub fn of(incarnation: &Incarnation) -> Self {
        let marks = incarnation.settings.get(MARKS).map(String::as_str);
        stamp_format(&incarnation.protocol, marks)
    }

    /// Decodes the head of a record, and leaves `rest` behind it. `None` if it is malformed.
    #[inline]
    pub fn head(self, rest: &mut &[u8]) -> Option<RecordHead> {
        let mut head = RecordHead::decode(rest)?;
        if let StampFormat::Number { version: Some(version), .. } = self {
            let tid = version(rest)?;
            if tid.epoch() != head.tid.epoch() {
                // It was drawn after the epoch whose beginning the record states.
                head.epoch_us = None;
            }
            head.tid = tid;
        }
        Some(head)
    }
}

/// The format of a protocol's stamps, by its name in the manifest and the value of [`MARKS`] there.
fn stamp_format(name: &str, marks: Option<&str>) -> StampFormat {
    let numbered = |read| StampFormat::Number { read, version: None };
    match name {
        SiloR::NAME => numbered(silo_r::read_stamp),
        Gsn::NAME => numbered(gsn::read_stamp),
        Plover::NAME => numbered(plover::read_stamp),
        // Numbers beside versions are not written any more.
        Poplar::NAME if marks != Some(NUMBERS_ARE_VERSIONS) => numbered(poplar::read_stamp),
        Poplar::NAME => {
            StampFormat::Number { read: poplar::read_stamp, version: Some(poplar::version) }
        }
        Taurus::NAME => {
            StampFormat::Vectors { read: taurus::read_stamp, skip: Some(taurus::skip_stamp) }
        }
        Arrival::NAME => {
            StampFormat::Vectors { read: arrival::read_stamp, skip: Some(arrival::skip_stamp) }
        }
        Taurus2016::NAME => StampFormat::Vectors { read: taurus_2016::read_stamp, skip: None },
        _ => StampFormat::Empty,
    }
}
