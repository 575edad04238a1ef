//! The socket file for clients of this machine, if `unixsocket` names a file: made when the server
//! starts, and removed when the server ends. A file left by a killed server is replaced.
//!
//! A bound socket that does not listen yet looks like the socket of a killed server. Invariant: the
//! file is made and removed under a lock of its directory, held from the check for another server
//! until this server listens. So of servers that start at once one server listens, and the rest
//! find its file.

use mio::net::{UnixListener, UnixStream};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt::Display;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a server waits for starts or ends of servers in the same directory, each far shorter.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The time between two attempts.
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// Longest path of a Unix socket, in bytes.
const LONGEST_PATH: usize = 107;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1_024;

/// The file of a socket. A drop removes the file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The file itself. While the file is open, no other file has its number.
    file: File,
}

/// The device of a file, and its number there.
fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

fn failed(path: &Path, why: impl Display) -> Error {
    Error::other(format!("cannot listen at unixsocket {}: {why}", path.display()))
}

/// Locks the directory of a socket until the result is dropped, also against servers of this
/// process.
fn lock_directory(path: &Path) -> Result<File> {
    let named = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = File::open(named.unwrap_or(Path::new(".")))?;
    let ends = Instant::now() + LOCK_WAIT;
    loop {
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(dir),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < ends => std::thread::sleep(LOCK_RETRY),
            Err(Errno::WOULDBLOCK) => {
                let seconds = LOCK_WAIT.as_secs();
                return Err(Error::other(format!(
                    "another program has locked its directory for {seconds} s: end that, or name \
                     another path"
                )));
            }
            Err(error) => {
                return Err(Error::other(format!("its directory cannot be locked: {error}")));
            }
        }
    }
}

/// Removes the file of a server that has ended. The directory is locked.
fn remove_stale(path: &Path) -> Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(path, error)),
    };
    if !kind.is_socket() {
        let why = "it is another file, which is left alone: name a path where there is none";
        return Err(failed(path, why));
    }
    match UnixStream::connect(path).map_err(|error| error.kind()) {
        Err(ErrorKind::ConnectionRefused) => {
            fs::remove_file(path).map_err(|error| failed(path, error))
        }
        // The connect would block if the queue of connections to accept is full.
        Ok(_) | Err(ErrorKind::WouldBlock) => {
            let why = "a server that runs listens there: stop it, or name another path";
            Err(failed(path, why))
        }
        Err(kind) => {
            let why = format!("it is there, and cannot be connected to ({kind}): remove it");
            Err(failed(path, why))
        }
    }
}

impl SocketFile {
    /// Makes the file, with the permissions if given, and listens.
    ///
    /// # Errors
    /// The path is too long, or names another kind of file; another server listens at the path.
    pub fn listen(path: &Path, permissions: Option<u32>) -> Result<(UnixListener, SocketFile)> {
        let length = path.as_os_str().len();
        if length > LONGEST_PATH {
            let why = format!("a path has at most {LONGEST_PATH} bytes, and this one {length}");
            return Err(failed(path, why));
        }
        let locked = lock_directory(path).map_err(|error| failed(path, error))?;
        remove_stale(path)?;
        let listen = || -> Result<(UnixListener, SocketFile)> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let family = AddressFamily::UNIX;
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
            let file = SocketFile { path: path.to_path_buf(), file };
            // No client connects before the server listens: not a client without permission,
            // either.
            if let Some(mode) = permissions {
                fs::set_permissions(path, Permissions::from_mode(mode))?;
            }
            rustix::net::listen(&socket, BACKLOG)?;
            let listener = std::os::unix::net::UnixListener::from(socket);
            Ok((UnixListener::from_std(listener), file))
        };
        let listens = listen().map_err(|error| failed(path, error));
        drop(locked);
        listens
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another server may have made its own file at the path, and makes none while the lock is
        // held.
        let Ok(_locked) = lock_directory(&self.path) else { return };
        let (Ok(own), Ok(found)) = (self.file.metadata(), fs::symlink_metadata(&self.path)) else {
            return;
        };
        if identity(&own) == identity(&found) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn refused(path: &Path) -> String {
        SocketFile::listen(path, None).expect_err("it is refused").to_string()
    }

