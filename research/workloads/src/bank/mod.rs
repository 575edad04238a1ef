//! Bank transfers: the sum of all balances never changes, and every acknowledged transfer is
//! recorded as a row of a second table.

mod workload;

pub use workload::Bank;

use crate::{MISSING_ROW, Reader, Violation};
use fastrand::Rng;
use hyades::{Abort, Columns, Error, Schema, Table, TableRow, Transaction, TypedTable};
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

/// A row of the table of accounts.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(name = "accounts")]
pub struct Account {
    /// The account's number.
    #[key]
    pub id: u64,
    /// The balance.
    pub balance: i64,
}

/// A row of the table of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(name = "transfers")]
pub struct RecordedTransfer {
    /// The transfer's number.
    #[key]
    pub id: u64,
    /// The debited account.
    pub from: u64,
    /// The credited account.
    pub to: u64,
    /// The amount.
    pub amount: i64,
}

/// The handles of the two tables.
#[derive(Clone, Copy, Debug)]
pub struct BankTables {
    /// Accounts.
    pub accounts: TypedTable<Account>,
    /// Transfers.
    pub transfers: TypedTable<RecordedTransfer>,
}

impl BankTables {
    /// Declares both through `declare`.
    pub fn declare(mut declare: impl FnMut(Schema) -> Table) -> BankTables {
        BankTables {
            accounts: TypedTable::of(declare(Account::schema())),
            transfers: TypedTable::of(declare(RecordedTransfer::schema())),
        }
    }
}

/// Ends a transfer with this [`Abort::User`] if the debited account lacks the money.
pub const SHORT_OF_MONEY: i64 = 1;

/// Arguments of [`transfer`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// The debited account.
    pub from: u64,
    /// The credited account.
    pub to: u64,
    /// The amount.
    pub amount: i64,
    /// The number under which the transfer is recorded; `None` if not recorded.
    pub id: Option<u64>,
}

/// Arguments of [`populate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BankPopulate {
    /// The first number.
    pub from: u64,
    /// How many.
    pub count: u64,
    /// The balance of each.
    pub balance: i64,
}

/// Opens accounts.
pub fn populate(
    tx: &Transaction<'_>,
    tables: &BankTables,
    call: &BankPopulate,
) -> Result<(), Abort> {
    for id in call.from..call.from + call.count {
        tables.accounts.insert(tx, &Account { id, balance: call.balance })?;
    }
    Ok(())
}

/// Moves money and returns the new balance of the debited account.
pub fn transfer(tx: &Transaction<'_>, tables: &BankTables, call: &Transfer) -> Result<i64, Abort> {
    let &Transfer { from, to, amount, id } = call;
    let balance = |account: u64| {
        let row = tables.accounts.get_columns(tx, account, Account::BALANCE.only())?;
        row.map(|row| row.get(Account::BALANCE)).ok_or(Abort::User(MISSING_ROW))
    };
    let left = balance(from)? - amount;
    if left < 0 {
        return Err(Abort::User(SHORT_OF_MONEY));
    }
    tables.accounts.update(tx, from, &[Account::BALANCE.set(left)])?;
    let got = balance(to)? + amount;
    tables.accounts.update(tx, to, &[Account::BALANCE.set(got)])?;
    if let Some(id) = id {
        tables.transfers.insert(tx, &RecordedTransfer { id, from, to, amount })?;
    }
    Ok(left)
}

/// Adds up all balances.
pub fn audit(tx: &Transaction<'_>, tables: &BankTables) -> Result<i64, Abort> {
    let rows = tables.accounts.scan(tx).get_columns(Account::BALANCE.only())?;
    Ok(rows.iter().map(|row| row.get(Account::BALANCE)).sum())
}

/// Settings of the workload.
#[derive(Clone, Copy, Debug)]
pub struct BankConfig {
    /// Accounts, at least 2.
    pub accounts: u64,
    /// The initial balance of each.
    pub balance: i64,
    /// Transfers move 1 to this amount.
    pub most: i64,
    /// Whether transfers are recorded in the transfers table.
    pub recorded: bool,
    /// The number of the first transfer. A process that continues another process's run starts
    /// above all used numbers.
    pub first_id: u64,
    /// The share of transactions that are audits instead.
    pub audit_share: f64,
}

