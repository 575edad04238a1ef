//! The four tables, with every column: a struct each.
//!
//! Small integers are 32-bit integers, flags are booleans, and texts of a fixed length are arrays
//! of bytes.
#![expect(missing_docs, reason = "the fields have the specification's names")]

use crate::bytes::decimal;
use hyades::{Schema, Table, TableRow, TypedTable};

/// SUBSCRIBER. A unique index finds subscribers by `sub_nbr`.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
pub struct Subscriber<'a> {
    #[key]
    pub s_id: u32,
    #[unique]
    pub sub_nbr: &'a [u8; 15],
    pub bit_1: bool,
    pub bit_2: bool,
    pub bit_3: bool,
    pub bit_4: bool,
    pub bit_5: bool,
    pub bit_6: bool,
    pub bit_7: bool,
    pub bit_8: bool,
    pub bit_9: bool,
    pub bit_10: bool,
    pub hex_1: u32,
    pub hex_2: u32,
    pub hex_3: u32,
    pub hex_4: u32,
    pub hex_5: u32,
    pub hex_6: u32,
    pub hex_7: u32,
    pub hex_8: u32,
    pub hex_9: u32,
    pub hex_10: u32,
    pub byte2_1: u32,
    pub byte2_2: u32,
    pub byte2_3: u32,
    pub byte2_4: u32,
    pub byte2_5: u32,
    pub byte2_6: u32,
    pub byte2_7: u32,
    pub byte2_8: u32,
    pub byte2_9: u32,
    pub byte2_10: u32,
    pub msc_location: u32,
    pub vlr_location: u32,
}

/// ACCESS_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(key(s_id, ai_type))]
pub struct AccessInfo<'a> {
    pub s_id: u32,
    pub ai_type: u32,
    pub data1: u32,
    pub data2: u32,
    pub data3: &'a [u8; 3],
    pub data4: &'a [u8; 5],
}

/// SPECIAL_FACILITY.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(key(s_id, sf_type))]
pub struct SpecialFacility<'a> {
    pub s_id: u32,
    pub sf_type: u32,
    pub is_active: bool,
    pub error_cntrl: u32,
    pub data_a: u32,
    pub data_b: &'a [u8; 5],
}

/// CALL_FORWARDING. Times are hours of a day.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(key(s_id, sf_type, start_time))]
pub struct CallForwarding<'a> {
    pub s_id: u32,
    pub sf_type: u32,
    pub start_time: u32,
    pub end_time: u32,
    pub numberx: &'a [u8; 15],
}

/// The types of access infos, and of special facilities.
pub const TYPES: [u32; 4] = [1, 2, 3, 4];
/// The hours at which a call forwarding may start.
pub const STARTS: [u32; 3] = [0, 8, 16];
/// The most hours that a call forwarding lasts.
pub const LONGEST: u32 = 8;

/// The `sub_nbr` of a subscriber: the number in 15 digits.
pub fn sub_nbr_of(s_id: u32) -> [u8; 15] {
    decimal(s_id.into())
}

/// The handles of the four tables.
#[derive(Clone, Copy, Debug)]
pub struct TatpTables {
    pub subscriber: TypedTable<Subscriber<'static>>,
    pub access_info: TypedTable<AccessInfo<'static>>,
    pub special_facility: TypedTable<SpecialFacility<'static>>,
    pub call_forwarding: TypedTable<CallForwarding<'static>>,
}

impl TatpTables {
    /// Declares all through `declare`.
    pub fn declare(mut declare: impl FnMut(Schema) -> Table) -> TatpTables {
        TatpTables {
            subscriber: TypedTable::of(declare(Subscriber::schema())),
            access_info: TypedTable::of(declare(AccessInfo::schema())),
            special_facility: TypedTable::of(declare(SpecialFacility::schema())),
            call_forwarding: TypedTable::of(declare(CallForwarding::schema())),
        }
    }
}
