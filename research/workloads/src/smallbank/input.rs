//! Inputs: the mix, the hot customers and the amounts.

use super::*;
use fastrand::Rng;

/// The input of one transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SmallBankInput {
    /// 15 %.
    Balance(Balance),
    /// 15 %.
    DepositChecking(DepositChecking),
    /// 15 %.
    TransactSavings(TransactSavings),
    /// 15 %.
    Amalgamate(Amalgamate),
    /// 15 %.
    WriteCheck(WriteCheck),
    /// 25 %.
    SendPayment(SendPayment),
}

impl Default for SmallBankInput {
    fn default() -> Self {
        SmallBankInput::Balance(Balance::default())
    }
}

impl SmallBankInput {
    /// The names of the transactions.
    pub const KINDS: [&str; 6] = [
        "balance",
        "deposit-checking",
        "transact-savings",
        "amalgamate",
        "write-check",
        "send-payment",
    ];

    /// The index of the transaction in the names.
    pub fn kind(&self) -> usize {
        match self {
            SmallBankInput::Balance(_) => 0,
            SmallBankInput::DepositChecking(_) => 1,
            SmallBankInput::TransactSavings(_) => 2,
            SmallBankInput::Amalgamate(_) => 3,
            SmallBankInput::WriteCheck(_) => 4,
            SmallBankInput::SendPayment(_) => 5,
        }
    }
}

/// Amounts of all transactions, in cents: 1 to 50 dollars.
const AMOUNTS: RangeInclusive<i64> = 100..=5000;

/// Draws inputs.
#[derive(Clone, Copy, Debug)]
pub struct SmallBankInputs {
    config: SmallBankConfig,
}

impl SmallBankInputs {
    /// # Panics
    /// If there are fewer than two hot customers, or fewer than two customers that are not hot.
    pub fn new(config: SmallBankConfig) -> SmallBankInputs {
        let SmallBankConfig { accounts, hot_accounts: hot, .. } = config;
        assert!(
            hot >= 2 && accounts.saturating_sub(hot) >= 2,
            "a payment needs two customers: {hot} of {accounts} are hot"
        );
        SmallBankInputs { config }
    }

    /// The settings.
    pub fn config(&self) -> &SmallBankConfig {
        &self.config
    }

    /// Draws the next input. Two customers of one transaction differ, and are both hot or both not.
    pub fn draw(&self, rng: &mut Rng, into: &mut SmallBankInput) {
        let SmallBankConfig { accounts, hot_accounts: hot, hot_share, .. } = self.config;
        let (first, count) = if rng.f64() < hot_share { (0, hot) } else { (hot, accounts - hot) };
        let one = rng.u64(..count);
        let (customer, from) = (first + one, first + one);
        let other = rng.u64(..count - 1);
        let to = first + other + u64::from(other >= one);
        let amount = rng.i64(AMOUNTS);
        let teller = rng.u32(..TELLERS);
        *into = match rng.u32(..100) {
            0..15 => SmallBankInput::Balance(Balance { customer }),
            15..30 => SmallBankInput::DepositChecking(DepositChecking { customer, amount, teller }),
            30..45 => {
                let amount = if rng.bool() { amount } else { -amount };
                SmallBankInput::TransactSavings(TransactSavings { customer, amount, teller })
            }
            45..60 => SmallBankInput::Amalgamate(Amalgamate { from, to }),
            60..75 => SmallBankInput::WriteCheck(WriteCheck { customer, amount, teller }),
            _ => SmallBankInput::SendPayment(SendPayment { from, to, amount }),
        };
    }
}
