//! `tcp-backlog`, by the system's behaviour: connections wait without being accepted, up to a
//! bound.

use super::*;
use crate::config::Settings;
use std::net::TcpStream as Client;

/// Longest wait for a connection. The same machine accepts a connection at once, or drops it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Makes up to `clients` connections.
fn connected(address: SocketAddr, clients: usize) -> Vec<Client> {
    (0..clients).map_while(|_| Client::connect_timeout(&address, PATIENCE).ok()).collect()
}

fn bound(backlog: &str) -> (Arc<Shared>, Listener) {
    let text = ["--port", "0", "--bind", "127.0.0.1", "--tcp-backlog", backlog];
    let shared = Shared::new(Settings::from_arguments(&text).unwrap());
    let listener = Listener::bind(&shared).unwrap();
    (shared, listener)
}

/// The most that the system allows.
fn most() -> usize {
    let text = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    text.trim().parse().unwrap()
}

#[test]
fn as_many_wait_as_the_setting_says() {
    let (shared, listener) = bound("200");
    // The library would hold 129.
    let wanted = 150.min(most());
    assert_eq!(connected(listener.address().unwrap(), wanted).len(), wanted);
    // Also at a port set later.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let next = free.local_addr().unwrap();
    drop(free);
    assert!(shared.wiring.listening.listen_at(next.port()).unwrap());
    assert_eq!(connected(next, wanted).len(), wanted);
    // One connection more than the setting waits.
    let (_shared, few) = bound("3");
    assert_eq!(connected(few.address().unwrap(), 10).len(), 4);
}

#[test]
fn clients_of_the_file_wait_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let name = path.to_str().unwrap();
    let text = ["--port", "0", "--unixsocket", name, "--tcp-backlog", "3"];
    let shared = Shared::new(Settings::from_arguments(&text).unwrap());
    let mut listener = Listener::bind(&shared).unwrap();
    let _file = listener.take_socket_file();
    let mut clients = Vec::new();
    while let Ok(client) = mio::net::UnixStream::connect(&path) {
        clients.push(client);
        assert!(clients.len() <= 4, "the backlog of the library holds more");
    }
    assert_eq!(clients.len(), 4);
}
