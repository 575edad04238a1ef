//! Settings of where transactions run, and when they are acknowledged: partitions, posted calls,
//! sites.

use super::Builder;

impl Builder {
    /// Limits the bytes of removed and overwritten rows that wait to be freed, since transactions
    /// begun earlier may be reading the rows; 1 GiB by default. More than a few MB wait only while
    /// a transaction runs for long ([`Stats::removed_bytes`](crate::Stats),
    /// [`Stats::oldest_pin`](crate::Stats)). At the limit transactions with writes run again until
    /// there is room. Transactions that have run for more than 0.1 s end with
    /// [`Abort::RanTooLong`](crate::Abort::RanTooLong) at their next operation, or at commit; if
    /// they do not get there within 2 s, writers end with
    /// [`Error::RemovedRows`](crate::Error::RemovedRows). All databases of the process count
    /// together.
    pub fn removed_limit(mut self, bytes: u64) -> Self {
        self.removed_limit = bytes;
        self
    }

    /// Limits the bytes that the [sums](crate::Schema::sum) of all tables take in memory; 64 MiB by
    /// default, which suffices for the sums over about a million rows. At the limit the sums of
    /// prefixes not asked for lately are dropped, and built again when asked for.
    pub fn sum_index_bytes(mut self, bytes: usize) -> Self {
        self.sum_index_bytes = bytes;
        self
    }

    /// Sets the number of partitions where transactions take turns (`partitioned` in the crate
    /// `hyades-schemes`): a power of two, 1 to 64.
    /// Default: 64, more than most machines have cores, so that few transactions meet in a
    /// partition without need. Each opening may use another number.
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets how many calls may be [posted](crate::Database::post) and not have ended, 1 to 10,000.
    /// Default: 5,000.
    pub fn posted_calls(mut self, calls: usize) -> Self {
        self.posted_calls = calls;
        self
    }

    /// Sets how many threads run posted calls, at most 200. By default there are as many as cores.
    /// The threads are started when the first call is posted. If 0, posted calls wait until
    /// [`Database::run_posted`](crate::Database::run_posted) runs them.
    pub fn post_threads(mut self, threads: usize) -> Self {
        self.post_threads = Some(threads);
        self
    }

    /// Sets the number of sites, at most the number of partitions, where transactions take turns
    /// (`partitioned` in the crate `hyades-schemes`): threads that own the partitions, and alone
    /// run the calls of procedures, as in H-Store and VoltDB. A call goes to
    /// the sites of its [stated](Builder::on) partitions, or to all sites; the sites of a call with
    /// several sites stop until one site has run the call. [`Session::call`](crate::Session::call)
    /// waits until the call has run; clients with many calls under way
    /// [post](crate::Database::post) them. Closures run on their caller's thread.
    ///
    /// By default there are no sites, and a call runs on its caller's thread when its turn has
    /// come: nothing is handed over, and no partition's thread has to wait for another thread.
    /// Sites are there for comparison.
    pub fn sites(mut self, sites: usize) -> Self {
        self.sites = Some(sites);
        self
    }

    /// Acknowledges transactions when pre-committed, before they are on disk: tickets are
    /// acknowledged at once, and [`Database::call`](crate::Database::call) and the like wait for no
    /// device. Off by default.
    ///
    /// A crash then loses acknowledged transactions: the commits during the last flush and since,
    /// which is about [`LogSettings::flush_interval`](crate::LogSettings) and the time of a write,
    /// or some milliseconds without an interval. The recovered state is consistent all the same:
    /// whole transactions, and none without its predecessors. Closing the database loses nothing.
    pub fn asynchronous(mut self, is_so: bool) -> Self {
        self.asynchronous = is_so;
        self
    }

    /// Has each [`Session`](crate::Session) keep an order: a transaction follows the previous
    /// transaction of its session, also where the two have no row in common. Then a crash leaves a
    /// prefix of the session's transactions, with the transactions that they had read from; and the
    /// ticket of a transaction with writes speaks for all before it. Off by default.
    ///
    /// Without an order, of two transactions under way at once the later may survive alone, unless
    /// it depends on the earlier by a row. A session that waits for each ticket before the next
    /// transaction has the same guarantee at no cost, and so have
    /// [`Database::transact`](crate::Database::transact) and the like, unless the database is
    /// [asynchronous](Builder::asynchronous). With an order, a transaction whose predecessor is not
    /// on disk states up to one position for each stream in its record, and is acknowledged no
    /// earlier than the predecessor (docs/performance.md). Posted calls and transactions of
    /// borrowed sessions have no order. See [`Session::in_order`](crate::Session::in_order) for
    /// orders apart from sessions.
    pub fn session_order(mut self, is_kept: bool) -> Self {
        self.session_order = is_kept;
        self
    }
}
