//! The thread of the connections: carries requests out, one task for each.

use super::address::Address;
use super::handed::Sent;
use super::leaders;
use super::settings::{
    HEADER_BYTES, LEAST_MESSAGE_BYTES, MAX_MESSAGE_BYTES, NatsError, NatsSettings, lane_error,
};
use crate::service::{Place, Question, Reply, Request, Revision};
use async_nats::connection::State;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{
    Context, ContextBuilder, GetStreamErrorKind, PublishErrorKind,
};
use async_nats::jetstream::stream::{
    Config, DirectGetErrorKind, DiscardPolicy, LastRawMessageErrorKind, RetentionPolicy,
    StorageType, Stream,
};
use async_nats::{Client, ConnectOptions, HeaderMap, ServerAddr};
use bytes::Bytes;
use futures_util::StreamExt;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, TrySendError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender};

/// The most connections, each for some of the lanes: a server reads each in a thread of its own.
const MAX_CONNECTIONS: usize = 4;
/// A read answers with no more messages.
const MAX_READ: usize = 64;
/// Servers refuse at once what has no leader: a writer that asks again has rested for as long.
const REST: Duration = Duration::from_millis(10);
/// The longest pause between two attempts to connect again.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Connects, says how many bytes a message may have, and carries requests out until their channel
/// is closed.
pub(super) fn run(
    settings: &NatsSettings,
    lanes: usize,
    mut received: UnboundedReceiver<Sent>,
    ready: &Sender<Result<usize, NatsError>>,
) {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(error))),
    };
    runtime.block_on(async {
        let opened = match open(settings, lanes).await {
            Ok((max_message_bytes, opened)) => {
                drop(ready.send(Ok(max_message_bytes)));
                Arc::new(opened)
            }
            Err(error) => return drop(ready.send(Err(error))),
        };
        while let Some(sent) = received.recv().await {
            match sent {
                Sent::Request(request, answer) => {
                    let opened = opened.clone();
                    tokio::spawn(async move {
                        let reply = opened.carry_out(request).await;
                        if reply == Reply::Silence {
                            tokio::time::sleep(REST).await;
                        }
                        answer.give(reply);
                    });
                }
                Sent::Broadcast(message) => {
                    let (client, subject) =
                        (opened.keys.context.client(), opened.broadcast.clone());
                    // A broadcast may be lost: none waits while there is no connection.
                    if client.connection_state() == State::Connected {
                        tokio::spawn(async move { client.publish(subject, message.into()).await });
                    }
                }
                Sent::Listen(listener) => {
                    tokio::spawn(listen(opened.clone(), listener));
                }
                Sent::Questions(node, listener, answers) => {
                    tokio::spawn(listen_for_questions(opened.clone(), (node, listener), answers));
                }
                Sent::Answer(subject, bytes) => {
                    let client = opened.keys.context.client();
                    tokio::spawn(async move { client.publish(subject, bytes.into()).await });
                }
                Sent::PlaceLeaders => {
                    let (opened, near) = (opened.clone(), settings.near.clone());
                    tokio::spawn(async move {
                        let streams = opened.lanes.iter().chain([&opened.keys]);
                        let streams: Vec<_> =
                            streams.map(|stream| (&stream.context, &*stream.name)).collect();
                        leaders::place(&streams, near.as_deref()).await;
                    });
                }
            }
        }
    });
}

/// Hands broadcasts to a listener until the listener is gone.
async fn listen(opened: Arc<Opened>, listener: SyncSender<Vec<u8>>) {
    let client = opened.keys.context.client();
    let Ok(mut messages) = client.subscribe(opened.broadcast.clone()).await else { return };
    while let Some(message) = messages.next().await {
        if let Err(TrySendError::Disconnected(_)) = listener.try_send(message.payload.to_vec()) {
            return;
        }
    }
}

/// Hands the questions to a node to its member until the member is gone.
async fn listen_for_questions(
    opened: Arc<Opened>,
    (node, listener): (String, SyncSender<Question>),
    answers: WeakUnboundedSender<Sent>,
) {
    let client = opened.keys.context.client();
    let subject = opened.address.ask_subject(&node);
    let Ok(mut messages) = client.subscribe(subject).await else { return };
    while let Some(message) = messages.next().await {
        let Some(reply) = message.reply else { continue };
        let answers = answers.clone();
        let question = Question::new(message.payload.to_vec(), move |bytes| {
            if let Some(answers) = answers.upgrade() {
                // Without the thread of the connections the answer is lost.
                let _ = answers.send(Sent::Answer(reply, bytes));
            }
        });
        if let Err(TrySendError::Disconnected(_)) = listener.try_send(question) {
            return;
        }
    }
}

pub(super) fn runtime() -> Result<Runtime, NatsError> {
    Builder::new_current_thread().enable_all().build().map_err(NatsError::Thread)
}

