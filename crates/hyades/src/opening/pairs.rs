//! The table of sound combinations of concurrency control and logging protocol.

use super::Opening;
use crate::concurrency::partitioned::Partitioned;
use crate::concurrency::timestamp_order::TimestampOrder;
use crate::concurrency::{Commits, ConcurrencyControl};
use crate::concurrency::{hekaton::Hekaton, no_wait::NoWait, silo::Silo, tictoc::TicToc};
use crate::config::{Concurrency, Isolation, Protocol};
use crate::database::Database;
use crate::error::Error;
use crate::logging::LoggingProtocol;
use crate::logging::arrival::Arrival;
use crate::logging::record::RecordKind;
use crate::logging::{gsn::Gsn, none::NoLog, physiological::Physiological, plover::Plover};
use crate::logging::{poplar::Poplar, serial::Serial, silo_r::SiloR};
use crate::logging::{taurus::Taurus, taurus_2016::Taurus2016};
use crate::storage::record::Record;

/// `C: RunsUnder<P>` holds for the sound pairs; an engine of any other pair does not compile.
pub trait RunsUnder<P: LoggingProtocol>: Commits<P> {}

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

impl RunsUnder<NoLog> for TicToc {}
impl RunsUnder<Serial> for TicToc {}
impl RunsUnder<Taurus> for TicToc {}
impl RunsUnder<Taurus2016> for TicToc {}
impl RunsUnder<SiloR> for TicToc {}

impl RunsUnder<NoLog> for Hekaton {}
impl RunsUnder<Serial> for Hekaton {}
impl RunsUnder<Taurus> for Hekaton {}
impl RunsUnder<SiloR> for Hekaton {}

impl RunsUnder<NoLog> for TimestampOrder {}
impl RunsUnder<Serial> for TimestampOrder {}
impl RunsUnder<Taurus> for TimestampOrder {}

impl RunsUnder<NoLog> for Partitioned<NoLog> {}
impl RunsUnder<Serial> for Partitioned<Serial> {}
impl RunsUnder<Taurus> for Partitioned<Taurus> {}
impl RunsUnder<Physiological> for Partitioned<Physiological> {}
impl RunsUnder<Arrival> for Partitioned<Arrival> {}

/// A control without data in rows adds nothing to a record.
const _: () = {
    type Row<C, P> = <C as ConcurrencyControl<P>>::Row;
    assert!(size_of::<Record<()>>() == 32);
    assert!(size_of::<Record<Row<Silo, NoLog>>>() == 32);
    assert!(size_of::<Record<Row<NoWait, NoLog>>>() == 32);
    assert!(size_of::<Record<Row<Silo, Taurus>>>() == 40);
    assert!(size_of::<Record<Row<NoWait, Taurus>>>() == 40);
};

/// Opens a database with the requested pair.
pub(crate) fn open(pair: (Protocol, Concurrency), opening: Opening<'_>) -> Result<Database, Error> {
    match pair.1 {
        Concurrency::NoWait => open_plain::<NoWait>(pair, opening),
        Concurrency::Silo => open_plain::<Silo>(pair, opening),
        Concurrency::TicToc => match pair.0 {
            Protocol::None => opening.without_log::<TicToc, _>(NoLog),
            Protocol::Serial => opening.with_log::<TicToc, Serial>(),
            Protocol::Taurus => opening.with_log::<TicToc, Taurus>(),
            Protocol::Taurus2016 => opening.with_log::<TicToc, Taurus2016>(),
            Protocol::SiloR => opening.with_log::<TicToc, SiloR>(),
            Protocol::Gsn | Protocol::Plover | Protocol::Poplar | Protocol::Physiological => {
                Err(unsound(pair))
            }
            Protocol::Arrival => Err(unsound(pair)),
        },
        Concurrency::Hekaton => match pair.0 {
            Protocol::None => opening.without_log::<Hekaton, _>(NoLog),
            Protocol::Serial => opening.with_log::<Hekaton, Serial>(),
            Protocol::Taurus => opening.with_log::<Hekaton, Taurus>(),
            Protocol::SiloR => opening.with_log::<Hekaton, SiloR>(),
            Protocol::Taurus2016 | Protocol::Gsn | Protocol::Plover | Protocol::Poplar => {
                Err(unsound(pair))
            }
            Protocol::Physiological | Protocol::Arrival => Err(unsound(pair)),
        },
        Concurrency::TimestampOrder => match pair.0 {
            Protocol::None => opening.without_log::<TimestampOrder, _>(NoLog),
            Protocol::Serial => opening.with_log::<TimestampOrder, Serial>(),
            Protocol::Taurus => opening.with_log::<TimestampOrder, Taurus>(),
            Protocol::Taurus2016 | Protocol::SiloR | Protocol::Gsn | Protocol::Plover => {
                Err(unsound(pair))
            }
            Protocol::Poplar | Protocol::Physiological | Protocol::Arrival => Err(unsound(pair)),
        },
        Concurrency::Partitioned => match pair.0 {
            Protocol::None => opening.without_log::<Partitioned<NoLog>, _>(NoLog),
            Protocol::Serial => opening.with_log::<Partitioned<Serial>, Serial>(),
            Protocol::Taurus => opening.with_log::<Partitioned<Taurus>, Taurus>(),
            Protocol::Physiological => {
                opening.with_log::<Partitioned<Physiological>, Physiological>()
            }
            Protocol::Arrival => opening.with_log::<Partitioned<Arrival>, Arrival>(),
            Protocol::Taurus2016 | Protocol::SiloR | Protocol::Gsn | Protocol::Plover => {
                Err(unsound(pair))
            }
            Protocol::Poplar => Err(unsound(pair)),
        },
    }
}

