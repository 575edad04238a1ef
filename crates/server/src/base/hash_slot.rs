//! The slot of a key in cluster mode: CRC16 (XMODEM) of the key, or of its tag in braces, so that
//! keys with the same tag are of the same slot.

/// The number of slots.
pub const SLOTS: u16 = 16_384;

const POLYNOMIAL: u16 = 0x1021;

const TABLE: [u16; 256] = {
    let (mut table, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = (crc << 1) ^ if crc & 0x8000 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc16(bytes: &[u8]) -> u16 {
    let step = |crc: u16, byte: &u8| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)];
    bytes.iter().fold(0, step)
}

/// The part of a key that decides the slot: what is between the first `{` and the next `}`, unless
/// that is empty.
fn tag(key: &[u8]) -> &[u8] {
    let begin = key.iter().position(|byte| *byte == b'{').map(|at| at + 1);
    let tagged = begin.and_then(|begin| {
        let length = key[begin..].iter().position(|byte| *byte == b'}')?;
        Some(&key[begin..begin + length])
    });
    tagged.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// The slot of a key.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

/// The slots of several keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeySlots {
    /// There is no key.
    #[default]
    None,
    /// All keys are of this slot.
    One(u16),
    /// The keys are of several slots.
    Several,
}

impl KeySlots {
    /// The slots of a key.
    pub fn of(key: &[u8]) -> KeySlots {
        KeySlots::One(slot_of(key))
    }

    /// The slots of both.
    pub fn and(self, other: KeySlots) -> KeySlots {
        match (self, other) {
            (KeySlots::None, other) => other,
            (own, KeySlots::None) => own,
            (own, other) if own == other => own,
            _ => KeySlots::Several,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31C3, "the check value of XMODEM");
        // Of redis-server 7.0.15.
        for (key, slot) in [
            ("", 0),
            ("a", 15_495),
            ("a{b}c", 3_300),
            ("foo", 12_182),
            ("{foo}.bar", 12_182),
            ("{user1000}.following", 3_443),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key:?}");
        }
    }

    #[test]
    fn a_tag_is_between_the_first_braces_and_not_empty() {
        for (key, part) in [
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo{bar", "foo{bar"),
            ("foo}bar{", "foo}bar{"),
            ("}{a}", "a"),
        ] {
            assert_eq!(tag(key.as_bytes()), part.as_bytes(), "{key:?}");
        }
    }

    #[test]
    fn keys_of_several_slots_stay_so() {
        let slots = |keys: &[&str]| {
            let each = keys.iter().map(|key| KeySlots::of(key.as_bytes()));
            each.fold(KeySlots::None, KeySlots::and)
        };
        assert_eq!(slots(&[]), KeySlots::None);
        assert_eq!(slots(&["a", "x{a}", "{a}y"]), KeySlots::One(15_495));
        assert_eq!(slots(&["a", "b", "a"]), KeySlots::Several);
        assert_eq!(slots(&["a", "b"]).and(KeySlots::None), KeySlots::Several);
    }
}
