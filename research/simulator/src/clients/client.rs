//! A client of a life: its requests, the requests that have run, and the replies received.

use super::commands::{self, Circumstances};
use super::model::{Body, Changes, Model};
use super::reply::{Answer, Expected};
use super::script::{OWN_NUMBER, Words};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The time at which a client is told of its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Acknowledged,
    Second,
    Free,
}

impl Mode {
    fn named(name: &str) -> Mode {
        match name {
            "ack" => Mode::Acknowledged,
            "1s" => Mode::Second,
            "none" => Mode::Free,
            other => unreachable!("no such mode: {other}"),
        }
    }
}

/// The longest time of early replies under [`Mode::Second`], in milliseconds.
const SECOND_MS: i64 = 1_000;

/// A request that has run, with a reply perhaps on its way.
struct Executed {
    answer: Answer,
    transaction: Option<usize>,
    mode: Mode,
    /// A client that is told of the request may rely on the request.
    is_reliable: bool,
    /// A client that is told of the request may rely on all requests before.
    is_barrier: bool,
}

/// A watched key.
struct WatchedName {
    database: u32,
    key: String,
    changes: Changes,
    /// The key may go by itself.
    expires: bool,
    /// The key does not exist. A key that is absent again is unchanged.
    is_absent: bool,
}

/// A client.
pub(crate) struct TortureClient {
    /// The number of the client in the server.
    pub number: usize,
    /// The requests to send next.
    pub planned: VecDeque<(u64, Words)>,
    next_number: u64,
    /// The requests sent that have not run.
    pub asked: VecDeque<(u64, Words)>,
    executed: VecDeque<Executed>,
    /// Bytes of an incomplete reply.
    output: Vec<u8>,
    database: u32,
    mode: Mode,
    multi: Option<Vec<Words>>,
    watched: Vec<WatchedName>,
    /// Transactions on which the client could not rely when told.
    unsure: Vec<usize>,
    /// Marks of transactions not yet on disk.
    marks: BTreeSet<u64>,
    /// The marks with surely early replies, with their times.
    early: Vec<(u64, i64)>,
    /// CLIENT UNBLOCK was sent to the client.
    pub is_unblocked: bool,
    /// The events of the client, with their counts.
    pub counts: BTreeMap<&'static str, u64>,
}

/// The error shown by a reply.
pub(crate) enum Fault {
    /// The reply differs from the reply of the command.
    Reply(String),
    /// The reply has no request, or precedes an earlier reply.
    Order(String),
}

/// The next step of the driver after a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    /// A client was unblocked, by the number from CLIENT ID.
    Unblocked(u64),
    /// The log has failed.
    LogFailed,
}

impl TortureClient {
    /// A client that has just connected.
    pub fn new(number: usize) -> TortureClient {
        TortureClient {
            number,
            planned: VecDeque::new(),
            next_number: 0,
            asked: VecDeque::new(),
            executed: VecDeque::new(),
            output: Vec::new(),
            database: 0,
            mode: Mode::Acknowledged,
            multi: None,
            watched: Vec::new(),
            unsure: Vec::new(),
            marks: BTreeSet::new(),
            early: Vec::new(),
            is_unblocked: false,
            counts: BTreeMap::new(),
        }
    }

    /// Plans requests that belong together.
    pub fn plan(&mut self, scene: Vec<Words>) {
        let ends_at = self.next_number + scene.len() as u64 - 1;
        let is_exec = scene.last().is_some_and(|last| last[0] == "EXEC");
        for mut request in scene {
            let number = self.next_number;
            self.next_number += 1;
            let known = if is_exec { ends_at } else { number };
            let own_number = format!("{}:{known}", self.number);
            let is_publish = request[0] == "PUBLISH";
            let own = |word: &&mut String| match is_publish {
                true => *word == OWN_NUMBER,
                // A command of a script.
                false => word.starts_with("PUBLISH ") && word.ends_with(OWN_NUMBER),
            };
            for word in request.iter_mut().filter(own) {
                *word = word.replace(OWN_NUMBER, &own_number);
            }
            self.planned.push_back((number, request));
        }
    }

