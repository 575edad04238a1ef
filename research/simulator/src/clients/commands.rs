//! The effects of commands on the model, and their replies.

use super::lua;
use super::model::{Body, CollectionKind, Model, WrongType, score_of, texts};
use super::reply::{Answer, Expected};
use super::streams::streams;

/// Where and when a command runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    pub database: u32,
    pub now_ms: i64,
}

/// The reply of a command, unless the key holds another type.
pub(crate) type Done = Result<Expected, WrongType>;

fn same(answer: Answer) -> Expected {
    Expected::Same(answer)
}

fn integer(n: impl TryInto<i64>) -> Expected {
    same(Answer::Integer(n.try_into().unwrap_or_else(|_| unreachable!("numbers are small"))))
}

fn maybe(text: Option<String>) -> Expected {
    same(Answer::Text(text))
}

/// Runs a command on the data. Returns the reply.
pub(crate) fn apply(model: &mut Model, at: Circumstances, request: &[String]) -> Expected {
    if let Some(expected) = lua::apply(model, at, request) {
        return expected;
    }
    let args: Vec<&str> = request.iter().map(String::as_str).collect();
    let group = [strings, keys, lists, hashes, sets, sorted_sets, streams];
    let done = group.iter().find_map(|commands| commands(model, at, &args));
    match done.unwrap_or_else(|| unreachable!("no such command: {request:?}")) {
        Ok(expected) => expected,
        Err(WrongType) => Expected::Error("WRONGTYPE"),
    }
}

impl Circumstances {
    fn text(
        self,
        model: &mut Model,
        key: &str,
    ) -> Result<Option<(String, Option<i64>)>, WrongType> {
        match model.head(self.database, key, self.now_ms) {
            None => Ok(None),
            Some((Body::Text(text), expires)) => Ok(Some((text, expires))),
            Some(_) => Err(WrongType),
        }
    }

    fn set_text(self, model: &mut Model, key: &str, text: String, expires: Option<i64>) {
        model.set_head(self.database, key, Some((Body::Text(text), expires)));
    }

    fn list(self, model: &mut Model, key: &str) -> Result<(Vec<String>, Option<i64>), WrongType> {
        match model.head(self.database, key, self.now_ms) {
            None => Ok((Vec::new(), None)),
            Some((Body::List(list), expires)) => Ok((list, expires)),
            Some(_) => Err(WrongType),
        }
    }

    fn set_list(self, model: &mut Model, key: &str, list: Vec<String>, expires: Option<i64>) {
        let value = (!list.is_empty()).then_some((Body::List(list), expires));
        model.set_head(self.database, key, value);
    }

    /// Takes an element from an end.
    fn pop(self, model: &mut Model, key: &str, end: &str) -> Result<Option<String>, WrongType> {
        let (mut list, expires) = self.list(model, key)?;
        if list.is_empty() {
            return Ok(None);
        }
        let element = match end {
            "LEFT" => list.remove(0),
            _ => list.pop().expect("it is not empty"),
        };
        self.set_list(model, key, list, expires);
        Ok(Some(element))
    }

    fn push(
        self,
        model: &mut Model,
        key: &str,
        end: &str,
        all: &[&str],
    ) -> Result<usize, WrongType> {
        let (mut list, expires) = self.list(model, key)?;
        for element in all {
            let place = if end == "LEFT" { 0 } else { list.len() };
            list.insert(place, element.to_string());
        }
        let length = list.len();
        self.set_list(model, key, list, expires);
        Ok(length)
    }

    fn collection(
        self,
        model: &mut Model,
        key: &str,
        kind: CollectionKind,
    ) -> Result<Option<usize>, WrongType> {
        model.collection(self.database, key, kind, self.now_ms)
    }

    /// Removes members. Returns how many there were.
    fn remove(
        self,
        model: &mut Model,
        key: &str,
        kind: CollectionKind,
        members: &[&str],
    ) -> Result<usize, WrongType> {
        let mut removed = 0;
        for member in members {
            // With the last member the collection went.
            let Some(collection) = self.collection(model, key, kind)? else { break };
            if model.member(collection, member).is_some() {
                model.set_member((self.database, key), collection, member, None);
                removed += 1;
            }
        }
        Ok(removed)
    }
}

