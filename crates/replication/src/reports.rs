//! Messages of members to each other, by broadcasts, which may be lost: how far a standby is,
//! orders to hand the database over, the news that a lease was given away, and verifications. A
//! message is text of JSON behind a magic.

use hyades_wal::Lsn;
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"HYTELL01";

/// A message of a member to all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Told {
    /// How far a standby is.
    Standby(Report),
    /// A member asks the primary of a database to hand over, to a node or to any.
    HandOver {
        /// The database's uuid, in hexadecimal digits.
        database: String,
        /// The node.
        to: Option<String>,
    },
    /// Asks the members of a database for the digests of one state.
    Verify {
        /// The database's uuid, in hexadecimal digits.
        database: String,
        /// The number of the verification, above 0.
        number: u64,
    },
    /// What a member found.
    Verified(Verified),
    /// The primary of a database has given its lease away: the key of the lease says to which node.
    Released {
        /// The database's uuid, in hexadecimal digits.
        database: String,
    },
}

/// The digests of a member for a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// The database's uuid, in hexadecimal digits.
    pub database: String,
    /// The number of the verification.
    pub number: u64,
    /// The node of the member.
    pub node: String,
    /// The incarnation of the log.
    pub incarnation: u32,
    /// The last epoch of the state.
    pub epoch: u64,
    /// By table, in the order of declarations: name, number of rows, digest; or why there are none.
    pub tables: Result<Vec<(String, u64, u64)>, String>,
}

/// How far a standby is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The database's uuid, in hexadecimal digits.
    pub database: String,
    /// The node of the standby.
    pub node: String,
    /// Where clients reach the standby; empty if nowhere.
    pub address: String,
    /// The incarnation that is followed.
    pub incarnation: u32,
    /// By stream, the end of what is synced.
    pub synced: Vec<Lsn>,
    /// The age of the served state in microseconds; `None` before the first round.
    pub lag_us: Option<u64>,
}

/// A report with the time of its arrival by [`clock::monotonic_ns`].
///
/// [`clock::monotonic_ns`]: hyades_platform::clock::monotonic_ns
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The report.
    pub report: Report,
    /// The time of the arrival.
    pub at_ns: u64,
}

pub(crate) fn encode(told: &Told) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    serde_json::to_writer(&mut bytes, told).expect("what members tell is plain");
    bytes
}

/// `None`: another kind of broadcast, or damaged.
pub(crate) fn decode(bytes: &[u8]) -> Option<Told> {
    serde_json::from_slice(bytes.strip_prefix(MAGIC)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_reads_back() {
        let report = Report {
            database: "00".into(),
            node: "n1".into(),
            address: "h:1".into(),
            incarnation: 3,
            synced: vec![1, 2],
            lag_us: Some(4),
        };
        for told in [
            Told::Standby(report),
            Told::HandOver { database: "00".into(), to: Some("n2".into()) },
            Told::Released { database: "00".into() },
            Told::Verify { database: "00".into(), number: u64::MAX },
            Told::Verified(Verified {
                database: "00".into(),
                number: 1,
                node: "n1".into(),
                incarnation: 3,
                epoch: 4,
                tables: Ok(vec![("t".into(), 5, u64::MAX)]),
            }),
        ] {
            let bytes = encode(&told);
            assert_eq!(decode(&bytes), Some(told));
            assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(decode(b"HYMARK01"), None);
    }
}
