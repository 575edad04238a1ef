//! The recovered state of a server, as a client finds it.

mod streams;

use super::model::{CollectionKind, Recovered, RecoveredState};
use super::reply::{Answer, encode};
use super::script::DATABASES;
use hyades_server::torture::SteppedServer;
use std::collections::BTreeMap;

struct Inspector<'s> {
    server: &'s mut SteppedServer,
    number: usize,
}

impl Inspector<'_> {
    fn ask(&mut self, text: &str) -> Answer {
        let mut bytes = Vec::new();
        let words: Vec<String> = text.split(' ').map(str::to_string).collect();
        encode(&words, &mut bytes);
        self.server.feed(self.number, &bytes);
        let mut replies = Vec::new();
        loop {
            replies.extend(self.server.run(self.number).replies);
            // Taken replies make room for later replies.
            self.server.output(self.number);
            if let Some((answer, _)) = Answer::parse(&replies) {
                return answer;
            }
        }
    }

    fn pairs(&mut self, text: &str) -> BTreeMap<String, String> {
        let all = self.ask(text).texts();
        all.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }

    /// The value of a key; `None` if the key expires meanwhile.
    fn value(&mut self, key: &str) -> Option<Recovered> {
        let Answer::Simple(kind) = self.ask(&format!("TYPE {key}")) else { return None };
        let collection = |kind, members| Some(Recovered::Collection(kind, members));
        match kind.as_str() {
            "string" => match self.ask(&format!("GET {key}")) {
                Answer::Text(text) => text.map(Recovered::Text),
                _ => None,
            },
            "list" => Some(Recovered::List(self.ask(&format!("LRANGE {key} 0 -1")).texts())),
            "hash" => collection(CollectionKind::Hash, self.pairs(&format!("HGETALL {key}"))),
            "set" => {
                let members = self.ask(&format!("SMEMBERS {key}")).texts();
                let members = members.into_iter().map(|member| (member, String::new()));
                collection(CollectionKind::Set, members.collect())
            }
            "zset" => {
                let members = self.pairs(&format!("ZRANGE {key} 0 -1 WITHSCORES"));
                collection(CollectionKind::SortedSet, members)
            }
            "stream" => self.stream(key).map(Recovered::Stream),
            _ => None,
        }
    }
}

/// The whole recovered state. The clock must stand.
pub(crate) fn state(server: &mut SteppedServer) -> Result<RecoveredState, String> {
    let number = server.connect(0);
    let mut inspector = Inspector { server, number };
    let mut all = Vec::new();
    for database in 0..DATABASES {
        inspector.ask(&format!("SELECT {database}"));
        let mut keys = BTreeMap::new();
        for key in inspector.ask("KEYS *").texts() {
            let value = inspector.value(&key);
            let value = value.ok_or_else(|| format!("{key} is there, and has no value"))?;
            let expires = match inspector.ask(&format!("PEXPIRETIME {key}")) {
                Answer::Integer(at) => Some(at).filter(|at| *at >= 0),
                other => return Err(format!("{key} expires at {other:?}")),
            };
            let length = match &value {
                Recovered::Collection(CollectionKind::Hash, _) => "HLEN",
                Recovered::Collection(CollectionKind::Set, _) => "SCARD",
                Recovered::Collection(CollectionKind::SortedSet, _) => "ZCARD",
                Recovered::List(_) => "LLEN",
                Recovered::Text(_) => "STRLEN",
                Recovered::Stream(_) => "XLEN",
            };
            let counted = match &value {
                Recovered::Collection(_, members) => members.len(),
                Recovered::List(list) => list.len(),
                Recovered::Text(text) => text.len(),
                Recovered::Stream(stream) => stream.log.entries.len(),
            };
            let may_be_empty = matches!(value, Recovered::Stream(_));
            let length = inspector.ask(&format!("{length} {key}"));
            if length != Answer::Integer(counted as i64) || counted == 0 && !may_be_empty {
                return Err(format!(
                    "{key} has {counted} elements, and is said to have {length:?}"
                ));
            }
            keys.insert(key, (value, expires));
        }
        all.push(keys);
    }
    server.disconnect(number);
    Ok(all)
}
