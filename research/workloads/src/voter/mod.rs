//! Voter: callers vote for a contestant of a talent show by telephone. The application of VoltDB
//! with which "Rethinking Main Memory OLTP Recovery" (Malviya et al., ICDE 2014) measures command
//! logging: one short transaction, which inserts a row.
//!
//! A vote is valid if the contestant exists and the caller has not yet voted as often as allowed.
//! VoltDB's procedure reads the caller's count from a view of the votes. Here the counts are a
//! table of their own; *without a limit* ([`VoterConfig::limit`]) there is no count, and votes are
//! never read, as in the paper.
//!
//! Votes and counts are partitioned by the caller's number; contestants and states of area codes
//! are replicated.

mod check;
#[cfg(test)]
mod tests;
mod workload;

pub use check::check;
pub use workload::Voter;

use hyades::{Abort, Schema, Table, TableRow, Transaction, TypedTable};
use serde::{Deserialize, Serialize};

/// A contestant.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(hash)]
pub struct Contestant<'a> {
    /// The number to vote for, from 1.
    #[key]
    pub number: i32,
    /// The name.
    pub name: &'a str,
}

/// The state of an area code.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(name = "area_code_state", hash)]
pub struct AreaCode<'a> {
    /// The first three digits of a number.
    #[key]
    pub code: i32,
    /// The state.
    pub state: &'a [u8; 2],
}

/// A vote. Votes have no key: a caller may vote more than once.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(name = "votes")]
pub struct Vote<'a> {
    /// The caller's number.
    pub phone: i64,
    /// The state of the caller's area code.
    pub state: &'a [u8; 2],
    /// The contestant.
    pub contestant: i32,
}

/// The number of a caller's votes. Only where votes are limited. Ordered, so that the check finds
/// all callers.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(name = "votes_by_phone")]
pub struct Caller {
    /// The caller's number.
    #[key]
    pub phone: i64,
    /// The votes.
    pub votes: i32,
}

/// The handles of the four tables.
#[derive(Clone, Copy, Debug)]
pub struct VoterTables {
    /// Contestants.
    pub contestants: TypedTable<Contestant<'static>>,
    /// States of area codes.
    pub area_codes: TypedTable<AreaCode<'static>>,
    /// Votes.
    pub votes: TypedTable<Vote<'static>>,
    /// Votes of each caller.
    pub callers: TypedTable<Caller>,
}

impl VoterTables {
    /// Declares all through `declare`.
    pub fn declare(mut declare: impl FnMut(Schema) -> Table) -> VoterTables {
        VoterTables {
            contestants: TypedTable::of(declare(Contestant::schema().replicated())),
            area_codes: TypedTable::of(declare(AreaCode::schema().replicated())),
            votes: TypedTable::of(declare(Vote::schema().partition_by("phone"))),
            callers: TypedTable::of(declare(Caller::schema().partition_by("phone"))),
        }
    }
}

/// Settings of the workload.
#[derive(Clone, Copy, Debug)]
pub struct VoterConfig {
    /// The number of contestants, at least 1.
    pub contestants: i32,
    /// How often a caller may vote; `None`: without limit, and nothing is counted.
    pub limit: Option<i32>,
    /// The seed of the workload. No row of the population depends on the seed.
    pub seed: u64,
}

impl Default for VoterConfig {
    /// As VoltDB's application: 6 contestants, 2 votes.
    fn default() -> Self {
        VoterConfig { contestants: 6, limit: Some(2), seed: 1 }
    }
}

/// Area codes with a state. Area codes that do not exist have none.
pub(crate) const AREA_CODES: std::ops::Range<i32> = 201..1000;

/// Numbers below an area code.
pub(crate) const NUMBERS: i64 = 10_000_000;

/// States, each with every 50th area code.
const STATES: &[u8; 100] = b"ALAKAZARCACOCTDEFLGAHIIDILINIAKSKYLAMEMDMAMIMNMSMO\
MTNENVNHNJNMNYNCNDOHOKORPARISCSDTNTXUTVTVAWAWVWIWY";

/// The state of an area code with a state.
fn state_of(code: i32) -> &'static [u8; 2] {
    let (states, _) = STATES.as_chunks::<2>();
    &states[code as usize % states.len()]
}

/// The state of callers whose area code has none.
const NO_STATE: &[u8; 2] = b"XX";

/// Arguments of [`populate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VoterPopulate {
    /// The number of contestants.
    pub contestants: i32,
}

/// Inserts contestants and area codes.
pub fn populate(
    tx: &Transaction<'_>,
    tables: &VoterTables,
    call: &VoterPopulate,
) -> Result<(), Abort> {
    for number in 1..=call.contestants {
        let name = format!("Contestant {number}");
        tables.contestants.insert(tx, &Contestant { number, name: &name })?;
    }
    for code in AREA_CODES {
        tables.area_codes.insert(tx, &AreaCode { code, state: state_of(code) })?;
    }
    Ok(())
}

/// Arguments of [`vote`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ballot {
    /// The caller's number.
    pub phone: i64,
    /// The contestant.
    pub contestant: i32,
    /// How often a caller may vote; 0: without limit.
    pub limit: i32,
}

/// The result of a ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Counted {
    /// The ballot counts.
    Yes,
    /// The contestant does not exist.
    NoContestant,
    /// The caller has voted as often as allowed.
    OverLimit,
}

/// Casts a vote.
pub fn vote(tx: &Transaction<'_>, tables: &VoterTables, call: &Ballot) -> Result<Counted, Abort> {
    let &Ballot { phone, contestant, limit } = call;
    // The caller's partition comes first, so that replicated rows are read there.
    let counted = match limit {
        0 => None,
        _ => tables.callers.get_columns(tx, phone, Caller::VOTES.only())?,
    };
    let votes = counted.as_ref().map_or(0, |row| row.get(Caller::VOTES));
    if tables.contestants.get_columns(tx, contestant, hyades::Columns::NONE)?.is_none() {
        return Ok(Counted::NoContestant);
    }
    if limit != 0 && votes >= limit {
        return Ok(Counted::OverLimit);
    }
    let code = (phone / NUMBERS) as i32;
    let area = tables.area_codes.get(tx, code)?;
    let state = area.map_or(NO_STATE, |area| area.state);
    tables.votes.insert(tx, &Vote { phone, state, contestant })?;
    if limit != 0 {
        tables.callers.overwrite(tx, &Caller { phone, votes: votes + 1 })?;
    }
    Ok(Counted::Yes)
}
