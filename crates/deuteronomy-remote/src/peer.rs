//! The server as its client knows it: connections, attempts, and answers.

use crate::connection::{Connection, invalid};
use crate::message::{Decoder, Greeting, Refusal, Request, Welcome, decode_answer, decode_scanned};
use hyades_deuteronomy::{
    Error, Found, KeyRange, Limits, Operation, ScanOrder, is_empty_range, range_behind,
};
use hyades_platform::sync::locked;
use std::io;
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The pauses between two attempts to reach the server.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// The most idle connections kept.
const MOST_IDLE: usize = 16;

/// How a [`RemoteData`](crate::RemoteData) behaves.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RemoteOptions {
    /// How long a call goes on trying to reach the server before it fails; then the database stops.
    /// Meanwhile the call waits. Default: an hour.
    pub patience: Duration,
    /// The bytes of operations kept for a server that restarts, beyond which the client has the
    /// server make its data stable before it applies more. Default: 256 MiB.
    pub kept_bytes: usize,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(3600), kept_bytes: 256 << 20 }
    }
}

impl RemoteOptions {
    /// Sets [`patience`](Self::patience).
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets [`kept_bytes`](Self::kept_bytes).
    #[must_use]
    pub fn kept_bytes(mut self, kept_bytes: usize) -> Self {
        self.kept_bytes = kept_bytes;
        self
    }
}

/// The boot that is asked, and idle connections to it (R1).
#[derive(Debug)]
pub(crate) struct Link {
    pub boot: u64,
    pub idle: Vec<Connection>,
    /// The incarnation of the last resume point, or of the one found at the beginning.
    pub incarnation: u32,
}

/// The server, as its client knows it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub address: String,
    pub options: RemoteOptions,
    pub client: u64,
    pub limits: Limits,
    pub link: Mutex<Link>,
}

/// Why an attempt has failed.
pub(crate) enum Missed {
    /// There is no answer: another attempt may succeed.
    Unreached(io::Error),
    /// The process of the server is another one than this boot.
    Restarted(u64),
    /// No attempt can succeed.
    Refused(Error),
}

impl From<io::Error> for Missed {
    fn from(error: io::Error) -> Self {
        Missed::Unreached(error)
    }
}

/// The fields of an answer.
pub(crate) fn fields(body: &[u8], boot: u64) -> Result<&[u8], Missed> {
    let answer = decode_answer(body).ok_or_else(|| invalid("no answer can be read".to_string()))?;
    answer.map_err(|refusal| match refusal {
        Refusal::Restarted => Missed::Restarted(boot),
        Refusal::Full => Missed::Unreached(io::Error::other(
            "the server has as many connections as its limit allows",
        )),
        Refusal::Failed(why) => Missed::Refused(Error::DataComponent(why)),
        Refusal::Displaced => Missed::Refused(Error::DataComponent(
            "another database has taken this one's place at the server of its data: open that \
             database, or stop it and open this one again"
                .to_string(),
        )),
    })
}

/// Begins a connection.
pub(crate) fn greet(address: &str, greeting: Greeting) -> Result<(Connection, Welcome), Missed> {
    let mut connection = Connection::new(TcpStream::connect(address)?)?;
    let boot = match greeting {
        Greeting::Attach { boot, .. } => boot,
        Greeting::Join { .. } | Greeting::Return { .. } => 0,
    };
    let welcome = fields(connection.ask(&greeting.encode())?, boot)?;
    let welcome = Welcome::decode(welcome);
    let welcome = welcome.ok_or_else(|| invalid("the welcome cannot be read".to_string()))?;
    Ok((connection, welcome))
}

/// The error for an answer that is none.
pub(crate) fn unreadable<T>(value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| {
        Error::DataComponent("the answer of the server cannot be read: versions differ".to_string())
    })
}

/// Attempts until the server at an address is reached, with longer and longer pauses.
///
/// # Errors
/// An attempt is refused, or the server is not reached within the options' patience.
pub(crate) fn until_reached<T>(
    (address, options): (&str, RemoteOptions),
    mut attempt: impl FnMut() -> Result<T, Missed>,
) -> Result<T, Error> {
    let (began, mut pause, patience) = (Instant::now(), FIRST_PAUSE, options.patience);
    loop {
        let why = match attempt() {
            Ok(reached) => return Ok(reached),
            Err(Missed::Refused(error)) => return Err(error),
            Err(Missed::Restarted(_)) => continue,
            Err(Missed::Unreached(why)) => why,
        };
        let waited = began.elapsed();
        if waited >= patience {
            return Err(Error::DataComponent(format!(
                "the server of the data at {address} was not reached within {patience:?}: {why}"
            )));
        }
        std::thread::sleep(pause.min(patience - waited));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Peer {
    /// Where the server is, and how long to try.
    pub fn place(&self) -> (&str, RemoteOptions) {
        (&self.address, self.options)
    }

    /// An idle connection, or a new one, to the boot that is asked.
    pub fn connection(&self) -> Result<(u64, Connection), Missed> {
        let boot = {
            let mut link = locked(&self.link);
            if let Some(connection) = link.idle.pop() {
                return Ok((link.boot, connection));
            }
            link.boot
        };
        let (connection, _) = greet(&self.address, Greeting::Attach { client: self.client, boot })?;
        Ok((boot, connection))
    }

    /// Lets the idle connections go: they may be to a process that has ended.
    pub fn forget_idle(&self) {
        locked(&self.link).idle.clear();
    }

    /// Keeps a connection for the next request. Those to an earlier boot are of no use.
    pub fn put_back(&self, boot: u64, connection: Connection) {
        let mut link = locked(&self.link);
        if link.boot == boot && link.idle.len() < MOST_IDLE {
            link.idle.push(connection);
        }
    }
}

/// Hands the operations of a range over, an answer after the other.
pub(crate) fn scan(
    (range, order): (KeyRange<'_>, ScanOrder),
    each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    mut ask: impl FnMut(&[u8]) -> Result<Vec<u8>, Error>,
) -> Result<(), Error> {
    let mut last: Option<Vec<u8>> = None;
    loop {
        let rest = last.as_deref().map_or(range, |last| range_behind(range, last, order));
        if is_empty_range(rest) {
            return Ok(());
        }
        let answer = ask(&Request::Scan { range: rest, order }.encode())?;
        let (is_whole, operations) = unreadable(decode_scanned(&answer))?;
        for operation in &operations {
            if each(*operation).is_break() {
                return Ok(());
            }
        }
        match operations.last() {
            Some(operation) if !is_whole => last = Some(operation.key.to_vec()),
            _ => return Ok(()),
        }
    }
}

/// The answer to a request for a key.
pub(crate) fn decode_found(answer: &[u8]) -> Result<Found, Error> {
    let mut rest = Decoder(answer);
    let found = || {
        let ts = rest.u64()?;
        let value = match rest.u8()? {
            0 => None,
            _ => Some(rest.bytes()?.to_vec()),
        };
        Some(Found { ts, value })
    };
    unreadable({ found }())
}
