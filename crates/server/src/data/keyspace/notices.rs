//! Keyspace events: messages to subscribers about written keys.
//!
//! A command notes the keys it writes. At the end of the command its name determines the events of
//! the keys, as in Redis. The events are delivered when the transaction is on disk.

use super::{Context, Entry, Keyspace};
use crate::catalogue::{Command, EventRule, RequestKeys};
use crate::clients::channels::{Publication, Topic};
use crate::config::EventClasses;
use crate::data::head::Head;

impl EventClasses {
    /// The messages of an event.
    fn publish(self, class: char, (database, key): (u32, &[u8]), event: &str, out: &mut Events) {
        if !self.has(class) {
            return;
        }
        let publication =
            |channel, payload| Publication { topic: Topic::Channel, channel, payload };
        if self.has('K') {
            let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
            out.push(publication(channel, event.into()));
        }
        if self.has('E') {
            let channel = format!("__keyevent@{database}__:{event}").into_bytes();
            out.push(publication(channel, key.into()));
        }
    }

    /// The messages of a key that has expired.
    pub fn publish_expired(self, database: u32, key: &[u8], out: &mut Events) {
        self.publish('x', (database, key), "expired", out);
    }
}

impl EventClasses {
    /// The messages of a hash with expired fields, perhaps all.
    pub fn publish_fields_expired(self, key: (u32, &[u8]), is_over: bool, out: &mut Events) {
        self.publish('h', key, "hexpired", out);
        if is_over {
            self.publish('g', key, "del", out);
        }
    }
}

/// Messages of events.
pub type Events = Vec<Publication>;

/// Messages to other clients about the writes of commands.
#[derive(Debug, Default)]
pub struct Notices {
    /// Messages.
    pub events: Events,
    /// The keys, some perhaps twice, if clients track.
    pub keys: Vec<Vec<u8>>,
}

impl Notices {
    /// Takes the keys written by a command.
    #[inline]
    pub fn note(&mut self, context: &Context<'_>, command: &Command, args: &[&[u8]]) {
        if context.events.is_on() || context.tracks {
            let written = std::mem::take(&mut context.effects.borrow_mut().written_keys);
            self.note_written((context.events, context.tracks), command, args, written);
        }
    }

    /// As `note`, for these classes of events, and with the keys if clients track.
    pub fn note_written(
        &mut self,
        (classes, tracks): (EventClasses, bool),
        command: &Command,
        args: &[&[u8]],
        written: Vec<WrittenKey>,
    ) {
        if tracks {
            let keys = written.iter().filter(|written| !written.is_miss);
            self.keys.extend(keys.map(|written| written.key.clone()));
        }
        if classes.is_on() {
            events(classes, command, args, written, &mut self.events);
        }
    }

    /// Takes the earlier notices of `other`.
    pub fn append(&mut self, other: &mut Notices) {
        self.events.append(&mut other.events);
        self.keys.append(&mut other.keys);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.events.clear();
        self.keys.clear();
    }
}

/// A key written, or missed, by a command.
#[derive(Clone, Debug)]
pub struct WrittenKey {
    database: u32,
    key: Vec<u8>,
    /// The head before, if the value had not expired.
    before: Option<Head>,
    /// The value before had expired.
    had_expired: bool,
    /// The head now.
    now: Option<Head>,
    /// The value before was a hash whose fields had all expired.
    was_over: bool,
    /// Fields of the hash have expired.
    has_lapsed: bool,
    /// The key was read, and did not exist.
    is_miss: bool,
    /// The event, if the command has told one.
    told: Option<&'static str>,
}

impl WrittenKey {
    /// Whether the key was removed.
    fn is_gone(&self) -> bool {
        self.before.is_some() && self.now.is_none()
    }

    /// A hash with expired fields.
    pub(super) fn lapsed(database: u32, key: &[u8], head: Option<Head>) -> WrittenKey {
        WrittenKey {
            database,
            key: key.to_vec(),
            before: head,
            had_expired: false,
            was_over: false,
            has_lapsed: true,
            now: head,
            is_miss: false,
            told: None,
        }
    }
}

impl Entry<'_, '_> {
    /// Notes a written key, if events are on.
    pub(super) fn note_written(&self, now: Option<Head>) {
        let Keyspace { context, database, .. } = self.space();
        if context.events.is_on() || context.tracks {
            context.effects.borrow_mut().written_keys.push(WrittenKey {
                database: *database,
                key: self.key().to_vec(),
                before: self.head(),
                had_expired: self.has_expired() && !self.is_over(),
                was_over: self.is_over(),
                has_lapsed: false,
                now,
                is_miss: false,
                told: None,
            });
        }
    }

    /// Tells an event of an existing key, for a command that tells all its events itself.
    pub fn tell(&self, head: Head, event: &'static str) {
        let Keyspace { context, database, .. } = self.space();
        if context.events.is_on() {
            context.effects.borrow_mut().written_keys.push(WrittenKey {
                database: *database,
                key: self.key().to_vec(),
                before: Some(head),
                had_expired: false,
                was_over: false,
                has_lapsed: false,
                now: Some(head),
                is_miss: false,
                told: Some(event),
            });
        }
    }
}

impl Keyspace<'_> {
    /// Notes a key that was read and does not exist, if a miss is an event.
    pub(super) fn note_miss(&self, key: &[u8]) {
        if self.context.events.tells_misses() {
            self.context.effects.borrow_mut().written_keys.push(WrittenKey {
                database: self.database,
                key: key.to_vec(),
                before: None,
                had_expired: false,
                was_over: false,
                has_lapsed: false,
                now: None,
                is_miss: true,
                told: None,
            });
        }
    }
}

