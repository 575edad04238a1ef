//! The table of sound combinations of concurrency control and logging protocol.

use super::Opening;
use crate::concurrency::Commits;
use crate::concurrency::{no_wait::NoWait, silo::Silo};
use crate::config::{Concurrency, Protocol};
use crate::database::Database;
use crate::error::Error;
use crate::logging::LoggingProtocol;
use crate::logging::record::RecordKind;
use crate::logging::{gsn::Gsn, none::NoLog, physiological::Physiological, plover::Plover};
use crate::logging::{poplar::Poplar, serial::Serial, silo_r::SiloR};
use crate::logging::{taurus::Taurus, taurus_2016::Taurus2016};

/// `C: RunsUnder<P>` holds for the sound pairs; an engine of any other pair does not compile.
pub(crate) trait RunsUnder<P: LoggingProtocol>: Commits {}

impl RunsUnder<NoLog> for NoWait {}
impl RunsUnder<NoLog> for Silo {}
impl RunsUnder<Serial> for NoWait {}
impl RunsUnder<Serial> for Silo {}
impl RunsUnder<Taurus> for NoWait {}
impl RunsUnder<Taurus> for Silo {}
impl RunsUnder<Taurus2016> for NoWait {}
impl RunsUnder<Taurus2016> for Silo {}
impl RunsUnder<SiloR> for NoWait {}
impl RunsUnder<SiloR> for Silo {}
impl RunsUnder<Gsn> for NoWait {}
impl RunsUnder<Gsn> for Silo {}
impl RunsUnder<Physiological> for NoWait {}
impl RunsUnder<Physiological> for Silo {}
impl RunsUnder<Plover> for NoWait {}
impl RunsUnder<Plover> for Silo {}
impl RunsUnder<Poplar> for NoWait {}
impl RunsUnder<Poplar> for Silo {}

/// Opens a database with the requested pair.
pub(crate) fn open(pair: (Protocol, Concurrency), opening: Opening<'_>) -> Result<Database, Error> {
    match pair {
        (Protocol::None, Concurrency::NoWait) => opening.without_log::<NoWait, _>(NoLog),
        (Protocol::None, Concurrency::Silo) => opening.without_log::<Silo, _>(NoLog),
        (Protocol::Serial, Concurrency::NoWait) => opening.with_log::<NoWait, Serial>(),
        (Protocol::Serial, Concurrency::Silo) => opening.with_log::<Silo, Serial>(),
        (Protocol::Taurus, Concurrency::NoWait) => opening.with_log::<NoWait, Taurus>(),
        (Protocol::Taurus, Concurrency::Silo) => opening.with_log::<Silo, Taurus>(),
        (Protocol::Taurus2016, Concurrency::NoWait) => opening.with_log::<NoWait, Taurus2016>(),
        (Protocol::Taurus2016, Concurrency::Silo) => opening.with_log::<Silo, Taurus2016>(),
        (Protocol::SiloR, Concurrency::NoWait) => opening.with_log::<NoWait, SiloR>(),
        (Protocol::SiloR, Concurrency::Silo) => opening.with_log::<Silo, SiloR>(),
        (Protocol::Gsn, Concurrency::NoWait) => opening.with_log::<NoWait, Gsn>(),
        (Protocol::Gsn, Concurrency::Silo) => opening.with_log::<Silo, Gsn>(),
        (Protocol::Physiological, Concurrency::NoWait) => {
            opening.with_log::<NoWait, Physiological>()
        }
        (Protocol::Physiological, Concurrency::Silo) => opening.with_log::<Silo, Physiological>(),
        (Protocol::Plover, Concurrency::NoWait) => opening.with_log::<NoWait, Plover>(),
        (Protocol::Plover, Concurrency::Silo) => opening.with_log::<Silo, Plover>(),
        (Protocol::Poplar, Concurrency::NoWait) => opening.with_log::<NoWait, Poplar>(),
        (Protocol::Poplar, Concurrency::Silo) => opening.with_log::<Silo, Poplar>(),
    }
}

impl Protocol {
    /// The next one in [`Protocol::all`]. Has no wildcard arm, so that a new protocol does not
    /// compile until it is added here.
    fn next(self) -> Option<Protocol> {
        match self {
            Protocol::None => Some(Protocol::Serial),
            Protocol::Serial => Some(Protocol::Taurus),
            Protocol::Taurus => Some(Protocol::Taurus2016),
            Protocol::Taurus2016 => Some(Protocol::SiloR),
            Protocol::SiloR => Some(Protocol::Gsn),
            Protocol::Gsn => Some(Protocol::Plover),
            Protocol::Plover => Some(Protocol::Poplar),
            Protocol::Poplar => Some(Protocol::Physiological),
            Protocol::Physiological => None,
        }
    }

    /// Every protocol there is.
    pub fn all() -> impl Iterator<Item = Protocol> {
        std::iter::successors(Some(Protocol::None), |protocol| protocol.next())
    }
}

impl Concurrency {
    /// The next one in [`Concurrency::all`]; see [`Protocol::next`].
    fn next(self) -> Option<Concurrency> {
        match self {
            Concurrency::NoWait => Some(Concurrency::Silo),
            Concurrency::Silo => None,
        }
    }

    /// Every concurrency control there is.
    pub fn all() -> impl Iterator<Item = Concurrency> {
        std::iter::successors(Some(Concurrency::NoWait), |control| control.next())
    }
}

impl Protocol {
    /// Whether procedures may be logged as commands. A protocol whose log does not record all
    /// ordering constraints of replay, including readers before later writers, logs changed rows
    /// only.
    pub fn takes_commands(self) -> bool {
        match self {
            Protocol::None | Protocol::Serial | Protocol::Taurus | Protocol::Taurus2016 => true,
            Protocol::SiloR | Protocol::Gsn | Protocol::Plover | Protocol::Poplar => false,
            Protocol::Physiological => false,
        }
    }

    /// The protocols that take commands, by name: "a, b or c".
    pub fn names_taking_commands() -> String {
        let names: Vec<&str> = Protocol::all()
            .filter(|protocol| *protocol != Protocol::None && protocol.takes_commands())
            .map(Protocol::name)
            .collect();
        let (last, others) = names.split_last().expect("there are some");
        format!("{} or {last}", others.join(", "))
    }
}

/// Rejects a kind of record that cannot be recovered under the protocol.
pub(crate) fn check_record(protocol: Protocol, record: RecordKind) -> Result<(), Error> {
    if record == RecordKind::Data || protocol.takes_commands() {
        return Ok(());
    }
    Err(Error::Misuse(format!(
        "{} logging does not order commands for their replay: set record to data, or protocol \
         to {}",
        protocol.name(),
        Protocol::names_taking_commands()
    )))
}

/// Rejects a number of streams that the protocol does not support.
pub(crate) fn check_streams(protocol: Protocol, streams: usize) -> Result<(), Error> {
    match (protocol, streams) {
        (Protocol::Serial | Protocol::Physiological, 2..) => Err(Error::Misuse(format!(
            "{} logging has one stream, not {streams}: set streams to 1",
            protocol.name()
        ))),
        _ => Ok(()),
    }
}
