//! The data component that asks a server.

use crate::kept::KeptBatches;
use crate::message::{Decoder, Greeting, Request, encode_apply};
use crate::peer::{
    Link, Missed, Peer, RemoteOptions, decode_found, fields, greet, scan, unreadable, until_reached,
};
use crate::snapshot::RemoteSnapshot;
use hyades_deuteronomy::{
    DataComponent, DataSnapshot, Error, Found, KeyRange, Limits, Operation, ResumePoint, ScanOrder,
};
use hyades_platform::sync::locked;
use hyades_platform::{broken, event};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// About the most bytes of keys and values sent at once.
const MOST_SENT: usize = 8 << 20;

/// A data component at the other end of a connection: see the crate's documentation.
#[derive(Debug)]
pub struct RemoteData {
    server: Arc<Peer>,
    kept: Mutex<KeptBatches>,
    /// The newest resume point that may be stable at the server, once known. Held during each
    /// checkpoint: so no checkpoint makes an earlier point stable after a later one (R4).
    point: Mutex<Option<ResumePoint>>,
    /// The checkpoints taken for room.
    for_room: AtomicU64,
    /// Held by the thread that gives the kept operations to a new boot.
    returning: Mutex<()>,
}

impl RemoteData {
    /// Connects to a [`DataServer`](crate::DataServer), and takes the place of any client before.
    ///
    /// # Errors
    /// The server is not reached within [`RemoteOptions::patience`], or is no server of a data
    /// component.
    pub fn connect(address: &str, options: RemoteOptions) -> Result<Self, Error> {
        let client = fastrand::Rng::new().u64(1..);
        let join = || greet(address, Greeting::Join { client });
        let (connection, welcome) = until_reached((address, options), join)?;
        let (boot, idle) = (welcome.boot, vec![connection]);
        let server = Peer {
            address: address.to_owned(),
            options,
            client,
            limits: welcome.limits,
            link: Mutex::new(Link { boot, idle, incarnation: welcome.incarnation }),
        };
        let (server, kept) = (Arc::new(server), Mutex::default());
        let (point, for_room) = (Mutex::default(), AtomicU64::new(0));
        Ok(Self { server, kept, point, for_room, returning: Mutex::default() })
    }

    /// The bytes of operations kept for a server that restarts.
    pub fn kept_bytes(&self) -> usize {
        locked(&self.kept).bytes()
    }

    /// The checkpoints taken because of [`RemoteOptions::kept_bytes`].
    pub fn checkpoints_for_room(&self) -> u64 {
        self.for_room.load(Ordering::Relaxed)
    }

    /// R4: makes room for further bytes to be kept, by a checkpoint with the last resume point. The
    /// data may be ahead of their point. Without a point nothing can be made stable.
    fn make_room(&self, bytes: usize) -> Result<(), Error> {
        let most = self.server.options.kept_bytes;
        let is_too_much = || {
            let kept = locked(&self.kept).bytes();
            kept > 0 && kept.saturating_add(bytes) > most
        };
        if !is_too_much() {
            return Ok(());
        }
        let mut point = locked(&self.point);
        if !is_too_much() {
            return Ok(());
        }
        if point.is_none() {
            *point = self.resume_point()?;
        }
        let Some(point) = &*point else { return Ok(()) };
        self.for_room.fetch_add(1, Ordering::Relaxed);
        self.make_stable(point)
    }

    /// Takes a checkpoint. The caller holds the point.
    fn make_stable(&self, point: &ResumePoint) -> Result<(), Error> {
        // Before the point may be stable: a client of a lower incarnation is not let in again.
        if !broken!(RaiseIncarnationLate) {
            locked(&self.server.link).incarnation = point.incarnation;
        }
        let mut stable = locked(&self.kept).applied();
        if broken!(ForgetUnstable) {
            locked(&self.kept).forget(&stable);
        }
        self.ask(&Request::Checkpoint(point.clone()).encode())?;
        if broken!(ForgetAppliedSince) {
            stable = locked(&self.kept).applied();
        }
        locked(&self.kept).forget(&stable);
        locked(&self.server.link).incarnation = point.incarnation;
        Ok(())
    }

