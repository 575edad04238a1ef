//! The rows of the schemes, by which settings and manifests name them, and the sound pairs.

use crate::controls::partitioned::Partitioned;
use crate::controls::tictoc::TicToc;
use crate::controls::timestamp_order::TimestampOrder;
use crate::controls::wait_die::WaitDie;
use crate::protocols::arrival::Arrival;
use crate::protocols::gsn::Gsn;
use crate::protocols::physiological::Physiological;
use crate::protocols::plover::Plover;
use crate::protocols::poplar::{self, Poplar};
use crate::protocols::silo_r::SiloR;
use crate::protocols::taurus_2016::Taurus2016;
use hyades::Concurrency::{self, Hekaton as HEKATON, NoWait as NO_WAIT, Silo as SILO};
use hyades::Protocol::{self, Serial as SERIAL, Taurus as TAURUS};
use hyades::plug::{
    Hekaton, NoLog, NoWait, Pair, PluggedControl, PluggedProtocol, RunsUnder, Schemes, Serial,
    Silo, StartsOnLog, Taurus,
};

const fn control(name: &'static str) -> PluggedControl {
    PluggedControl { name, has_partitions: false, register }
}

static TICTOC_ROW: PluggedControl = control("tictoc");
static TIMESTAMP_ORDER_ROW: PluggedControl = control("timestamp-order");
static PARTITIONED_ROW: PluggedControl =
    PluggedControl { has_partitions: true, ..control("partitioned") };

static WAIT_DIE_ROW: PluggedControl = control("wait-die");

static CONTROLS: [&PluggedControl; 4] =
    [&TICTOC_ROW, &TIMESTAMP_ORDER_ROW, &PARTITIONED_ROW, &WAIT_DIE_ROW];

/// Optimistic, with timestamps: a transaction may commit although its reads were overwritten
/// meanwhile, as of a time before the overwriting (Yu et al., SIGMOD 2016). Histories are
/// serializable and agree with the order of each [`Session`](hyades::Session), but within an epoch
/// not always with real time between sessions; calls of a [`Database`](hyades::Database) take any
/// free session.
pub const TICTOC: Concurrency = Concurrency::Plugged(&TICTOC_ROW);

/// Multi-version timestamp order, as in Deuteronomy (Levandoski et al., CIDR 2015): a transaction
/// gets its place in the serial order at its beginning, reads as of the place, and conflicts if a
/// later transaction has read or written a row before the transaction writes the row. Nothing is
/// validated at commit. A transaction with writes also conflicts if a checkpoint or a snapshot is
/// begun during its run, even by itself. Older versions and deleted rows are kept as under
/// [`Concurrency::Hekaton`].
pub const TIMESTAMP_ORDER: Concurrency = Concurrency::Plugged(&TIMESTAMP_ORDER_ROW);

/// The transactions of a partition run one after the other, from beginning to end (Kallman et al.,
/// PVLDB 1(2), 2008): nothing is validated, and transactions lock only rows that the removal of
/// garbage may change: rows inserted or found absent, and rows of tables with secondary indexes on
/// writing. Tables declare their partitions
/// ([`Schema::partition_by`](hyades::Schema::partition_by),
/// [`Schema::replicated`](hyades::Schema::replicated)), procedures and transactions may state
/// theirs ([`Builder::on`](hyades::Builder::on), [`Transaction::hold`](hyades::Transaction::hold)).
/// While a transaction runs, transactions that need one of its partitions wait, without a bound: a
/// body that waits for a thread in need of one of the body's partitions waits for ever. Inside a
/// transaction of another database, and in [`Session::attempt`](hyades::Session::attempt), a
/// transaction conflicts instead of waiting. A transaction that reads all partitions and writes
/// nothing reads a snapshot.
pub const PARTITIONED: Concurrency = Concurrency::Plugged(&PARTITIONED_ROW);

