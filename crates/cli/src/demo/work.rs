//! The workloads of the demo: bank transfers and TPC-C in one database.

use super::RoundSettings;
use hyades::{Builder, Database, RecordKind};
use hyades_platform::device::{Device, FileDevice};
use hyades_workloads::bank::{self, Bank};
use hyades_workloads::tpcc::{self, Tpcc};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The size of the database.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Size {
    accounts: u64,
    warehouses: i32,
    items: i32,
    customers: i32,
}

impl Size {
    /// The default.
    pub const USUAL: Size = Size { accounts: 50_000, warehouses: 2, items: 10_000, customers: 300 };
    /// For tests.
    pub const SMALL: Size = Size { accounts: 1000, warehouses: 1, items: 200, customers: 30 };
}

impl Size {
    /// Customers of a district, times the warehouses. Each customer starts with one row of history.
    pub fn customers(&self) -> u64 {
        self.customers as u64 * self.warehouses as u64
    }
}

/// Both workloads.
pub struct Work {
    /// Transfers.
    pub bank: Bank,
    /// TPC-C.
    pub tpcc: Tpcc,
}

impl Work {
    /// Creates both workloads. Their tables are not declared yet.
    pub fn new(size: Size) -> Work {
        let config = bank::BankConfig { accounts: size.accounts, ..bank::BankConfig::default() };
        let scale = tpcc::Scale {
            warehouses: size.warehouses,
            items: size.items,
            customers: size.customers,
        };
        let tpcc = tpcc::TpccConfig { scale, ..tpcc::TpccConfig::new(size.warehouses) };
        Work { bank: Bank::new(config), tpcc: Tpcc::new(tpcc) }
    }

    /// Declares the tables and procedures of both.
    pub fn declare(&mut self, builder: &mut Builder) {
        use hyades_workloads::Workload;
        self.bank.declare(builder);
        self.tpcc.declare(builder);
    }

    /// A builder for the demo's database.
    pub fn builder(
        settings: &RoundSettings,
        record: RecordKind,
        device: Arc<dyn Device>,
    ) -> Builder {
        Database::builder()
            .streams(settings.streams)
            .record(record)
            .recovery_threads(settings.recovery_threads)
            .log_settings(|log| log.device = Some(device))
    }

    /// The device for files, with fsync.
    pub fn files() -> Arc<dyn Device> {
        FileDevice::shared()
    }
}
