//! The options of SmallBank.

use clap::Args;
use hyades_cli::failure::{Failure, usage};
use hyades_workloads::smallbank;
use serde::{Deserialize, Serialize};

/// The text above the options in the help.
pub const ABOUT: &str = "\
SmallBank: short transactions on savings and checking accounts, some of them hot

Transactions: Balance, DepositChecking, TransactSavings, Amalgamate and WriteCheck, 15 % each, \
and SendPayment, 25 %. TransactSavings and SendPayment roll back if the account lacks the money. \
Two customers of one transaction are both hot or both not.

Conditions checked at the end: each customer has both accounts, no savings are negative, and the \
sum of all balances is the first one, plus all that was paid into the bank, less all that was \
paid out. For the last, each transaction that changes the sum also adds the amount to one of \
1,000 rows, chosen at random, which the benchmark does not have.";

/// Hot customers, unless given.
const HOT: u64 = 100;

/// Options of SmallBank.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct SmallBank {
    /// Customers, at least 4, each with a savings and a checking account
    #[arg(long, default_value_t = 100_000)]
    accounts: u64,
    /// Hot customers, at least 2; at least 2 must not be hot [default: 100, or half of the
    /// customers if that is less]
    #[arg(long, value_name = "N")]
    hot_accounts: Option<u64>,
    /// Share of transactions that use hot customers, 0 to 1; the others use the rest
    #[arg(long, default_value_t = 0.25, value_name = "SHARE")]
    hot_share: f64,
}

impl SmallBank {
    /// Checks the options against one another.
    ///
    /// # Errors
    /// Wrong usage, in one sentence.
    pub fn check(&self) -> Result<(), Failure> {
        if !(4..1 << 32).contains(&self.accounts) {
            return usage(format!(
                "--accounts must be at least 4 and below 2^32, not {}",
                self.accounts
            ));
        }
        let (hot, most) = (self.hot(), self.accounts - 2);
        if !(2..=most).contains(&hot) {
            return usage(format!(
                "--hot-accounts must be 2 to {most}, two less than --accounts, not {hot}"
            ));
        }
        if !(0.0..=1.0).contains(&self.hot_share) {
            return usage(format!("--hot-share must be 0 to 1, not {}", self.hot_share));
        }
        Ok(())
    }

    fn hot(&self) -> u64 {
        self.hot_accounts.unwrap_or(HOT.min(self.accounts / 2))
    }

    /// The workload's configuration.
    pub fn config(&self, seed: u64) -> smallbank::SmallBankConfig {
        smallbank::SmallBankConfig {
            accounts: self.accounts,
            hot_accounts: self.hot(),
            hot_share: self.hot_share,
            seed,
        }
    }
}
