//! The table of sound combinations of concurrency control and logging protocol.

use super::Opening;
#[cfg(feature = "replication")]
use super::follower::FollowedLog;
use crate::concurrency::{Commits, ConcurrencyControl};
use crate::concurrency::{hekaton::Hekaton, no_wait::NoWait, silo::Silo};
use crate::config::{Concurrency, Isolation, Protocol, alternatives};
use crate::database::Database;
use crate::error::Error;
#[cfg(feature = "replication")]
use crate::following::Follower;
use crate::logging::record::RecordKind;
use crate::logging::schemes::SchemeRegistry;
use crate::logging::{LoggingProtocol, StartsOnLog};
use crate::logging::{none::NoLog, serial::Serial, taurus::Taurus};
use crate::storage::record::Record;

/// `C: RunsUnder<P>` holds for the sound pairs; an engine of any other pair does not compile.
pub trait RunsUnder<P: LoggingProtocol>: Commits<P> {}

impl RunsUnder<NoLog> for NoWait {}
impl RunsUnder<NoLog> for Silo {}
impl RunsUnder<NoLog> for Hekaton {}
impl RunsUnder<Serial> for NoWait {}
impl RunsUnder<Serial> for Silo {}
impl RunsUnder<Serial> for Hekaton {}
impl RunsUnder<Taurus> for NoWait {}
impl RunsUnder<Taurus> for Silo {}
impl RunsUnder<Taurus> for Hekaton {}

/// A control without data in rows adds nothing to a record.
const _: () = {
    type Row<C, P> = <C as ConcurrencyControl<P>>::Row;
    assert!(size_of::<Record<()>>() == 32);
    assert!(size_of::<Record<Row<Silo, NoLog>>>() == 32);
    assert!(size_of::<Record<Row<NoWait, NoLog>>>() == 32);
    assert!(size_of::<Record<Row<Silo, Taurus>>>() == 40);
    assert!(size_of::<Record<Row<NoWait, Taurus>>>() == 40);
};

/// A sound pair, and how a database with the pair is opened.
pub struct Pair {
    protocol: Protocol,
    concurrency: Concurrency,
    open: fn(Opening<'_>) -> Result<Database, Error>,
    /// How a log of the pair is followed, if the log may be.
    #[cfg(feature = "replication")]
    follow: Option<Follow>,
}

#[cfg(feature = "replication")]
type Follow = fn(Opening<'_>, &FollowedLog<'_>) -> Result<Follower, Error>;

impl Pair {
    /// The pair of the protocol `P` and the concurrency control `C`, under their names.
    pub const fn on_log<C, P>(concurrency: Concurrency, protocol: Protocol) -> Pair
    where
        C: RunsUnder<P>,
        P: StartsOnLog,
    {
        Pair {
            protocol,
            concurrency,
            open: |opening| opening.with_log::<C, P>(),
            #[cfg(feature = "replication")]
            follow: None,
        }
    }

    /// As [`Pair::on_log`], for a pair whose log may be followed by other processes.
    const fn followed<C, P>(concurrency: Concurrency, protocol: Protocol) -> Pair
    where
        C: RunsUnder<P>,
        P: StartsOnLog,
    {
        Pair {
            #[cfg(feature = "replication")]
            follow: Some(|opening, followed| opening.follow::<C, P>(followed)),
            ..Pair::on_log::<C, P>(concurrency, protocol)
        }
    }

    /// The pair of the protocol `P` and the concurrency control `C`, under their names, without a
    /// log.
    pub const fn without_log<C, P>(concurrency: Concurrency, protocol: Protocol) -> Pair
    where
        C: RunsUnder<P>,
        P: LoggingProtocol + Default,
    {
        Pair {
            protocol,
            concurrency,
            open: |opening| opening.without_log::<C, P>(P::default()),
            #[cfg(feature = "replication")]
            follow: None,
        }
    }

