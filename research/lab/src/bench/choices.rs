//! What options of `hyades-lab bench` may be, by name.

pub use hyades_cli::record::RecordKind;
use hyades_cli::words;

words! {
    /// The logging protocol.
    Protocol("protocol") {
        /// No log.
        None = "none",
        /// One stream.
        Serial = "serial",
        /// Parallel streams with LSN vectors.
        Taurus = "taurus",
        /// Parallel streams with lists of predecessors.
        Taurus2016 = "taurus-2016",
        /// Parallel streams with group commit by epoch.
        SiloR = "silo-r",
        /// Parallel streams with a global sequence number.
        Gsn = "gsn",
        /// One stream, row by row, with before-images.
        Physiological = "physiological",
        /// Parallel streams, a record for each partition.
        Plover = "plover",
        /// Parallel streams with scalable sequence numbers.
        Poplar = "poplar",
        /// Parallel streams of commands that are logged before they run.
        Arrival = "arrival",
    }
}

words! {
    /// The concurrency control.
    Concurrency("concurrency control") {
        /// Chosen by the other options.
        Auto = "auto",
        /// Two-phase locking without waiting.
        NoWait = "no-wait",
        /// Two-phase locking with waiting for younger transactions.
        WaitDie = "wait-die",
        /// Optimistic.
        Silo = "silo",
        /// Optimistic, ordered by timestamps.
        TicToc = "tictoc",
        /// Several versions of each row.
        Hekaton = "hekaton",
        /// Several versions of each row, written in the order of timestamps.
        TimestampOrder = "timestamp-order",
        /// The transactions of a partition one after the other.
        Partitioned = "partitioned",
    }
}

words! {
    /// What runs the transactions.
    Engine("engine") {
        /// All rows in memory.
        Memory = "memory",
        /// A transaction component over a data component.
        Deuteronomy = "deuteronomy",
        /// A redb database by itself.
        Redb = "redb",
        /// A fjall database by itself.
        Fjall = "fjall",
        /// An LMDB environment by itself.
        Lmdb = "lmdb",
        /// A RocksDB database by itself.
        RocksDb = "rocksdb",
        /// A hash map, neither durable nor transactional.
        HashMap = "hash-map",
    }
}

impl Engine {
    /// Whether it is a store of keys and values by itself, for comparison.
    pub fn is_store(self) -> bool {
        !matches!(self, Engine::Memory | Engine::Deuteronomy)
    }

    /// Whether it has files.
    pub fn has_files(self) -> bool {
        self != Engine::HashMap
    }
}

words! {
    /// What stores keys and values below a transaction component.
    Store("data component") {
        /// Memory, filled again from the log.
        Memory = "memory",
        /// A redb database.
        Redb = "redb",
        /// A fjall database.
        Fjall = "fjall",
        /// A RocksDB database.
        RocksDb = "rocksdb",
    }
}

words! {
    /// What transactions are protected from.
    Isolation("isolation") {
        /// There is a serial order.
        Serializable = "serializable",
        /// Each reads a snapshot.
        Snapshot = "snapshot",
    }
}

impl Isolation {
    /// The engine's name for it.
    pub fn isolation(self) -> hyades::Isolation {
        match self {
            Isolation::Serializable => hyades::Isolation::Serializable,
            Isolation::Snapshot => hyades::Isolation::Snapshot,
        }
    }
}

impl Concurrency {
    /// That of a transaction component.
    pub const OF_COMPONENT: Concurrency = Concurrency::TimestampOrder;

    /// The one that is used: it, or the one for this isolation, patience, and need of partitions.
    pub fn or_chosen(
        self,
        isolation: Isolation,
        has_patience: bool,
        by_partitions: bool,
    ) -> Concurrency {
        match self {
            Concurrency::Auto if isolation == Isolation::Snapshot => Concurrency::Hekaton,
            Concurrency::Auto if has_patience => Concurrency::NoWait,
            Concurrency::Auto if by_partitions => Concurrency::Partitioned,
            Concurrency::Auto => Concurrency::Silo,
            named => named,
        }
    }

    /// The engine's name for it.
    pub fn control(self) -> hyades::Concurrency {
        match self {
            Concurrency::Auto => hyades::Concurrency::default(),
            Concurrency::NoWait => hyades::Concurrency::NoWait,
            Concurrency::WaitDie => hyades_schemes::WAIT_DIE,
            Concurrency::Silo => hyades::Concurrency::Silo,
            Concurrency::TicToc => hyades_schemes::TICTOC,
            Concurrency::Hekaton => hyades::Concurrency::Hekaton,
            Concurrency::TimestampOrder => hyades_schemes::TIMESTAMP_ORDER,
            Concurrency::Partitioned => hyades_schemes::PARTITIONED,
        }
    }
}

impl Protocol {
    /// The engine's name for it.
    pub fn protocol(self) -> hyades::Protocol {
        match self {
            Protocol::None => hyades::Protocol::None,
            Protocol::Serial => hyades::Protocol::Serial,
            Protocol::Taurus => hyades::Protocol::Taurus,
            Protocol::Taurus2016 => hyades_schemes::TAURUS_2016,
            Protocol::SiloR => hyades_schemes::SILO_R,
            Protocol::Gsn => hyades_schemes::GSN,
            Protocol::Physiological => hyades_schemes::PHYSIOLOGICAL,
            Protocol::Plover => hyades_schemes::PLOVER,
            Protocol::Poplar => hyades_schemes::POPLAR,
            Protocol::Arrival => hyades_schemes::ARRIVAL,
        }
    }
}
