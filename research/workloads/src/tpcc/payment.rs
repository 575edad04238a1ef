//! The Payment transaction (clause 2.5).

use super::schema::{Customer, District, History, TpccTables, Warehouse};
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
    .and(Customer::C_YTD_PAYMENT.only())
    .and(Customer::C_PAYMENT_CNT.only())
    .and(Customer::C_STREET_1.only())
    .and(Customer::C_STREET_2.only())
    .and(Customer::C_CITY.only())
    .and(Customer::C_STATE.only())
    .and(Customer::C_ZIP.only())
    .and(Customer::C_PHONE.only())
    .and(Customer::C_SINCE.only())
    .and(Customer::C_CREDIT_LIM.only())
    .and(Customer::C_DISCOUNT.only());

/// Runs Payment and returns the customer's new balance in cents. The most contended rows come last:
/// the customer, then the district, then the warehouse (the order is free, clause 2.5.2.2).
pub fn payment(tx: &Transaction<'_>, tables: &TpccTables, call: &Payment) -> Result<i64, Abort> {
    let &Payment { w, d, c_w, c_d, amount, .. } = call;
    tables.district.prefetch(tx, (w, d), Columns::ALL);
    tables.warehouse.prefetch(tx, w, Columns::ALL);
    if let CustomerSelector::Id(c) = call.who {
        tables.customer.prefetch(tx, (c_w, c_d, c), CUSTOMER);
    }
    let c = call.who.find(tx, tables, c_w, c_d)?;
    let key = (c_w, c_d, c);
    let row = found(tables.customer.get_columns(tx, key, CUSTOMER)?)?;
    let balance = row.get(Customer::C_BALANCE) - amount;
    let sets = [
        Customer::C_BALANCE.set(balance),
        Customer::C_YTD_PAYMENT.set(row.get(Customer::C_YTD_PAYMENT) + amount),
        Customer::C_PAYMENT_CNT.set(row.get(Customer::C_PAYMENT_CNT) + 1),
    ];
    if row.get(Customer::C_CREDIT) == b"BC" {
        let old = found(tables.customer.get_columns(tx, key, Customer::C_DATA.only())?)?;
        let data = bad_credit(call, c, old.get(Customer::C_DATA));
        let [balance, ytd, count] = sets;
        let sets = [balance, ytd, count, Customer::C_DATA.set(data.as_str())];
        done(tables.customer.update(tx, key, &sets)?)?;
    } else {
        done(tables.customer.update(tx, key, &sets)?)?;
    }

    let d_row = found(tables.district.get_columns(tx, (w, d), Columns::ALL)?)?;
    let d_ytd = d_row.get(District::D_YTD) + amount;
    done(tables.district.update(tx, (w, d), &[District::D_YTD.set(d_ytd)])?)?;
    let w_row = found(tables.warehouse.get_columns(tx, w, Columns::ALL)?)?;
    let w_ytd = w_row.get(Warehouse::W_YTD) + amount;
    done(tables.warehouse.update(tx, w, &[Warehouse::W_YTD.set(w_ytd)])?)?;

    let mut data = Text::<24>::default();
    data.push(w_row.get(Warehouse::W_NAME)).push("    ").push(d_row.get(District::D_NAME));
    let history = History {
        h_c_id: c,
        h_c_d_id: c_d,
        h_c_w_id: c_w,
        h_d_id: d,
        h_w_id: w,
        h_date: call.date_us,
        h_amount: amount,
        h_data: data.as_str(),
    };
    tables.history.insert(tx, &history)?;
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