fn strings(model: &mut Model, at: Circumstances, args: &[&str]) -> Option<Done> {
    Some(match args {
        ["SET", key, value, options @ ..] => set(model, at, key, value, options),
        ["GET", key] => at.text(model, key).map(|found| maybe(found.map(|(text, _)| text))),
        ["MGET", all @ ..] => Ok(same(Answer::Array(Some(
            all.iter()
                .map(|key| Answer::Text(at.text(model, key).ok().flatten().map(|(text, _)| text)))
                .collect(),
        )))),
        ["MSET", all @ ..] => {
            for pair in all.chunks(2) {
                at.set_text(model, pair[0], pair[1].to_string(), None);
            }
            Ok(same(Answer::ok()))
        }
        ["APPEND", key, text] => at.text(model, key).map(|found| {
            let (before, expires) = found.unwrap_or_default();
            let all = before + text;
            let length = all.len();
            at.set_text(model, key, all, expires);
            integer(length)
        }),
        ["SETRANGE", key, offset, text] => at.text(model, key).map(|found| {
            let (mut all, expires) = found.unwrap_or_default();
            let from = score_of(offset) as usize;
            let to = from + text.len();
            let zeros = to.saturating_sub(all.len());
            all.extend(std::iter::repeat_n('\0', zeros));
            all.replace_range(from..to, text);
            let length = all.len();
            at.set_text(model, key, all, expires);
            integer(length)
        }),
        ["GETRANGE", key, from, to] => at.text(model, key).map(|found| {
            let all = found.unwrap_or_default().0;
            let end = all.len().min(score_of(to) as usize + 1);
            let part = all.get(score_of(from) as usize..end).unwrap_or_default();
            maybe(Some(part.to_string()))
        }),
        ["STRLEN", key] => {
            at.text(model, key).map(|found| integer(found.unwrap_or_default().0.len()))
        }
        ["INCRBY", key, by] => at.text(model, key).map(|found| {
            let (before, expires) = found.unwrap_or(("0".into(), None));
            match before.parse::<i64>() {
                Err(_) => Expected::Error("ERR value is not an integer"),
                Ok(number) => {
                    let sum = number + score_of(by);
                    at.set_text(model, key, sum.to_string(), expires);
                    integer(sum)
                }
            }
        }),
        _ => return None,
    })
}

fn set(model: &mut Model, at: Circumstances, key: &str, value: &str, options: &[&str]) -> Done {
    let before = model.head(at.database, key, at.now_ms);
    let expires = match options {
        ["PXAT", ms] => Some(score_of(ms)),
        _ => None,
    };
    if options == ["NX"] && before.is_some() {
        return Ok(maybe(None));
    }
    let gets = options == ["GET"];
    if gets && before.as_ref().is_some_and(|(body, _)| !matches!(body, Body::Text(_))) {
        return Err(WrongType);
    }
    match expires {
        // The value would be gone at once.
        Some(ms) if ms <= at.now_ms => {
            if before.is_some() {
                model.set_head(at.database, key, None);
            }
        }
        _ => at.set_text(model, key, value.to_string(), expires),
    }
    Ok(match before {
        Some((Body::Text(text), _)) if gets => maybe(Some(text)),
        _ if gets => maybe(None),
        _ => same(Answer::ok()),
    })
}

fn keys(model: &mut Model, at: Circumstances, args: &[&str]) -> Option<Done> {
    let (database, now_ms) = (at.database, at.now_ms);
    Some(Ok(match args {
        ["DEL", all @ ..] => {
            let mut removed = 0;
            for key in all {
                if model.head(database, key, now_ms).is_some() {
                    model.set_head(database, key, None);
                    removed += 1;
                }
            }
            integer(removed)
        }
        ["EXISTS", all @ ..] => {
            integer(all.iter().filter(|key| model.head(database, key, now_ms).is_some()).count())
        }
        ["TYPE", key] => same(Answer::Simple(match model.head(database, key, now_ms) {
            None => "none".into(),
            Some((Body::Text(_), _)) => "string".into(),
            Some((Body::List(_), _)) => "list".into(),
            Some((Body::Collection(kind, _), _)) => kind.name().into(),
            Some((Body::Stream(_), _)) => "stream".into(),
        })),
        ["PEXPIREAT", key, ms] => match model.head(database, key, now_ms) {
            None => integer(0),
            Some((body, _)) => {
                let at = score_of(ms);
                model.set_head(database, key, (at > now_ms).then_some((body, Some(at))));
                integer(1)
            }
        },
        ["PERSIST", key] => match model.head(database, key, now_ms) {
            Some((body, Some(_))) => {
                model.set_head(database, key, Some((body, None)));
                integer(1)
            }
            _ => integer(0),
        },
        ["PEXPIRETIME", key] => match model.head(database, key, now_ms) {
            None => integer(-2),
            Some((_, expires)) => integer(expires.unwrap_or(-1)),
        },
        ["RENAME", from, to] => match model.head(database, from, now_ms) {
            None => Expected::Error("ERR no such key"),
            Some(value) => {
                if from != to {
                    model.head(database, to, now_ms);
                    model.set_head(database, from, None);
                    model.set_head(database, to, Some(value));
                }
                same(Answer::ok())
            }
        },
        ["FLUSHDB"] => {
            model.flush(database);
            same(Answer::ok())
        }
        _ => return None,
    }))
}

