//! The Stock-Level transaction (clause 2.8).

use super::found;
use super::schema::{TpccTables, district, order_line, stock};
use hyades::{Abort, Transaction, Value};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// A query as entered at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StockLevel {
    /// The warehouse.
    pub w: i32,
    /// The district.
    pub d: i32,
    /// 10 to 20.
    pub threshold: i32,
}

/// Runs Stock-Level: returns how many distinct items of the district's last 20 orders are short.
pub fn stock_level(
    tx: &Transaction<'_>,
    tables: &TpccTables,
    call: &StockLevel,
) -> Result<i32, Abort> {
    let &StockLevel { w, d, threshold } = call;
    let next = found(tx.get_columns(tables.district, (w, d), district::NEXT_O_ID.only())?)?
        .get(district::NEXT_O_ID);
    let from: [Value<'_>; 3] = [w.into(), d.into(), (next - 20).into()];
    let before: [Value<'_>; 3] = [w.into(), d.into(), next.into()];
    let lines = tx
        .scan(tables.order_line)
        .from(&from)
        .before(&before)
        .columns(order_line::I_ID.only())
        .rows()?;
    // At most 20 orders of 15 lines: they fit on the stack.
    let mut items: SmallVec<[i32; 300]> =
        lines.iter().map(|line| line.get(order_line::I_ID)).collect();
    items.sort_unstable();
    items.dedup();
    let mut low = 0;
    for item in items {
        let row = tx.get_columns(tables.stock, (w, item), stock::QUANTITY.only())?;
        low += (found(row)?.get(stock::QUANTITY) < threshold) as i32;
    }
    Ok(low)
}
