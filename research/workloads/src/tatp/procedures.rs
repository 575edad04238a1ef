//! The seven transactions.

use super::schema::{
    AccessInfo, CallForwarding, SpecialFacility, Subscriber, TatpTables, sub_nbr_of,
};
use crate::bytes::decimal;
use crate::check::{done, found};
use hyades::{Abort, Transaction};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Ends a transaction with this [`Abort::User`] if the input names a row that the population need
/// not have: an expected failure.
pub const NO_SUCH_ROW: i64 = 1;
/// Ends an insertion with this [`Abort::User`] if the call forwarding exists: an expected failure.
pub const ROW_EXISTS: i64 = 2;

/// Arguments of [`get_subscriber_data`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GetSubscriberData {
    /// The subscriber.
    pub s_id: u32,
}

/// Arguments of [`get_new_destination`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GetNewDestination {
    /// The subscriber.
    pub s_id: u32,
    /// The type of the special facility.
    pub sf_type: u32,
    /// A call forwarding must start at this hour or before.
    pub start_time: u32,
    /// The call forwarding must end after this hour.
    pub end_time: u32,
}

/// Arguments of [`get_access_data`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GetAccessData {
    /// The subscriber.
    pub s_id: u32,
    /// The type of the access info.
    pub ai_type: u32,
}

/// Arguments of [`update_subscriber_data`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateSubscriberData {
    /// The subscriber.
    pub s_id: u32,
    /// The new value of the subscriber's `bit_1`.
    pub bit_1: bool,
    /// The type of the special facility.
    pub sf_type: u32,
    /// The new value of the special facility's `data_a`.
    pub data_a: u32,
}

/// Arguments of [`update_location`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateLocation {
    /// The number whose 15 digits are the subscriber's `sub_nbr`.
    pub number: u32,
    /// The new location.
    pub vlr_location: u32,
}

/// Arguments of [`insert_call_forwarding`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InsertCallForwarding {
    /// The number whose 15 digits are the subscriber's `sub_nbr`.
    pub number: u32,
    /// The type of the special facility.
    pub sf_type: u32,
    /// The start hour of the call forwarding.
    pub start_time: u32,
    /// The end hour of the call forwarding.
    pub end_time: u32,
    /// The number to forward calls to; its 15 digits are the row's `numberx`.
    pub numberx: u64,
}

/// Arguments of [`delete_call_forwarding`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeleteCallForwarding {
    /// The number whose 15 digits are the subscriber's `sub_nbr`.
    pub number: u32,
    /// The type of the special facility.
    pub sf_type: u32,
    /// The hour at which the call forwarding starts.
    pub start_time: u32,
}

/// Returns a row that may be missing, or fails as expected.
fn expected<T>(row: Option<T>) -> Result<T, Abort> {
    row.ok_or(Abort::User(NO_SUCH_ROW))
}

/// Finds a subscriber by `sub_nbr`, in the unique index.
fn by_sub_nbr(tx: &Transaction<'_>, tables: &TatpTables, number: u32) -> Result<u32, Abort> {
    let sub_nbr = sub_nbr_of(number);
    let rows = tables
        .subscriber
        .index(tx, Subscriber::BY_SUB_NBR)
        .equal(&sub_nbr)
        .get_columns(Subscriber::S_ID.only())?;
    Ok(found(rows.first())?.get(Subscriber::S_ID))
}

/// Reads a whole subscriber; returns the location.
pub fn get_subscriber_data(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    call: &GetSubscriberData,
) -> Result<u32, Abort> {
    Ok(found(tables.subscriber.get(tx, call.s_id)?)?.vlr_location)
}

/// The numbers to which calls are forwarded.
pub type Destinations = SmallVec<[[u8; 15]; 3]>;

/// Reads the numbers to which calls are forwarded at some time, if the special facility is active.
/// Fails if there is no such number.
pub fn get_new_destination(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    call: &GetNewDestination,
) -> Result<Destinations, Abort> {
    let &GetNewDestination { s_id, sf_type, start_time, end_time } = call;
    let columns = SpecialFacility::IS_ACTIVE.only();
    let facility = tables.special_facility.get_columns(tx, (s_id, sf_type), columns)?;
    if !expected(facility)?.get(SpecialFacility::IS_ACTIVE) {
        return Err(Abort::User(NO_SUCH_ROW));
    }
    let started = (s_id, sf_type, 0)..=(s_id, sf_type, start_time);
    let rows = tables.call_forwarding.scan(tx).range(started).rows()?;
    let later = rows.filter(|row| end_time < row.end_time);
    let destinations: Destinations = later.map(|row| *row.numberx).collect();
    expected((!destinations.is_empty()).then_some(destinations))
}

/// Reads the data of an access info; returns `data1`. Fails if the access info is missing.
pub fn get_access_data(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    call: &GetAccessData,
) -> Result<u32, Abort> {
    let columns = AccessInfo::DATA1
        .only()
        .and(AccessInfo::DATA2.only())
        .and(AccessInfo::DATA3.only())
        .and(AccessInfo::DATA4.only());
    let row = tables.access_info.get_columns(tx, (call.s_id, call.ai_type), columns)?;
    Ok(expected(row)?.get(AccessInfo::DATA1))
}

/// Changes a subscriber and a special facility. Fails if the special facility is missing.
pub fn update_subscriber_data(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    call: &UpdateSubscriberData,
) -> Result<(), Abort> {
    let &UpdateSubscriberData { s_id, bit_1, sf_type, data_a } = call;
    done(tables.subscriber.update(tx, s_id, &[Subscriber::BIT_1.set(bit_1)])?)?;
    let sets = [SpecialFacility::DATA_A.set(data_a)];
    let was_there = tables.special_facility.update(tx, (s_id, sf_type), &sets)?;
    expected(was_there.then_some(()))
}

/// Changes the location of a subscriber.
pub fn update_location(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    call: &UpdateLocation,
) -> Result<(), Abort> {
    let s_id = by_sub_nbr(tx, tables, call.number)?;
    let sets = [Subscriber::VLR_LOCATION.set(call.vlr_location)];
    done(tables.subscriber.update(tx, s_id, &sets)?)
}

/// Adds a call forwarding. Fails if the special facility is missing, or already has a call
/// forwarding with this start.
pub fn insert_call_forwarding(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    call: &InsertCallForwarding,
) -> Result<(), Abort> {
    let &InsertCallForwarding { sf_type, start_time, end_time, .. } = call;
    let s_id = by_sub_nbr(tx, tables, call.number)?;
    let facilities = tables
        .special_facility
        .scan(tx)
        .prefix(s_id)
        .get_columns(SpecialFacility::SF_TYPE.only())?;
    let mut types = facilities.iter().map(|row| row.get(SpecialFacility::SF_TYPE));
    expected(types.find(|facility_type| *facility_type == sf_type))?;
    let numberx = &decimal(call.numberx);
    let row = CallForwarding { s_id, sf_type, start_time, end_time, numberx };
    match tables.call_forwarding.insert(tx, &row) {
        Err(Abort::DuplicateKey { .. }) => Err(Abort::User(ROW_EXISTS)),
        inserted => inserted.map(drop),
    }
}

/// Deletes a call forwarding. Fails if the call forwarding is missing.
pub fn delete_call_forwarding(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    call: &DeleteCallForwarding,
) -> Result<(), Abort> {
    let s_id = by_sub_nbr(tx, tables, call.number)?;
    let key = (s_id, call.sf_type, call.start_time);
    let was_there = tables.call_forwarding.delete(tx, key)?;
    expected(was_there.then_some(()))
}
