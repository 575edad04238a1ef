//! The consistency check.

use super::*;
use crate::{Reader, Violation};
use hyades::Error;
use std::ops::{Bound, Range};

/// Customers read in one transaction.
const AT_ONCE: u64 = 5000;

/// The rows of some customers.
struct CustomersRead {
    /// The customers with a row under their name.
    named: Vec<u64>,
    savings: Vec<Savings>,
    checking: Vec<Checking>,
}

/// Checks the conditions that must hold while no transaction runs:
/// 1. each customer has a row under the own name, a savings and a checking account; no other rows
///    exist, and all tellers do;
/// 2. no savings are negative;
/// 3. the sum of all balances is the sum of the first balances and of the amounts taken in by
///    tellers.
///
/// A lost, doubled or partial update of a balance breaks the third condition, unless the teller's
/// row suffers the same: concurrent transactions rarely have the same teller. If all changes of a
/// transaction are lost together, no condition breaks.
///
/// # Errors
/// The database's.
pub fn check<R: Reader>(
    reader: &R,
    tables: &SmallBankTables,
    config: &SmallBankConfig,
) -> Result<Vec<Violation>, Error> {
    let mut violations = Vec::new();
    let mut report = |condition, text| violations.push(Violation { condition, text });
    let tellers: Vec<Teller> = reader.read(|tx| Ok(tables.tellers.scan(tx).rows()?.collect()))?;
    if !tellers.iter().map(|teller| teller.id).eq(0..TELLERS) {
        report(1, format!("{} tellers, not {TELLERS}", tellers.len()));
    }
    let mut expected: i64 = tellers.iter().map(|teller| teller.taken_in).sum();
    let mut sum = 0;
    for from in (0..config.accounts).step_by(AT_ONCE as usize) {
        let customers = from..config.accounts.min(from + AT_ONCE);
        let is_last = customers.end == config.accounts;
        let read = reader.read(|tx| read(tx, tables, &customers, is_last))?;
        let mut counted = |what: &str, found: &[u64]| {
            if !found.iter().copied().eq(customers.clone()) {
                let (count, right) = (found.len(), customers.end - customers.start);
                report(1, format!("from customer {from} on: {count} {what}, not {right}"));
            }
        };
        counted("names", &read.named);
        counted("savings", &read.savings.iter().map(|row| row.customer).collect::<Vec<_>>());
        counted("checking", &read.checking.iter().map(|row| row.customer).collect::<Vec<_>>());
        for Savings { customer, balance } in read.savings {
            if balance < 0 {
                report(2, format!("customer {customer} has savings of {balance}"));
            }
            sum += balance;
        }
        sum += read.checking.iter().map(|row| row.balance).sum::<i64>();
        expected +=
            customers.flat_map(|customer| first_balances(config.seed, customer)).sum::<i64>();
    }
    if sum != expected {
        report(3, format!("the balances make {sum}, what was brought in makes {expected}"));
    }
    Ok(violations)
}

/// Reads the rows of some customers; of the last customers, also all rows after them.
fn read(
    tx: &Transaction<'_>,
    tables: &SmallBankTables,
    customers: &Range<u64>,
    is_last: bool,
) -> Result<CustomersRead, Abort> {
    let (first, end) = (customer_name(customers.start), customer_name(customers.end));
    let numbers_end = if is_last { Bound::Unbounded } else { Bound::Excluded(customers.end) };
    let names = match customers.start {
        0 => Bound::Unbounded,
        _ => Bound::Included(first.as_str()),
    };
    let names = (names, if is_last { Bound::Unbounded } else { Bound::Excluded(end.as_str()) });
    let numbers = (Bound::Included(customers.start), numbers_end);
    let named = tables.accounts.scan(tx).range(names).rows()?;
    let is_right = |row: &NamedAccount<'_>| row.name == customer_name(row.customer).as_str();
    Ok(CustomersRead {
        named: named.filter(is_right).map(|row| row.customer).collect(),
        savings: tables.savings.scan(tx).range(numbers).rows()?.collect(),
        checking: tables.checking.scan(tx).range(numbers).rows()?.collect(),
    })
}
