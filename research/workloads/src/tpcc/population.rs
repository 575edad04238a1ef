//! The initial population (clause 4.3.3.1), split into parts of about a thousand rows.
//!
//! A part is a procedure call of a few bytes. Every row is made by a generator of its own, seeded
//! from the call's seed, so that parts can be loaded in any order and by any number of threads, and
//! a command log of the population stays small. A part can run only once: a second run fails, since
//! its rows exist.

use super::Scale;
use super::random::{Constants, last_name, non_uniform, permutation};
use super::schema::{
    Customer, DISTRICTS, District, History, Item, OpenOrder, Order, OrderLine, Stock, TpccTables,
    Warehouse,
};
use crate::bytes::{Text, digits, generator, letters, mix};
use fastrand::Rng;
use hyades::{Abort, Transaction};
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
        let row = Item {
            i_id: id,
            i_im_id: rng.i32(1..=10_000),
            i_name: name.as_str(),
            i_price: rng.i64(100..=10_000),
            i_data: data.as_str(),
        };
        self.tables.item.insert(self.tx, &row)?;
        Ok(())
    }

    fn warehouse(&self, w: i32) -> Result<(), Abort> {
        let rng = &mut self.rng(2, w as u64);
        let name: Text<10> = Text::random(rng, 6, 10);
        let address = Address::random(rng);
        // The customers' first payments: 10.00 each, 300,000.00 at full scale.
        let district_ytd = self.call.scale.customers as i64 * 1000;
        let ytd = district_ytd * DISTRICTS as i64;
        let row = Warehouse {
            w_id: w,
            w_name: name.as_str(),
            w_street_1: address.street_1.as_str(),
            w_street_2: address.street_2.as_str(),
            w_city: address.city.as_str(),
            w_state: &address.state,
            w_zip: &address.zip,
            w_tax: rng.i32(0..=2000),
            w_ytd: ytd,
        };
        self.tables.warehouse.insert(self.tx, &row)?;
        for d in 1..=DISTRICTS {
            let rng = &mut self.rng(3, place(w, d));
            let name: Text<10> = Text::random(rng, 6, 10);
            let address = Address::random(rng);
            let row = District {
                d_id: d,
                d_w_id: w,
                d_name: name.as_str(),
                d_street_1: address.street_1.as_str(),
                d_street_2: address.street_2.as_str(),
                d_city: address.city.as_str(),
                d_state: &address.state,
                d_zip: &address.zip,
                d_tax: rng.i32(0..=2000),
                d_ytd: district_ytd,
                d_next_o_id: self.call.scale.customers + 1,
            };
            self.tables.district.insert(self.tx, &row)?;
        }
        Ok(())
    }

    fn stock(&self, w: i32, item: i32) -> Result<(), Abort> {
        let rng = &mut self.rng(4, (w as u64) << 32 | item as u64);
        let mut dist = [[0u8; 24]; DISTRICTS as usize];
        dist.iter_mut().for_each(|text| letters(rng, text));
        let data = data(rng);
        let row = Stock {
            s_i_id: item,
            s_w_id: w,
            s_quantity: rng.i32(10..=100),
            s_dist_01: &dist[0],
            s_dist_02: &dist[1],
            s_dist_03: &dist[2],
            s_dist_04: &dist[3],
            s_dist_05: &dist[4],
            s_dist_06: &dist[5],
            s_dist_07: &dist[6],
            s_dist_08: &dist[7],
            s_dist_09: &dist[8],
            s_dist_10: &dist[9],
            s_ytd: 0,
            s_order_cnt: 0,
            s_remote_cnt: 0,
            s_data: data.as_str(),
        };
        self.tables.stock.insert(self.tx, &row)?;
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
        let mut phone = [0; 16];
        digits(rng, &mut phone);
        let credit = if rng.u32(..10) == 0 { b"BC" } else { b"GC" };
        let data: Text<500> = Text::random(rng, 300, 500);
        let row = Customer {
            c_id: id,
            c_d_id: d,
            c_w_id: w,
            c_first: first.as_str(),
            c_middle: b"OE",
            c_last: last.as_str(),
            c_street_1: address.street_1.as_str(),
            c_street_2: address.street_2.as_str(),
            c_city: address.city.as_str(),
            c_state: &address.state,
            c_zip: &address.zip,
            c_phone: &phone,
            c_since: self.call.date_us,
            c_credit: credit,
            c_credit_lim: 5_000_000,
            c_discount: rng.i32(0..=5000),
            c_balance: -1000,
            c_ytd_payment: 1000,
            c_payment_cnt: 1,
            c_delivery_cnt: 0,
            c_data: data.as_str(),
        };
        self.tables.customer.insert(self.tx, &row)?;
        let data: Text<24> = Text::random(rng, 12, 24);
        let history = History {
            h_c_id: id,
            h_c_d_id: d,
            h_c_w_id: w,
            h_d_id: d,
            h_w_id: w,
            h_date: self.call.date_us,
            h_amount: 1000,
            h_data: data.as_str(),
        };
        self.tables.history.insert(self.tx, &history)?;
        Ok(())
    }

    fn order(&self, w: i32, d: i32, id: i32, customer: i32) -> Result<(), Abort> {
        let rng = &mut self.rng(6, place(w, d) << 32 | id as u64);
        let delivered = id <= self.call.scale.delivered();
        let lines = rng.i32(5..=15);
        let carrier = delivered.then(|| rng.i32(1..=10));
        let date = self.call.date_us;
        let row = Order {
            o_id: id,
            o_d_id: d,
            o_w_id: w,
            o_c_id: customer,
            o_entry_d: date,
            o_carrier_id: carrier,
            o_ol_cnt: lines,
            o_all_local: 1,
        };
        self.tables.orders.insert(self.tx, &row)?;
        for number in 1..=lines {
            let mut info = [0; 24];
            letters(rng, &mut info);
            let amount = if delivered { 0 } else { rng.i64(1..=999_999) };
            let line = OrderLine {
                ol_o_id: id,
                ol_d_id: d,
                ol_w_id: w,
                ol_number: number,
                ol_i_id: rng.i32(1..=self.call.scale.items),
                ol_supply_w_id: w,
                ol_delivery_d: delivered.then_some(date),
                ol_quantity: 5,
                ol_amount: amount,
                ol_dist_info: &info,
            };
            self.tables.order_line.insert(self.tx, &line)?;
        }
        if !delivered {
            let open = OpenOrder { no_o_id: id, no_d_id: d, no_w_id: w };
            self.tables.new_order.insert(self.tx, &open)?;
        }
        Ok(())
    }
}
