//! The messages of the protocol, and their encoding.
//!
//! A frame is a length (4 bytes, of the body), a CRC-32C of the body (4 bytes), and the body: the
//! kind of the message (1 byte) and its fields. Numbers are little-endian; byte strings have their
//! length before them (4 bytes).

use hyades_deuteronomy::{KeyRange, Limits, Operation, ResumePoint, ScanOrder};
use std::ops::Bound;

/// The first bytes of a greeting, with the version of the protocol.
pub(crate) const MAGIC: [u8; 8] = *b"HYDC\0\0\0\x01";
/// The longest body, in bytes: more than a key and a value of the longest kinds.
pub(crate) const MOST_BODY: usize = 64 << 20;

/// The longest greeting, in bytes.
pub(crate) const LONGEST_GREETING: usize = 64;

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// A client comes for the first time.
    Join { client: u64 },
    /// A client with kept operations returns, and finds another boot. Its resume points have this
    /// incarnation.
    Return { client: u64, incarnation: u32 },
    /// A further connection of a client to a boot that it knows.
    Attach { client: u64, boot: u64 },
}

/// A question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request<'m> {
    Get(&'m [u8]),
    Scan {
        range: KeyRange<'m>,
        order: ScanOrder,
    },
    Apply(Vec<Operation<'m>>),
    Checkpoint(ResumePoint),
    ResumePoint,
    HighestTs,
    ForgetBelow(u64),
    /// From here on, the connection reads a snapshot.
    Snapshot,
}

/// Why a request or a greeting was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The data component failed.
    Failed(String),
    /// The boot is another one than the client knows.
    Restarted,
    /// Another client has taken the place.
    Displaced,
    /// The server has as many connections as its limit allows.
    Full,
}

/// What a server tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    pub boot: u64,
    /// The incarnation of the resume point; 0 without one, and for a further connection.
    pub incarnation: u32,
    pub limits: Limits,
}

/// Appends the fields of a message.
#[derive(Debug, Default)]
pub(crate) struct Encoder(pub Vec<u8>);

impl Encoder {
    pub fn u8(&mut self, number: u8) -> &mut Self {
        self.0.push(number);
        self
    }

    pub fn u32(&mut self, number: u32) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    pub fn u64(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn operation(&mut self, operation: &Operation<'_>) -> &mut Self {
        self.bytes(operation.key).u64(operation.ts);
        match operation.value {
            None => self.u8(0),
            Some(value) => self.u8(1).bytes(value),
        }
    }

    fn bound(&mut self, bound: Bound<&[u8]>) {
        match bound {
            Bound::Unbounded => self.u8(0),
            Bound::Included(key) => self.u8(1).bytes(key),
            Bound::Excluded(key) => self.u8(2).bytes(key),
        };
    }
}

/// Takes the fields of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'m>(pub &'m [u8]);

impl<'m> Decoder<'m> {
    fn take(&mut self, n: usize) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub fn bytes(&mut self) -> Option<&'m [u8]> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    pub fn operation(&mut self) -> Option<Operation<'m>> {
        let (key, ts) = (self.bytes()?, self.u64()?);
        let value = match self.u8()? {
            0 => None,
            1 => Some(self.bytes()?),
            _ => return None,
        };
        Some(Operation { key, ts, value })
    }

    /// Operations up to the end.
    pub fn operations(&mut self) -> Option<Vec<Operation<'m>>> {
        let mut all = Vec::new();
        while !self.0.is_empty() {
            all.push(self.operation()?);
        }
        Some(all)
    }

    fn bound(&mut self) -> Option<Bound<&'m [u8]>> {
        Some(match self.u8()? {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.bytes()?),
            2 => Bound::Excluded(self.bytes()?),
            _ => return None,
        })
    }

    /// The last field; None if more follows.
    fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// A request to apply operations, without room for more: the client keeps the request.
