//! Physiological logging: one stream, a frame for each changed row with what it was and what it is, then
//! one that says that the transaction has committed (Malviya, Weisberg, Madden, Stonebraker: "Rethinking
//! Main Memory OLTP Recovery", ICDE 2014, section IV, after ARIES). The yardstick of command logging.
//!
//! Rows are named by table and primary key, not by page. Of changed columns only these are logged, before
//! and after ("differential logging"); an insert has no before-image. As in the paper the frames are written
//! when the transaction commits, all together, and nothing says that it began.
//!
//! Recovery repeats history: every row frame is redone as it is read, whether its transaction committed
//! or not. A *group* of row frames is complete only if the frame that ends it lies in the valid prefix of
//! the stream; the others are undone at the end, backwards, from their before-images. A transaction
//! reserves all its frames, the last one too, while it holds what it writes. So whatever follows the
//! frames of a lost transaction in the valid prefix did not touch its rows, and undoing it takes back
//! nothing else.
//!
//! *Removal of the undo pass* (section IV, B): rows reach memory at commit and images of checkpoints hold what
//! has committed, so before-images are not needed if a group is kept aside until its last frame has been seen. Then
//! they are not logged. [`LogSettings::undo`](crate::LogSettings::undo) chooses.
//!
//! Whoever is to be answered waits as under serial logging: for its last frame, and a reader for all that
//! was reserved before it ended. Rows remember nothing. Data records only, by what they are.

use super::row_frame::RowFrames;
use super::settings::LogSettings;
use super::{Ground, LoggingProtocol, Needs, StartsOnLog};
use hyades_platform::mutation::{self, Mutation};
use hyades_wal::{Log, Lsn};

pub(crate) struct Physiological {
    log: Log,
    rows: RowFrames,
}

impl LoggingProtocol for Physiological {
    type RowStamp = ();
    type TxnStamp = ();

    fn txn_stamp(&self) {}

    fn row_frames(&self) -> RowFrames {
        self.rows
    }

    fn needs(&self, _: &mut (), own: Option<(usize, Lsn)>, needs: &mut Needs) {
        if mutation::is(Mutation::AckBeforeOwnFrame) {
            return;
        }
        let lsn = own.map_or_else(|| self.log.next_lsn(0), |(_, lsn)| lsn);
        needs.push((0, lsn));
    }
}

impl StartsOnLog for Physiological {
    const NAME: &'static str = "physiological";
    const VECTORS: bool = false;

    fn rows(settings: &LogSettings) -> RowFrames {
        if settings.undo { RowFrames::Both } else { RowFrames::After }
    }

    fn start(ground: &Ground<'_>) -> Self {
        Physiological { log: ground.log.clone(), rows: Self::rows(ground.settings) }
    }
}
