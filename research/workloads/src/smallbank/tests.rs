use super::*;
use crate::oracle::Oracle;
use fastrand::Rng;

const CONFIG: SmallBankConfig =
    SmallBankConfig { accounts: 60, hot_accounts: 5, hot_share: 0.5, seed: 3 };

/// The oracle with the population of these settings.
pub(crate) fn populated_with(config: &SmallBankConfig) -> (Oracle, SmallBankTables) {
    let mut schemas = Vec::new();
    let tables = SmallBankTables::declare(|schema| {
        schemas.push(schema);
        Table::nth(schemas.len() as u32 - 1)
    });
    let oracle = Oracle::new(schemas);
    for part in parts(config) {
        oracle.transact(|tx| populate(tx, &tables, &part)).unwrap();
    }
    (oracle, tables)
}

fn populated() -> (Oracle, SmallBankTables) {
    populated_with(&CONFIG)
}

/// Runs the transaction of an input.
pub(crate) fn run(
    tx: &Transaction<'_>,
    tables: &SmallBankTables,
    input: &SmallBankInput,
) -> Result<(), Abort> {
    match input {
        SmallBankInput::Balance(call) => balance(tx, tables, call).map(drop),
        SmallBankInput::DepositChecking(call) => deposit_checking(tx, tables, call),
        SmallBankInput::TransactSavings(call) => transact_savings(tx, tables, call),
        SmallBankInput::Amalgamate(call) => amalgamate(tx, tables, call),
        SmallBankInput::WriteCheck(call) => write_check(tx, tables, call),
        SmallBankInput::SendPayment(call) => send_payment(tx, tables, call),
    }
}

/// Sets a customer's balances.
fn set(oracle: &Oracle, tables: &SmallBankTables, customer: u64, [savings, checking]: [i64; 2]) {
    oracle
        .transact(|tx| {
            tables.savings.update(tx, customer, &[Savings::BALANCE.set(savings)])?;
            tables.checking.update(tx, customer, &[Checking::BALANCE.set(checking)])
        })
        .unwrap();
}

/// Reads a customer's balances.
fn balances(oracle: &Oracle, tables: &SmallBankTables, customer: u64) -> [i64; 2] {
    let read = |tx: &Transaction<'_>| {
        let savings = tables.savings.require(tx, customer)?.balance;
        Ok([savings, tables.checking.require(tx, customer)?.balance])
    };
    oracle.transact(read).unwrap()
}

fn broken(oracle: &Oracle, tables: &SmallBankTables) -> Vec<u8> {
    let found = check(oracle, tables, &CONFIG).unwrap();
    found.iter().map(|violation| violation.condition).collect()
}

#[test]
fn the_mix_keeps_the_conditions_and_savings_run_short() {
    let (oracle, tables) = populated();
    assert_eq!(check(&oracle, &tables, &CONFIG).unwrap(), []);
    let (inputs, mut rng) = (SmallBankInputs::new(CONFIG), Rng::with_seed(2));
    let (mut input, mut kinds, mut short) = (SmallBankInput::default(), [0; 6], [0; 6]);
    for _ in 0..20_000 {
        inputs.draw(&mut rng, &mut input);
        kinds[input.kind()] += 1;
        match oracle.transact(|tx| run(tx, &tables, &input)) {
            Ok(()) => {}
            Err(Abort::User(INSUFFICIENT_FUNDS)) => short[input.kind()] += 1,
            Err(other) => panic!("{other:?} by {input:?}"),
        }
    }
    assert_eq!(check(&oracle, &tables, &CONFIG).unwrap(), []);
    for (count, percent) in kinds.iter().zip([15, 15, 15, 15, 15, 25]) {
        assert!((count - percent * 200i32).abs() < 300, "{kinds:?}");
    }
    let may_run_short = short.map(|count| count > 0);
    assert_eq!(may_run_short, [false, false, true, false, false, true], "{short:?}");
}

#[test]
fn customers_of_a_transaction_differ_and_a_share_is_hot() {
    let (inputs, mut rng) = (SmallBankInputs::new(CONFIG), Rng::with_seed(5));
    let (mut input, mut seen, mut hot) = (SmallBankInput::default(), vec![false; 60], 0);
    for _ in 0..10_000 {
        inputs.draw(&mut rng, &mut input);
        let [one, two] = match input {
            SmallBankInput::Balance(call) => [call.customer; 2],
            SmallBankInput::DepositChecking(call) => [call.customer; 2],
            SmallBankInput::TransactSavings(call) => [call.customer; 2],
            SmallBankInput::WriteCheck(call) => [call.customer; 2],
            SmallBankInput::Amalgamate(Amalgamate { from, to })
            | SmallBankInput::SendPayment(SendPayment { from, to, .. }) => {
                assert_ne!(from, to);
                [from, to]
            }
        };
        assert_eq!(one < 5, two < 5, "{input:?}");
        seen[one as usize] = true;
        seen[two as usize] = true;
        hot += usize::from(one < 5);
    }
    assert!(seen.iter().all(|seen| *seen), "{seen:?}");
    assert!((4500..5500).contains(&hot), "{hot}");
}

