//! The times for a further thread of the proxy.
//!
//! More threads help if the waiting operations become more, although batches are full and could be
//! cut further. Threads should not take processors from transactions: so either a processor is
//! idle, or more than half of the limit waits. Threads without work end by themselves.

/// How often the load is looked at.
const EVERY_NS: u64 = 10_000_000;

/// The load at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProxyLoad {
    /// The monotonic clock.
    pub at_ns: u64,
    /// The processor time of the process.
    pub cpu_ns: u64,
    /// The bytes of the records waiting to be applied.
    pub lag: usize,
    /// How many may wait.
    pub lag_limit: usize,
}

/// The state for deciding on a further thread of the proxy.
#[derive(Debug)]
pub(super) struct Growth {
    processors: u64,
    /// At the last look.
    before: Option<ProxyLoad>,
    /// Whether a batch since then was full, and could have been cut into more pieces.
    could_cut_more: bool,
}

impl Growth {
    pub fn new(processors: usize) -> Self {
        Self { processors: processors as u64, before: None, could_cut_more: false }
    }

    /// Notes a full batch that could have been cut into more pieces.
    pub fn note_could_cut_more(&mut self) {
        self.could_cut_more = true;
    }

    /// Whether there should be a further thread.
    pub fn look(&mut self, now: ProxyLoad) -> bool {
        let Some(before) = self.before else {
            self.before = Some(now);
            return false;
        };
        let passed = now.at_ns.saturating_sub(before.at_ns);
        if passed < EVERY_NS {
            return false;
        }
        self.before = Some(now);
        let could_cut_more = std::mem::take(&mut self.could_cut_more);
        let had = now.cpu_ns.saturating_sub(before.cpu_ns);
        // Half a processor or more.
        let is_one_idle = had + passed / 2 <= self.processors * passed;
        let is_much = now.lag > now.lag_limit / 2;
        could_cut_more && now.lag > before.lag && (is_one_idle || is_much)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1000;

    /// Whether two processors, used by the process for `had` hundredths of the time, and a lag
    /// changed from the first to the second value, get a further thread.
    fn grows(had: u64, lag: (usize, usize), could_cut_more: bool) -> bool {
        let mut growth = Growth::new(2);
        let begin = ProxyLoad { at_ns: 5, cpu_ns: 7, lag: lag.0, lag_limit: LIMIT };
        assert!(!growth.look(begin), "there is nothing to compare with");
        if could_cut_more {
            growth.note_could_cut_more();
        }
        let at_ns = 5 + EVERY_NS;
        let early = ProxyLoad { at_ns: at_ns - 1, lag: LIMIT, ..begin };
        assert!(!growth.look(early), "it is too early");
        growth.look(ProxyLoad { at_ns, cpu_ns: 7 + EVERY_NS / 100 * had, lag: lag.1, ..begin })
    }

    #[test]
    fn it_grows_while_the_lag_rises_and_a_processor_is_idle() {
        assert!(grows(150, (10, 11), true));
        assert!(!grows(151, (10, 11), true), "all processors are busy");
        assert!(!grows(0, (11, 11), true), "no more waits than before");
        assert!(!grows(0, (10, 11), false), "one more thread would have nothing to do");
    }

    #[test]
    fn it_takes_processors_from_transactions_when_much_waits() {
        assert!(!grows(200, (10, LIMIT / 2), true));
        assert!(grows(200, (10, LIMIT / 2 + 1), true));
        assert!(!grows(200, (LIMIT, LIMIT), true));
    }

    #[test]
    fn a_full_batch_counts_once() {
        let mut growth = Growth::new(2);
        let at =
            |n: u64| ProxyLoad { at_ns: n * EVERY_NS, cpu_ns: 0, lag: n as usize, lag_limit: 9 };
        growth.look(at(0));
        growth.note_could_cut_more();
        assert!(growth.look(at(1)));
        assert!(!growth.look(at(2)), "that was before the last look");
    }
}
