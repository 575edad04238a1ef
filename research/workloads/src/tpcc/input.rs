//! Terminal inputs (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1 and 5.2.3), drawn outside the
//! procedures.

use super::random::{Constants, non_uniform};
use super::schema::DISTRICTS;
use super::{CustomerSelector, Delivery, Line, NewOrder, OrderStatus, Payment, Scale, StockLevel};
use fastrand::Rng;
use std::time::{SystemTime, UNIX_EPOCH};

/// The transactions that run, and their shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mix {
    /// New-Order 45 %, Payment 43 %, Order-Status, Delivery and Stock-Level 4 % each.
    #[default]
    Full,
    /// New-Order and Payment, half and half.
    PaymentNewOrder,
    /// Payment alone.
    Payment,
    /// New-Order alone.
    NewOrder,
}

impl Mix {
    /// Percentages of New-Order, Payment, Order-Status, Delivery, Stock-Level.
    pub const fn percentages(self) -> [u32; 5] {
        match self {
            Mix::Full => [45, 43, 4, 4, 4],
            Mix::PaymentNewOrder => [50, 50, 0, 0, 0],
            Mix::Payment => [0, 100, 0, 0, 0],
            Mix::NewOrder => [100, 0, 0, 0, 0],
        }
    }
}

impl std::str::FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        match text {
            "full" => Ok(Mix::Full),
            "payment-new-order" => Ok(Mix::PaymentNewOrder),
            "payment" => Ok(Mix::Payment),
            "new-order" => Ok(Mix::NewOrder),
            _ => Err(format!(
                "{text:?} is no TPC-C mix: choose full, payment-new-order, payment or new-order"
            )),
        }
    }
}

/// The warehouse of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Home {
    /// Each transaction draws its warehouse anew, so all warehouses are in use.
    #[default]
    Any,
    /// Each worker has one warehouse: its number modulo the number of warehouses.
    Worker,
}

impl std::str::FromStr for Home {
    type Err = String;

    fn from_str(text: &str) -> Result<Home, String> {
        match text {
            "any" => Ok(Home::Any),
            "worker" => Ok(Home::Worker),
            _ => Err(format!("{text:?} is no home of terminals: choose any or worker")),
        }
    }
}

/// The source of dates in inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Clock {
    /// The machine's clock.
    #[default]
    Wall,
    /// Always this many microseconds since 1970, so that inputs depend on the seed only.
    Fixed(i64),
}

impl Clock {
    fn now_us(self) -> i64 {
        match self {
            Clock::Fixed(us) => us,
            Clock::Wall => {
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64)
            }
        }
    }
}

/// The input of one transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum TpccInput {
    /// New-Order.
    NewOrder(NewOrder),
    /// Payment.
    Payment(Payment),
    /// Order-Status.
    OrderStatus(OrderStatus),
    /// Delivery.
    Delivery(Delivery),
    /// Stock-Level.
    StockLevel(StockLevel),
}

impl Default for TpccInput {
    fn default() -> Self {
        TpccInput::StockLevel(StockLevel { w: 1, d: 1, threshold: 10 })
    }
}

impl TpccInput {
    /// The kind of transaction: 0 New-Order, 1 Payment, 2 Order-Status, 3 Delivery, 4 Stock-Level.
    pub fn kind(&self) -> usize {
        match self {
            TpccInput::NewOrder(_) => 0,
            TpccInput::Payment(_) => 1,
            TpccInput::OrderStatus(_) => 2,
            TpccInput::Delivery(_) => 3,
            TpccInput::StockLevel(_) => 4,
        }
    }
}

/// Draws inputs.
#[derive(Clone, Copy, Debug)]
pub struct TpccInputs {
    /// The number of rows.
    pub scale: Scale,
    /// The mix of transactions.
    pub mix: Mix,
    /// The choice of warehouses.
    pub home: Home,
    /// The share of New-Orders and Payments that use a second warehouse, if not as specified.
    pub remote: Option<f64>,
    /// The source of dates.
    pub clock: Clock,
    /// The constants of NURand; they must be the constants of the population's seed.
    pub constants: Constants,
}

