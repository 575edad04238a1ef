//! The six transactions.

use super::*;
use crate::check::{done, found};

/// Ends a transaction with this [`Abort::User`] if the account lacks the money.
pub const INSUFFICIENT_FUNDS: i64 = 1;
/// Ends a deposit of a negative amount with this [`Abort::User`]. No input has such an amount.
pub const NEGATIVE_DEPOSIT: i64 = 2;

/// The additional cost of a check that overdraws the customer's accounts: a dollar.
pub const OVERDRAFT_PENALTY: i64 = 100;

/// Arguments of [`balance`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// The customer.
    pub customer: u64,
}

/// Arguments of [`deposit_checking`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DepositChecking {
    /// The customer.
    pub customer: u64,
    /// The amount.
    pub amount: i64,
    /// The teller.
    pub teller: u32,
}

/// Arguments of [`transact_savings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TransactSavings {
    /// The customer.
    pub customer: u64,
    /// The amount; negative for a withdrawal.
    pub amount: i64,
    /// The teller.
    pub teller: u32,
}

/// Arguments of [`amalgamate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Amalgamate {
    /// The customer whose accounts are emptied.
    pub from: u64,
    /// The customer whose checking account is credited, different from `from`.
    pub to: u64,
}

/// Arguments of [`write_check`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WriteCheck {
    /// The customer.
    pub customer: u64,
    /// The amount.
    pub amount: i64,
    /// The teller.
    pub teller: u32,
}

/// Arguments of [`send_payment`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SendPayment {
    /// The paying customer.
    pub from: u64,
    /// The paid customer, different from `from`.
    pub to: u64,
    /// The amount.
    pub amount: i64,
}

/// Finds a customer by name.
fn by_name(tx: &Transaction<'_>, tables: &SmallBankTables, number: u64) -> Result<u64, Abort> {
    let name = customer_name(number);
    let row = tables.accounts.get_columns(tx, name.as_str(), NamedAccount::CUSTOMER.only())?;
    Ok(found(row)?.get(NamedAccount::CUSTOMER))
}

fn savings(tx: &Transaction<'_>, tables: &SmallBankTables, customer: u64) -> Result<i64, Abort> {
    let row = tables.savings.get_columns(tx, customer, Savings::BALANCE.only())?;
    Ok(found(row)?.get(Savings::BALANCE))
}

fn checking(tx: &Transaction<'_>, tables: &SmallBankTables, customer: u64) -> Result<i64, Abort> {
    let row = tables.checking.get_columns(tx, customer, Checking::BALANCE.only())?;
    Ok(found(row)?.get(Checking::BALANCE))
}

fn set_savings(
    tx: &Transaction<'_>,
    tables: &SmallBankTables,
    customer: u64,
    balance: i64,
) -> Result<(), Abort> {
    done(tables.savings.update(tx, customer, &[Savings::BALANCE.set(balance)])?)
}

fn set_checking(
    tx: &Transaction<'_>,
    tables: &SmallBankTables,
    customer: u64,
    balance: i64,
) -> Result<(), Abort> {
    done(tables.checking.update(tx, customer, &[Checking::BALANCE.set(balance)])?)
}

/// Adds an amount brought into the bank to the row of a teller.
fn take_in(
    tx: &Transaction<'_>,
    tables: &SmallBankTables,
    teller: u32,
    amount: i64,
) -> Result<(), Abort> {
    let row = tables.tellers.get_columns(tx, teller, Teller::TAKEN_IN.only())?;
    let taken_in = found(row)?.get(Teller::TAKEN_IN) + amount;
    done(tables.tellers.update(tx, teller, &[Teller::TAKEN_IN.set(taken_in)])?)
}

/// Returns the sum of a customer's balances.
pub fn balance(
    tx: &Transaction<'_>,
    tables: &SmallBankTables,
    call: &Balance,
) -> Result<i64, Abort> {
    let customer = by_name(tx, tables, call.customer)?;
    Ok(savings(tx, tables, customer)? + checking(tx, tables, customer)?)
}

/// Pays into a checking account.
pub fn deposit_checking(
    tx: &Transaction<'_>,
    tables: &SmallBankTables,
    call: &DepositChecking,
) -> Result<(), Abort> {
    let &DepositChecking { amount, teller, .. } = call;
    if amount < 0 {
        return Err(Abort::User(NEGATIVE_DEPOSIT));
    }
    let customer = by_name(tx, tables, call.customer)?;
    let before = checking(tx, tables, customer)?;
    set_checking(tx, tables, customer, before + amount)?;
    take_in(tx, tables, teller, amount)
}

/// Pays into a savings account, or out of it. The account cannot be overdrawn.
pub fn transact_savings(
    tx: &Transaction<'_>,
    tables: &SmallBankTables,
    call: &TransactSavings,
) -> Result<(), Abort> {
    let &TransactSavings { amount, teller, .. } = call;
    let customer = by_name(tx, tables, call.customer)?;
    let after = savings(tx, tables, customer)? + amount;
    if after < 0 {
        return Err(Abort::User(INSUFFICIENT_FUNDS));
    }
    set_savings(tx, tables, customer, after)?;
    take_in(tx, tables, teller, amount)
}

/// Moves all money of a customer to the checking account of another customer.
pub fn amalgamate(
    tx: &Transaction<'_>,
    tables: &SmallBankTables,
    call: &Amalgamate,
) -> Result<(), Abort> {
    let from = by_name(tx, tables, call.from)?;
    let to = by_name(tx, tables, call.to)?;
    let all = savings(tx, tables, from)? + checking(tx, tables, from)?;
    set_savings(tx, tables, from, 0)?;
    set_checking(tx, tables, from, 0)?;
    let before = checking(tx, tables, to)?;
    set_checking(tx, tables, to, before + all)
}

/// Cashes a check: takes the check's amount out of the checking account. If the customer has less
/// in both accounts together, a penalty is taken as well.
pub fn write_check(
    tx: &Transaction<'_>,
    tables: &SmallBankTables,
    call: &WriteCheck,
) -> Result<(), Abort> {
    let customer = by_name(tx, tables, call.customer)?;
    let before = checking(tx, tables, customer)?;
    let overdraws = savings(tx, tables, customer)? + before < call.amount;
    let amount = call.amount + if overdraws { OVERDRAFT_PENALTY } else { 0 };
    set_checking(tx, tables, customer, before - amount)?;
    take_in(tx, tables, call.teller, -amount)
}

/// Pays from one checking account into another, if the first has the money.
pub fn send_payment(
    tx: &Transaction<'_>,
    tables: &SmallBankTables,
    call: &SendPayment,
) -> Result<(), Abort> {
    let from = by_name(tx, tables, call.from)?;
    let to = by_name(tx, tables, call.to)?;
    let left = checking(tx, tables, from)? - call.amount;
    if left < 0 {
        return Err(Abort::User(INSUFFICIENT_FUNDS));
    }
    set_checking(tx, tables, from, left)?;
    let before = checking(tx, tables, to)?;
    set_checking(tx, tables, to, before + call.amount)
}
