//! The formats of stamps by protocol: recovery knows only the protocol's name.

use super::record::RecordHead;
use super::schemes::PROTOCOLS;
use super::serial::Serial;
use super::taurus::Taurus;
use super::{StampFormat, StartsOnLog};
use hyades_wal::{Incarnation, MARKS};

impl StampFormat {
    /// Returns the format of an incarnation's records. Records of a protocol unknown here have no
    /// stamps.
    pub fn of(incarnation: &Incarnation) -> Self {
        let marks = incarnation.settings.get(MARKS).map(String::as_str);
        stamp_format(&incarnation.protocol, marks).unwrap_or(StampFormat::Empty)
    }

    /// Decodes the head of a record, and advances `rest` past the head. `None` if malformed.
    #[inline]
    pub(crate) fn head(self, rest: &mut &[u8]) -> Option<RecordHead> {
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
    match name {
        Taurus::NAME => Some(Taurus::STAMPS),
        Serial::NAME => Some(Serial::STAMPS),
        _ => PROTOCOLS.find(|row| row.name == name).map(|row| (row.stamps)(marks)),
    }
}
