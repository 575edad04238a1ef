//! The population, split into parts of about two thousand rows. A generator of its own makes the
//! rows of each subscriber, so that parts can be loaded in any order and by any number of threads.

use super::TatpConfig;
use super::schema::{
    AccessInfo, CallForwarding, LONGEST, STARTS, SpecialFacility, Subscriber, TYPES, TatpTables,
    sub_nbr_of,
};
use crate::bytes::{digits, generator};
use fastrand::Rng;
use hyades::{Abort, Transaction};
use serde::{Deserialize, Serialize};
use std::array::from_fn;

/// Arguments of [`populate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TatpPopulate {
    /// The seed of all rows.
    pub seed: u64,
    /// The first subscriber.
    pub from: u32,
    /// How many.
    pub count: u32,
}

/// Subscribers that one call adds.
const CHUNK: u32 = 200;

/// Returns the calls that populate the database.
pub fn parts(config: &TatpConfig) -> Vec<TatpPopulate> {
    let &TatpConfig { subscribers, seed } = config;
    let part = |at| TatpPopulate { seed, from: at + 1, count: CHUNK.min(subscribers - at) };
    (0..subscribers).step_by(CHUNK as usize).map(part).collect()
}

/// Adds subscribers, each with 1 to 4 access infos and 1 to 4 special facilities, and each facility
/// with 0 to 3 call forwardings.
pub fn populate(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    call: &TatpPopulate,
) -> Result<(), Abort> {
    for s_id in call.from..call.from + call.count {
        let rng = &mut generator(call.seed, 0x7A, s_id.into());
        add_subscriber(tx, tables, rng, s_id)?;
        for ai_type in some_of(rng, TYPES, 1) {
            add_access_info(tx, tables, rng, (s_id, ai_type))?;
        }
        for sf_type in some_of(rng, TYPES, 1) {
            add_special_facility(tx, tables, rng, (s_id, sf_type))?;
            for start_time in some_of(rng, STARTS, 0) {
                add_call_forwarding(tx, tables, rng, (s_id, sf_type, start_time))?;
            }
        }
    }
    Ok(())
}

/// At least `least` of the values, each count and each choice equally likely.
fn some_of<const N: usize>(
    rng: &mut Rng,
    mut values: [u32; N],
    least: usize,
) -> impl Iterator<Item = u32> + use<N> {
    rng.shuffle(&mut values);
    values.into_iter().take(rng.usize(least..=N))
}

/// Random capital letters.
fn capitals<const N: usize>(rng: &mut Rng) -> [u8; N] {
    from_fn(|_| rng.u8(b'A'..=b'Z'))
}

fn byte(rng: &mut Rng) -> u32 {
    rng.u32(..256)
}

fn add_subscriber(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    rng: &mut Rng,
    s_id: u32,
) -> Result<(), Abort> {
    let [bit_1, bit_2, bit_3, bit_4, bit_5, bit_6, bit_7, bit_8, bit_9, bit_10] =
        from_fn(|_| rng.bool());
    let [hex_1, hex_2, hex_3, hex_4, hex_5, hex_6, hex_7, hex_8, hex_9, hex_10] =
        from_fn(|_| rng.u32(..16));
    let [byte2_1, byte2_2, byte2_3, byte2_4, byte2_5] = from_fn(|_| byte(rng));
    let [byte2_6, byte2_7, byte2_8, byte2_9, byte2_10] = from_fn(|_| byte(rng));
    let row = Subscriber {
        s_id,
        sub_nbr: &sub_nbr_of(s_id),
        bit_1,
        bit_2,
        bit_3,
        bit_4,
        bit_5,
        bit_6,
        bit_7,
        bit_8,
        bit_9,
        bit_10,
        hex_1,
        hex_2,
        hex_3,
        hex_4,
        hex_5,
        hex_6,
        hex_7,
        hex_8,
        hex_9,
        hex_10,
        byte2_1,
        byte2_2,
        byte2_3,
        byte2_4,
        byte2_5,
        byte2_6,
        byte2_7,
        byte2_8,
        byte2_9,
        byte2_10,
        msc_location: rng.u32(1..),
        vlr_location: rng.u32(1..),
    };
    tables.subscriber.insert(tx, &row).map(drop)
}

fn add_access_info(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    rng: &mut Rng,
    (s_id, ai_type): (u32, u32),
) -> Result<(), Abort> {
    let [data1, data2] = from_fn(|_| byte(rng));
    let (data3, data4) = (&capitals(rng), &capitals(rng));
    let row = AccessInfo { s_id, ai_type, data1, data2, data3, data4 };
    tables.access_info.insert(tx, &row).map(drop)
}

fn add_special_facility(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    rng: &mut Rng,
    (s_id, sf_type): (u32, u32),
) -> Result<(), Abort> {
    let is_active = rng.u32(..100) < 85;
    let [error_cntrl, data_a] = from_fn(|_| byte(rng));
    let data_b = &capitals(rng);
    let row = SpecialFacility { s_id, sf_type, is_active, error_cntrl, data_a, data_b };
    tables.special_facility.insert(tx, &row).map(drop)
}

fn add_call_forwarding(
    tx: &Transaction<'_>,
    tables: &TatpTables,
    rng: &mut Rng,
    (s_id, sf_type, start_time): (u32, u32, u32),
) -> Result<(), Abort> {
    let end_time = start_time + rng.u32(1..=LONGEST);
    let mut numberx = [0; 15];
    digits(rng, &mut numberx);
    let row = CallForwarding { s_id, sf_type, start_time, end_time, numberx: &numberx };
    tables.call_forwarding.insert(tx, &row).map(drop)
}
