//! `client-output-buffer-limit`: how much may wait for a client that does not read.

use super::parse::memory;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Kinds of clients, as in Redis. The limits of replicas are kept in the setting alone.
const CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];

/// Bytes that may wait for a client that is no subscriber, whatever the limit: the replies to AUTH,
/// HELLO, CLIENT SETINFO and CONFIG SET. Otherwise a small limit would disconnect all clients,
/// including clients about to change the limit.
const LEAST_OF_NORMAL: u64 = 512;

/// Limits of the bytes that wait for a client. A limit of 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimit {
    /// Bytes beyond which the client is disconnected.
    pub hard: u64,
    /// Bytes beyond which the client is disconnected after a while.
    pub soft: u64,
    /// The time above the soft limit, in seconds.
    pub seconds: u64,
}

impl OutputLimit {
    /// Whether this number of bytes exceeds the hard limit.
    pub fn is_over(self, bytes: u64) -> bool {
        self.hard > 0 && bytes > self.hard
    }

    /// Whether this number of bytes exceeds the soft limit.
    pub fn is_high(self, bytes: u64) -> bool {
        self.soft > 0 && bytes > self.soft
    }
}

/// The limits of clients that do not subscribe, then of subscribers, as numbers.
#[derive(Debug, Default)]
pub struct OutputLimits([[AtomicU64; 3]; 2]);

impl OutputLimits {
    /// Takes the text of the setting.
    pub fn set(&self, text: &str) {
        for (class, place) in [("normal", &self.0[0]), ("pubsub", &self.0[1])] {
            let words: Vec<&str> = text.split(' ').collect();
            let own = words.chunks(4).find(|own| own[0] == class);
            let own = own.expect("the setting names all classes");
            for (number, word) in place.iter().zip(&own[1..]) {
                number.store(word.parse().expect("numbers are checked when they are set"), Relaxed);
            }
        }
    }

    /// The limit of a client.
    pub fn get(&self, is_subscriber: bool) -> OutputLimit {
        let [hard, soft, seconds] = &self.0[usize::from(is_subscriber)];
        let bytes = |limit: &AtomicU64| match limit.load(Relaxed) {
            0 => 0,
            bytes if is_subscriber => bytes,
            bytes => bytes.max(LEAST_OF_NORMAL),
        };
        OutputLimit { hard: bytes(hard), soft: bytes(soft), seconds: seconds.load(Relaxed) }
    }
}

/// Brings the setting into its usual form. Of several limits of a class the last one counts.
///
/// # Errors
/// The fault, in the words of Redis.
pub fn read(text: &str) -> Result<String, &'static str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut limits = [[0; 3]; 3];
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.");
    }
    for own in words.chunks(4) {
        let class = own[0].to_ascii_lowercase().replace("replica", "slave");
        let at = CLASSES.iter().position(|name| *name == class);
        let at = at.ok_or("Invalid client class specified in buffer limit configuration.")?;
        let numbers = (memory(own[1]), memory(own[2]), own[3].parse().ok());
        let (Some(hard), Some(soft), Some(seconds)) = numbers else {
            return Err("Error in hard, soft or soft_seconds setting in buffer limit \
                        configuration.");
        };
        limits[at] = [hard, soft, seconds];
    }
    let class = |(name, [hard, soft, seconds]): (&&str, &[u64; 3])| {
        format!("{name} {hard} {soft} {seconds}")
    };
    Ok(CLASSES.iter().zip(&limits).map(class).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_keeps_its_last_limit() {
        let read = |text: &str| read(text);
        let all = "normal 1 2 3 slave 4 5 6 pubsub 1048576 8 9";
        assert_eq!(read("pubsub 1mb 8 9 replica 4 5 6 normal 1 2 3").as_deref(), Ok(all));
        let changed = "normal 0 2 3 slave 4 5 6 pubsub 1048576 8 9";
        assert_eq!(read(&format!("{all} normal 0 2 3")).as_deref(), Ok(changed));
        for (wrong, said) in [
            ("normal 1 2", "Wrong number of arguments"),
            ("other 1 2 3", "Invalid client class"),
            ("master 1 2 3", "Invalid client class"),
            ("normal 10mbs 2 3", "Error in hard, soft or"),
            ("replica 1 10mbs 3", "Error in hard, soft or"),
            ("normal 1 2 -3", "Error in hard, soft or soft_seconds"),
            ("normal 1 2 3s", "Error in hard, soft or soft_seconds"),
        ] {
            assert!(read(wrong).unwrap_err().starts_with(said), "{wrong}");
        }
        let limits = OutputLimits::default();
        limits.set(all);
        let pubsub = limits.get(true);
        assert!(!pubsub.is_over(1 << 20) && pubsub.is_over((1 << 20) + 1));
        assert!(!pubsub.is_high(8) && pubsub.is_high(9));
        let normal = limits.get(false);
        assert!(!normal.is_over(LEAST_OF_NORMAL) && !normal.is_high(LEAST_OF_NORMAL));
        assert!(normal.is_over(LEAST_OF_NORMAL + 1) && normal.is_high(LEAST_OF_NORMAL + 1));
        limits.set("normal 1000 0 0 slave 0 0 0 pubsub 0 0 0");
        assert_eq!(limits.get(false), OutputLimit { hard: 1_000, soft: 0, seconds: 0 });
        let none = OutputLimit { hard: 0, soft: 0, seconds: 0 };
        assert!(!none.is_over(u64::MAX) && !none.is_high(u64::MAX));
    }
}