impl Default for BankConfig {
    fn default() -> Self {
        BankConfig {
            accounts: 100_000,
            balance: 1000,
            most: 100,
            recorded: true,
            first_id: 1,
            audit_share: 0.0,
        }
    }
}

/// The input of one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum BankInput {
    /// An audit.
    #[default]
    Audit,
    /// A transfer.
    Transfer(Transfer),
}

/// Draws inputs.
#[derive(Debug)]
pub struct BankInputs {
    config: BankConfig,
    /// The number of the next transfer. Relaxed: workers need only distinct numbers.
    next: AtomicU64,
}

impl BankInputs {
    /// # Panics
    /// If there are fewer than two accounts.
    pub fn new(config: BankConfig) -> BankInputs {
        assert!(config.accounts >= 2, "a transfer needs two accounts, not {}", config.accounts);
        BankInputs { next: AtomicU64::new(config.first_id), config }
    }

    /// The settings.
    pub fn config(&self) -> &BankConfig {
        &self.config
    }

    /// Draws the next input: two different accounts, uniformly.
    pub fn draw(&self, rng: &mut Rng, into: &mut BankInput) {
        if self.config.audit_share > 0.0 && rng.f64() < self.config.audit_share {
            *into = BankInput::Audit;
            return;
        }
        let from = rng.u64(..self.config.accounts);
        let to = rng.u64(..self.config.accounts - 1);
        let to = to + (to >= from) as u64;
        let amount = rng.i64(1..=self.config.most);
        let id = self.config.recorded.then(|| self.next.fetch_add(1, Ordering::Relaxed));
        *into = BankInput::Transfer(Transfer { from, to, amount, id });
    }
}

/// Accounts opened by one call.
const CHUNK: u64 = 1000;

/// Returns the calls that populate the database.
pub fn parts(config: &BankConfig) -> Vec<BankPopulate> {
    let &BankConfig { accounts, balance, .. } = config;
    let part = |from| BankPopulate { from, count: CHUNK.min(accounts - from), balance };
    (0..accounts).step_by(CHUNK as usize).map(part).collect()
}

/// Rows that a check reads per transaction.
const AT_ONCE: usize = 20_000;

/// Reads a table with a single 64-bit key in parts, in key order.
fn read_all<R: Reader, T>(
    reader: &R,
    table: TypedTable<T>,
    id: impl Fn(&T) -> u64,
    mut take: impl FnMut(T),
) -> Result<(), Error>
where
    T: for<'t> TableRow<Key = (u64,), Read<'t> = T>,
{
    let mut after = Bound::Unbounded;
    loop {
        let part = reader.read(|tx| {
            let rows = table.scan(tx).range((after, Bound::Unbounded)).limit(AT_ONCE).rows()?;
            Ok(rows.collect::<Vec<T>>())
        })?;
        let Some(last) = part.last() else {
            return Ok(());
        };
        after = Bound::Excluded(id(last));
        part.into_iter().for_each(&mut take);
    }
}

/// Checks the conditions that must hold while no transaction runs:
/// 1. all accounts exist, and the sum of their balances is the initial sum;
/// 2. no balance is negative;
/// 3. where transfers are recorded, each balance follows from the initial one and the transfers.
///
/// # Errors
/// The database's.
pub fn check<R: Reader>(
    reader: &R,
    tables: &BankTables,
    config: &BankConfig,
) -> Result<Vec<Violation>, Error> {
    let mut expected = vec![config.balance; config.accounts as usize];
    let mut violations = Vec::new();
    let mut report = |condition, text| violations.push(Violation { condition, text });
    read_all(
        reader,
        tables.transfers,
        |row| row.id,
        |row| {
            let RecordedTransfer { id, from, to, amount } = row;
            for (account, change) in [(from, -amount), (to, amount)] {
                match expected.get_mut(account as usize) {
                    Some(balance) => *balance += change,
                    None => report(3, format!("transfer {id} names account {account}: not opened")),
                }
            }
        },
    )?;
    let (mut count, mut sum) = (0, 0);
    read_all(
        reader,
        tables.accounts,
        |row| row.id,
        |Account { id, balance }| {
            count += 1;
            sum += balance;
            if balance < 0 {
                report(2, format!("account {id} has {balance}"));
            }
            let expected = expected.get(id as usize).copied();
            if config.recorded && expected != Some(balance) {
                let expected = expected.unwrap_or(0);
                report(3, format!("account {id} has {balance}, its transfers make {expected}"));
            }
        },
    )?;
    let whole = config.accounts as i64 * config.balance;
    if (count, sum) != (config.accounts, whole) {
        let accounts = config.accounts;
        report(1, format!("{count} accounts hold {sum}, not {accounts} that hold {whole}"));
    }
    Ok(violations)
}

