//! The nine tables (clause 1.3), with every column.
//!
//! Identifiers are 32-bit integers. Money is whole cents in 64 bits, so that no sum is ever
//! rounded; taxes and discounts are whole ten-thousandths. Dates are microseconds since 1970. Texts
//! of a fixed length are `Fixed`, the others `Text`; a text that is only searched is read as bytes.

use hyades::{Column, Index, Schema, Table, Type};

/// Districts of a warehouse.
pub const DISTRICTS: i32 = 10;

/// Declares a table: its columns as typed constants in a module, and its schema.
macro_rules! table {
    ($(#[$about:meta])* $module:ident, $name:literal,
     { $($column:ident $at:literal $text:literal $rust:ty = $kind:expr, $how:ident;)* }
     $($keys:tt)*) => {
        $(#[$about])*
        pub mod $module {
            use super::*;
            $(
                #[doc = concat!("Column `", $text, "`.")]
                pub const $column: Column<$rust> = Column::at($at);
            )*
            /// The table's description.
            pub fn schema() -> Schema {
                Schema::new($name)$(.$how($text, $kind))*$($keys)*
            }
        }
    };
}

table! {
    /// WAREHOUSE.
    warehouse, "warehouse", {
        ID 0 "w_id" i32 = Type::I32, column;
        NAME 1 "w_name" str = Type::Text, column;
        STREET_1 2 "w_street_1" str = Type::Text, column;
        STREET_2 3 "w_street_2" str = Type::Text, column;
        CITY 4 "w_city" str = Type::Text, column;
        STATE 5 "w_state" [u8] = Type::Fixed(2), column;
        ZIP 6 "w_zip" [u8] = Type::Fixed(9), column;
        TAX 7 "w_tax" i32 = Type::I32, column;
        YTD 8 "w_ytd" i64 = Type::I64, column;
    }
    .primary_key(&["w_id"]).hash()
}

table! {
    /// DISTRICT.
    district, "district", {
        ID 0 "d_id" i32 = Type::I32, column;
        W_ID 1 "d_w_id" i32 = Type::I32, column;
        NAME 2 "d_name" str = Type::Text, column;
        STREET_1 3 "d_street_1" str = Type::Text, column;
        STREET_2 4 "d_street_2" str = Type::Text, column;
        CITY 5 "d_city" str = Type::Text, column;
        STATE 6 "d_state" [u8] = Type::Fixed(2), column;
        ZIP 7 "d_zip" [u8] = Type::Fixed(9), column;
        TAX 8 "d_tax" i32 = Type::I32, column;
        YTD 9 "d_ytd" i64 = Type::I64, column;
        NEXT_O_ID 10 "d_next_o_id" i32 = Type::I32, column;
    }
    .primary_key(&["d_w_id", "d_id"]).hash()
}

table! {
    /// CUSTOMER. Its secondary index finds customers by last name, ordered by first name.
    customer, "customer", {
        ID 0 "c_id" i32 = Type::I32, column;
        D_ID 1 "c_d_id" i32 = Type::I32, column;
        W_ID 2 "c_w_id" i32 = Type::I32, column;
        FIRST 3 "c_first" str = Type::Text, column;
        MIDDLE 4 "c_middle" [u8] = Type::Fixed(2), column;
        LAST 5 "c_last" str = Type::Text, column;
        STREET_1 6 "c_street_1" str = Type::Text, column;
        STREET_2 7 "c_street_2" str = Type::Text, column;
        CITY 8 "c_city" str = Type::Text, column;
        STATE 9 "c_state" [u8] = Type::Fixed(2), column;
        ZIP 10 "c_zip" [u8] = Type::Fixed(9), column;
        PHONE 11 "c_phone" [u8] = Type::Fixed(16), column;
        SINCE 12 "c_since" i64 = Type::I64, column;
        CREDIT 13 "c_credit" [u8] = Type::Fixed(2), column;
        CREDIT_LIM 14 "c_credit_lim" i64 = Type::I64, column;
        DISCOUNT 15 "c_discount" i32 = Type::I32, column;
        BALANCE 16 "c_balance" i64 = Type::I64, column;
        YTD_PAYMENT 17 "c_ytd_payment" i64 = Type::I64, column;
        PAYMENT_CNT 18 "c_payment_cnt" i32 = Type::I32, column;
        DELIVERY_CNT 19 "c_delivery_cnt" i32 = Type::I32, column;
        DATA 20 "c_data" str = Type::Text, column;
    }
    .primary_key(&["c_w_id", "c_d_id", "c_id"]).hash()
    .index("customer_by_name", &["c_w_id", "c_d_id", "c_last", "c_first"])
}

/// The index of customers by (warehouse, district, last name, first name).
pub const CUSTOMER_BY_NAME: Index = Index(0);

table! {
    /// HISTORY. It has no primary key (clause 1.3.1); the engine gives its rows hidden ids.
    history, "history", {
        C_ID 0 "h_c_id" i32 = Type::I32, column;
        C_D_ID 1 "h_c_d_id" i32 = Type::I32, column;
        C_W_ID 2 "h_c_w_id" i32 = Type::I32, column;
        D_ID 3 "h_d_id" i32 = Type::I32, column;
        W_ID 4 "h_w_id" i32 = Type::I32, column;
        DATE 5 "h_date" i64 = Type::I64, column;
        AMOUNT 6 "h_amount" i64 = Type::I64, column;
        DATA 7 "h_data" str = Type::Text, column;
    }
}

table! {
    /// NEW-ORDER.
    new_order, "new_order", {
        O_ID 0 "no_o_id" i32 = Type::I32, column;
        D_ID 1 "no_d_id" i32 = Type::I32, column;
        W_ID 2 "no_w_id" i32 = Type::I32, column;
    }
    .primary_key(&["no_w_id", "no_d_id", "no_o_id"])
}

table! {
    /// ORDER. Its secondary index finds a customer's orders, ordered by the order number.
    orders, "orders", {
        ID 0 "o_id" i32 = Type::I32, column;
        D_ID 1 "o_d_id" i32 = Type::I32, column;
        W_ID 2 "o_w_id" i32 = Type::I32, column;
        C_ID 3 "o_c_id" i32 = Type::I32, column;
        ENTRY_D 4 "o_entry_d" i64 = Type::I64, column;
        CARRIER_ID 5 "o_carrier_id" Option<i32> = Type::I32, nullable;
        OL_CNT 6 "o_ol_cnt" i32 = Type::I32, column;
        ALL_LOCAL 7 "o_all_local" i32 = Type::I32, column;
    }
    .primary_key(&["o_w_id", "o_d_id", "o_id"])
    .index("orders_by_customer", &["o_w_id", "o_d_id", "o_c_id"])
}

/// The index of orders by (warehouse, district, customer); the orders of a customer are in the
/// order of the primary key.
pub const ORDERS_BY_CUSTOMER: Index = Index(0);

table! {
    /// ORDER-LINE.
    order_line, "order_line", {
        O_ID 0 "ol_o_id" i32 = Type::I32, column;
        D_ID 1 "ol_d_id" i32 = Type::I32, column;
        W_ID 2 "ol_w_id" i32 = Type::I32, column;
        NUMBER 3 "ol_number" i32 = Type::I32, column;
        I_ID 4 "ol_i_id" i32 = Type::I32, column;
        SUPPLY_W_ID 5 "ol_supply_w_id" i32 = Type::I32, column;
        DELIVERY_D 6 "ol_delivery_d" Option<i64> = Type::I64, nullable;
        QUANTITY 7 "ol_quantity" i32 = Type::I32, column;
        AMOUNT 8 "ol_amount" i64 = Type::I64, column;
        DIST_INFO 9 "ol_dist_info" [u8] = Type::Fixed(24), column;
    }
    .primary_key(&["ol_w_id", "ol_d_id", "ol_o_id", "ol_number"])
}

table! {
    /// ITEM.
    item, "item", {
        ID 0 "i_id" i32 = Type::I32, column;
        IM_ID 1 "i_im_id" i32 = Type::I32, column;
        NAME 2 "i_name" str = Type::Text, column;
        PRICE 3 "i_price" i64 = Type::I64, column;
        DATA 4 "i_data" [u8] = Type::Text, column;
    }
    .primary_key(&["i_id"]).hash()
}

table! {
    /// STOCK.
    stock, "stock", {
        I_ID 0 "s_i_id" i32 = Type::I32, column;
        W_ID 1 "s_w_id" i32 = Type::I32, column;
        QUANTITY 2 "s_quantity" i32 = Type::I32, column;
        DIST_01 3 "s_dist_01" [u8] = Type::Fixed(24), column;
        DIST_02 4 "s_dist_02" [u8] = Type::Fixed(24), column;
        DIST_03 5 "s_dist_03" [u8] = Type::Fixed(24), column;
        DIST_04 6 "s_dist_04" [u8] = Type::Fixed(24), column;
        DIST_05 7 "s_dist_05" [u8] = Type::Fixed(24), column;
        DIST_06 8 "s_dist_06" [u8] = Type::Fixed(24), column;
        DIST_07 9 "s_dist_07" [u8] = Type::Fixed(24), column;
        DIST_08 10 "s_dist_08" [u8] = Type::Fixed(24), column;
        DIST_09 11 "s_dist_09" [u8] = Type::Fixed(24), column;
        DIST_10 12 "s_dist_10" [u8] = Type::Fixed(24), column;
        YTD 13 "s_ytd" i64 = Type::I64, column;
        ORDER_CNT 14 "s_order_cnt" i32 = Type::I32, column;
        REMOTE_CNT 15 "s_remote_cnt" i32 = Type::I32, column;
        DATA 16 "s_data" [u8] = Type::Text, column;
    }
    .primary_key(&["s_w_id", "s_i_id"]).hash()
}

/// The stock's text for each district, in the order of the districts.
pub const STOCK_DIST: [Column<[u8]>; DISTRICTS as usize] = [
    stock::DIST_01,
    stock::DIST_02,
    stock::DIST_03,
    stock::DIST_04,
    stock::DIST_05,
    stock::DIST_06,
    stock::DIST_07,
    stock::DIST_08,
    stock::DIST_09,
    stock::DIST_10,
];

/// The handles of the nine tables.
#[derive(Clone, Copy, Debug)]
pub struct TpccTables {
    /// WAREHOUSE.
    pub warehouse: Table,
    /// DISTRICT.
    pub district: Table,
    /// CUSTOMER.
    pub customer: Table,
    /// HISTORY.
    pub history: Table,
    /// NEW-ORDER.
    pub new_order: Table,
    /// ORDER.
    pub orders: Table,
    /// ORDER-LINE.
    pub order_line: Table,
    /// ITEM.
    pub item: Table,
    /// STOCK.
    pub stock: Table,
}

impl TpccTables {
    /// Declares all nine through `declare`, in a fixed order.
    pub fn declare(mut declare: impl FnMut(Schema) -> Table) -> TpccTables {
        TpccTables {
            warehouse: declare(warehouse::schema()),
            district: declare(district::schema()),
            customer: declare(customer::schema()),
            history: declare(history::schema()),
            new_order: declare(new_order::schema()),
            orders: declare(orders::schema()),
            order_line: declare(order_line::schema()),
            item: declare(item::schema()),
            stock: declare(stock::schema()),
        }
    }
}
