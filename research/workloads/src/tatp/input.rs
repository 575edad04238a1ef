//! Inputs: the mix, and the distribution of subscribers.

use super::schema::{LONGEST, STARTS, TYPES};
use super::{
    DeleteCallForwarding, GetAccessData, GetNewDestination, GetSubscriberData,
    InsertCallForwarding, TatpConfig, UpdateLocation, UpdateSubscriberData,
};
use fastrand::Rng;

/// The input of one transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TatpInput {
    /// 35 %.
    GetSubscriberData(GetSubscriberData),
    /// 10 %.
    GetNewDestination(GetNewDestination),
    /// 35 %.
    GetAccessData(GetAccessData),
    /// 2 %.
    UpdateSubscriberData(UpdateSubscriberData),
    /// 14 %.
    UpdateLocation(UpdateLocation),
    /// 2 %.
    InsertCallForwarding(InsertCallForwarding),
    /// 2 %.
    DeleteCallForwarding(DeleteCallForwarding),
}

impl Default for TatpInput {
    fn default() -> Self {
        TatpInput::GetSubscriberData(GetSubscriberData::default())
    }
}

impl TatpInput {
    /// The names of the transactions.
    pub const KINDS: [&str; 7] = [
        "get-subscriber-data",
        "get-new-destination",
        "get-access-data",
        "update-subscriber-data",
        "update-location",
        "insert-call-forwarding",
        "delete-call-forwarding",
    ];

    /// The index of the transaction in the names.
    pub fn kind(&self) -> usize {
        match self {
            TatpInput::GetSubscriberData(_) => 0,
            TatpInput::GetNewDestination(_) => 1,
            TatpInput::GetAccessData(_) => 2,
            TatpInput::UpdateSubscriberData(_) => 3,
            TatpInput::UpdateLocation(_) => 4,
            TatpInput::InsertCallForwarding(_) => 5,
            TatpInput::DeleteCallForwarding(_) => 6,
        }
    }
}

/// The specification's A: two random numbers, up to A and up to the number of subscribers, are
/// combined by a bitwise or, so that numbers with many bits set are more frequent.
pub fn non_uniform_mask(subscribers: u32) -> u32 {
    match subscribers {
        0..=1_000_000 => 65_535,
        1_000_001..=10_000_000 => 1_048_575,
        _ => 2_097_151,
    }
}

/// Draws inputs.
#[derive(Clone, Copy, Debug)]
pub struct TatpInputs {
    config: TatpConfig,
    mask: u32,
}

impl TatpInputs {
    /// # Panics
    /// If there are no subscribers, or 2^31 or more.
    pub fn new(config: TatpConfig) -> TatpInputs {
        assert!((1..1 << 31).contains(&config.subscribers), "subscribers: {}", config.subscribers);
        TatpInputs { config, mask: non_uniform_mask(config.subscribers) }
    }

    /// The settings.
    pub fn config(&self) -> &TatpConfig {
        &self.config
    }

    /// A subscriber, not uniformly distributed.
    fn subscriber(&self, rng: &mut Rng) -> u32 {
        let subscribers = self.config.subscribers;
        (rng.u32(0..=self.mask) | rng.u32(1..=subscribers)) % subscribers + 1
    }

    /// Draws the next input.
    pub fn draw(&self, rng: &mut Rng, into: &mut TatpInput) {
        let s_id = self.subscriber(rng);
        let number = s_id;
        let sf_type = TYPES[rng.usize(..TYPES.len())];
        let start_time = STARTS[rng.usize(..STARTS.len())];
        *into = match rng.u32(..100) {
            0..35 => TatpInput::GetSubscriberData(GetSubscriberData { s_id }),
            35..45 => {
                let end_time = rng.u32(1..=24);
                let call = GetNewDestination { s_id, sf_type, start_time, end_time };
                TatpInput::GetNewDestination(call)
            }
            45..80 => {
                let ai_type = TYPES[rng.usize(..TYPES.len())];
                TatpInput::GetAccessData(GetAccessData { s_id, ai_type })
            }
            80..82 => {
                let (bit_1, data_a) = (rng.bool(), rng.u32(..256));
                let call = UpdateSubscriberData { s_id, bit_1, sf_type, data_a };
                TatpInput::UpdateSubscriberData(call)
            }
            82..96 => {
                let vlr_location = rng.u32(1..);
                TatpInput::UpdateLocation(UpdateLocation { number, vlr_location })
            }
            96..98 => {
                let end_time = start_time + rng.u32(1..=LONGEST);
                let numberx = rng.u64(..1_000_000_000_000_000);
                let call = InsertCallForwarding { number, sf_type, start_time, end_time, numberx };
                TatpInput::InsertCallForwarding(call)
            }
            _ => {
                let call = DeleteCallForwarding { number, sf_type, start_time };
                TatpInput::DeleteCallForwarding(call)
            }
        };
    }
}
