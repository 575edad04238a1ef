//! The data that the consistency conditions need, read from a database in several transactions of
//! moderate size. Nothing may be written meanwhile: the parts are not one snapshot.

use super::schema::{Customer, DISTRICTS, History, OrderLine, TpccTables, Warehouse};
use super::{Scale, found};
use crate::Reader;
use hyades::{Abort, Columns, Error, Transaction};
use std::collections::HashMap;
use std::ops::Bound;

/// An order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrderFacts {
    /// O_ID.
    pub id: i32,
    /// O_C_ID.
    pub customer: i32,
    /// O_CARRIER_ID.
    pub carrier: Option<i32>,
    /// O_OL_CNT.
    pub lines: i32,
}

/// The lines of one order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lines {
    /// OL_O_ID.
    pub order: i32,
    /// How many there are.
    pub count: i32,
    /// How many have an OL_DELIVERY_D.
    pub delivered: i32,
    /// The sum of OL_AMOUNT over the delivered lines, in cents.
    pub delivered_amount: i64,
}

/// A customer's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CustomerFacts {
    /// C_ID.
    pub id: i32,
    /// C_BALANCE in cents.
    pub balance: i64,
    /// C_YTD_PAYMENT in cents.
    pub ytd_payment: i64,
    /// C_DELIVERY_CNT.
    pub deliveries: i32,
}

/// A district and its rows; lists are ordered by number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DistrictFacts {
    /// D_W_ID.
    pub w: i32,
    /// D_ID.
    pub d: i32,
    /// D_YTD in cents.
    pub ytd: i64,
    /// D_NEXT_O_ID.
    pub next_order: i32,
    /// The district's customers.
    pub customers: Vec<CustomerFacts>,
    /// The district's orders.
    pub orders: Vec<OrderFacts>,
    /// NO_O_ID of the district's new-orders.
    pub new_orders: Vec<i32>,
    /// The district's order lines, by order.
    pub lines: Vec<Lines>,
}

/// All data for the conditions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// W_ID and W_YTD of every warehouse.
    pub warehouses: Vec<(i32, i64)>,
    /// All districts.
    pub districts: Vec<DistrictFacts>,
    /// The sum of H_AMOUNT by (H_W_ID, H_D_ID).
    pub paid_in_district: HashMap<(i32, i32), i64>,
    /// The sum of H_AMOUNT by (H_C_W_ID, H_C_D_ID, H_C_ID).
    pub paid_by_customer: HashMap<(i32, i32, i32), i64>,
    /// Orders of a district that were delivered by the population.
    pub delivered_at_first: i32,
}

/// Orders, read together with their new-orders and lines, per transaction.
const ORDERS_AT_ONCE: i32 = 2000;
/// History rows read per transaction.
const HISTORY_AT_ONCE: usize = 20_000;

impl Snapshot {
    /// Reads all warehouses, districts and the history.
    ///
    /// # Errors
    /// The database's, or a missing warehouse or district.
    pub fn read(
        reader: &impl Reader,
        tables: &TpccTables,
        scale: &Scale,
    ) -> Result<Snapshot, Error> {
        let mut snapshot =
            Snapshot { delivered_at_first: scale.delivered(), ..Snapshot::default() };
        for w in 1..=scale.warehouses {
            let ytd = reader.read(|tx| {
                let row = tables.warehouse.get_columns(tx, w, Warehouse::W_YTD.only())?;
                Ok(found(row)?.get(Warehouse::W_YTD))
            })?;
            snapshot.warehouses.push((w, ytd));
            for d in 1..=DISTRICTS {
                snapshot.districts.push(DistrictFacts::read(reader, tables, w, d)?);
            }
        }
        snapshot.read_history(reader, tables)?;
        Ok(snapshot)
    }

    fn read_history(&mut self, reader: &impl Reader, tables: &TpccTables) -> Result<(), Error> {
        let mut after = None;
        loop {
            let rows = reader.read(|tx| history_after(tx, tables, after))?;
            let Some(last) = rows.last() else {
                return Ok(());
            };
            after = Some(last.row_id);
            for row in rows {
                *self.paid_in_district.entry(row.district).or_default() += row.amount;
                *self.paid_by_customer.entry(row.customer).or_default() += row.amount;
            }
        }
    }
}

struct HistoryRow {
    row_id: u64,
    district: (i32, i32),
    customer: (i32, i32, i32),
    amount: i64,
}

fn history_after(
    tx: &Transaction<'_>,
    tables: &TpccTables,
    after: Option<u64>,
) -> Result<Vec<HistoryRow>, Abort> {
    let after = after.map_or(Bound::Unbounded, Bound::Excluded);
    let scan = tables.history.scan(tx).range((after, Bound::Unbounded)).limit(HISTORY_AT_ONCE);
    let rows = scan.get_columns(Columns::ALL)?;
    let facts = rows.iter().map(|row| HistoryRow {
        row_id: row.row_id(),
        district: (row.get(History::H_W_ID), row.get(History::H_D_ID)),
        customer: (
            row.get(History::H_C_W_ID),
            row.get(History::H_C_D_ID),
            row.get(History::H_C_ID),
        ),
        amount: row.get(History::H_AMOUNT),
    });
    Ok(facts.collect())
}

