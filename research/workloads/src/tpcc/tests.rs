//! The transactions on the oracle, and the conditions on good and on broken data.

use super::consistency::check;
use super::schema::{Customer, District, Order, OrderLine, TpccTables, Warehouse};
use super::*;
use crate::oracle::Oracle;
use fastrand::Rng;
use std::collections::BTreeSet;

const SCALE: Scale = Scale { warehouses: 2, items: 60, customers: 30 };
const SEED: u64 = 42;

fn empty() -> (Oracle, TpccTables) {
    let mut schemas = Vec::new();
    let tables = TpccTables::declare(|schema| {
        schemas.push(schema);
        hyades::Table::nth(schemas.len() as u32 - 1)
    });
    (Oracle::new(schemas), tables)
}

fn load(
    oracle: &Oracle,
    tables: &TpccTables,
    seed: u64,
    parts: impl IntoIterator<Item = PopulationPart>,
) {
    for part in parts {
        let call = TpccPopulate { seed, scale: SCALE, date_us: 1, part };
        oracle.transact(|tx| populate(tx, tables, &call)).unwrap();
    }
}

fn populated() -> (Oracle, TpccTables) {
    let (oracle, tables) = empty();
    load(&oracle, &tables, SEED, parts(&SCALE));
    (oracle, tables)
}

fn run(tx: &Transaction<'_>, tables: &TpccTables, input: &TpccInput) -> Result<(), Abort> {
    match input {
        TpccInput::NewOrder(call) => new_order(tx, tables, call).map(drop),
        TpccInput::Payment(call) => payment(tx, tables, call).map(drop),
        TpccInput::OrderStatus(call) => order_status(tx, tables, call).map(drop),
        TpccInput::Delivery(call) => delivery(tx, tables, call).map(drop),
        TpccInput::StockLevel(call) => stock_level(tx, tables, call).map(drop),
    }
}

fn inputs(mix: Mix) -> TpccInputs {
    TpccInputs {
        scale: SCALE,
        mix,
        home: Home::Any,
        remote: None,
        clock: Clock::Fixed(7),
        constants: Constants::new(SEED),
    }
}

#[test]
fn a_worker_with_a_home_stays_there() {
    let (mut inputs, mut rng, mut input) =
        (inputs(Mix::Payment), Rng::with_seed(3), TpccInput::default());
    inputs.scale.warehouses = 3;
    let mut warehouses = |home, worker| -> BTreeSet<i32> {
        inputs.home = home;
        let draw = |_| {
            inputs.draw(&mut rng, worker, &mut input);
            let TpccInput::Payment(payment) = &input else { panic!("{input:?} is no Payment") };
            payment.w
        };
        (0..100).map(draw).collect()
    };
    assert_eq!(warehouses(Home::Any, 0), BTreeSet::from([1, 2, 3]));
    assert_eq!(warehouses(Home::Worker, 1), BTreeSet::from([2]));
    assert_eq!(warehouses(Home::Worker, 3), BTreeSet::from([1]));
}

/// Runs a mix and returns how many transactions were rolled back.
fn run_mix(oracle: &Oracle, tables: &TpccTables, mix: Mix, count: usize) -> usize {
    let (inputs, mut rng, mut input) = (inputs(mix), Rng::with_seed(9), TpccInput::default());
    let mut rolled_back = 0;
    for _ in 0..count {
        inputs.draw(&mut rng, 0, &mut input);
        match oracle.transact(|tx| run(tx, tables, &input)) {
            Ok(()) => {}
            Err(Abort::User(UNUSED_ITEM)) => rolled_back += 1,
            Err(other) => panic!("{other:?} by {input:?}"),
        }
    }
    rolled_back
}

fn violations(oracle: &Oracle, tables: &TpccTables) -> Vec<crate::Violation> {
    check(&Snapshot::read(oracle, tables, &SCALE).unwrap())
}