/// Opens a database with a concurrency control that adds no data to rows.
fn open_plain<C>(pair: (Protocol, Concurrency), opening: Opening<'_>) -> Result<Database, Error>
where
    C: RunsUnder<NoLog> + RunsUnder<Serial> + RunsUnder<Taurus> + RunsUnder<Taurus2016>,
    C: RunsUnder<SiloR> + RunsUnder<Gsn> + RunsUnder<Physiological>,
    C: RunsUnder<Plover> + RunsUnder<Poplar>,
{
    match pair.0 {
        Protocol::None => opening.without_log::<C, _>(NoLog),
        Protocol::Serial => opening.with_log::<C, Serial>(),
        Protocol::Taurus => opening.with_log::<C, Taurus>(),
        Protocol::Taurus2016 => opening.with_log::<C, Taurus2016>(),
        Protocol::SiloR => opening.with_log::<C, SiloR>(),
        Protocol::Gsn => opening.with_log::<C, Gsn>(),
        Protocol::Physiological => opening.with_log::<C, Physiological>(),
        Protocol::Plover => opening.with_log::<C, Plover>(),
        Protocol::Poplar => opening.with_log::<C, Poplar>(),
        Protocol::Arrival => Err(unsound(pair)),
    }
}

impl Protocol {
    /// Returns the next protocol in [`Protocol::all`]. Has no wildcard arm, so a new protocol does
    /// not compile until added here.
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
            Protocol::Physiological => Some(Protocol::Arrival),
            Protocol::Arrival => None,
        }
    }

    /// Returns all protocols.
    pub fn all() -> impl Iterator<Item = Protocol> {
        std::iter::successors(Some(Protocol::None), |protocol| protocol.next())
    }
}

impl Concurrency {
    /// Returns the next control in [`Concurrency::all`]; see [`Protocol::next`].
    fn next(self) -> Option<Concurrency> {
        match self {
            Concurrency::NoWait => Some(Concurrency::Silo),
            Concurrency::Silo => Some(Concurrency::TicToc),
            Concurrency::TicToc => Some(Concurrency::Hekaton),
            Concurrency::Hekaton => Some(Concurrency::TimestampOrder),
            Concurrency::TimestampOrder => Some(Concurrency::Partitioned),
            Concurrency::Partitioned => None,
        }
    }

    /// Returns all concurrency controls.
    pub fn all() -> impl Iterator<Item = Concurrency> {
        std::iter::successors(Some(Concurrency::NoWait), |control| control.next())
    }

    /// Whether the concurrency control may be used with this protocol.
    ///
    /// Under [`Concurrency::TicToc`], [`Concurrency::Hekaton`] and [`Concurrency::TimestampOrder`]
    /// transactions may precede, in the serial order, transactions with an earlier commit.
    /// Protocols with numbers in the order of commits do not recover such a serial order. Under
    /// [`Concurrency::Partitioned`] rows and gaps have no stamps, and the protocols offered work
    /// with the stamps of partitions.
    pub fn runs_under(self, protocol: Protocol) -> bool {
        match self {
            Concurrency::NoWait | Concurrency::Silo => protocol != Protocol::Arrival,
            Concurrency::TicToc => match protocol {
                Protocol::None | Protocol::Serial | Protocol::Taurus => true,
                Protocol::Taurus2016 | Protocol::SiloR => true,
                Protocol::Gsn | Protocol::Plover | Protocol::Poplar => false,
                Protocol::Physiological | Protocol::Arrival => false,
            },
            Concurrency::Hekaton => match protocol {
                Protocol::None | Protocol::Serial | Protocol::Taurus | Protocol::SiloR => true,
                Protocol::Taurus2016 | Protocol::Gsn | Protocol::Plover => false,
                Protocol::Poplar | Protocol::Physiological | Protocol::Arrival => false,
            },
            Concurrency::TimestampOrder => match protocol {
                Protocol::None | Protocol::Serial | Protocol::Taurus => true,
                Protocol::Taurus2016 | Protocol::SiloR | Protocol::Gsn => false,
                Protocol::Plover | Protocol::Poplar | Protocol::Physiological => false,
                Protocol::Arrival => false,
            },
            Concurrency::Partitioned => match protocol {
                Protocol::None | Protocol::Serial | Protocol::Taurus => true,
                Protocol::Physiological | Protocol::Arrival => true,
                Protocol::Taurus2016 | Protocol::SiloR | Protocol::Gsn => false,
                Protocol::Plover | Protocol::Poplar => false,
            },
        }
    }

