//! TPC-C, revision 5.11: nine tables with every column, the population, all five transactions with
//! every insert, delete and index, and the twelve consistency conditions.
//!
//! Departures from the specification are documented in place. Delivery handles its ten districts in
//! one transaction (clause 2.7.4 allows this) and is not queued. There are no think and keying
//! times. A procedure returns the figures of its output screen, but not all texts, though it reads
//! them. Inputs have last names as numbers (clause 4.3.2.3) instead of letters.

pub mod consistency;
mod delivery;
mod input;
mod new_order;
mod order_status;
mod payment;
mod population;
mod random;
pub mod schema;
mod snapshot;
mod stock_level;
#[cfg(test)]
mod tests;
mod workload;

pub use delivery::{Delivery, delivery};
pub use input::{Clock, Home, Mix, TpccInput, TpccInputs};
pub use new_order::{Line, NewOrder, NewOrderResult, UNUSED_ITEM, new_order};
pub use order_status::{OrderStatus, OrderStatusResult, order_status};
pub use payment::{Payment, payment};
pub use population::{PopulationPart, TpccPopulate, parts, populate};
pub use random::{Constants, last_name, non_uniform};
pub use snapshot::{CustomerFacts, DistrictFacts, Lines, OrderFacts, Snapshot};
pub use stock_level::{StockLevel, stock_level};
pub use workload::{Tpcc, TpccConfig};

use crate::check::{done, found};
use hyades::{Abort, Columns, Transaction};
use schema::{Customer, TpccTables};
use serde::{Deserialize, Serialize};

/// The number of rows. Only the number of warehouses is free in a true TPC-C; the remaining numbers
/// are for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: i32,
    /// Items, and stock rows of each warehouse: 100,000.
    pub items: i32,
    /// Customers of a district, and as many initial orders: 3,000.
    pub customers: i32,
}

impl Scale {
    /// The specification's size for a number of warehouses.
    pub fn full(warehouses: i32) -> Scale {
        Scale { warehouses, items: 100_000, customers: 3000 }
    }

    /// The number of last names in use; each name belongs to at least one customer.
    pub fn last_names(&self) -> i32 {
        self.customers.min(1000)
    }

    /// The number of a district's delivered initial orders: 2,100 of 3,000.
    pub fn delivered(&self) -> i32 {
        self.customers * 7 / 10
    }
}

/// How an input identifies a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CustomerSelector {
    /// By number.
    Id(i32),
    /// By last name, given as its number.
    LastName(u16),
}

impl CustomerSelector {
    /// Returns the customer's number. Of several customers with the last name the middle customer
    /// by first name is taken, rounded up (clauses 2.5.2.2 and 2.6.2.2).
    fn find(self, tx: &Transaction<'_>, tables: &TpccTables, w: i32, d: i32) -> Result<i32, Abort> {
        let number = match self {
            CustomerSelector::Id(id) => return Ok(id),
            CustomerSelector::LastName(number) => number,
        };
        let name = last_name(number);
        let rows = tables
            .customer
            .index(tx, Customer::CUSTOMER_BY_NAME)
            .prefix((w, d, name.as_str()))
            .get_columns(Customer::C_ID.only())?;
        let middle = found(rows.len().checked_sub(1))? / 2;
        Ok(rows[middle].get(Customer::C_ID))
    }
}

/// The columns of a customer that Payment and Order-Status show or need, without the long text.
const CUSTOMER_SUMMARY: Columns = Customer::C_FIRST
    .only()
    .and(Customer::C_MIDDLE.only())
    .and(Customer::C_LAST.only())
    .and(Customer::C_CREDIT.only())
    .and(Customer::C_BALANCE.only());
