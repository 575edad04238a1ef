//! Classes of keyspace events.

/// Classes of events, by their letters in `notify-keyspace-events`, and their targets (`K`, `E`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventClasses(u16);

/// Each letter is a bit, by its place. `A` stands for the letters before `K`.
const LETTERS: &str = "g$lshzxetdKEmn";

/// The number of letters for which `A` stands.
const IN_ALL: usize = 10;

/// The bit of a letter, 0 for an unknown one. The path of each command asks: constants only.
const fn bit(letter: char) -> u16 {
    let mut at = 0;
    while at < LETTERS.len() {
        if LETTERS.as_bytes()[at] as char == letter {
            return 1 << at;
        }
        at += 1;
    }
    0
}

/// The kinds of channels.
const CHANNELS: u16 = bit('K') | bit('E');
const MISSES: u16 = bit('m');

impl EventClasses {
    /// Reads letters in any order; `None` if a letter is unknown.
    pub fn read(text: &str) -> Option<EventClasses> {
        let bits = |letter| match letter {
            'A' => Some((1 << IN_ALL) - 1),
            letter => Some(bit(letter)).filter(|bit| *bit != 0),
        };
        let classes = text.chars().try_fold(0, |all, letter| Some(all | bits(letter)?))?;
        Some(EventClasses(classes))
    }

    /// As a number.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// From [`EventClasses::bits`].
    pub fn from_bits(bits: u16) -> EventClasses {
        EventClasses(bits)
    }

    /// Whether the set has a class.
    pub fn has(self, letter: char) -> bool {
        self.0 & bit(letter) != 0
    }

    /// Whether there can be any event: of a class, to a kind of channels.
    pub fn is_on(self) -> bool {
        self.0 & CHANNELS != 0
    }

    /// Whether there is an event for a read of a missing key.
    pub fn tells_misses(self) -> bool {
        self.is_on() && self.0 & MISSES != 0
    }
}

impl std::fmt::Display for EventClasses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = (1 << IN_ALL) - 1;
        let has_all = self.0 & all == all;
        if has_all {
            f.write_str("A")?;
        }
        let shown = LETTERS.chars().skip(if has_all { IN_ALL } else { 0 });
        shown.filter(|letter| self.has(*letter)).try_for_each(|letter| write!(f, "{letter}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_read_back() {
        for (text, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("g$lshzxetdE", "AE"),
            ("Kz$l", "$lzK"),
            ("Emn", "Emn"),
            ("nKA", "AKn"),
        ] {
            let classes = EventClasses::read(text).unwrap();
            assert_eq!(classes.to_string(), shown);
            assert_eq!(EventClasses::from_bits(classes.bits()), classes);
            assert_eq!(EventClasses::read(shown), Some(classes));
        }
        assert_eq!(EventClasses::read("Kq"), None);
        assert!(!EventClasses::read("A").unwrap().is_on());
        let tells_misses = |text| EventClasses::read(text).unwrap().tells_misses();
        assert!(tells_misses("Km") && !tells_misses("m") && !tells_misses("AKE"));
    }
}
