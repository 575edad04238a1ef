//! The workloads of `hyades-lab bench`, with their options.

use super::smallbank::SmallBank;
use super::tatp::Tatp;
use super::voter::Voter;
use super::ycsb::Ycsb;
use clap::{Args, Subcommand};
use hyades_cli::failure::{Failure, usage};
use hyades_workloads::{bank, tpcc};
use serde::{Deserialize, Serialize};

/// The workload, with its own options.
#[derive(Subcommand, Clone, Debug, Serialize, Deserialize)]
pub enum Workload {
    /// Zipf-distributed accesses to rows of ten columns
    Ycsb(Ycsb),
    /// Order processing, all five transactions
    Tpcc(Tpcc),
    /// Transfers between accounts, each recorded as a row
    Bank(Bank),
    /// Savings and checking accounts, some of them hot
    Smallbank(SmallBank),
    /// Subscribers of a mobile network, mostly read
    Tatp(Tatp),
    /// Votes by telephone
    Voter(Voter),
}

/// Options of TPC-C.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct Tpcc {
    /// Warehouses, 1 to 30,000
    #[arg(long, default_value_t = 4)]
    warehouses: i32,
    /// Items, and as many stock rows of a warehouse: 100 to 100,000, the specification's number
    #[arg(long, default_value_t = 100_000,
        value_parser = clap::value_parser!(i32).range(100..=100_000))]
    items: i32,
    /// Customers of a district, and as many initial orders: 10 to 3,000, the specification's number
    #[arg(long, default_value_t = 3_000,
        value_parser = clap::value_parser!(i32).range(10..=3_000))]
    customers: i32,
    /// Transactions: full, payment-new-order, payment or new-order
    #[arg(long, default_value = "full",
        value_parser = ["full", "payment-new-order", "payment", "new-order"])]
    mix: String,
    /// Home warehouses of a worker's transactions: any, or one of its own (worker), as in DBx1000
    #[arg(long, default_value = "any", value_parser = ["any", "worker"])]
    home: String,
    /// Share of New-Orders and Payments that use a second warehouse, 0 to 1 [default: as specified,
    /// 1 % of an order's lines and 15 % of the payments]
    #[arg(long, value_name = "SHARE")]
    remote: Option<f64>,
}

/// Options of the bank.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct Bank {
    /// Accounts, at least 2
    #[arg(long, default_value_t = 100_000)]
    accounts: u64,
}

impl Workload {
    /// Checks the options of the workload.
    ///
    /// # Errors
    /// Wrong usage, in one sentence.
    pub fn check(&self) -> Result<(), Failure> {
        match self {
            Workload::Bank(bank) if !(2..1 << 32).contains(&bank.accounts) => usage(format!(
                "--accounts must be at least 2 and below 2^32, not {}",
                bank.accounts
            )),
            Workload::Tpcc(tpcc) if !(1..=30_000).contains(&tpcc.warehouses) => {
                usage(format!("--warehouses must be 1 to 30000, not {}", tpcc.warehouses))
            }
            Workload::Tpcc(Tpcc { remote: Some(share), .. }) if !(0.0..=1.0).contains(share) => {
                usage(format!("--remote must be 0 to 1, not {share}"))
            }
            Workload::Ycsb(ycsb) => ycsb.check(),
            Workload::Smallbank(smallbank) => smallbank.check(),
            Workload::Tatp(tatp) => tatp.check(),
            Workload::Voter(voter) => voter.check(),
            _ => Ok(()),
        }
    }

    /// The workload's name.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Ycsb(_) => "ycsb",
            Workload::Tpcc(_) => "tpcc",
            Workload::Bank(_) => "bank",
            Workload::Smallbank(_) => "smallbank",
            Workload::Tatp(_) => "tatp",
            Workload::Voter(_) => "voter",
        }
    }
}

impl Tpcc {
    /// The workload's configuration.
    pub fn config(&self, seed: u64) -> tpcc::TpccConfig {
        let known = "clap accepts only words that the workload knows";
        let (mix, home) = (self.mix.parse().expect(known), self.home.parse().expect(known));
        let remote = self.remote;
        let Tpcc { warehouses, items, customers, .. } = *self;
        let scale = tpcc::Scale { warehouses, items, customers };
        tpcc::TpccConfig { scale, mix, home, remote, seed, ..tpcc::TpccConfig::new(warehouses) }
    }
}

impl Bank {
    /// The workload's configuration.
    pub fn config(&self) -> bank::BankConfig {
        bank::BankConfig { accounts: self.accounts, ..bank::BankConfig::default() }
    }
}
