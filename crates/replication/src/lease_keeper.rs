//! The holder of the lease: sets the key again and again, and extends the permission to answer.

use crate::keys::{self, different};
use crate::lease::{EPOCHS_AHEAD, KEY, Lease};
use crate::service::{LogService, Reply, Request, RequestId, Revision, Versioned};
use hyades_platform::{broken, clock};
use hyades_wal::{AnswerLease, Lsn, RemoteEnded};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A set whose outcome is not known.
#[derive(Clone, Copy, Debug)]
struct SentSet {
    renewal: u64,
    sent_ns: u64,
    epoch_limit: u64,
}

/// What a holder has under way.
#[derive(Debug)]
enum LeaseRequest {
    Nothing,
    Set(RequestId, u64),
    Look(RequestId),
}

/// Keeps the lease of a primary, and with the lease the permission to answer.
#[derive(Debug)]
pub struct LeaseKeeper {
    service: Arc<dyn LogService>,
    term_ns: u64,
    own: Lease,
    revision: Revision,
    answers: Arc<AnswerLease>,
    /// Sets since the newest that is known to be applied.
    sent: VecDeque<SentSet>,
    under_way: LeaseRequest,
    /// When the next set is due.
    due_ns: u64,
    /// The newest set that is known to be applied.
    applied: u64,
    /// The limit of epochs that is known to be stated by the key.
    epoch_limit: u64,
}

impl LeaseKeeper {
    /// Keeps a lease that was taken under this revision. `sent_ns` is the time by
    /// [`clock::boot_ns`] before the taking. `term` is L.
    pub fn new(
        service: Arc<dyn LogService>,
        (own, revision): (Lease, Revision),
        (term, sent_ns): (Duration, u64),
        answers: Arc<AnswerLease>,
    ) -> LeaseKeeper {
        let term_ns = term.as_nanos() as u64;
        answers.extend(sent_ns + answered_ns(term_ns));
        LeaseKeeper {
            service,
            term_ns,
            applied: own.renewal,
            epoch_limit: own.epoch_limit,
            own,
            revision,
            answers,
            sent: VecDeque::new(),
            under_way: LeaseRequest::Nothing,
            due_ns: sent_ns,
        }
    }

    /// The limit of epochs that the key is known to state.
    pub fn epoch_limit(&self) -> u64 {
        self.epoch_limit
    }

    /// The lease as it was set last.
    pub fn own(&self) -> &Lease {
        &self.own
    }

    /// Sets the lease when a set is due, and takes answers. `epoch` is the database's current
    /// epoch; `stored` are the stored positions, by stream. `wait`: returns once there is an
    /// answer to what is under way. Returns whether a set is newly known to be applied.
    ///
    /// # Errors
    /// [`RemoteEnded::Fenced`]: another process has the lease.
    pub fn step(&mut self, epoch: u64, stored: &[Lsn], wait: bool) -> Result<bool, RemoteEnded> {
        match self.under_way {
            LeaseRequest::Nothing if clock::boot_ns() < self.due_ns => Ok(false),
            LeaseRequest::Nothing => {
                self.set(epoch, stored);
                Ok(false)
            }
            LeaseRequest::Set(request, renewal) => match self.service.answer(request, wait) {
                None => Ok(false),
                Some(Reply::Put(revision)) => Ok(self.is_applied(revision, renewal)),
                Some(Reply::Gone(what)) => Err(RemoteEnded::Different(what)),
                // Refused: perhaps since an earlier set was applied whose reply was lost.
                Some(_) => {
                    self.look();
                    Ok(false)
                }
            },
            LeaseRequest::Look(request) => match self.service.answer(request, wait) {
                None => Ok(false),
                Some(Reply::Value(value)) => self.saw(value),
                Some(Reply::Gone(what)) => Err(RemoteEnded::Different(what)),
                Some(_) => {
                    self.look();
                    Ok(false)
                }
            },
        }
    }

    fn set(&mut self, epoch: u64, stored: &[Lsn]) {
        let own = &mut self.own;
        own.renewal += 1;
        own.epoch_limit = own.epoch_limit.max(epoch + EPOCHS_AHEAD);
        own.know_stored(stored);
        let sent_ns = clock::boot_ns();
        let set = SentSet { renewal: own.renewal, sent_ns, epoch_limit: own.epoch_limit };
        self.sent.push_back(set);
        let request = keys::put(KEY, self.revision, keys::encode(own));
        self.under_way = LeaseRequest::Set(self.service.begin(request), set.renewal);
        self.due_ns = sent_ns + self.term_ns / 6;
    }

    fn look(&mut self) {
        let request = self.service.begin(Request::Get { key: KEY.to_owned() });
        self.under_way = LeaseRequest::Look(request);
    }

    /// A set is known to be applied. The lease counts from its sending.
    fn is_applied(&mut self, revision: Revision, renewal: u64) -> bool {
        self.under_way = LeaseRequest::Nothing;
        self.revision = revision;
        let mut is_new = false;
        while let Some(set) = self.sent.pop_front_if(|set| set.renewal <= renewal) {
            if set.renewal == renewal {
                let from = match broken!(LeaseFromArrival) {
                    true => clock::boot_ns(),
                    false => set.sent_ns,
                };
                self.answers.extend(from + answered_ns(self.term_ns));
                self.epoch_limit = self.epoch_limit.max(set.epoch_limit);
                self.applied = renewal;
                is_new = true;
            }
        }
        is_new
    }

