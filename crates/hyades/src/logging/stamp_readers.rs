//! Stamp readers by protocol: recovery knows only the protocol's name.

use super::gsn::{self, Gsn};
use super::plover::{self, Plover};
use super::poplar::{self, Poplar};
use super::silo_r::{self, SiloR};
use super::{StampReader, StartsOnLog};

/// The stamp reader of a protocol, by its name in the manifest; `None` where stamps are vectors, or
/// empty.
pub(crate) fn stamp_reader(name: &str) -> Option<StampReader> {
    match name {
        SiloR::NAME => Some(silo_r::read_stamp),
        Gsn::NAME => Some(gsn::read_stamp),
        Plover::NAME => Some(plover::read_stamp),
        Poplar::NAME => Some(poplar::read_stamp),
        _ => None,
    }
}
