//! A connection for one page: a request, its answer, the end.

use super::request::{self, MOST_HEAD_BYTES, PageRequest, Refusal};
use mio::net::TcpStream;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// The longest time of a connection, for any client.
pub const LONGEST: Duration = Duration::from_secs(2);

/// Most bytes read behind a request, only to be thrown away.
const MOST_DRAINED: usize = 256 << 10;

/// The activity of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpStage {
    /// The connection reads a request.
    Reading,
    /// The connection sends an answer.
    Writing,
    /// The server has closed its side, and waits for the client to close: an answer is lost if a
    /// socket is closed while the client still sends.
    Draining,
    /// There is nothing more to do.
    Over,
}

/// The next need of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// An event of the socket, or the end of the time.
    Event,
    /// The answer to a request, see [`HttpConnection::answer`].
    Answer(PageRequest),
    /// To be closed.
    Close,
}

/// A connection.
pub struct HttpConnection {
    /// The socket.
    pub socket: TcpStream,
    /// The latest end of the connection.
    pub ends: Instant,
    /// Other machines are served.
    is_open: bool,
    stage: HttpStage,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    drained: usize,
}

/// The result of a call on a socket.
enum Moved {
    Bytes(usize),
    /// The call has to wait.
    Later,
    /// The client has closed its side, or the socket has failed.
    Ended,
}

fn moved(result: std::io::Result<usize>) -> Moved {
    match result {
        Ok(0) => Moved::Ended,
        Ok(bytes) => Moved::Bytes(bytes),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Moved::Later,
        Err(error) if error.kind() == ErrorKind::Interrupted => Moved::Bytes(0),
        Err(_) => Moved::Ended,
    }
}

impl HttpConnection {
    /// A connection accepted now; other machines are served if `is_open`.
    pub fn new(socket: TcpStream, is_open: bool) -> HttpConnection {
        HttpConnection {
            socket,
            is_open,
            ends: Instant::now() + LONGEST,
            stage: HttpStage::Reading,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            drained: 0,
        }
    }

    /// Reads and writes as far as the socket allows now.
    pub fn advance(&mut self) -> NextStep {
        if self.stage == HttpStage::Reading
            && let Some(request) = self.read()
        {
            return NextStep::Answer(request);
        }
        if self.stage == HttpStage::Writing {
            self.write();
        }
        if self.stage == HttpStage::Draining {
            self.drain();
        }
        if self.stage == HttpStage::Over { NextStep::Close } else { NextStep::Event }
    }

    /// Sends the answer; then the connection ends.
    pub fn answer(&mut self, output: Vec<u8>) {
        (self.output, self.stage) = (output, HttpStage::Writing);
    }

    fn refuse(&mut self, refusal: Refusal) {
        let is_head = self.input.starts_with(b"HEAD ");
        self.answer(super::reply::refusal(refusal, is_head));
    }

    fn read(&mut self) -> Option<PageRequest> {
        let mut buffer = [0; MOST_HEAD_BYTES];
        // Once the buffer is full, the request is whole or too large.
        while self.stage == HttpStage::Reading {
            let room = MOST_HEAD_BYTES - self.input.len();
            debug_assert!(room > 0, "a head that fills the buffer is refused");
            match moved(self.socket.read(&mut buffer[..room])) {
                Moved::Later => break,
                Moved::Ended if self.input.is_empty() => self.stage = HttpStage::Over,
                Moved::Ended => self.refuse(request::CUT_OFF),
                Moved::Bytes(read) => {
                    self.input.extend_from_slice(&buffer[..read]);
                    match request::read(&self.input, self.is_open) {
                        Ok(None) => {}
                        Ok(whole) => return whole,
                        Err(refusal) => self.refuse(refusal),
                    }
                }
            }
        }
        None
    }

    fn write(&mut self) {
        while self.sent < self.output.len() {
            match moved(self.socket.write(&self.output[self.sent..])) {
                Moved::Later => return,
                Moved::Ended => return self.stage = HttpStage::Over,
                Moved::Bytes(sent) => self.sent += sent,
            }
        }
        self.stage = match self.socket.shutdown(Shutdown::Write) {
            Ok(()) => HttpStage::Draining,
            Err(_) => HttpStage::Over,
        };
    }

    fn drain(&mut self) {
        let mut buffer = [0; MOST_HEAD_BYTES];
        while self.stage == HttpStage::Draining {
            match moved(self.socket.read(&mut buffer)) {
                Moved::Later => return,
                Moved::Ended => self.stage = HttpStage::Over,
                Moved::Bytes(read) => {
                    self.drained += read;
                    if self.drained > MOST_DRAINED {
                        self.stage = HttpStage::Over;
                    }
                }
            }
        }
    }

    /// Ends the connection at the end of its time. Sends an error if a request has begun to arrive;
    /// a browser also opens connections for later needs.
    pub fn expire(&mut self) {
        if self.stage == HttpStage::Reading && !self.input.is_empty() {
            self.refuse(request::TOO_SLOW);
            self.write();
        }
        self.stage = HttpStage::Over;
    }
}
