//! Frames over a TCP connection.

use crate::message::MOST_BODY;
use std::io::{self, Error, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A peer is asked for a sign of life after this time without one, and so often more.
const ALIVE: Duration = Duration::from_secs(5);
const ALIVE_PROBES: u32 = 3;

/// A connection that carries frames.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// The body of the frame read last.
    body: Vec<u8>,
    /// The longest body accepted.
    most_body: usize,
}

impl Connection {
    /// A connection whose peer, if silent for 20 seconds, counts as gone.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
        rustix::net::sockopt::set_tcp_keepidle(&stream, ALIVE)?;
        rustix::net::sockopt::set_tcp_keepintvl(&stream, ALIVE)?;
        rustix::net::sockopt::set_tcp_keepcnt(&stream, ALIVE_PROBES)?;
        Ok(Self { stream, body: Vec::new(), most_body: MOST_BODY })
    }

    /// Limits the silence of the peer and the length of the peer's frames.
    pub fn limit(&mut self, silence: Option<Duration>, most_body: usize) -> io::Result<()> {
        self.most_body = most_body;
        self.stream.set_read_timeout(silence)?;
        self.stream.set_write_timeout(silence)
    }

    pub fn send(&mut self, body: &[u8]) -> io::Result<()> {
        debug_assert!(body.len() <= MOST_BODY, "a frame of {} bytes", body.len());
        let mut head = [0; 8];
        head[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
        let mut slices = &mut [IoSlice::new(&head), IoSlice::new(body)][..];
        while !slices.is_empty() {
            match self.stream.write_vectored(slices) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut slices, written),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The body of the next frame.
    pub fn receive(&mut self) -> io::Result<&[u8]> {
        let mut head = [0; 8];
        self.stream.read_exact(&mut head)?;
        let [length, crc] = [&head[..4], &head[4..]].map(|bytes| {
            let bytes: [u8; 4] = bytes.try_into().expect("it is four bytes long");
            u32::from_le_bytes(bytes)
        });
        let length = length as usize;
        if length > self.most_body {
            return Err(invalid(format!("a frame of {length} bytes is announced")));
        }
        self.body.clear();
        let read =
            Read::by_ref(&mut self.stream).take(length as u64).read_to_end(&mut self.body)?;
        if read < length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if crc32c::crc32c(&self.body) != crc {
            return Err(invalid("the checksum of a frame does not match".to_string()));
        }
        Ok(&self.body)
    }

    /// Sends a question, and waits for the answer.
    pub fn ask(&mut self, body: &[u8]) -> io::Result<&[u8]> {
        self.send(body)?;
        self.receive()
    }
}

pub(crate) fn invalid(why: String) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn frames_come_whole_or_not_at_all() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sent = |bytes: Vec<u8>| {
            let mut sender = TcpStream::connect(address).unwrap();
            sender.write_all(&bytes).unwrap();
            drop(sender);
            let mut connection = Connection::new(listener.accept().unwrap().0).unwrap();
            connection.receive().map(<[u8]>::to_vec)
        };
        let frame = |body: &[u8], crc: u32| {
            [&(body.len() as u32).to_le_bytes()[..], &crc.to_le_bytes(), body].concat()
        };
        let whole = frame(b"body", crc32c::crc32c(b"body"));
        assert_eq!(sent(whole.clone()).unwrap(), b"body");
        for len in 0..whole.len() {
            let cut = sent(whole[..len].to_vec()).unwrap_err();
            assert_eq!(cut.kind(), ErrorKind::UnexpectedEof, "{len} bytes");
        }
        assert_eq!(sent(frame(b"body", 1)).unwrap_err().kind(), ErrorKind::InvalidData);
        let endless = [&u32::MAX.to_le_bytes()[..], &[0; 4]].concat();
        assert_eq!(sent(endless).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