impl TpccInputs {
    /// Draws the next input of a worker.
    pub fn draw(&self, rng: &mut Rng, worker: usize, into: &mut TpccInput) {
        let w = match self.home {
            Home::Any => rng.i32(1..=self.scale.warehouses),
            Home::Worker => (worker % self.scale.warehouses as usize) as i32 + 1,
        };
        let d = rng.i32(1..=DISTRICTS);
        let mut percent = rng.u32(..100);
        let mut kind = 0;
        for share in self.mix.percentages() {
            if percent < share {
                break;
            }
            percent -= share;
            kind += 1;
        }
        *into = match kind {
            0 => TpccInput::NewOrder(self.new_order(rng, w, d)),
            1 => TpccInput::Payment(self.payment(rng, w, d)),
            2 => TpccInput::OrderStatus(OrderStatus { w, d, who: self.who(rng) }),
            3 => {
                let delivery_us = self.clock.now_us();
                TpccInput::Delivery(Delivery { w, carrier: rng.i32(1..=10), delivery_us })
            }
            _ => TpccInput::StockLevel(StockLevel { w, d, threshold: rng.i32(10..=20) }),
        };
    }

    /// Draws a New-Order (clause 2.4.1). In 1 % of the orders the last item does not exist.
    pub fn new_order(&self, rng: &mut Rng, w: i32, d: i32) -> NewOrder {
        let c = self.customer(rng);
        let count = rng.i32(5..=15);
        let rolled_back = rng.u32(..100) == 0;
        // The line from another warehouse, where the share is given.
        let remote = self.remote.map(|share| (rng.f64() < share).then(|| rng.i32(0..count)));
        let mut order =
            NewOrder { w, d, c, entry_us: self.clock.now_us(), lines: Default::default() };
        for nth in 0..count {
            let is_remote = match remote {
                None => rng.u32(..100) == 0,
                Some(line) => line == Some(nth),
            };
            order.lines.push(Line {
                item: non_uniform(rng, 8191, self.constants.item, 1, self.scale.items),
                supply_w: if is_remote { self.other_warehouse(rng, w) } else { w },
                quantity: rng.i32(1..=10),
            });
        }
        if rolled_back {
            order.lines[count as usize - 1].item = self.scale.items + 1;
        }
        order
    }

    /// Draws a Payment (clause 2.5.1). In 15 % of the payments the customer belongs to another
    /// warehouse, if there is a second one.
    pub fn payment(&self, rng: &mut Rng, w: i32, d: i32) -> Payment {
        let is_home = match self.remote {
            None => rng.u32(..100) < 85,
            Some(share) => rng.f64() >= share,
        };
        let (c_w, c_d) =
            if is_home { (w, d) } else { (self.other_warehouse(rng, w), rng.i32(1..=DISTRICTS)) };
        let who = self.who(rng);
        let amount = rng.i64(100..=500_000);
        Payment { w, d, c_w, c_d, who, amount, date_us: self.clock.now_us() }
    }

    /// Draws a customer: 60 % by last name, 40 % by number.
    fn who(&self, rng: &mut Rng) -> CustomerSelector {
        if rng.u32(..100) < 60 {
            let names = self.scale.last_names();
            CustomerSelector::LastName(
                non_uniform(rng, 255, self.constants.last_run, 0, names - 1) as u16
            )
        } else {
            CustomerSelector::Id(self.customer(rng))
        }
    }

    fn customer(&self, rng: &mut Rng) -> i32 {
        non_uniform(rng, 1023, self.constants.customer, 1, self.scale.customers)
    }