    /// Whether the concurrency control offers this isolation.
    pub fn offers(self, isolation: Isolation) -> bool {
        isolation == Isolation::Serializable || self == Concurrency::Hekaton
    }

    /// Whether procedures may be logged as commands with this protocol. Under
    /// [`Concurrency::TicToc`] procedures that precede transactions with an earlier commit are
    /// logged as data all the same.
    pub fn takes_commands_under(self, protocol: Protocol) -> bool {
        self.runs_under(protocol) && protocol.takes_commands()
    }
}

impl Protocol {
    /// Whether procedures may be logged as commands. A protocol logs only changed rows if its log
    /// does not record all ordering constraints of replay, including readers before later writers.
    pub fn takes_commands(self) -> bool {
        match self {
            Protocol::None | Protocol::Serial | Protocol::Taurus | Protocol::Taurus2016 => true,
            Protocol::Arrival => true,
            Protocol::SiloR | Protocol::Gsn | Protocol::Plover | Protocol::Poplar => false,
            Protocol::Physiological => false,
        }
    }

    /// Whether writing closures are logged, and procedures may be logged as data. Otherwise calls
    /// are logged before their run, and nothing else is logged.
    pub fn takes_data(self) -> bool {
        self != Protocol::Arrival
    }

    /// Returns the protocols that take commands, by name: "a, b or c".
    pub fn names_taking_commands() -> String {
        let takes = |protocol: &Protocol| *protocol != Protocol::None && protocol.takes_commands();
        alternatives(Protocol::all().filter(takes).map(Protocol::name))
    }

    /// Returns the concurrency controls permitted with the protocol, by name: "a, b or c".
    pub fn names_of_sound_controls(self) -> String {
        let sound = Concurrency::all().filter(|control| control.runs_under(self));
        alternatives(sound.map(Concurrency::name))
    }
}

fn unsound((protocol, concurrency): (Protocol, Concurrency)) -> Error {
    let protocols = Protocol::all().filter(|protocol| concurrency.runs_under(*protocol));
    Error::Misuse(format!(
        "{} is not sound under {} logging: set protocol to {}, or concurrency to {}",
        concurrency.name(),
        protocol.name(),
        alternatives(protocols.map(Protocol::name)),
        protocol.names_of_sound_controls()
    ))
}

/// Returns the names as "a", or "a, b or c".
fn alternatives(names: impl Iterator<Item = &'static str>) -> String {
    let names: Vec<&str> = names.collect();
    let (last, others) = names.split_last().expect("there are some");
    if others.is_empty() { last.to_string() } else { format!("{} or {last}", others.join(", ")) }
}

/// Rejects a pair that cannot be recovered.
pub(crate) fn check(pair: (Protocol, Concurrency)) -> Result<(), Error> {
    if pair.1.runs_under(pair.0) { Ok(()) } else { Err(unsound(pair)) }
}

/// Rejects an isolation not offered by the concurrency control.
pub(crate) fn check_isolation(concurrency: Concurrency, isolation: Isolation) -> Result<(), Error> {
    if concurrency.offers(isolation) {
        return Ok(());
    }
    Err(Error::Misuse(format!(
        "{} offers no snapshot isolation: set concurrency to hekaton, or isolation to serializable",
        concurrency.name()
    )))
}

/// Rejects a kind of record that cannot be recovered under the pair.
pub(crate) fn check_record(
    (protocol, concurrency): (Protocol, Concurrency),
    record: RecordKind,
) -> Result<(), Error> {
    if record != RecordKind::Command && !protocol.takes_data() {
        return Err(Error::Misuse(format!(
            "{} logging logs calls of procedures as commands, before they run: set record to \
             command",
            protocol.name()
        )));
    }
    if record == RecordKind::Data || concurrency.takes_commands_under(protocol) {
        return Ok(());
    }
    Err(Error::Misuse(format!(
        "{} logging does not order commands for their replay: set record to data, or protocol \
         to {}",
        protocol.name(),
        Protocol::names_taking_commands()
    )))
}

/// Rejects a number of streams not supported by the protocol.
pub(crate) fn check_streams(protocol: Protocol, streams: usize) -> Result<(), Error> {
    match (protocol, streams) {
        (Protocol::Serial | Protocol::Physiological, 2..) => Err(Error::Misuse(format!(
            "{} logging has one stream, not {streams}: set streams to 1",
            protocol.name()
        ))),
        _ => Ok(()),
    }
}