fn lists(model: &mut Model, at: Circumstances, args: &[&str]) -> Option<Done> {
    Some(match args {
        ["RPUSH", key, all @ ..] => at.push(model, key, "RIGHT", all).map(integer),
        ["LPUSH", key, all @ ..] => at.push(model, key, "LEFT", all).map(integer),
        ["LPOP", key] => at.pop(model, key, "LEFT").map(maybe),
        ["RPOP", key] => at.pop(model, key, "RIGHT").map(maybe),
        ["LLEN", key] => at.list(model, key).map(|(list, _)| integer(list.len())),
        ["LRANGE", key, "0", "-1"] => at.list(model, key).map(|(list, _)| same(texts(list))),
        ["LMOVE", from, to, one, other] | ["BLMOVE", from, to, one, other, "0"] => {
            (|| {
                let (before, expires) = at.list(model, from)?;
                if before.is_empty() {
                    return Ok(maybe(None));
                }
                // The element is not taken if there is no place to put it.
                at.list(model, to)?;
                let Some(element) = at.pop(model, from, one)? else { return Ok(maybe(None)) };
                at.push(model, to, other, &[&element])?;
                if from == to {
                    // The only element left the list for a moment, and took the expiry along.
                    let (list, _) = at.list(model, to)?;
                    at.set_list(model, to, list, expires);
                }
                Ok(maybe(Some(element)))
            })()
        }
        ["BLPOP" | "BRPOP", all @ .., "0"] => {
            let end = if args[0] == "BLPOP" { "LEFT" } else { "RIGHT" };
            (|| {
                for key in all {
                    if let Some(element) = at.pop(model, key, end)? {
                        return Ok(same(texts([key.to_string(), element])));
                    }
                }
                Ok(same(Answer::Array(None)))
            })()
        }
        _ => return None,
    })
}

fn hashes(model: &mut Model, at: Circumstances, args: &[&str]) -> Option<Done> {
    let kind = CollectionKind::Hash;
    Some(match args {
        ["HSET", key, all @ ..] => {
            model.open_collection(at.database, key, kind, at.now_ms).map(|hash| {
                let mut added = 0;
                for pair in all.chunks(2) {
                    added += i64::from(model.member(hash, pair[0]).is_none());
                    let value = Some(pair[1].to_string());
                    model.set_member((at.database, key), hash, pair[0], value);
                }
                integer(added)
            })
        }
        ["HSETEX", key, "PXAT", _, "FIELDS", "1", field, value] => {
            model.open_collection(at.database, key, kind, at.now_ms).map(|hash| {
                model.set_member((at.database, key), hash, field, Some(value.to_string()));
                integer(1)
            })
        }
        // The time has not come when the history ends: the field is written unchanged.
        ["HPEXPIREAT", key, _, "FIELDS", "1", field] => {
            at.collection(model, key, kind).map(|found| {
                let value = found.and_then(|hash| model.member(hash, field));
                let is_there = value.is_some();
                if let Some(hash) = found.filter(|_| is_there) {
                    model.set_member((at.database, key), hash, field, value);
                }
                same(Answer::Array(Some(vec![Answer::Integer(if is_there { 1 } else { -2 })])))
            })
        }
        ["HGETDEL", key, "FIELDS", "1", field] => (|| {
            let found = at.collection(model, key, kind)?;
            let value = found.and_then(|hash| model.member(hash, field));
            at.remove(model, key, kind, &[field])?;
            let value = value.map_or(Answer::Text(None), Answer::text);
            Ok(same(Answer::Array(Some(vec![value]))))
        })(),
        ["HDEL", key, all @ ..] => at.remove(model, key, kind, all).map(integer),
        ["HGET", key, field] => at
            .collection(model, key, kind)
            .map(|found| maybe(found.and_then(|hash| model.member(hash, field)))),
        ["HLEN", key] => at
            .collection(model, key, kind)
            .map(|found| integer(found.map_or(0, |hash| model.members(hash).len()))),
        ["HGETALL", key] => at.collection(model, key, kind).map(|found| {
            let members = found.map(|hash| model.members(hash)).unwrap_or_default();
            let all = members.into_iter().flat_map(|(field, value)| [field, value]);
            Expected::AnyOrder(all.map(Answer::text).collect(), 2)
        }),
        _ => return None,
    })
}

