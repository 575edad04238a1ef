//! Passes frames between a client and a server, and holds an answer back.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// The kinds of requests whose answers are held.
pub const APPLY: u8 = 3;
pub const CHECKPOINT: u8 = 4;

#[derive(Clone, Copy, PartialEq)]
enum Holding {
    Nothing,
    /// The next answer to a request of this kind is held.
    Next(u8),
    Held,
    Lost,
}

/// Stands between a client and a server.
#[derive(Clone)]
pub struct Relay {
    pub address: SocketAddr,
    holding: Arc<(Mutex<Holding>, Condvar)>,
}

impl Relay {
    /// A relay to a server, whose processes have one address.
    pub fn start(server: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let holding = Arc::new((Mutex::new(Holding::Nothing), Condvar::new()));
        let relay = Relay { address, holding };
        let passing = relay.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let relay = passing.clone();
                let pass = move || relay.pass(client, TcpStream::connect(server)?);
                std::thread::spawn(pass);
            }
        });
        relay
    }

    /// Passes questions and answers until an end closes the connection.
    fn pass(&self, mut client: TcpStream, mut server: TcpStream) -> io::Result<()> {
        loop {
            let question = frame(&mut client)?;
            server.write_all(&question)?;
            let answer = frame(&mut server)?;
            if self.is_lost(question[8]) {
                return Ok(());
            }
            client.write_all(&answer)?;
        }
    }

    /// Waits while an answer is held.
    fn is_lost(&self, kind: u8) -> bool {
        let (holding, changed) = &*self.holding;
        let mut held = holding.lock().unwrap();
        if *held != Holding::Next(kind) {
            return false;
        }
        *held = Holding::Held;
        changed.notify_all();
        let held = changed.wait_while(held, |holding| *holding == Holding::Held).unwrap();
        *held == Holding::Lost
    }

    fn set(&self, to: Holding) {
        *self.holding.0.lock().unwrap() = to;
        self.holding.1.notify_all();
    }

    /// Holds the next answer to a request of a kind.
    pub fn hold(&self, kind: u8) {
        self.set(Holding::Next(kind));
    }

    /// Waits until the answer is held: the server has done what was asked.
    pub fn until_held(&self) {
        let held = self.holding.0.lock().unwrap();
        drop(self.holding.1.wait_while(held, |holding| *holding != Holding::Held).unwrap());
    }

    /// Hands the held answer over.
    pub fn release(&self) {
        self.set(Holding::Nothing);
    }

    /// Drops the held answer, and closes the connection.
    pub fn lose(&self) {
        self.set(Holding::Lost);
    }
}

/// The next frame, with its head.
fn frame(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 8];
    from.read_exact(&mut frame)?;
    let length = u32::from_le_bytes(frame[..4].try_into().unwrap());
    frame.resize(8 + length as usize, 0);
    from.read_exact(&mut frame[8..])?;
    Ok(frame)
}