#[test]
fn population_follows_from_its_seed_in_any_order() {
    let (a, tables) = populated();
    let (b, _) = empty();
    let history_first = |part: &PopulationPart| matches!(part, PopulationPart::Customers(..));
    // History rows get their ids in loading order, so those parts keep their order.
    load(&b, &tables, SEED, parts(&SCALE).into_iter().filter(history_first));
    load(&b, &tables, SEED, parts(&SCALE).into_iter().rev().filter(|part| !history_first(part)));
    assert_eq!(a.digest(), b.digest());
    let (c, _) = empty();
    load(&c, &tables, SEED + 1, parts(&SCALE));
    assert_ne!(a.digest(), c.digest());
}

#[test]
fn population_has_the_specified_rows_and_is_consistent() {
    let (oracle, tables) = populated();
    assert_eq!(oracle.len(tables.item.untyped()), 60);
    assert_eq!(oracle.len(tables.warehouse.untyped()), 2);
    assert_eq!(oracle.len(tables.district.untyped()), 20);
    assert_eq!(oracle.len(tables.stock.untyped()), 120);
    assert_eq!(oracle.len(tables.customer.untyped()), 600);
    assert_eq!(oracle.len(tables.history.untyped()), 600);
    assert_eq!(oracle.len(tables.orders.untyped()), 600);
    assert_eq!(oracle.len(tables.new_order.untyped()), 180);
    assert_eq!(violations(&oracle, &tables), []);
    assert!(
        oracle
            .transact(|tx| {
                let call = TpccPopulate {
                    seed: SEED,
                    scale: SCALE,
                    date_us: 1,
                    part: PopulationPart::Items(1, 1),
                };
                populate(tx, &tables, &call)
            })
            .is_err()
    );
}

#[test]
fn parts_cover_every_row_of_a_full_population_once() {
    let scale = Scale::full(3);
    let mut rows = [0i32; 5];
    for part in parts(&scale) {
        match part {
            PopulationPart::Items(_, n) => rows[0] += n,
            PopulationPart::Warehouse(_) => rows[1] += 1,
            PopulationPart::Stock(_, _, n) => rows[2] += n,
            PopulationPart::Customers(_, _, _, n) => rows[3] += n,
            PopulationPart::Orders(_, _, _, n) => rows[4] += n,
        }
    }
    assert_eq!(rows, [100_000, 3, 300_000, 90_000, 90_000]);
}

#[test]
fn every_mix_keeps_all_conditions() {
    for mix in [Mix::Full, Mix::PaymentNewOrder, Mix::Payment, Mix::NewOrder] {
        let (oracle, tables) = populated();
        let before = oracle.digest();
        let rolled_back = run_mix(&oracle, &tables, mix, 2000);
        assert_ne!(before, oracle.digest());
        assert_eq!(rolled_back > 0, mix != Mix::Payment, "{mix:?}");
        assert_eq!(violations(&oracle, &tables), [], "{mix:?}");
    }
}

#[test]
fn a_rolled_back_order_leaves_nothing() {
    let (oracle, tables) = populated();
    let before = oracle.digest();
    let mut order = inputs(Mix::NewOrder).new_order(&mut Rng::with_seed(1), 1, 1);
    order.lines.last_mut().unwrap().item = SCALE.items + 1;
    let outcome = oracle.transact(|tx| new_order(tx, &tables, &order));
    assert_eq!(outcome, Err(Abort::User(UNUSED_ITEM)));
    assert_eq!(before, oracle.digest());
}

