//! The Order-Status transaction (clause 2.6).

use super::schema::{ORDERS_BY_CUSTOMER, TpccTables, customer, order_line, orders};
use super::{CUSTOMER_SUMMARY, CustomerSelector, found};
use hyades::{Abort, Columns, Transaction, Value};
use serde::{Deserialize, Serialize};

/// A query as entered at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderStatus {
    /// The warehouse.
    pub w: i32,
    /// The district.
    pub d: i32,
    /// The customer.
    pub who: CustomerSelector,
}

/// The figures of the terminal's output.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderStatusResult {
    /// The customer.
    pub customer: i32,
    /// The customer's balance in cents.
    pub balance: i64,
    /// The customer's last order.
    pub order: i32,
    /// Its carrier, once it is delivered.
    pub carrier: Option<i32>,
    /// How many lines it has.
    pub lines: i32,
    /// The sum of their amounts in cents.
    pub amount: i64,
}

const ORDER: Columns = orders::ID.only().and(orders::ENTRY_D.only()).and(orders::CARRIER_ID.only());
const LINE: Columns = order_line::I_ID
    .only()
    .and(order_line::SUPPLY_W_ID.only())
    .and(order_line::QUANTITY.only())
    .and(order_line::AMOUNT.only())
    .and(order_line::DELIVERY_D.only());

/// Runs Order-Status.
pub fn order_status(
    tx: &Transaction<'_>,
    tables: &TpccTables,
    call: &OrderStatus,
) -> Result<OrderStatusResult, Abort> {
    let &OrderStatus { w, d, who } = call;
    let c = who.find(tx, tables, w, d)?;
    let row = found(tx.get_columns(tables.customer, (w, d, c), CUSTOMER_SUMMARY)?)?;
    let key: [Value<'_>; 3] = [w.into(), d.into(), c.into()];
    let last = tx
        .scan_index(tables.orders, ORDERS_BY_CUSTOMER)
        .prefix(&key)
        .descending()
        .limit(1)
        .columns(ORDER)
        .rows()?;
    let order = found(last.first())?;
    let id = order.get(orders::ID);
    let key: [Value<'_>; 3] = [w.into(), d.into(), id.into()];
    let lines = tx.scan(tables.order_line).prefix(&key).columns(LINE).rows()?;
    Ok(OrderStatusResult {
        customer: c,
        balance: row.get(customer::BALANCE),
        order: id,
        carrier: order.get(orders::CARRIER_ID),
        lines: lines.len() as i32,
        amount: lines.iter().map(|line| line.get(order_line::AMOUNT)).sum(),
    })
}
