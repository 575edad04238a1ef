//! The New-Order transaction (clause 2.4).

use super::schema::{
    Customer, District, Item, OpenOrder, Order, OrderLine, STOCK_DIST, Stock, TpccTables, Warehouse,
};
use super::{done, found};
use hyades::{Abort, Columns, Transaction};
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
    /// The time of entry, microseconds since 1970.
    pub entry_us: i64,
    /// 5 to 15 lines.
    pub lines: SmallVec<[Line; 15]>,
}

/// A line of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The item.
    pub item: i32,
    /// The supplying warehouse.
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
/// rollback required by the specification in 1 % of all orders (clause 2.4.1.4).
pub const UNUSED_ITEM: i64 = 1;

const ITEM: Columns = Item::I_PRICE.only().and(Item::I_NAME.only()).and(Item::I_DATA.only());
const CUSTOMER: Columns =
    Customer::C_DISCOUNT.only().and(Customer::C_LAST.only()).and(Customer::C_CREDIT.only());
const DISTRICT: Columns = District::D_TAX.only().and(District::D_NEXT_O_ID.only());
const STOCK: Columns = Stock::S_QUANTITY
    .only()
    .and(Stock::S_YTD.only())
    .and(Stock::S_ORDER_CNT.only())
    .and(Stock::S_REMOTE_CNT.only());

/// A line whose stock has been updated.
#[derive(Clone, Copy)]
struct Taken<'t> {
    amount: i64,
    dist_info: &'t [u8; 24],
}

/// Runs New-Order. The stock rows are updated before the district's next order number, and the
/// warehouse, whose row every Payment changes, is read last. The order of the steps is free (clause
/// 2.4.2.2); the order here holds contended rows for the shortest time.
pub fn new_order(
    tx: &Transaction<'_>,
    tables: &TpccTables,
    order: &NewOrder,
) -> Result<NewOrderResult, Abort> {
    let &NewOrder { w, d, c, ref lines, .. } = order;
    let dist = *found(STOCK_DIST.get((d - 1) as usize))?;
    let stock_columns = STOCK.and(dist.only());
    tables.customer.prefetch(tx, (w, d, c), CUSTOMER);
    tables.district.prefetch(tx, (w, d), DISTRICT);
    tables.warehouse.prefetch(tx, w, Warehouse::W_TAX.only());
    for line in lines {
        tables.item.prefetch(tx, line.item, ITEM);
        tables.stock.prefetch(tx, (line.supply_w, line.item), stock_columns);
    }
    // The order is inserted after the last order of the district and of the customer.
    tables.orders.scan(tx).prefix((w, d)).descending().prefetch();
    tables.new_order.scan(tx).prefix((w, d)).descending().prefetch();
    tables.order_line.scan(tx).prefix((w, d)).descending().prefetch();
    let by_customer = tables.orders.index(tx, Order::ORDERS_BY_CUSTOMER);
    by_customer.prefix((w, d, c)).descending().prefetch();
    let c_discount =
        found(tables.customer.get_columns(tx, (w, d, c), CUSTOMER)?)?.get(Customer::C_DISCOUNT);

    let mut taken: SmallVec<[Taken<'_>; 15]> = SmallVec::new();
    let mut brand_lines = 0;
    for line in lines {
        let Some(item_row) = tables.item.get_columns(tx, line.item, ITEM)? else {
            return Err(Abort::User(UNUSED_ITEM));
        };
        let key = (line.supply_w, line.item);
        let stock_row = found(tables.stock.get_columns(tx, key, stock_columns)?)?;
        let quantity = stock_row.get(Stock::S_QUANTITY);
        let restock = if quantity >= line.quantity + 10 { 0 } else { 91 };
        let remote = (line.supply_w != w) as i32;
        // Read before the update: after the update, a read would merge the old row with the change.
        if is_original(item_row.get(Item::I_DATA.as_bytes())) {
            let text = found(tables.stock.get_columns(tx, key, Stock::S_DATA.only())?)?;
            brand_lines += is_original(text.get(Stock::S_DATA.as_bytes())) as i32;
        }
        let sets = [
            Stock::S_QUANTITY.set(quantity - line.quantity + restock),
            Stock::S_YTD.set(stock_row.get(Stock::S_YTD) + line.quantity as i64),
            Stock::S_ORDER_CNT.set(stock_row.get(Stock::S_ORDER_CNT) + 1),
            Stock::S_REMOTE_CNT.set(stock_row.get(Stock::S_REMOTE_CNT) + remote),
        ];
        done(tables.stock.update(tx, key, &sets[..3 + remote as usize])?)?;
        taken.push(Taken {
            amount: line.quantity as i64 * item_row.get(Item::I_PRICE),
            dist_info: stock_row.get(dist).try_into().expect("the column's width"),
        });
    }

    let row = found(tables.district.get_columns(tx, (w, d), DISTRICT)?)?;
    let id = row.get(District::D_NEXT_O_ID);
    done(tables.district.update(tx, (w, d), &[District::D_NEXT_O_ID.set(id + 1)])?)?;
    insert(tx, tables, order, id, &taken)?;
    let w_row = found(tables.warehouse.get_columns(tx, w, Warehouse::W_TAX.only())?)?;
    let w_tax = w_row.get(Warehouse::W_TAX);

    let sum: i64 = taken.iter().map(|line| line.amount).sum();
    let (discount, taxes) = (c_discount as i64, (w_tax + row.get(District::D_TAX)) as i64);
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
    let row = Order {
        o_id: id,
        o_d_id: d,
        o_w_id: w,
        o_c_id: c,
        o_entry_d: entry_us,
        o_carrier_id: None,
        o_ol_cnt: lines.len() as i32,
        o_all_local: all_local,
    };
    tables.orders.insert(tx, &row)?;
    let open = OpenOrder { no_o_id: id, no_d_id: d, no_w_id: w };
    tables.new_order.insert(tx, &open)?;
    for (number, (line, taken)) in (1i32..).zip(lines.iter().zip(taken)) {
        let row = OrderLine {
            ol_o_id: id,
            ol_d_id: d,
            ol_w_id: w,
            ol_number: number,
            ol_i_id: line.item,
            ol_supply_w_id: line.supply_w,
            ol_delivery_d: None,
            ol_quantity: line.quantity,
            ol_amount: taken.amount,
            ol_dist_info: taken.dist_info,
        };
        tables.order_line.insert(tx, &row)?;
    }
    Ok(())
}

/// Whether the text contains ORIGINAL (clause 2.4.2.2).
fn is_original(text: &[u8]) -> bool {
    static ORIGINAL: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("ORIGINAL"));
    ORIGINAL.find(text).is_some()
}
