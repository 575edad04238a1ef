//! The server of a data component.

use crate::connection::Connection;
use crate::message::{
    Encoder, Greeting, LONGEST_GREETING, MOST_BODY, Refusal, Request, Welcome, encode_answer,
};
use hyades_deuteronomy::{
    DataComponent, DataSnapshot, Error, Found, KeyRange, Operation, ScanOrder,
};
use hyades_platform::sync::locked;
use hyades_platform::{broken, event};
use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// About the bytes of operations in the answer to a scan.
const SCANNED: usize = 256 << 10;
/// The pause after a failure to take a connection, as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// The connections beyond the limit that are told so at a time; further ones are closed at once.
const MOST_REFUSED: usize = 64;

/// The limits of a [`DataServer`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The most connections at a time. A client has one for each call under way and for each open
    /// snapshot, and up to 16 idle ones, and keeps them until it ends, also after another client
    /// has taken its place; a client that meets the limit waits. Default: 1024.
    pub connections: usize,
    /// A connection that does not greet is closed after a silence of this length; never, if zero.
    /// Default: 10 s.
    pub greeting: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { connections: 1024, greeting: Duration::from_secs(10) }
    }
}

impl ServerOptions {
    /// Sets [`connections`](Self::connections).
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets [`greeting`](Self::greeting).
    #[must_use]
    pub fn greeting(mut self, greeting: Duration) -> Self {
        self.greeting = greeting;
        self
    }
}

/// Serves a data component to one client at a time (R3 in the crate's documentation). Dropped, the
/// server ends: its connections are closed, and requests under way finish.
#[derive(Debug)]
pub struct DataServer {
    serving: Arc<Serving>,
    accepting: Option<JoinHandle<()>>,
}

struct Serving {
    data: Arc<dyn DataComponent>,
    options: ServerOptions,
    address: SocketAddr,
    boot: u64,
    /// The client in place. Held for reading during each request, and for writing where a client
    /// takes the place: so no request of the client before is under way then.
    place: RwLock<Option<u64>>,
    is_over: AtomicBool,
    /// The open connections, by number, to be closed at the end.
    open: Mutex<(u64, BTreeMap<u64, TcpStream>)>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").field("address", &self.address).finish_non_exhaustive()
    }
}

impl DataServer {
    /// Starts to serve `data` at an address, such as `127.0.0.1:7379`; port 0 takes a free one.
    ///
    /// # Errors
    /// The address cannot be listened at, or a thread cannot start.
    pub fn start(address: impl ToSocketAddrs, data: Arc<dyn DataComponent>) -> io::Result<Self> {
        Self::start_with(address, data, ServerOptions::default())
    }

    /// As [`start`](Self::start), with other limits.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        address: impl ToSocketAddrs,
        data: Arc<dyn DataComponent>,
        options: ServerOptions,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let serving = Arc::new(Serving {
            data,
            options,
            address: listener.local_addr()?,
            boot: fastrand::Rng::new().u64(1..),
            place: RwLock::default(),
            is_over: AtomicBool::new(false),
            open: Mutex::default(),
            threads: Mutex::default(),
        });
        let accepting = {
            let serving = Arc::clone(&serving);
            let thread = std::thread::Builder::new().name("data-server".into());
            thread.spawn(move || accept(&listener, &serving))?
        };
        Ok(Self { serving, accepting: Some(accepting) })
    }

    /// The address listened at.
    pub fn address(&self) -> SocketAddr {
        self.serving.address
    }
}