    /// Whether all requests that have run were told.
    pub fn is_told_all(&self) -> bool {
        self.executed.is_empty()
    }

    /// Handles the replies of a turn of this client. `marks` belong to transactions that wait for
    /// the disk.
    pub fn ran(
        &mut self,
        model: &mut Model,
        mut replies: &[u8],
        marks: &[u64],
        now_ms: i64,
    ) -> Result<Vec<Then>, Fault> {
        let is_overdue = self.early.iter().any(|(_, since)| now_ms - since >= SECOND_MS);
        // Under `1s` the replies are early, if nothing before waits.
        let (mut all_early, mut then) = (!replies.is_empty(), Vec::new());
        let is_first = self.marks.is_empty();
        while let Some((answer, length)) = Answer::parse(replies) {
            replies = &replies[length..];
            then.push(self.execute(model, answer, now_ms, is_overdue)?);
            let mode = self.executed.back().map_or(self.mode, |last| last.mode);
            all_early &= mode == Mode::Free || mode == Mode::Second && is_first;
        }
        if !replies.is_empty() {
            return Err(Fault::Order("a reply was written in part".to_string()));
        }
        self.marks.extend(marks);
        if all_early {
            self.early.extend(marks.iter().map(|mark| (*mark, now_ms)));
        }
        Ok(then)
    }

    /// A mark was acknowledged.
    pub fn acknowledged(&mut self, mark: u64) {
        self.marks.remove(&mark);
        self.early.retain(|(early, _)| *early != mark);
    }

    fn execute(
        &mut self,
        model: &mut Model,
        answer: Answer,
        now_ms: i64,
        is_overdue: bool,
    ) -> Result<Then, Fault> {
        let Some((number, request)) = self.asked.pop_front() else {
            return Err(Fault::Order(format!("{answer:?} is a reply to nothing")));
        };
        let (mut mode, mut is_barrier, mut then) = (self.mode, false, Then::Nothing);
        let (mut is_transaction, mut queued) = (true, String::new());
        let at = Circumstances { database: self.database, now_ms };
        let is_misconf = answer.is_error("MISCONF");
        let expected = match (request[0].as_str(), self.multi.is_some()) {
            _ if is_misconf => {
                then = Then::LogFailed;
                is_transaction = false;
                Expected::Any
            }
            ("EXEC", true) => {
                let all = self.multi.iter().flatten().map(|words| words.join(" "));
                queued = format!(" of {}", all.collect::<Vec<_>>().join("; "));
                self.exec(model, at, &answer, &mut mode)?
            }
            ("DISCARD", true) => {
                (self.multi, is_transaction) = (None, false);
                self.watched.clear();
                Expected::Same(Answer::ok())
            }
            (_, true) => {
                self.multi.as_mut().expect("it was found").push(request.clone());
                is_transaction = false;
                Expected::Same(Answer::Simple("QUEUED".into()))
            }
            ("WATCH", _) => {
                self.watch(model, at, &request[1..]);
                Expected::Same(Answer::ok())
            }
            ("BLPOP" | "BRPOP" | "BLMOVE" | "BZPOPMIN", _)
                if answer.is_null() || answer.is_error("UNBLOCKED") =>
            {
                is_transaction = false;
                self.end_waiting(&request, &answer)?
            }
            _ => match self.local(&request, &answer, &mut is_barrier, &mut then) {
                Some(expected) => {
                    is_transaction = false;
                    expected
                }
                None => commands::apply(model, at, &request),
            },
        };
        if !expected.is(&answer) {
            let text = request.join(" ");
            return Err(Fault::Reply(format!("{text} replied {answer:?}, not {expected:?}")));
        }
        self.count_streams(&request, &answer);
        let database = self.database;
        let overdue = if is_overdue { ", overdue" } else { "" };
        let text = format!("{database}, {mode:?}{overdue}> {}{queued}", request.join(" "));
        let transaction = is_transaction.then(|| model.end(self.number, number, text));
        let is_reliable = match mode {
            Mode::Acknowledged => true,
            Mode::Second => is_overdue,
            Mode::Free => false,
        };
        self.executed.push_back(Executed { answer, transaction, mode, is_reliable, is_barrier });
        Ok(then)
    }