/// Two-phase locking of rows and gaps, where a transaction waits for younger transactions, and runs
/// again for an older one (Rosenkrantz, Stearns, Lewis, TODS 1978). A transaction keeps its age for
/// all its runs, and the oldest never runs again for another transaction. A body that waits for a
/// thread in need of one of the body's rows waits for ever. Inside a transaction of another
/// database, and in [`Session::attempt`](hyades::Session::attempt), a transaction conflicts instead
/// of waiting.
pub const WAIT_DIE: Concurrency = Concurrency::Plugged(&WAIT_DIE_ROW);

/// The row of a protocol that logs data records only, in several streams.
const fn data_only<P: StartsOnLog>() -> PluggedProtocol {
    PluggedProtocol {
        name: P::NAME,
        stamps: |_| P::STAMPS,
        takes_commands: false,
        takes_data: true,
        has_one_stream: false,
        control: None,
        register,
    }
}

static TAURUS_2016_ROW: PluggedProtocol =
    PluggedProtocol { takes_commands: true, ..data_only::<Taurus2016>() };
static SILO_R_ROW: PluggedProtocol = data_only::<SiloR>();
static GSN_ROW: PluggedProtocol = data_only::<Gsn>();
static PHYSIOLOGICAL_ROW: PluggedProtocol =
    PluggedProtocol { has_one_stream: true, ..data_only::<Physiological>() };
static PLOVER_ROW: PluggedProtocol = data_only::<Plover>();
static POPLAR_ROW: PluggedProtocol =
    PluggedProtocol { stamps: poplar::stamps, ..data_only::<Poplar>() };
static ARRIVAL_ROW: PluggedProtocol = PluggedProtocol {
    takes_commands: true,
    takes_data: false,
    control: Some(&PARTITIONED_ROW),
    ..data_only::<Arrival>()
};

static PROTOCOLS: [&PluggedProtocol; 7] = [
    &TAURUS_2016_ROW,
    &SILO_R_ROW,
    &GSN_ROW,
    &PLOVER_ROW,
    &POPLAR_ROW,
    &PHYSIOLOGICAL_ROW,
    &ARRIVAL_ROW,
];

/// Parallel streams with lists of predecessors: Taurus as in its first report (Yu et al., 2016), as
/// corrected in docs/protocols. A blind write
/// ([`Transaction::overwrite`](hyades::Transaction::overwrite)) waits for no earlier writer of its
/// row.
pub const TAURUS_2016: Protocol = Protocol::Plugged(&TAURUS_2016_ROW);

/// Parallel streams, acknowledged by epochs (Zheng, Tu, Kohler, Liskov, OSDI 2014). Data records
/// only.
pub const SILO_R: Protocol = Protocol::Plugged(&SILO_R_ROW);

/// Parallel streams with a global sequence number (Wang, Johnson, PVLDB 2014). Data records only.
pub const GSN: Protocol = Protocol::Plugged(&GSN_ROW);

/// One stream, with before- and after-images row by row (Malviya et al., ICDE 2014, section IV).
/// Data records only.
pub const PHYSIOLOGICAL: Protocol = Protocol::Plugged(&PHYSIOLOGICAL_ROW);

/// Parallel streams, each with the changes of one partition of the rows (Zhou et al., 2020). Data
/// records only.
pub const PLOVER: Protocol = Protocol::Plugged(&PLOVER_ROW);

/// Parallel streams with scalable sequence numbers (Zhou et al., 2019): transactions of blind
/// writes only ([`Transaction::overwrite`](hyades::Transaction::overwrite)) wait for their own
/// stream alone, all other transactions until every stream has passed their number. Data records
/// only.
pub const POPLAR: Protocol = Protocol::Plugged(&POPLAR_ROW);

/// Parallel streams of commands logged before they run (Malviya et al., ICDE 2014, section III), as
/// changed in docs/protocols. Closures only read, and procedures state their partitions
/// ([`Builder::on`](hyades::Builder::on)). Under [`PARTITIONED`] alone.
pub const ARRIVAL: Protocol = Protocol::Plugged(&ARRIVAL_ROW);

