//! SmallBank (Alomari, Cahill, Fekete and Röhm, ICDE 2008): customers with a savings and a checking
//! account, and short transactions on the accounts. Beside the paper's five transactions there is
//! SendPayment, which H-Store and OLTP-Bench have added.
//!
//! Money is whole cents. The paper leaves amounts and first balances open; the values here are
//! small enough that savings run short now and then. A share of the transactions uses only the few
//! hot customers, the remaining transactions use the rest. Inputs have a customer's number instead
//! of the name; the procedures form the name, and find the customer by name.
//!
//! Deposits and checks change the sum of all balances. To keep the sum checkable, there is a fourth
//! table, which the benchmark does not have: a transaction that brings money into the bank, or
//! takes money out, also adds the amount to the row of a teller. The input names one of the
//! [`TELLERS`], at random, so that concurrent transactions rarely have the same teller. See
//! [`check()`].

mod check;
mod input;
mod procedures;
#[cfg(test)]
pub(crate) mod tests;
mod workload;

pub use check::check;
pub use input::{SmallBankInput, SmallBankInputs};
pub use procedures::*;
pub use workload::SmallBank;

use crate::bytes::{Text, decimal, generator};
use hyades::{Abort, Schema, Table, TableRow, Transaction, TypedTable};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// A row of the table of customers: the name, and the customer's number.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(name = "account")]
pub struct NamedAccount<'a> {
    /// The customer's name.
    #[key]
    pub name: &'a str,
    /// The customer's number.
    #[unique]
    pub customer: u64,
}

/// A row of the table of savings accounts.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
pub struct Savings {
    /// The customer's number.
    #[key]
    pub customer: u64,
    /// The balance in cents, never negative.
    pub balance: i64,
}

/// A row of the table of checking accounts.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
pub struct Checking {
    /// The customer's number.
    #[key]
    pub customer: u64,
    /// The balance in cents; negative if overdrawn.
    pub balance: i64,
}

/// A row of the table of tellers.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
pub struct Teller {
    /// The teller's number.
    #[key]
    pub id: u32,
    /// All cents brought into the bank through this teller, less the cents taken out.
    pub taken_in: i64,
}

/// The number of tellers.
pub const TELLERS: u32 = 1000;

/// The handles of the four tables.
#[derive(Clone, Copy, Debug)]
pub struct SmallBankTables {
    /// Customers, by name.
    pub accounts: TypedTable<NamedAccount<'static>>,
    /// Savings accounts.
    pub savings: TypedTable<Savings>,
    /// Checking accounts.
    pub checking: TypedTable<Checking>,
    /// Tellers.
    pub tellers: TypedTable<Teller>,
}

impl SmallBankTables {
    /// Declares all through `declare`.
    pub fn declare(mut declare: impl FnMut(Schema) -> Table) -> SmallBankTables {
        SmallBankTables {
            accounts: TypedTable::of(declare(NamedAccount::schema())),
            savings: TypedTable::of(declare(Savings::schema())),
            checking: TypedTable::of(declare(Checking::schema())),
            tellers: TypedTable::of(declare(Teller::schema())),
        }
    }
}

/// Settings of the workload.
#[derive(Clone, Copy, Debug)]
pub struct SmallBankConfig {
    /// Customers, each with an account of either kind.
    pub accounts: u64,
    /// The number of hot customers, the first ones: at least 2, and at least 2 are not hot.
    pub hot_accounts: u64,
    /// The share of transactions that use hot customers, 0 to 1.
    pub hot_share: f64,
    /// The seed of the first balances.
    pub seed: u64,
}

impl Default for SmallBankConfig {
    fn default() -> Self {
        SmallBankConfig { accounts: 100_000, hot_accounts: 100, hot_share: 0.25, seed: 1 }
    }
}

/// Arguments of [`populate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SmallBankPopulate {
    /// The seed of the first balances.
    pub seed: u64,
    /// The first customer.
    pub from: u64,
    /// How many.
    pub count: u64,
}

/// Customers that one call opens accounts for.
const CHUNK: u64 = 500;

/// Returns the calls that populate the database.
pub fn parts(config: &SmallBankConfig) -> Vec<SmallBankPopulate> {
    let &SmallBankConfig { accounts, seed, .. } = config;
    let part = |from| SmallBankPopulate { seed, from, count: CHUNK.min(accounts - from) };
    (0..accounts).step_by(CHUNK as usize).map(part).collect()
}

/// Opens the accounts of some customers. The call for the first customer also adds the tellers.
pub fn populate(
    tx: &Transaction<'_>,
    tables: &SmallBankTables,
    call: &SmallBankPopulate,
) -> Result<(), Abort> {
    if call.from == 0 {
        for id in 0..TELLERS {
            tables.tellers.insert(tx, &Teller { id, taken_in: 0 })?;
        }
    }
    for customer in call.from..call.from + call.count {
        let name = customer_name(customer);
        let [savings, checking] = first_balances(call.seed, customer);
        tables.accounts.insert(tx, &NamedAccount { name: name.as_str(), customer })?;
        tables.savings.insert(tx, &Savings { customer, balance: savings })?;
        tables.checking.insert(tx, &Checking { customer, balance: checking })?;
    }
    Ok(())
}

/// First balances, in cents: 100 to 500 dollars.
const FIRST_BALANCES: RangeInclusive<i64> = 10_000..=50_000;

/// The first balances of a customer, savings and checking.
fn first_balances(seed: u64, customer: u64) -> [i64; 2] {
    let mut rng = generator(seed, 0x5B, customer);
    std::array::from_fn(|_| rng.i64(FIRST_BALANCES))
}

/// The name of a customer. Names are in the order of the numbers.
fn customer_name(customer: u64) -> Text<20> {
    let mut name = Text::default();
    let digits = decimal::<12>(customer);
    name.push("customer").push(std::str::from_utf8(&digits).expect("digits are ASCII"));
    name
}
