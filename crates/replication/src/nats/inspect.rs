//! Looks at a replicated log on NATS servers, and asks its members. Changes nothing there.

use super::io::{connect, is_missing, runtime};
use super::settings::{NatsError, NatsSettings, lane_error};
use async_nats::Client;
use async_nats::jetstream::context::{Context, ContextBuilder};
use async_nats::jetstream::stream::{Info, Stream};
use futures_util::{StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What the servers have of a replicated log.
#[derive(Clone, Debug, Default)]
pub struct FoundLog {
    /// The keys by their names.
    pub keys: BTreeMap<String, FoundKey>,
    /// The lanes in order.
    pub lanes: Vec<FoundLane>,
    /// The broadcasts that were heard.
    pub broadcasts: Vec<Vec<u8>>,
}

/// The newest value of a key.
#[derive(Clone, Debug)]
pub struct FoundKey {
    /// Rises with each set of any key.
    pub revision: u64,
    /// When the value was stored, in microseconds since 1970, by the clock of a server.
    pub stored_us: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// The stream of a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundLane {
    /// The name of the stream.
    pub stream: String,
    /// The sequence of the first message that is there.
    pub first: u64,
    /// The sequence of the last message.
    pub last: u64,
    /// How many messages are there.
    pub messages: u64,
    /// Their bytes on a server.
    pub bytes: u64,
    /// The server that leads the stream; `None` while there is none.
    pub leader: Option<String>,
    /// The servers that have the stream, and are not in step with the leader.
    pub behind: Vec<String>,
    /// How many replicas the stream has.
    pub replicas: usize,
}

/// Looks at a replicated log, and listens to its members for a time. `None`: the servers have no
/// log of the name.
///
/// # Errors
/// No server is reached, or the servers do not answer.
pub fn inspect(settings: &NatsSettings, listen: Duration) -> Result<Option<FoundLog>, NatsError> {
    runtime()?.block_on(look(settings, listen))
}

/// Asks the members of a log, and listens until an answer is the last one wanted, at most for a
/// time. `is_last` sees every broadcast.
///
/// # Errors
/// No server is reached.
pub fn ask(
    settings: &NatsSettings,
    question: Vec<u8>,
    listen: Duration,
    is_last: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<(), NatsError> {
    runtime()?.block_on(async {
        let (client, subject) = (connect(settings).await?, settings.address.broadcast_subject());
        hear(&client, (subject, Some(question)), listen, is_last).await
    })
}

async fn look(settings: &NatsSettings, listen: Duration) -> Result<Option<FoundLog>, NatsError> {
    let (client, address) = (connect(settings).await?, &settings.address);
    let info = client.server_info();
    if !info.jetstream {
        let why = format!("server {} has no JetStream", info.server_name);
        return Err(NatsError::Unsuitable(why));
    }
    let context = ContextBuilder::new().timeout(settings.timeout).build(client.clone());
    let keys = address.keys_stream();
    let Some(stream) = find(&context, &keys).await? else { return Ok(None) };
    let (mut broadcasts, subject) = (Vec::new(), address.broadcast_subject());
    let mut keep = |broadcast: &[u8]| {
        broadcasts.push(broadcast.to_vec());
        false
    };
    hear(&client, (subject, None), listen, &mut keep).await?;
    let mut found = FoundLog {
        broadcasts,
        keys: read_keys(&stream, &address.key_subject("")).await?,
        lanes: Vec::new(),
    };
    while let Some(stream) = find(&context, &address.stream(found.lanes.len())).await? {
        found.lanes.push(lane(stream.cached_info()));
    }
    Ok(Some(found))
}

async fn find(context: &Context, name: &str) -> Result<Option<Stream>, NatsError> {
    match context.get_stream(name).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if is_missing(&error.kind()) => Ok(None),
        Err(error) => Err(lane_error(name, &error)),
    }
}

/// Hears the broadcasts of a time, until the last one wanted, after a question if there is one.
async fn hear(
    client: &Client,
    (subject, question): (String, Option<Vec<u8>>),
    listen: Duration,
    is_last: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<(), NatsError> {
    let unreachable = |error: &dyn std::fmt::Display| {
        NatsError::Unreachable(format!("cannot listen or ask: {error}"))
    };
    let until = Instant::now() + listen;
    let subscribed = client.subscribe(subject.clone()).await;
    let mut messages = subscribed.map_err(|error| unreachable(&error))?;
    if let Some(question) = question {
        let asked = client.publish(subject, question.into()).await;
        asked.map_err(|error| unreachable(&error))?;
    }
    while let Ok(Some(message)) = timeout_at(until, messages.next()).await {
        if is_last(&message.payload) {
            break;
        }
    }
    Ok(())
}

async fn read_keys(stream: &Stream, prefix: &str) -> Result<BTreeMap<String, FoundKey>, NatsError> {
    let name = &stream.cached_info().config.name;
    let subjects = stream.info_with_subjects(format!("{prefix}>")).await;
    let subjects = subjects.map_err(|error| lane_error(name, &error))?;
    let subjects: Vec<(String, usize)> =
        subjects.try_collect().await.map_err(|error| lane_error(name, &error))?;
    let mut keys = BTreeMap::new();
    for (subject, _) in subjects {
        let found = stream.get_last_raw_message_by_subject(&subject).await;
        let found = found.map_err(|error| lane_error(name, &error))?;
        let key = FoundKey {
            revision: found.sequence,
            stored_us: u64::try_from(found.time.unix_timestamp_nanos() / 1000).unwrap_or(0),
            value: found.payload.to_vec(),
        };
        keys.insert(subject.trim_start_matches(prefix).to_owned(), key);
    }
    Ok(keys)
}

fn lane(info: &Info) -> FoundLane {
    let state = &info.state;
    let mut lane = FoundLane {
        stream: info.config.name.clone(),
        first: state.first_sequence,
        last: state.last_sequence,
        messages: state.messages,
        bytes: state.bytes,
        replicas: info.config.num_replicas,
        ..FoundLane::default()
    };
    if let Some(cluster) = &info.cluster {
        lane.leader.clone_from(&cluster.leader);
        let behind = cluster.replicas.iter().filter(|peer| !peer.current || peer.offline);
        lane.behind = behind.map(|peer| peer.name.clone()).collect();
    }
    lane
}
