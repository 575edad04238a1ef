//! The workloads on the engine: the same outcomes as on the oracle, and consistent, also after
//! recovery.

use crate::bank::{self, Bank};
use crate::oracle::Oracle;
use crate::smallbank::{self, SmallBank};
use crate::tatp::{self, Tatp};
use crate::tpcc::{self, Tpcc};
use crate::voter::{self, Voter};
use crate::ycsb::{self, Ycsb};
use crate::{Outcome, Reader, Workload, populate};
use fastrand::Rng;
use hyades::{
    Abort, Concurrency, Database, Protocol, RecordKind, Table, Ticket, Transaction, TypedTable,
};
use hyades_schemes::{ARRIVAL, PARTITIONED, TAURUS_2016, all_controls, all_protocols};
use std::fmt::Debug;
use std::path::Path;

const SCALE: tpcc::Scale = tpcc::Scale { warehouses: 2, items: 60, customers: 30 };

fn tpcc() -> Tpcc {
    Tpcc::new(tpcc::TpccConfig {
        scale: SCALE,
        clock: tpcc::Clock::Fixed(7),
        ..tpcc::TpccConfig::new(2)
    })
}

fn ycsb(standard: Option<ycsb::Standard>) -> Ycsb {
    let config = match standard {
        Some(mix) => ycsb::YcsbConfig::standard(mix, 2000),
        None => ycsb::YcsbConfig { rows: 2000, ..ycsb::YcsbConfig::default() },
    };
    Ycsb::new(config)
}

fn bank() -> Bank {
    let config =
        bank::BankConfig { accounts: 200, audit_share: 0.01, ..bank::BankConfig::default() };
    Bank::new(config)
}

/// Few hot customers, so that there are conflicts.
const CUSTOMERS: smallbank::SmallBankConfig =
    smallbank::SmallBankConfig { accounts: 200, hot_accounts: 4, hot_share: 0.25, seed: 1 };
const SUBSCRIBERS: tatp::TatpConfig = tatp::TatpConfig { subscribers: 300, seed: 1 };

fn smallbank() -> SmallBank {
    SmallBank::new(CUSTOMERS)
}

fn tatp() -> Tatp {
    Tatp::new(SUBSCRIBERS)
}

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
struct Form {
    protocol: Protocol,
    record: RecordKind,
    concurrency: Concurrency,
}

fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for concurrency in all_controls() {
        for protocol in [Protocol::Serial, Protocol::Taurus, TAURUS_2016] {
            for record in [RecordKind::Data, RecordKind::Command] {
                forms.push(Form { protocol, record, concurrency });
            }
        }
        for protocol in all_protocols().filter(|protocol| !protocol.takes_commands()) {
            forms.push(Form { protocol, record: RecordKind::Data, concurrency });
        }
        forms.push(Form { protocol: Protocol::None, record: RecordKind::Data, concurrency });
        let record = RecordKind::Command;
        forms.push(Form { protocol: ARRIVAL, record, concurrency });
    }
    forms.retain(|form| {
        let Form { protocol, record, concurrency } = *form;
        concurrency.runs_under(protocol)
            && (record == RecordKind::Data || concurrency.takes_commands_under(protocol))
    });
    forms
}

fn open<W: Workload>(workload: &mut W, form: Form, dir: &Path) -> Database {
    let streams = if form.protocol.has_one_stream() { 1 } else { 3 };
    let mut builder = Database::builder()
        .protocol(form.protocol)
        .record(form.record)
        .concurrency(form.concurrency)
        .streams(streams)
        .log_settings(|log| log.segment_bytes = 4 << 20);
    workload.declare(&mut builder);
    builder.open(dir).unwrap()
}

/// Runs `count` transactions on each of two workers, and waits for their acknowledgement.
fn run<W: Workload>(workload: &W, database: &Database, seed: u64, count: usize) {
    std::thread::scope(|scope| {
        for worker in 0..2 {
            scope.spawn(move || {
                let mut session = database.session().unwrap();
                let (mut rng, mut input) = (Rng::with_seed(seed + worker), W::Input::default());
                let mut tickets = Vec::new();
                for _ in 0..count {
                    workload.draw(&mut rng, worker as usize, &mut input);
                    let (outcome, ticket) = workload.run(&mut session, &input).unwrap();
                    if let Err(abort) = outcome {
                        assert!(workload.expects(abort), "{abort}");
                    }
                    tickets.push(ticket);
                }
                tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
            });
        }
    });
}