    /// A look has shown the key.
    fn saw(&mut self, value: Option<Versioned>) -> Result<bool, RemoteEnded> {
        let Some((revision, value)) = value else {
            return Err(different(format!("key {KEY:?} of the log service is gone")));
        };
        let found = Lease::decode(&value)?;
        if found.incarnation > self.own.incarnation {
            return Err(RemoteEnded::Fenced { by: found.incarnation });
        }
        if !found.is_of(&self.own) || found.renewal > self.own.renewal {
            return Err(different(format!(
                "key {KEY:?} of the log service is of incarnation {} on node {:?}, and incarnation \
                 {} holds the lease",
                found.incarnation, found.node, self.own.incarnation
            )));
        }
        Ok(self.is_applied(revision, found.renewal))
    }

    /// Gives the lease away, to a node or to any: answers nothing from now on, and says so in the
    /// key, with the stored positions. Returns whether the key is known to say so, after at most
    /// `patience`.
    pub fn release(mut self, successor: Option<&str>, stored: &[Lsn], patience: Duration) -> bool {
        self.answers.end();
        let until = clock::boot_ns() + patience.as_nanos() as u64;
        (self.own.released, self.own.successor) = (true, successor.map(str::to_owned));
        let first = self.own.renewal + 1;
        while self.applied < first && clock::boot_ns() < until {
            self.due_ns = 0;
            if self.step(0, stored, true).is_err() {
                return false;
            }
        }
        self.applied >= first
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        // A reader would wait for a renewal for ever.
        self.answers.end();
    }
}

/// How long a holder answers after the sending of a set.
fn answered_ns(term_ns: u64) -> u64 {
    term_ns / 10 * 9
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::lease::{Holder, newest, take};
    use crate::simulated::{Faults, SimulatedLog};

    pub const TERM: Duration = Duration::from_secs(3);
    const DATABASE: [u8; 16] = [1; 16];

    pub fn holder(node: &str) -> Holder {
        Holder { node: node.into(), address: "h:1".into(), place: format!("place of {node}") }
    }

    pub fn at(seconds: f64) {
        clock::simulate(Some(1_000_000_000 + (seconds * 1e9) as u64));
    }

    /// A holder that has taken the lease at time 0, and its permission to answer.
    pub fn held(service: &Arc<SimulatedLog>, incarnation: u32) -> (LeaseKeeper, Arc<AnswerLease>) {
        let own = Lease::new(&DATABASE, incarnation, &holder("a"), 70);
        let sent_ns = clock::boot_ns();
        let revision = take(&**service, Revision::NONE, &own).unwrap().unwrap();
        let answers = Arc::new(AnswerLease::new());
        let kept = (own, revision);
        let keeper = LeaseKeeper::new(service.clone(), kept, (TERM, sent_ns), answers.clone());
        (keeper, answers)
    }

    #[test]
    fn a_holder_answers_for_nine_tenths_from_the_sending() {
        at(0.0);
        let service = Arc::new(SimulatedLog::new(1, 1, Faults::default()));
        let (mut keeper, answers) = held(&service, 1);
        assert!(answers.may_answer());
        at(2.6);
        keeper.step(0, &[5], false).unwrap();
        // The reply is taken much later: the sending counts.
        at(2.65);
        assert!(answers.may_answer());
        assert!(keeper.step(0, &[5], false).unwrap());
        at(2.6 + 2.69);
        assert!(answers.may_answer());
        at(2.6 + 2.71);
        assert!(!answers.may_answer());
        let stated = newest(&*service).unwrap().unwrap().1;
        assert_eq!((stated.renewal, &stated.stored[..]), (1, &[5][..]));
        assert!(stated.first_epoch_above() == 70 && keeper.epoch_limit() == 70 + EPOCHS_AHEAD);
        // A later epoch raises the limit, once the key states the limit.
        keeper.step(1000, &[4], false).unwrap();
        assert_eq!(keeper.epoch_limit(), 70 + EPOCHS_AHEAD);
        keeper.step(1000, &[4], false).unwrap();
        assert_eq!(keeper.epoch_limit(), 1000 + EPOCHS_AHEAD);
        assert_eq!(newest(&*service).unwrap().unwrap().1.stored, [5], "positions only grow");
        drop(keeper);
        assert!(answers.has_ended());
        clock::simulate(None);
    }

    #[test]
    fn a_refused_holder_looks_first() {
        at(0.0);
        for seed in 0..30 {
            let faults = Faults { lost_replies: 0.6, ..Faults::default() };
            let service = Arc::new(SimulatedLog::new(1, seed, faults));
            let (mut keeper, answers) = held(&service, 1);
            for second in 1..40 {
                at(f64::from(second) * 0.5);
                for _ in 0..30 {
                    keeper.step(0, &[], false).unwrap();
                }
                assert!(answers.may_answer(), "seed {seed}: it holds the lease");
            }
            let (revision, _) = newest(&*service).unwrap().unwrap();
            let other = Lease::new(&DATABASE, 2, &holder("b"), 0);
            take(&*service, revision, &other).unwrap().unwrap();
            at(21.0);
            let ended = (0..100).find_map(|_| keeper.step(0, &[], false).err());
            assert_eq!(ended, Some(RemoteEnded::Fenced { by: 2 }));
            at(0.0);
        }
        clock::simulate(None);
    }
}