pub(crate) fn encode_apply(operations: &[Operation<'_>]) -> Vec<u8> {
    let value_len = |value: &[u8]| 4 + value.len();
    let length = |o: &Operation<'_>| 4 + o.key.len() + 8 + 1 + o.value.map_or(0, value_len);
    let mut out = Encoder(Vec::with_capacity(1 + operations.iter().map(length).sum::<usize>()));
    operations.iter().fold(out.u8(3), |out, operation| out.operation(operation));
    out.0
}

impl Greeting {
    pub fn client(self) -> u64 {
        match self {
            Self::Join { client } | Self::Return { client, .. } | Self::Attach { client, .. } => {
                client
            }
        }
    }

    pub fn encode(self) -> Vec<u8> {
        let mut out = Encoder(MAGIC.to_vec());
        match self {
            Self::Join { client } => out.u8(0).u64(client),
            Self::Return { client, incarnation } => out.u8(1).u64(client).u32(incarnation),
            Self::Attach { client, boot } => out.u8(2).u64(client).u64(boot),
        };
        out.0
    }

    /// None: no greeting, or of another version.
    pub fn decode(body: &[u8]) -> Option<Self> {
        let mut rest = Decoder(body.strip_prefix(&MAGIC)?);
        let (kind, client) = (rest.u8()?, rest.u64()?);
        let greeting = match kind {
            0 => Self::Join { client },
            1 => Self::Return { client, incarnation: rest.u32()? },
            2 => Self::Attach { client, boot: rest.u64()? },
            _ => return None,
        };
        rest.end(greeting)
    }
}

impl<'m> Request<'m> {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        match self {
            Self::Get(key) => out.u8(1).bytes(key),
            Self::Scan { range: (from, to), order } => {
                out.u8(2).u8(u8::from(*order == ScanOrder::Descending));
                out.bound(*from);
                out.bound(*to);
                &mut out
            }
            Self::Apply(operations) => return encode_apply(operations),
            Self::Checkpoint(point) => {
                out.u8(4).0.extend(point.encode());
                &mut out
            }
            Self::ResumePoint => out.u8(5),
            Self::HighestTs => out.u8(6),
            Self::ForgetBelow(ts) => out.u8(7).u64(*ts),
            Self::Snapshot => out.u8(8),
        };
        out.0
    }

    /// None: the bytes are no request.
    pub fn decode(body: &'m [u8]) -> Option<Self> {
        let mut rest = Decoder(body);
        let request = match rest.u8()? {
            1 => Self::Get(rest.bytes()?),
            2 => {
                let order = match rest.u8()? {
                    0 => ScanOrder::Ascending,
                    1 => ScanOrder::Descending,
                    _ => return None,
                };
                Self::Scan { range: (rest.bound()?, rest.bound()?), order }
            }
            3 => return rest.operations().map(Self::Apply),
            4 => return ResumePoint::decode(rest.0).map(Self::Checkpoint),
            5 => Self::ResumePoint,
            6 => Self::HighestTs,
            7 => Self::ForgetBelow(rest.u64()?),
            8 => Self::Snapshot,
            _ => return None,
        };
        rest.end(request)
    }
}

impl Welcome {
    pub fn encode(self) -> Vec<u8> {
        let Limits { key_bytes, value_bytes, is_durable } = self.limits;
        let mut out = Encoder::default();
        out.u64(self.boot)
            .u32(self.incarnation)
            .u64(key_bytes as u64)
            .u64(value_bytes as u64)
            .u8(is_durable.into());
        out.0
    }

    pub fn decode(body: &[u8]) -> Option<Self> {
        let mut rest = Decoder(body);
        let (boot, incarnation) = (rest.u64()?, rest.u32()?);
        let (key_bytes, value_bytes) = (rest.u64()?, rest.u64()?);
        let (key_bytes, value_bytes) = (key_bytes as usize, value_bytes as usize);
        let limits = Limits { key_bytes, value_bytes, is_durable: rest.u8()? == 1 };
        rest.end(Welcome { boot, incarnation, limits })
    }
}

