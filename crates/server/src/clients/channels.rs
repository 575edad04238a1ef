//! Publish and subscribe: the subscribers of each channel, and the messages on their way.
//!
//! A message is handed to the subscribers' event loops once everything that the publisher was told
//! before the message is on disk: so no subscriber hears of anything that a crash takes back.

use crate::base::glob;
use crate::clients::ClientEntry;
use crate::clients::monitors::MonitorLine;
use crate::clients::tracking::Invalidation;
use crate::config::OutputLimits;
use crate::resp::reply::Reply;
use hyades_platform::sync::Unpoisoned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};

/// The kind of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// A channel.
    Channel,
    /// All channels whose names match a pattern.
    Pattern,
    /// A shard channel, the target of SPUBLISH.
    Shard,
}

impl Topic {
    /// The words of the replies for a subscription, its end, and a message.
    pub fn words(self) -> [&'static str; 3] {
        match self {
            Topic::Channel => ["subscribe", "unsubscribe", "message"],
            Topic::Pattern => ["psubscribe", "punsubscribe", "pmessage"],
            Topic::Shard => ["ssubscribe", "sunsubscribe", "smessage"],
        }
    }
}

/// A message to a channel.
#[derive(Debug)]
pub struct Publication {
    /// [`Topic::Channel`] or [`Topic::Shard`].
    pub topic: Topic,
    /// The channel.
    pub channel: Vec<u8>,
    /// The message.
    pub payload: Vec<u8>,
}

/// A message on the way to a client.
#[derive(Clone)]
pub enum Delivery {
    /// A message to a subscriber, with the matching pattern.
    Message(Arc<Publication>, Option<Arc<[u8]>>),
    /// A line to a client that monitors.
    Line(MonitorLine),
    /// Written keys, to a client that tracks, or to a connection in the client's place.
    Invalidation(Invalidation, bool),
}

impl Delivery {
    /// Bytes of the delivery until the send, about.
    pub fn bytes(&self) -> usize {
        const HEAD: usize = 96;
        HEAD + match self {
            Delivery::Message(publication, pattern) => {
                let Publication { channel, payload, .. } = &**publication;
                channel.len() + payload.len() + pattern.as_ref().map_or(0, |pattern| pattern.len())
            }
            Delivery::Line(line) => line.len(),
            Delivery::Invalidation(what, _) => what.bytes(),
        }
    }

    /// Writes the delivery for its client.
    pub fn write(&self, reply: &mut Reply<'_>) {
        let (publication, pattern) = match self {
            Delivery::Message(publication, pattern) => (publication, pattern),
            Delivery::Line(line) => return reply.simple(line),
            Delivery::Invalidation(what, _) => return what.write(reply),
        };
        let (topic, name) = subscription(publication, pattern);
        let Publication { channel, payload, .. } = &**publication;
        reply.push(if topic == Topic::Pattern { 4 } else { 3 });
        reply.bulk(topic.words()[2].as_bytes());
        reply.bulk(name);
        if topic == Topic::Pattern {
            reply.bulk(channel);
        }
        reply.bulk(payload);
    }
}

/// The subscription through which a subscriber gets a message.
fn subscription<'a>(
    publication: &'a Publication,
    pattern: &'a Option<Arc<[u8]>>,
) -> (Topic, &'a [u8]) {
    match pattern {
        Some(pattern) => (Topic::Pattern, pattern),
        None => (publication.topic, &publication.channel),
    }
}

/// The subscribers of a name, by their numbers.
type Listeners = BTreeMap<u64, Arc<ClientEntry>>;

#[derive(Default)]
struct Listening {
    channels: BTreeMap<Vec<u8>, Listeners>,
    patterns: BTreeMap<Arc<[u8]>, Listeners>,
    shards: BTreeMap<Vec<u8>, Listeners>,
}

impl Listening {
    fn of(&self, topic: Topic) -> &BTreeMap<Vec<u8>, Listeners> {
        match topic {
            Topic::Channel => &self.channels,
            Topic::Shard => &self.shards,
            Topic::Pattern => unreachable!("patterns have a map of another type"),
        }
    }
}

/// All subscriptions.
pub struct Channels {
    /// Bounds of the bytes that wait for a subscriber.
    limits: Arc<OutputLimits>,
    listening: RwLock<Listening>,
}

