//! The Delivery transaction (clause 2.7): the oldest open order of each district of a warehouse,
//! all ten in one transaction.

use super::schema::{Customer, DISTRICTS, OpenOrder, Order, OrderLine, TpccTables};
use super::{done, found};
use hyades::{Abort, Columns, Transaction};
use serde::{Deserialize, Serialize};

/// A delivery as entered at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// The warehouse.
    pub w: i32,
    /// The carrier, 1 to 10.
    pub carrier: i32,
    /// When, microseconds since 1970.
    pub delivery_us: i64,
}

const LINE: Columns = OrderLine::OL_NUMBER.only().and(OrderLine::OL_AMOUNT.only());
const CUSTOMER: Columns = Customer::C_BALANCE.only().and(Customer::C_DELIVERY_CNT.only());

/// Runs Delivery and returns how many orders were delivered. A district without an open order is
/// skipped (clause 2.7.4.2).
pub fn delivery(tx: &Transaction<'_>, tables: &TpccTables, call: &Delivery) -> Result<i32, Abort> {
    let mut delivered = 0;
    for d in 1..=DISTRICTS {
        delivered += deliver_oldest(tx, tables, call, d)? as i32;
    }
    Ok(delivered)
}

fn deliver_oldest(
    tx: &Transaction<'_>,
    tables: &TpccTables,
    call: &Delivery,
    d: i32,
) -> Result<bool, Abort> {
    let w = call.w;
    let open = tables.new_order.scan(tx).prefix((w, d));
    let oldest = open.limit(1).get_columns(OpenOrder::NO_O_ID.only())?;
    let Some(row) = oldest.first() else {
        return Ok(false);
    };
    let id = row.get(OpenOrder::NO_O_ID);
    done(tables.new_order.delete(tx, (w, d, id))?)?;

    let order = found(tables.orders.get_columns(tx, (w, d, id), Order::O_C_ID.only())?)?;
    let c = order.get(Order::O_C_ID);
    let carrier = [Order::O_CARRIER_ID.set(call.carrier)];
    done(tables.orders.update(tx, (w, d, id), &carrier)?)?;

    let lines = tables.order_line.scan(tx).prefix((w, d, id)).get_columns(LINE)?;
    let mut amount = 0;
    for line in lines {
        amount += line.get(OrderLine::OL_AMOUNT);
        let key = (w, d, id, line.get(OrderLine::OL_NUMBER));
        let date = [OrderLine::OL_DELIVERY_D.set(call.delivery_us)];
        done(tables.order_line.update(tx, key, &date)?)?;
    }

    let row = found(tables.customer.get_columns(tx, (w, d, c), CUSTOMER)?)?;
    let sets = [
        Customer::C_BALANCE.set(row.get(Customer::C_BALANCE) + amount),
        Customer::C_DELIVERY_CNT.set(row.get(Customer::C_DELIVERY_CNT) + 1),
    ];
    done(tables.customer.update(tx, (w, d, c), &sets)?)?;
    Ok(true)
}
