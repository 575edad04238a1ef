//! The nine tables (clause 1.3), with every column: a struct each.
//!
//! Identifiers are 32-bit integers. Money is whole cents in 64 bits, so that no sum is ever
//! rounded; taxes and discounts are whole ten-thousandths. Dates are microseconds since 1970. Texts
//! of a fixed length are arrays of bytes.
#![expect(missing_docs, reason = "the fields have the specification's names")]

use hyades::{Column, Schema, Table, TableRow, TypedTable};

/// Districts of a warehouse.
pub const DISTRICTS: i32 = 10;

/// WAREHOUSE.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(hash)]
pub struct Warehouse<'a> {
    #[key]
    pub w_id: i32,
    pub w_name: &'a str,
    pub w_street_1: &'a str,
    pub w_street_2: &'a str,
    pub w_city: &'a str,
    pub w_state: &'a [u8; 2],
    pub w_zip: &'a [u8; 9],
    pub w_tax: i32,
    pub w_ytd: i64,
}

/// DISTRICT.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(hash, key(d_w_id, d_id))]
pub struct District<'a> {
    pub d_id: i32,
    pub d_w_id: i32,
    pub d_name: &'a str,
    pub d_street_1: &'a str,
    pub d_street_2: &'a str,
    pub d_city: &'a str,
    pub d_state: &'a [u8; 2],
    pub d_zip: &'a [u8; 9],
    pub d_tax: i32,
    pub d_ytd: i64,
    pub d_next_o_id: i32,
}

/// CUSTOMER. A secondary index finds customers by last name, ordered by first name.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(hash, key(c_w_id, c_d_id, c_id), index(customer_by_name(c_w_id, c_d_id, c_last, c_first)))]
pub struct Customer<'a> {
    pub c_id: i32,
    pub c_d_id: i32,
    pub c_w_id: i32,
    pub c_first: &'a str,
    pub c_middle: &'a [u8; 2],
    pub c_last: &'a str,
    pub c_street_1: &'a str,
    pub c_street_2: &'a str,
    pub c_city: &'a str,
    pub c_state: &'a [u8; 2],
    pub c_zip: &'a [u8; 9],
    pub c_phone: &'a [u8; 16],
    pub c_since: i64,
    pub c_credit: &'a [u8; 2],
    pub c_credit_lim: i64,
    pub c_discount: i32,
    pub c_balance: i64,
    pub c_ytd_payment: i64,
    pub c_payment_cnt: i32,
    pub c_delivery_cnt: i32,
    pub c_data: &'a str,
}

/// HISTORY. The table has no primary key (clause 1.3.1); the engine gives its rows hidden ids.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
pub struct History<'a> {
    pub h_c_id: i32,
    pub h_c_d_id: i32,
    pub h_c_w_id: i32,
    pub h_d_id: i32,
    pub h_w_id: i32,
    pub h_date: i64,
    pub h_amount: i64,
    pub h_data: &'a str,
}

/// NEW-ORDER: an order that is not delivered yet.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(name = "new_order", key(no_w_id, no_d_id, no_o_id))]
pub struct OpenOrder {
    pub no_o_id: i32,
    pub no_d_id: i32,
    pub no_w_id: i32,
}

/// ORDER. A secondary index finds a customer's orders, ordered by the order number.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(
    name = "orders",
    key(o_w_id, o_d_id, o_id),
    index(orders_by_customer(o_w_id, o_d_id, o_c_id))
)]
pub struct Order {
    pub o_id: i32,
    pub o_d_id: i32,
    pub o_w_id: i32,
    pub o_c_id: i32,
    pub o_entry_d: i64,
    pub o_carrier_id: Option<i32>,
    pub o_ol_cnt: i32,
    pub o_all_local: i32,
}

/// ORDER-LINE.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(key(ol_w_id, ol_d_id, ol_o_id, ol_number))]
pub struct OrderLine<'a> {
    pub ol_o_id: i32,
    pub ol_d_id: i32,
    pub ol_w_id: i32,
    pub ol_number: i32,
    pub ol_i_id: i32,
    pub ol_supply_w_id: i32,
    pub ol_delivery_d: Option<i64>,
    pub ol_quantity: i32,
    pub ol_amount: i64,
    pub ol_dist_info: &'a [u8; 24],
}

/// ITEM.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(hash)]
pub struct Item<'a> {
    #[key]
    pub i_id: i32,
    pub i_im_id: i32,
    pub i_name: &'a str,
    pub i_price: i64,
    pub i_data: &'a str,
}

/// STOCK.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(hash, key(s_w_id, s_i_id))]
pub struct Stock<'a> {
    pub s_i_id: i32,
    pub s_w_id: i32,
    pub s_quantity: i32,
    pub s_dist_01: &'a [u8; 24],
    pub s_dist_02: &'a [u8; 24],
    pub s_dist_03: &'a [u8; 24],
    pub s_dist_04: &'a [u8; 24],
    pub s_dist_05: &'a [u8; 24],
    pub s_dist_06: &'a [u8; 24],
    pub s_dist_07: &'a [u8; 24],
    pub s_dist_08: &'a [u8; 24],
    pub s_dist_09: &'a [u8; 24],
    pub s_dist_10: &'a [u8; 24],
    pub s_ytd: i64,
    pub s_order_cnt: i32,
    pub s_remote_cnt: i32,
    pub s_data: &'a str,
}

/// The stock's text for each district, in the order of the districts.
pub const STOCK_DIST: [Column<[u8]>; DISTRICTS as usize] = [
    Stock::S_DIST_01,
    Stock::S_DIST_02,
    Stock::S_DIST_03,
    Stock::S_DIST_04,
    Stock::S_DIST_05,
    Stock::S_DIST_06,
    Stock::S_DIST_07,
    Stock::S_DIST_08,
    Stock::S_DIST_09,
    Stock::S_DIST_10,
];

/// The handles of the nine tables.
#[derive(Clone, Copy, Debug)]
pub struct TpccTables {
    pub warehouse: TypedTable<Warehouse<'static>>,
    pub district: TypedTable<District<'static>>,
    pub customer: TypedTable<Customer<'static>>,
    pub history: TypedTable<History<'static>>,
    pub new_order: TypedTable<OpenOrder>,
    pub orders: TypedTable<Order>,
    pub order_line: TypedTable<OrderLine<'static>>,
    pub item: TypedTable<Item<'static>>,
    pub stock: TypedTable<Stock<'static>>,
}

impl TpccTables {
    /// Declares all nine through `declare`, in a fixed order. All but the items are partitioned by
    /// their warehouse.
    pub fn declare(mut declare: impl FnMut(Schema) -> Table) -> TpccTables {
        TpccTables {
            warehouse: TypedTable::of(declare(Warehouse::schema().partition_by("w_id"))),
            district: TypedTable::of(declare(District::schema().partition_by("d_w_id"))),
            customer: TypedTable::of(declare(Customer::schema().partition_by("c_w_id"))),
            history: TypedTable::of(declare(History::schema().partition_by("h_w_id"))),
            new_order: TypedTable::of(declare(OpenOrder::schema().partition_by("no_w_id"))),
            orders: TypedTable::of(declare(Order::schema().partition_by("o_w_id"))),
            order_line: TypedTable::of(declare(OrderLine::schema().partition_by("ol_w_id"))),
            item: TypedTable::of(declare(Item::schema().replicated())),
            stock: TypedTable::of(declare(Stock::schema().partition_by("s_w_id"))),
        }
    }
}