/// Removes the lanes.
pub(super) fn remove(settings: &NatsSettings, lanes: usize) -> Result<(), NatsError> {
    runtime()?.block_on(async {
        let context = ContextBuilder::new().build(connect(settings).await?);
        let names = (0..lanes).map(|lane| settings.address.stream(lane));
        for name in names.chain([settings.address.keys_stream()]) {
            context.delete_stream(&name).await.map_err(|error| lane_error(&name, &error))?;
        }
        Ok(())
    })
}

/// Connects, and opens keys and lanes. Returns the most bytes of a message, too.
async fn open(settings: &NatsSettings, lanes: usize) -> Result<(usize, Opened), NatsError> {
    let mut clients = Vec::new();
    for _ in 0..lanes.clamp(1, MAX_CONNECTIONS) {
        clients.push(connect(settings).await?);
    }
    let info = clients[0].server_info();
    if !info.jetstream {
        let why = format!("server {} has no JetStream: start it with -js", info.server_name);
        return Err(NatsError::Unsuitable(why));
    }
    let max_message_bytes = info.max_payload.saturating_sub(HEADER_BYTES).min(MAX_MESSAGE_BYTES);
    if max_message_bytes < LEAST_MESSAGE_BYTES {
        return Err(NatsError::Unsuitable(format!(
            "max_payload of server {} is {} bytes; at least {} are needed, 8 MiB are advised",
            info.server_name,
            info.max_payload,
            LEAST_MESSAGE_BYTES + HEADER_BYTES
        )));
    }
    let open = |at: usize, stream: Config| {
        let client = clients[at % clients.len()].clone();
        let context = ContextBuilder::new().timeout(settings.timeout).build(client);
        OpenStream::open(context, stream)
    };
    let address = settings.address.clone();
    let keys = Config {
        name: address.keys_stream(),
        subjects: vec![address.key_subject(">")],
        max_messages_per_subject: 1,
        ..stream_config(settings)
    };
    let keys = open(0, keys).await?;
    let mut opened = Vec::new();
    for lane in 0..lanes {
        let lane_config = Config {
            name: address.stream(lane),
            subjects: vec![address.subject(lane)],
            discard: DiscardPolicy::New,
            ..stream_config(settings)
        };
        opened.push(open(lane, lane_config).await?);
    }
    let broadcast = address.broadcast_subject();
    Ok((max_message_bytes, Opened { address, keys, lanes: opened, broadcast }))
}

fn stream_config(settings: &NatsSettings) -> Config {
    Config {
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: settings.replicas,
        allow_direct: true,
        deny_delete: true,
        ..Config::default()
    }
}

pub(super) async fn connect(settings: &NatsSettings) -> Result<Client, NatsError> {
    let mut options = ConnectOptions::new()
        .name(format!("hyades {}", settings.address.name))
        .connection_timeout(settings.timeout)
        .request_timeout(Some(settings.timeout))
        .reconnect_delay_callback(|attempts| {
            MAX_PAUSE.min(Duration::from_millis(4 << attempts.min(16)))
        });
    if let Some(path) = &settings.credentials {
        let wrong = |error| NatsError::Credentials(path.clone(), error);
        let text = std::fs::read_to_string(path).map_err(wrong)?;
        options = options.credentials(&text).map_err(wrong)?;
    }
    if let Some(path) = &settings.authorities {
        options = options.add_root_certificates(path.clone());
    }
    let unreachable = |why: String| {
        NatsError::Unreachable(format!("{why} ({})", settings.address.servers_without_users()))
    };
    let servers = settings.address.servers.iter();
    let servers = servers
        .map(|url| url.parse::<ServerAddr>().map_err(|error| unreachable(error.to_string())))
        .collect::<Result<Vec<_>, _>>()?;
    options.connect(servers).await.map_err(|error| unreachable(error.to_string()))
}

/// Bytes that a request under way and its writer share.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// What is open on the servers.
struct Opened {
    address: Address,
    keys: OpenStream,
    lanes: Vec<OpenStream>,
    broadcast: String,
}

impl Opened {
    async fn carry_out(&self, request: Request) -> Reply {
        match request {
            Request::Append { lane, after, message } => {
                let subject = self.address.subject(lane);
                let condition = after.map(|Place(after)| (LAST_SEQUENCE, after));
                match self.lanes[lane].append(subject, condition, message).await {
                    Ok(sequence) => Reply::Appended(Place(sequence)),
                    Err(other) => other,
                }
            }
            Request::Read { lane, behind } => {
                self.lanes[lane].read(self.address.subject(lane), behind).await
            }
            Request::Get { key } => self.keys.newest(&self.address.key_subject(&key)).await,
            Request::Put { key, after, value } => {
                let subject = self.address.key_subject(&key);
                let condition = Some((LAST_OF_SUBJECT, after.0));
                match self.keys.append(subject, condition, value).await {
                    Ok(sequence) => Reply::Put(Revision(sequence)),
                    Err(other) => other,
                }
            }
            Request::Purge { lane, through } => self.lanes[lane].purge(through).await,
            Request::Ask { node, question } => {
                let subject = self.address.ask_subject(&node);
                let question = Bytes::from_owner(Shared(question));
                match self.keys.context.client().request(subject, question).await {
                    Ok(answer) => Reply::Told(Arc::new(answer.payload.to_vec())),
                    Err(_) => Reply::Silence,
                }
            }
        }
    }
}

