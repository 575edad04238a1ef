//! The consistency check.

use super::*;
use crate::{Reader, Violation};
use hyades::Error;
use std::collections::BTreeMap;

/// Checks the conditions that must hold while no transaction runs:
/// 1. all contestants and area codes exist;
/// 2. each vote is for a contestant, and has the state of its area code;
/// 3. with a limit: each caller's count is the number of the caller's votes, and not above the
///    limit, and callers without votes have no count; without a limit: nothing is counted.
///
/// # Errors
/// The database's.
pub fn check<R: Reader>(
    reader: &R,
    tables: &VoterTables,
    config: &VoterConfig,
) -> Result<Vec<Violation>, Error> {
    let mut violations = Vec::new();
    let mut report = |condition, text| violations.push(Violation { condition, text });
    let found = reader.read(|tx| {
        let mut found = (0, 0);
        for number in 1..=config.contestants {
            found.0 += i32::from(tables.contestants.get(tx, number)?.is_some());
        }
        for code in AREA_CODES {
            found.1 += i32::from(tables.area_codes.get(tx, code)?.is_some());
        }
        Ok(found)
    })?;
    if found != (config.contestants, AREA_CODES.len() as i32) {
        report(1, format!("there are {} contestants and {} area codes", found.0, found.1));
    }
    let mut votes = BTreeMap::<i64, i32>::new();
    let mut faults = Vec::new();
    let cast = reader.read(|tx| {
        let columns = |vote: Vote<'_>| (vote.phone, *vote.state, vote.contestant);
        Ok(tables.votes.scan(tx).rows()?.map(columns).collect::<Vec<_>>())
    })?;
    for (phone, state, contestant) in cast {
        *votes.entry(phone).or_default() += 1;
        let code = (phone / NUMBERS) as i32;
        if !(1..=config.contestants).contains(&contestant) || state != *state_of(code) {
            faults.push(format!("{phone} has voted for {contestant}, in state {state:?}"));
        }
    }
    faults.into_iter().for_each(|fault| report(2, fault));
    let mut counts: BTreeMap<i64, i32> = reader.read(|tx| {
        let columns = |caller: Caller| (caller.phone, caller.votes);
        Ok(tables.callers.scan(tx).rows()?.map(columns).collect())
    })?;
    for (&phone, &cast) in &votes {
        let counted = counts.remove(&phone);
        if counted != config.limit.map(|_| cast) {
            report(3, format!("{phone} has cast {cast} votes, and {counted:?} are counted"));
        }
        if config.limit.is_some_and(|limit| cast > limit) {
            report(3, format!("{phone} has cast {cast} votes, more than allowed"));
        }
    }
    for (phone, counted) in counts {
        report(3, format!("{phone} has cast no vote, and {counted} are counted"));
    }
    Ok(violations)
}