    fn names(&self) -> (Protocol, Concurrency) {
        (self.protocol, self.concurrency)
    }
}

static PAIRS: [Pair; 9] = [
    Pair::without_log::<NoWait, NoLog>(Concurrency::NoWait, Protocol::None),
    Pair::without_log::<Silo, NoLog>(Concurrency::Silo, Protocol::None),
    Pair::without_log::<Hekaton, NoLog>(Concurrency::Hekaton, Protocol::None),
    Pair::followed::<NoWait, Serial>(Concurrency::NoWait, Protocol::Serial),
    Pair::followed::<Silo, Serial>(Concurrency::Silo, Protocol::Serial),
    Pair::followed::<Hekaton, Serial>(Concurrency::Hekaton, Protocol::Serial),
    Pair::followed::<NoWait, Taurus>(Concurrency::NoWait, Protocol::Taurus),
    Pair::followed::<Silo, Taurus>(Concurrency::Silo, Protocol::Taurus),
    Pair::followed::<Hekaton, Taurus>(Concurrency::Hekaton, Protocol::Taurus),
];

/// Pairs of other crates.
pub(crate) static PLUGGED_PAIRS: SchemeRegistry<Pair> = SchemeRegistry::new();

fn find(names: (Protocol, Concurrency)) -> Option<&'static Pair> {
    let is_sought = |pair: &Pair| pair.names() == names;
    PAIRS.iter().find(|pair| is_sought(pair)).or_else(|| PLUGGED_PAIRS.find(is_sought))
}

/// Has the crates of a pair's protocol and concurrency control register what they have.
pub(crate) fn register((protocol, concurrency): (Protocol, Concurrency)) {
    if let Protocol::Plugged(protocol) = protocol {
        (protocol.register)();
    }
    if let Concurrency::Plugged(control) = concurrency {
        (control.register)();
    }
}

/// Opens a database with the requested pair.
pub(crate) fn open(
    names: (Protocol, Concurrency),
    opening: Opening<'_>,
) -> Result<Database, Error> {
    let pair = find(names).ok_or_else(|| unsound(names))?;
    (pair.open)(opening)
}

impl Concurrency {
    /// Whether the concurrency control may be used with this protocol.
    ///
    /// Under some concurrency controls transactions may precede, in the serial order, transactions
    /// with an earlier commit; protocols with numbers in the order of commits do not recover such a
    /// serial order. Where transactions take turns in partitions, rows and gaps have no stamps, and
    /// only protocols that work with the stamps of partitions are offered.
    pub fn runs_under(self, protocol: Protocol) -> bool {
        register((protocol, self));
        find((protocol, self)).is_some()
    }

    /// Whether procedures may be logged as commands with this protocol. Under a control whose
    /// transactions may precede others with an earlier commit, such procedures are logged as data
    /// all the same.
    pub fn takes_commands_under(self, protocol: Protocol) -> bool {
        self.runs_under(protocol) && protocol.takes_commands()
    }
}

impl Protocol {
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

/// Rejects a pair that cannot be recovered.
pub(crate) fn check(pair: (Protocol, Concurrency)) -> Result<(), Error> {
    if pair.1.runs_under(pair.0) { Ok(()) } else { Err(unsound(pair)) }
}

/// Rejects a pair whose log cannot be followed by other processes, round by round. `commands`:
/// whether commands may be logged.
#[cfg(feature = "replication")]
pub(crate) fn check_followed(names: (Protocol, Concurrency), commands: bool) -> Result<(), Error> {
    let followed = || PAIRS.iter().filter(|pair| pair.follow.is_some());
    let controls = followed().filter(|pair| pair.protocol == names.0);
    let controls: Vec<_> = controls.map(|pair| pair.concurrency.name()).collect();
    let why = if controls.is_empty() {
        let protocols = [Protocol::Taurus, Protocol::Serial].map(Protocol::name);
        let protocols = alternatives(protocols.into_iter());
        format!(
            "a record may need records behind the end of its round: set protocol to {protocols}"
        )
    } else if !controls.contains(&names.1.name()) {
        let controls = alternatives(controls.into_iter());
        format!("a round may end between dependent records: set concurrency to {controls}")
    } else if commands && names.1 == Concurrency::Hekaton {
        "commands may read row versions of earlier rounds: set record to data".to_string()
    } else {
        return Ok(());
    };
    let (protocol, control) = (names.0.name(), names.1.name());
    Err(Error::Misuse(format!("the log of {protocol} with {control} cannot be followed: {why}")))
}

/// Follows a log of the requested pair.
#[cfg(feature = "replication")]
pub(crate) fn follow(
    names: (Protocol, Concurrency),
    opening: Opening<'_>,
    followed: &FollowedLog<'_>,
) -> Result<Follower, Error> {
    let pair = find(names).ok_or_else(|| unsound(names))?;
    match pair.follow {
        Some(follow) => follow(opening, followed),
        None => Err(unsound(names)),
    }
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
    if streams > 1 && protocol.has_one_stream() {
        return Err(Error::Misuse(format!(
            "{} logging has one stream, not {streams}: set streams to 1",
            protocol.name()
        )));
    }
    Ok(())
}
