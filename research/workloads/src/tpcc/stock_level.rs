//! The Stock-Level transaction (clause 2.8).

use super::found;
use super::schema::{District, OrderLine, Stock, TpccTables};
use hyades::{Abort, Transaction};
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
    let next = found(tables.district.get_columns(tx, (w, d), District::D_NEXT_O_ID.only())?)?
        .get(District::D_NEXT_O_ID);
    let lines = tables
        .order_line
        .scan(tx)
        .prefix_range((w, d, next - 20)..(w, d, next))
        .get_columns(OrderLine::OL_I_ID.only())?;
    // At most 20 orders of 15 lines: they fit on the stack.
    let mut items: SmallVec<[i32; 300]> =
        lines.iter().map(|line| line.get(OrderLine::OL_I_ID)).collect();
    items.sort_unstable();
    items.dedup();
    let mut low = 0;
    for item in items {
        let row = tables.stock.get_columns(tx, (w, item), Stock::S_QUANTITY.only())?;
        low += (found(row)?.get(Stock::S_QUANTITY) < threshold) as i32;
    }
    Ok(low)
}
