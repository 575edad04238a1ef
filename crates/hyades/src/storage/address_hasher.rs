//! A cheap hasher for maps whose keys are row addresses or row versions.

use std::hash::Hasher;

/// Multiply and xor-shift. Not for keys that an attacker can choose.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 29;
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}