/// Returns the transfers without a record: given the acknowledged transfers, the lost transfers.
///
/// # Errors
/// The database's.
pub fn missing<R: Reader>(reader: &R, tables: &BankTables, ids: &[u64]) -> Result<Vec<u64>, Error> {
    let mut missing = Vec::new();
    for ids in ids.chunks(AT_ONCE) {
        missing.extend(reader.read(|tx| {
            let mut absent = Vec::new();
            for &id in ids {
                if tables.transfers.get_columns(tx, id, Columns::NONE)?.is_none() {
                    absent.push(id);
                }
            }
            Ok(absent)
        })?);
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Oracle;

    const CONFIG: BankConfig = BankConfig {
        accounts: 50,
        balance: 100,
        most: 100,
        recorded: true,
        first_id: 1,
        audit_share: 0.1,
    };

    fn populated() -> (Oracle, BankTables) {
        let mut schemas = Vec::new();
        let tables = BankTables::declare(|schema| {
            schemas.push(schema);
            Table::nth(schemas.len() as u32 - 1)
        });
        let oracle = Oracle::new(schemas);
        for part in parts(&CONFIG) {
            oracle.transact(|tx| populate(tx, &tables, &part)).unwrap();
        }
        (oracle, tables)
    }

    /// Runs transfers; returns the numbers of the committed transfers.
    fn run(oracle: &Oracle, tables: &BankTables) -> Vec<u64> {
        let (inputs, mut rng, mut input) =
            (BankInputs::new(CONFIG), Rng::with_seed(2), BankInput::default());
        let mut went_through = Vec::new();
        let (mut short, mut audits) = (0, 0);
        for _ in 0..2000 {
            inputs.draw(&mut rng, &mut input);
            match &input {
                BankInput::Audit => {
                    audits += 1;
                    assert_eq!(oracle.transact(|tx| audit(tx, tables)), Ok(5000));
                }
                BankInput::Transfer(call) => {
                    match oracle.transact(|tx| transfer(tx, tables, call)) {
                        Ok(_) => went_through.extend(call.id),
                        Err(Abort::User(SHORT_OF_MONEY)) => short += 1,
                        Err(other) => panic!("{other:?} by {call:?}"),
                    }
                }
            }
        }
        assert!(short > 0 && audits > 100);
        went_through
    }

    #[test]
    fn transfers_keep_the_sum_and_are_written_down() {
        let (oracle, tables) = populated();
        assert_eq!(check(&oracle, &tables, &CONFIG).unwrap(), []);
        let ids = run(&oracle, &tables);
        assert_eq!(check(&oracle, &tables, &CONFIG).unwrap(), []);
        assert!(missing(&oracle, &tables, &ids).unwrap().is_empty());
        assert_eq!(oracle.len(tables.transfers.untyped()), ids.len());
    }

    #[test]
    fn a_lost_or_partial_transfer_is_noticed() {
        let (oracle, tables) = populated();
        let ids = run(&oracle, &tables);
        let lost = ids[7];
        assert!(oracle.transact(|tx| tables.transfers.delete(tx, lost)).unwrap());
        assert_eq!(missing(&oracle, &tables, &ids).unwrap(), [lost]);
        let found = check(&oracle, &tables, &CONFIG).unwrap();
        assert_eq!(found.iter().map(|v| v.condition).collect::<Vec<_>>(), [3, 3]);

        let (oracle, tables) = populated();
        oracle
            .transact(|tx| tables.accounts.update(tx, 3, &[Account::BALANCE.set(-1i64)]))
            .unwrap();
        let found = check(&oracle, &tables, &CONFIG).unwrap();
        assert_eq!(found.iter().map(|v| v.condition).collect::<Vec<_>>(), [2, 3, 1]);
    }
}