fn sets(model: &mut Model, at: Circumstances, args: &[&str]) -> Option<Done> {
    let kind = CollectionKind::Set;
    let add = |model: &mut Model, key: &str, all: &[&str]| -> Result<i64, WrongType> {
        let set = model.open_collection(at.database, key, kind, at.now_ms)?;
        let mut added = 0;
        for member in all {
            if model.member(set, member).is_none() {
                model.set_member((at.database, key), set, member, Some(String::new()));
                added += 1;
            }
        }
        model.changed(at.database, key, false);
        Ok(added)
    };
    Some(match args {
        ["SADD", key, all @ ..] => add(model, key, all).map(integer),
        ["SREM", key, all @ ..] => at.remove(model, key, kind, all).map(integer),
        ["SISMEMBER", key, member] => at.collection(model, key, kind).map(|found| {
            integer(i64::from(found.is_some_and(|set| model.member(set, member).is_some())))
        }),
        ["SCARD", key] => at
            .collection(model, key, kind)
            .map(|found| integer(found.map_or(0, |set| model.members(set).len()))),
        ["SMEMBERS", key] => at.collection(model, key, kind).map(|found| {
            let members = found.map(|set| model.members(set)).unwrap_or_default();
            Expected::AnyOrder(members.into_keys().map(Answer::text).collect(), 1)
        }),
        ["SMOVE", from, to, member] => (|| {
            let Some(set) = at.collection(model, from, kind)? else { return Ok(integer(0)) };
            at.collection(model, to, kind)?;
            if model.member(set, member).is_none() {
                return Ok(integer(0));
            }
            if from != to {
                at.remove(model, from, kind, &[member])?;
                add(model, to, &[member])?;
            }
            Ok(integer(1))
        })(),
        _ => return None,
    })
}

fn sorted_sets(model: &mut Model, at: Circumstances, args: &[&str]) -> Option<Done> {
    let kind = CollectionKind::SortedSet;
    let pop = |model: &mut Model, key: &str| -> Result<Option<(String, i64)>, WrongType> {
        let Some(sorted_set) = at.collection(model, key, kind)? else { return Ok(None) };
        let (member, score) = model.lowest(sorted_set).expect("an empty one is no value");
        model.set_member((at.database, key), sorted_set, &member, None);
        Ok(Some((member, score)))
    };
    Some(match args {
        ["ZADD", key, all @ ..] => {
            model.open_collection(at.database, key, kind, at.now_ms).map(|sorted_set| {
                let mut added = 0;
                for pair in all.chunks(2) {
                    let (score, member) = (pair[0].to_string(), pair[1]);
                    let before = model.member(sorted_set, member);
                    added += i64::from(before.is_none());
                    if before.as_ref() != Some(&score) {
                        model.set_member((at.database, key), sorted_set, member, Some(score));
                    }
                }
                model.changed(at.database, key, false);
                integer(added)
            })
        }
        ["ZINCRBY", key, by, member] => {
            model.open_collection(at.database, key, kind, at.now_ms).map(|sorted_set| {
                let before = model.member(sorted_set, member).map_or(0, |score| score_of(&score));
                let sum = (before + score_of(by)).to_string();
                model.set_member((at.database, key), sorted_set, member, Some(sum.clone()));
                maybe(Some(sum))
            })
        }
        ["ZREM", key, all @ ..] => at.remove(model, key, kind, all).map(integer),
        ["ZSCORE", key, member] => at
            .collection(model, key, kind)
            .map(|found| maybe(found.and_then(|sorted_set| model.member(sorted_set, member)))),
        ["ZCARD", key] => at
            .collection(model, key, kind)
            .map(|found| integer(found.map_or(0, |sorted_set| model.members(sorted_set).len()))),
        ["ZRANGE", key, "0", "-1", "WITHSCORES"] => at.collection(model, key, kind).map(|found| {
            let members = found.map(|sorted_set| model.members(sorted_set)).unwrap_or_default();
            let mut all: Vec<_> =
                members.into_iter().map(|(member, score)| (score_of(&score), member)).collect();
            all.sort();
            same(texts(all.into_iter().flat_map(|(score, member)| [member, score.to_string()])))
        }),
        ["ZPOPMIN", key] => pop(model, key).map(|popped| {
            let all = popped.into_iter().flat_map(|(member, score)| [member, score.to_string()]);
            same(texts(all))
        }),
        ["BZPOPMIN", all @ .., "0"] => (|| {
            for key in all {
                if let Some((member, score)) = pop(model, key)? {
                    return Ok(same(texts([key.to_string(), member, score.to_string()])));
                }
            }
            Ok(same(Answer::Array(None)))
        })(),
        _ => return None,
    })
}
