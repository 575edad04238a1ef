//! The Payment transaction (clause 2.5).

use super::schema::{TpccTables, customer, district, warehouse};
use super::{CUSTOMER_SUMMARY, CustomerSelector, done, found};
use crate::bytes::Text;
use hyades::{Abort, Columns, Transaction};
use serde::{Deserialize, Serialize};

/// A payment as entered at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Payment {
    /// The terminal's warehouse.
    pub w: i32,
    /// The terminal's district.
    pub d: i32,
    /// The customer's warehouse.
    pub c_w: i32,
    /// The customer's district.
    pub c_d: i32,
    /// The customer.
    pub who: CustomerSelector,
    /// In cents.
    pub amount: i64,
    /// When, microseconds since 1970.
    pub date_us: i64,
}

/// All columns but the customer's long text.
const CUSTOMER: Columns = CUSTOMER_SUMMARY
    .and(customer::YTD_PAYMENT.only())
    .and(customer::PAYMENT_CNT.only())
    .and(customer::STREET_1.only())
    .and(customer::STREET_2.only())
    .and(customer::CITY.only())
    .and(customer::STATE.only())
    .and(customer::ZIP.only())
    .and(customer::PHONE.only())
    .and(customer::SINCE.only())
    .and(customer::CREDIT_LIM.only())
    .and(customer::DISCOUNT.only());

/// Runs Payment and returns the customer's new balance in cents. The most contended rows come last:
/// the customer, then the district, then the warehouse (the order is free, clause 2.5.2.2).
pub fn payment(tx: &Transaction<'_>, tables: &TpccTables, call: &Payment) -> Result<i64, Abort> {
    let &Payment { w, d, c_w, c_d, amount, .. } = call;
    tx.prefetch(tables.district, (w, d), Columns::ALL);
    tx.prefetch(tables.warehouse, w, Columns::ALL);
    if let CustomerSelector::Id(c) = call.who {
        tx.prefetch(tables.customer, (c_w, c_d, c), CUSTOMER);
    }
    let c = call.who.find(tx, tables, c_w, c_d)?;
    let key = (c_w, c_d, c);
    let row = found(tx.get_columns(tables.customer, key, CUSTOMER)?)?;
    let balance = row.get(customer::BALANCE) - amount;
    let sets = [
        customer::BALANCE.set(balance),
        customer::YTD_PAYMENT.set(row.get(customer::YTD_PAYMENT) + amount),
        customer::PAYMENT_CNT.set(row.get(customer::PAYMENT_CNT) + 1),
    ];
    if row.get(customer::CREDIT) == b"BC" {
        let old = found(tx.get_columns(tables.customer, key, customer::DATA.only())?)?;
        let data = bad_credit(call, c, old.get(customer::DATA));
        let [balance, ytd, count] = sets;
        let sets = [balance, ytd, count, customer::DATA.set(data.as_str())];
        done(tx.update(tables.customer, key, &sets)?)?;
    } else {
        done(tx.update(tables.customer, key, &sets)?)?;
    }

    let d_row = found(tx.get(tables.district, (w, d))?)?;
    let d_ytd = d_row.get(district::YTD) + amount;
    done(tx.update(tables.district, (w, d), &[district::YTD.set(d_ytd)])?)?;
    let w_row = found(tx.get(tables.warehouse, w)?)?;
    let w_ytd = w_row.get(warehouse::YTD) + amount;
    done(tx.update(tables.warehouse, w, &[warehouse::YTD.set(w_ytd)])?)?;

    let mut data = Text::<24>::default();
    data.push(w_row.get(warehouse::NAME)).push("    ").push(d_row.get(district::NAME));
    let history = [
        c.into(),
        c_d.into(),
        c_w.into(),
        d.into(),
        w.into(),
        call.date_us.into(),
        amount.into(),
        data.as_str().into(),
    ];
    tx.insert(tables.history, &history)?;
    Ok(balance)
}

/// The new long text of a customer with bad credit: this payment, then the old text, cut to 500
/// characters (clause 2.5.2.2).
fn bad_credit(call: &Payment, c: i32, old: &str) -> Text<500> {
    let mut data = Text::default();
    for number in [c, call.c_d, call.c_w, call.d, call.w] {
        data.push_number(number as i64).push(" ");
    }
    data.push_number(call.amount).push(" ").push(old);
    data
}
