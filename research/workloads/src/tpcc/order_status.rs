//! The Order-Status transaction (clause 2.6).

use super::schema::{Customer, Order, OrderLine, TpccTables};
use super::{CUSTOMER_SUMMARY, CustomerSelector, found};
use hyades::{Abort, Columns, Transaction};
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
    /// The order's carrier, once delivered.
    pub carrier: Option<i32>,
    /// The number of the order's lines.
    pub lines: i32,
    /// The sum of the lines' amounts in cents.
    pub amount: i64,
}

const ORDER: Columns =
    Order::O_ID.only().and(Order::O_ENTRY_D.only()).and(Order::O_CARRIER_ID.only());
const LINE: Columns = OrderLine::OL_I_ID
    .only()
    .and(OrderLine::OL_SUPPLY_W_ID.only())
    .and(OrderLine::OL_QUANTITY.only())
    .and(OrderLine::OL_AMOUNT.only())
    .and(OrderLine::OL_DELIVERY_D.only());

/// Runs Order-Status.
pub fn order_status(
    tx: &Transaction<'_>,
    tables: &TpccTables,
    call: &OrderStatus,
) -> Result<OrderStatusResult, Abort> {
    let &OrderStatus { w, d, who } = call;
    let c = who.find(tx, tables, w, d)?;
    let row = found(tables.customer.get_columns(tx, (w, d, c), CUSTOMER_SUMMARY)?)?;
    let by_customer = tables.orders.index(tx, Order::ORDERS_BY_CUSTOMER);
    let last = by_customer.prefix((w, d, c)).descending().limit(1).get_columns(ORDER)?;
    let order = found(last.first())?;
    let id = order.get(Order::O_ID);
    let lines = tables.order_line.scan(tx).prefix((w, d, id)).get_columns(LINE)?;
    Ok(OrderStatusResult {
        customer: c,
        balance: row.get(Customer::C_BALANCE),
        order: id,
        carrier: order.get(Order::O_CARRIER_ID),
        lines: lines.len() as i32,
        amount: lines.iter().map(|line| line.get(OrderLine::OL_AMOUNT)).sum(),
    })
}
