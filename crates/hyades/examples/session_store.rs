//! A store of web sessions: created at login, looked up with each request, removed at logout or
//! when they expire.
//!
//! `cargo run -p hyades --example session_store`

use hyades::{Database, Error, Table, TypedTable};
use std::path::Path;

const LIFETIME_US: i64 = 20_000;

#[derive(Table)]
struct WebSession {
    #[key]
    token: u64,
    #[index]
    user: u64,
    #[index]
    expires_us: i64,
}

#[derive(Table)]
struct Login {
    #[key]
    user: u64,
    count: u64,
}

type Store = (Database, TypedTable<WebSession>, TypedTable<Login>);

fn open(dir: &Path) -> Result<Store, Error> {
    let mut builder = Database::builder();
    let (sessions, logins) = (builder.table_of::<WebSession>(), builder.table_of::<Login>());
    Ok((builder.open(dir)?, sessions, logins))
}

/// Creates a session, and removes expired sessions. Returns how often the user has logged in.
fn log_in((db, sessions, logins): &Store, user: u64) -> Result<u64, Error> {
    db.transact(|tx| {
        let (token, now) = (tx.random(), tx.now_us());
        let expired = sessions.index(tx, WebSession::BY_EXPIRES_US).range(..now).limit(10);
        for session in expired.rows()? {
            sessions.delete(tx, session.token)?;
        }
        sessions.insert(tx, &WebSession { token, user, expires_us: now + LIFETIME_US })?;
        let count = logins.get(tx, user)?.map_or(0, |login| login.count) + 1;
        logins.upsert(tx, &Login { user, count })?;
        Ok(count)
    })
}

/// Logs in until `go_on` says no; `go_on` gets the number of logins of the user.
pub fn run(dir: &Path, go_on: &mut dyn FnMut(u64) -> bool) -> Result<(), Error> {
    let store = open(dir)?;
    while go_on(log_in(&store, 7)?) {}
    Ok(())
}

/// How often the user has logged in; fails if there are sessions of another.
pub fn check(dir: &Path) -> Result<u64, Error> {
    let (db, sessions, logins) = open(dir)?;
    db.transact(|tx| {
        let count = logins.get(tx, 7)?.map_or(0, |login| login.count);
        let of_user = sessions.index(tx, WebSession::BY_USER).equal(7).rows()?.len();
        assert_eq!(of_user, sessions.scan(tx).rows()?.len());
        Ok(count)
    })
}

fn main() -> Result<(), Error> {
    let temporary = tempfile::tempdir().map_err(Error::user)?;
    run(temporary.path(), &mut |logins| logins < 100)?;
    println!("{} logins, none forgotten", check(temporary.path())?);
    Ok(())
}
