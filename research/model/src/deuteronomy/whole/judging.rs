//! The promises: reads of transactions, acknowledgements, and recovery.

use super::{FIRST, Frame, KEYS, Rule, STREAMS, Status, Transaction, World};
use std::collections::BTreeSet;

impl World {
    /// The promise broken by a power cut in this state, if any.
    pub(super) fn judge(mut self) -> Option<String> {
        let live = self.live();
        self.wrong_read().or_else(|| self.lost(&live)).or_else(|| self.wrong_recovery(&live))
    }

    fn committed(&self) -> impl Iterator<Item = (u32, &Transaction)> {
        let all = self.transactions.iter().map(|(ts, transaction)| (*ts, transaction));
        all.filter(|(_, transaction)| transaction.status == Status::Committed)
    }

    fn wrote(&self, ts: u32, key: usize) -> bool {
        self.transactions[&ts].writes.iter().any(|write| write.0 == key)
    }

    /// The order of timestamps is a serial order.
    fn wrong_read(&self) -> Option<String> {
        self.committed().find_map(|(ts, transaction)| {
            transaction.reads.iter().find_map(|&(key, read)| {
                let earlier = self.committed().filter(|(by, _)| *by < ts && self.wrote(*by, key));
                let newest = earlier.map(|(by, _)| by).max().unwrap_or(FIRST);
                (read != newest).then(|| {
                    format!("T{ts} has read version {read} of {}, {newest} is right", name(key))
                })
            })
        })
    }

    /// The transactions that count after the power cut.
    fn live(&self) -> BTreeSet<u32> {
        let durable = |stream: usize| self.log[stream][..self.durable[stream]].iter();
        let commits = (0..STREAMS).flat_map(durable).filter_map(|frame| match *frame {
            Frame::Commit { ts, needs } if self.is_durable(needs) => Some(ts),
            _ => None,
        });
        commits.collect()
    }

    /// Acknowledged transactions count, and all transactions that they have read from.
    fn lost(&self, live: &BTreeSet<u32>) -> Option<String> {
        self.committed().find_map(|(ts, transaction)| {
            if transaction.is_acknowledged && !transaction.writes.is_empty() && !live.contains(&ts)
            {
                return Some(format!("T{ts} was acknowledged, and is lost"));
            }
            if !transaction.is_acknowledged && !live.contains(&ts) {
                return None;
            }
            let is_lost = |read: &&(usize, u32)| read.1 > FIRST && !live.contains(&read.1);
            let (key, read) = transaction.reads.iter().find(is_lost)?;
            Some(format!("T{ts} has read version {read} of {}, which is lost", name(*key)))
        })
    }

    /// The durable state of the data component and redo give the state of the transactions that
    /// count.
    fn wrong_recovery(&mut self, live: &BTreeSet<u32>) -> Option<String> {
        (0..KEYS).find_map(|key| {
            let since = &self.since[key];
            let mut got = since[self.rng.usize(0..since.len())];
            for stream in 0..STREAMS {
                for frame in &self.log[stream][self.resume[stream]..self.durable[stream]] {
                    let Frame::Operation { ts, key: written } = *frame else { continue };
                    let counts = live.contains(&ts) || self.breaks(Rule::RedoCommitted);
                    if written == key && counts {
                        got = got.max(ts);
                    }
                }
            }
            let writers = live.iter().copied().filter(|ts| self.wrote(*ts, key));
            let right = writers.max().unwrap_or(FIRST);
            (got != right)
                .then(|| format!("version {got} of {} is recovered, {right} is right", name(key)))
        })
    }
}

fn name(key: usize) -> char {
    char::from(b'a' + key as u8)
}
