//! The initial population (clause 4.3.3.1), split into parts of about a thousand rows.
//!
//! A part is a procedure call of a few bytes. Every row is made by a generator of its own, seeded
//! from the call's seed, so that parts can be loaded in any order and by any number of threads, and
//! a command log of the population stays small. A part can run only once: a second run fails, since
//! its rows exist.

use super::Scale;
use super::random::{Constants, last_name, non_uniform, permutation};
use super::schema::{DISTRICTS, TpccTables};
use crate::bytes::{Text, digits, generator, letters, mix};
use fastrand::Rng;
use hyades::{Abort, Transaction, Value};
use serde::{Deserialize, Serialize};

/// Arguments of [`populate`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TpccPopulate {
    /// The seed of all rows.
    pub seed: u64,
    /// The number of rows in all.
    pub scale: Scale,
    /// The date of the rows, microseconds since 1970.
    pub date_us: i64,
    /// The rows to insert.
    pub part: PopulationPart,
}

/// Some of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum PopulationPart {
    /// Items from the first number on.
    Items(i32, i32),
    /// A warehouse and its districts.
    Warehouse(i32),
    /// Stock of a warehouse, items from the first number on.
    Stock(i32, i32, i32),
    /// Customers of (warehouse, district) from the first number on, each with a history row.
    Customers(i32, i32, i32, i32),
    /// Orders of (warehouse, district) from the first number on, with their lines and new-orders.
    Orders(i32, i32, i32, i32),
}

/// About this many rows are inserted by one call.
const CHUNK: i32 = 1000;
/// Fewer orders per call, since an order has about ten lines.
const ORDERS_CHUNK: i32 = 100;

/// All parts of the population.
pub fn parts(scale: &Scale) -> Vec<PopulationPart> {
    let chunks = |count: i32, size: i32| {
        (0..count).step_by(size as usize).map(move |at| (at + 1, size.min(count - at)))
    };
    let mut parts: Vec<PopulationPart> = chunks(scale.items, CHUNK)
        .map(|(from, count)| PopulationPart::Items(from, count))
        .collect();
    for w in 1..=scale.warehouses {
        parts.push(PopulationPart::Warehouse(w));
        parts.extend(chunks(scale.items, CHUNK).map(|(from, n)| PopulationPart::Stock(w, from, n)));
        for d in 1..=DISTRICTS {
            let customers = chunks(scale.customers, CHUNK);
            parts.extend(customers.map(|(from, n)| PopulationPart::Customers(w, d, from, n)));
            let orders = chunks(scale.customers, ORDERS_CHUNK);
            parts.extend(orders.map(|(from, n)| PopulationPart::Orders(w, d, from, n)));
        }
    }
    parts
}

/// Inserts the rows of a part.
pub fn populate(
    tx: &Transaction<'_>,
    tables: &TpccTables,
    call: &TpccPopulate,
) -> Result<(), Abort> {
    let rows = Rows { tx, tables, call };
    match call.part {
        PopulationPart::Items(from, count) => (from..from + count).try_for_each(|id| rows.item(id)),
        PopulationPart::Warehouse(w) => rows.warehouse(w),
        PopulationPart::Stock(w, from, count) => {
            (from..from + count).try_for_each(|id| rows.stock(w, id))
        }
        PopulationPart::Customers(w, d, from, count) => {
            (from..from + count).try_for_each(|id| rows.customer(w, d, id))
        }
        PopulationPart::Orders(w, d, from, count) => {
            let seed = mix(call.seed, place(w, d));
            let customers = permutation(mix(seed, 0x0E), call.scale.customers);
            (from..from + count).try_for_each(|id| rows.order(w, d, id, customers[id as usize - 1]))
        }
    }
}

/// A distinct number for each district.
fn place(w: i32, d: i32) -> u64 {
    w as u64 * 100 + d as u64
}

struct Rows<'a, 't> {
    tx: &'a Transaction<'t>,
    tables: &'a TpccTables,
    call: &'a TpccPopulate,
}

/// Street, city, state and zip code (clauses 4.3.3.1 and 4.3.2.7).
struct Address {
    street_1: Text<20>,
    street_2: Text<20>,
    city: Text<20>,
    state: [u8; 2],
    zip: [u8; 9],
}

impl Address {
    fn random(rng: &mut Rng) -> Address {
        let mut state = [0; 2];
        letters(rng, &mut state);
        let mut zip = *b"000011111";
        digits(rng, &mut zip[..4]);
        Address {
            street_1: Text::random(rng, 10, 20),
            street_2: Text::random(rng, 10, 20),
            city: Text::random(rng, 10, 20),
            state,
            zip,
        }
    }

    fn values(&self) -> [Value<'_>; 5] {
        [
            self.street_1.as_str().into(),
            self.street_2.as_str().into(),
            self.city.as_str().into(),
            (&self.state).into(),
            (&self.zip).into(),
        ]
    }
}

/// Text of 26 to 50 characters, in a tenth of the rows with ORIGINAL at a random place.
fn data(rng: &mut Rng) -> Text<50> {
    let mut text = Text::random(rng, 26, 50);
    if rng.u32(..10) == 0 {
        let at = rng.usize(0..=text.len() - "ORIGINAL".len());
        text.overwrite(at, "ORIGINAL");
    }
    text
}

impl Rows<'_, '_> {
    fn rng(&self, table: u64, id: u64) -> Rng {
        generator(self.call.seed, table, id)
    }

