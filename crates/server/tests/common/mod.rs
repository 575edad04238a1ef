//! A server for tests over sockets.

use hyades_server::{Server, Settings};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// A server on its own port; stopped when dropped.
pub struct Served(Option<Server>);

impl Served {
    /// Starts a server on a directory, with more settings.
    pub fn start(dir: &Path, more: &str) -> Served {
        let dir = dir.display();
        let text = format!("--port 0 --bind 127.0.0.1 --streams 2 --dir {dir} {more}");
        let settings: Vec<&str> = text.split_whitespace().collect();
        let server = Server::start(Settings::from_arguments(&settings).unwrap()).unwrap();
        server.wait_until_open().unwrap();
        Served(Some(server))
    }

    /// A connection with this limit for the wait for a reply.
    pub fn connect(&self, patience: Duration) -> TcpStream {
        let stream = TcpStream::connect(self.0.as_ref().unwrap().address().unwrap()).unwrap();
        stream.set_read_timeout(Some(patience)).unwrap();
        stream
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let server = self.0.take().unwrap();
        server.handle().stop();
        server.wait().unwrap();
    }
}
