//! Physiological logging: one stream; a frame for each changed row with before- and after-image,
//! then a frame that states the commit (Malviya, Weisberg, Madden, Stonebraker: "Rethinking Main
//! Memory OLTP Recovery", ICDE 2014, section IV, after ARIES). The baseline for command logging.
//!
//! Rows are named by table and primary key, not by page. Only changed columns are logged, before
//! and after ("differential logging"); an insert has no before-image. As in the paper all frames
//! are written together when the transaction commits, and there is no begin record.
//!
//! Recovery repeats history: every row frame is redone when read, whether the transaction committed
//! or not. A *group* of row frames is complete only if the frame that ends the group is in the
//! valid prefix of the stream; incomplete groups are undone at the end, backwards, from the
//! before-images. A transaction reserves all its frames, the last frame included, while it holds
//! its write locks. So after the frames of a lost transaction no frame in the valid prefix changes
//! the same rows, and the undo reverts nothing else.
//!
//! *Removal of the undo pass* (section IV, B): rows are installed at commit and checkpoint images
//! hold only committed rows, so before-images are not needed if recovery buffers a group until the
//! last frame has been read. Then before-images are not logged.
//! [`hyades::ResearchSettings::undo`] chooses.
//!
//! Acknowledgement is as under serial logging: a writer waits for its last frame, a reader for
//! everything reserved before the reader ended. Rows have no stamps. There are no command records.

use hyades::LogSettings;
use hyades::plug::{
    Draft, LoggingProtocol, Needs, Reserved, RowFrames, Stamp, StartContext, StartsOnLog,
};
use hyades_platform::broken;
use hyades_wal::{Lane, Log, Lsn};

pub struct Physiological {
    log: Log,
    rows: RowFrames,
    /// The most bytes of changes that a transaction writes.
    most: usize,
}

impl LoggingProtocol for Physiological {
    type RowStamp = ();
    type TxnStamp = ();

    fn txn_stamp(&self) {}

    /// The loss of a frame includes all later frames of the stream.
    fn follow(&self, _: &mut (), _: &Needs) {}

    /// Logs the changes, row by row, then a record that only states the commit.
    fn append<'w, M: Stamp>(&self, _: &mut (), mut draft: Draft<'_, 'w, M>) -> Reserved<'w> {
        let first = draft.write_rows(self.rows, self.most);
        draft.compose_after(first).reserve()
    }

    fn needs(&self, _: &mut (), own: Option<(usize, Lsn)>, needs: &mut Needs) {
        if broken!(AckBeforeOwnFrame) {
            return;
        }
        let lsn = own.map_or_else(|| self.log.next_lsn(0), |(_, lsn)| lsn);
        needs.push((Lane::position(0), lsn));
    }
}

impl StartsOnLog for Physiological {
    const NAME: &'static str = "physiological";
    const VECTORS: bool = false;

    fn rows(settings: &LogSettings) -> RowFrames {
        if settings.research.undo { RowFrames::Both } else { RowFrames::After }
    }

    fn start(context: &StartContext<'_>) -> Self {
        let most = context.settings.research.cut_changes.unwrap_or(usize::MAX);
        Physiological { log: context.log.clone(), rows: Self::rows(context.settings), most }
    }
}
