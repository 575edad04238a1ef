//! Requests of clients for streams: few keys, groups and consumers, and ids mostly of existing
//! entries.

use super::{Script, Words, words};
use crate::clients::lua::{self, ScriptEnding};

/// Number of remembered ids of entries, so that later commands name them.
const MOST_REMEMBERED: usize = 16;

impl Script {
    /// An id that no stream has had. Half of the streams have ids by the time alone, or nearly.
    fn new_id(&mut self, key: &str, now_ms: i64) -> String {
        let follows_time = (key == "x2") != (self.rng.u32(0..20) == 0);
        if follows_time {
            let ms = now_ms + self.rng.i64(-2..3);
            return match self.rng.u32(0..4) {
                0 => format!("{ms}-*"),
                _ => "*".to_string(),
            };
        }
        self.values += 1;
        let id = format!("{}-{}", self.values, self.rng.u32(0..3));
        self.entries.push_back(id.clone());
        if self.entries.len() > MOST_REMEMBERED {
            self.entries.pop_front();
        }
        id
    }

    /// The id of an entry that may exist.
    fn known_id(&mut self, now_ms: i64) -> String {
        match self.rng.u32(0..8) {
            0 => format!("{}-0", now_ms - self.rng.i64(0..30)),
            1 => format!("{}-0", self.rng.u64(0..=self.values)),
            _ if self.entries.is_empty() => "1-1".to_string(),
            _ => self.entries[self.rng.usize(0..self.entries.len())].clone(),
        }
    }

    /// Some known ids, each once.
    fn known_ids(&mut self, now_ms: i64) -> String {
        let mut all: Vec<String> =
            (0..self.rng.usize(1..6)).map(|_| self.known_id(now_ms)).collect();
        all.sort();
        all.dedup();
        self.rng.shuffle(&mut all);
        all.join(" ")
    }

    fn add(&mut self, key: &str, now_ms: i64) -> String {
        let option = match self.rng.u32(0..10) {
            0 => "NOMKSTREAM ".to_string(),
            1 => format!("MAXLEN {} ", self.rng.u32(0..9)),
            _ => String::new(),
        };
        let id = self.new_id(key, now_ms);
        let fields = self.some(|script| format!("{} {}", script.member(), script.value()));
        format!("XADD {key} {option}{id} {fields}")
    }

    /// Entries delivered to a group, and acknowledged, claimed or deleted: alone, between MULTI and
    /// EXEC, or in a script.
    pub(super) fn group_scene(&mut self, now_ms: i64) -> Vec<Words> {
        let key = format!("x{}", self.rng.u32(0..2));
        let (group, consumer) = (format!("g{}", self.rng.u32(0..2)), self.rng.u32(0..3));
        let (mut all, mut ids) = (Vec::new(), Vec::new());
        for _ in 0..self.rng.usize(1..4) {
            let id = self.new_id(&key, now_ms);
            all.push(format!("XADD {key} {id} {} {}", self.member(), self.value()));
            ids.push(id);
        }
        if self.rng.bool() {
            all.push(format!("XGROUP CREATE {key} {group} 0"));
        }
        all.push(format!("XREADGROUP GROUP {group} c{consumer} COUNT 9 STREAMS {key} >"));
        for id in ids.iter().filter(|id| !id.ends_with('*')) {
            match self.rng.u32(0..6) {
                0..3 => all.push(format!("XACK {key} {group} {id}")),
                3 => all.push(format!("XCLAIM {key} {group} c{} 0 {id}", self.rng.u32(0..3))),
                4 => all.push(format!("XDEL {key} {id}")),
                _ => {}
            }
        }
        let all: Vec<Words> = all.iter().map(|text| words(text)).collect();
        match self.rng.u32(0..4) {
            0 => [vec![words("MULTI")], all, vec![words("EXEC")]].concat(),
            1 => vec![lua::eval(all, ScriptEnding::Returns)],
            _ => all,
        }
    }

    /// A command for streams.
    pub(super) fn stream(&mut self, now_ms: i64) -> String {
        let key = self.key('x');
        let (group, consumer) = (format!("g{}", self.rng.u32(0..2)), self.rng.u32(0..3));
        let most = self.rng.u32(1..8);
        match self.rng.u32(0..32) {
            0..10 => self.add(&key, now_ms),
            10..12 => format!("XDEL {key} {}", self.known_ids(now_ms)),
            12 => format!("XTRIM {key} MAXLEN {most}"),
            13 => format!("XTRIM {key} MINID {}", self.known_id(now_ms)),
            14 => format!("XLEN {key}"),
            15 => format!("XRANGE {key} - +"),
            16 => format!("XRANGE {key} {} + COUNT {most}", self.known_id(now_ms)),
            17..19 => format!("XGROUP CREATE {key} {group} 0 MKSTREAM"),
            19 => format!("XGROUP CREATE {key} {group} $"),
            20 if self.rng.bool() => format!("XGROUP DESTROY {key} {group}"),
            20..26 => {
                let (noack, id) = match self.rng.u32(0..12) {
                    0 => ("NOACK ", ">"),
                    1..3 => ("", "0"),
                    _ => ("", ">"),
                };
                format!(
                    "XREADGROUP GROUP {group} c{consumer} COUNT {most} {noack}STREAMS {key} {id}"
                )
            }
            26..30 => format!("XACK {key} {group} {}", self.known_ids(now_ms)),
            _ => {
                let option = ["", "", " FORCE", " JUSTID"][self.rng.usize(0..4)];
                let ids = self.known_ids(now_ms);
                format!("XCLAIM {key} {group} c{consumer} 0 {ids}{option}")
            }
        }
    }
}