impl Channels {
    /// Makes an empty set of subscriptions.
    pub fn new(limits: Arc<OutputLimits>) -> Arc<Channels> {
        Arc::new(Channels { limits, listening: RwLock::default() })
    }

    fn add(&self, topic: Topic, name: &[u8], client: &Arc<ClientEntry>) {
        let mut listening = self.listening.write().unpoisoned();
        let listeners = match topic {
            Topic::Channel => listening.channels.entry(name.to_vec()).or_default(),
            Topic::Pattern => listening.patterns.entry(name.into()).or_default(),
            Topic::Shard => listening.shards.entry(name.to_vec()).or_default(),
        };
        listeners.insert(client.id, client.clone());
    }

    fn remove(&self, topic: Topic, name: &[u8], client: &ClientEntry) {
        fn remove_from<K: Ord + std::borrow::Borrow<[u8]>>(
            all: &mut BTreeMap<K, Listeners>,
            name: &[u8],
            id: u64,
        ) {
            let Some(listeners) = all.get_mut(name) else { return };
            listeners.remove(&id);
            if listeners.is_empty() {
                all.remove(name);
            }
        }
        let mut listening = self.listening.write().unpoisoned();
        match topic {
            Topic::Channel => remove_from(&mut listening.channels, name, client.id),
            Topic::Pattern => remove_from(&mut listening.patterns, name, client.id),
            Topic::Shard => remove_from(&mut listening.shards, name, client.id),
        }
    }

    /// Calls `each` for every delivery of a message, with its subscriber; returns the number of
    /// calls.
    fn for_each(
        &self,
        (topic, channel): (Topic, &[u8]),
        mut each: impl FnMut(&ClientEntry, Option<&Arc<[u8]>>),
    ) -> usize {
        let listening = self.listening.read().unpoisoned();
        let mut count = 0;
        for listener in listening.of(topic).get(channel).into_iter().flat_map(Listeners::values) {
            each(listener, None);
            count += 1;
        }
        let patterns = listening.patterns.iter().filter(|(pattern, _)| {
            topic == Topic::Channel && glob::matches(pattern, channel, false)
        });
        for (pattern, listener) in patterns
            .flat_map(|(pattern, all)| all.values().map(move |listener| (pattern, listener)))
        {
            each(listener, Some(pattern));
            count += 1;
        }
        count
    }

    /// The number of deliveries of a message to a channel now.
    pub fn count_deliveries(&self, topic: Topic, channel: &[u8]) -> usize {
        self.for_each((topic, channel), |_, _| {})
    }

    /// Hands a message to all its subscribers.
    pub fn deliver(&self, publication: &Arc<Publication>) {
        let to = (publication.topic, &publication.channel[..]);
        self.for_each(to, |listener, pattern| {
            let (publication, pattern) = (publication.clone(), pattern.cloned());
            let limit = self.limits.get(true);
            listener.inbox.add(listener, limit, Delivery::Message(publication, pattern));
        });
    }

    /// Whether there are subscribers of any channel or pattern.
    pub fn is_heard(&self) -> bool {
        let listening = self.listening.read().unpoisoned();
        !listening.channels.is_empty() || !listening.patterns.is_empty()
    }

    /// The names of channels with subscribers; with a pattern, only the matching names.
    pub fn names(&self, topic: Topic, pattern: Option<&[u8]>) -> Vec<Vec<u8>> {
        let listening = self.listening.read().unpoisoned();
        let is_wanted =
            |name: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, name, false));
        listening.of(topic).keys().filter(is_wanted).cloned().collect()
    }

    /// The number of a channel's subscribers, without subscribers by pattern.
    pub fn count_subscribers(&self, topic: Topic, channel: &[u8]) -> usize {
        let listening = self.listening.read().unpoisoned();
        listening.of(topic).get(channel).map_or(0, Listeners::len)
    }

    /// The clients among `clients`, by number, with a subscription to a name that is not allowed. A
    /// name is looked at once, however many of `clients` have subscribed to the name.
    pub fn listeners_beyond(
        &self,
        clients: &BTreeSet<u64>,
        is_allowed: impl Fn(Topic, &[u8]) -> bool,
    ) -> BTreeSet<u64> {
        let listening = self.listening.read().unpoisoned();
        let mut found: BTreeSet<u64> = BTreeSet::new();
        let mut look = |topic: Topic, name: &[u8], listeners: &Listeners| {
            let mut own = listeners.keys().filter(|id| clients.contains(*id)).peekable();
            if own.peek().is_some() && !is_allowed(topic, name) {
                found.extend(own);
            }
        };
        for topic in [Topic::Channel, Topic::Shard] {
            listening.of(topic).iter().for_each(|(name, all)| look(topic, name, all));
        }
        listening.patterns.iter().for_each(|(name, all)| look(Topic::Pattern, name, all));
        found
    }

    /// The number of channels with subscribers.
    pub fn count_channels(&self) -> usize {
        self.listening.read().unpoisoned().channels.len()
    }

    /// The number of shard channels with subscribers.
    pub fn count_shard_channels(&self) -> usize {
        self.listening.read().unpoisoned().shards.len()
    }

    /// The number of patterns with subscribers.
    pub fn count_patterns(&self) -> usize {
        self.listening.read().unpoisoned().patterns.len()
    }
}

