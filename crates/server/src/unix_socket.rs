//! The file that clients of this machine connect to, if `unixsocket` names one: it is made when the
//! server starts, and removed when it ends. One that a killed server has left is replaced.

use mio::net::{UnixListener, UnixStream};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt::Display;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Longest path of a Unix socket, in bytes.
const LONGEST_PATH: usize = 107;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1_024;

/// The file of a socket. Dropped, it is removed.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The file itself. While it is open, no other file has its number.
    file: File,
}

/// The device of a file, and its number there.
fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

fn failed(path: &Path, why: impl Display) -> Error {
    Error::other(format!("cannot listen at unixsocket {}: {why}", path.display()))
}

/// Removes the file of a server that is gone.
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
        // It would block if too many wait to be accepted.
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
    /// Makes the file, with these permissions if they are given, and listens.
    ///
    /// # Errors
    /// The path is too long, or names something else; another server listens there.
    pub fn listen(path: &Path, permissions: Option<u32>) -> Result<(UnixListener, SocketFile)> {
        let length = path.as_os_str().len();
        if length > LONGEST_PATH {
            let why = format!("a path has at most {LONGEST_PATH} bytes, and this one {length}");
            return Err(failed(path, why));
        }
        remove_stale(path)?;
        let listen = || -> Result<(UnixListener, SocketFile)> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let family = AddressFamily::UNIX;
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
            let file = SocketFile { path: path.to_path_buf(), file };
            // Nothing connects before it listens: not what the permissions keep out, either.
            if let Some(mode) = permissions {
                fs::set_permissions(path, Permissions::from_mode(mode))?;
            }
            rustix::net::listen(&socket, BACKLOG)?;
            let listener = std::os::unix::net::UnixListener::from(socket);
            Ok((UnixListener::from_std(listener), file))
        };
        listen().map_err(|error| failed(path, error))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another server may have made its own in the same place.
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

    #[test]
    fn what_a_killed_server_has_left_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let (listener, file) = SocketFile::listen(&path, None).unwrap();
        std::mem::forget(file);
        drop(listener);
        assert!(path.exists());
        let (_listener, second) = SocketFile::listen(&path, None).unwrap();
        // A file that another server has put in its place is not removed.
        fs::remove_file(&path).unwrap();
        let (_other, third) = SocketFile::listen(&path, None).unwrap();
        drop(second);
        assert!(path.exists());
        drop(third);
        assert!(!path.exists());
    }

    /// A server that ends no longer listens when it removes its file.
    #[test]
    fn the_file_of_the_next_server_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let (listener, first) = SocketFile::listen(&path, None).unwrap();
        drop(listener);
        // A file system may give the number of the removed file to this one.
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
