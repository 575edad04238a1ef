//! Commands on fields with times, drawn at random, beside a model.

use super::super::dumping::dumped;
use super::*;

/// A model of one database of hashes: fields with values and times.
type Model = std::collections::BTreeMap<String, ModelHash>;
type ModelHash = std::collections::BTreeMap<String, (i64, Option<i64>)>;

/// Whether a time may be set, by the time that the field has so far.
type Allows = fn(i64, Option<i64>) -> bool;

fn live(model: &mut Model, now: i64) {
    for hash in model.values_mut() {
        hash.retain(|_, (_, at)| at.is_none_or(|at| at > now));
    }
    model.retain(|_, hash| !hash.is_empty());
}

/// A field of a hash of the model, and a command's random arguments.
struct Drawn<'m> {
    key: String,
    field: String,
    hash: &'m mut ModelHash,
    old: Option<(i64, Option<i64>)>,
    value: i64,
    ttl: i64,
    now: i64,
}

impl Drawn<'_> {
    /// Sets the field. A field with a past time is removed.
    fn set(&mut self, value: i64, at: Option<i64>) {
        match at.is_some_and(|at| at <= self.now) {
            true => drop(self.hash.remove(&self.field)),
            false => drop(self.hash.insert(self.field.clone(), (value, at))),
        }
    }

    /// The value in the form of a reply.
    fn said(&self) -> String {
        self.old.map_or("$-1".into(), |(value, _)| bulk(&value.to_string()))
    }

    fn is_there(&self) -> u8 {
        u8::from(self.old.is_some())
    }

    /// A command on values, and its reply.
    fn on_value(mut self, number: u8) -> (String, String) {
        let Drawn { key, field, value, old, .. } = &self;
        let (value, old) = (*value, *old);
        match number {
            0 | 1 => {
                let line = format!("HSET {key} {field} {value}");
                self.set(value, None);
                (line, format!(":{}", u8::from(old.is_none())))
            }
            2 => {
                let line = format!("HINCRBY {key} {field} 1");
                let sum = old.map_or(0, |old| old.0) + 1;
                self.set(sum, old.and_then(|old| old.1));
                (line, format!(":{sum}"))
            }
            3 => {
                self.hash.remove(&self.field);
                (format!("HDEL {} {}", self.key, self.field), format!(":{}", self.is_there()))
            }
            4 => {
                self.hash.remove(&self.field);
                let line = format!("HGETDEL {} FIELDS 1 {}", self.key, self.field);
                (line, format!("*1 {}", self.said()))
            }
            _ => (format!("HLEN {key}"), format!(":{}", self.hash.len())),
        }
    }

    /// A command on times, and its reply.
    fn on_time(mut self, number: u8, condition: (&str, Allows)) -> (String, String) {
        let (key, field, ttl) = (self.key.clone(), self.field.clone(), self.ttl);
        let (at, now, value, old) = (self.now + ttl, self.now, self.value, self.old);
        match number {
            0..=2 => {
                let (name, allows) = condition;
                let result = match old {
                    None => -2,
                    Some((_, before)) if !allows(at, before) => 0,
                    Some((value, _)) => {
                        self.set(value, Some(at));
                        if ttl == 0 { 2 } else { 1 }
                    }
                };
                let line = format!("HPEXPIRE {key} {ttl} {name}FIELDS 1 {field}");
                (line, format!("*1 :{result}"))
            }
            3 => {
                let result = match old {
                    None => -2,
                    Some((_, None)) => -1,
                    Some((value, Some(_))) => {
                        self.set(value, None);
                        1
                    }
                };
                (format!("HPERSIST {key} FIELDS 1 {field}"), format!("*1 :{result}"))
            }
            4 | 5 => {
                self.set(value, Some(at));
                (format!("HSETEX {key} PX {ttl} FIELDS 1 {field} {value}"), ":1".into())
            }
            6 => {
                self.set(value, old.and_then(|old| old.1));
                (format!("HSETEX {key} KEEPTTL FIELDS 1 {field} {value}"), ":1".into())
            }
            7 => {
                if let Some((value, _)) = old {
                    self.set(value, Some(at));
                }
                let line = format!("HGETEX {key} PX {ttl} FIELDS 1 {field}");
                (line, format!("*1 {}", self.said()))
            }
            _ => {
                let said = match old {
                    None => -2,
                    Some((_, None)) => -1,
                    Some((_, Some(at))) => at - now,
                };
                (format!("HPTTL {key} FIELDS 1 {field}"), format!("*1 :{said}"))
            }
        }
    }
}

/// When HPEXPIRE sets a time, by the time that the field has so far.
const CONDITIONS: [(&str, Allows); 5] = [
    ("NX ", |_, old| old.is_none()),
    ("XX ", |_, old| old.is_some()),
    ("GT ", |at, old| old.is_some_and(|old| at > old)),
    ("LT ", |at, old| old.is_none_or(|old| at < old)),
    ("", |_, _| true),
];

