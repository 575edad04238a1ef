//! The one table of sound pairs: which concurrency control runs under which protocol.

use super::LoggingProtocol;
use super::{none::NoLog, serial::Serial, taurus::Taurus, taurus_2016::Taurus2016};
use crate::concurrency::ConcurrencyControl;
use crate::concurrency::{no_wait::NoWait, silo::Silo};
use crate::config::{Concurrency, Protocol};
use crate::database::Database;
use crate::error::Error;
use crate::opening::Opening;

/// `C: RunsUnder<P>` holds for the sound pairs; an engine of any other pair does not compile.
pub(crate) trait RunsUnder<P: LoggingProtocol>: ConcurrencyControl {}

impl RunsUnder<NoLog> for NoWait {}
impl RunsUnder<NoLog> for Silo {}
impl RunsUnder<Serial> for NoWait {}
impl RunsUnder<Serial> for Silo {}
impl RunsUnder<Taurus> for NoWait {}
impl RunsUnder<Taurus> for Silo {}
impl RunsUnder<Taurus2016> for NoWait {}
impl RunsUnder<Taurus2016> for Silo {}

/// Opens a database of the pair that was asked for.
pub(crate) fn open(pair: (Protocol, Concurrency), opening: Opening) -> Result<Database, Error> {
    match pair {
        (Protocol::None, Concurrency::NoWait) => opening.without_log::<NoWait, _>(NoLog),
        (Protocol::None, Concurrency::Silo) => opening.without_log::<Silo, _>(NoLog),
        (Protocol::Serial, Concurrency::NoWait) => opening.with_log::<NoWait, Serial>(),
        (Protocol::Serial, Concurrency::Silo) => opening.with_log::<Silo, Serial>(),
        (Protocol::Taurus, Concurrency::NoWait) => opening.with_log::<NoWait, Taurus>(),
        (Protocol::Taurus, Concurrency::Silo) => opening.with_log::<Silo, Taurus>(),
        (Protocol::Taurus2016, Concurrency::NoWait) => opening.with_log::<NoWait, Taurus2016>(),
        (Protocol::Taurus2016, Concurrency::Silo) => opening.with_log::<Silo, Taurus2016>(),
    }
}

/// Refuses a number of streams that the protocol cannot have.
pub(crate) fn check_streams(protocol: Protocol, streams: usize) -> Result<(), Error> {
    match (protocol, streams) {
        (Protocol::Serial, 2..) => Err(Error::Misuse(format!(
            "serial logging has one stream, not {streams}: set streams to 1"
        ))),
        _ => Ok(()),
    }
}
