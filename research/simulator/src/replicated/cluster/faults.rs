//! What befalls the members of a cluster, and the log.

use super::super::service::{Lie, MS};
use super::{Cluster, MEMBERS};
use hyades_platform::device::{SimulatedDisk, SimulatedFault};
use hyades_platform::sync::Unpoisoned;

impl Cluster {
    pub(super) fn ill(&self, at: usize, until: u64) {
        let fate = &self.fates[at];
        fate.ill_until.set(fate.ill_until.get().max(until));
    }

    /// Kills a member's process, or cuts its power.
    pub(super) fn kill(&self, at: usize, cuts_power: bool, until: u64) {
        let fate = &self.fates[at];
        self.say(format!("member {at} is killed (power: {cuts_power}) until {}", until / MS));
        self.net.lock().unpoisoned().processes[at] += 1;
        if cuts_power {
            fate.boots.set(fate.boots.get() + 1);
            self.disks[at].borrow().power_cut(self.draw(|rng| rng.u64(..)));
        } else {
            self.disks[at].borrow().kill();
        }
        fate.is_killed.set(true);
        fate.down_until.set(until);
        fate.paused_until.set(0);
        self.ill(at, until);
        // A member that waits is dropped when it returns.
        self.with_node(at, 0, |_| {});
    }

    /// Something great goes wrong.
    pub(super) fn fault(&self, now: u64) {
        let until = now + self.some_time();
        let primary = self.nodes.iter().position(|node| {
            let node = node.try_borrow();
            node.is_ok_and(|node| node.databases.iter().any(|one| one.incarnation.is_some()))
        });
        let at = match primary {
            Some(primary) if self.draw(|rng| rng.u8(..3)) > 0 => primary,
            _ => self.draw(|rng| rng.usize(..MEMBERS)),
        };
        match self.draw(|rng| rng.u8(..14)) {
            0 => {
                self.count("kills");
                self.kill(at, false, now + self.some_time() / 3);
            }
            1 => {
                self.count("power cuts");
                self.kill(at, true, now + self.some_time() / 3);
            }
            2 | 3 => {
                self.count("pauses");
                self.say(format!("member {at} rests until {}", until / MS));
                self.fates[at].paused_until.set(until);
                self.ill(at, until);
            }
            4..7 => self.cut_off(at, until),
            7 | 8 => self.without_leader(until),
            9 => self.hand_over(at, now),
            10 if self.shape.checkpoints => self.checkpoint(at, now),
            11 if self.draw(|rng| rng.u8(..3)) == 0 => {
                self.count("power cuts of all");
                (0..MEMBERS).for_each(|at| self.kill(at, true, now + self.some_time() / 4));
            }
            12 => self.lie(),
            13 => self.lose_disk(at, now),
            _ => {
                if let Ok(node) = self.nodes[at].try_borrow()
                    && let Some(device) = &node.device
                {
                    self.count("processes that stop at a write");
                    device.arm(SimulatedFault::Stop(self.draw(|rng| rng.u64(..20))));
                }
            }
        }
    }

    /// A machine burns, and another one takes its place. Not if the files of another member may be
    /// needed, too: the lanes are purged once two members have the files.
    fn lose_disk(&self, at: usize, now: u64) {
        let others_have_all = self.fates.iter().all(|fate| !fate.has_lost_disk.get())
            && self.net.lock().unpoisoned().has_all_places();
        if self.shape.lie.is_none() && others_have_all {
            self.count("disks lost");
            self.say(format!("member {at} loses its disk"));
            self.kill(at, true, now + self.some_time() / 3);
            self.fates[at].has_lost_disk.set(true);
            *self.disks[at].borrow_mut() = SimulatedDisk::new();
        }
    }

    /// Nothing comes from a member, or to the member, or both.
    fn cut_off(&self, at: usize, until: u64) {
        self.count("partitions");
        let ways = self.draw(|rng| rng.u8(1..4));
        self.say(format!("member {at} is cut off ({ways}) until {}", until / MS));
        let mut net = self.net.lock().unpoisoned();
        for way in 0..2 {
            if ways & (1 << way) != 0 {
                net.cut_until[at][way] = until;
            }
        }
        drop(net);
        self.ill(at, until);
    }

    /// A lane, or the keys, are without a leader.
    fn without_leader(&self, until: u64) {
        self.count("leaderless times");
        let lane = self.draw(|rng| rng.usize(..=self.shape.streams));
        self.say(format!("lane {lane} is without a leader until {}", until / MS));
        self.net.lock().unpoisoned().leaderless_until[lane] = until;
        self.log_ill_until.set(self.log_ill_until.get().max(until));
    }

    /// The log lies, once in a history.
    fn lie(&self) {
        let mut net = self.net.lock().unpoisoned();
        if let Some(lie) = self.shape.lie.filter(|_| net.has_lied.is_none())
            && net.lie(lie)
        {
            let has_lost_seal = net.has_lost_seal;
            drop(net);
            self.count("lies of the log");
            self.say(format!("the log lies: {lie:?}"));
            let mut judge = self.judge.borrow_mut();
            (judge.is_lenient, judge.has_lost_seal) = (lie == Lie::Tail, has_lost_seal);
        }
    }

    pub(super) fn hand_over(&self, at: usize, now: u64) {
        let to = self.draw(|rng| rng.bool().then(|| format!("n{}", rng.usize(..MEMBERS))));
        self.say(format!("member {at} is asked to hand over to {to:?}"));
        self.with_node(at, now, |node| {
            let Some(member) = &mut node.member else { return };
            let role = member.hand_over_now(to.as_deref());
            if role.is_some() {
                self.count("handovers");
                self.ill(at, self.time.now());
            }
            if !self.fates[at].is_killed.get() {
                self.turned(at, node, role);
            }
        });
    }

    pub(super) fn checkpoint(&self, at: usize, now: u64) {
        self.with_database(at, now, |served| {
            if served.incarnation.is_some()
                && let Some(log) = served.database.log()
                && log.flush().is_ok()
                && served.database.checkpoint().is_ok()
            {
                self.count("checkpoints of primaries");
            }
        });
    }

    /// Restarts processes whose disk has stopped at a write.
    pub(super) fn bury(&self) {
        let now = self.time.now();
        for at in 0..MEMBERS {
            let is_dead = self.nodes[at]
                .try_borrow()
                .is_ok_and(|node| node.device.as_ref().is_some_and(|device| !device.is_alive()));
            if is_dead && !self.fates[at].is_killed.get() {
                let cuts_power = self.draw(|rng| rng.bool());
                self.kill(at, cuts_power, now + self.some_time() / 3);
            }
        }
    }
}
