//! Rows of the commands for publish and subscribe. The columns are the fields of `Row`.

macro_rules! pubsub_rows {
    ($with:ident) => { $with! { "pubsub";
    "psubscribe", -2, Local(pubsub::psubscribe), NOSCRIPT | PUBSUB, [patterns()], "", Event::None,
        "2.0.0", "O(N) with N the patterns", "Subscribes to all channels that match a pattern",
        "pattern [pattern ..]";
    "publish", 3, Local(pubsub::publish), FAST | PUBSUB, [channels(0, NO_KEY_FLAGS)],
        "", Event::None,
        "2.0.0", "O(N+M) with N subscribers and M patterns",
        "Sends a message to the subscribers of a channel",
        "channel message";
    "pubsub", -2, Local(pubsub::pubsub), PUBSUB, [], "", Event::None,
        "2.8.0", "-", "Tells of channels and their subscribers",
        "";
    "punsubscribe", -1, Local(pubsub::punsubscribe), NOSCRIPT | PUBSUB, [], "", Event::None,
        "2.0.0", "O(N) with N the patterns", "Ends subscriptions to patterns, or all of them",
        "[pattern ..]";
    "spublish", 3, Local(pubsub::spublish), FAST | PUBSUB, [channels(0, NOT_KEY)], "", Event::None,
        "7.0.0", "O(N) with N the subscribers",
        "Sends a message to the subscribers of a shard channel",
        "shardchannel message";
    "ssubscribe", -2, Local(pubsub::ssubscribe), NOSCRIPT | PUBSUB, [channels(-1, NOT_KEY)],
        "", Event::None,
        "7.0.0", "O(N) with N the channels", "Subscribes to shard channels",
        "shardchannel [shardchannel ..]";
    "subscribe", -2, Local(pubsub::subscribe), NOSCRIPT | PUBSUB, [channels(-1, NO_KEY_FLAGS)],
        "", Event::None,
        "2.0.0", "O(N) with N the channels", "Subscribes to channels",
        "channel [channel ..]";
    "sunsubscribe", -1, Local(pubsub::sunsubscribe), NOSCRIPT | PUBSUB,
        [all_from(1, NOT_KEY)], "", Event::None,
        "7.0.0", "O(N) with N the channels", "Ends subscriptions to shard channels, or all of them",
        "[shardchannel ..]";
    "unsubscribe", -1, Local(pubsub::unsubscribe), NOSCRIPT | PUBSUB, [], "", Event::None,
        "2.0.0", "O(N) with N the channels", "Ends subscriptions to channels, or all of them",
        "[channel ..]";
    } };
}
pub(crate) use pubsub_rows;
