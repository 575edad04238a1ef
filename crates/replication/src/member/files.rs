//! The files of a member before its database has a replicated log.

use crate::lease;
use crate::standby::StandbyError;
use hyades::Builder;
use hyades_wal::{Error, LogOptions, Recovering};
use std::path::PathBuf;

/// What the directories hold.
pub(super) struct LocalFiles {
    /// The uuid of the database, if there is one.
    pub database: Option<[u8; 16]>,
    /// The number of the next incarnation.
    pub next: u32,
    /// Whether there is content that no lane has.
    pub has_content: bool,
    /// All epochs up to here count as used.
    pub epoch: u64,
}

/// Names the first directory, which is created if it is missing.
pub(super) fn place(dirs: &[PathBuf]) -> Result<String, StandbyError> {
    let io = |action, path: &PathBuf| {
        let path = path.clone();
        move |source| StandbyError::Files(Error::Io { path, action, source })
    };
    let Some(dir) = dirs.first() else {
        let what = "a member has at least one directory".to_owned();
        return Err(StandbyError::Files(Error::Invalid(what)));
    };
    std::fs::create_dir_all(dir).map_err(io("create the directory", dir))?;
    lease::place_of(dir).map_err(io("look at the directory", dir))
}

fn look(options: LogOptions) -> Result<Recovering, Error> {
    match hyades_wal::open(options.clone()) {
        // A member's, perhaps: it was the founder, and ended before its incarnation began.
        Err(Error::Invalid(_)) => hyades_wal::open_read(options),
        found => found,
    }
}

impl LocalFiles {
    /// Looks at the directories. A database that is no member's is opened and closed: what it holds
    /// is complete then.
    pub fn look(
        dirs: &[PathBuf],
        declare: &dyn Fn() -> Builder,
    ) -> Result<LocalFiles, StandbyError> {
        let options = || declare().mirror_options(dirs.to_vec(), 1);
        let found = look(options())?;
        let fresh = LocalFiles { database: None, next: 1, has_content: false, epoch: 0 };
        let manifest = found.manifest();
        let is_member = manifest.member.is_some();
        if found.is_fresh() {
            let database = is_member.then(|| manifest.uuid());
            return Ok(LocalFiles { database, ..fresh });
        }
        if !is_member {
            drop(found);
            let others = dirs.iter().skip(1);
            let builder = others.fold(declare(), |builder, dir| builder.log_dir(dir));
            builder.open(&dirs[0])?.close()?;
            return LocalFiles::of(&look(options())?);
        }
        LocalFiles::of(&found)
    }

    fn of(found: &Recovering) -> Result<LocalFiles, StandbyError> {
        let manifest = found.manifest();
        let newest = manifest.newest().map_or(0, |newest| newest.number);
        Ok(LocalFiles {
            database: Some(manifest.uuid()),
            next: newest + 1,
            has_content: true,
            epoch: manifest.epoch_floor,
        })
    }
}