    /// Attempts until the server is reached. Another boot is given the kept operations first.
    fn until_reached<T>(&self, attempt: impl Fn() -> Result<T, Missed>) -> Result<T, Error> {
        let attempt = || match attempt() {
            Err(Missed::Restarted(boot)) => {
                self.return_to_next_boot(boot).map_err(Missed::Refused)?;
                Err(Missed::Restarted(boot))
            }
            Err(Missed::Unreached(why)) => {
                self.server.forget_idle();
                Err(Missed::Unreached(why))
            }
            attempted => attempted,
        };
        until_reached(self.server.place(), attempt)
    }

    /// Asks until there is an answer.
    fn ask(&self, request: &[u8]) -> Result<Vec<u8>, Error> {
        self.until_reached(|| {
            let (boot, mut connection) = self.server.connection()?;
            let answer = fields(connection.ask(request)?, boot)?.to_vec();
            self.server.put_back(boot, connection);
            Ok(answer)
        })
    }

    /// R1: gives the kept operations to the boot that is there after `before`.
    fn return_to_next_boot(&self, before: u64) -> Result<(), Error> {
        let _returning = locked(&self.returning);
        if locked(&self.server.link).boot != before {
            return Ok(());
        }
        until_reached(self.server.place(), || self.try_to_return())
    }

    fn try_to_return(&self) -> Result<(), Missed> {
        let (server, began) = (&self.server, Instant::now());
        let (client, incarnation) = (server.client, locked(&server.link).incarnation);
        let greeting = Greeting::Return { client, incarnation };
        let (mut connection, welcome) = greet(&server.address, greeting)?;
        if welcome.limits != server.limits {
            return Err(Missed::Refused(Error::DataComponent(format!(
                "the server at {} has come back with another data component: its limits were {:?}, \
                 and are {:?}",
                server.address, server.limits, welcome.limits
            ))));
        }
        if broken!(AskBeforeReturned) {
            locked(&server.link).boot = welcome.boot;
        }
        // A batch kept from now on is sent by its own thread, to this boot or a later one.
        let (mut next, mut batches) = (0, 0u64);
        loop {
            let Some((number, request)) = locked(&self.kept).first_from(next) else { break };
            fields(connection.ask(&request)?, welcome.boot)?;
            locked(&self.kept).note_applied(number);
            (next, batches) = (number + 1, batches + 1);
        }
        let mut link = locked(&server.link);
        (link.boot, link.idle) = (welcome.boot, vec![connection]);
        let seconds = began.elapsed().as_secs_f64();
        event!(WARN, "data server restarted", batches = batches, seconds = seconds);
        Ok(())
    }
}

/// How many operations from the first on are sent at once. A batch may have a whole transaction.
fn first_piece(batch: &[Operation<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |operation: &&Operation<'_>| {
        bytes += operation.key.len() + operation.value.map_or(0, <[u8]>::len);
        bytes <= MOST_SENT
    };
    batch.iter().take_while(fits).count().max(1)
}

impl DataComponent for RemoteData {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        decode_found(&self.ask(&Request::Get(key).encode())?)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        scan((range, order), each, |request| self.ask(request))
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        let mut rest = batch;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(first_piece(rest));
            rest = behind;
            let request = Arc::new(encode_apply(piece));
            self.make_room(request.len())?;
            let number = if broken!(KeepOnceApplied) {
                self.ask(&request)?;
                locked(&self.kept).keep(&request)
            } else {
                let number = locked(&self.kept).keep(&request);
                self.ask(&request)?;
                number
            };
            locked(&self.kept).note_applied(number);
        }
        Ok(())
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        let mut last = locked(&self.point);
        // First: the point may be stable though the call fails.
        *last = Some(point.clone());
        self.make_stable(point)
    }

    fn resume_point(&self) -> Result<Option<ResumePoint>, Error> {
        let answer = self.ask(&Request::ResumePoint.encode())?;
        match answer.is_empty() {
            true => Ok(None),
            false => unreadable(ResumePoint::decode(&answer)).map(Some),
        }
    }

    fn highest_ts(&self) -> Result<u64, Error> {
        let answer = self.ask(&Request::HighestTs.encode())?;
        unreadable(Decoder(&answer).u64())
    }

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        self.ask(&Request::ForgetBelow(ts).encode()).map(drop)
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn DataSnapshot>>, Error> {
        let snapshot = self.until_reached(|| RemoteSnapshot::begin(&self.server))?;
        Ok(snapshot.map(|one| Arc::new(one) as Arc<dyn DataSnapshot>))
    }

    fn limits(&self) -> Limits {
        self.server.limits
    }
}