/// Makes the schemes known to the process, by their names in manifests. Opening a database with one
/// of them does so too.
pub fn register() {
    hyades::plug::register(&SCHEMES);
}

/// Returns all protocols: Hyades' own and those here. Calls [`register`].
pub fn all_protocols() -> impl Iterator<Item = Protocol> + Clone {
    register();
    let own = [Protocol::None, SERIAL, TAURUS];
    own.into_iter().chain(PROTOCOLS.map(Protocol::Plugged))
}

/// Returns all concurrency controls: Hyades' own and those here. Calls [`register`].
pub fn all_controls() -> impl Iterator<Item = Concurrency> + Clone {
    register();
    [NO_WAIT, SILO, TICTOC, HEKATON, TIMESTAMP_ORDER, PARTITIONED, WAIT_DIE].into_iter()
}

/// Declares the sound pairs with a log: `C: RunsUnder<P>`, and the rows of [`SCHEMES`].
macro_rules! pairs {
    ($($control:ty [$concurrency:expr] under $($protocol:ty [$name:expr]),+;)+) => {
        $($(impl RunsUnder<$protocol> for $control {})+)+

        static SCHEMES: Schemes = Schemes {
            protocols: &PROTOCOLS,
            controls: &CONTROLS,
            pairs: &[
                &Pair::without_log::<TicToc, NoLog>(TICTOC, Protocol::None),
                &Pair::without_log::<TimestampOrder, NoLog>(TIMESTAMP_ORDER, Protocol::None),
                &Pair::without_log::<Partitioned<NoLog>, NoLog>(PARTITIONED, Protocol::None),
                &Pair::without_log::<WaitDie, NoLog>(WAIT_DIE, Protocol::None),
                $($(&Pair::on_log::<$control, $protocol>($concurrency, $name),)+)+
            ],
        };
    };
}

impl RunsUnder<NoLog> for TicToc {}
impl RunsUnder<NoLog> for TimestampOrder {}
impl RunsUnder<NoLog> for Partitioned<NoLog> {}
impl RunsUnder<NoLog> for WaitDie {}

// Under TicToc, Hekaton and timestamp order a transaction may precede, in the serial order,
// transactions with an earlier commit: protocols with numbers in the order of commits do not
// recover such a serial order. Under partitioned execution rows and gaps have no stamps.
pairs! {
    NoWait [NO_WAIT] under Taurus2016 [TAURUS_2016], SiloR [SILO_R], Gsn [GSN],
        Physiological [PHYSIOLOGICAL], Plover [PLOVER], Poplar [POPLAR];
    Silo [SILO] under Taurus2016 [TAURUS_2016], SiloR [SILO_R], Gsn [GSN],
        Physiological [PHYSIOLOGICAL], Plover [PLOVER], Poplar [POPLAR];
    Hekaton [HEKATON] under SiloR [SILO_R];
    TicToc [TICTOC] under Serial [SERIAL], Taurus [TAURUS], Taurus2016 [TAURUS_2016],
        SiloR [SILO_R];
    TimestampOrder [TIMESTAMP_ORDER] under Serial [SERIAL], Taurus [TAURUS];
    WaitDie [WAIT_DIE] under Serial [SERIAL], Taurus [TAURUS], Taurus2016 [TAURUS_2016],
        SiloR [SILO_R], Gsn [GSN], Physiological [PHYSIOLOGICAL], Plover [PLOVER],
        Poplar [POPLAR];
    Partitioned<Serial> [PARTITIONED] under Serial [SERIAL];
    Partitioned<Taurus> [PARTITIONED] under Taurus [TAURUS];
    Partitioned<Physiological> [PARTITIONED] under Physiological [PHYSIOLOGICAL];
    Partitioned<Arrival> [PARTITIONED] under Arrival [ARRIVAL];
}