    fn item(&self, id: i32) -> Result<(), Abort> {
        let rng = &mut self.rng(1, id as u64);
        let name: Text<24> = Text::random(rng, 14, 24);
        let data = data(rng);
        let row = [
            id.into(),
            rng.i32(1..=10_000).into(),
            name.as_str().into(),
            rng.i64(100..=10_000).into(),
            data.as_str().into(),
        ];
        self.tx.insert(self.tables.item, &row)?;
        Ok(())
    }

    fn warehouse(&self, w: i32) -> Result<(), Abort> {
        let rng = &mut self.rng(2, w as u64);
        let name: Text<10> = Text::random(rng, 6, 10);
        let address = Address::random(rng);
        let [street_1, street_2, city, state, zip] = address.values();
        // The customers' first payments: 10.00 each, 300,000.00 at full scale.
        let district_ytd = self.call.scale.customers as i64 * 1000;
        let ytd = district_ytd * DISTRICTS as i64;
        let tax = rng.i32(0..=2000);
        let name = name.as_str().into();
        let row = [w.into(), name, street_1, street_2, city, state, zip, tax.into(), ytd.into()];
        self.tx.insert(self.tables.warehouse, &row)?;
        for d in 1..=DISTRICTS {
            let rng = &mut self.rng(3, place(w, d));
            let name: Text<10> = Text::random(rng, 6, 10);
            let address = Address::random(rng);
            let [street_1, street_2, city, state, zip] = address.values();
            let row = [
                d.into(),
                w.into(),
                name.as_str().into(),
                street_1,
                street_2,
                city,
                state,
                zip,
                rng.i32(0..=2000).into(),
                district_ytd.into(),
                (self.call.scale.customers + 1).into(),
            ];
            self.tx.insert(self.tables.district, &row)?;
        }
        Ok(())
    }

    fn stock(&self, w: i32, item: i32) -> Result<(), Abort> {
        let rng = &mut self.rng(4, (w as u64) << 32 | item as u64);
        let mut dist = [[0u8; 24]; DISTRICTS as usize];
        dist.iter_mut().for_each(|text| letters(rng, text));
        let data = data(rng);
        let mut row = [Value::Null; 17];
        row[0] = item.into();
        row[1] = w.into();
        row[2] = rng.i32(10..=100).into();
        for (value, text) in row[3..13].iter_mut().zip(&dist) {
            *value = text.into();
        }
        row[13] = 0i64.into();
        row[14] = 0i32.into();
        row[15] = 0i32.into();
        row[16] = data.as_str().into();
        self.tx.insert(self.tables.stock, &row)?;
        Ok(())
    }

    fn customer(&self, w: i32, d: i32, id: i32) -> Result<(), Abort> {
        let rng = &mut self.rng(5, place(w, d) << 32 | id as u64);
        let names = self.call.scale.last_names();
        let name = if id <= names {
            id - 1
        } else {
            let c = Constants::new(self.call.seed).last_load;
            non_uniform(rng, 255, c, 0, names - 1)
        };
        let last = last_name(name as u16);
        let first: Text<16> = Text::random(rng, 8, 16);
        let address = Address::random(rng);
        let [street_1, street_2, city, state, zip] = address.values();
        let mut phone = [0; 16];
        digits(rng, &mut phone);
        let credit = if rng.u32(..10) == 0 { b"BC" } else { b"GC" };
        let data: Text<500> = Text::random(rng, 300, 500);
        let row = [
            id.into(),
            d.into(),
            w.into(),
            first.as_str().into(),
            b"OE".into(),
            last.as_str().into(),
            street_1,
            street_2,
            city,
            state,
            zip,
            (&phone).into(),
            self.call.date_us.into(),
            credit.into(),
            5_000_000i64.into(),
            rng.i32(0..=5000).into(),
            (-1000i64).into(),
            1000i64.into(),
            1i32.into(),
            0i32.into(),
            data.as_str().into(),
        ];
        self.tx.insert(self.tables.customer, &row)?;
        let data: Text<24> = Text::random(rng, 12, 24);
        let history = [
            id.into(),
            d.into(),
            w.into(),
            d.into(),
            w.into(),
            self.call.date_us.into(),
            1000i64.into(),
            data.as_str().into(),
        ];
        self.tx.insert(self.tables.history, &history)?;
        Ok(())
    }

    fn order(&self, w: i32, d: i32, id: i32, customer: i32) -> Result<(), Abort> {
        let rng = &mut self.rng(6, place(w, d) << 32 | id as u64);
        let delivered = id <= self.call.scale.delivered();
        let lines = rng.i32(5..=15);
        let carrier = delivered.then(|| rng.i32(1..=10));
        let date = self.call.date_us;
        let row = [
            id.into(),
            d.into(),
            w.into(),
            customer.into(),
            date.into(),
            carrier.into(),
            lines.into(),
            1i32.into(),
        ];
        self.tx.insert(self.tables.orders, &row)?;
        for number in 1..=lines {
            let mut info = [0; 24];
            letters(rng, &mut info);
            let amount = if delivered { 0 } else { rng.i64(1..=999_999) };
            let line = [
                id.into(),
                d.into(),
                w.into(),
                number.into(),
                rng.i32(1..=self.call.scale.items).into(),
                w.into(),
                delivered.then_some(date).into(),
                5i32.into(),
                amount.into(),
                (&info).into(),
            ];
            self.tx.insert(self.tables.order_line, &line)?;
        }
        if !delivered {
            self.tx.insert(self.tables.new_order, &[id.into(), d.into(), w.into()])?;
        }
        Ok(())
    }
}