/// The messages of the keys written by a command.
fn events(
    classes: EventClasses,
    command: &Command,
    args: &[&[u8]],
    mut all: Vec<WrittenKey>,
    out: &mut Events,
) {
    // The key from which elements are taken is told first, whatever was written first; and the
    // removal of elements is told before the removal of their key.
    match command.event {
        EventRule::Told => all.sort_by_key(|written| written.told.is_none() && written.is_gone()),
        EventRule::Renamed | EventRule::Moved => all.sort_by_key(|written| written.now.is_some()),
        EventRule::MemberMoved => {
            all.sort_by_key(|written| written.now.is_some() && written.key != args[1]);
        }
        _ => {}
    }
    for written in all {
        let key = (written.database, &written.key[..]);
        if written.is_miss {
            classes.publish('m', key, "keymiss", out);
            continue;
        }
        if written.has_lapsed {
            classes.publish_fields_expired(key, false, out);
            continue;
        }
        if written.was_over {
            classes.publish_fields_expired(key, true, out);
        }
        if written.had_expired {
            classes.publish_expired(written.database, &written.key, out);
        }
        if written.before.is_none() && written.now.is_none() {
            continue;
        }
        if written.before.is_none() && written.now.is_some() {
            classes.publish('n', key, "new", out);
        }
        let mut removal_is_told = false;
        for event in names(command, args, &written) {
            removal_is_told |= matches!(event, "del" | "rename_from" | "move_from");
            classes.publish(class(command, event), key, event, out);
        }
        if written.now.is_none() && !removal_is_told {
            classes.publish('g', key, "del", out);
        }
    }
}

/// The class of an event.
fn class(command: &Command, event: &str) -> char {
    match event {
        "del" | "expire" | "persist" | "rename_from" | "rename_to" | "move_from" | "move_to"
        | "copy_to" | "restore" => 'g',
        "sortstore" => 'l',
        _ => match command.group {
            "list" => 'l',
            "set" => 's',
            "hash" => 'h',
            "sorted-set" | "geo" => 'z',
            "stream" => 't',
            _ => '$',
        },
    }
}

/// The events of a key written by a command, except the key's removal where it follows the events.
fn names(command: &Command, args: &[&[u8]], written: &WrittenKey) -> Vec<&'static str> {
    let is = |at: usize, word: &str| args.get(at).is_some_and(|arg| is_word(arg, word));
    let is_key = |at: usize| args.get(at).is_some_and(|arg| *arg == written.key);
    let is_removed = written.now.is_none();
    let expires = written.now.is_some_and(|now| now.expires().is_some());
    let moves = |from_left: bool, to_left: bool| {
        let pushed = is_key(2).then_some(if to_left { "lpush" } else { "rpush" });
        let popped = is_key(1).then_some(if from_left { "lpop" } else { "rpop" });
        pushed.into_iter().chain(popped).collect()
    };
    match command.event {
        EventRule::None => vec![],
        EventRule::Told => written.told.into_iter().collect(),
        EventRule::Own => vec![command.name],
        EventRule::Named(name) => vec![name],
        EventRule::Stored(name) => {
            if is_removed {
                vec![]
            } else {
                vec![name]
            }
        }
        EventRule::Renamed => vec![if is_removed { "rename_from" } else { "rename_to" }],
        EventRule::Moved => vec![if is_removed { "move_from" } else { "move_to" }],
        EventRule::MemberMoved => vec![if is_key(1) { "srem" } else { "sadd" }],
        EventRule::Set
        | EventRule::SetExpiring
        | EventRule::SetWithOptions
        | EventRule::Expiry
        | EventRule::Restored
            if is_removed =>
        {
            vec![]
        }
        EventRule::SetExpiring if expires => vec!["set", "expire"],
        EventRule::SetWithOptions if expires && !keeps_expiry(args) => {
            vec!["set", "expire"]
        }
        EventRule::Set | EventRule::SetExpiring | EventRule::SetWithOptions => vec!["set"],
        EventRule::Expiry => vec![if expires { "expire" } else { "persist" }],
        EventRule::Restored => vec!["restore"],
        EventRule::PoppedAt(word, named, otherwise) => {
            // Keys may have any name, even the name of an option.
            let last = RequestKeys::of(command, args).keys.last().map(|(at, _)| *at);
            vec![if last.is_some_and(|at| is(at + 1, word)) { named } else { otherwise }]
        }
        EventRule::ElementMovedBetween => moves(is(3, "LEFT"), is(4, "LEFT")),
        EventRule::ElementMoved => moves(false, true),
        EventRule::ScoresAdded => {
            let adds = zadd_options(args).any(|option| is_word(option, "INCR"));
            vec![if adds { "zincr" } else { command.name }]
        }
    }
}

/// Whether an option of SET keeps the time of expiry. A string for comparison may have the name of
/// the option.
fn keeps_expiry(args: &[&[u8]]) -> bool {
    const COMPARE: [&str; 4] = ["IFEQ", "IFNE", "IFDEQ", "IFDNE"];
    let compares = |arg: &[u8]| COMPARE.iter().any(|option| is_word(arg, option));
    let is_it = |pair: &[&[u8]]| is_word(pair[1], "KEEPTTL") && !compares(pair[0]);
    args.windows(2).skip(2).any(is_it)
}

/// The options of ZADD: the arguments in front of the first score. A member may have the name of an
/// option.
fn zadd_options<'a>(args: &[&'a [u8]]) -> impl Iterator<Item = &'a [u8]> {
    const OPTIONS: [&str; 6] = ["NX", "XX", "GT", "LT", "CH", "INCR"];
    let is_option = |arg: &&[u8]| OPTIONS.iter().any(|option| is_word(arg, option));
    args.iter().skip(2).copied().take_while(is_option)
}

fn is_word(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