impl Drop for DataServer {
    fn drop(&mut self) {
        let serving = &self.serving;
        serving.is_over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(serving.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for stream in std::mem::take(&mut locked(&serving.open).1).into_values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let threads = std::mem::take(&mut *locked(&serving.threads));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, serving: &Arc<Serving>) {
    loop {
        let accepted = listener.accept();
        if serving.is_over.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let mut threads = locked(&serving.threads);
        threads.retain(|thread| !thread.is_finished());
        let most = serving.options.connections;
        let is_full = threads.len() >= most;
        if is_full {
            event!(WARN, "data server full", connections = most);
        }
        if threads.len() >= most.saturating_add(MOST_REFUSED) {
            continue;
        }
        let serving = Arc::clone(serving);
        let thread = std::thread::Builder::new().name("data-connection".into());
        // Without a thread the connection is closed, and the client tries again.
        threads.extend(thread.spawn(move || serving.connection(stream, is_full)));
    }
}

impl Serving {
    fn connection(&self, stream: TcpStream, is_full: bool) {
        let number = {
            let mut open = locked(&self.open);
            let Ok(clone) = stream.try_clone() else { return };
            open.0 += 1;
            let number = open.0;
            open.1.insert(number, clone);
            number
        };
        // The end of a connection, whatever the reason, is the client's to notice.
        if !self.is_over.load(Ordering::SeqCst) {
            let _ =
                Connection::new(stream).and_then(|connection| self.converse(connection, is_full));
        }
        locked(&self.open).1.remove(&number);
    }

    fn converse(&self, mut connection: Connection, is_full: bool) -> io::Result<()> {
        let silence = Some(self.options.greeting).filter(|silence| !silence.is_zero());
        connection.limit(silence, LONGEST_GREETING)?;
        let Some(greeting) = Greeting::decode(connection.receive()?) else {
            let why = "this is the server of a data component of hyades-deuteronomy, and speaks \
                       version 1 of its protocol";
            return connection.send(&encode_answer(Err(Refusal::Failed(why.to_string()))));
        };
        if is_full {
            return connection.send(&encode_answer(Err(Refusal::Full)));
        }
        let client = greeting.client();
        let welcome = self.take_place(greeting).map(Welcome::encode);
        let is_refused = welcome.is_err();
        connection.send(&encode_answer(welcome))?;
        if is_refused {
            return Ok(());
        }
        connection.limit(None, MOST_BODY)?;
        let mut snapshot = None;
        loop {
            let answer = match Request::decode(connection.receive()?) {
                None => Err(Refusal::Failed("the request cannot be read".to_string())),
                Some(request) => {
                    let place = self.place();
                    let is_in_place = *place == Some(client) || broken!(ServeDisplaced);
                    let _held = (!broken!(JoinAmidRequest)).then_some(place);
                    match is_in_place {
                        true => self.answer(request, &mut snapshot).map_err(failed),
                        false => Err(Refusal::Displaced),
                    }
                }
            };
            connection.send(&encode_answer(answer))?;
        }
    }

    /// The client in place. No client takes the place while the guard is held.
    fn place(&self) -> RwLockReadGuard<'_, Option<u64>> {
        self.place.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// R3.
    fn take_place(&self, greeting: Greeting) -> Result<Welcome, Refusal> {
        let limits = self.data.limits();
        if let Greeting::Attach { client, boot } = greeting {
            // Beside the requests of the client, which may be long.
            return match self.place() {
                _ if boot != self.boot && !broken!(AttachToAnyBoot) => Err(Refusal::Restarted),
                // Without a look at the data, which may be slow.
                place if *place == Some(client) => {
                    Ok(Welcome { boot: self.boot, incarnation: 0, limits })
                }
                _ => Err(Refusal::Displaced),
            };
        }
        let mut place = self.place.write().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: no request of the client before is under way.
        let point = self.data.resume_point().map_err(failed)?;
        let stable = point.map_or(0, |point| point.incarnation);
        let client = greeting.client();
        if let Greeting::Return { incarnation, .. } = greeting {
            let is_anothers = place.is_some_and(|owner| owner != client);
            let is_older = stable > incarnation && !broken!(ReturnToLaterPoint);
            if is_older || (is_anothers && !broken!(ReturnToTakenPlace)) {
                return Err(Refusal::Displaced);
            }
        }
        *place = Some(client);
        Ok(Welcome { boot: self.boot, incarnation: stable, limits })
    }

    fn answer(
        &self,
        request: Request<'_>,
        snapshot: &mut Option<Arc<dyn DataSnapshot>>,
    ) -> Result<Vec<u8>, Error> {
        let data = &self.data;
        let mut out = Encoder::default();
        match request {
            Request::Get(key) => {
                let found = match snapshot {
                    Some(snapshot) => snapshot.get(key)?,
                    None => data.get(key)?,
                };
                let Found { ts, value } = found;
                out.u64(ts);
                match value {
                    None => out.u8(0),
                    Some(value) => out.u8(1).bytes(&value),
                };
            }
            Request::Scan { range, order } => {
                let is_whole = scan(&**data, snapshot.as_deref(), (range, order), &mut out)?;
                out.0[0] = u8::from(is_whole);
            }
            Request::Apply(operations) => data.apply(&operations)?,
            Request::Checkpoint(point) => data.checkpoint(&point)?,
            Request::ResumePoint => {
                if let Some(point) = data.resume_point()? {
                    out.0.extend(point.encode());
                }
            }
            Request::HighestTs => _ = out.u64(data.highest_ts()?),
            Request::ForgetBelow(ts) => data.forget_below(ts)?,
            Request::Snapshot => {
                *snapshot = data.snapshot()?;
                out.u8(u8::from(snapshot.is_some()));
            }
        }
        Ok(out.0)
    }
}

/// Scans from the beginning of a range, until the answer is full. Returns whether the range was
/// scanned to its end. Leaves the first byte of the answer to that.
fn scan(
    data: &dyn DataComponent,
    snapshot: Option<&dyn DataSnapshot>,
    (range, order): (KeyRange<'_>, ScanOrder),
    out: &mut Encoder,
) -> Result<bool, Error> {
    out.u8(0);
    let mut is_whole = true;
    let mut each = |operation: Operation<'_>| {
        if out.0.len() >= SCANNED {
            is_whole = false;
            return ControlFlow::Break(());
        }
        out.operation(&operation);
        ControlFlow::Continue(())
    };
    match snapshot {
        Some(snapshot) => snapshot.scan(range, order, &mut each)?,
        None => data.scan(range, order, &mut each)?,
    }
    Ok(is_whole)
}

fn failed(error: Error) -> Refusal {
    Refusal::Failed(match error {
        Error::DataComponent(why) => why,
        error => error.to_string(),
    })
}