/// The condition that a stream ends at a sequence.
const LAST_SEQUENCE: &str = "Nats-Expected-Last-Sequence";
/// The condition that the last message of the subject has a sequence.
const LAST_OF_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence";

/// A stream of the servers.
struct OpenStream {
    context: Context,
    name: String,
    stream: Stream<()>,
    /// When the stream was created: a stream of the same name that was created later is another.
    created: String,
}

impl OpenStream {
    async fn open(context: Context, config: Config) -> Result<OpenStream, NatsError> {
        let name = config.name.clone();
        let failed = |error: &dyn Display| NatsError::Lane(name.clone(), error.to_string());
        let found = match context.get_stream(&name).await {
            Err(error) if is_missing(&error.kind()) => {
                context.create_stream(config.clone()).await.map_err(|error| failed(&error))?
            }
            found => found.map_err(|error| failed(&error))?,
        };
        let found = found.cached_info();
        let has = |config: &Config| {
            format!(
                "{} replicas, subjects {:?}, {:?} storage, allow_direct {}",
                config.num_replicas, config.subjects, config.storage, config.allow_direct
            )
        };
        if has(&found.config) != has(&config) {
            let why = format!("it has {}; expected {}", has(&found.config), has(&config));
            return Err(NatsError::Mismatch(name, why));
        }
        let created = found.created.to_string();
        let stream = context.get_stream_no_info(&name).await.map_err(|error| failed(&error))?;
        Ok(OpenStream { context, name, stream, created })
    }

    /// Appends a message, under a condition. Returns the sequence.
    async fn append(
        &self,
        subject: String,
        condition: Option<(&'static str, u64)>,
        message: Arc<Vec<u8>>,
    ) -> Result<u64, Reply> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Stream", self.name.as_str());
        if let Some((name, sequence)) = condition {
            headers.insert(name, sequence.to_string());
        }
        let message = Bytes::from_owner(Shared(message));
        let acknowledged = match self.context.publish_with_headers(subject, headers, message).await
        {
            Ok(sent) => sent.await,
            Err(error) => Err(error),
        };
        match acknowledged {
            Ok(acknowledged) => Ok(acknowledged.sequence),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
                Err(Reply::Refused)
            }
            Err(_) => Err(Reply::Silence),
        }
    }

    /// Removes the messages up to a place.
    async fn purge(&self, through: Place) -> Reply {
        match self.stream.purge().sequence(through.0 + 1).await {
            Ok(purged) if purged.success => Reply::Purged,
            _ => Reply::Silence,
        }
    }

    /// Messages behind a place, as one of the replicas knows them. Without any, the stream is
    /// looked at: a stream that was deleted has none.
    async fn read(&self, subject: String, behind: Place) -> Reply {
        let (mut messages, mut next) = (Vec::new(), behind.0 + 1);
        while messages.len() < MAX_READ {
            let get = self.stream.direct_get_builder().sequence(next);
            match get.next_by_subject(subject.clone()).send().await {
                Ok(found) => {
                    next = found.sequence + 1;
                    messages.push((Place(found.sequence), Arc::new(found.payload.to_vec())));
                }
                Err(error) if matches!(error.kind(), DirectGetErrorKind::NotFound) => break,
                Err(_) if messages.is_empty() => {
                    return self.gone().await.unwrap_or(Reply::Silence);
                }
                Err(_) => break,
            }
        }
        match messages.is_empty() {
            true => self.look_at_end(behind).await,
            false => Reply::Messages(messages),
        }
    }

    /// The answer to a read that finds nothing.
    async fn look_at_end(&self, behind: Place) -> Reply {
        match self.context.get_stream(&self.name).await {
            Ok(stream) if stream.cached_info().created.to_string() != self.created => {
                Reply::Gone(format!("stream {} was created again", self.name))
            }
            Ok(stream) => match stream.cached_info().state.last_sequence {
                last if last < behind.0 => Reply::Short(Place(last)),
                _ => Reply::Messages(Vec::new()),
            },
            Err(error) if is_missing(&error.kind()) => {
                Reply::Gone(format!("stream {} was deleted", self.name))
            }
            Err(_) => Reply::Messages(Vec::new()),
        }
    }

    /// The newest message of a subject, as the leader of the stream knows it.
    async fn newest(&self, subject: &str) -> Reply {
        match self.stream.get_last_raw_message_by_subject(subject).await {
            Ok(found) => {
                let value = Arc::new(found.payload.to_vec());
                Reply::Value(Some((Revision(found.sequence), value)))
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                Reply::Value(None)
            }
            Err(_) => self.gone().await.unwrap_or(Reply::Silence),
        }
    }

    /// Tells if the stream is known not to be the stream that was opened.
    async fn gone(&self) -> Option<Reply> {
        match self.look_at_end(Place::START).await {
            gone @ Reply::Gone(_) => Some(gone),
            _ => None,
        }
    }
}

pub(super) fn is_missing(kind: &GetStreamErrorKind) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error)
        if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}