#[test]
fn an_order_takes_its_stock_and_adds_up() {
    let (oracle, tables) = populated();
    let line = |item, supply_w, quantity| Line { item, supply_w, quantity };
    let order = NewOrder {
        w: 1,
        d: 3,
        c: 5,
        entry_us: 99,
        lines: [line(7, 1, 4), line(8, 2, 10), line(7, 1, 1)].into_iter().collect(),
    };
    let stock_of = |w: i32, i: i32| {
        oracle
            .transact(|tx| {
                let row = tables.stock.get(tx, (w, i))?.unwrap();
                Ok([
                    row.s_quantity as i64,
                    row.s_ytd,
                    row.s_order_cnt as i64,
                    row.s_remote_cnt as i64,
                ])
            })
            .unwrap()
    };
    let before = (stock_of(1, 7), stock_of(2, 8));
    let result = oracle.transact(|tx| new_order(tx, &tables, &order)).unwrap();
    assert_eq!(result.order, SCALE.customers + 1);
    let after = (stock_of(1, 7), stock_of(2, 8));
    assert_eq!((before.0[0] - after.0[0]).rem_euclid(91), 5);
    assert_eq!((before.1[0] - after.1[0]).rem_euclid(91), 10);
    assert!(after.0[0] >= 0 && after.1[0] >= 0);
    assert_eq!(after.0[1..], [5, 2, 0]);
    assert_eq!(after.1[1..], [10, 1, 1]);

    oracle
        .transact(|tx| {
            let price = |i: i32| tables.item.get(tx, i).map(|r| r.unwrap().i_price);
            let sum = price(7)? * 5 + price(8)? * 10;
            let tax = tables.warehouse.get(tx, 1)?.unwrap().w_tax
                + tables.district.get(tx, (1, 3))?.unwrap().d_tax;
            let discount = tables.customer.get(tx, (1, 3, 5))?.unwrap().c_discount;
            let exact = sum as f64 * (1.0 - discount as f64 / 1e4) * (1.0 + tax as f64 / 1e4);
            assert!((exact - result.total_cents as f64).abs() <= 1.0);
            let row = tables.orders.get(tx, (1, 3, result.order))?.unwrap();
            assert_eq!(row.o_all_local, 0);
            assert_eq!((row.o_ol_cnt, row.o_carrier_id), (3, None));
            let line = tables.order_line.get(tx, (1, 3, result.order, 2))?.unwrap();
            let info = tables.stock.get(tx, (2, 8))?.unwrap().s_dist_03;
            assert_eq!(line.ol_dist_info, info);
            assert_eq!(line.ol_amount, price(8)? * 10);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_payment_by_name_takes_the_middle_customer() {
    let (oracle, tables) = populated();
    // Give customers 1, 4, 9 and 12 of a district the same last name and known first names.
    oracle
        .transact(|tx| {
            for (c, first) in [(1, "Delta"), (4, "Alpha"), (9, "Charlie"), (12, "Bravo")] {
                let name = last_name(999);
                let sets = [Customer::C_LAST.set(name.as_str()), Customer::C_FIRST.set(first)];
                assert!(tables.customer.update(tx, (1, 1, c), &sets)?);
            }
            // The second of four, counted by first name.
            let found = CustomerSelector::LastName(999).find(tx, &tables, 1, 1)?;
            assert_eq!(found, 12);
            assert!(tables.customer.delete(tx, (1, 1, 4))?);
            // The second of three.
            let found = CustomerSelector::LastName(999).find(tx, &tables, 1, 1)?;
            assert_eq!(found, 9);
            Err::<(), _>(Abort::User(0))
        })
        .unwrap_err();
}

#[test]
fn a_payment_of_bad_credit_is_written_before_what_stood_there() {
    let (oracle, tables) = populated();
    let call = Payment {
        w: 2,
        d: 4,
        c_w: 1,
        c_d: 3,
        who: CustomerSelector::Id(6),
        amount: 12_345,
        date_us: 5,
    };
    oracle
        .transact(|tx| {
            let sets = [Customer::C_CREDIT.set(b"BC"), Customer::C_DATA.set("what stood there")];
            tables.customer.update(tx, (1, 3, 6), &sets)?;
            payment(tx, &tables, &call)?;
            let row = tables.customer.get(tx, (1, 3, 6))?.unwrap();
            assert_eq!(row.c_data, "6 3 1 4 2 12345 what stood there");
            assert_eq!(row.c_balance, -1000 - 12_345);
            assert_eq!(row.c_payment_cnt, 2);
            tables.customer.update(tx, (1, 3, 6), &[Customer::C_DATA.set(&*"x".repeat(500))])?;
            payment(tx, &tables, &call)?;
            let row = tables.customer.get(tx, (1, 3, 6))?.unwrap();
            assert_eq!(row.c_data.len(), 500);
            Ok(())
        })
        .unwrap();
    assert_eq!(violations(&oracle, &tables), []);
}

#[test]
fn delivery_takes_the_oldest_order_until_none_is_left() {
    let (oracle, tables) = populated();
    let call = Delivery { w: 1, carrier: 3, delivery_us: 77 };
    for round in 0..10 {
        let delivered = oracle.transact(|tx| delivery(tx, &tables, &call)).unwrap();
        assert_eq!(delivered, if round < 9 { 10 } else { 0 });
        let oldest = SCALE.delivered() + 1 + round.min(8);
        oracle
            .transact(|tx| {
                let row = tables.orders.get(tx, (1, 5, oldest))?.unwrap();
                assert_eq!(row.o_carrier_id, Some(3));
                assert!(tables.new_order.get(tx, (1, 5, oldest))?.is_none());
                let line = tables.order_line.get(tx, (1, 5, oldest, 1))?.unwrap();
                assert_eq!(line.ol_delivery_d, Some(77));
                Ok(())
            })
            .unwrap();
        assert_eq!(violations(&oracle, &tables), []);
    }
}

#[test]
fn questions_give_the_last_order_and_the_short_items() {
    let (oracle, tables) = populated();
    oracle
        .transact(|tx| {
            let mut order = inputs(Mix::NewOrder).new_order(&mut Rng::with_seed(2), 2, 9);
            order.lines.iter_mut().for_each(|line| line.item = line.item.min(SCALE.items));
            order.c = 11;
            let first = new_order(tx, &tables, &order)?.order;
            let placed = new_order(tx, &tables, &order)?;
            assert_eq!(placed.order, first + 1);
            let call = OrderStatus { w: 2, d: 9, who: CustomerSelector::Id(11) };
            let status = order_status(tx, &tables, &call)?;
            assert_eq!((status.order, status.carrier), (placed.order, None));
            assert_eq!(status.lines as usize, order.lines.len());

            // All stock is short below 200, and none below 0: the count is then that of the
            // different items in the last 20 orders.
            let call = StockLevel { w: 2, d: 9, threshold: 200 };
            let mut items = std::collections::BTreeSet::new();
            for id in placed.order - 19..=placed.order {
                let lines = tables.order_line.scan(tx).prefix((2, 9, id)).rows()?;
                items.extend(lines.map(|line| line.ol_i_id));
            }
            assert_eq!(stock_level(tx, &tables, &call)? as usize, items.len());
            assert_eq!(stock_level(tx, &tables, &StockLevel { threshold: 0, ..call })?, 0);
            Ok(())
        })
        .unwrap();
}

/// Breaks some data, and returns the numbers of the conditions that then fail.
fn broken(
    oracle: &Oracle,
    tables: &TpccTables,
    break_it: impl Fn(&Transaction<'_>, &TpccTables) -> Result<bool, Abort>,
) -> Vec<u8> {
    assert!(oracle.transact(|tx| break_it(tx, tables)).unwrap());
    let found = violations(oracle, tables);
    assert!(found.iter().all(|violation| violation.text.contains("warehouse 1")), "{found:?}");
    let mut numbers: Vec<u8> = found.iter().map(|violation| violation.condition).collect();
    numbers.dedup();
    numbers
}

#[test]
fn each_condition_fails_on_broken_data() {
    type Break = fn(&Transaction<'_>, &TpccTables) -> Result<bool, Abort>;
    let delivered = (1, 2, 3);
    assert!(delivered.2 <= SCALE.delivered());
    let cases: [(&[u8], Break); 14] = [
        (&[1, 8], |tx, t| t.warehouse.update(tx, 1, &[Warehouse::W_YTD.set(5i64)])),
        (&[1, 9], |tx, t| t.district.update(tx, (1, 2), &[District::D_YTD.set(5i64)])),
        (&[2], |tx, t| t.district.update(tx, (1, 2), &[District::D_NEXT_O_ID.set(30)])),
        (&[2, 4, 11], |tx, t| t.orders.delete(tx, (1, 2, 30))),
        (&[2, 5, 11], |tx, t| t.new_order.delete(tx, (1, 2, 30))),
        (&[3, 5, 11], |tx, t| t.new_order.delete(tx, (1, 2, 28))),
        (&[4, 6], |tx, t| t.order_line.delete(tx, (1, 2, 28, 1))),
        (&[4, 6], |tx, t| t.orders.update(tx, (1, 2, 28), &[Order::O_OL_CNT.set(99)])),
        (&[5, 7], |tx, t| t.orders.update(tx, (1, 2, 28), &[Order::O_CARRIER_ID.set(4)])),
        (&[5, 7], |tx, t| t.orders.update(tx, (1, 2, 3), &[Order::O_CARRIER_ID.set(None)])),
        (&[7], |tx, t| {
            let date = [OrderLine::OL_DELIVERY_D.set(None)];
            t.order_line.update(tx, (1, 2, 3, 1), &date)
        }),
        (&[10, 12], |tx, t| t.customer.update(tx, (1, 2, 3), &[Customer::C_BALANCE.set(-999i64)])),
        (&[11], |tx, t| t.customer.update(tx, (1, 2, 3), &[Customer::C_DELIVERY_CNT.set(1)])),
        (&[12], |tx, t| t.customer.update(tx, (1, 2, 3), &[Customer::C_YTD_PAYMENT.set(1001i64)])),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for (at, (expected, break_it)) in cases.into_iter().enumerate() {
        let (oracle, tables) = populated();
        assert_eq!(broken(&oracle, &tables, break_it), expected, "case {at}");
        seen.extend(expected.iter().copied());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
}

#[test]
fn a_lost_payment_and_a_line_without_order_are_noticed() {
    let (oracle, tables) = populated();
    run_mix(&oracle, &tables, Mix::Full, 300);
    let last = oracle.len(tables.history.untyped()) as u64;
    assert!(oracle.transact(|tx| tables.history.delete(tx, last)).unwrap());
    let found: Vec<u8> = violations(&oracle, &tables).iter().map(|v| v.condition).collect();
    assert_eq!(found, [8, 9, 10]);

    let (oracle, tables) = populated();
    oracle
        .transact(|tx| {
            let line = OrderLine {
                ol_o_id: 9999,
                ol_d_id: 1,
                ol_w_id: 1,
                ol_number: 1,
                ol_i_id: 1,
                ol_supply_w_id: 1,
                ol_delivery_d: None,
                ol_quantity: 1,
                ol_amount: 1,
                ol_dist_info: &[b'x'; 24],
            };
            tables.order_line.insert(tx, &line)
        })
        .unwrap();
    let found: Vec<u8> = violations(&oracle, &tables).iter().map(|v| v.condition).collect();
    assert_eq!(found, [4]);
}

#[test]
fn arguments_are_small() {
    let order = inputs(Mix::NewOrder);
    let mut rng = Rng::with_seed(4);
    let mut bytes = 0;
    for _ in 0..1000 {
        bytes += postcard::to_stdvec(&order.new_order(&mut rng, 1, 1)).unwrap().len();
    }
    assert!(bytes / 1000 < 70, "{} bytes an order", bytes / 1000);
}