    #[test]
    fn a_file_is_made_and_removed_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let (listener, file) = SocketFile::listen(&path, Some(0o600)).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        let error = refused(&path);
        assert!(error.contains("a server that runs listens there"), "{error}");
        assert!(path.exists(), "the file of a living server stays");
        drop((listener, file));
        assert!(!path.exists());
    }

    /// Leaves the remains of a killed server.
    fn leave_stale(path: &Path) {
        let (listener, file) = SocketFile::listen(path, None).unwrap();
        std::mem::forget(file);
        drop(listener);
        assert!(path.exists());
    }

    #[test]
    fn of_servers_that_start_at_once_one_listens_and_the_others_say_why_not() {
        const SERVERS: usize = 4;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let start = Barrier::new(SERVERS);
        for round in 0..100 {
            // In every second round there is no file.
            if round % 2 == 0 {
                leave_stale(&path);
            }
            let listen = || {
                start.wait();
                SocketFile::listen(&path, None)
            };
            let results: Vec<_> = std::thread::scope(|scope| {
                let servers = [(); SERVERS].map(|()| scope.spawn(listen));
                servers.into_iter().map(|server| server.join().unwrap()).collect()
            });
            let (listening, refused): (Vec<_>, Vec<_>) =
                results.into_iter().partition(|result| result.is_ok());
            assert_eq!((listening.len(), refused.len()), (1, SERVERS - 1), "round {round}");
            for result in refused {
                let error = result.unwrap_err().to_string();
                assert!(error.contains("a server that runs listens there"), "{error}");
            }
            assert!(UnixStream::connect(&path).is_ok(), "round {round}: the file is its own");
            drop(listening);
            assert!(!path.exists(), "round {round}");
        }
    }

    /// One server ends while the next server starts: if the next server listens, its file stays.
    #[test]
    fn a_server_that_ends_does_not_remove_the_file_of_one_that_starts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        for round in 0..200 {
            let (listener, ending) = SocketFile::listen(&path, None).unwrap();
            drop(listener);
            let start = Barrier::new(2);
            let next = std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    drop(ending);
                });
                start.wait();
                SocketFile::listen(&path, None).unwrap()
            });
            assert!(UnixStream::connect(&path).is_ok(), "round {round}");
            drop(next);
        }
    }

    #[test]
    fn a_directory_that_stays_locked_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let locked = lock_directory(&path).unwrap();
        assert!(refused(&path).contains("has locked its directory for 5 s"));
        drop(locked);
        assert!(SocketFile::listen(&path, None).is_ok());
    }

    #[test]
    fn what_a_killed_server_has_left_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        leave_stale(&path);
        let (_listener, second) = SocketFile::listen(&path, None).unwrap();
        // The file of another server at the path is not removed.
        fs::remove_file(&path).unwrap();
        let (_other, third) = SocketFile::listen(&path, None).unwrap();
        drop(second);
        assert!(path.exists());
        drop(third);
        assert!(!path.exists());
    }

    /// A server that ends no longer listens when the server removes its file.
    #[test]
    fn the_file_of_the_next_server_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let (listener, first) = SocketFile::listen(&path, None).unwrap();
        drop(listener);
        // A file system may give the number of the removed file to the new file.
        let (_listener, _second) = SocketFile::listen(&path, None).unwrap();
        drop(first);
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn no_other_file_is_touched_and_a_path_has_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "mine").unwrap();
        assert!(refused(&path).contains("it is another file"));
        assert!(refused(dir.path()).contains("it is another file"));
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert!(refused(&dir.path().join("none/socket")).contains("unixsocket"));
        let space = LONGEST_PATH - dir.path().as_os_str().len() - 1;
        let at = dir.path().join("x".repeat(space));
        assert!(SocketFile::listen(&at, None).is_ok());
        assert!(refused(&dir.path().join("x".repeat(space + 1))).contains("at most 107 bytes"));
    }
}
