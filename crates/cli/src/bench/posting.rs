//! Posted calls: the options, and the calls of a worker that have not run.

use super::choices::Concurrency;
use super::options::usage;
use crate::failure::Failure;
use clap::Args;
use hyades::{Abort, Builder, Error, PostedCall, Ticket};
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
    /// the workers post the calls, and a call of several sites stops them all [default: none; a
    /// call runs on its worker's thread when its turn has come]
    #[arg(long, value_name = "N")]
    pub sites: Option<usize>,
}

impl Posting {
    /// Whether workers post their calls.
    pub fn posts(&self) -> bool {
        self.post || self.sites.is_some()
    }

    /// The first option that is set.
    pub fn first_set(&self) -> Option<&'static str> {
        let set = [
            ("--post", self.post),
            ("--posted-calls", self.posted_calls.is_some()),
            ("--sites", self.sites.is_some()),
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
        let Some(sites) = self.sites else { return Ok(()) };
        if concurrency != Concurrency::Partitioned {
            return usage(format!(
                "{} has no partitions that sites could own: --sites is for --concurrency \
                 partitioned",
                concurrency.word()
            ));
        }
        if !(1..=64).contains(&sites) {
            return usage(format!("--sites must be 1 to 64, not {sites}"));
        }
        Ok(())
    }

    /// Sets up a database for them.
    pub fn apply(&self, builder: Builder) -> Builder {
        let builder = match self.sites {
            Some(sites) => builder.sites(sites),
            None => builder,
        };
        match self.posts() {
            true => builder.posted_calls(self.posted_calls.unwrap_or(MOST_POSTED)),
            false => builder,
        }
    }

    /// The calls of one of `workers`, if these post them.
    pub fn queue(&self, workers: usize) -> Option<PostedInOrder> {
        self.posts().then(|| PostedInOrder::of(workers, self.posted_calls.is_some()))
    }
}

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