    /// Counts the results of commands of groups that were sent alone.
    fn count_streams(&mut self, request: &Words, answer: &Answer) {
        let what = match (request[0].as_str(), answer) {
            ("XREADGROUP", Answer::Array(Some(_))) => "streams: read by a group",
            ("XACK", Answer::Integer(1..)) => "streams: acknowledged",
            ("XCLAIM", Answer::Array(Some(all))) if !all.is_empty() => "streams: claimed",
            _ => return,
        };
        *self.counts.entry(what).or_default() += 1;
    }

    /// A command that waited has no element: CLIENT UNBLOCK was sent.
    fn end_waiting(&mut self, request: &Words, answer: &Answer) -> Result<Expected, Fault> {
        if !std::mem::take(&mut self.is_unblocked) {
            let text = request.join(" ");
            return Err(Fault::Reply(format!("{text} replied {answer:?} unasked")));
        }
        *self.counts.entry("clients: waited, and were unblocked").or_default() += 1;
        Ok(Expected::Any)
    }

    /// The reply to a command on the connection or the server, if the request is a command of that
    /// kind.
    fn local(
        &mut self,
        request: &Words,
        answer: &Answer,
        is_barrier: &mut bool,
        then: &mut Then,
    ) -> Option<Expected> {
        let ok = Expected::Same(Answer::ok());
        Some(match request[0].as_str() {
            "MULTI" => {
                self.multi = Some(Vec::new());
                ok
            }
            "SELECT" => {
                self.database = request[1].parse().expect("it is a number");
                ok
            }
            "HYADES.DURABILITY" => {
                self.mode = Mode::named(&request[1]);
                *is_barrier = self.mode == Mode::Acknowledged;
                ok
            }
            "WAITAOF" => {
                *is_barrier = true;
                let counts = vec![Answer::Integer(1), Answer::Integer(0)];
                Expected::Same(Answer::Array(Some(counts)))
            }
            "PUBLISH" => Expected::Any,
            "CLIENT" => {
                if *answer == Answer::Integer(1) {
                    *then = Then::Unblocked(request[2].parse().expect("it is a number"));
                }
                Expected::Any
            }
            _ => return None,
        })
    }

    fn watch(&mut self, model: &mut Model, at: Circumstances, keys: &[String]) {
        for key in keys {
            let is_absent = model.head(at.database, key, at.now_ms).is_none();
            let expires = model.expires(at.database, key);
            let (database, key) = (at.database, key.clone());
            let changes = model.changes.entry((database, key.clone())).or_default();
            self.watched.push(WatchedName { database, key, changes: *changes, expires, is_absent });
        }
    }

