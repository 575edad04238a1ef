//! Settings of where transactions run, and when they are acknowledged: partitions, posted calls,
//! sites.

use super::Builder;

impl Builder {
    /// Sets the number of partitions under
    /// [`Concurrency::Partitioned`](crate::Concurrency::Partitioned): a power of two, 1 to 64.
    /// Default: 64, more than most machines have cores, so that few transactions meet in one
    /// without need. Each opening may use another number.
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
    /// They are started when the first call is posted. If 0, posted calls wait until
    /// [`Database::run_posted`](crate::Database::run_posted) runs them.
    pub fn post_threads(mut self, threads: usize) -> Self {
        self.post_threads = Some(threads);
        self
    }

    /// Sets the number of sites, at most that of partitions, under
    /// [`Concurrency::Partitioned`](crate::Concurrency::Partitioned): threads that own the
    /// partitions, and alone run the calls of procedures, as in H-Store and VoltDB. A call goes to
    /// the sites of the partitions that it [states](Builder::on), or to all; those of a call with
    /// several sites stop until one of them has run it. [`Session::call`](crate::Session::call)
    /// waits until the call has run; clients that have many under way
    /// [post](crate::Database::post) them. Closures run on their caller's thread.
    ///
    /// By default there are none, and a call runs on its caller's thread when its turn has come:
    /// nothing is handed over, and no partition's thread has to wait for another one. Sites are
    /// there for comparison.
    pub fn sites(mut self, sites: usize) -> Self {
        self.sites = Some(sites);
        self
    }

    /// Acknowledges transactions when they are pre-committed, before they are on disk: tickets are
    /// acknowledged at once, and [`Database::call`](crate::Database::call) and the like wait for no
    /// device. Off by default.
    ///
    /// A crash then loses transactions that were acknowledged: what was committed during the last
    /// flush and since, which is about [`LogSettings::flush_interval`](crate::LogSettings) and the
    /// time of a write, or some milliseconds without an interval. What is recovered is consistent
    /// all the same: whole transactions, and none without those that it follows. Closing the
    /// database loses nothing.
    pub fn asynchronous(mut self, is_so: bool) -> Self {
        self.asynchronous = is_so;
        self
    }
}