/// A command drawn at random, done to the model, and the reply.
fn step(random: &mut fastrand::Rng, model: &mut Model, now: i64) -> (String, String) {
    let key = ["h1", "h2"][random.usize(..2)].to_string();
    let field = format!("f{}", random.u8(..24));
    let (value, ttl) = (random.i64(0..100), random.i64(0..60));
    let hash = model.entry(key.clone()).or_default();
    let old = hash.get(&field).copied();
    let drawn = Drawn { key: key.clone(), field, hash, old, value, ttl, now };
    match random.u8(..16) {
        number @ 0..6 => drawn.on_value(number),
        number @ 6..15 => drawn.on_time(number - 6, CONDITIONS[random.usize(..5)]),
        _ => move_key(random, model, &key),
    }
}

/// Copies or renames a hash, and the reply.
fn move_key(random: &mut fastrand::Rng, model: &mut Model, key: &str) -> (String, String) {
    let other = if key == "h1" { "h2" } else { "h1" };
    let hash = model[key].clone();
    let is_there = !hash.is_empty();
    if is_there {
        model.insert(other.into(), hash);
    }
    if random.bool() {
        return (format!("COPY {key} {other} REPLACE"), format!(":{}", u8::from(is_there)));
    }
    let line = format!("RENAME {key} {other}");
    match is_there {
        true => {
            model.remove(key);
            (line, "+OK".into())
        }
        false => (line, "-ERR no such key".into()),
    }
}

fn bulk(text: &str) -> String {
    format!("${} {text}", text.len())
}

/// Commands at random, passing time, removal of expired fields, and hashes that change their form:
/// each reply is the reply of the model, and the stored fields are the fields of the model. DUMP
/// and RESTORE keep all. Once no field is left, no row is.
#[test]
fn times_are_those_of_a_model_whatever_is_done() {
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut lapse = Lapse::new(BOTH[seed as usize % 2]);
        let mut model = Model::new();
        for number in 0..700 {
            let (line, expected) = step(&mut random, &mut model, lapse.now);
            assert_eq!(lapse.say(&line), expected, "seed {seed}, {number}: {line}");
            match random.u8(..40) {
                0..=9 => lapse.pass(random.i64(0..12)),
                10 | 11 => lapse.reap(),
                12 => {
                    let entries = [0, 4, 128][random.usize(..3)];
                    lapse.say(&format!("CONFIG SET hash-max-listpack-entries {entries}"));
                }
                13 => {
                    live(&mut model, lapse.now);
                    if model.contains_key("h1") {
                        let (house, client) = (&mut lapse.house, &mut lapse.client);
                        let payload = dumped(house, client, "h1");
                        let quoted: String =
                            payload.iter().map(|byte| format!("\\x{byte:02x}")).collect();
                        let line = format!("RESTORE h1 0 \"{quoted}\" REPLACE");
                        assert_eq!(lapse.say(&line), "+OK", "seed {seed}, {number}");
                    }
                }
                14 => {
                    for line in ["MULTI", "RENAME h1 h3", "RENAME h3 h1", "EXEC"] {
                        lapse.say(line);
                    }
                }
                15 => {
                    for line in ["SELECT 1", "MOVE h1 0", "SELECT 0", "MOVE h1 1", "SWAPDB 0 1"] {
                        lapse.say(line);
                    }
                    lapse.say("SWAPDB 0 1");
                    for line in ["SELECT 1", "MOVE h1 0", "SELECT 0"] {
                        lapse.say(line);
                    }
                }
                _ => {}
            }
            live(&mut model, lapse.now);
            check(&mut lapse, &model, (seed, number));
        }
        lapse.pass(100);
        lapse.reap();
        for line in ["PERSIST h1", "DEL h1 h2"] {
            lapse.say(line);
        }
        assert_eq!(lapse.rows(), (0, 0), "seed {seed}");
        assert_eq!(lapse.say("DBSIZE"), ":0", "seed {seed}");
    }
}

/// Compares all fields of both hashes with the model.
fn check(lapse: &mut Lapse, model: &Model, place: (u64, i32)) {
    for key in ["h1", "h2"] {
        let hash = model.get(key).cloned().unwrap_or_default();
        let pairs = hash
            .iter()
            .map(|(field, (value, _))| format!("{} {}", bulk(field), bulk(&value.to_string())));
        let mut pairs: Vec<String> = pairs.collect();
        pairs.sort();
        let expected = [&[format!("*{}", 2 * pairs.len())], &pairs[..]].concat().join(" ");
        let said = lapse.say(&format!("HGETALL {key}"));
        assert_eq!(sorted_pairs("HGETALL", &said), expected, "{key}, {place:?}");
        let names: Vec<&str> = hash.keys().map(String::as_str).collect();
        if !names.is_empty() {
            let line = format!("HPEXPIRETIME {key} FIELDS {} {}", names.len(), names.join(" "));
            let times = hash.values().map(|(_, at)| format!(" :{}", at.unwrap_or(-1)));
            let expected = format!("*{}{}", names.len(), times.collect::<String>());
            assert_eq!(lapse.say(&line), expected, "{key}, {place:?}");
        }
        assert_eq!(lapse.say(&format!("HLEN {key}")), format!(":{}", hash.len()), "{place:?}");
        let exists = u8::from(!hash.is_empty());
        assert_eq!(lapse.say(&format!("EXISTS {key}")), format!(":{exists}"), "{place:?}");
    }
}
