//! XXH3 of 64 bits with the seed 0, of Y. Collet's specification of xxHash: the digest of a string
//! that DIGEST replies, as Redis computes it.

/// The secret of the specification.
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

const PRIME32: [u64; 3] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d];
const PRIME64: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];
const PRIME_MX1: u64 = 0x1656_6791_9e37_79f9;
const PRIME_MX2: u64 = 0x9fb2_1c65_1e98_df25;

/// Bytes that are mixed into the accumulators at once.
const STRIPE: usize = 64;

/// Stripes between two scrambles: each takes the secret 8 bytes further on.
const STRIPES: usize = (SECRET.len() - STRIPE) / 8;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn half(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")))
}

fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn avalanche(mut hash: u64) -> u64 {
    hash ^= hash >> 37;
    hash = hash.wrapping_mul(PRIME_MX1);
    hash ^ hash >> 32
}

fn avalanche_64(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(PRIME64[1]);
    hash ^= hash >> 29;
    hash = hash.wrapping_mul(PRIME64[2]);
    hash ^ hash >> 32
}

fn mixed(bytes: &[u8], at: usize, secret_at: usize) -> u64 {
    folded(
        word(bytes, at) ^ word(&SECRET, secret_at),
        word(bytes, at + 8) ^ word(&SECRET, secret_at + 8),
    )
}

fn short(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0 => avalanche_64(word(&SECRET, 56) ^ word(&SECRET, 64)),
        length @ 1..=3 => {
            let (first, last) = (u64::from(bytes[0]), u64::from(bytes[length - 1]));
            let middle = u64::from(bytes[length >> 1]);
            let combined = first << 16 | middle << 24 | last | (length as u64) << 8;
            avalanche_64(combined ^ half(&SECRET, 0) ^ half(&SECRET, 4))
        }
        length @ 4..=8 => {
            let input = half(bytes, length - 4).wrapping_add(half(bytes, 0) << 32);
            let mut hash = input ^ word(&SECRET, 8) ^ word(&SECRET, 16);
            hash ^= hash.rotate_left(49) ^ hash.rotate_left(24);
            hash = hash.wrapping_mul(PRIME_MX2);
            hash ^= (hash >> 35).wrapping_add(length as u64);
            hash = hash.wrapping_mul(PRIME_MX2);
            hash ^ hash >> 28
        }
        length => {
            let low = word(bytes, 0) ^ word(&SECRET, 24) ^ word(&SECRET, 32);
            let high = word(bytes, length - 8) ^ word(&SECRET, 40) ^ word(&SECRET, 48);
            let sum = (length as u64)
                .wrapping_add(low.swap_bytes())
                .wrapping_add(high)
                .wrapping_add(folded(low, high));
            avalanche(sum)
        }
    }
}

fn up_to_128(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let mut sum = (length as u64).wrapping_mul(PRIME64[0]);
    for pair in (0..=(length - 1) / 32).rev() {
        sum = sum.wrapping_add(mixed(bytes, 16 * pair, 32 * pair));
        sum = sum.wrapping_add(mixed(bytes, length - 16 * (pair + 1), 32 * pair + 16));
    }
    avalanche(sum)
}

fn up_to_240(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let mut sum = (length as u64).wrapping_mul(PRIME64[0]);
    for at in 0..8 {
        sum = sum.wrapping_add(mixed(bytes, 16 * at, 16 * at));
    }
    sum = avalanche(sum);
    for at in 8..length / 16 {
        sum = sum.wrapping_add(mixed(bytes, 16 * at, 16 * (at - 8) + 3));
    }
    avalanche(sum.wrapping_add(mixed(bytes, length - 16, 136 - 17)))
}

fn accumulate(sums: &mut [u64; 8], stripe: &[u8], secret_at: usize) {
    for lane in 0..8 {
        let data = word(stripe, 8 * lane);
        let keyed = data ^ word(&SECRET, secret_at + 8 * lane);
        sums[lane ^ 1] = sums[lane ^ 1].wrapping_add(data);
        sums[lane] = sums[lane].wrapping_add((keyed & 0xffff_ffff).wrapping_mul(keyed >> 32));
    }
}

fn long(bytes: &[u8]) -> u64 {
    let mut sums = [
        PRIME32[2], PRIME64[0], PRIME64[1], PRIME64[2], PRIME64[3], PRIME32[1], PRIME64[4],
        PRIME32[0],
    ];
    let last = (bytes.len() - 1) / STRIPE;
    for stripe in 0..last {
        let at = STRIPE * stripe;
        accumulate(&mut sums, &bytes[at..at + STRIPE], 8 * (stripe % STRIPES));
        if stripe % STRIPES == STRIPES - 1 {
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum ^= *sum >> 47;
                *sum ^= word(&SECRET, SECRET.len() - STRIPE + 8 * lane);
                *sum = sum.wrapping_mul(PRIME32[0]);
            }
        }
    }
    accumulate(&mut sums, &bytes[bytes.len() - STRIPE..], SECRET.len() - STRIPE - 7);
    let mut hash = (bytes.len() as u64).wrapping_mul(PRIME64[0]);
    for pair in 0..4 {
        let (low, high) = (word(&SECRET, 11 + 16 * pair), word(&SECRET, 19 + 16 * pair));
        hash = hash.wrapping_add(folded(sums[2 * pair] ^ low, sums[2 * pair + 1] ^ high));
    }
    avalanche(hash)
}

/// The hash of some bytes.
pub fn xxh3(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=16 => short(bytes),
        17..=128 => up_to_128(bytes),
        129..=240 => up_to_240(bytes),
        _ => long(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each way of each length, as the reference implementation hashes.
    #[test]
    fn hashes_are_those_of_the_reference() {
        for (length, expected) in [
            (0, 0x2d06_8005_38d3_94c2u64),
            (1, 0x13e6_08bc_156d_efed),
            (2, 0x1c90_74b9_3943_b86c),
            (3, 0xa908_8dda_485b_481c),
            (4, 0x6d92_53b1_6c8b_1ed3),
            (7, 0x8e82_91ad_8912_7e2e),
            (8, 0x6053_9db6_3047_1163),
            (9, 0xfeff_6683_61d7_23a8),
            (16, 0xb8c8_59b0_f030_b585),
            (17, 0x714a_0440_8e79_b80f),
            (32, 0x19ff_4ee1_d6ba_1a55),
            (33, 0x3e44_983a_d216_79c8),
            (65, 0x95a1_66c5_9574_53d9),
            (128, 0x4634_ae6a_253a_60e4),
            (129, 0xc095_b9b1_b087_722d),
            (160, 0xcee9_e8a6_63fd_2a23),
            (240, 0x887a_f002_81f7_5d38),
            (241, 0x82b1_de29_9f6e_411e),
            (256, 0x09e7_b917_0a14_0747),
            (1_023, 0x5cd9_34b0_95b7_e2c5),
            (1_024, 0x47ba_2d7b_993f_c0ed),
            (1_025, 0x79db_8e70_5986_8dd4),
            (10_000, 0xa9ab_9d4d_c329_8185),
        ] {
            let bytes: Vec<u8> =
                (0..length).map(|at| ((at * 7 + at / 256 * 13 + 3) % 251) as u8).collect();
            assert_eq!(xxh3(&bytes), expected, "{length} bytes");
        }
    }
}
