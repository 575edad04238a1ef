//! Posted calls: the options, and the calls of a worker that have not run.

use super::choices::Concurrency;
use clap::Args;
use hyades::{Abort, Builder, Error, PostedCall, Ticket};
use hyades_cli::failure::{Failure, usage};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Options of posted calls.
#[derive(Args, Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Posting {
    /// Workers post their calls, and threads of the database, one for each core, run them
    /// [default: a call runs on its worker's thread; with --sites they are always posted]
    #[arg(long)]
    pub post: bool,
    /// Most posted calls that may be open, 1 to 10,000; one more is refused, and the report counts
    /// these [default: workers wait before one would be refused]
    #[arg(long, value_name = "N")]
    pub posted_calls: Option<usize>,
    /// Under partitioned: N threads that own the partitions and alone run their calls, as VoltDB;
    /// the workers post the calls, and a call of several sites stops them all; at most as many as
    /// partitions [default: 0, none; a call runs on its worker's thread when its turn has come]
    #[arg(long, value_name = "N")]
    pub sites: Option<usize>,
    /// Under partitioned: over how many partitions the rows are spread, a power of two, 1 to 64
    /// [default: 64]
    #[arg(long, value_name = "N")]
    pub partitions: Option<usize>,
}

impl Posting {
    /// Whether workers post their calls.
    pub fn posts(&self) -> bool {
        self.post || self.site_threads().is_some()
    }

    /// The number of sites, if there are any.
    pub fn site_threads(&self) -> Option<usize> {
        self.sites.filter(|sites| *sites > 0)
    }

    /// Whether it has what only partitioned execution has.
    pub fn is_about_partitions(&self) -> bool {
        self.partitions.is_some() || self.site_threads().is_some()
    }

    /// The number of partitions under a concurrency control that has some.
    pub fn partitions_under(&self, concurrency: Concurrency) -> Option<usize> {
        let is_partitioned = concurrency == Concurrency::Partitioned;
        is_partitioned.then_some(self.partitions.unwrap_or(MOST_PARTITIONS))
    }

    /// The first option that is set.
    pub fn first_set(&self) -> Option<&'static str> {
        let set = [
            ("--post", self.post),
            ("--posted-calls", self.posted_calls.is_some()),
            ("--sites", self.sites.is_some()),
            ("--partitions", self.partitions.is_some()),
        ];
        set.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    /// Checks the options under this concurrency control.
    ///
    /// # Errors
    /// Wrong usage, in one sentence.
    pub fn check(&self, concurrency: Concurrency) -> Result<(), Failure> {
        if let Some(calls) = self.posted_calls {
            if !self.posts() {
                return usage(
                    "--posted-calls limits calls that are posted: add --post, or leave it out",
                );
            }
            if !(1..=MOST_POSTED).contains(&calls) {
                return usage(format!("--posted-calls must be 1 to {MOST_POSTED}, not {calls}"));
            }
        }
        let Some(partitions) = self.partitions_under(concurrency) else {
            let word = concurrency.word();
            return match (self.partitions, self.site_threads()) {
                (None, None) => Ok(()),
                (Some(_), _) => usage(format!(
                    "{word} has no partitions: --partitions is for --concurrency partitioned"
                )),
                (None, Some(_)) => usage(format!(
                    "{word} has no partitions that sites could own: --sites is for --concurrency \
                     partitioned"
                )),
            };
        };
        if !partitions.is_power_of_two() || partitions > MOST_PARTITIONS {
            return usage(format!(
                "--partitions must be a power of two, 1 to {MOST_PARTITIONS}, not {partitions}"
            ));
        }
        match self.site_threads() {
            Some(sites) if sites > partitions => usage(format!(
                "--sites must be 0 to {partitions}, the number of partitions, not {sites}"
            )),
            _ => Ok(()),
        }
    }

    /// Sets up a database for them.
    pub fn apply(&self, builder: Builder) -> Builder {
        let builder = match self.partitions {
            Some(partitions) => builder.partitions(partitions),
            None => builder,
        };
        let builder = match self.site_threads() {
            Some(sites) => builder.sites(sites),
            None => builder,
        };
        match self.posts() {
            true => builder.posted_calls(self.posted_calls.unwrap_or(MOST_POSTED)),
            false => builder,
        }
    }

    /// The queue of calls of one of `workers`, if the workers post calls.
    pub fn queue(&self, workers: usize) -> Option<PostedInOrder> {
        self.posts().then(|| PostedInOrder::of(workers, self.posted_calls.is_some()))
    }
}

/// The most partitions that a database has, and how many it has by default
/// ([`hyades::Builder::partitions`]).
const MOST_PARTITIONS: usize = 64;

/// The most calls that a database takes ([`hyades::Builder::posted_calls`]).
const MOST_POSTED: usize = 10_000;

/// The most calls of a worker: enough that no site is idle, few enough that they stay in the cache.
const MOST_OF_ONE: usize = 256;

/// A call that has run: its outcome, and when it was started.
type RunCall = (Result<(Result<(), Abort>, Ticket), Error>, u64);

/// Calls that have not run, with the times at which they were started, oldest first.
pub struct PostedInOrder {
    calls: VecDeque<(PostedCall<()>, u64)>,
    most: usize,
}

impl PostedInOrder {
    /// For one of `workers`. One that `is_refused` when the database takes no more has no limit of
    /// its own.
    fn of(workers: usize, is_refused: bool) -> Self {
        let most = (MOST_POSTED / workers).clamp(1, MOST_OF_ONE);
        let calls = VecDeque::with_capacity(most);
        PostedInOrder { calls, most: if is_refused { usize::MAX } else { most } }
    }

    /// The number of calls.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether no more may be posted until one has run.
    pub fn is_full(&self) -> bool {
        self.calls.len() >= self.most
    }

    /// Adds a call.
    pub fn push(&mut self, call: PostedCall<()>, at_ns: u64) {
        self.calls.push_back((call, at_ns));
    }

    /// Waits until half of the calls have run, so that the thread is not woken for each.
    pub fn wait_for_some(&self) {
        let middle = self.calls.get(self.calls.len() / 2);
        self.calls.front().into_iter().chain(middle).for_each(|(call, _)| call.wait_until_run());
    }

    /// Takes the oldest call if it has run.
    pub fn next_that_ran(&mut self) -> Option<RunCall> {
        let (call, at_ns) = self.calls.front_mut()?;
        let ran = (call.try_outcome()?, *at_ns);
        self.calls.pop_front();
        Some(ran)
    }
}
