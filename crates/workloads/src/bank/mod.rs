//! Bank transfers: the sum of all balances never changes, and every acknowledged transfer is
//! recorded as a row of a second table.

mod workload;

pub use workload::Bank;

use crate::{MISSING_ROW, Reader, Violation};
use fastrand::Rng;
use hyades::{Abort, Column, Error, Schema, Table, Transaction, Type, Value};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// The accounts table.
pub mod account {
    use super::*;
    /// The account's number.
    pub const ID: Column<u64> = Column::at(0);
    /// The balance.
    pub const BALANCE: Column<i64> = Column::at(1);
    /// The table's description.
    pub fn schema() -> Schema {
        Schema::new("accounts")
            .column("id", Type::U64)
            .column("balance", Type::I64)
            .primary_key(&["id"])
    }
}

/// The transfers table, keyed by number.
pub mod transfers {
    use super::*;
    /// The transfer's number.
    pub const ID: Column<u64> = Column::at(0);
    /// The account that is debited.
    pub const FROM: Column<u64> = Column::at(1);
    /// The account that is credited.
    pub const TO: Column<u64> = Column::at(2);
    /// The amount.
    pub const AMOUNT: Column<i64> = Column::at(3);
    /// The table's description.
    pub fn schema() -> Schema {
        Schema::new("transfers")
            .column("id", Type::U64)
            .column("from", Type::U64)
            .column("to", Type::U64)
            .column("amount", Type::I64)
            .primary_key(&["id"])
    }
}

/// The handles of the two tables.
#[derive(Clone, Copy, Debug)]
pub struct BankTables {
    /// Accounts.
    pub accounts: Table,
    /// Transfers.
    pub transfers: Table,
}

impl BankTables {
    /// Declares both through `declare`.
    pub fn declare(mut declare: impl FnMut(Schema) -> Table) -> BankTables {
        BankTables { accounts: declare(account::schema()), transfers: declare(transfers::schema()) }
    }
}

/// Ends a transfer with this [`Abort::User`] if the debited account lacks the money.
pub const SHORT_OF_MONEY: i64 = 1;

/// Arguments of [`transfer`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// The account that is debited.
    pub from: u64,
    /// The account that is credited.
    pub to: u64,
    /// The amount.
    pub amount: i64,
    /// The number under which the transfer is recorded; `None` if it is not.
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
        tx.insert(tables.accounts, &[id.into(), call.balance.into()])?;
    }
    Ok(())
}

/// Moves money and returns the new balance of the debited account.
pub fn transfer(tx: &Transaction<'_>, tables: &BankTables, call: &Transfer) -> Result<i64, Abort> {
    let &Transfer { from, to, amount, id } = call;
    let balance = |account: u64| {
        let row = tx.get_columns(tables.accounts, account, account::BALANCE.only())?;
        row.map(|row| row.get(account::BALANCE)).ok_or(Abort::User(MISSING_ROW))
    };
    let left = balance(from)? - amount;
    if left < 0 {
        return Err(Abort::User(SHORT_OF_MONEY));
    }
    tx.update(tables.accounts, from, &[account::BALANCE.set(left)])?;
    let got = balance(to)? + amount;
    tx.update(tables.accounts, to, &[account::BALANCE.set(got)])?;
    if let Some(id) = id {
        let row = [id.into(), from.into(), to.into(), amount.into()];
        tx.insert(tables.transfers, &row)?;
    }
    Ok(left)
}

/// Adds up all balances.
pub fn audit(tx: &Transaction<'_>, tables: &BankTables) -> Result<i64, Abort> {
    let rows = tx.scan(tables.accounts).columns(account::BALANCE.only()).rows()?;
    Ok(rows.iter().map(|row| row.get(account::BALANCE)).sum())
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
    /// The number of the first transfer. A process that continues another's run starts above all
    /// the numbers that were used.
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
    table: Table,
    id: Column<u64>,
    facts: impl Fn(&hyades::Row<'_>) -> T,
    mut take: impl FnMut(T),
) -> Result<(), Error> {
    let mut after = None;
    loop {
        let (part, last) = reader.read(|tx| {
            let key = [Value::U64(after.unwrap_or(0))];
            let scan = tx.scan(table).limit(AT_ONCE);
            let rows = if after.is_some() { scan.after(&key).rows()? } else { scan.rows()? };
            let last = rows.last().map(|row| row.get(id));
            Ok((rows.iter().map(&facts).collect::<Vec<T>>(), last))
        })?;
        part.into_iter().for_each(&mut take);
        if last.is_none() {
            return Ok(());
        }
        after = last;
    }
}

/// Checks what must hold while no transaction runs:
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
    let row = |row: &hyades::Row<'_>| {
        let (from, to) = (row.get(transfers::FROM), row.get(transfers::TO));
        (row.get(transfers::ID), from, to, row.get(transfers::AMOUNT))
    };
    read_all(reader, tables.transfers, transfers::ID, row, |(id, from, to, amount)| {
        for (account, change) in [(from, -amount), (to, amount)] {
            match expected.get_mut(account as usize) {
                Some(balance) => *balance += change,
                None => report(3, format!("transfer {id} names account {account}: not opened")),
            }
        }
    })?;
    let (mut count, mut sum) = (0, 0);
    let row = |row: &hyades::Row<'_>| (row.get(account::ID), row.get(account::BALANCE));
    read_all(reader, tables.accounts, account::ID, row, |(id, balance)| {
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
    })?;
    let whole = config.accounts as i64 * config.balance;
    if (count, sum) != (config.accounts, whole) {
        let accounts = config.accounts;
        report(1, format!("{count} accounts hold {sum}, not {accounts} that hold {whole}"));
    }
    Ok(violations)
}

/// Returns those of these transfers that are not recorded: given the acknowledged ones, those lost.
///
/// # Errors
/// The database's.
pub fn missing<R: Reader>(reader: &R, tables: &BankTables, ids: &[u64]) -> Result<Vec<u64>, Error> {
    let mut missing = Vec::new();
    for ids in ids.chunks(AT_ONCE) {
        missing.extend(reader.read(|tx| {
            let mut absent = Vec::new();
            for &id in ids {
                if tx.get_columns(tables.transfers, id, transfers::ID.only())?.is_none() {
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
        let tables = BankTables { accounts: Table::nth(0), transfers: Table::nth(1) };
        let oracle = Oracle::new(vec![account::schema(), transfers::schema()]);
        for part in parts(&CONFIG) {
            oracle.transact(|tx| populate(tx, &tables, &part)).unwrap();
        }
        (oracle, tables)
    }

    /// Runs transfers; returns the numbers of those that committed.
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
        assert_eq!(oracle.len(tables.transfers), ids.len());
    }

    #[test]
    fn a_lost_or_partial_transfer_is_noticed() {
        let (oracle, tables) = populated();
        let ids = run(&oracle, &tables);
        let lost = ids[7];
        assert!(oracle.transact(|tx| tx.delete(tables.transfers, lost)).unwrap());
        assert_eq!(missing(&oracle, &tables, &ids).unwrap(), [lost]);
        let found = check(&oracle, &tables, &CONFIG).unwrap();
        assert_eq!(found.iter().map(|v| v.condition).collect::<Vec<_>>(), [3, 3]);

        let (oracle, tables) = populated();
        oracle
            .transact(|tx| tx.update(tables.accounts, 3u64, &[account::BALANCE.set(-1i64)]))
            .unwrap();
        let found = check(&oracle, &tables, &CONFIG).unwrap();
        assert_eq!(found.iter().map(|v| v.condition).collect::<Vec<_>>(), [2, 3, 1]);
    }
}
