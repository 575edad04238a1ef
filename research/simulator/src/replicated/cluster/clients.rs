//! The clients of a cluster: transfers and reads, on each database that members have.

use super::super::judge::{Column, ShownRows, Transfer};
use super::tables::content;
use super::{Cluster, Served};
use hyades::Error;

const ACCOUNTS: i64 = 12;
/// Transactions of a database that are under way, at most.
const UNDER_WAY: usize = 24;

/// What a client waits for.
pub(super) enum ClientAsk {
    Transfer { number: i64, served: u32 },
    Read { content: ShownRows, known: usize },
}

impl Cluster {
    pub(super) fn with_database(&self, at: usize, now: u64, act: impl FnOnce(&mut Served)) {
        self.with_node(at, now, |node| {
            let number = node.databases.len();
            if number > 0 {
                act(&mut node.databases[self.draw(|rng| rng.usize(..number))]);
            }
        });
    }

    pub(super) fn step_log(&self, served: &mut Served) {
        if let Some(log) = served.database.log().filter(|_| served.incarnation.is_some()) {
            log.step(self.draw(|rng| rng.usize(..log.streams())));
        }
    }

    pub(super) fn transfer(&self, served: &mut Served) {
        let is_quiet = !self.has_faults.get();
        if served.incarnation.is_none() || served.under_way.len() >= UNDER_WAY || is_quiet {
            return;
        }
        let mut judge = self.judge.borrow_mut();
        let number = judge.transfers.len() as i64;
        let (from, step) = self.draw(|rng| (rng.i64(..ACCOUNTS), rng.i64(1..ACCOUNTS)));
        let amount = self.draw(|rng| if rng.u8(..16) == 0 { 0 } else { rng.i64(1..9) });
        let transfer = Transfer { from, to: (from + step) % ACCOUNTS, amount };
        judge.transfers.push(transfer);
        let served_now = judge.served;
        drop(judge);
        let input = (number, transfer.from, transfer.to, amount);
        match served.session.call(served.call, &input) {
            Ok((Ok(()), ticket)) => {
                let asked = ClientAsk::Transfer { number, served: served_now };
                served.under_way.push((asked, ticket));
                self.say(format!("transfer {number} under {:?}", served.incarnation));
            }
            // The transfer may be there, or not.
            Err(Error::OutcomeUnknown) => {}
            Ok((Err(_), _)) | Err(_) => self.judge.borrow_mut().refused(number),
        }
    }

    pub(super) fn read(&self, served: &mut Served, at: usize) {
        let known = self.judge.borrow().known();
        let Ok((shown, ticket)) = served.session.submit(|tx| Ok(content(tx)?)) else { return };
        match served.incarnation {
            Some(_) if served.under_way.len() < UNDER_WAY => {
                served.under_way.push((ClientAsk::Read { content: shown, known }, ticket));
            }
            Some(_) => {}
            None => self.judge.borrow_mut().standby_read(&shown, 0, at),
        }
    }

    /// Takes the answers of a database.
    pub(super) fn poll(&self, served: &mut Served) {
        let Some(by) = served.incarnation else { return };
        for (asked, ticket) in std::mem::take(&mut served.under_way) {
            let acknowledged = ticket.is_acknowledged();
            let mut judge = self.judge.borrow_mut();
            match (acknowledged, asked) {
                (Ok(false), asked) => served.under_way.push((asked, ticket)),
                (Ok(true), ClientAsk::Transfer { number, served }) => {
                    judge.acknowledged(number, by, served);
                    drop(judge);
                    self.say(format!("transfer {number} is acknowledged under {by}"));
                }
                (Ok(true), ClientAsk::Read { content, known }) => judge.read(&content, by, known),
                (Err(Error::OutcomeUnknown), _) | (Err(_), ClientAsk::Read { .. }) => {}
                (Err(error), ClientAsk::Transfer { number, .. }) => {
                    let sentence = format!("transfer {number} ends with {error}");
                    judge.wrong(Column::Hung, sentence);
                }
            }
        }
    }
}