#[test]
fn each_transaction_does_what_the_paper_says() {
    let (oracle, tables) = populated();
    let run = |input: SmallBankInput| oracle.transact(|tx| run(tx, &tables, &input));
    let short = Err(Abort::User(INSUFFICIENT_FUNDS));
    let (customer, teller) = (7, 2);

    set(&oracle, &tables, 7, [50, 30]);
    let call = Balance { customer };
    assert_eq!(oracle.transact(|tx| balance(tx, &tables, &call)), Ok(80));
    let deposit = |amount| DepositChecking { customer, amount, teller };
    run(SmallBankInput::DepositChecking(deposit(5))).unwrap();
    assert_eq!(balances(&oracle, &tables, 7), [50, 35]);
    let negative = run(SmallBankInput::DepositChecking(deposit(-5)));
    assert_eq!(negative, Err(Abort::User(NEGATIVE_DEPOSIT)));

    let savings =
        |amount| SmallBankInput::TransactSavings(TransactSavings { customer, amount, teller });
    assert_eq!(run(savings(-51)), short);
    assert_eq!(run(savings(-50)), Ok(()));
    assert_eq!(run(savings(10)), Ok(()));
    assert_eq!(balances(&oracle, &tables, 7), [10, 35]);

    // A check of all there is costs no penalty; a check of a cent more does.
    let check = |amount| SmallBankInput::WriteCheck(WriteCheck { customer, amount, teller });
    run(check(45)).unwrap();
    assert_eq!(balances(&oracle, &tables, 7), [10, -10]);
    run(check(1)).unwrap();
    assert_eq!(balances(&oracle, &tables, 7), [10, -11 - OVERDRAFT_PENALTY]);

    set(&oracle, &tables, 7, [50, 30]);
    set(&oracle, &tables, 8, [1, 2]);
    let pay = |amount| SmallBankInput::SendPayment(SendPayment { from: 7, to: 8, amount });
    assert_eq!(run(pay(31)), short);
    assert_eq!(run(pay(30)), Ok(()));
    assert_eq!(balances(&oracle, &tables, 7), [50, 0]);
    assert_eq!(balances(&oracle, &tables, 8), [1, 32]);
    run(SmallBankInput::Amalgamate(Amalgamate { from: 7, to: 8 })).unwrap();
    assert_eq!(balances(&oracle, &tables, 7), [0, 0]);
    assert_eq!(balances(&oracle, &tables, 8), [1, 82]);
}

#[test]
fn a_change_that_is_lost_or_doubled_is_noticed() {
    let deposit = DepositChecking { customer: 7, amount: 40, teller: 2 };
    for times in [0, 2] {
        let (oracle, tables) = populated();
        let [savings, checking] = balances(&oracle, &tables, 7);
        oracle.transact(|tx| deposit_checking(tx, &tables, &deposit)).unwrap();
        assert!(broken(&oracle, &tables).is_empty());
        set(&oracle, &tables, 7, [savings, checking + times * 40]);
        assert_eq!(broken(&oracle, &tables), [3]);
    }
    let (oracle, tables) = populated();
    let [savings, checking] = balances(&oracle, &tables, 7);
    set(&oracle, &tables, 7, [-1, checking + savings + 1]);
    assert_eq!(broken(&oracle, &tables), [2]);
}

#[test]
fn a_row_that_is_missing_or_too_many_is_noticed() {
    let (oracle, tables) = populated();
    oracle.transact(|tx| tables.tellers.delete(tx, 9)).unwrap();
    assert_eq!(broken(&oracle, &tables), [1]);
    let (oracle, tables) = populated();
    oracle.transact(|tx| tables.savings.insert(tx, &Savings { customer: 60, balance: 0 })).unwrap();
    assert_eq!(broken(&oracle, &tables), [1]);
    let (oracle, tables) = populated();
    let (first, last) = (customer_name(0), customer_name(59));
    assert_eq!(last.as_str(), "customer000000000059");
    oracle
        .transact(|tx| {
            tables.accounts.delete(tx, first.as_str())?;
            tables.accounts.update(tx, last.as_str(), &[NamedAccount::CUSTOMER.set(0u64)])
        })
        .unwrap();
    assert_eq!(broken(&oracle, &tables), [1]);
}

#[test]
#[should_panic(expected = "two customers")]
fn there_must_be_two_customers_that_are_not_hot() {
    SmallBankInputs::new(SmallBankConfig { accounts: 6, ..CONFIG });
}
