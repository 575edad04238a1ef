//! Transaction ids.

use hyades_wal::Lsn;
use std::fmt;
use std::str::FromStr;

/// Identifies a transaction by its epoch and the end of its record. Written `epoch.stream.lsn`.
/// [`Ticket::transaction_id`](crate::Ticket::transaction_id) and `hyades log dump` return ids;
/// [`Until::Transaction`](crate::Until::Transaction) and `hyades recover --until` take ids.
///
/// ```
/// use hyades::TransactionId;
/// let id: TransactionId = "5213.3.1048576".parse()?;
/// assert_eq!((id.epoch, id.stream, id.lsn), (5213, 3, 1048576));
/// assert_eq!(id.to_string(), "5213.3.1048576");
/// # Ok::<_, String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// The epoch of the commit.
    pub epoch: u64,
    /// Id of the log stream with the record.
    pub stream: u32,
    /// LSN of the end of the record in the stream.
    pub lsn: Lsn,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.epoch, self.stream, self.lsn)
    }
}

impl FromStr for TransactionId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('.');
        let numbers = (parts.next(), parts.next(), parts.next(), parts.next());
        let parsed = match numbers {
            (Some(epoch), Some(stream), Some(lsn), None) => {
                epoch.parse().ok().zip(stream.parse().ok()).zip(lsn.parse().ok())
            }
            _ => None,
        };
        let ((epoch, stream), lsn) = parsed.ok_or_else(|| {
            format!("{text:?} is no transaction id: it is three numbers, as in 5213.3.1048576")
        })?;
        Ok(TransactionId { epoch, stream, lsn })
    }
}