    /// Any warehouse but `w`, unless `w` is the only one.
    fn other_warehouse(&self, rng: &mut Rng, w: i32) -> i32 {
        if self.scale.warehouses == 1 {
            return w;
        }
        let other = rng.i32(1..self.scale.warehouses);
        other + (other >= w) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn inputs(mix: Mix) -> TpccInputs {
        TpccInputs {
            scale: Scale::full(4),
            mix,
            home: Home::Any,
            remote: None,
            clock: Clock::Fixed(1),
            constants: Constants::new(1),
        }
    }

    fn draws(mix: Mix, count: usize) -> Vec<TpccInput> {
        let (inputs, mut rng) = (inputs(mix), Rng::with_seed(3));
        let mut drawn = vec![TpccInput::default(); count];
        drawn.iter_mut().for_each(|into| inputs.draw(&mut rng, 0, into));
        drawn
    }

    fn share(drawn: &[TpccInput], is: impl Fn(&TpccInput) -> bool) -> f64 {
        drawn.iter().filter(|input| is(input)).count() as f64 / drawn.len() as f64
    }

    #[test]
    fn shares_are_those_of_the_mix() {
        for mix in [Mix::Full, Mix::PaymentNewOrder, Mix::Payment, Mix::NewOrder] {
            let drawn = draws(mix, DRAWS);
            for (kind, percent) in mix.percentages().into_iter().enumerate() {
                let share = share(&drawn, |input| input.kind() == kind);
                assert!((share - percent as f64 / 100.0).abs() < 0.005, "{mix:?} {kind} {share}");
            }
        }
    }

    #[test]
    fn orders_are_remote_and_rolled_back_as_often_as_specified() {
        let drawn = draws(Mix::NewOrder, DRAWS);
        let orders = || {
            drawn.iter().map(|input| match input {
                TpccInput::NewOrder(order) => order,
                _ => unreachable!("only orders were asked for"),
            })
        };
        let lines: usize = orders().map(|order| order.lines.len()).sum();
        assert!((lines as f64 / DRAWS as f64 - 10.0).abs() < 0.05);
        let remote: usize =
            orders().map(|o| o.lines.iter().filter(|l| l.supply_w != o.w).count()).sum();
        assert!((remote as f64 / lines as f64 - 0.01).abs() < 0.001);
        let rolled_back = orders().filter(|o| o.lines.last().unwrap().item > 100_000).count();
        assert!((rolled_back as f64 / DRAWS as f64 - 0.01).abs() < 0.002);
        for order in orders() {
            assert!((5..=15).contains(&order.lines.len()) && (1..=4).contains(&order.w));
            assert!((1..=3000).contains(&order.c) && (1..=10).contains(&order.d));
            let last = order.lines.len() - 1;
            assert!(order.lines[..last].iter().all(|l| (1..=100_000).contains(&l.item)));
            assert!(order.lines.iter().all(|l| (1..=10).contains(&l.quantity)));
            assert!(order.lines.iter().all(|l| (1..=4).contains(&l.supply_w)));
        }
    }

    #[test]
    fn payments_are_remote_and_by_name_as_often_as_specified() {
        let drawn = draws(Mix::Payment, DRAWS);
        let portion = |is: fn(&Payment) -> bool| {
            share(&drawn, |input| matches!(input, TpccInput::Payment(payment) if is(payment)))
        };
        assert!((portion(|p| p.c_w != p.w) - 0.15).abs() < 0.005);
        assert!((portion(|p| matches!(p.who, CustomerSelector::LastName(_))) - 0.6).abs() < 0.005);
        assert!(
            portion(|p| (100..=500_000).contains(&p.amount) && (1..=4).contains(&p.c_w)) == 1.0
        );
        assert!(portion(|p| matches!(p.who, CustomerSelector::LastName(n) if n > 999)) == 0.0);
    }

    #[test]
    fn a_given_share_uses_a_second_warehouse() {
        for remote in [0.0, 0.3, 1.0] {
            let inputs = TpccInputs { remote: Some(remote), ..inputs(Mix::PaymentNewOrder) };
            let (mut rng, mut input, mut count) = (Rng::with_seed(4), TpccInput::default(), 0);
            for _ in 0..20_000 {
                inputs.draw(&mut rng, 0, &mut input);
                count += match &input {
                    TpccInput::NewOrder(order) => {
                        order.lines.iter().filter(|line| line.supply_w != order.w).count()
                    }
                    TpccInput::Payment(payment) => usize::from(payment.c_w != payment.w),
                    _ => 0,
                };
            }
            assert!((count as f64 / 20_000.0 - remote).abs() < 0.02, "{remote} {count}");
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_inputs() {
        assert_eq!(draws(Mix::Full, 1000), draws(Mix::Full, 1000));
    }
}