/// The body of an answer.
pub(crate) fn encode_answer(answer: Result<Vec<u8>, Refusal>) -> Vec<u8> {
    let mut out = Encoder::default();
    match answer {
        Ok(fields) => {
            out.u8(0).0.extend(fields);
        }
        Err(Refusal::Failed(why)) => {
            out.u8(1).bytes(why.as_bytes());
        }
        Err(Refusal::Restarted) => {
            out.u8(2);
        }
        Err(Refusal::Displaced) => {
            out.u8(3);
        }
        Err(Refusal::Full) => {
            out.u8(4);
        }
    }
    out.0
}

/// The fields of an answer. None: the bytes are no answer.
pub(crate) fn decode_answer(body: &[u8]) -> Option<Result<&[u8], Refusal>> {
    let mut rest = Decoder(body);
    Some(match rest.u8()? {
        0 => Ok(rest.0),
        1 => Err(Refusal::Failed(String::from_utf8_lossy(rest.bytes()?).into_owned())),
        2 => Err(Refusal::Restarted),
        3 => Err(Refusal::Displaced),
        4 => Err(Refusal::Full),
        _ => return None,
    })
}

/// The operations of an answer to a scan, and whether the range was scanned to its end.
pub(crate) fn decode_scanned(fields: &[u8]) -> Option<(bool, Vec<Operation<'_>>)> {
    let mut rest = Decoder(fields);
    Some((rest.u8()? == 1, rest.operations()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request<'static>> {
        let operations = vec![
            Operation { key: b"", ts: 1, value: Some(b"") },
            Operation { key: b"a", ts: u64::MAX, value: None },
            Operation { key: b"b", ts: 3, value: Some(b"value") },
        ];
        let point =
            ResumePoint { uuid: [7; 16], incarnation: 3, highest_ts: 9, positions: vec![1, 2] };
        let bounds = [Bound::Unbounded, Bound::Included(&b"a"[..]), Bound::Excluded(&b"b"[..])];
        let mut all = vec![
            Request::Get(b"key"),
            Request::Apply(operations),
            Request::Apply(Vec::new()),
            Request::Checkpoint(point),
            Request::ResumePoint,
            Request::HighestTs,
            Request::ForgetBelow(8),
            Request::Snapshot,
        ];
        for order in [ScanOrder::Ascending, ScanOrder::Descending] {
            let ranges = bounds.iter().flat_map(|from| bounds.iter().map(move |to| (*from, *to)));
            all.extend(ranges.map(|range| Request::Scan { range, order }));
        }
        all
    }

    #[test]
    fn what_is_encoded_comes_back_and_what_is_cut_off_does_not() {
        for request in requests() {
            let bytes = request.encode();
            if let Request::Apply(_) = request {
                assert_eq!(bytes.capacity(), bytes.len());
            }
            assert_eq!(Request::decode(&bytes), Some(request.clone()));
            for len in 0..bytes.len() {
                let cut = Request::decode(&bytes[..len]);
                assert_ne!(cut, Some(request.clone()), "cut off at {len}");
            }
        }
        for greeting in [
            Greeting::Join { client: 5 },
            Greeting::Return { client: 5, incarnation: 7 },
            Greeting::Attach { client: 5, boot: 9 },
        ] {
            let bytes = greeting.encode();
            assert_eq!(Greeting::decode(&bytes), Some(greeting));
            assert_eq!(Greeting::decode(&bytes[1..]), None);
            assert_eq!(Greeting::decode(&[&bytes[..], &[0]].concat()), None);
        }
        let limits = Limits { key_bytes: 100, value_bytes: 1 << 20, is_durable: true };
        let welcome = Welcome { boot: 5, incarnation: 7, limits };
        assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
        for answer in [
            Ok(b"fields".to_vec()),
            Err(Refusal::Failed("no".into())),
            Err(Refusal::Restarted),
            Err(Refusal::Displaced),
            Err(Refusal::Full),
        ] {
            let bytes = encode_answer(answer.clone());
            let decoded = decode_answer(&bytes).unwrap();
            assert_eq!(decoded.map(<[u8]>::to_vec), answer);
        }
    }
}
