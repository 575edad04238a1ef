//! Publish and subscribe.

use super::{Done, Local, help, lower, unknown_subcommand};
use crate::clients::channels::{Publication, Topic};
use crate::data::keyspace::Stop;
use crate::resp::reply::Reply;

/// Most channels and patterns of a client.
const MOST_SUBSCRIPTIONS: usize = 1 << 16;

fn tell(reply: &mut Reply<'_>, word: &str, name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.bulk(word.as_bytes());
    reply.bulk_or_null(name);
    reply.count(count);
}

fn subscribe_to(
    local: &mut Local<'_>,
    topic: Topic,
    names: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Done {
    let subscriptions = &mut local.client.subscriptions;
    if subscriptions.count(topic) + names.len() > MOST_SUBSCRIPTIONS {
        return Err(format!("ERR more than {MOST_SUBSCRIPTIONS} subscriptions").into());
    }
    for name in names {
        subscriptions.add(&local.shared.wiring.channels, topic, name);
        tell(reply, topic.words()[0], Some(name), subscriptions.count(topic));
    }
    local.client.note_subscriptions();
    Ok(())
}

fn unsubscribe_from(
    local: &mut Local<'_>,
    topic: Topic,
    names: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Done {
    let subscriptions = &mut local.client.subscriptions;
    let all: Vec<Vec<u8>>;
    let names: Vec<&[u8]> = match names {
        [] => {
            all = subscriptions.names(topic).iter().cloned().collect();
            all.iter().map(Vec::as_slice).collect()
        }
        names => names.to_vec(),
    };
    let word = topic.words()[1];
    if names.is_empty() {
        tell(reply, word, None, subscriptions.count(topic));
    }
    for name in names {
        subscriptions.remove(topic, name);
        tell(reply, word, Some(name), subscriptions.count(topic));
    }
    local.client.note_subscriptions();
    Ok(())
}

pub fn subscribe(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    subscribe_to(local, Topic::Channel, &args[1..], reply)
}

pub fn psubscribe(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    subscribe_to(local, Topic::Pattern, &args[1..], reply)
}

pub fn ssubscribe(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    subscribe_to(local, Topic::Shard, &args[1..], reply)
}

pub fn unsubscribe(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    unsubscribe_from(local, Topic::Channel, &args[1..], reply)
}

pub fn punsubscribe(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    unsubscribe_from(local, Topic::Pattern, &args[1..], reply)
}

pub fn sunsubscribe(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    unsubscribe_from(local, Topic::Shard, &args[1..], reply)
}

fn publish_to(local: &mut Local<'_>, topic: Topic, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (channel, payload) = (args[1].to_vec(), args[2].to_vec());
    reply.count(local.shared.wiring.channels.count_deliveries(topic, &channel));
    local.client.published.push(Publication { topic, channel, payload });
    Ok(())
}

pub fn publish(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    publish_to(local, Topic::Channel, args, reply)
}

pub fn spublish(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    publish_to(local, Topic::Shard, args, reply)
}

const HELP: &[&str] = &[
    "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANNELS [<pattern>]",
    "    The channels that have subscribers.",
    "NUMPAT",
    "    The number of patterns that have subscribers.",
    "NUMSUB [<channel> ...]",
    "    The number of subscribers of each channel, without those by patterns.",
    "SHARDCHANNELS [<pattern>]",
    "    The shard channels that have subscribers.",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    The number of subscribers of each shard channel.",
    "HELP",
    "    This help.",
];

pub fn pubsub(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let channels = &local.shared.wiring.channels;
    let topic = |name: &str| if name.starts_with("shard") { Topic::Shard } else { Topic::Channel };
    match (lower(args[1]).as_str(), &args[2..]) {
        (name @ ("channels" | "shardchannels"), pattern @ ([] | [_])) => {
            let names = channels.names(topic(name), pattern.first().copied());
            reply.array(names.len());
            names.iter().for_each(|name| reply.bulk(name));
        }
        (name @ ("numsub" | "shardnumsub"), names) => {
            reply.array(2 * names.len());
            for channel in names {
                reply.bulk(channel);
                reply.count(channels.count_subscribers(topic(name), channel));
            }
        }
        ("numpat", []) => reply.count(channels.count_patterns()),
        ("help", []) => help(reply, HELP),
        _ => return Err(unknown_subcommand("pubsub", args[1])),
    }
    Ok::<(), Stop>(())
}