fn assert_consistent<W: Workload>(workload: &W, database: &Database, form: Form) {
    let violations = workload.check(database).unwrap().unwrap_or_default();
    assert_eq!(violations, [], "{form:?}");
}

/// Populates, runs, closes, recovers; checks the conditions and the digest on the way.
fn survives<W: Workload>(mut make: impl FnMut() -> W, count: usize) {
    for form in forms() {
        let dir = tempfile::tempdir().unwrap();
        let mut workload = make();
        let database = open(&mut workload, form, dir.path());
        populate(&workload, &database, 2, |_| {}).unwrap();
        assert_consistent(&workload, &database, form);
        let populated = database.digest();
        run(&workload, &database, 1, count);
        assert_consistent(&workload, &database, form);
        let digest = database.digest();
        assert_ne!(digest, populated);
        database.close().unwrap();
        if form.protocol == Protocol::None {
            continue;
        }
        let mut workload = make();
        let database = open(&mut workload, form, dir.path());
        assert_eq!(database.digest(), digest, "{form:?}");
        assert_consistent(&workload, &database, form);
        database.close().unwrap();
    }
}

#[test]
fn tpcc_is_consistent_and_survives() {
    survives(tpcc, 1500);
}

#[test]
fn ycsb_survives() {
    survives(|| ycsb(None), 2000);
}

#[test]
fn standard_mixes_survive() {
    for mix in [ycsb::Standard::A, ycsb::Standard::D, ycsb::Standard::E, ycsb::Standard::F] {
        survives(|| ycsb(Some(mix)), 500);
    }
}

#[test]
fn the_bank_keeps_its_sum_and_survives() {
    survives(bank, 2000);
}

#[test]
fn smallbank_keeps_its_money_and_survives() {
    survives(smallbank, 2000);
}

#[test]
fn tatp_keeps_its_conditions_and_survives() {
    survives(tatp, 2000);
}

/// Callers that vote often, so that the limit matters.
fn voter(limit: Option<i32>) -> Voter {
    Voter::new(voter::VoterConfig { limit, ..voter::VoterConfig::default() })
}

#[test]
fn votes_are_counted_and_survive() {
    survives(|| voter(Some(2)), 400);
    survives(|| voter(None), 200);
}

/// The same caller votes until a vote is refused, and once for a contestant that does not exist.
#[test]
fn a_caller_votes_as_often_as_allowed() {
    let form =
        Form { protocol: Protocol::None, record: RecordKind::Data, concurrency: PARTITIONED };
    for (limit, counted) in [(Some(2), 2), (None, 5)] {
        let mut workload = voter(limit);
        let dir = tempfile::tempdir().unwrap();
        let database = open(&mut workload, form, dir.path());
        populate(&workload, &database, 1, |_| {}).unwrap();
        let mut session = database.session().unwrap();
        let ballot = |contestant| voter::Ballot {
            phone: 6_175_551_234,
            contestant,
            limit: limit.unwrap_or(0),
        };
        let mut cast = |contestant| {
            outcome_of(workload.run(&mut session, &ballot(contestant))).unwrap();
            session.result::<voter::Counted>().unwrap()
        };
        assert_eq!(cast(7), voter::Counted::NoContestant);
        let votes = (0..5).filter(|_| cast(3) == voter::Counted::Yes).count();
        assert_eq!(votes, counted);
        assert_consistent(&workload, &database, form);
        // A count without a vote is noticed.
        let callers = TypedTable::<voter::Caller>::of(Table::nth(3));
        let caller = voter::Caller { phone: 6_175_559_999, votes: 1 };
        database.transact(|tx| Ok(callers.overwrite(tx, &caller)?)).unwrap();
        let violations = workload.check(&database).unwrap().unwrap();
        assert_eq!(violations.iter().map(|found| found.condition).collect::<Vec<_>>(), [3]);
    }
}

fn outcome_of(outcome: Outcome) -> Result<(), Abort> {
    let (outcome, ticket) = outcome.unwrap();
    Ticket::wait(ticket).unwrap();
    outcome
}