    fn exec(
        &mut self,
        model: &mut Model,
        at: Circumstances,
        answer: &Answer,
        mode: &mut Mode,
    ) -> Result<Expected, Fault> {
        let queued = self.multi.take().expect("it was found");
        let watched = std::mem::take(&mut self.watched);
        let (mut may_fail, mut changed, mut first) = (false, Vec::new(), None);
        for watch in &watched {
            let now = model.changes[&(watch.database, watch.key.clone())];
            if !may_fail && now.surely != watch.changes.surely {
                first = Some(watch);
            }
            may_fail |= now.perhaps != watch.changes.perhaps || watch.expires;
            may_fail |= model.expires(watch.database, &watch.key);
            let is_absent = model.peek_head(watch.database, &watch.key, at.now_ms).is_none();
            if now.surely != watch.changes.surely && !(watch.is_absent && is_absent) {
                changed.push(format!("{} in database {}", watch.key, watch.database));
            }
        }
        if *answer == Answer::Array(None) {
            *self.counts.entry("clients: EXEC failed by WATCH").or_default() += 1;
            // The keys behind the first changed key are not looked at.
            if let Some(watch) = first {
                model.head(watch.database, &watch.key, at.now_ms);
            }
            return match may_fail {
                true => Ok(Expected::Any),
                false => Err(Fault::Reply("EXEC failed, and nothing has changed".to_string())),
            };
        }
        if !changed.is_empty() {
            let changed = changed.join(", ");
            return Err(Fault::Reply(format!("EXEC ran, and {changed} had changed since WATCH")));
        }
        let mut all = Vec::new();
        let mut database = at.database;
        for request in queued {
            all.push(match request[0].as_str() {
                "SELECT" => {
                    database = request[1].parse().expect("it is a number");
                    Expected::Same(Answer::ok())
                }
                "HYADES.DURABILITY" => {
                    *mode = Mode::named(&request[1]);
                    Expected::Same(Answer::ok())
                }
                "PUBLISH" => Expected::Any,
                _ => {
                    let at = Circumstances { database, ..at };
                    commands::apply(model, at, &request)
                }
            });
        }
        self.database = database;
        Ok(Expected::All(all))
    }

    /// Bytes have arrived at the client; the log may have failed.
    pub fn hear(&mut self, model: &mut Model, bytes: &[u8], log_failed: bool) -> Result<(), Fault> {
        self.output.extend_from_slice(bytes);
        while let Some((answer, length)) = Answer::parse(&self.output) {
            self.output.drain(..length);
            // The last reply: the command that waits for an element waits in vain.
            if log_failed && answer.is_error("MISCONF") {
                continue;
            }
            let Some(executed) = self.executed.pop_front() else {
                return Err(Fault::Order(format!("{answer:?} was sent, and is no reply")));
            };
            if answer.is_error("OUTCOMEUNKNOWN") {
                if !log_failed {
                    let text = format!("{answer:?} was sent, and the log has not failed");
                    return Err(Fault::Order(text));
                }
                continue;
            }
            if answer != executed.answer {
                return Err(Fault::Order(format!(
                    "{answer:?} was sent where the reply is {:?}",
                    executed.answer
                )));
            }
            if executed.is_barrier {
                self.unsure.drain(..).for_each(|transaction| model.tell(transaction));
            }
            if executed.is_barrier {
                *self.counts.entry("clients: told that all before is on disk").or_default() += 1;
            }
            match executed.transaction {
                Some(transaction) if executed.is_reliable => model.tell(transaction),
                Some(transaction) => {
                    *self.counts.entry("clients: told early").or_default() += 1;
                    self.unsure.push(transaction);
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Whether the model has something for the waiting command of the client.
    pub fn could_go_on(&self, model: &mut Model, now_ms: i64) -> Option<String> {
        let (_, request) = self.asked.front()?;
        let keys = match request[0].as_str() {
            "BLMOVE" => &request[1..2],
            "BLPOP" | "BRPOP" | "BZPOPMIN" => &request[1..request.len() - 1],
            _ => return Some(request.join(" ")),
        };
        let has = |key: &String| {
            let head = model.head(self.database, key, now_ms);
            matches!(head, Some((Body::List(_) | Body::Collection(..), _)))
        };
        keys.iter().any(has).then(|| request.join(" "))
    }
}

impl Fault {
    /// Whether the fault is a fault of order, and the description.
    pub fn into_parts(self) -> (bool, String) {
        match self {
            Fault::Reply(text) => (false, text),
            Fault::Order(text) => (true, text),
        }
    }
}
