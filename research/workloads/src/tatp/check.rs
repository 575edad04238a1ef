//! The consistency check.

use super::TatpConfig;
use super::schema::{
    AccessInfo, CallForwarding, STARTS, SpecialFacility, Subscriber, TYPES, TatpTables, sub_nbr_of,
};
use crate::{Reader, Violation};
use hyades::{Abort, Error, Transaction};
use std::collections::HashMap;
use std::ops::{Bound, RangeInclusive};

/// Subscribers read in one transaction, with their access infos, facilities and call forwardings.
const AT_ONCE: u32 = 2000;

/// The keys of some subscribers and of their dependent rows, each list in order.
#[derive(Clone, Debug, Default, PartialEq)]
struct SubscribersRead {
    subscribers: Vec<u32>,
    /// `s_id`, in the order of `sub_nbr`, of the subscribers with the right `sub_nbr`.
    by_sub_nbr: Vec<u32>,
    access_infos: Vec<(u32, u32)>,
    facilities: Vec<(u32, u32)>,
    /// `s_id`, `sf_type`, `start_time` and `end_time`.
    forwardings: Vec<(u32, u32, u32, u32)>,
}

/// Checks the conditions that must hold while no transaction runs:
/// 1. the subscribers are the population's, and the index by `sub_nbr` finds each subscriber;
/// 2. each access info has its subscriber, and each subscriber has 1 to 4 infos, of types 1 to 4;
/// 3. so do special facilities;
/// 4. each call forwarding has its special facility;
/// 5. it starts at 0, 8 or 16 and ends later, at 24 at the latest.
///
/// # Errors
/// The database's.
pub fn check<R: Reader>(
    reader: &R,
    tables: &TatpTables,
    config: &TatpConfig,
) -> Result<Vec<Violation>, Error> {
    let mut violations = Vec::new();
    for from in (1..=config.subscribers).step_by(AT_ONCE as usize) {
        let to = config.subscribers.min(from + (AT_ONCE - 1));
        let read = reader.read(|tx| read(tx, tables, from..=to, config.subscribers))?;
        judge(&read, from..=to, |condition, text| violations.push(Violation { condition, text }));
    }
    Ok(violations)
}

/// Reads the rows of some subscribers. Rows before the first and after the last subscriber, which
/// should not exist, are read as well.
fn read(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    some: RangeInclusive<u32>,
    last: u32,
) -> Result<SubscribersRead, Abort> {
    let (first_nbr, last_nbr) = (sub_nbr_of(*some.start()), sub_nbr_of(*some.end()));
    let (is_first, is_last) = (*some.start() == 1, *some.end() == last);
    let ids = (
        if is_first { Bound::Unbounded } else { Bound::Included(*some.start()) },
        if is_last { Bound::Unbounded } else { Bound::Included(*some.end()) },
    );
    let numbers = (
        if is_first { Bound::Unbounded } else { Bound::Included(&first_nbr) },
        if is_last { Bound::Unbounded } else { Bound::Included(&last_nbr) },
    );
    let subscribers = tables.subscriber.scan(tx).prefix_range(ids);
    let subscribers = subscribers.get_columns(Subscriber::S_ID.only())?;
    let by_sub_nbr = tables.subscriber.index(tx, Subscriber::BY_SUB_NBR).range(numbers).rows()?;
    let is_right = |row: &Subscriber<'_>| *row.sub_nbr == sub_nbr_of(row.s_id);
    let access_infos = tables.access_info.scan(tx).prefix_range(ids).rows()?;
    let facilities = tables.special_facility.scan(tx).prefix_range(ids).rows()?;
    let forwardings = tables.call_forwarding.scan(tx).prefix_range(ids).rows()?;
    Ok(SubscribersRead {
        subscribers: subscribers.iter().map(|row| row.get(Subscriber::S_ID)).collect(),
        by_sub_nbr: by_sub_nbr.filter(is_right).map(|row| row.s_id).collect(),
        access_infos: access_infos
            .map(|AccessInfo { s_id, ai_type, .. }| (s_id, ai_type))
            .collect(),
        facilities: facilities
            .map(|SpecialFacility { s_id, sf_type, .. }| (s_id, sf_type))
            .collect(),
        forwardings: forwardings
            .map(|CallForwarding { s_id, sf_type, start_time, end_time, .. }| {
                (s_id, sf_type, start_time, end_time)
            })
            .collect(),
    })
}

fn judge(read: &SubscribersRead, right: RangeInclusive<u32>, mut report: impl FnMut(u8, String)) {
    let names = [("subscribers", &read.subscribers), ("values of sub_nbr", &read.by_sub_nbr)];
    for (what, found) in names {
        if !found.iter().copied().eq(right.clone()) {
            let (count, right) = (found.len(), &right);
            report(1, format!("subscribers {right:?}: {count} {what}"));
        }
    }
    let kinds = [(2, "access info", &read.access_infos), (3, "special facility", &read.facilities)];
    for (condition, what, keys) in kinds {
        let mut counts: HashMap<u32, u32> = right.clone().map(|s_id| (s_id, 0)).collect();
        for (s_id, of_type) in keys {
            if !TYPES.contains(of_type) {
                report(condition, format!("subscriber {s_id} has {what} {of_type}"));
            }
            match counts.get_mut(s_id) {
                Some(count) => *count += 1,
                None => report(condition, format!("{what} {s_id}, {of_type}: no subscriber")),
            }
        }
        for s_id in right.clone().filter(|s_id| counts[s_id] == 0) {
            report(condition, format!("subscriber {s_id} has no {what}"));
        }
    }
    for &(s_id, sf_type, start, end) in &read.forwardings {
        if read.facilities.binary_search(&(s_id, sf_type)).is_err() {
            report(4, format!("call forwarding {s_id}, {sf_type}, {start}: no special facility"));
        }
        if !STARTS.contains(&start) || end <= start || end > 24 {
            report(5, format!("call forwarding {s_id}, {sf_type}, {start} ends at {end}"));
        }
    }
}