#[test]
fn tpcc_does_on_the_engine_what_it_does_on_the_oracle() {
    let mut schemas = Vec::new();
    let tables = tpcc::schema::TpccTables::declare(|schema| {
        schemas.push(schema);
        hyades::Table::nth(schemas.len() as u32 - 1)
    });
    let oracle = Oracle::new(schemas);
    let form = forms()[2];
    let dir = tempfile::tempdir().unwrap();
    let mut workload = tpcc();
    let database = open(&mut workload, form, dir.path());
    populate(&workload, &database, 1, |_| {}).unwrap();
    for part in tpcc::parts(&SCALE) {
        let call = tpcc::TpccPopulate { seed: 1, scale: SCALE, date_us: 1, part };
        oracle.transact(|tx| tpcc::populate(tx, &tables, &call)).unwrap();
    }
    let on_oracle = |tx: &Transaction<'_>, input: &tpcc::TpccInput| match input {
        tpcc::TpccInput::NewOrder(call) => tpcc::new_order(tx, &tables, call).map(drop),
        tpcc::TpccInput::Payment(call) => tpcc::payment(tx, &tables, call).map(drop),
        tpcc::TpccInput::OrderStatus(call) => tpcc::order_status(tx, &tables, call).map(drop),
        tpcc::TpccInput::Delivery(call) => tpcc::delivery(tx, &tables, call).map(drop),
        tpcc::TpccInput::StockLevel(call) => tpcc::stock_level(tx, &tables, call).map(drop),
    };
    let mut session = database.session().unwrap();
    let (mut rng, mut input) = (Rng::with_seed(3), tpcc::TpccInput::default());
    for _ in 0..1000 {
        workload.draw(&mut rng, 0, &mut input);
        let expected = oracle.transact(|tx| on_oracle(tx, &input));
        assert_eq!(outcome_of(workload.run(&mut session, &input)), expected, "{input:?}");
    }
    let on_engine = tpcc::Snapshot::read(&database, workload.tables(), &SCALE).unwrap();
    assert_eq!(on_engine, tpcc::Snapshot::read(&oracle, &tables, &SCALE).unwrap());
}

/// Runs transactions on the engine and on the oracle, and compares their outcomes.
fn same_outcomes<W: Workload>(
    workload: &W,
    database: &Database,
    on_oracle: impl Fn(&W::Input) -> Result<(), Abort>,
) where
    W::Input: Debug,
{
    populate(workload, database, 1, |_| {}).unwrap();
    let mut session = database.session().unwrap();
    let (mut rng, mut input) = (Rng::with_seed(3), W::Input::default());
    for _ in 0..5000 {
        workload.draw(&mut rng, 0, &mut input);
        let expected = on_oracle(&input);
        assert_eq!(outcome_of(workload.run(&mut session, &input)), expected, "{input:?}");
    }
}

#[test]
fn smallbank_does_on_the_engine_what_it_does_on_the_oracle() {
    let (oracle, tables) = smallbank::tests::populated_with(&CUSTOMERS);
    let dir = tempfile::tempdir().unwrap();
    let mut workload = smallbank();
    let database = open(&mut workload, forms()[2], dir.path());
    same_outcomes(&workload, &database, |input| {
        oracle.transact(|tx| smallbank::tests::run(tx, &tables, input))
    });
    fn balances(reader: &impl Reader, tables: &smallbank::SmallBankTables) -> Vec<i64> {
        let read = |tx: &Transaction<'_>| {
            let savings = tables.savings.scan(tx).rows()?.map(|row| row.balance);
            let checking = tables.checking.scan(tx).rows()?.map(|row| row.balance);
            Ok(savings.chain(checking).collect())
        };
        reader.read(read).unwrap()
    }
    assert_eq!(balances(&database, workload.tables()), balances(&oracle, &tables));
}

#[test]
fn tatp_does_on_the_engine_what_it_does_on_the_oracle() {
    let (oracle, tables) = tatp::tests::populated_with(&SUBSCRIBERS);
    let dir = tempfile::tempdir().unwrap();
    let mut workload = tatp();
    let database = open(&mut workload, forms()[2], dir.path());
    same_outcomes(&workload, &database, |input| {
        oracle.transact(|tx| tatp::tests::run(tx, &tables, input))
    });
    fn rows(reader: &impl Reader, tables: &tatp::schema::TatpTables) -> Vec<String> {
        let read = |tx: &Transaction<'_>| {
            let subscribers = tables.subscriber.scan(tx).rows()?.map(|row| format!("{row:?}"));
            let infos = tables.access_info.scan(tx).rows()?.map(|row| format!("{row:?}"));
            let facilities = tables.special_facility.scan(tx).rows()?;
            let facilities = facilities.map(|row| format!("{row:?}"));
            let forwardings = tables.call_forwarding.scan(tx).rows()?;
            let forwardings = forwardings.map(|row| format!("{row:?}"));
            Ok(subscribers.chain(infos).chain(facilities).chain(forwardings).collect())
        };
        reader.read(read).unwrap()
    }
    assert_eq!(rows(&database, workload.tables()), rows(&oracle, &tables));
}
