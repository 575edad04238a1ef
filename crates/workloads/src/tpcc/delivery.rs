//! The Delivery transaction (clause 2.7): the oldest open order of each district of a warehouse,
//! all ten in one transaction.

use super::schema::{DISTRICTS, TpccTables, customer, new_order, order_line, orders};
use super::{done, found};
use hyades::{Abort, Columns, Transaction, Value};
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

const LINE: Columns = order_line::NUMBER.only().and(order_line::AMOUNT.only());
const CUSTOMER: Columns = customer::BALANCE.only().and(customer::DELIVERY_CNT.only());

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
    let key: [Value<'_>; 2] = [w.into(), d.into()];
    let oldest =
        tx.scan(tables.new_order).prefix(&key).limit(1).columns(new_order::O_ID.only()).rows()?;
    let Some(row) = oldest.first() else {
        return Ok(false);
    };
    let id = row.get(new_order::O_ID);
    done(tx.delete(tables.new_order, (w, d, id))?)?;

    let order = found(tx.get_columns(tables.orders, (w, d, id), orders::C_ID.only())?)?;
    let c = order.get(orders::C_ID);
    let carrier = [orders::CARRIER_ID.set(call.carrier)];
    done(tx.update(tables.orders, (w, d, id), &carrier)?)?;

    let key: [Value<'_>; 3] = [w.into(), d.into(), id.into()];
    let lines = tx.scan(tables.order_line).prefix(&key).columns(LINE).rows()?;
    let mut amount = 0;
    for line in lines {
        amount += line.get(order_line::AMOUNT);
        let key = (w, d, id, line.get(order_line::NUMBER));
        let date = [order_line::DELIVERY_D.set(call.delivery_us)];
        done(tx.update(tables.order_line, key, &date)?)?;
    }

    let row = found(tx.get_columns(tables.customer, (w, d, c), CUSTOMER)?)?;
    let sets = [
        customer::BALANCE.set(row.get(customer::BALANCE) + amount),
        customer::DELIVERY_CNT.set(row.get(customer::DELIVERY_CNT) + 1),
    ];
    done(tx.update(tables.customer, (w, d, c), &sets)?)?;
    Ok(true)
}