/// The subscriptions of a client. Dropped, it ends them all.
pub struct Subscriptions {
    client: Arc<ClientEntry>,
    channels: Option<Arc<Channels>>,
    names: [BTreeSet<Vec<u8>>; 3],
}

impl Subscriptions {
    /// Makes an empty set of subscriptions.
    pub fn new(client: Arc<ClientEntry>) -> Subscriptions {
        Subscriptions { client, channels: None, names: Default::default() }
    }

    /// Whether the client has no subscription.
    pub fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }

    /// The names of a topic.
    pub fn names(&self, topic: Topic) -> &BTreeSet<Vec<u8>> {
        &self.names[topic as usize]
    }

    /// The number in replies to a change: channels and patterns together, or shard channels.
    pub fn count(&self, topic: Topic) -> usize {
        match topic {
            Topic::Shard => self.names(Topic::Shard).len(),
            _ => self.names(Topic::Channel).len() + self.names(Topic::Pattern).len(),
        }
    }

    /// Subscribes.
    pub fn add(&mut self, channels: &Arc<Channels>, topic: Topic, name: &[u8]) {
        self.channels.get_or_insert_with(|| channels.clone());
        if self.names[topic as usize].insert(name.to_vec()) {
            channels.add(topic, name, &self.client);
        }
    }

    /// Ends a subscription, if there is one.
    pub fn remove(&mut self, topic: Topic, name: &[u8]) {
        if self.names[topic as usize].remove(name)
            && let Some(channels) = &self.channels
        {
            channels.remove(topic, name, &self.client);
        }
    }

    /// Whether a message is still wanted.
    pub fn wants(&self, publication: &Publication, pattern: &Option<Arc<[u8]>>) -> bool {
        let (topic, name) = subscription(publication, pattern);
        self.names(topic).contains(name)
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        for topic in [Topic::Channel, Topic::Pattern, Topic::Shard] {
            for name in std::mem::take(&mut self.names[topic as usize]) {
                if let Some(channels) = &self.channels {
                    channels.remove(topic, &name, &self.client);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Calls;
    use std::cell::Cell;
    use std::task::Waker;

    /// However many clients there are, a name is compared with the rules once, and names to which
    /// only clients outside the given set have subscribed are not compared.
    #[test]
    fn names_are_looked_at_once_for_all_clients() {
        let channels = Channels::new(Arc::default());
        let subscribed = |id: u64| {
            let addresses = (String::new(), String::new());
            let entry = ClientEntry::new(id, addresses, 0, Calls::new(Waker::noop().clone()));
            let mut own = Subscriptions::new(Arc::new(entry));
            own.add(&channels, Topic::Channel, b"all");
            own.add(&channels, Topic::Shard, format!("own{id}").as_bytes());
            own.add(&channels, Topic::Pattern, format!("p{}*", id % 2).as_bytes());
            own
        };
        let _all: Vec<Subscriptions> = (0..20).map(subscribed).collect();
        let looks = Cell::new(0);
        let is_allowed = |topic: Topic, name: &[u8]| {
            looks.set(looks.get() + 1);
            !matches!((topic, name), (Topic::Pattern, b"p1*") | (Topic::Shard, b"own4"))
        };
        let found = channels.listeners_beyond(&(0..10).collect(), is_allowed);
        assert_eq!(Vec::from_iter(found), [1, 3, 4, 5, 7, 9]);
        // One channel, ten shard channels, two patterns.
        assert_eq!(looks.get(), 13);
    }
}