impl DistrictFacts {
    fn read(
        reader: &impl Reader,
        tables: &TpccTables,
        w: i32,
        d: i32,
    ) -> Result<DistrictFacts, Error> {
        let mut district = reader.read(|tx| {
            let row = found(tables.district.get(tx, (w, d))?)?;
            Ok(DistrictFacts {
                w,
                d,
                ytd: row.d_ytd,
                next_order: row.d_next_o_id,
                customers: customers(tx, tables, w, d)?,
                ..DistrictFacts::default()
            })
        })?;
        // The last part is open-ended: some conditions look for rows beyond the next order number.
        let mut from = 0;
        while from <= district.next_order {
            let last = from + ORDERS_AT_ONCE > district.next_order;
            let range = Part { w, d, from, before: (!last).then_some(from + ORDERS_AT_ONCE) };
            district.orders.extend(reader.read(|tx| range.orders(tx, tables))?);
            district.new_orders.extend(reader.read(|tx| range.new_orders(tx, tables))?);
            district.lines.extend(reader.read(|tx| range.lines(tx, tables))?);
            from += ORDERS_AT_ONCE;
        }
        Ok(district)
    }

    /// The lines of an order; all counts are 0 if the order has no lines.
    pub fn lines_of(&self, order: i32) -> Lines {
        match self.lines.binary_search_by_key(&order, |lines| lines.order) {
            Ok(at) => self.lines[at],
            Err(_) => Lines { order, ..Lines::default() },
        }
    }
}

fn customers(
    tx: &Transaction<'_>,
    tables: &TpccTables,
    w: i32,
    d: i32,
) -> Result<Vec<CustomerFacts>, Abort> {
    const CUSTOMER: Columns = Customer::C_ID
        .only()
        .and(Customer::C_BALANCE.only())
        .and(Customer::C_YTD_PAYMENT.only())
        .and(Customer::C_DELIVERY_CNT.only());
    let by_name = tables.customer.index(tx, Customer::CUSTOMER_BY_NAME);
    let rows = by_name.prefix((w, d)).get_columns(CUSTOMER)?;
    let facts = rows.iter().map(|row| CustomerFacts {
        id: row.get(Customer::C_ID),
        balance: row.get(Customer::C_BALANCE),
        ytd_payment: row.get(Customer::C_YTD_PAYMENT),
        deliveries: row.get(Customer::C_DELIVERY_CNT),
    });
    let mut facts: Vec<CustomerFacts> = facts.collect();
    facts.sort_unstable_by_key(|customer| customer.id);
    Ok(facts)
}

/// A range of a district's orders.
#[derive(Clone, Copy)]
struct Part {
    w: i32,
    d: i32,
    from: i32,
    /// The end of the range, exclusive; `None` for all the rest.
    before: Option<i32>,
}

impl Part {
    fn range(&self) -> std::ops::Range<(i32, i32, i32)> {
        let key = |order: i32| (self.w, self.d, order);
        key(self.from)..key(self.before.unwrap_or(i32::MAX))
    }

    fn orders(&self, tx: &Transaction<'_>, tables: &TpccTables) -> Result<Vec<OrderFacts>, Abort> {
        let rows = tables.orders.scan(tx).range(self.range()).rows()?;
        let facts = rows.map(|row| OrderFacts {
            id: row.o_id,
            customer: row.o_c_id,
            carrier: row.o_carrier_id,
            lines: row.o_ol_cnt,
        });
        Ok(facts.collect())
    }

    fn new_orders(&self, tx: &Transaction<'_>, tables: &TpccTables) -> Result<Vec<i32>, Abort> {
        let rows = tables.new_order.scan(tx).range(self.range()).rows()?;
        Ok(rows.map(|row| row.no_o_id).collect())
    }

    fn lines(&self, tx: &Transaction<'_>, tables: &TpccTables) -> Result<Vec<Lines>, Abort> {
        const LINE: Columns = OrderLine::OL_O_ID
            .only()
            .and(OrderLine::OL_DELIVERY_D.only())
            .and(OrderLine::OL_AMOUNT.only());
        let rows = tables.order_line.scan(tx).prefix_range(self.range()).get_columns(LINE)?;
        let mut all: Vec<Lines> = Vec::new();
        for row in rows {
            let order = row.get(OrderLine::OL_O_ID);
            if all.last().is_none_or(|lines| lines.order != order) {
                all.push(Lines { order, ..Lines::default() });
            }
            let lines = all.last_mut().expect("one was pushed");
            lines.count += 1;
            if row.get(OrderLine::OL_DELIVERY_D).is_some() {
                lines.delivered += 1;
                lines.delivered_amount += row.get(OrderLine::OL_AMOUNT);
            }
        }
        Ok(all)
    }
}
