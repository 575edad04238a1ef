//! The formats of stamps by protocol: recovery knows only the protocol's name.

use super::arrival::{self, Arrival};
use super::gsn::{self, Gsn};
use super::plover::{self, Plover};
use super::poplar::{self, Poplar};
use super::silo_r::{self, SiloR};
use super::taurus::{self, Taurus};
use super::taurus_2016::{self, Taurus2016};
use super::{StampFormat, StartsOnLog};

/// The format of a protocol's stamps, by its name in the manifest.
pub(crate) fn stamp_format(name: &str) -> StampFormat {
    match name {
        SiloR::NAME => StampFormat::Number(silo_r::read_stamp),
        Gsn::NAME => StampFormat::Number(gsn::read_stamp),
        Plover::NAME => StampFormat::Number(plover::read_stamp),
        Poplar::NAME => StampFormat::Number(poplar::read_stamp),
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
