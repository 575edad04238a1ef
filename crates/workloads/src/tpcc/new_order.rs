//! The New-Order transaction (clause 2.4).

use super::schema::{
    ORDERS_BY_CUSTOMER, STOCK_DIST, TpccTables, customer, district, item, stock, warehouse,
};
use super::{done, found};
use hyades::{Abort, Columns, Transaction, Value};
use memchr::memmem::Finder;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::sync::LazyLock;

/// An order as entered at a terminal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewOrder {
    /// The warehouse.
    pub w: i32,
    /// The district.
    pub d: i32,
    /// The customer.
    pub c: i32,
    /// When it was entered, microseconds since 1970.
    pub entry_us: i64,
    /// 5 to 15 lines.
    pub lines: SmallVec<[Line; 15]>,
}

/// A line of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The item.
    pub item: i32,
    /// The warehouse that supplies it.
    pub supply_w: i32,
    /// 1 to 10.
    pub quantity: i32,
}

/// The figures of the terminal's output.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewOrderResult {
    /// The order's number.
    pub order: i32,
    /// The total in cents, after discount and taxes.
    pub total_cents: i64,
    /// How many lines are marked "B" (brand): both texts contain ORIGINAL.
    pub brand_lines: i32,
}

/// Ends the transaction with this [`Abort::User`] if a line names an item that does not exist: the
/// rollback that the specification requires in 1 % of all orders (clause 2.4.1.4).
pub const UNUSED_ITEM: i64 = 1;

const ITEM: Columns = item::PRICE.only().and(item::NAME.only()).and(item::DATA.only());
const CUSTOMER: Columns =
    customer::DISCOUNT.only().and(customer::LAST.only()).and(customer::CREDIT.only());
const DISTRICT: Columns = district::TAX.only().and(district::NEXT_O_ID.only());
const STOCK: Columns = stock::QUANTITY
    .only()
    .and(stock::YTD.only())
    .and(stock::ORDER_CNT.only())
    .and(stock::REMOTE_CNT.only());

/// A line whose stock has been updated.
#[derive(Clone, Copy)]
struct Taken<'t> {
    amount: i64,
    dist_info: &'t [u8],
}

/// Runs New-Order. The stock rows are updated before the district's next order number, and the
/// warehouse, whose row every Payment changes, is read last. The order of the steps is free (clause
/// 2.4.2.2); this one holds contended rows for the shortest time.
pub fn new_order(
    tx: &Transaction<'_>,
    tables: &TpccTables,
    order: &NewOrder,
) -> Result<NewOrderResult, Abort> {
    let &NewOrder { w, d, c, ref lines, .. } = order;
    let dist = *found(STOCK_DIST.get((d - 1) as usize))?;
    let stock_columns = STOCK.and(dist.only());
    tx.prefetch(tables.customer, (w, d, c), CUSTOMER);
    tx.prefetch(tables.district, (w, d), DISTRICT);
    tx.prefetch(tables.warehouse, w, warehouse::TAX.only());
    for line in lines {
        tx.prefetch(tables.item, line.item, ITEM);
        tx.prefetch(tables.stock, (line.supply_w, line.item), stock_columns);
    }
    // The order is inserted after the last one of its district and of its customer.
    let (in_district, of_customer) = ([w.into(), d.into()], [w.into(), d.into(), c.into()]);
    for table in [tables.orders, tables.new_order, tables.order_line] {
        tx.scan(table).prefix(&in_district).descending().prefetch();
    }
    let by_customer = tx.scan_index(tables.orders, ORDERS_BY_CUSTOMER);
    by_customer.prefix(&of_customer).descending().prefetch();
    let c_discount =
        found(tx.get_columns(tables.customer, (w, d, c), CUSTOMER)?)?.get(customer::DISCOUNT);

    let mut taken: SmallVec<[Taken<'_>; 15]> = SmallVec::new();
    let mut brand_lines = 0;
    for line in lines {
        let Some(item_row) = tx.get_columns(tables.item, line.item, ITEM)? else {
            return Err(Abort::User(UNUSED_ITEM));
        };
        let key = (line.supply_w, line.item);
        let stock_row = found(tx.get_columns(tables.stock, key, stock_columns)?)?;
        let quantity = stock_row.get(stock::QUANTITY);
        let restock = if quantity >= line.quantity + 10 { 0 } else { 91 };
        let remote = (line.supply_w != w) as i32;
        // Read before the update: after it, a read would merge the old row with the change.
        if is_original(item_row.get(item::DATA)) {
            let text = found(tx.get_columns(tables.stock, key, stock::DATA.only())?)?;
            brand_lines += is_original(text.get(stock::DATA)) as i32;
        }
        let sets = [
            stock::QUANTITY.set(quantity - line.quantity + restock),
            stock::YTD.set(stock_row.get(stock::YTD) + line.quantity as i64),
            stock::ORDER_CNT.set(stock_row.get(stock::ORDER_CNT) + 1),
            stock::REMOTE_CNT.set(stock_row.get(stock::REMOTE_CNT) + remote),
        ];
        done(tx.update(tables.stock, key, &sets[..3 + remote as usize])?)?;
        taken.push(Taken {
            amount: line.quantity as i64 * item_row.get(item::PRICE),
            dist_info: stock_row.get(dist),
        });
    }

    let row = found(tx.get_columns(tables.district, (w, d), DISTRICT)?)?;
    let id = row.get(district::NEXT_O_ID);
    done(tx.update(tables.district, (w, d), &[district::NEXT_O_ID.set(id + 1)])?)?;
    insert(tx, tables, order, id, &taken)?;
    let w_row = found(tx.get_columns(tables.warehouse, w, warehouse::TAX.only())?)?;
    let w_tax = w_row.get(warehouse::TAX);

    let sum: i64 = taken.iter().map(|line| line.amount).sum();
    let (discount, taxes) = (c_discount as i64, (w_tax + row.get(district::TAX)) as i64);
    let total_cents = sum * (10_000 - discount) * (10_000 + taxes) / 100_000_000;
    Ok(NewOrderResult { order: id, total_cents, brand_lines })
}

/// Inserts the order, its new-order row and its lines.
fn insert(
    tx: &Transaction<'_>,
    tables: &TpccTables,
    order: &NewOrder,
    id: i32,
    taken: &[Taken<'_>],
) -> Result<(), Abort> {
    let &NewOrder { w, d, c, entry_us, ref lines } = order;
    let all_local = lines.iter().all(|line| line.supply_w == w) as i32;
    let row = [
        id.into(),
        d.into(),
        w.into(),
        c.into(),
        entry_us.into(),
        Value::Null,
        (lines.len() as i32).into(),
        all_local.into(),
    ];
    tx.insert(tables.orders, &row)?;
    tx.insert(tables.new_order, &[id.into(), d.into(), w.into()])?;
    for (number, (line, taken)) in (1i32..).zip(lines.iter().zip(taken)) {
        let row = [
            id.into(),
            d.into(),
            w.into(),
            number.into(),
            line.item.into(),
            line.supply_w.into(),
            Value::Null,
            line.quantity.into(),
            taken.amount.into(),
            taken.dist_info.into(),
        ];
        tx.insert(tables.order_line, &row)?;
    }
    Ok(())
}

/// Whether the text contains ORIGINAL (clause 2.4.2.2).
fn is_original(text: &[u8]) -> bool {
    static ORIGINAL: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("ORIGINAL"));
    ORIGINAL.find(text).is_some()
}
