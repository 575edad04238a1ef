//! Values derived from a seed: the same at population, at run time and at replay.

use fastrand::Rng;

/// Mixes two words into one. A single wide multiplication, folded: fast, and good enough to fill
/// rows with (it is no cryptographic hash).
#[inline]
pub fn mix(a: u64, b: u64) -> u64 {
    let product = (a ^ 0x9E37_79B9_7F4A_7C15) as u128 * (b ^ 0xD1B5_4A32_D192_ED03) as u128;
    (product as u64) ^ (product >> 64) as u64
}

/// Fills `out` with bytes derived from `seed`.
#[inline]
pub fn fill(seed: u64, out: &mut [u8]) {
    let mut words = out.chunks_exact_mut(8);
    let mut at = seed;
    for word in &mut words {
        at = at.wrapping_add(0x9E37_79B9_7F4A_7C15);
        word.copy_from_slice(&mix(at, seed).to_le_bytes());
    }
    let rest = words.into_remainder();
    let last = mix(at.wrapping_add(0x9E37_79B9_7F4A_7C15), seed).to_le_bytes();
    let len = rest.len();
    rest.copy_from_slice(&last[..len]);
}

/// A generator for the row `id` of `kind`, seeded so that every row can be made on its own.
pub fn generator(seed: u64, kind: u64, id: u64) -> Rng {
    Rng::with_seed(mix(mix(seed, kind), id))
}

const ALPHANUMERIC: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Fills `out` with random letters and digits (TPC-C's a-string, clause 4.3.2.2).
pub fn letters(rng: &mut Rng, out: &mut [u8]) {
    for chunk in out.chunks_mut(4) {
        let mut bits = rng.u64(..);
        for byte in chunk {
            *byte = ALPHANUMERIC[(((bits & 0xFFFF) * 62) >> 16) as usize];
            bits >>= 16;
        }
    }
}

/// Fills `out` with random digits (TPC-C's n-string, clause 4.3.2.2).
pub fn digits(rng: &mut Rng, out: &mut [u8]) {
    out.iter_mut().for_each(|byte| *byte = b'0' + rng.u8(..10));
}

/// The last `N` decimal digits of a number, with leading zeros.
pub fn decimal<const N: usize>(mut number: u64) -> [u8; N] {
    let mut out = [b'0'; N];
    for digit in out.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    out
}

/// A text built in place, without allocation.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Text { bytes: [0; N], len: 0 }
    }
}

impl<const N: usize> Text<N> {
    /// A text of `min` to `max` random letters and digits; `max` is at most `N`.
    pub fn random(rng: &mut Rng, min: usize, max: usize) -> Self {
        let mut text = Text { bytes: [0; N], len: rng.usize(min..=max) };
        letters(rng, &mut text.bytes[..text.len]);
        text
    }

    /// Appends as much of `more` as fits, whole characters only.
    pub fn push(&mut self, more: &str) -> &mut Self {
        let mut end = more.len().min(N - self.len);
        while !more.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes[self.len..self.len + end].copy_from_slice(&more.as_bytes()[..end]);
        self.len += end;
        self
    }

    /// Appends a number in decimal.
    pub fn push_number(&mut self, number: i64) -> &mut Self {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            at -= 1;
            digits[at] = b'-';
        }
        self.push(std::str::from_utf8(&digits[at..]).expect("digits are ASCII"))
    }

    /// Writes `word` over the text at byte `at`; both are ASCII.
    pub fn overwrite(&mut self, at: usize, word: &str) {
        self.bytes[at..at + word.len()].copy_from_slice(word.as_bytes());
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).expect("only whole characters are appended")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_follows_from_its_seed() {
        let (mut a, mut b, mut c) = ([0; 100], [0; 100], [0; 100]);
        fill(7, &mut a);
        fill(7, &mut b);
        fill(8, &mut c);
        assert_eq!(a, b);
        assert!(a.iter().zip(&c).filter(|(x, y)| x == y).count() < 10);
        assert!(a.chunks(4).all(|word| word != [0; 4]));
    }

    #[test]
    fn a_number_has_leading_zeros() {
        assert_eq!(&decimal::<5>(120), b"00120");
        assert_eq!(&decimal::<2>(120), b"20");
    }

    #[test]
    fn a_text_never_outgrows_its_room() {
        let mut text = Text::<8>::default();
        text.push("ab").push_number(-120).push("été");
        assert_eq!(text.as_str(), "ab-120é");
        assert_eq!(Text::<20>::default().push_number(i64::MIN).as_str(), i64::MIN.to_string());
        let random = Text::<30>::random(&mut Rng::with_seed(1), 30, 30);
        assert!(random.as_str().bytes().all(|b| b.is_ascii_alphanumeric()));
    }
}
