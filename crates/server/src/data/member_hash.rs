//! The hash for the places of the members of a large collection: SipHash-1-3 (Aumasson and
//! Bernstein, INDOCRYPT 2012) under a secret of the collection, so that no client can choose
//! members that all have the same place. The hash is part of the format.

/// Bytes of a place: 48 bits, so that a cursor of HSCAN fits into the integers of every client.
pub const PLACE_BYTES: usize = 6;

/// All places are below this number.
pub const PLACES: u64 = 1 << (8 * PLACE_BYTES);

struct SipState([u64; 4]);

impl SipState {
    fn round(&mut self) {
        let [a, b, c, d] = &mut self.0;
        *a = a.wrapping_add(*b);
        *b = b.rotate_left(13) ^ *a;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*d);
        *d = d.rotate_left(16) ^ *c;
        *a = a.wrapping_add(*d);
        *d = d.rotate_left(21) ^ *a;
        *c = c.wrapping_add(*b);
        *b = b.rotate_left(17) ^ *c;
        *c = c.rotate_left(32);
    }

    fn absorb(&mut self, word: u64, rounds: usize) {
        self.0[3] ^= word;
        (0..rounds).for_each(|_| self.round());
        self.0[0] ^= word;
    }
}

fn sip(key: (u64, u64), text: &[u8], rounds: (usize, usize)) -> u64 {
    let mut state = SipState([
        key.0 ^ 0x736f_6d65_7073_6575,
        key.1 ^ 0x646f_7261_6e64_6f6d,
        key.0 ^ 0x6c79_6765_6e65_7261,
        key.1 ^ 0x7465_6462_7974_6573,
    ]);
    let (words, rest) = text.as_chunks::<8>();
    words.iter().for_each(|word| state.absorb(u64::from_le_bytes(*word), rounds.0));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = text.len() as u8;
    state.absorb(u64::from_le_bytes(last), rounds.0);
    state.0[2] ^= 0xff;
    (0..rounds.1).for_each(|_| state.round());
    state.0.iter().fold(0, |all, word| all ^ word)
}

/// The place of a member in a collection with this secret, below [`PLACES`].
pub fn place(secret: u64, member: &[u8]) -> u64 {
    sip((secret, !secret), member, (1, 3)) >> (64 - 8 * PLACE_BYTES)
}

/// A place as bytes in the same sort order.
pub fn place_bytes(place: u64) -> [u8; PLACE_BYTES] {
    *place.to_be_bytes().last_chunk().expect("it has eight bytes")
}

/// The place at which these bytes, perhaps cut short, begin.
pub fn place_of(bytes: &[u8]) -> u64 {
    let at = |n: usize| u64::from(bytes.get(n).copied().unwrap_or(0));
    (0..PLACE_BYTES).fold(0, |place, n| place << 8 | at(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the paper, appendix A, and of the reference implementation, are of
    /// SipHash-2-4: the same code with other numbers of rounds.
    #[test]
    fn it_is_siphash() {
        let key = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let text: Vec<u8> = (0..15).collect();
        assert_eq!(sip(key, &text, (2, 4)), 0xa129_ca61_49be_45e5);
        assert_eq!(sip(key, b"", (2, 4)), 0x726f_db47_dd0e_0e31);
        assert_eq!(sip(key, &text[..8], (2, 4)), 0x93f5_f579_9a93_2462);
    }

    /// Data on disk lies by these places.
    #[test]
    fn places_stay_what_they_are() {
        let all = ["", "a", "field:1", "a member of more than eight bytes"];
        let places = all.map(|member| place(7, member.as_bytes()));
        assert_eq!(places, places.map(|place| place_of(&place_bytes(place))));
        assert!(places.iter().all(|place| *place < PLACES));
        assert_eq!(place_of(&[0x12]), 0x1200_0000_0000);
        assert_eq!(place_of(b""), 0);
    }
}
