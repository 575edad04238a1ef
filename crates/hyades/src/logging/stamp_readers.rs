//! The formats of stamps by protocol: recovery knows only the protocol's name.

use super::arrival::Arrival;
use super::gsn::Gsn;
use super::plover::Plover;
use super::poplar::{self, Poplar};
use super::record::RecordHead;
use super::silo_r::SiloR;
use super::taurus::Taurus;
use super::taurus_2016::Taurus2016;
use super::{StampFormat, StartsOnLog};
use hyades_wal::{Incarnation, MARKS, NUMBERS_ARE_VERSIONS};

impl StampFormat {
    /// Returns the format of an incarnation's records. Records of a protocol unknown here have no
    /// stamps, unless the protocol is the `own` protocol, by name, of the database being opened.
    pub fn of(incarnation: &Incarnation, own: Option<(&str, StampFormat)>) -> Self {
        let marks = incarnation.settings.get(MARKS).map(String::as_str);
        let own = own.filter(|(name, _)| *name == incarnation.protocol).map(|(_, format)| format);
        stamp_format(&incarnation.protocol, marks).or(own).unwrap_or(StampFormat::Empty)
    }

    /// Decodes the head of a record, and advances `rest` past the head. `None` if malformed.
    #[inline]
    pub fn head(self, rest: &mut &[u8]) -> Option<RecordHead> {
        let mut head = RecordHead::decode(rest)?;
        if let StampFormat::Number { version: Some(version), .. } = self {
            let tid = version(rest)?;
            if tid.epoch() != head.tid.epoch() {
                // The TID was drawn after the epoch whose beginning the record states.
                head.epoch_us = None;
            }
            head.tid = tid;
        }
        Some(head)
    }
}

/// Returns the format of a protocol's stamps, by the protocol's name in the manifest and the value
/// of [`MARKS`] there. `None` if the name is not known here.
fn stamp_format(name: &str, marks: Option<&str>) -> Option<StampFormat> {
    Some(match name {
        SiloR::NAME => SiloR::STAMPS,
        Gsn::NAME => Gsn::STAMPS,
        Plover::NAME => Plover::STAMPS,
        // Numbers beside versions are not written any more.
        Poplar::NAME if marks != Some(NUMBERS_ARE_VERSIONS) => {
            StampFormat::Number { read: poplar::read_stamp, version: None }
        }
        Poplar::NAME => Poplar::STAMPS,
        Taurus::NAME => Taurus::STAMPS,
        Arrival::NAME => Arrival::STAMPS,
        Taurus2016::NAME => Taurus2016::STAMPS,
        _ => return None,
    })
}
